"""What programs for NVIDIA's GPUs want of a pack: a NUL behind PTX, and fatbins next to each other at the end.

cuModuleLoadData reads PTX up to the first NUL. CUDA's tools find fatbins in a section of their own, which may hold
nothing but fatbins and zeros: `emitter.image.elf` and `emitter.symbols` make it of the pack's end.
"""

from __future__ import annotations

from emitter.dtypes import UINT, DType
from emitter.modules import payload_tensors
from emitter.package import BufferSource, Extent, Tensor
from emitter.reading import pread
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from emitter.modules import Module

__all__ = ["Arrangement", "arrange"]

_KINDS = frozenset({"cuda", "cuda-relocatable"})
_FATBIN, _ELF = b"\x50\xed\x55\xba", b"\x7fELF"

NUL = Tensor("\0", DType(UINT, 8), (1,), Extent(BufferSource("the NUL behind PTX", memoryview(b"\0")), 0, 1), 1)


class Arrangement(NamedTuple):
    """The owners of payloads in the order in which these lie, and the names of those that are texts and fatbins."""

    owners: Sequence[Tensor]
    texts: frozenset[str] = frozenset()
    fatbins: frozenset[str] = frozenset()


def arrange(tensors: Sequence[Tensor], modules: Sequence[Module], same_as: Mapping[str, str]) -> Arrangement:
    """Return tensors and modules in the order of their payloads; `same_as` is that of `emitter.pack.plan`."""
    programs = payload_tensors(modules)
    kinds = [one.kind for module in modules for one in module.alternatives]
    heads = {owner.name: _head(owner.extent) for owner, kind in zip(programs, kinds, strict=True) if kind in _KINDS}
    if not heads:
        return Arrangement((*tensors, *programs))
    fatbins = frozenset(name for name, head in heads.items() if head == _FATBIN)
    texts = heads.keys() - fatbins - {name for name, head in heads.items() if head == _ELF}
    return Arrangement(
        (*tensors, *sorted(programs, key=lambda owner: owner.name in fatbins)),
        # A payload that has several owners is that of the first.
        frozenset(texts | {same_as[name] for name in texts if name in same_as}),
        fatbins,
    )


def _head(extent: Extent) -> bytes:
    size = min(extent.length, 4)
    if isinstance(extent.source, BufferSource):
        return bytes(extent.source.data[extent.offset : extent.offset + size])
    with extent.source.open() as fd:
        return pread(fd, size, extent.offset)
