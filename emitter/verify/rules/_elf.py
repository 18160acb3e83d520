"""What the rules about ELF share: numbers of the specification, and facts that several of them ask for."""

from __future__ import annotations

from typing import cast

from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.inspect.elf import ElfFile
    from emitter.inspect.elf_records import Phdr, Shdr, Sym
    from emitter.verify.check import Check

__all__ = [
    "elf_of",
    "exported",
    "file_name",
    "find_section",
    "has_code",
    "hosted",
    "label",
    "loads",
    "section_name",
    "section_names",
    "segment_name",
]

EM_386, EM_PPC64, EM_ARM, EM_X86_64, EM_AARCH64, EM_RISCV, EM_LOONGARCH = 3, 21, 40, 62, 183, 243, 258

PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_NOTE, PT_TLS = 1, 2, 3, 4, 7
PT_GNU_STACK, PT_GNU_RELRO, PT_GNU_PROPERTY = 0x6474E551, 0x6474E552, 0x6474E553
PF_X, PF_W, PF_R = 1, 2, 4

SHT_PROGBITS, SHT_NOTE, SHT_NOBITS = 1, 7, 8
SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR, SHF_MERGE, SHF_TLS = 1, 2, 4, 0x10, 0x400

SHN_UNDEF, SHN_LORESERVE, SHN_ABS, SHN_COMMON, SHN_XINDEX = 0, 0xFF00, 0xFFF1, 0xFFF2, 0xFFFF

STB_LOCAL, STB_GLOBAL, STB_WEAK = 0, 1, 2
STT_NOTYPE, STT_OBJECT, STT_FUNC, STT_SECTION, STT_FILE, STT_COMMON, STT_TLS, STT_GNU_IFUNC = 0, 1, 2, 3, 4, 5, 6, 10
STV_DEFAULT, STV_INTERNAL, STV_HIDDEN, STV_PROTECTED = 0, 1, 2, 3

_SEGMENTS = {
    0: "PT_NULL", 1: "PT_LOAD", 2: "PT_DYNAMIC", 3: "PT_INTERP", 4: "PT_NOTE", 6: "PT_PHDR", 7: "PT_TLS",
    PT_GNU_STACK: "PT_GNU_STACK", PT_GNU_RELRO: "PT_GNU_RELRO", PT_GNU_PROPERTY: "PT_GNU_PROPERTY",
    0x6474E550: "PT_GNU_EH_FRAME",
}  # fmt: skip


def elf_of(check: Check) -> ElfFile:
    """Return the reader of a check whose format is ELF."""
    return cast("ElfFile", check.reader)


def file_name(check: Check) -> str:
    """Return the name of the file, or of the member, without folders."""
    return (check.member.rpartition("!")[2] or check.path).replace("\\", "/").rpartition("/")[2]


def hosted(check: Check) -> bool:
    """Return whether the file is for a system with processes and a loader: not for bare metal."""
    return check.target is None or "-none-" not in f"-{check.target.llvm_triple}-"


def loads(check: Check) -> list[tuple[int, Phdr]]:
    """Return (number, header) of the PT_LOAD segments that have something to load."""
    return [(number, phdr) for number, phdr in elf_of(check).segments(PT_LOAD) if phdr.p_memsz]


def segment_name(number: int, phdr: Phdr) -> str:
    """Return what messages call a segment: `segment 2 (PT_LOAD)`."""
    return f"segment {number} ({_SEGMENTS.get(phdr.p_type, f'{phdr.p_type:#x}')})"


def section_name(check: Check, number: int) -> str:
    """Return the name of a section, or its number where it has none."""
    return elf_of(check).section_label(number)


def label(symbol: Sym) -> str:
    """Return what messages call a symbol."""
    from emitter.errors import shown

    return f"symbol {shown(symbol.name)[1:-1] or f'number {symbol.number}'}"


def has_code(check: Check) -> bool:
    """Return whether the file has instructions: bytes in an executable section, or (without sections) segment."""

    def find() -> bool:
        elf = elf_of(check)
        if elf.shdrs:
            return any(shdr.sh_flags & SHF_EXECINSTR and shdr.sh_size for _, shdr in elf.sections())
        return any(phdr.p_flags & PF_X for _, phdr in loads(check))

    return check.fact("has code", find)


def defined(check: Check, table: str) -> Iterator[Sym]:
    """Yield the symbols of a table (`dynsym`, `symtab`) that are defined here and visible to others."""
    elf = elf_of(check)
    for one in elf.symbol_tables:
        if one.name == table:
            for symbol in elf.symbols(one):
                if symbol.st_shndx != SHN_UNDEF and symbol.st_bind != STB_LOCAL and symbol.name:
                    yield symbol


def exported(check: Check) -> list[Sym]:
    """Return the symbols that the file offers: of `dynsym` in what is linked, of `symtab` in objects."""
    table = "symtab" if check.kind == "object" else "dynsym"
    return check.fact("exported", lambda: list(_limited(defined(check, table))))


_MAX_SYMBOLS = 2_000_000


def _limited(symbols: Iterator[Sym]) -> Iterator[Sym]:
    from itertools import islice

    return islice(symbols, _MAX_SYMBOLS)


def section_names(check: Check) -> list[str]:
    """Return the name of every section, by number; empty where the file has no names."""

    def find() -> list[str]:
        elf = elf_of(check)
        return [elf.section_name(number) for number in range(len(elf.shdrs))]

    return check.fact("section names", find)


def find_section(check: Check, name: str) -> tuple[int, Shdr] | None:
    """Return (number, header) of the first section called `name`, or None."""

    def find() -> dict[str, int]:
        names = section_names(check)
        return {names[number]: number for number in reversed(range(len(names)))}

    number = check.fact("sections by name", find).get(name)
    return None if number is None else (number, elf_of(check).shdrs[number])
