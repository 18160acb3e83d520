"""The neutral report of an ELF file. Each part is read for itself: a broken one is a fault, and the rest stands."""

from __future__ import annotations

from emitter.errors import FormatError
from emitter.inspect import elf_names as names
from emitter.inspect.elf import ET_DYN, ET_EXEC, ET_REL, PT_LOAD, SHT_NOBITS
from emitter.inspect.elf_hardening import read_hardening
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

    from emitter.inspect.elf import ElfFile
    from emitter.inspect.elf_records import Phdr, Shdr, Sym
    from emitter.inspect.packs import PlacedSymbol

__all__ = ["make_report"]

_MAX_FAULTS = 64  # of one kind
_PAGE_SIZES = {41: 8192, 0x9026: 8192, names.EM_SPARCV9: 8192}  # the smallest of a machine, where it is not 4096

_SHN_UNDEF, _SHN_LORESERVE, _SHN_ABS, _SHN_COMMON, _SHN_XINDEX = 0, 0xFF00, 0xFFF1, 0xFFF2, 0xFFFF
_SHN_X86_64_LCOMMON = 0xFF02
_STT_NOTYPE, _STT_OBJECT, _STT_COMMON = 0, 1, 5
_SHT_PROGBITS, _SHF_ALLOC = 1, 2
_NT_GNU_ABI_TAG, _NT_GNU_BUILD_ID, _NT_ANDROID_IDENT = 1, 3, 1
_DT_FLAGS_1, _DF_1_PIE = 0x6FFFFFFB, 0x08000000
_ABI_TAG_OS = {0: "Linux", 1: "Hurd", 2: "Solaris", 3: "FreeBSD"}
_TAG_ABI_VFP_ARGS, _TAG_RISCV_ARCH = 28, 5


def make_report(elf: ElfFile, page_size: int) -> Report:
    """Return the report of `elf`; `page_size` 0 stands for the smallest that its machine has."""
    faults: list[Fault] = []
    elf = _without_broken_tables(elf, faults)
    page_size = page_size or _PAGE_SIZES.get(elf.ehdr.e_machine, 4096)

    segments = [_segment(elf, number, phdr, page_size) for number, phdr in enumerate(elf.phdrs)]
    faults += _outside(elf, "segments", ((f"segment {s.number} ({s.name})", s.offset, s.file_size) for s in segments))
    sections = [_section(elf, number, shdr) for number, shdr in enumerate(elf.shdrs)]
    ends = (
        (elf.section_label(s.number), s.offset, s.file_size) for s in sections if s.offset + s.file_size > elf.view.size
    )
    faults += _outside(elf, "sections", ends)

    # Then what the headers lead to.
    identity = _identity(elf, faults)
    count = 0
    with collect_faults(faults, "symbols"):
        count = sum(max(table.records - 1, 0) for table in elf.symbol_tables)
    dependencies: list[Dependency] = []
    with collect_faults(faults, "dependencies"):
        dependencies = _dependencies(elf, faults)
    hardening: list[Hardening] = read_hardening(elf, faults)
    packs: list[PackEntry] = []
    with collect_faults(faults, "packs"):
        if _has_pack(elf):
            packs = read_packs(elf.view, faults, lambda: _data_symbols(elf, faults))
    return Report(
        where=elf.view.where,
        base=elf.view.base,
        size=elf.view.size,
        identity=identity,
        page_size=page_size,
        segments=segments,
        sections=sections,
        symbol_count=count,
        symbols=lambda: _symbols(elf),
        dependencies=dependencies,
        hardening=hardening,
        packs=packs,
        faults=list({str(fault.error): fault for fault in reversed(faults)}.values())[::-1],
    )


def _without_broken_tables(elf: ElfFile, faults: list[Fault]) -> ElfFile:
    """Return a reader of the same file in which tables that cannot be read are empty, each a fault said once."""
    from emitter.inspect.elf import ElfFile

    whole = ElfFile(elf.view)
    for table, part, empty in (
        ("phdrs", "segments", []),
        ("shdrs", "sections", []),
        ("section_strings", "section names", None),
        ("dynamic", "dynamic", []),
        ("dynamic_strings", "dynamic", None),
    ):
        found: list[Fault] = []
        with collect_faults(found, part):
            getattr(whole, table)
        if found:
            faults += found
            setattr(whole, table, empty)
    return whole


def _outside(elf: ElfFile, part: str, spans: Iterator[tuple[str, int, int]]) -> Iterator[Fault]:
    """Yield a fault for each (label, offset, size) that ends behind the file."""
    left = _MAX_FAULTS
    for label, offset, size in spans:
        found: list[Fault] = []
        with collect_faults(found, part):
            if size:
                elf.view.check(offset, size, label)
        left -= len(found)
        if left >= 0:
            yield from found


# Identity


def _identity(elf: ElfFile, faults: list[Fault]) -> Identity:
    ehdr = elf.ehdr
    soname = interpreter = ""
    search_path: tuple[str, ...] = ()
    with collect_faults(faults, "dynamic"):
        soname = elf.soname or ""
        search_path = tuple(path for path in (elf.rpath, elf.runpath) if path is not None)
    with collect_faults(faults, "segments"):
        interpreter = elf.interpreter or ""
    kind = elf.kind.removeprefix("ELF ")
    if ehdr.e_type == ET_DYN:
        with collect_faults(faults, "dynamic"):
            # Linkers before binutils 2.27 set no DF_1_PIE; a library that can be run (libc.so.6) has a name.
            if (elf.dynamic_value(_DT_FLAGS_1) or 0) & _DF_1_PIE or (interpreter and not soname):
                kind = "position-independent executable"
    os, os_version, build_id = names.number_name(names.OSABI, ehdr.ei_osabi, "ABI "), "", ""
    with collect_faults(faults, "notes"):
        for note in elf.notes():
            if note.owner == "GNU" and note.n_type == _NT_GNU_BUILD_ID and note.desc_size <= 64:
                build_id = build_id or elf.desc(note).hex()
            elif note.owner == "GNU" and note.n_type == _NT_GNU_ABI_TAG and note.desc_size == 16:
                system, *version = elf.view.unpack(elf.layouts.order + "4I", note.desc_offset, "NT_GNU_ABI_TAG")
                os, os_version = _ABI_TAG_OS.get(system, f"system {system}"), ".".join(map(str, version))
            elif note.owner == "Android" and note.n_type == _NT_ANDROID_IDENT and note.desc_size >= 4:
                (level,) = elf.view.unpack(elf.layouts.order + "I", note.desc_offset, "the Android note")
                os, os_version = "Android", f"API {level}"
    return Identity(
        format="elf",
        kind=kind,
        machine=names.machine_name(ehdr.e_machine),
        machine_code=ehdr.e_machine,
        byte_order=elf.byte_order,
        pointer_width=64 if elf.is_64 else 32,
        flags=ehdr.e_flags,
        flag_names=names.flag_names(ehdr.e_flags, ehdr.e_machine),
        abi=_abi(elf, faults),
        os=os,
        os_version=os_version,
        name=soname,
        build_id=build_id,
        interpreter=interpreter,
        search_path=search_path,
    )


def _abi(elf: ElfFile, faults: list[Fault]) -> str:
    ehdr = elf.ehdr
    parts = [names.abi_of(ehdr.e_machine, ehdr.e_flags, elf.is_64)]
    with collect_faults(faults, "attributes"):
        for attribute in elf.build_attributes:
            if attribute.scope != "file":
                continue
            if attribute.vendor == "aeabi" and attribute.tag == _TAG_ABI_VFP_ARGS and not parts[0]:
                parts[0] = {0: "soft-float calls", 1: "hard float"}.get(int(attribute.value), "")
            elif attribute.vendor == "riscv" and attribute.tag == _TAG_RISCV_ARCH:
                parts.append(str(attribute.value))
    return ", ".join(filter(None, parts))


# Headers


def _segment(elf: ElfFile, number: int, phdr: Phdr, page_size: int) -> Segment:
    loaded = phdr.p_type == PT_LOAD
    start, end = page_range(phdr.p_vaddr, phdr.p_memsz, page_size) if loaded else (0, 0)
    return Segment(
        number=number,
        name=names.segment_type(phdr.p_type, elf.ehdr.e_machine),
        offset=phdr.p_offset,
        file_size=phdr.p_filesz,
        address=phdr.p_vaddr,
        memory_size=phdr.p_memsz,
        alignment=phdr.p_align,
        protection="".join(letter if phdr.p_flags & bit else "-" for bit, letter in ((4, "r"), (2, "w"), (1, "x"))),
        loaded=loaded,
        mapped_start=start,
        mapped_end=end,
    )


def _section(elf: ElfFile, number: int, shdr: Shdr) -> Section:
    try:
        name = elf.section_name(number)
    except FormatError:
        name = f"<name at {shdr.sh_name:#x}>"
    # By position, since there may be 100,000: names of arguments double the time. Section 0 has no bytes: its fields
    # serve extended numbering.
    return Section(
        number,
        name,
        names.section_type(shdr.sh_type, elf.ehdr.e_machine),
        names.section_flags(shdr.sh_flags, elf.ehdr.e_machine),
        shdr.sh_offset,
        0 if shdr.sh_type in (0, SHT_NOBITS) else shdr.sh_size,
        shdr.sh_addr,
        shdr.sh_size if number else 0,
        shdr.sh_addralign,
        shdr.sh_entsize,
        "",
    )


# Symbols


def _symbols(elf: ElfFile) -> Iterator[Symbol]:
    for table, symbol in elf.all_symbols():
        place, section = _place(symbol)
        version = f"{'@' if symbol.hidden_version or place == 'undefined' else '@@'}{symbol.version}"
        yield Symbol(
            symbol.name,
            table.name,
            names.number_name(names.STT, symbol.st_type, "type "),
            names.number_name(names.STB, symbol.st_bind, "binding "),
            names.STV[symbol.st_visibility],
            place,
            section,
            symbol.st_value,
            symbol.st_size,
            version if symbol.version else "",
            "",
        )


def _place(symbol: Sym) -> tuple[str, int | None]:
    if symbol.st_shndx == _SHN_UNDEF:
        return "undefined", None
    if symbol.st_shndx == _SHN_ABS:
        return "absolute", None
    if symbol.st_shndx in (_SHN_COMMON, _SHN_X86_64_LCOMMON) or symbol.st_type == _STT_COMMON:
        return "common", None
    if symbol.st_shndx >= _SHN_LORESERVE and symbol.st_shndx != _SHN_XINDEX:
        return f"reserved index {symbol.st_shndx:#x}", None
    return "defined", symbol.shndx


def _data_symbols(elf: ElfFile, faults: list[Fault]) -> Iterator[PlacedSymbol]:
    """Yield the symbols that name data, with their offsets in the file."""
    with collect_faults(faults, "symbols"):
        for _, symbol in elf.all_symbols():
            if symbol.st_type not in (_STT_NOTYPE, _STT_OBJECT) or _place(symbol)[0] != "defined":
                continue
            offset: int | None
            if elf.ehdr.e_type == ET_REL:
                shdr = elf.shdrs[symbol.shndx] if symbol.shndx < len(elf.shdrs) else None
                offset = None if shdr is None else shdr.sh_offset + symbol.st_value
            else:
                offset = elf.address_to_offset(symbol.st_value)
            if offset is not None:
                yield offset, symbol.st_size, symbol.name


# Dependencies and packs


def _dependencies(elf: ElfFile, faults: list[Fault]) -> list[Dependency]:
    versions: dict[str, list[str]] = {}
    with collect_faults(faults, "versions"):
        for need in elf.versions_needed:
            versions.setdefault(need.file, []).extend(version.name for version in need.versions)
    found = [Dependency(name, "needed", tuple(sorted(versions.pop(name, ())))) for name in elf.needed]
    # A library that is asked for versions without being needed: shown, since the loader looks for it.
    return found + [Dependency(name, "versions only", tuple(sorted(of))) for name, of in versions.items()]


def _has_pack(elf: ElfFile) -> bool:
    """Tell whether the file says that it holds a pack, as `emitter.loaders` finds one: by note, or by section."""
    if elf.ehdr.e_type in (ET_EXEC, ET_DYN) and any(note.owner == "emitter" for note in elf.notes()):
        return True
    if elf.ehdr.e_type != ET_REL:
        return False
    return any(
        shdr.sh_type == _SHT_PROGBITS
        and shdr.sh_flags & _SHF_ALLOC
        and shdr.sh_size > len(MAGIC)
        and elf.view.read_up_to(shdr.sh_offset, len(MAGIC)) == MAGIC
        for shdr in elf.shdrs
    )
