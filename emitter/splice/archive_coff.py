"""Static archives in the form of COFF: two symbol indexes, which Microsoft calls linker members.

Byte for byte as LLVM's archiver makes them. Source: Microsoft's PE Format, "Archive (Library) File Format". link.exe
and lld-link read the second index, GNU ld and llvm-ar the first, which is that of GNU archives. Numbers in headers are
ASCII.
"""

from __future__ import annotations

import struct

from emitter.errors import LayoutError
from emitter.layout import FilePlan, Piece, align_up
from emitter.limits import COFF_MAX_FILE_SIZE
from emitter.records import TYPE_CHECKING
from emitter.splice.contents import Contents
from emitter.splice.member import HEADER_SIZE, MAGIC, header, member_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emitter.splice.member import Member

__all__ = ["MAX_MEMBERS", "plan_archive"]

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
    numbered = [
        (symbol.encode(errors="surrogateescape"), number)
        for number, member in enumerate(members)
        for symbol in member.symbols
    ]
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
    contents = Contents()
    contents.pieces += (
        Piece(0, MAGIC + _member(b"/", first_index, b"\0")),
        Piece(second, _member(b"/", second_index, b"\0")),
    )
    if long_names:
        contents.pieces.append(Piece(third, _member(b"//", long_names, b"\n", zero=b"")))
    for name, (offset, plan) in zip(names, placed, strict=True):
        body = offset + HEADER_SIZE
        contents.pieces.append(Piece(offset, header(name, plan.size)))
        contents.add_member(plan, body)
        if plan.size % 2:
            contents.pieces.append(Piece(body + plan.size, b"\n"))
    return FilePlan(position, contents.pieces, contents.copies, contents.pack_offset)


def _encode_names(members: Sequence[Member]) -> tuple[list[bytes], bytes]:
    """Return each member's name field, and the body of `//` for names that are too long for it, each there once."""
    names = []
    table = bytearray()
    known: dict[bytes, int] = {}
    for member in members:
        name = member_name(member.name)
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
    return header(name, len(body), mode=zero, zero=zero) + body
