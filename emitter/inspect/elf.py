"""Reads ELF files of any machine: headers, names, symbols; everything else through the modules beside this one.

Every count and offset is compared with the file before it is used (`emitter.inspect.view`), and counts have bounds of
their own, so that a hostile header costs neither memory nor time. Field names are the gABI's.
"""

from __future__ import annotations

from functools import cached_property

from emitter.errors import FormatError
from emitter.inspect.elf_records import Ehdr, Layouts, Phdr, Shdr
from emitter.inspect.report import Reader
from emitter.inspect.strings import StringTable
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.inspect.elf_records import (
        BuildAttribute,
        Dyn,
        Note,
        Property,
        Reloc,
        Sym,
        SymbolTable,
        Verdef,
        Verneed,
    )
    from emitter.inspect.report import Report
    from emitter.inspect.view import View
    from emitter.package import ByteOrder

__all__ = ["ElfFile", "StringTable"]

ET_REL, ET_EXEC, ET_DYN = 1, 2, 3
_TYPES = {0: "file without type", 1: "relocatable object", 2: "executable", 3: "shared object", 4: "core file"}

PT_LOAD, PT_INTERP = 1, 3
_PN_XNUM = 0xFFFF
SHT_NOBITS = 8
_SHN_XINDEX = 0xFFFF

DT_NEEDED, DT_STRTAB, DT_STRSZ, DT_SONAME, DT_RPATH, DT_RUNPATH = 1, 5, 10, 14, 15, 29

MAX_HEADERS = 1 << 20  # sections or segments; compilers reach some 100,000
_MAX_LOADS = 1 << 10  # PT_LOAD segments through which addresses are looked up

_PHDR32_ORDER = (0, 6, 1, 2, 3, 4, 5, 7)  # where the fields of Phdr stand in the 32-bit class


class ElfFile(Reader):
    """An ELF file. Making one reads the file header; raises FormatError where that is broken.

    Offsets are relative to the view: to the start of the ELF file, in an archive too.
    """

    def __init__(self, view: View) -> None:
        super().__init__(view)
        ident = view.read(0, 16, "e_ident")
        for name, index in (("EI_CLASS", 4), ("EI_DATA", 5)):
            if ident[index] not in (1, 2):
                raise FormatError(f"{name} is unknown", where=view.where, expected="1 or 2", actual=ident[index])
        self.layouts = Layouts(ident[4], ident[5])
        self.ehdr = Ehdr(*ident[4:9], *view.unpack(self.layouts.ehdr, 16, "the ELF header"))
        self.is_64 = self.layouts.is_64
        self.byte_order: ByteOrder = "little" if ident[5] == 1 else "big"
        e_type = self.ehdr.e_type
        self.kind = f"ELF {_TYPES.get(e_type, f'file of type {e_type:#x}')}"

    # Headers

    @cached_property
    def _first_section(self) -> Shdr:
        # Extended numbering: what does not fit into the file header stands in section header 0.
        return Shdr(*self.view.unpack(self.layouts.shdr, self.ehdr.e_shoff, "section header 0"))

    @cached_property
    def phnum(self) -> int:
        """The number of program headers, extended numbering resolved."""
        extended = self.ehdr.e_phnum == _PN_XNUM and self.ehdr.e_shoff
        return self._first_section.sh_info if extended else self.ehdr.e_phnum

    @cached_property
    def shnum(self) -> int:
        """The number of section headers, extended numbering resolved."""
        return self.ehdr.e_shnum or (self._first_section.sh_size if self.ehdr.e_shoff else 0)

    @cached_property
    def shstrndx(self) -> int:
        """The number of the section of section names, extended numbering resolved."""
        extended = self.ehdr.e_shstrndx == _SHN_XINDEX and self.ehdr.e_shoff
        return self._first_section.sh_link if extended else self.ehdr.e_shstrndx

    def _bounded(self, count: int, what: str) -> int:
        if count > MAX_HEADERS:
            raise FormatError(
                f"too many {what}", where=self.view.where, expected=f"at most {MAX_HEADERS}", actual=count
            )
        return count

    def _expect_none(self, count: int, field: str, what: str) -> None:
        if count:
            raise FormatError(
                f"{field} is 0, and there are {what}", where=self.view.where, expected="none", actual=count
            )

    @cached_property
    def phdrs(self) -> list[Phdr]:
        """The program headers."""
        count = self._bounded(self.phnum, "program headers")
        if not self.ehdr.e_phoff:
            self._expect_none(count, "e_phoff", "program headers")
            return []
        rows = self.view.table(
            self.layouts.phdr, self.ehdr.e_phoff, self.ehdr.e_phentsize, count, "the program header table"
        )
        return [Phdr(*row) if self.is_64 else Phdr(*(row[i] for i in _PHDR32_ORDER)) for row in rows]

    @cached_property
    def shdrs(self) -> list[Shdr]:
        """The section headers, with number 0; empty where there are none."""
        if not self.ehdr.e_shoff:
            self._expect_none(self.ehdr.e_shnum, "e_shoff", "section headers")
            return []
        count = self._bounded(self.shnum, "section headers")
        table = self.view.table(
            self.layouts.shdr, self.ehdr.e_shoff, self.ehdr.e_shentsize, count, "the section header table"
        )
        return [Shdr(*row) for row in table]

    @cached_property
    def section_strings(self) -> StringTable | None:
        """The string table of section names, or None."""
        if not 0 < self.shstrndx < len(self.shdrs):
            return None
        header = self.shdrs[self.shstrndx]
        return StringTable(self.view, header.sh_offset, header.sh_size, "the table of section names")

    def section_name(self, number: int) -> str:
        """Return the name of a section; empty where the file has no names."""
        strings = self.section_strings
        return "" if strings is None else strings.get(self.shdrs[number].sh_name, f"the name of section {number}")

    def section_label(self, number: int) -> str:
        """Return `section 5 (.text)` for messages; without the name where that cannot be read."""
        from emitter.errors import shown

        try:
            name = self.section_name(number)
        except (FormatError, IndexError):
            name = ""
        return f"section {number} ({shown(name)[1:-1]})" if name else f"section {number}"

    def sections(self, sh_type: int | None = None) -> Iterator[tuple[int, Shdr]]:
        """Yield (number, header) of the sections, or of those of one type."""
        return ((n, shdr) for n, shdr in enumerate(self.shdrs) if sh_type is None or shdr.sh_type == sh_type)

    def section(self, name: str) -> tuple[int, Shdr] | None:
        """Return (number, header) of the first section called `name`, or None."""
        for number, shdr in enumerate(self.shdrs):
            if self.section_name(number) == name:
                return number, shdr
        return None

    def segments(self, p_type: int) -> Iterator[tuple[int, Phdr]]:
        """Yield (number, header) of the segments of one type."""
        return ((n, phdr) for n, phdr in enumerate(self.phdrs) if phdr.p_type == p_type)

    def address_to_offset(self, address: int, size: int = 1) -> int | None:
        """Return the file offset of `size` bytes at a virtual address, or None where no PT_LOAD has them."""
        if len(self.loads) > _MAX_LOADS:
            raise FormatError(
                "too many PT_LOAD segments",
                where=self.view.where,
                expected=f"at most {_MAX_LOADS}",
                actual=len(self.loads),
            )
        for phdr in self.loads:
            if phdr.p_vaddr <= address and address + size <= phdr.p_vaddr + phdr.p_filesz:
                return phdr.p_offset + address - phdr.p_vaddr
        return None

    @cached_property
    def loads(self) -> list[Phdr]:
        """The PT_LOAD segments, in file order."""
        return [phdr for phdr in self.phdrs if phdr.p_type == PT_LOAD]

    # The dynamic section

    @cached_property
    def dynamic(self) -> list[Dyn]:
        """The entries of the dynamic section before DT_NULL; empty where there is none."""
        from emitter.inspect.elf_dynamic import read_dynamic

        return read_dynamic(self)

    def dynamic_values(self, d_tag: int) -> list[int]:
        """Return the values of every entry with the tag `d_tag`."""
        return [entry.d_val for entry in self.dynamic if entry.d_tag == d_tag]

    def dynamic_value(self, d_tag: int) -> int | None:
        """Return the value of the first entry with the tag `d_tag`, or None."""
        return next((entry.d_val for entry in self.dynamic if entry.d_tag == d_tag), None)

    @cached_property
    def dynamic_strings(self) -> StringTable | None:
        """The string table of the dynamic section, or None. Raises FormatError where DT_STRTAB leads nowhere."""
        address, size = self.dynamic_value(DT_STRTAB), self.dynamic_value(DT_STRSZ)
        if address is None or size is None:
            return None
        return StringTable(self.view, self.offset_of(address, "DT_STRTAB"), size, "the dynamic string table")

    def offset_of(self, address: int, what: str) -> int:
        """Return `address_to_offset`; raise FormatError, naming `what`, where the address is in no PT_LOAD."""
        offset = self.address_to_offset(address)
        if offset is None:
            raise FormatError(
                f"{what} is not in a PT_LOAD segment", where=self.view.where, actual=f"address {address:#x}"
            )
        return offset

    def _dynamic_names(self, d_tag: int, what: str) -> list[str]:
        values = self.dynamic_values(d_tag)
        strings = self.dynamic_strings if values else None
        return [strings.get(value, what) for value in values] if strings else []

    @property
    def needed(self) -> list[str]:
        """DT_NEEDED: the libraries that are loaded with this one."""
        return self._dynamic_names(DT_NEEDED, "DT_NEEDED")

    @property
    def soname(self) -> str | None:
        """DT_SONAME."""
        return next(iter(self._dynamic_names(DT_SONAME, "DT_SONAME")), None)

    @property
    def rpath(self) -> str | None:
        """DT_RPATH."""
        return next(iter(self._dynamic_names(DT_RPATH, "DT_RPATH")), None)

    @property
    def runpath(self) -> str | None:
        """DT_RUNPATH."""
        return next(iter(self._dynamic_names(DT_RUNPATH, "DT_RUNPATH")), None)

    @property
    def interpreter(self) -> str | None:
        """PT_INTERP."""
        for _, phdr in self.segments(PT_INTERP):
            return self.view.string(phdr.p_offset, phdr.p_offset + phdr.p_filesz, "PT_INTERP")
        return None

    # Symbols

    @cached_property
    def symbol_tables(self) -> list[SymbolTable]:
        """The symbol tables, `dynsym` first; without section headers the one that the dynamic section leads to."""
        from emitter.inspect.elf_symbols import find_tables

        return find_tables(self)

    def symbols(self, table: SymbolTable) -> Iterator[Sym]:
        """Yield the symbols of a table from number 1, with names; those of `dynsym` with their versions."""
        from emitter.inspect.elf_symbols import read_symbols

        return read_symbols(self, table)

    def all_symbols(self) -> Iterator[tuple[SymbolTable, Sym]]:
        """Yield (table, symbol) of every table."""
        for table in self.symbol_tables:
            for symbol in self.symbols(table):
                yield table, symbol

    @cached_property
    def versions_needed(self) -> list[Verneed]:
        """The versions that are needed of other libraries (SHT_GNU_verneed)."""
        from emitter.inspect.elf_dynamic import read_verneed

        return read_verneed(self)

    @cached_property
    def versions_defined(self) -> list[Verdef]:
        """The versions that are defined here (SHT_GNU_verdef)."""
        from emitter.inspect.elf_dynamic import read_verdef

        return read_verdef(self)

    # Notes, attributes, relocations

    def notes(self) -> Iterator[Note]:
        """Yield the notes of PT_NOTE segments, then those of SHT_NOTE sections that no such segment covers."""
        from emitter.inspect.elf_notes import read_notes

        return read_notes(self)

    def desc(self, note: Note) -> bytes:
        """Return the descriptor of a note."""
        return self.view.read(note.desc_offset, note.desc_size, f"the descriptor of a note of {note.owner!r}")

    @cached_property
    def properties(self) -> list[Property]:
        """The GNU properties, of every note that holds some, in file order."""
        from emitter.inspect.elf_notes import read_properties

        return read_properties(self)

    @cached_property
    def build_attributes(self) -> list[BuildAttribute]:
        """The build attributes of .ARM.attributes, .riscv.attributes, .gnu.attributes and their like."""
        from emitter.inspect.elf_attributes import read_attributes

        return read_attributes(self)

    def relocations(self) -> Iterator[Reloc]:
        """Yield the relocations of SHT_REL and SHT_RELA sections; without sections those the dynamic section names."""
        from emitter.inspect.elf_relocations import read_relocations

        return read_relocations(self)

    def relr_count(self) -> int:
        """Return the number of relative relocations that the SHT_RELR tables stand for."""
        from emitter.inspect.elf_relocations import count_relr

        return count_relr(self)

    def report(self, page_size: int = 0) -> Report:
        """Return the neutral report; see `emitter.inspect.report`."""
        from emitter.inspect.elf_report import make_report

        return make_report(self, page_size)
