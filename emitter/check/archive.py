"""The check of a static archive after writing: its members one after the other, its symbol index, each object in it.

Source: <ar.h>; GNU binutils for the GNU forms of the index and of long names.
"""

from __future__ import annotations

import struct

from emitter.check.elf import check_object
from emitter.check.pack import check_members, open_output
from emitter.check.readback import difference, expect, require
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from emitter.layout import FilePlan
    from emitter.pack.plan import PackPlan
    from emitter.targets._base import Target

__all__ = ["check_archive"]


def check_archive(fd: int, target: Target, plan: FilePlan, pack: PackPlan | None, symbol: str | None) -> None:
    """Check a static archive: its members one after the other, its symbol index, and each object in it."""
    reader = open_output(fd, target, plan)
    expect("magic of the archive", reader.read(0, 8, "magic"), b"!<arch>\n")
    position = 8
    starts = set()
    holders = []
    index: tuple[int, ...] = ()
    while position < reader.size:
        header = reader.read(position, 60, f"member header at {position}")
        expect(f"ar_fmag at {position}", header[58:], b"`\n")
        digits = header[48:58].strip()
        if not digits.isdigit():
            raise difference(f"ar_size at {position}", "a decimal number", digits)
        start, size, name = position + 60, int(digits), header[:16].rstrip()
        reader.bound(start, size, f"member at {position}")
        starts.add(position)
        if name in {b"/", b"/SYM64/"}:
            width, code = (4, "I") if name == b"/" else (8, "Q")
            count = int.from_bytes(reader.read(start, width, "symbol index"), "big")
            require("the symbol index lies in its member", (1 + count) * width <= size)
            index = struct.unpack(f">{count}{code}", reader.read(start + width, count * width, "symbol index"))
        elif name != b"//":
            holders.append(check_object(fd, target, plan, pack, symbol, member=(start, size)))
        position = start + size + size % 2
    check_members(holders, plan, pack)
    expect("offsets in the symbol index that are no member", sorted(set(index) - starts), [])
