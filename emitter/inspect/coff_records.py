"""The structures that COFF objects and PE images share, and the tables of sections, symbols and strings.

Source: Microsoft, "PE Format": COFF file header, section table, relocations, symbol table, string table.
"""

from __future__ import annotations

from functools import cached_property

from emitter.errors import FormatError
from emitter.inspect import pe_names as names
from emitter.inspect.budget import NameBudget
from emitter.inspect.elf import StringTable
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.inspect.view import View

__all__ = ["CoffHeader", "CoffRelocation", "CoffSymbol", "CoffTables", "SectionDefinition", "SectionHeader"]

MAX_SECTIONS = 1 << 20  # of /bigobj; compilers reach some 100,000
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


class CoffHeader(NamedTuple):
    """The COFF file header; of a /bigobj object `ANON_OBJECT_HEADER_BIGOBJ`, with its Flags as Characteristics."""

    Machine: int
    NumberOfSections: int
    TimeDateStamp: int
    PointerToSymbolTable: int
    NumberOfSymbols: int
    SizeOfOptionalHeader: int
    Characteristics: int
    bigobj: bool = False


class SectionHeader(NamedTuple):
    """A section header; `number` counts from 1; `name` is the full one, also where `Name` refers to it."""

    number: int
    name: str
    Name: bytes
    VirtualSize: int
    VirtualAddress: int
    SizeOfRawData: int
    PointerToRawData: int
    PointerToRelocations: int
    PointerToLinenumbers: int
    NumberOfRelocations: int
    NumberOfLinenumbers: int
    Characteristics: int

    @property
    def alignment(self) -> int:
        """The alignment of an object's section in bytes; 16 where none is stated, as linkers take it."""
        code = (self.Characteristics & names.IMAGE_SCN_ALIGN_MASK) >> names.IMAGE_SCN_ALIGN_SHIFT
        return 1 << code - 1 if code else 16

    @property
    def file_size(self) -> int:
        """How many bytes it has in the file."""
        if self.Characteristics & names.IMAGE_SCN_CNT_UNINITIALIZED_DATA and not self.PointerToRawData:
            return 0
        return self.SizeOfRawData


class SectionDefinition(NamedTuple):
    """The auxiliary record of a section's symbol; `Selection` is of COMDAT sections."""

    Length: int
    NumberOfRelocations: int
    NumberOfLinenumbers: int
    CheckSum: int
    Number: int
    Selection: int


class CoffSymbol(NamedTuple):
    """A symbol with its auxiliary records, one behind the other, in `aux`. `number` counts those records too, from 0.

    `file_name` is what a `.file` symbol names: the source.
    """

    number: int
    name: str
    Value: int
    SectionNumber: int
    Type: int
    StorageClass: int
    aux: bytes
    file_name: str | None = None

    @property
    def external(self) -> bool:
        """Whether other objects see it."""
        return self.StorageClass in (names.IMAGE_SYM_CLASS_EXTERNAL, names.IMAGE_SYM_CLASS_WEAK_EXTERNAL)

    @property
    def function(self) -> bool:
        """Whether its type is a function."""
        return self.Type >> 4 == 2

    @property
    def section_definition(self) -> SectionDefinition | None:
        """What a section's own symbol says of the section."""
        if self.StorageClass != names.IMAGE_SYM_CLASS_STATIC or len(self.aux) < 18:
            return None
        number = [int.from_bytes(self.aux[at:end], "little") for at, end in _SECTION_DEFINITION]
        return SectionDefinition(*number)

    @property
    def weak_default(self) -> int | None:
        """The index of the symbol that stands in for a weak external one."""
        if self.StorageClass != names.IMAGE_SYM_CLASS_WEAK_EXTERNAL or len(self.aux) < 18:
            return None
        return int.from_bytes(self.aux[:4], "little")


_SECTION_NUMBER = 12  # offset in a symbol
_SECTION_DEFINITION = ((0, 4), (4, 6), (6, 8), (8, 12), (12, 14), (14, 15))


class CoffRelocation(NamedTuple):
    """A relocation of a section: `Type` depends on the machine (`pe_names.relocation_name`)."""

    VirtualAddress: int
    SymbolTableIndex: int
    Type: int


class CoffTables:
    """The sections, symbols and strings of a file. Tables are read when they are asked for; FormatError if broken."""

    def __init__(self, view: View, header: CoffHeader, sections_at: int) -> None:
        self.view, self.header, self._sections_at = view, header, sections_at
        self.symbol_size = 20 if header.bigobj else 18

    @cached_property
    def strings(self) -> StringTable | None:
        """The string table behind the symbols, its own size included in its offsets; None without symbol table."""
        header = self.header
        if not header.PointerToSymbolTable:
            return None
        at = header.PointerToSymbolTable + header.NumberOfSymbols * self.symbol_size
        if at == self.view.size:
            return None  # some writers leave out an empty one
        (size,) = self.view.unpack("<I", at, "the size of the string table")
        return StringTable(self.view, at, max(size, 4), "the string table")

    @cached_property
    def sections(self) -> tuple[SectionHeader, ...]:
        """The section table."""
        count = self.header.NumberOfSections
        if count > MAX_SECTIONS:
            raise FormatError(
                "too many sections", where=self.view.where, expected=f"at most {MAX_SECTIONS}", actual=count
            )
        rows = self.view.table("<8s6I2HI", self._sections_at, 40, count, "the section table")
        take = NameBudget(self.view, "the names of sections").take
        return tuple(SectionHeader(number, take(self._long_name(row[0])), *row) for number, row in enumerate(rows, 1))

    def symbols(self) -> Iterator[CoffSymbol]:
        """Yield the symbols."""
        header = self.header
        if not header.PointerToSymbolTable or not header.NumberOfSymbols:
            return
        form = "<8sIiHBB" if header.bigobj else "<8sIHHBB"
        size, count = self.symbol_size, header.NumberOfSymbols
        start, index = header.PointerToSymbolTable, 0
        rows = enumerate(self.view.table(form, start, size, count, "the symbol table"))
        for index, (raw, value, section, kind, storage_class, auxiliaries) in rows:
            if index + auxiliaries >= count:
                raise FormatError(
                    f"NumberOfAuxSymbols of symbol {index}",
                    where=self.view.where,
                    expected=f"at most {count - index - 1}",
                    actual=auxiliaries,
                )
            aux = b""
            if auxiliaries:
                aux = self.view.read(start + (index + 1) * size, auxiliaries * size, "auxiliary symbols")
                for _ in range(auxiliaries):
                    next(rows)
            name, file_name = self._symbol_name(raw), None
            if storage_class == names.IMAGE_SYM_CLASS_FILE and aux:
                # binutils put a long name into the string table, as with symbols; others spread it over the records.
                file_name = self._symbol_name(aux[:8] if aux[:4] == b"\0\0\0\0" else aux)
            yield CoffSymbol(index, name, value, self._section_number(section), kind, storage_class, aux, file_name)

    def section_of(self, number: int) -> int:
        """Return the SectionNumber of the symbol that has this number; 0, undefined, if there is none."""
        if not 0 <= number < self.header.NumberOfSymbols:
            return 0
        at = self.header.PointerToSymbolTable + number * self.symbol_size + _SECTION_NUMBER
        form = "<i" if self.header.bigobj else "<H"
        return self._section_number(*self.view.unpack(form, at, "a symbol"))

    def _section_number(self, number: int) -> int:
        # Up to 65279 sections count; the numbers above are the special, negative ones.
        return number - 0x10000 if number > names.MAX_SECTION_NUMBER and not self.header.bigobj else number

    def relocations(self, section: SectionHeader) -> Iterator[CoffRelocation]:
        """Yield the relocations of an object's section."""
        first, count = section.PointerToRelocations, section.NumberOfRelocations
        what = f"the relocations of section {section.number}"
        if count == 0xFFFF and section.Characteristics & names.IMAGE_SCN_LNK_NRELOC_OVFL:
            # The first record holds the true count, itself included.
            (count,) = self.view.unpack("<I", first, what)
            first, count = first + 10, max(count - 1, 0)
        for row in self.view.table("<2IH", first, 10, count, what):
            yield CoffRelocation(*row)

    def _long_name(self, raw: bytes) -> str:
        """Return the full name of a section: `/123` and `//AAAABC` (base64) are offsets in the string table."""
        name = raw.rstrip(b"\0")
        offset = None
        if name[:2] == b"//" and len(name) == 8 and not name[2:].strip(_BASE64):
            offset = 0
            for digit in name[2:]:
                offset = offset * 64 + _BASE64.index(digit)
        elif name[:1] == b"/" and name[1:].isdigit():
            offset = int(name[1:])
        if offset is not None and self.strings is not None:
            return self.strings.get(offset, "a section's name")
        return name.decode("utf-8", "surrogateescape")

    def _symbol_name(self, raw: bytes) -> str:
        if raw[:4] != b"\0\0\0\0":
            return raw.partition(b"\0")[0].decode("utf-8", "surrogateescape")
        offset = int.from_bytes(raw[4:], "little")
        if not offset:
            return ""
        if self.strings is None:
            raise FormatError("a symbol's name is in a string table that is missing", where=self.view.where)
        return self.strings.get(offset, "a symbol's name")
