"""Data-only shared libraries, written without a linker; and what holds of a pack in any library."""

from __future__ import annotations

from emitter.errors import LayoutError
from emitter.layout import align_up, bulk_alignment
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from emitter.pack.plan import PackPlan
    from emitter.targets._base import Target

__all__ = ["check_alignment", "place_pack"]

_INSTEAD = ", or emit an object, which keeps it"


def check_alignment(target: Target, pack: PackPlan, kept: int, instead: str = _INSTEAD) -> None:
    """Raise LayoutError if a tensor asks for more than `kept`, which loaders keep; `instead` says what else to do."""
    if pack.alignment > kept:
        raise LayoutError(
            "a library cannot keep the alignment of a tensor",
            where=f"target {target.name}",
            expected=f"at most {kept}",
            actual=pack.alignment,
            hint=f"loaders place libraries at multiples of a page: ask for less{instead}",
        )


def place_pack(start: int, page: int, pack: PackPlan) -> int:
    """Return the first multiple of `page` from `start` on that gives the payload a good file offset."""
    offset = align_up(start, page)
    if pack.payload_start % page == 0:
        offset += -(offset + pack.payload_start) % bulk_alignment(pack.total_size - pack.payload_start)
    return offset
