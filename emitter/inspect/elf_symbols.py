"""The string tables and symbol tables of ELF files.

Source: gABI, chapter 4 (String Table, Symbol Table).
"""

from __future__ import annotations

from emitter.errors import FormatError
from emitter.inspect.elf_dynamic import dynamic_symbol_table, version_names
from emitter.inspect.elf_records import Shdr, Sym, SymbolTable
from emitter.inspect.strings import StringTable
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.inspect.elf import ElfFile

__all__ = ["find_tables", "read_symbols"]

_SHT_SYMTAB, _SHT_DYNSYM, _SHT_SYMTAB_SHNDX = 2, 11, 18
_SHN_XINDEX = 0xFFFF

_MAX_SYMBOL_TABLES = 16  # the gABI allows one of each type

_SYM32_ORDER = (0, 3, 4, 5, 1, 2)  # where the fields of a 64-bit entry stand in the 32-bit class


def find_tables(elf: ElfFile) -> list[SymbolTable]:
    """Return the symbol tables, `dynsym` first; without section headers the one that the dynamic section leads to."""
    headers = [(n, shdr) for n, shdr in elf.sections() if shdr.sh_type in (_SHT_SYMTAB, _SHT_DYNSYM)]
    if len(headers) > _MAX_SYMBOL_TABLES:
        raise FormatError(
            "too many symbol tables",
            where=elf.view.where,
            expected=f"at most {_MAX_SYMBOL_TABLES}",
            actual=len(headers),
        )
    tables = [_table(elf, number, shdr) for number, shdr in headers]
    if all(table.name != "dynsym" for table in tables):
        found = dynamic_symbol_table(elf)
        tables += [found] if found else []
    return sorted(tables, key=lambda table: table.name)


def _table(elf: ElfFile, number: int, shdr: Shdr) -> SymbolTable:
    view, label = elf.view, elf.section_label(number)
    if shdr.sh_link >= len(elf.shdrs):
        raise FormatError(
            f"sh_link of {label} is not a section",
            where=view.where,
            expected=f"less than {len(elf.shdrs)}",
            actual=shdr.sh_link,
        )
    expected = 24 if elf.is_64 else 16
    if shdr.sh_entsize != expected:
        raise FormatError(
            f"sh_entsize of {label} is wrong", where=view.where, expected=expected, actual=shdr.sh_entsize
        )
    view.check(shdr.sh_offset, shdr.sh_size, label)
    records = shdr.sh_size // expected
    xindex = None
    for _, other in elf.sections(_SHT_SYMTAB_SHNDX):
        if other.sh_link == number:
            view.check(other.sh_offset, records * 4, "SHT_SYMTAB_SHNDX")
            xindex = other.sh_offset
    strings = elf.shdrs[shdr.sh_link]
    return SymbolTable(
        name="symtab" if shdr.sh_type == _SHT_SYMTAB else "dynsym",
        section=number,
        offset=shdr.sh_offset,
        records=records,
        entry_size=expected,
        strings=strings.sh_offset,
        strings_size=strings.sh_size,
        xindex=xindex,
        first_global=shdr.sh_info,
    )


def read_symbols(elf: ElfFile, table: SymbolTable) -> Iterator[Sym]:
    """Yield the symbols of a table from number 1, with names; those of `dynsym` with their versions."""
    view = elf.view
    strings = StringTable(view, table.strings, table.strings_size, f"the string table of {table.name}")
    rows = view.table(elf.layouts.sym, table.offset, table.entry_size, table.records, f"the symbol table {table.name}")
    versions = version_names(elf, table.records) if table.name == "dynsym" else None
    for number, row in enumerate(rows):
        version, hidden = next(versions) if versions else ("", False)
        if not number:
            continue
        st_name, st_info, st_other, st_shndx, st_value, st_size = row if elf.is_64 else [row[i] for i in _SYM32_ORDER]
        shndx = st_shndx
        if st_shndx == _SHN_XINDEX and table.xindex is not None:
            (shndx,) = view.unpack(elf.layouts.order + "I", table.xindex + 4 * number, "SHT_SYMTAB_SHNDX")
        name = strings.get(st_name, f"the name of symbol {number}") if st_name else ""
        yield Sym(number, name, st_info, st_other, st_shndx, st_value, st_size, shndx, version, hidden)
