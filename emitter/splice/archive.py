"""Static archives in the GNU form, byte for byte as `ar rcsD` of GNU binutils makes them.

Source: the `ar` header of <ar.h>, and binutils, which defines the GNU forms of the symbol index (`/`, `/SYM64/`) and of
the table of long names (`//`). Numbers in headers are ASCII, those of the index big-endian.
"""

from __future__ import annotations

import struct

from emitter.errors import LayoutError, shown
from emitter.layout import FilePlan, Piece, align_up
from emitter.limits import MAX_MEMBER_SIZE
from emitter.records import TYPE_CHECKING
from emitter.splice.contents import Contents
from emitter.splice.member import HEADER_SIZE, MAGIC, header, member_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emitter.splice.member import Member

__all__ = ["SYM64_THRESHOLD", "plan_archive"]

SYM64_THRESHOLD = 1 << 32  # header offsets from here on do not fit into the words of `/`
_SHORT_NAME = 15  # bytes that fit into ar_name with the closing slash


def plan_archive(members: Sequence[Member], *, sym64_threshold: int = SYM64_THRESHOLD) -> FilePlan:
    """Lay out an archive of `members`, with its symbol index.

    The index is `/` with 32-bit words, or `/SYM64/` with 64-bit ones if the header of a member that defines symbols
    stands at `sym64_threshold` or after it. Raises LayoutError for a member above 9999999999 bytes, for a name that the
    format cannot hold, for two members of one name, and for more than one pack.
    """
    names, long_names = _encode_names(members)
    strings = b"".join(
        symbol.encode(errors="surrogateescape") + b"\0" for _, symbols, _ in members for symbol in symbols
    )
    count = sum(len(symbols) for _, symbols, _ in members)

    # The width of the index decides where members start, and that decides the width.
    for word, alignment in ((4, 2), (8, 8)):
        index_size = align_up(word * (1 + count) + len(strings), alignment)
        first = len(MAGIC) + HEADER_SIZE + index_size
        if long_names:
            first += HEADER_SIZE + align_up(len(long_names), 2)
        placed = _place(members, first)
        headers = [offset for (offset, _), (_, symbols, _) in zip(placed, members, strict=True) for _ in symbols]
        if word == 8 or max(headers, default=0) < sym64_threshold:
            break

    # File layout is fixed.
    index = struct.pack(f">{count + 1}{'I' if word == 4 else 'Q'}", count, *headers) + strings
    contents = Contents()
    head = header(b"/" if word == 4 else b"/SYM64/", index_size, mode=b"0")
    contents.pieces.append(Piece(0, MAGIC + head + index.ljust(index_size, b"\0")))
    if long_names:
        padded = long_names.ljust(align_up(len(long_names), 2), b"\n")
        head = header(b"//", len(padded), mode=b"", zero=b"")
        contents.pieces.append(Piece(len(MAGIC) + HEADER_SIZE + index_size, head + padded))
    end = first
    for name, (offset, plan) in zip(names, placed, strict=True):
        start = offset + HEADER_SIZE
        contents.pieces.append(Piece(offset, header(name, plan.size)))
        contents.add_member(plan, start)
        end = start + plan.size
        if end % 2:
            contents.pieces.append(Piece(end, b"\n"))
            end += 1
    return FilePlan(end, contents.pieces, contents.copies, contents.pack_offset)


def _place(members: Sequence[Member], offset: int) -> list[tuple[int, FilePlan]]:
    """Return the offset of each member's header and its plan, when the first header stands at `offset`."""
    placed = []
    for name, _, plan_member in members:
        plan = plan_member(offset + HEADER_SIZE)
        if plan.size > MAX_MEMBER_SIZE:
            raise LayoutError(
                "too large for a member of an archive",
                where=shown(name),
                expected=f"at most {MAX_MEMBER_SIZE} bytes",
                actual=plan.size,
                hint="write an object (.o) or a shared library (.so), or split the package",
            )
        placed.append((offset, plan))
        offset = align_up(offset + HEADER_SIZE + plan.size, 2)
    return placed


def _encode_names(members: Sequence[Member]) -> tuple[list[bytes], bytes]:
    """Return each member's ar_name, and the body of `//` for those that are too long for it."""
    names = []
    table = bytearray()
    seen = set()
    for text, _, _ in members:
        name = member_name(text)
        if name in seen:
            # Extracting such an archive loses all but the last.
            raise LayoutError("two members of the archive have one name", where=shown(text), hint="rename one of them")
        seen.add(name)
        if len(name) <= _SHORT_NAME:
            names.append(name + b"/")
        else:
            names.append(b"/%d" % len(table))
            table += name + b"/\n"
    return names, bytes(table)
