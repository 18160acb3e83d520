"""The check of an archive in the BSD form after writing: its members, its symbol index, each object in it.

Source: <ar.h>, <mach-o/ranlib.h>.
"""

from __future__ import annotations

import struct

from emitter.check.macho import check_object
from emitter.check.pack import check_members, open_output
from emitter.check.readback import difference, expect, require
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from emitter.check.readback import Reader
    from emitter.layout import FilePlan
    from emitter.pack.plan import PackPlan
    from emitter.targets._base import Target

__all__ = ["check_archive"]


def check_archive(
    fd: int,
    target: Target,
    plan: FilePlan,
    pack: PackPlan | None,
    symbol: str | None,
    *,
    member: tuple[int, int] | None = None,
) -> None:
    """Check an archive, or `member` (offset, size in bytes) of a universal file that is one."""
    reader = open_output(fd, target, plan, member)
    expect("magic of the archive", reader.read(0, 8, "magic"), b"!<arch>\n")
    position = 8
    starts = set()
    holders = []
    index: list[int] | None = None
    while position < reader.size:
        header = reader.read(position, 60, f"member header at {position}")
        expect(f"ar_fmag at {position}", header[58:], b"`\n")
        long, digits = header[:16].rstrip(), header[48:58].strip()
        if not digits.isdigit() or not long.startswith(b"#1/") or not long[3:].isdigit():
            raise difference(f"ar_name and ar_size at {position}", "#1/ and two decimal numbers", (long, digits))
        start, size, name_size = position + 60, int(digits), int(long[3:])
        reader.bound(start, size, f"member at {position}")
        require(f"the name of the member at {position} lies in it", name_size <= size)
        name = reader.read(start, name_size, "name of a member").rstrip(b"\0")
        expect(f"contents of the member at {position} modulo 8", (start + name_size) % 8, 0)
        contents = (start + name_size, size - name_size)
        if index is None:
            expect("name of the first member", name, b"__.SYMDEF SORTED")
            index = _read_index(reader, *contents)
        else:
            starts.add(position)
            inner = (reader.base + contents[0], contents[1])
            holders.append(check_object(fd, target, plan, pack, symbol, member=inner))
        position = start + size
    check_members(holders, plan, pack)
    expect("end of the archive", position, reader.size)
    expect("offsets in the symbol index that are no member", sorted(set(index or ()) - starts), [])


def _read_index(reader: Reader, start: int, size: int) -> list[int]:
    """Return the offset of the member that the index gives for each symbol; its names must ascend."""
    require("the symbol index has its two sizes", size >= 8)
    data = reader.read(start, size, "symbol index")
    (length,) = struct.unpack_from("<I", data)
    require("the entries of the symbol index lie in it", length % 8 == 0 and 8 + length <= size)
    (strings_size,) = struct.unpack_from("<I", data, 4 + length)
    require("the strings of the symbol index lie in it", 8 + length + strings_size <= size)
    strings = data[8 + length : 8 + length + strings_size]
    rows = list(struct.iter_unpack("<2I", data[4 : 4 + length]))
    names = []
    for strx, _ in rows:
        end = strings.find(b"\0", strx)
        require("a name of the symbol index ends in it", end > strx)
        names.append(strings[strx:end])
    require("the names of the symbol index ascend", names == sorted(names))
    return [offset for _, offset in rows]
