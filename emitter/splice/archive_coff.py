"""Static archives in the form of COFF: two symbol indexes, which Microsoft calls linker members.

Byte for byte as LLVM's archiver makes them. Source: Microsoft's PE Format, "Archive (Library) File Format". link.exe
and lld-link read the second index, GNU ld and llvm-ar the first, which is that of GNU archives. Numbers in headers are
ASCII.
"""

from __future__ import annotations

import os
import struct

from emitter.errors import LayoutError, shown
from emitter.layout import FilePlan, Piece, align_up
from emitter.limits import COFF_MAX_FILE_SIZE
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emitter.layout import Copy
    from emitter.splice.archive import Member

__all__ = ["MAX_MEMBERS", "plan_archive"]

MAGIC = b"!<arch>\n"
HEADER_SIZE = 60
MAX_MEMBERS = 0xFFFF  # the second index numbers them with 16 bits
_SHORT_NAME = 15  # bytes that fit into the name field with the closing slash


def plan_archive(members: Sequence[Member]) -> FilePlan:
    """Lay out an archive of `members`, with both indexes; the members of an import library are all called alike.

    Raises LayoutError for 4 GiB and more, for more than 65535 members, for a name that the format cannot hold, and for
    more than one pack.
    """
    if len(members) > MAX_MEMBERS:
        raise LayoutError(
            "too many members for an archive of COFF",
            expected=f"at most {MAX_MEMBERS}",
            actual=len(members),
            hint="write several archives",
        )
    names, long_names = _encode_names(members)
    numbered = [(symbol.encode(), number) for number, member in enumerate(members) for symbol in member.symbols]
    strings = sum(len(symbol) + 1 for symbol, _ in numbered)
    first_size = 4 + 4 * len(numbered) + strings
    second_size = 4 + 4 * len(members) + 4 + 2 * len(numbered) + strings
    second = len(MAGIC) + HEADER_SIZE + align_up(first_size, 2)
    third = second + HEADER_SIZE + align_up(second_size, 2)
    start = third + (HEADER_SIZE + align_up(len(long_names), 2) if long_names else 0)

    placed = []
    position = start
    for member in members:
        plan = member.plan(position + HEADER_SIZE)
        placed.append((position, plan))
        position = align_up(position + HEADER_SIZE + plan.size, 2)
    if position > COFF_MAX_FILE_SIZE:
        raise LayoutError(
            "too large for an archive of COFF",
            expected=f"at most {COFF_MAX_FILE_SIZE} bytes",
            actual=position,
            hint="split the package, or write a .pack and map it",
        )

    # File layout is fixed.
    offsets = [offset for offset, _ in placed]
    first_index = struct.pack(f">{len(numbered) + 1}I", len(numbered), *(offsets[number] for _, number in numbered))
    first_index += b"".join(symbol + b"\0" for symbol, _ in numbered)
    ordered = sorted(numbered)  # by the bytes of the names: this index is searched by halves
    second_index = struct.pack(
        f"<{len(members) + 2}I{len(ordered)}H",
        len(members),
        *offsets,
        len(ordered),
        *(1 + number for _, number in ordered),
    ) + b"".join(symbol + b"\0" for symbol, _ in ordered)
    pieces = [
        Piece(0, MAGIC + _member(b"/", first_index, b"\0")),
        Piece(second, _member(b"/", second_index, b"\0")),
    ]
    if long_names:
        pieces.append(Piece(third, _member(b"//", long_names, b"\n", zero=b"")))
    copies: list[Copy] = []
    pack_offset = None
    for name, (offset, plan) in zip(names, placed, strict=True):
        body = offset + HEADER_SIZE
        pieces.append(Piece(offset, _header(name, plan.size, b"644")))
        pieces += (Piece(body + piece.offset, piece.data) for piece in plan.pieces)
        copies += (copy.moved(body) for copy in plan.copies)
        if plan.pack_offset is not None:
            if pack_offset is not None:
                raise LayoutError(
                    "an archive holds one pack", actual="two members with a pack each", hint="write two archives"
                )
            pack_offset = body + plan.pack_offset
        if plan.size % 2:
            pieces.append(Piece(body + plan.size, b"\n"))
    return FilePlan(position, pieces, copies, pack_offset)


def _encode_names(members: Sequence[Member]) -> tuple[list[bytes], bytes]:
    """Return each member's name field, and the body of `//` for names that are too long for it, each there once."""
    names = []
    table = bytearray()
    known: dict[bytes, int] = {}
    for member in members:
        name = os.fsencode(member.name)
        if not name or any(byte in name for byte in b"/\n\0"):
            raise LayoutError(
                "not a name for a member of an archive",
                where=shown(member.name),
                expected="a file name without slash, line feed or NUL",
            )
        if len(name) <= _SHORT_NAME:
            names.append(name + b"/")
            continue
        offset = known.setdefault(name, len(table))
        if offset == len(table):
            table += name + b"\0"
        names.append(b"/%d" % offset)
    return names, bytes(table)


def _member(name: bytes, body: bytes, padding: bytes, *, zero: bytes = b"0") -> bytes:
    """Return a member that the format defines; its padding counts."""
    body += padding * (len(body) % 2)
    return _header(name, len(body), zero, zero) + body


def _header(name: bytes, size: int, mode: bytes, zero: bytes = b"0") -> bytes:
    """Return a member header: time stamp, user and group are `zero` ("0", or blank for `//`)."""
    return b"%-16s%-12s%-6s%-6s%-8s%-10d`\n" % (name, zero, zero, zero, mode, size)
