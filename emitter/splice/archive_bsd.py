"""Static archives in the BSD form, which Apple's tools read.

Source: <ar.h>, <mach-o/ranlib.h>, and cctools' libtool, which defines long names (`#1/` and their length, the name
standing in front of the contents) and the index `__.SYMDEF SORTED`. Numbers in headers are ASCII, those of the index
little-endian, as in the files of all targets.
"""

from __future__ import annotations

import struct

from emitter.errors import LayoutError, shown
from emitter.layout import FilePlan, Piece, align_up
from emitter.limits import MACHO_MAX_FILE_SIZE
from emitter.records import TYPE_CHECKING
from emitter.splice.contents import Contents
from emitter.splice.member import HEADER_SIZE, MAGIC, header, member_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emitter.splice.member import Member

__all__ = ["INDEX_NAME", "plan_archive"]

INDEX_NAME = b"__.SYMDEF SORTED"
ALIGNMENT = 8  # of members and their contents, so that Mach-O in them is aligned


def plan_archive(members: Sequence[Member]) -> FilePlan:
    """Lay out an archive of `members`, with its symbol index in the order of the symbols' names.

    Raises LayoutError for an archive above 4 GiB, for a name that the format cannot hold, for two members of one name,
    and for more than one pack.
    """
    names = _encode_names(members)
    strings = bytearray()
    symbols = []  # (name, offset of the name in the strings, number of the member)
    for number, member in enumerate(members):
        for symbol in member.symbols:
            symbols.append((symbol.encode(errors="surrogateescape"), len(strings), number))
            strings += symbol.encode(errors="surrogateescape") + b"\0"
    symbols.sort()
    strings += bytes(-len(strings) % ALIGNMENT)
    index_name = _long_name(INDEX_NAME, len(MAGIC))
    index_size = len(index_name) + 4 + 8 * len(symbols) + 4 + len(strings)
    index_size += -(len(MAGIC) + HEADER_SIZE + index_size) % ALIGNMENT

    contents = Contents()
    offsets: list[int] = []
    position = len(MAGIC) + HEADER_SIZE + index_size
    for name, member in zip(names, members, strict=True):
        start = position + HEADER_SIZE + len(long := _long_name(name, position))
        plan = member.plan(start)
        size = len(long) + align_up(plan.size, ALIGNMENT)
        offsets.append(position)
        contents.pieces.append(Piece(position, header(b"#1/%d" % len(long), size) + long))
        contents.add_member(plan, start)
        position += HEADER_SIZE + size
        if position > MACHO_MAX_FILE_SIZE:
            raise LayoutError(
                "too large for an archive of Apple's form",
                where=shown(member.name),
                expected=f"at most {MACHO_MAX_FILE_SIZE} bytes",
                actual=position,
                hint="write a library with --sidecar, or a .pack, which have no such limit; or split the package",
            )

    # File layout is fixed.
    ranlibs = b"".join(struct.pack("<2I", strx, offsets[number]) for _, strx, number in symbols)
    index = struct.pack("<I", len(ranlibs)) + ranlibs + struct.pack("<I", len(strings)) + strings
    head = MAGIC + header(b"#1/%d" % len(index_name), index_size, mode=b"0") + index_name + index
    return FilePlan(position, [Piece(0, head), *contents.pieces], contents.copies, contents.pack_offset)


def _long_name(name: bytes, position: int) -> bytes:
    """Return a name as it stands before the contents of the member at `position`: they begin at a multiple of 8."""
    return name + bytes(-(position + HEADER_SIZE + len(name)) % ALIGNMENT)


def _encode_names(members: Sequence[Member]) -> list[bytes]:
    names: list[bytes] = []
    for member in members:
        name = member_name(member.name)
        if name in names or name.startswith(b"__.SYMDEF"):
            # Extracting such an archive loses all but the last; the index is a member, too.
            raise LayoutError(
                "two members of the archive have one name", where=shown(member.name), hint="rename one of them"
            )
        names.append(name)
    return names
