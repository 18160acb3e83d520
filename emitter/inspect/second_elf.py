"""What pyelftools finds in an ELF file, beside what `emitter.inspect.elf` finds."""

from __future__ import annotations

import io

from elftools.elf import enums
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from emitter.inspect.elf import ElfFile
from emitter.inspect.elf_records import Phdr, Shdr
from emitter.inspect.second_parser import MAX_RECORDS
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from emitter.inspect.report import Reader
    from emitter.inspect.second_parser import Facts, Groups

__all__ = ["groups"]

_EHDR = (
    "e_entry", "e_phoff", "e_shoff", "e_flags", "e_ehsize", "e_phentsize", "e_phnum", "e_shentsize",
    "e_shnum", "e_shstrndx",
)  # fmt: skip


def groups(reader: Reader) -> tuple[Groups, Groups] | None:
    """Return the facts of both parsers by group; None for a file with more records than are compared."""
    if not isinstance(reader, ElfFile):
        return None
    elf = reader
    if elf.ehdr.e_shnum + elf.ehdr.e_phnum > MAX_RECORDS or elf.shnum > MAX_RECORDS:
        return None
    tables = [table for table in elf.symbol_tables if table.section is not None]
    if sum(table.records for table in tables) > MAX_RECORDS:
        return None
    data = elf.view.buffer()
    opened: list[ELFFile] = []

    def theirs() -> ELFFile:
        if not opened:
            opened.append(ELFFile(io.BytesIO(data)))
        return opened[0]

    ours: Groups = {
        "ELF header": lambda: ((name, getattr(elf.ehdr, name)) for name in _EHDR),
        "program headers": lambda: ((f"segment {n}", tuple(phdr)) for n, phdr in enumerate(elf.phdrs)),
        "section headers": lambda: (
            (f"section {n}", (_latin(elf.section_name(n)), *shdr)) for n, shdr in enumerate(elf.shdrs)
        ),
        "dynamic section": lambda: ((f"dynamic entry {n}", tuple(entry)) for n, entry in enumerate(elf.dynamic)),
        "symbols": lambda: (
            (
                f"symbol {s.number} of section {table.section}",
                (_latin(s.name), s.st_info, s.st_other & 3, s.st_value, s.st_size),
            )
            for table in sorted(tables, key=lambda table: table.section or 0)
            for s in elf.symbols(table)
        ),
    }
    return ours, {
        "ELF header": lambda: ((name, theirs().header[name]) for name in _EHDR),
        "program headers": lambda: _segments(theirs()),
        "section headers": lambda: _sections(theirs()),
        "dynamic section": lambda: _dynamic(theirs()),
        "symbols": lambda: _symbols(theirs()),
    }


def _number(value: Any, enum: Mapping[str, Any]) -> int:
    """Return what pyelftools gives as a number, or as the name of one."""
    return int(enum[value] if isinstance(value, str) else value)


def _segments(file: ELFFile) -> Facts:
    types = _names("ENUM_P_TYPE_")
    for number in range(file.num_segments()):
        header = file.get_segment(number).header
        values = [header[name] for name in Phdr._fields]
        yield f"segment {number}", (_number(values[0], types), *values[1:])


def _sections(file: ELFFile) -> Facts:
    types = _names("ENUM_SH_TYPE_")
    for number in range(file.num_sections()):
        section = file.get_section(number)
        values = [section.header[name] for name in Shdr._fields]
        values[1] = _number(values[1], types)
        yield f"section {number}", (section.name, *values)


def _names(prefix: str) -> dict[str, Any]:
    """Return the names that pyelftools gives numbers, those of every machine."""
    found: dict[str, Any] = {}
    for key, values in vars(enums).items():
        if key.startswith(prefix) and isinstance(values, dict):
            found |= values
    return found


def _dynamic(file: ELFFile) -> Facts:
    tables: list[Any] = [*file.iter_segments("PT_DYNAMIC")]
    tables += [section for section in file.iter_sections() if isinstance(section, DynamicSection)]
    for number, tag in enumerate(tables[0].iter_tags() if tables else ()):
        if tag.entry.d_tag == "DT_NULL":
            return
        yield f"dynamic entry {number}", (_number(tag.entry.d_tag, enums.ENUM_D_TAG), tag.entry.d_val)


def _symbols(file: ELFFile) -> Facts:
    for index in range(file.num_sections()):
        section = file.get_section(index)
        if not isinstance(section, SymbolTableSection) or section.header["sh_type"] not in ("SHT_SYMTAB", "SHT_DYNSYM"):
            continue
        for number in range(1, section.num_symbols()):
            symbol = section.get_symbol(number)
            entry = symbol.entry
            binding = _number(entry.st_info.bind, enums.ENUM_ST_INFO_BIND)
            kind = _number(entry.st_info.type, enums.ENUM_ST_INFO_TYPE)
            visibility = _number(entry.st_other.visibility, enums.ENUM_ST_VISIBILITY)
            subject = f"symbol {number} of section {index}"
            yield subject, (symbol.name, binding << 4 | kind, visibility, entry.st_value, entry.st_size)


def _latin(name: str) -> str:
    """Return a name as pyelftools decodes it."""
    return name.encode("utf-8", "surrogateescape").decode("latin-1")
