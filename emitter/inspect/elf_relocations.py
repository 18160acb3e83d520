"""The relocations of ELF files.

Source: gABI, chapter 4 (Relocation) and chapter 5 (DT_RELR); the 64-bit MIPS psABI for its own split of r_info.
"""

from __future__ import annotations

from emitter.errors import FormatError
from emitter.inspect.elf_records import Reloc
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.inspect.elf import ElfFile

__all__ = ["count_relr", "read_relocations"]

_SHT_RELA, _SHT_REL, _SHT_RELR = 4, 9, 19
_DT_RELA, _DT_RELASZ, _DT_REL, _DT_RELSZ = 7, 8, 17, 18
_DT_PLTREL, _DT_JMPREL, _DT_PLTRELSZ = 20, 23, 2
_DT_RELR, _DT_RELRSZ = 36, 35
_EM_MIPS = 8

_MAX_RELR = 64 << 20  # bytes, for some 100 million relocations


def read_relocations(elf: ElfFile) -> Iterator[Reloc]:
    """Yield the relocations of SHT_REL and SHT_RELA sections; without sections those the dynamic section names."""
    for table in _tables(elf):
        yield from _relocations(elf, table)


class _Table(NamedTuple):
    source: int  # Reloc.section
    offset: int
    size: int
    entry_size: int
    rela: bool  # whether entries have addends


def _tables(elf: ElfFile) -> Iterator[_Table]:
    sizes = {True: 3 * elf.layouts.word_size, False: 2 * elf.layouts.word_size}
    if elf.shdrs:
        for number, shdr in elf.sections():
            if shdr.sh_type in (_SHT_REL, _SHT_RELA):
                rela = shdr.sh_type == _SHT_RELA
                if shdr.sh_size and shdr.sh_entsize != sizes[rela]:
                    raise FormatError(
                        f"sh_entsize of {elf.section_label(number)} is wrong",
                        where=elf.view.where,
                        expected=sizes[rela],
                        actual=shdr.sh_entsize,
                    )
                yield _Table(number, shdr.sh_offset, shdr.sh_size, sizes[rela], rela)
        return
    plt_rela = elf.dynamic_value(_DT_PLTREL) == _DT_RELA
    for tag, size_tag, rela in (
        (_DT_RELA, _DT_RELASZ, True),
        (_DT_REL, _DT_RELSZ, False),
        (_DT_JMPREL, _DT_PLTRELSZ, plt_rela),
    ):
        address, size = elf.dynamic_value(tag), elf.dynamic_value(size_tag)
        if address is None or not size:
            continue
        # Some linkers count those of DT_JMPREL, which follow, in DT_RELASZ or DT_RELSZ too.
        whole = elf.dynamic_value(_DT_RELA if rela else _DT_REL)
        whole_size = elf.dynamic_value(_DT_RELASZ if rela else _DT_RELSZ) or 0
        if tag != _DT_JMPREL or whole is None or not whole <= address < whole + whole_size:
            yield _Table(-tag, elf.offset_of(address, "a relocation table"), size, sizes[rela], rela)


def _relocations(elf: ElfFile, table: _Table) -> Iterator[Reloc]:
    layouts = elf.layouts
    mips = elf.is_64 and elf.ehdr.e_machine == _EM_MIPS
    shift = 32 if elf.is_64 else 8
    mask = (1 << shift) - 1
    rows = elf.view.table(
        layouts.rela if table.rela else layouts.rel,
        table.offset,
        table.entry_size,
        table.size // table.entry_size,
        "a relocation table",
    )
    for row in rows:
        r_info = row[1]
        if mips and elf.byte_order == "little":
            # r_sym is the low word; the three types follow as bytes, the last of them first in significance.
            r_sym, r_type = r_info & 0xFFFFFFFF, int.from_bytes((r_info >> 32).to_bytes(4, "little"), "big")
        else:
            r_sym, r_type = r_info >> shift, r_info & mask
        yield Reloc(table.source, row[0], r_type, r_sym, row[2] if table.rela else None)


def count_relr(elf: ElfFile) -> int:
    """Return the number of relative relocations that the SHT_RELR tables (without sections: DT_RELR) stand for."""
    word = elf.layouts.word_size
    tables = [(shdr.sh_offset, shdr.sh_size) for _, shdr in elf.sections(_SHT_RELR)]
    address, size = elf.dynamic_value(_DT_RELR), elf.dynamic_value(_DT_RELRSZ)
    if not elf.shdrs and address is not None and size:
        tables.append((elf.offset_of(address, "DT_RELR"), size))
    count = 0
    if sum(length for _, length in tables) > _MAX_RELR:
        raise FormatError(
            "the SHT_RELR tables are too large", where=elf.view.where, expected=f"at most {_MAX_RELR} bytes"
        )
    for offset, length in tables:
        for (entry,) in elf.view.table(elf.layouts.word, offset, word, length // word, "SHT_RELR"):
            # An even entry is an address; an odd one is a map of the words that follow, its lowest bit apart.
            count += entry.bit_count() - 1 if entry & 1 else 1
    return count
