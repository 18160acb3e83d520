"""Members of static archives: what their forms (GNU, BSD, COFF) have in common. Source: <ar.h>; numbers are ASCII."""

from __future__ import annotations

import os

from emitter.errors import LayoutError, shown
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from emitter.layout import FilePlan

__all__ = ["HEADER_SIZE", "MAGIC", "Member", "header", "member_name"]

MAGIC = b"!<arch>\n"
HEADER_SIZE = 60


class Member(NamedTuple):
    """A file of an archive: its name, the symbols it defines in the order of its symbol table, and its planner.

    `plan` gets the offset of the member's first byte in the output, and returns a plan relative to that byte.
    """

    name: str
    symbols: Sequence[str]
    plan: Callable[[int], FilePlan]


def member_name(text: str) -> bytes:
    """Return the name of a member as bytes; raise LayoutError for one that no form of archive can hold."""
    name = os.fsencode(text)
    if not name or any(byte in name for byte in b"/\n\0"):
        raise LayoutError(
            "not a name for a member of an archive",
            where=shown(text),
            expected="a file name without slash, line feed or NUL",
            hint="choose another name for the output",
        )
    return name


def header(name: bytes, size: int, *, mode: bytes = b"644", zero: bytes = b"0") -> bytes:
    """Return an `ar_hdr`; time stamp, user and group are `zero`, which is blank in headers of tables of names."""
    return b"%-16s%-12s%-6s%-6s%-8s%-10d`\n" % (name, zero, zero, zero, mode, size)
