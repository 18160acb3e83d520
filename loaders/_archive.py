"""Lists the members of an ar archive: GNU and Windows (`/`, `/SYM64/`, `//`) and BSD (`#1/LENGTH`) names.

Source: the manual of `ar` (System V and BSD variants), and Microsoft's PE Format for Windows' libraries. Each member
has a header of 60 ASCII bytes and begins at an even offset.
"""

from __future__ import annotations

from emitter.errors import FormatError, LoadError
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MAGIC", "THIN_MAGIC", "Member", "members"]

MAGIC = b"!<arch>\n"
THIN_MAGIC = b"!<thin>\n"

_HEADER_SIZE = 60
# Windows' libraries have two of `/`, and further tables between `/<` and `>/`.
_SYMBOL_TABLES = ("/", "/SYM64/", "__.SYMDEF", "__.SYMDEF SORTED", "__.SYMDEF_64", "__.SYMDEF_64 SORTED")


class Member(NamedTuple):
    """A member that is a file: its body is `size` bytes from `offset` of the archive."""

    name: str
    offset: int
    size: int


def members(data: memoryview, where: str) -> Iterator[Member]:
    """Yield the members, without symbol tables and name tables. Raises FormatError or LoadError (truncated)."""
    position = len(MAGIC)
    names = b""
    while position < len(data):
        header = bytes(data[position : position + _HEADER_SIZE])
        at = f"{where}: member header at {position:#x}"
        if len(header) < _HEADER_SIZE:
            raise _truncated(at, position + _HEADER_SIZE, len(data))
        if header[58:] != b"`\n":
            raise FormatError("not a member header", where=at, expected="60 0a at its end", actual=header[58:].hex(" "))
        size = _number(header[48:58], "ar_size", at)
        offset = position + _HEADER_SIZE
        if offset + size > len(data):
            raise _truncated(at, offset + size, len(data))
        position = offset + size + (size & 1)
        name = header[:16].rstrip(b" ")
        if name == b"//":
            names = bytes(data[offset : offset + size])
            continue
        if name.startswith(b"#1/"):
            length = _number(name[3:], "the length of the name", at)
            if length > size:
                raise FormatError(
                    "the name is longer than its member", where=at, expected=f"at most {size}", actual=length
                )
            name = bytes(data[offset : offset + length]).rstrip(b"\0")
            offset, size = offset + length, size - length
        elif name[:1] == b"/" and name[1:].isdigit():
            start = int(name[1:])
            ends = [end for end in (names.find(b"\n", start), names.find(b"\0", start)) if end >= 0]
            end = min(ends, default=-1)  # of GNU's `ar`, of Microsoft's `lib`
            if end < 0:
                raise FormatError(
                    "the name is not in the table of names", where=at, expected=f"less than {len(names)}", actual=start
                )
            name = names[start:end]
        text = name.decode("utf-8", "backslashreplace")
        if text in _SYMBOL_TABLES or text.startswith("/<"):
            continue
        yield Member(text.removesuffix("/"), offset, size)


def _number(field: bytes, what: str, where: str) -> int:
    digits = field.strip(b" ")
    if not digits.isdigit():
        raise FormatError(f"{what} is not a decimal number", where=where, actual=field)
    return int(digits)


def _truncated(where: str, expected: int, actual: int) -> LoadError:
    return LoadError(
        "the archive is truncated",
        where=where,
        expected=f"at least {expected} bytes",
        actual=actual,
        hint="copy it again",
    )
