"""The check of a universal file after writing: its header, and each slice as a file of its own.

Source: <mach-o/fat.h>.
"""

from __future__ import annotations

import struct

from emitter.check.pack import open_output
from emitter.check.readback import expect, require
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from emitter.layout import FilePlan
    from emitter.pack.plan import PackPlan

__all__ = ["check_universal"]


def check_universal(
    fd: int, plan: FilePlan, pack: PackPlan | None, symbol: str | None, check_slice: Callable[..., object]
) -> None:
    """Check a universal file; `check_slice` is the check of what its slices are."""
    reader = open_output(fd, plan.slices[0].target, plan)
    head = reader.read(0, 8 + 20 * len(plan.slices), "fat_header")
    expect("fat_header", struct.unpack_from(">2I", head), (0xCAFEBABE, len(plan.slices)))
    end = len(head)
    for number, one in enumerate(plan.slices):
        cputype, cpusubtype, offset, size, align = struct.unpack_from(">5I", head, 8 + 20 * number)
        facts = one.target.macho
        expect(f"(cputype, cpusubtype) of slice {number}", (cputype, cpusubtype), facts and facts[:2])
        expect(f"(align, offset modulo it) of slice {number}", (align, offset % 16384), (14, 0))
        require(f"slice {number} begins behind what is before it", offset >= end)
        reader.bound(offset, size, f"slice {number}")
        end = offset + size
        pack_offset = one.plan.pack_offset
        part = plan._replace(pack_offset=None if pack_offset is None else offset + pack_offset)
        check_slice(fd, one.target, part, pack, symbol, member=(offset, size))
    expect("end of the last slice", end, reader.size)
