"""The object that AOTInductor makes of a model's constants.

Source: PyTorch 2.14, torch/_inductor/codecache.py and torch/csrc/inductor/aoti_runtime/model_base.h. The constants
stand one after the other in the order of the model, each from a multiple of 64 bytes, with zeros behind it;
`_binary_constants_bin_start` and `_binary_constants_bin_end` are around them. In ELF they are in `.lrodata` where the
CPU has large data, whatever their size; in Mach-O in `__DATA,__data`.
"""

from __future__ import annotations

from emitter.layout import Copy, align_up
from emitter.model import ObjectModel, Section, Symbol
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Literal

    from emitter.model import Visibility
    from emitter.package import Package
    from emitter.targets._base import Target

__all__ = ["ALIGNMENT", "END", "START", "constants_model"]

START, END = "_binary_constants_bin_start", "_binary_constants_bin_end"
ALIGNMENT = 64  # of each constant

# By object format, for a CPU without large data: the name of the section, and whether it is writable.
_SECTIONS: dict[str, tuple[str, Literal["rodata", "data"]]] = {
    "elf": (".rodata", "rodata"),
    "macho": ("__DATA,__data", "data"),
    "coff": (".rdata", "rodata"),
}


def constants_model(
    target: Target, package: Package, *, alignment: int = ALIGNMENT, visibility: Visibility = "default"
) -> ObjectModel:
    """Return an object that holds the tensors of `package` as AOTInductor's generated code finds them.

    `alignment` in bytes is that of the first one, 64 at least. What a tensor asks for itself counts for the first byte
    too; its distance from there is fixed.
    """
    large = target.large_data
    name, kind = _SECTIONS[target.object_format]
    copies = []
    size = 0
    for tensor in package.tensors:
        unit = tensor.swap_unit(target.byte_order)
        copies.append(Copy(size, tensor.nbytes, tensor.extent, unit, tensor.shape, tensor.dtype.element_bits))
        size = align_up(size + tensor.nbytes, ALIGNMENT)
    aligned = max([alignment, ALIGNMENT, *(tensor.alignment or 1 for tensor in package.tensors)])
    section = Section(
        name=large.section if large else name,
        kind=kind,
        size=size,
        alignment=aligned,
        copies=tuple(copies),
        large=large is not None,
    )
    symbols = [
        Symbol(symbol, section=0, value=value, size=0, type="notype", visibility=visibility)
        for symbol, value in ((START, 0), (END, size))
    ]
    return ObjectModel(sections=[section], symbols=symbols)
