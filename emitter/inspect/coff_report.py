"""The neutral reports of COFF objects and of import objects, and what they share with those of PE images."""

from __future__ import annotations

from emitter.inspect import pe_names as names
from emitter.inspect.packs import read_packs
from emitter.inspect.report import (
    Dependency,
    Fault,
    Hardening,
    Identity,
    PackEntry,
    Report,
    Section,
    Symbol,
    collect_faults,
)
from emitter.pack.format import MAGIC
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from emitter.inspect.coff import CoffFile, ImportObject
    from emitter.inspect.coff_records import CoffSymbol, CoffTables, SectionHeader
    from emitter.inspect.packs import PlacedSymbol
    from emitter.inspect.view import View

__all__ = [
    "check_tables",
    "flag_names",
    "has_pack",
    "import_report",
    "neutral_section",
    "neutral_symbols",
    "object_report",
]

_MAX_FAULTS = 64  # of one kind


def object_report(coff: CoffFile, page_size: int = 0) -> Report:
    """Return the report of an object; what cannot be read is a fault in it."""
    faults: list[Fault] = []
    sections: list[Section] = []
    with collect_faults(faults, "sections"):
        sections = [neutral_section(one, one.alignment) for one in coff.sections]
    check_tables(coff.view, coff.sections if sections else (), faults)
    header = coff.header
    with collect_faults(faults, "symbols"):
        size = header.NumberOfSymbols * coff.tables.symbol_size
        coff.view.check(header.PointerToSymbolTable, size, "the symbol table")
    packs: list[PackEntry] = []
    with collect_faults(faults, "packs"):
        if has_pack(coff.view, coff.sections if sections else ()):
            packs = read_packs(coff.view, faults, lambda: _placed_symbols(coff))
    both = names.IMAGE_SCN_MEM_EXECUTE | names.IMAGE_SCN_MEM_WRITE
    writable_code = bool(sections) and any(one.Characteristics & both == both for one in coff.sections)
    return Report(
        where=coff.view.where,
        base=coff.view.base,
        size=coff.view.size,
        identity=Identity(
            format="coff",
            kind="relocatable object",
            machine=coff.machine,
            machine_code=header.Machine,
            byte_order="little",
            pointer_width=coff.pointer_width,
            flags=header.Characteristics,
            flag_names=() if header.bigobj else flag_names(header.Characteristics, names.CHARACTERISTICS),
            os="Windows",
        ),
        page_size=page_size or 4096,
        segments=(),
        sections=sections,
        symbol_count=header.NumberOfSymbols,
        symbols=lambda: neutral_symbols(coff.tables),
        dependencies=(),
        hardening=[Hardening("writable_and_executable", writable_code)],
        packs=packs,
        faults=faults,
    )


def import_report(one: ImportObject, page_size: int = 0) -> Report:
    """Return the report of an import object: its symbols, and the DLL that it makes programs need."""
    kind = "function" if one.import_type == "code" else "object"
    # Data are reached through the pointer alone.
    exported = [f"__imp_{one.symbol}", *([one.symbol] if one.import_type != "data" else [])]
    symbols = [Symbol(name, "symtab", kind, "global", "default", "defined", None, 0, None) for name in exported]
    return Report(
        where=one.view.where,
        base=one.view.base,
        size=one.view.size,
        identity=Identity(
            format="coff",
            kind="import object",
            machine=one.machine,
            machine_code=one.header.Machine,
            byte_order="little",
            pointer_width=one.pointer_width,
            os="Windows",
        ),
        page_size=page_size or 4096,
        segments=(),
        sections=(),
        symbol_count=len(symbols),
        symbols=lambda: iter(symbols),
        dependencies=[Dependency(one.dll)],
        hardening=(),
        packs=(),
        faults=(),
    )


def has_pack(view: View, sections: Iterable[SectionHeader]) -> bool:
    """Tell whether a section begins with a pack, which is how `emitter.loaders` finds one."""
    return any(
        one.file_size > len(MAGIC) and one.PointerToRawData < view.size
        and view.read_up_to(one.PointerToRawData, len(MAGIC)) == MAGIC
        for one in sections
    )  # fmt: skip


def _placed_symbols(coff: CoffFile) -> Iterator[PlacedSymbol]:
    sections = coff.sections
    for symbol in coff.symbols():
        if 0 < symbol.SectionNumber <= len(sections):
            yield sections[symbol.SectionNumber - 1].PointerToRawData + symbol.Value, None, symbol.name


def flag_names(flags: int, table: dict[int, str]) -> tuple[str, ...]:
    """Return the names of the bits that are set."""
    return tuple(name for bit, name in table.items() if flags & bit)


def neutral_section(one: SectionHeader, alignment: int) -> Section:
    """Return a section; in an object `address` and the size in memory are the file's."""
    return Section(
        number=one.number,
        name=one.name,
        type=next((name for bit, name in names.SECTION_TYPES.items() if one.Characteristics & bit), ""),
        flags=flag_names(one.Characteristics, names.SECTION_FLAGS),
        offset=one.PointerToRawData,
        file_size=one.file_size,
        address=one.VirtualAddress,
        size=one.VirtualSize or one.SizeOfRawData,
        alignment=alignment,
    )


def neutral_symbols(tables: CoffTables) -> Iterator[Symbol]:
    """Yield the symbols of a COFF symbol table, without those for debuggers.

    A weak external symbol is a definition if its default is one in this object (as compilers write a weak function).
    """
    for symbol in tables.symbols():
        if symbol.SectionNumber == names.IMAGE_SYM_DEBUG and symbol.file_name is None:
            continue
        common = symbol.external and not symbol.SectionNumber and bool(symbol.Value)
        weak = symbol.StorageClass == names.IMAGE_SYM_CLASS_WEAK_EXTERNAL
        section = symbol.SectionNumber
        if symbol.weak_default is not None and not section:
            section = max(tables.section_of(symbol.weak_default), 0)
        if section > 0:
            place = "defined"
        elif section < 0:
            place = "absolute"
        else:
            place = "common" if common and not weak else "undefined"
        yield Symbol(
            name=symbol.file_name or symbol.name,
            table="symtab",
            type=_type(symbol),
            binding="weak" if weak else "global" if symbol.external else "local",
            visibility="default",
            place=place,
            section=section if section > 0 else None,
            value=symbol.Value,
            size=symbol.Value if place == "common" else None,
        )


def _type(symbol: CoffSymbol) -> str:
    if symbol.file_name is not None:
        return "file"
    if symbol.function:
        return "function"
    return "section" if symbol.section_definition is not None and not symbol.Value else ""


def check_tables(view: View, sections: Iterable[SectionHeader], faults: list[Fault]) -> None:
    """Record each section whose bytes or relocations the file does not hold."""
    found: list[Fault] = []
    for one in sections:
        if len(found) >= _MAX_FAULTS:
            break
        with collect_faults(found, "sections"):
            if one.file_size:
                view.check(one.PointerToRawData, one.file_size, f"section {one.number} ({one.name})")
            if one.NumberOfRelocations:
                size = 10 * one.NumberOfRelocations
                view.check(one.PointerToRelocations, size, f"the relocations of section {one.number} ({one.name})")
    faults += found
