"""The packs of an object file, found and read by `emitter.loaders`."""

from __future__ import annotations

from emitter.inspect.modules import ModuleEntry, read_modules
from emitter.inspect.report import Fault, PackEntry, TensorEntry, collect_faults
from emitter.layout import identifier
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from emitter.inspect.view import View
    from emitter.loaders import Pack

__all__ = ["PlacedSymbol", "read_packs"]

# (offset in the object file, size or None where symbols have none, name) of a symbol that names data.
PlacedSymbol = tuple[int, "int | None", str]
_Names = dict[tuple[int, "int | None"], list[str]]


def read_packs(
    view: View, faults: list[Fault], data_symbols: Callable[[], Iterator[PlacedSymbol]] | None = None
) -> list[PackEntry]:
    """Return the packs in `view`, which is known to hold some. `data_symbols` gives the symbols that name data, if any.

    Raises FormatError or LoadError as `emitter.loaders.load` does. A module that cannot be read goes to `faults`.
    """
    from emitter.loaders import load

    packs = load(view.buffer()).packs
    spans = [(pack.file_offset, pack.file_offset + pack.size) for pack in packs]
    names: _Names = {}
    for offset, size, name in data_symbols() if data_symbols else ():
        if any(start <= offset < end for start, end in spans):
            names.setdefault((offset, size), []).append(name)
    return [_entry(pack, names, faults) for pack in packs]


def _entry(pack: Pack, names: _Names, faults: list[Fault]) -> PackEntry:
    def at(offset: int, size: int) -> list[str]:
        return [*names.get((offset, size), ()), *names.get((offset, None), ())]

    def tensors() -> Iterator[TensorEntry]:
        for tensor in pack.tensors():
            yield TensorEntry(
                name=tensor.name,
                dtype=str(tensor.dtype),
                shape=tensor.shape,
                strides=tensor.strides,
                nbytes=tensor.nbytes,
                alignment=tensor.alignment,
                crc32c=tensor.crc32c,
                offset=tensor.file_offset,
                encoding=tensor.encoding,
                symbol=_choose(at(tensor.file_offset, tensor.nbytes), tensor.name),
            )

    modules: list[ModuleEntry] = []
    with collect_faults(faults, "modules"):
        modules.extend(read_modules(pack))
    # `emitter_pack` names the pack of any image (Mach-O puts a _ before it); a name of its own says more.
    symbols = sorted(at(pack.file_offset, pack.size), key=lambda name: (name.lstrip("_") == "emitter_pack", name))
    return PackEntry(
        offset=pack.file_offset,
        size=pack.size,
        index_size=pack.index().header.index_size,
        symbol=symbols[0] if symbols else "",
        version=pack.version,
        byte_order=pack.byte_order,
        alignment=pack.alignment,
        model_version=pack.model_version,
        schema_hash=pack.schema_hash,
        metadata=pack.metadata,
        tensor_count=len(pack),
        tensors=tensors,
        sidecar=pack.sidecar,
        modules=modules,
    )


def _choose(names: list[str], tensor: str) -> str:
    """Return the symbol of a tensor: tensors of equal bytes share a place, and there each has a symbol of its own."""
    wanted = identifier(tensor)
    return min(names, key=lambda name: (not name.endswith(wanted), name), default="")
