"""The neutral report of a PE image."""

from __future__ import annotations

from emitter.errors import FormatError
from emitter.inspect import pe_names as names
from emitter.inspect.coff_report import check_tables, flag_names, has_pack, neutral_section, neutral_symbols
from emitter.inspect.packs import read_packs
from emitter.inspect.report import (
    Dependency,
    Fault,
    Hardening,
    Identity,
    PackEntry,
    Report,
    Segment,
    Symbol,
    collect_faults,
    page_range,
)
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.inspect.coff_records import SectionHeader
    from emitter.inspect.packs import PlacedSymbol
    from emitter.inspect.pe import PeFile

__all__ = ["report"]

_PAGE_SIZE = 4096  # of every CPU that Windows runs on
_MAX_IMPORTS = 1 << 16  # symbols of all DLLs together: hostile descriptors may share one table


def report(pe: PeFile, page_size: int = 0) -> Report:
    """Return the report of a PE image; what cannot be read is a fault in it."""
    page_size = page_size or _PAGE_SIZE
    faults: list[Fault] = []
    segments, sections, dependencies = [_headers(pe, page_size)], [], []
    with collect_faults(faults, "sections"):
        sections = [neutral_section(one, pe.optional.SectionAlignment) for one in pe.sections]
        segments += [_segment(pe, one, page_size) for one in pe.sections]
    check_tables(pe.view, pe.sections if sections else (), faults)
    with collect_faults(faults, "segments"):
        pe.view.check(0, pe.optional.SizeOfHeaders, "SizeOfHeaders")
    with collect_faults(faults, "dependencies"):
        dependencies = [Dependency(dll.name, "delay" if dll.delay else "needed") for dll in pe.imports]
    symbol_count = pe.header.NumberOfSymbols
    with collect_faults(faults, "symbols"):
        size = pe.header.NumberOfSymbols * pe.tables.symbol_size
        if pe.header.PointerToSymbolTable:
            pe.view.check(pe.header.PointerToSymbolTable, size, "the symbol table")
    identity = _identity(pe, faults)
    with collect_faults(faults, "exports"):
        directory = pe.export_directory
        symbol_count += directory.NumberOfFunctions if directory is not None else 0
    _check_directories(pe, faults)
    packs: list[PackEntry] = []
    with collect_faults(faults, "packs"):
        if has_pack(pe.view, pe.sections if sections else ()):
            packs = read_packs(pe.view, faults, lambda: _placed_symbols(pe))
    return Report(
        where=pe.view.where,
        base=pe.view.base,
        size=pe.view.size,
        identity=identity,
        page_size=page_size,
        segments=segments,
        sections=sections,
        symbol_count=symbol_count,
        symbols=lambda: _symbols(pe),
        dependencies=dependencies,
        hardening=_hardening(pe, faults),
        packs=packs,
        faults=faults,
    )


def _identity(pe: PeFile, faults: list[Fault]) -> Identity:
    optional = pe.optional
    flags = flag_names(pe.header.Characteristics, names.CHARACTERISTICS)
    identity = Identity(
        format="pe",
        kind=pe.kind.removeprefix("PE "),
        machine=pe.machine,
        machine_code=pe.header.Machine,
        byte_order="little",
        pointer_width=pe.pointer_width,
        flags=pe.header.Characteristics,
        flag_names=flags,
        os=names.system_name(optional.Subsystem),
        os_version=f"{optional.MajorSubsystemVersion}.{optional.MinorSubsystemVersion}",
        version=f"{optional.MajorImageVersion}.{optional.MinorImageVersion}",
    )
    with collect_faults(faults, "exports"):
        if pe.export_directory is not None:
            identity = identity._replace(name=pe.export_directory.name)
    with collect_faults(faults, "debug"):
        codeview = pe.codeview
        if codeview is not None:
            identity = identity._replace(build_id=f"{codeview.guid.hex()}{codeview.age:x}")
    return identity


def _headers(pe: PeFile, page_size: int) -> Segment:
    base, size = pe.optional.ImageBase, pe.optional.SizeOfHeaders
    start, end = page_range(base, size, page_size)
    return Segment(0, "headers", 0, size, base, size, pe.optional.SectionAlignment, "r--", True, start, end)


def _segment(pe: PeFile, one: SectionHeader, page_size: int) -> Segment:
    flags = one.Characteristics
    bits = (names.IMAGE_SCN_MEM_READ, "r"), (names.IMAGE_SCN_MEM_WRITE, "w"), (names.IMAGE_SCN_MEM_EXECUTE, "x")
    address, size = pe.optional.ImageBase + one.VirtualAddress, one.VirtualSize or one.SizeOfRawData
    start, end = page_range(address, size, page_size)
    return Segment(
        number=one.number,
        name=one.name,
        offset=one.PointerToRawData,
        file_size=one.file_size,
        address=address,
        memory_size=size,
        alignment=pe.optional.SectionAlignment,
        protection="".join(letter if flags & bit else "-" for bit, letter in bits),
        loaded=True,
        mapped_start=start,
        mapped_end=end,
    )


def _symbols(pe: PeFile) -> Iterator[Symbol]:
    yield from neutral_symbols(pe.tables)
    for export in pe.exports():
        library, _, name = export.forwarder.rpartition(".")
        yield Symbol(
            name=export.name or f"#{export.ordinal}",
            table="exports",
            type="",
            binding="global",
            visibility="default",
            place="undefined" if name else "defined",
            section=None,
            value=export.rva,
            size=None,
            library=library,
        )
    left = _MAX_IMPORTS
    for dll in pe.imports:
        for symbol in pe.imported_symbols(dll):
            left -= 1
            if left < 0:
                raise FormatError("too many imports", where=pe.view.where, expected=f"at most {_MAX_IMPORTS}")
            name = symbol.name or f"#{symbol.ordinal}"
            yield Symbol(name, "imports", "", "global", "default", "undefined", None, 0, None, "", dll.name)


def _placed_symbols(pe: PeFile) -> Iterator[PlacedSymbol]:
    for export in pe.exports():
        offset = None if export.forwarder else pe.rva_to_offset(export.rva)
        if offset is not None:
            yield offset, None, export.name


def _hardening(pe: PeFile, faults: list[Fault]) -> list[Hardening]:
    flags = pe.optional.DllCharacteristics
    both = names.IMAGE_SCN_MEM_EXECUTE | names.IMAGE_SCN_MEM_WRITE
    found = [
        Hardening("nx_stack", bool(flags & names.NX_COMPAT)),
        Hardening("aslr", bool(flags & names.DYNAMIC_BASE)),
        Hardening("high_entropy_aslr", bool(flags & names.HIGH_ENTROPY_VA) if pe.is_64 else None),
        Hardening("control_flow_guard", bool(flags & names.GUARD_CF)),
        Hardening("force_integrity", bool(flags & names.FORCE_INTEGRITY)),
    ]
    with collect_faults(faults, "sections"):
        value = any(one.Characteristics & both == both for one in pe.sections)
        found.append(Hardening("writable_and_executable", value))
    with collect_faults(faults, "certificates"):
        found.append(Hardening("signature", bool(pe.certificates)))
    return found


def _check_directories(pe: PeFile, faults: list[Fault]) -> None:
    """Record each directory that cannot be read, and that nothing above has read."""
    with collect_faults(faults, "load configuration"):
        _ = pe.load_config
    with collect_faults(faults, "thread-local storage"):
        _ = pe.tls
    with collect_faults(faults, "relocations"):
        place = pe.directory("BASERELOC")
        if place is not None:
            pe.offset_of(place.VirtualAddress, place.Size, "the base relocations")
