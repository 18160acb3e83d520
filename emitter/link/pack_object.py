"""The object of a pack that is linked with code: it has what the code wants, and shows what is asked for alone."""

from __future__ import annotations

from emitter.layout import align_up
from emitter.link.resolve import FLOAT_MARK
from emitter.model import Reference, Section, Symbol
from emitter.records import TYPE_CHECKING
from emitter.symbols import check_symbols, pack_model

if TYPE_CHECKING:
    from emitter.link.plan import Output
    from emitter.link.resolve import Wants
    from emitter.model import ObjectModel
    from emitter.options import Options
    from emitter.pack.plan import PackPlan
    from emitter.targets._base import Target

__all__ = ["pack_object"]

_DESCRIPTOR_SIZE = 16


def pack_object(out: Output, options: Options, wants: Wants) -> ObjectModel:
    """Return the object of the pack, with the symbols that the code wants beside those that are shown."""
    target, pack, linked = out.target, out.pack, out.format == "library"
    visibility = options.visibility or "hidden"
    if linked:
        visibility = "protected" if target.object_format == "elf" else "default"
    hidden = [one for one in wants.tensors if one not in out.shown]
    check_symbols(out.symbol, [*out.shown, *hidden])
    model = pack_model(
        target,
        pack,
        name=out.symbol,
        section=options.section,
        visibility=visibility,
        tensor_symbols=out.shown,
        retain=linked or options.retain,
        large=out.large,
    )
    at = model.symbols[0].section
    symbols = [Symbol(one.name, at, one.offset, one.size, visibility="hidden") for one in hidden]
    if linked:
        symbols.append(Symbol("emitter_pack", at, 0, pack.total_size, visibility=visibility))
    if wants.float_mark and linked:  # elsewhere the program's C library has it
        symbols.append(Symbol(FLOAT_MARK, 0, 0, 0))
    model = model._replace(symbols=[*model.symbols, *symbols])
    return _with_descriptor(target, model, out.symbol, pack) if wants.descriptor else model


def _with_descriptor(target: Target, model: ObjectModel, symbol: str, pack: PackPlan) -> ObjectModel:
    """Add the descriptor of docs/code.md: the distance from itself to the pack, and the size of the pack."""
    name = f"{symbol}_descriptor"
    at = model.symbols[0].section or 0
    order = target.byte_order
    if target.object_format == "elf":
        data = bytes(8) + pack.total_size.to_bytes(8, order)
        section = Section(f".rodata.{name}", "rodata", _DESCRIPTOR_SIZE, _DESCRIPTOR_SIZE, data)
        number = len(model.sections)
        return model._replace(
            sections=[*model.sections, section],
            symbols=[*model.symbols, Symbol(name, number, 0, _DESCRIPTOR_SIZE, visibility="hidden")],
            references=[*model.references, Reference(number, 0, at)],
        )
    # No relocation of COFF has 64 bits of distance, and Mach-O needs none: behind the pack, the distance is known.
    held = model.sections[at]
    offset = align_up(pack.total_size, _DESCRIPTOR_SIZE)
    tail = (-offset).to_bytes(8, order, signed=True) + pack.total_size.to_bytes(8, order)
    sections = list(model.sections)
    sections[at] = held._replace(
        size=offset + _DESCRIPTOR_SIZE, tail=tail, alignment=max(held.alignment, _DESCRIPTOR_SIZE)
    )
    return model._replace(
        sections=sections, symbols=[*model.symbols, Symbol(name, at, offset, _DESCRIPTOR_SIZE, visibility="hidden")]
    )
