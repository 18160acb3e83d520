"""Universal files: one file each for several CPUs of one platform, behind a header that says where each begins.

Source: <mach-o/fat.h>. The offsets of FAT_MAGIC have 32 bits; FAT_MAGIC_64 is not read by every loader.
"""

from __future__ import annotations

from emitter import macho
from emitter.errors import LayoutError, UsageError
from emitter.layout import FilePlan, Piece, Slice, align_up, bulk_alignment
from emitter.limits import MACHO_MAX_FILE_SIZE
from emitter.macho import facts_of
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emitter.layout import Copy, PageHashes
    from emitter.targets._base import Target

__all__ = ["check_slices", "plan_universal"]


def check_slices(targets: Sequence[Target]) -> None:
    """Raise UsageError for targets that one universal file cannot hold: two platforms, or one CPU twice."""
    if len({facts_of(target).platform for target in targets}) > 1:
        raise UsageError(
            "a universal file is for one platform",
            expected=f"CPUs of the platform of {targets[0].name}",
            actual=", ".join(target.name for target in targets),
            hint="write one file for each, with {target} in -o, and join them with `xcodebuild -create-xcframework`",
        )
    if len({(facts_of(target).cputype, facts_of(target).cpusubtype) for target in targets}) < len(targets):
        raise UsageError(
            "a universal file holds each CPU once",
            actual=", ".join(target.name for target in targets),
            hint="name each target once, in the oldest version that it shall run on",
        )


def plan_universal(parts: Sequence[tuple[Target, FilePlan]]) -> FilePlan:
    """Return the plan of a universal file of `parts`, which `check_slices` has passed; each holds the whole pack.

    Slices begin at multiples of 2^14, or of what makes copying fast. Raises LayoutError above 4 GiB.
    """
    parts = sorted(parts, key=lambda part: (facts_of(part[0]).cputype, facts_of(part[0]).cpusubtype))
    slices: list[Slice] = []
    position = macho.FAT_HEADER_SIZE + macho.FAT_ARCH_SIZE * len(parts)
    for target, plan in parts:
        payload = sum(copy.size for copy in plan.copies)
        position = align_up(position, max(1 << macho.SEGMENT_ALIGN, bulk_alignment(payload)))
        slices.append(Slice(position, target, plan))
        position += plan.size
    if position > MACHO_MAX_FILE_SIZE:
        raise LayoutError(
            "too large for a universal file, which holds the payload once for each CPU",
            where=", ".join(target.name for target, _ in parts),
            expected=f"at most {MACHO_MAX_FILE_SIZE} bytes, as its offsets have 32 bits",
            actual=position,
            hint="write one file for each target, with {target} in -o, or a library with --sidecar",
        )

    # File layout is fixed.
    rows = [(facts_of(one.target), one.offset, one.plan.size) for one in slices]
    pieces = [Piece(0, macho.fat_header(rows, macho.SEGMENT_ALIGN))]
    copies: list[Copy] = []
    page_hashes: list[PageHashes] = []
    for offset, _, plan in slices:
        pieces += (Piece(offset + piece.offset, piece.data) for piece in plan.pieces)
        copies += (copy.moved(offset) for copy in plan.copies)
        page_hashes += (hashes.moved(offset) for hashes in plan.page_hashes)
    first = slices[0].plan.pack_offset
    pack_offset = None if first is None else slices[0].offset + first
    return FilePlan(position, pieces, copies, pack_offset, page_hashes=page_hashes, slices=slices)
