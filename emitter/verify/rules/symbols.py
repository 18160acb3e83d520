"""Symbols of data: type, size, place and names, which linkers and loaders go by."""

from __future__ import annotations

from emitter.records import TYPE_CHECKING
from emitter.verify.model import Found, rule
from emitter.verify.rules._elf import (
    EM_X86_64,
    SHF_ALLOC,
    SHF_EXECINSTR,
    SHF_MERGE,
    SHF_TLS,
    SHF_WRITE,
    SHN_ABS,
    SHN_LORESERVE,
    SHN_XINDEX,
    SHT_NOBITS,
    STT_NOTYPE,
    STT_OBJECT,
    STT_TLS,
    elf_of,
    exported,
    has_code,
    label,
    section_name,
    section_names,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.inspect.elf_records import Shdr, Sym
    from emitter.verify.check import Check
    from emitter.verify.model import Severity

_LINKED = ("library", "executable")

# Marks that linkers and their scripts set: places, not data.
_MARKS = frozenset(
    """
    _end end __end __end__ _edata edata __edata _etext etext __etext __bss_start __bss_start__ __bss_end__ _bss_end__
    __data_start data_start _data_start __executable_start __ehdr_start __dso_handle _DYNAMIC _GLOBAL_OFFSET_TABLE_
    __GNU_EH_FRAME_HDR __TMC_END__ _fp_hw _init _fini _PROCEDURE_LINKAGE_TABLE_ __init_array_start __init_array_end
    __fini_array_start __fini_array_end __preinit_array_start __preinit_array_end __global_pointer$ __SDATA_BEGIN__
    __DATA_BEGIN__ __BSS_END__ _IO_stdin_used __libc_single_threaded __exidx_start __exidx_end __rela_iplt_start
    __rela_iplt_end __rel_iplt_start __rel_iplt_end
    """.split()  # noqa: SIM905 - a list of words reads better
)


def _is_blob(name: str) -> bool:
    """Return whether a name is one that `ld -b binary` and `objcopy -I binary` give."""
    return name.startswith("_binary_") and name.endswith(("_start", "_end", "_size"))


def section_of(check: Check, symbol: Sym) -> Shdr | None:
    """Return the section of a symbol, or None where it has none."""
    shdrs = elf_of(check).shdrs
    return shdrs[symbol.shndx] if 0 < symbol.shndx < len(shdrs) and symbol.st_shndx != SHN_ABS else None


def data_only(check: Check) -> bool:
    """Return whether a file offers data and has no instructions of its own."""
    return not has_code(check) and bool(exported(check))


def _data(check: Check) -> Iterator[tuple[Sym, Shdr]]:
    """Yield the exported symbols in sections of data, marks apart."""
    for symbol in exported(check):
        shdr = section_of(check, symbol)
        if shdr is None or shdr.sh_flags & (SHF_ALLOC | SHF_EXECINSTR | SHF_TLS) != SHF_ALLOC:
            continue
        if symbol.name not in _MARKS and not symbol.name.startswith(("__start_", "__stop_")):
            yield symbol, shdr


# A45, B7
@rule(
    "elf-data-symbol",
    "A symbol of data has no type or no size",
    why="nobody can tell how many bytes it stands for: copy relocations get none, and Android's tools skip it",
    fix="declare .type NAME, %object and .size NAME; objects of ld -b binary have neither, emitter's have both",
    kinds=("object", "library"),
)
def data_symbol(check: Check) -> Iterator[Found]:
    """Look at st_info and st_size of data: of files without code, and of binary blobs anywhere."""
    only_data = data_only(check)
    for symbol, _ in _data(check):
        blob = _is_blob(symbol.name)
        if not only_data and not blob:
            continue
        # Labels of assembler files are what their authors want them to be.
        severity: Severity | None = None if blob else "warning"
        if symbol.st_type == STT_NOTYPE:
            yield Found(label(symbol), "STT_OBJECT and its size", f"STT_NOTYPE, size {symbol.st_size}", severity)
        elif symbol.st_type == STT_OBJECT and not symbol.st_size and blob:
            yield Found(label(symbol), "its size", 0, severity)


# A46, B8
@rule(
    "elf-data-alignment",
    "Data lie in a section that promises no alignment",
    why="a byte before it in the link moves it anywhere: SIGBUS on Cortex-M and Armv5, slow loads elsewhere",
    fix="align the section (.balign 64, objcopy --set-section-alignment .data=64), or let emitter make the object",
    kinds=("object",),
)
def data_alignment(check: Check) -> Iterator[Found]:
    """Look at sh_addralign of sections whose symbols are untyped data, and of each typed symbol's own place."""
    for symbol, shdr in _data(check):
        untyped = symbol.st_type == STT_NOTYPE and (_is_blob(symbol.name) or data_only(check))
        if untyped and shdr.sh_addralign < 4 and shdr.sh_size and not symbol.name.endswith("_end"):
            yield Found(
                f"{label(symbol)} in {section_name(check, symbol.shndx)}",
                "sh_addralign of at least 4",
                shdr.sh_addralign,
                None if _is_blob(symbol.name) else "warning",
            )


# A49
@rule(
    "elf-data-writable",
    "Constants lie in a writable section",
    why="every process gets its own copy in memory, and any stray pointer can change them",
    fix="objcopy --rename-section .data=.rodata,alloc,load,readonly,data,contents, or let emitter make the object",
    kinds=("object",),
)
def data_writable(check: Check) -> Iterator[Found]:
    """Look at the sections of binary blobs."""
    met: set[int] = set()
    for symbol, shdr in _data(check):
        if _is_blob(symbol.name) and shdr.sh_flags & SHF_WRITE and symbol.shndx not in met:
            met.add(symbol.shndx)
            yield Found(section_name(check, symbol.shndx), "read-only: SHF_ALLOC", "SHF_WRITE | SHF_ALLOC")


# A47
@rule(
    "elf-symbol-range",
    "A symbol reaches past the end of its section",
    why="whoever reads as many bytes as it states reads what is behind, or dies",
    fix="make the file again: size and place were computed from different data",
)
def symbol_range(check: Check) -> Iterator[Found]:
    """Compare the end of every symbol of data with that of its section."""
    elf = elf_of(check)
    for symbol in exported(check):
        shdr = section_of(check, symbol)
        if shdr is None or not symbol.st_size or symbol.st_type not in (STT_OBJECT, STT_TLS):
            continue
        if symbol.st_type == STT_TLS and check.kind != "object":
            continue  # its value counts from the TLS segment
        start = symbol.st_value - (0 if check.kind == "object" else shdr.sh_addr)
        if not 0 <= start <= shdr.sh_size or start + symbol.st_size > _run_of(elf, shdr):
            yield Found(
                label(symbol),
                f"inside of the {shdr.sh_size} bytes of {section_name(check, symbol.shndx)}",
                f"{start} to {start + symbol.st_size}",
                # Linkers keep the size of what they cut off (-z keep-text-section-prefix, COMDAT): the data are there.
                None if start + symbol.st_size > _end_of(elf, shdr) or start < 0 else "warning",
            )


def _run_of(elf: object, shdr: Shdr) -> int:
    """Return the bytes from a section's start to its end, or to that of a section of fatbins which continues it.

    A pack whose end is fatbins is two sections: CUDA's tools look for these under their own name.
    """
    from emitter.inspect.elf import ElfFile

    if isinstance(elf, ElfFile) and shdr.sh_addr:
        following = elf.section(".nv_fatbin")
        if following is not None and following[1].sh_addr == shdr.sh_addr + shdr.sh_size:
            return shdr.sh_size + following[1].sh_size
    return shdr.sh_size


def _end_of(elf: object, shdr: Shdr) -> int:
    """Return where what is mapped with a section ends, from its start: in an object the section itself."""
    from emitter.inspect.elf import ElfFile

    if isinstance(elf, ElfFile):
        for phdr in elf.loads:
            if phdr.p_vaddr <= shdr.sh_addr < phdr.p_vaddr + phdr.p_memsz:
                return phdr.p_vaddr + phdr.p_memsz - shdr.sh_addr
    return shdr.sh_size


# A50, B7
@rule(
    "elf-absolute-symbol",
    "A symbol that others use is an absolute number",
    why="position-independent programs and musl add the load address to it: the size of 3 reads as 365072220163",
    fix="store the number as data, or compute it from two addresses",
    kinds=("object", "library"),
)
def absolute_symbol(check: Check) -> Iterator[Found]:
    """Look for SHN_ABS: the marks of versions and of linkers apart."""
    elf = elf_of(check)
    # Each version that a library defines has an absolute symbol of its name.
    names = {name for one in elf.versions_defined for name in one.names} if check.kind == "library" else set()
    for symbol in exported(check):
        if symbol.st_shndx != SHN_ABS or symbol.name in names or symbol.name in _MARKS:
            continue
        severity = None if _is_blob(symbol.name) or check.kind == "library" else "warning"
        yield Found(label(symbol), "defined in a section", f"SHN_ABS, value {symbol.st_value:#x}", severity)


# A53
_SHF_X86_64_LARGE = 0x10000000
_NEAR_REACH = 1 << 31
_LARGE_NAMES = (".lrodata", ".ldata", ".lbss")


@rule(
    "elf-large-data",
    "Data beyond the reach of code are not marked as such, or near data are",
    why='linking it fails with "relocation truncated to fit", even in start-up code that never uses the data',
    fix="put them into .lrodata with the flag l (emitter: --large-data always), and what is small into .rodata",
    kinds=("object", "library", "executable"),
)
def large_data(check: Check) -> Iterator[Found]:
    """Look at the flags, names and sizes of sections of x86-64."""
    elf = elf_of(check)
    if elf.ehdr.e_machine != EM_X86_64:
        return
    for number, shdr in elf.sections():
        if not shdr.sh_flags & SHF_ALLOC:
            continue
        large = bool(shdr.sh_flags & _SHF_X86_64_LARGE)
        name = section_names(check)[number]
        if any(name == one or name.startswith(f"{one}.") for one in _LARGE_NAMES) and not large:
            yield Found(section_name(check, number), "SHF_X86_64_LARGE", f"sh_flags {shdr.sh_flags:#x}")
        elif check.kind == "object" and shdr.sh_size >= _NEAR_REACH and not large:
            yield Found(
                section_name(check, number), "SHF_X86_64_LARGE from 2 GiB on", f"{shdr.sh_size} bytes near code"
            )


# A51
_RESERVED = frozenset(
    """
    auto break case char const continue default do double else enum extern float for goto if inline int long register
    restrict return short signed sizeof static struct switch typedef union unsigned void volatile while asm typeof
    """.split()  # noqa: SIM905 - a list of words reads better
)


@rule(
    "elf-symbol-name",
    "A symbol of constants cannot be written in C",
    severity="warning",
    why="no C or C++ program can declare it; a @ in it makes a version, which linkers look up elsewhere",
    fix="name it with letters, digits and underscores (emitter: --name, or NAME= before the input)",
    kinds=("object", "library"),
)
def symbol_name(check: Check) -> Iterator[Found]:
    """Look at the names of files that offer data alone."""
    if not data_only(check):
        return
    for symbol in exported(check):
        name = symbol.name
        if not (name.isascii() and name.isidentifier()) or name in _RESERVED:
            yield Found(label(symbol), "a C identifier", name)


# A27, of symbols
@rule(
    "elf-symbol-section",
    "A symbol is defined in a section that does not exist",
    why="linkers give up, or define it at an address that belongs to something else",
    fix="make the file again; over 65,280 sections need SHT_SYMTAB_SHNDX (gABI)",
    kinds=("object",),
)
def symbol_section(check: Check) -> Iterator[Found]:
    """Compare st_shndx with the number of sections."""
    elf = elf_of(check)
    count = len(elf.shdrs)
    extended = all(table.xindex is not None for table in elf.symbol_tables)
    for symbol in exported(check):
        if symbol.st_shndx == SHN_XINDEX and not extended:
            yield Found(label(symbol), "an entry of SHT_SYMTAB_SHNDX", "none: there is no such section")
        elif (symbol.st_shndx < SHN_LORESERVE or symbol.st_shndx == SHN_XINDEX) and symbol.shndx >= count:
            yield Found(label(symbol), f"a section below {count}", symbol.shndx)


# A47: of two symbols
@rule(
    "elf-symbol-overlap",
    "Two symbols of data share some of their bytes",
    severity="warning",
    why="a table that is written through one of them changes the other; sizes or offsets were computed wrongly",
    fix="make the file again; aliases have one address and one size, parts lie inside of their whole",
    kinds=("object", "library"),
)
def symbol_overlap(check: Check) -> Iterator[Found]:
    """Look for symbols of one section, of files of data, that overlap without one being inside of the other."""
    if not data_only(check):
        return
    places: dict[int, list[tuple[int, int, str]]] = {}
    for symbol, shdr in _data(check):
        if (
            symbol.st_type == STT_OBJECT
            and symbol.st_size
            and shdr.sh_type != SHT_NOBITS
            and not shdr.sh_flags & SHF_MERGE
        ):
            end = symbol.st_value + symbol.st_size
            places.setdefault(symbol.shndx, []).append((symbol.st_value, -end, label(symbol)))
    for rows in places.values():
        around: list[tuple[int, str]] = []
        for start, negative, name in sorted(rows):
            end = -negative
            while around and around[-1][0] <= start:
                around.pop()
            if around and end > around[-1][0]:
                yield Found(name, f"an end of at most {around[-1][0]:#x}, as {around[-1][1]}", f"{end:#x}")
            around.append((end, name))
