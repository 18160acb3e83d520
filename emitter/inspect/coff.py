"""Reads COFF objects, /bigobj too, and the short objects of import libraries.

COFF has no magic: its first two bytes are the machine. A header that could be something else is not taken for one.

Source: Microsoft, "PE Format": COFF file header, Import Library Format; <winnt.h> for ANON_OBJECT_HEADER_BIGOBJ.
"""

from __future__ import annotations

from emitter.errors import FormatError
from emitter.inspect.coff_records import CoffHeader, CoffTables
from emitter.inspect.pe_names import MACHINES, machine_of
from emitter.inspect.report import Reader
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.inspect.coff_records import CoffRelocation, CoffSymbol, SectionHeader
    from emitter.inspect.report import Report
    from emitter.inspect.view import View

__all__ = ["BigObjFile", "CoffFile", "ImportHeader", "ImportObject"]

_HEADER_SIZE, _BIGOBJ_SIZE, _IMPORT_SIZE = 20, 56, 20
_BIGOBJ_CLASS = bytes.fromhex("c7a1bad1eebaa94baf20faf66aa4dcb8")
_MAX_IMPORT = 1 << 20  # bytes of names in an import object

IMPORT_TYPES = {0: "code", 1: "data", 2: "const"}
IMPORT_NAME_TYPES = {0: "ordinal", 1: "name", 2: "noprefix", 3: "undecorate", 4: "exportas"}


class CoffFile(Reader):
    """A COFF object. Raises FormatError for a header that is cut off."""

    kind = "COFF object"
    header: CoffHeader

    @classmethod
    def fits(cls, view: View) -> bool:
        """Return whether the header is an object's: no optional header, and sections that the file holds."""
        if view.size < _HEADER_SIZE:
            return False
        machine, sections, _, _, _, optional, _ = view.unpack("<2H3I2H", 0, "the COFF header")
        return machine in MACHINES and not optional and _HEADER_SIZE + 40 * int(sections) <= view.size

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._read_header()
        self.machine, self.pointer_width = machine_of(self.header.Machine)

    def _read_header(self) -> None:
        self.header = CoffHeader(*self.view.unpack("<2H3I2H", 0, "the COFF header"))
        at = _HEADER_SIZE + self.header.SizeOfOptionalHeader
        self.tables = CoffTables(self.view, self.header, at)

    def report(self, page_size: int = 0) -> Report:
        """Return the neutral report; nothing of an object is mapped, so `page_size` is only passed on."""
        from emitter.inspect.coff_report import object_report

        return object_report(self, page_size)

    @property
    def sections(self) -> tuple[SectionHeader, ...]:
        """The section table; numbers count from 1."""
        return self.tables.sections

    def symbols(self) -> Iterator[CoffSymbol]:
        """Yield the symbols with their auxiliary records."""
        return self.tables.symbols()

    def relocations(self, section: SectionHeader) -> Iterator[CoffRelocation]:
        """Yield the relocations of a section."""
        return self.tables.relocations(section)


class BigObjFile(CoffFile):
    """A COFF object of more than 65279 sections (`cl /bigobj`): 32-bit section numbers."""

    kind = "COFF object (/bigobj)"

    @classmethod
    def fits(cls, view: View) -> bool:
        """Return whether the class identifier is that of /bigobj."""
        return view.size >= _BIGOBJ_SIZE and view.read(12, 16, "the class identifier") == _BIGOBJ_CLASS

    def _read_header(self) -> None:
        row = self.view.unpack("<4HI16s7I", 0, "the /bigobj header")
        machine, stamp = row[3], row[4]
        _, flags, _, _, sections, symbols_at, symbols = row[6:]
        self.header = CoffHeader(machine, sections, stamp, symbols_at, symbols, 0, flags, bigobj=True)
        self.tables = CoffTables(self.view, self.header, _BIGOBJ_SIZE)


class ImportHeader(NamedTuple):
    """IMPORT_OBJECT_HEADER; `Type` and `NameType` are the bit fields of its last word."""

    Sig1: int
    Sig2: int
    Version: int
    Machine: int
    TimeDateStamp: int
    SizeOfData: int
    OrdinalOrHint: int
    Type: int
    NameType: int


class ImportObject(Reader):
    """A short object of an import library: one symbol of a DLL. Raises FormatError for names that are cut off.

    `symbol` is the name that programs link against; `export_as` the DLL's own where that differs (NameType 4).
    """

    kind = "import object"

    @classmethod
    def fits(cls, view: View) -> bool:
        """Return whether the anonymous object is an import: version 0 of a known machine."""
        if view.size < _IMPORT_SIZE:
            return False
        version, machine = view.unpack("<2H", 4, "the import header")
        return version == 0 and machine in MACHINES

    def __init__(self, view: View) -> None:
        super().__init__(view)
        *fields, bits = view.unpack("<4H2I2H", 0, "the import header")
        self.header = ImportHeader._make((*fields, bits & 3, bits >> 2 & 7))
        self.machine, self.pointer_width = machine_of(self.header.Machine)
        size = self.header.SizeOfData
        if size > _MAX_IMPORT:
            raise FormatError("SizeOfData", where=view.where, expected=f"at most {_MAX_IMPORT}", actual=size)
        strings = view.read(_IMPORT_SIZE, size, "the names").split(b"\0")
        wanted = 3 if self.header.NameType == 4 else 2
        if len(strings) <= wanted:  # what follows the last NUL is one string more
            raise FormatError("the names are cut off", where=view.where, expected=wanted, actual=len(strings) - 1)
        self.symbol, self.dll, *more = (text.decode("utf-8", "surrogateescape") for text in strings[:wanted])
        self.export_as = more[0] if more else ""

    @property
    def import_type(self) -> str:
        """`code`, `data` or `const`."""
        return IMPORT_TYPES.get(self.header.Type, f"type {self.header.Type}")

    @property
    def name_type(self) -> str:
        """How the DLL's name follows from the symbol: `ordinal`, `name`, `noprefix`, `undecorate`, `exportas`."""
        return IMPORT_NAME_TYPES.get(self.header.NameType, f"name type {self.header.NameType}")

    def report(self, page_size: int = 0) -> Report:
        """Return the neutral report; nothing of an object is mapped, so `page_size` is only passed on."""
        from emitter.inspect.coff_report import import_report

        return import_report(self, page_size)
