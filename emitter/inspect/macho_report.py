"""The neutral report of a Mach-O file."""

from __future__ import annotations

from emitter.inspect import macho_names as names
from emitter.inspect.packs import read_packs
from emitter.inspect.report import (
    Dependency,
    Fault,
    Hardening,
    Identity,
    PackEntry,
    Report,
    Section,
    Segment,
    Symbol,
    collect_faults,
    page_range,
)
from emitter.pack.format import MAGIC
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.inspect.macho import MachOFile
    from emitter.inspect.macho_records import MachSection, Nlist, SegmentCommand
    from emitter.inspect.packs import PlacedSymbol

__all__ = ["report"]

# Systems on 64-bit ARM map pages of 16 KiB; all others 4 KiB.
_PAGE_16K = (names.CPU_ARCH_ABI64 | 12, names.CPU_ARCH_ABI64_32 | 12)
_PLACES = {
    names.N_UNDF: "undefined", names.N_PBUD: "undefined", names.N_ABS: "absolute", names.N_SECT: "defined",
    names.N_INDR: "defined",
}  # fmt: skip


def report(macho: MachOFile, page_size: int = 0) -> Report:
    """Return the report of a thin Mach-O file; what cannot be read is a fault in it."""
    page_size = page_size or (16384 if macho.header.cputype in _PAGE_16K else 4096)
    faults: list[Fault] = []
    segments: list[Segment] = []
    sections: list[Section] = []
    dependencies: list[Dependency] = []
    identity = _identity(macho, faults)
    with collect_faults(faults, "segments"):
        segments = [_segment(macho, number, one, page_size) for number, one in enumerate(macho.segments)]
        sections = [_section(one) for one in macho.sections]
    with collect_faults(faults, "dependencies"):
        dependencies = [
            Dependency(dylib.name, "needed" if dylib.cmd == names.LC_LOAD_DYLIB else dylib.kind)
            for dylib in macho.dylibs
            if dylib.cmd != names.LC_ID_DYLIB
        ]
    symbol_count = 0
    with collect_faults(faults, "symbols"):
        symbol_count = macho.symtab.nsyms if macho.symtab else 0
    _check_ranges(macho, faults)
    packs: list[PackEntry] = []
    with collect_faults(faults, "packs"):
        if _has_pack(macho):
            packs = read_packs(macho.view, faults, lambda: _placed_symbols(macho))
    return Report(
        where=macho.view.where,
        base=macho.view.base,
        size=macho.view.size,
        identity=identity,
        page_size=page_size,
        segments=segments,
        sections=sections,
        symbol_count=symbol_count,
        symbols=lambda: _symbols(macho),
        dependencies=dependencies,
        hardening=_hardening(macho, faults),
        packs=packs,
        faults=faults,
    )


def _identity(macho: MachOFile, faults: list[Fault]) -> Identity:
    header = macho.header
    identity = Identity(
        format="macho",
        kind=macho.kind.removeprefix("Mach-O "),
        machine=macho.machine,
        machine_code=header.cputype,
        byte_order=macho.byte_order,
        pointer_width=macho.pointer_width,
        flags=header.flags,
        flag_names=tuple(name for bit, name in names.FLAGS.items() if header.flags & bit),
    )
    with collect_faults(faults, "identity"):
        uuid = macho.uuid or b""
        identity = identity._replace(build_id=uuid.hex(), interpreter=macho.dylinker or "", search_path=macho.rpaths)
        for build in macho.build_versions[:1]:
            identity = identity._replace(
                os=names.PLATFORMS.get(build.platform, f"platform {build.platform}"),
                os_version=names.version_text(build.minos),
            )
        for dylib in macho.dylibs:
            if dylib.cmd == names.LC_ID_DYLIB:
                identity = identity._replace(name=dylib.name, version=names.version_text(dylib.current_version))
    return identity


def _protection(prot: int) -> str:
    bits = (names.VM_PROT_READ, "r"), (names.VM_PROT_WRITE, "w"), (names.VM_PROT_EXECUTE, "x")
    return "".join(letter if prot & bit else "-" for bit, letter in bits)


def _segment(macho: MachOFile, number: int, one: SegmentCommand, page_size: int) -> Segment:
    loaded = macho.header.filetype != names.MH_OBJECT and bool(one.initprot)
    start, end = page_range(one.vmaddr, one.vmsize, page_size) if loaded else (0, 0)
    return Segment(
        number=number,
        name=one.segname,
        offset=one.fileoff,
        file_size=one.filesize,
        address=one.vmaddr,
        memory_size=one.vmsize,
        alignment=page_size,
        protection=_protection(one.initprot),
        loaded=loaded,
        mapped_start=start,
        mapped_end=end,
        max_protection=_protection(one.maxprot),
    )


def _section(one: MachSection) -> Section:
    return Section(
        number=one.number,
        name=one.sectname,
        type=names.SECTION_TYPES.get(one.type, f"type {one.type:#x}"),
        flags=tuple(name for bit, name in names.SECTION_ATTRIBUTES.items() if one.flags & bit),
        offset=one.offset,
        file_size=one.file_size,
        address=one.addr,
        size=one.size,
        alignment=1 << min(one.align, 63),  # more than 15 is a finding, and no reason to compute with it
        segment=one.segname,
    )


def _symbols(macho: MachOFile) -> Iterator[Symbol]:
    two_level = bool(macho.header.flags & names.MH_TWOLEVEL)
    for symbol in macho.symbols():
        if not symbol.stab:
            yield _symbol(macho, symbol, two_level=two_level)
    for export in macho.exports():
        yield Symbol(
            name=export.name,
            table="exports",
            type="",
            binding="weak" if export.weak else "global",
            visibility="default",
            place="undefined" if export.reexport else "absolute" if export.flags & 3 == 2 else "defined",
            section=None,
            value=export.address,
            size=None,
            library=macho.ordinal_name(export.ordinal),
        )


def _symbol(macho: MachOFile, symbol: Nlist, *, two_level: bool) -> Symbol:
    kind, outer = symbol.type, symbol.n_type & names.N_EXT
    place = _PLACES.get(kind, "undefined")
    common = kind == names.N_UNDF and outer and symbol.n_value
    undefined = place == "undefined" and not common
    weak = symbol.n_desc & (names.N_WEAK_REF if undefined else names.N_WEAK_DEF)
    return Symbol(
        name=symbol.name,
        table="symtab",
        type="",
        binding="weak" if weak and outer else "global" if outer else "local",
        visibility="private external" if symbol.n_type & names.N_PEXT else "default",
        place="common" if common else place,
        section=symbol.n_sect if kind == names.N_SECT else None,
        value=symbol.n_value,
        size=symbol.n_value if common else None,
        library=macho.ordinal_name(symbol.n_desc >> 8 & 0xFF) if undefined and two_level else "",
    )


def _has_pack(macho: MachOFile) -> bool:
    """Tell whether a section begins with a pack, which is how `emitter.loaders` finds one."""
    view = macho.view
    return any(
        one.type == names.S_REGULAR and one.size > len(MAGIC) and one.offset < view.size
        and view.read_up_to(one.offset, len(MAGIC)) == MAGIC
        for one in macho.sections
    )  # fmt: skip


def _placed_symbols(macho: MachOFile) -> Iterator[PlacedSymbol]:
    """Yield the symbols of sections, and the exports (all that a stripped library has), with their offsets."""
    sections = macho.sections
    for symbol in macho.symbols():
        if not symbol.stab and symbol.type == names.N_SECT and 0 < symbol.n_sect <= len(sections):
            section = sections[symbol.n_sect - 1]
            yield section.offset + symbol.n_value - section.addr, None, symbol.name
    for export in macho.exports():
        offset = None if export.reexport else macho.address_to_offset(macho.base_address + export.address)
        if offset is not None:
            yield offset, None, export.name


def _hardening(macho: MachOFile, faults: list[Fault]) -> list[Hardening]:
    flags, filetype = macho.header.flags, macho.header.filetype
    executable = filetype == names.MH_EXECUTE
    found = [
        Hardening("pie", bool(flags & names.MH_PIE) if executable else None),
        Hardening("nx_stack", not flags & names.MH_ALLOW_STACK_EXECUTION if executable else None),
        Hardening("nx_heap", bool(flags & names.MH_NO_HEAP_EXECUTION) if executable else None),
    ]
    if filetype == names.MH_OBJECT:
        return found
    with collect_faults(faults, "segments"):
        both = names.VM_PROT_WRITE | names.VM_PROT_EXECUTE
        found.append(Hardening("writable_and_executable", any(one.initprot & both == both for one in macho.segments)))
        found.append(Hardening("encrypted", bool(macho.of(names.LC_ENCRYPTION_INFO, 0x2C))))
    with collect_faults(faults, "signature"):
        from emitter.inspect.macho_signature import read_signature

        signature = read_signature(macho)
        value: bool | str = False
        if signature is not None:
            value = "certificate" if signature.has_cms else "ad hoc"
        found.append(Hardening("signature", value))
    return found


def _check_ranges(macho: MachOFile, faults: list[Fault]) -> None:
    """Record each range that a load command names and that the file does not hold."""

    def check(part: str, offset: int, size: int, what: str) -> None:
        if size:
            with collect_faults(faults, part):
                macho.view.check(offset, size, what)

    with collect_faults(faults, "segments"):
        for segment in macho.segments:
            check("segments", segment.fileoff, segment.filesize, f"segment {segment.segname}")
            for one in segment.sections:
                check("sections", one.offset, one.file_size, f"section {one.segname},{one.sectname}")
                check("sections", one.reloff, 8 * one.nreloc, f"relocations of {one.segname},{one.sectname}")
    with collect_faults(faults, "symbols"):
        if macho.symtab:
            entry = 16 if macho.is_64 else 12
            check("symbols", macho.symtab.symoff, entry * macho.symtab.nsyms, "the symbol table")
            check("symbols", macho.symtab.stroff, macho.symtab.strsize, "the string table")
    with collect_faults(faults, "linkedit"):
        for data in macho.linkedit:
            name = names.LOAD_COMMANDS[data.cmd]
            # A signature that is outside was a fault when it was read.
            if data.cmd != names.LC_CODE_SIGNATURE or macho.header.filetype == names.MH_OBJECT:
                check("linkedit", data.dataoff, data.datasize, f"the data of {name}")
        info = macho.dyld_info
        if info:
            for name in ("rebase", "bind", "weak_bind", "lazy_bind", "export"):
                offset, size = getattr(info, f"{name}_off"), getattr(info, f"{name}_size")
                check("linkedit", offset, size, f"the {name} data of LC_DYLD_INFO")
