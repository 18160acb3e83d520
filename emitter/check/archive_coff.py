"""The check of a static archive of COFF after writing: its members, both of its symbol indexes, each object in it.

Source: Microsoft's PE Format, "Archive (Library) File Format".
"""

from __future__ import annotations

import struct

from emitter.check.coff import check_object
from emitter.check.pack import check_members, open_output
from emitter.check.readback import Reader, difference, expect, require
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from emitter.layout import FilePlan
    from emitter.pack.plan import PackPlan
    from emitter.targets._base import Target

__all__ = ["check_archive"]


def check_archive(fd: int, target: Target, plan: FilePlan, pack: PackPlan | None, symbol: str | None) -> None:
    """Check a static archive: its members one after the other, its symbol indexes, and each object in it."""
    reader = open_output(fd, target, plan)
    expect("magic of the archive", reader.read(0, 8, "magic"), b"!<arch>\n")
    position = 8
    indexes = []
    starts = []
    holders = []
    while position < reader.size:
        header = reader.read(position, 60, f"member header at {position}")
        expect(f"end of the member header at {position}", header[58:], b"`\n")
        digits = header[48:58].strip()
        if not digits.isdigit():
            raise difference(f"size of the member at {position}", "a decimal number", digits)
        start, size, name = position + 60, int(digits), header[:16].rstrip()
        reader.bound(start, size, f"member at {position}")
        if name == b"/":
            indexes.append((start, size))
        elif name != b"//":
            starts.append(position)
            holders.append(check_object(fd, target, plan, pack, symbol, member=(start, size)))
        position = start + size + size % 2
    check_members(holders, plan, pack)
    expect("number of symbol indexes", len(indexes), 2)
    first = _first_index(reader, *indexes[0])
    second = _second_index(reader, *indexes[1], starts)
    expect("symbols of the second index", second, sorted(first))
    expect("offsets in the symbol index that are no member", sorted({offset for _, offset in first} - set(starts)), [])


def _first_index(reader: Reader, start: int, size: int) -> list[tuple[bytes, int]]:
    """Return (symbol, offset of its member) of each symbol of the first linker member."""
    require("the first symbol index has a count", size >= 4)
    count = int.from_bytes(reader.read(start, 4, "first symbol index"), "big")
    require("the first symbol index lies in its member", 4 * (1 + count) <= size)
    data = reader.read(start + 4, size - 4, "first symbol index")
    offsets = struct.unpack_from(f">{count}I", data)
    return list(zip(_names(data[4 * count :], count), offsets, strict=True))


def _second_index(reader: Reader, start: int, size: int, starts: list[int]) -> list[tuple[bytes, int]]:
    """Return the same of the second, in its order; its member numbers must lead to `starts`."""
    (members,) = reader.unpack("I", start, "second symbol index")
    require("the second symbol index has a count", size >= 8 + 4 * members)
    offsets = reader.unpack(f"{members}I", start + 4, "second symbol index")
    expect("members of the second symbol index", list(offsets), starts)
    (count,) = reader.unpack("I", start + 4 + 4 * members, "second symbol index")
    at = 8 + 4 * members
    require("the second symbol index lies in its member", at + 2 * count <= size)
    numbers = reader.unpack(f"{count}H", start + at, "second symbol index")
    require("the second symbol index numbers members", all(0 < number <= members for number in numbers))
    names = _names(reader.read(start + at + 2 * count, size - at - 2 * count, "second symbol index"), count)
    return [(name, offsets[number - 1]) for name, number in zip(names, numbers, strict=True)]


def _names(data: bytes, count: int) -> list[bytes]:
    names = data.split(b"\0")
    require("the names in a symbol index end with it", names[count:] in ([b""], [b"", b""]))  # it has an even size
    return names[:count]
