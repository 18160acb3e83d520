"""Reads PE images: DLLs and executables, PE32 and PE32+.

The constructor reads the headers; the sections, the directories (`emitter.inspect.pe_directories`) and the symbol table
that some linkers leave in an image are read when they are asked for, and raise FormatError where they are broken.

Source: Microsoft, "PE Format" (learn.microsoft.com/windows/win32/debug/pe-format).
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property

from emitter.errors import FormatError
from emitter.inspect import pe_names as names
from emitter.inspect.coff_records import CoffHeader, CoffTables
from emitter.inspect.report import Reader
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.inspect import pe_directories as directories
    from emitter.inspect.coff_records import CoffSymbol, SectionHeader
    from emitter.inspect.report import Report
    from emitter.inspect.view import View

__all__ = ["DataDirectory", "OptionalHeader", "PeFile"]

_PE32, _PE32_PLUS = 0x10B, 0x20B
# From MajorLinkerVersion on; BaseOfData is PE32's alone. ImageBase and the four sizes are pointers.
_OPTIONAL = {_PE32: "<2B6I3I6H4I2H6I", _PE32_PLUS: "<2B5IQ2I6H4I2H4Q2I"}
_DIRECTORIES_AT = {_PE32: 96, _PE32_PLUS: 112}
_MAX_DIRECTORIES = 16


class OptionalHeader(NamedTuple):
    """The optional header; `BaseOfData` is 0 in PE32+, which has none."""

    Magic: int
    MajorLinkerVersion: int
    MinorLinkerVersion: int
    SizeOfCode: int
    SizeOfInitializedData: int
    SizeOfUninitializedData: int
    AddressOfEntryPoint: int
    BaseOfCode: int
    BaseOfData: int
    ImageBase: int
    SectionAlignment: int
    FileAlignment: int
    MajorOperatingSystemVersion: int
    MinorOperatingSystemVersion: int
    MajorImageVersion: int
    MinorImageVersion: int
    MajorSubsystemVersion: int
    MinorSubsystemVersion: int
    Win32VersionValue: int
    SizeOfImage: int
    SizeOfHeaders: int
    CheckSum: int
    Subsystem: int
    DllCharacteristics: int
    SizeOfStackReserve: int
    SizeOfStackCommit: int
    SizeOfHeapReserve: int
    SizeOfHeapCommit: int
    LoaderFlags: int
    NumberOfRvaAndSizes: int


class DataDirectory(NamedTuple):
    """A data directory: `VirtualAddress` is an RVA, of SECURITY alone an offset in the file."""

    name: str
    VirtualAddress: int
    Size: int


class PeFile(Reader):
    """A PE image. Raises FormatError for broken headers; a program for DOS alone is not taken for one (`fits`)."""

    @classmethod
    def fits(cls, view: View) -> bool:
        """Return whether the DOS header leads to a PE signature."""
        if view.size < 64:
            return False
        (e_lfanew,) = view.unpack("<I", 60, "e_lfanew")
        return view.read_up_to(e_lfanew, 4) == b"PE\0\0" if e_lfanew < view.size else False

    def __init__(self, view: View) -> None:
        super().__init__(view)
        e_magic, self.e_lfanew = view.unpack("<2s58xI", 0, "the DOS header")
        if e_magic != b"MZ":
            raise FormatError("not a PE file", where=view.where, expected="MZ at its start", actual=e_magic.hex(" "))
        signature = view.read(self.e_lfanew, 4, "the PE signature")
        if signature != b"PE\0\0":
            raise FormatError("not a PE file", where=view.where, expected="PE signature", actual=signature.hex(" "))
        self.header = CoffHeader(*view.unpack("<2H3I2H", self.e_lfanew + 4, "the COFF header"))
        self.optional, self.directories = self._read_optional()
        self.is_64 = self.optional.Magic == _PE32_PLUS
        self.pointer_width = 64 if self.is_64 else 32
        self.machine = names.machine_of(self.header.Machine)[0]
        sections_at = self.e_lfanew + 24 + self.header.SizeOfOptionalHeader
        self.tables = CoffTables(view, self.header, sections_at)
        self.is_dll = bool(self.header.Characteristics & names.IMAGE_FILE_DLL)
        self.kind = f"PE {'dynamic library' if self.is_dll else 'executable'}"

    def _read_optional(self) -> tuple[OptionalHeader, tuple[DataDirectory, ...]]:
        at, size = self.e_lfanew + 24, self.header.SizeOfOptionalHeader
        (magic,) = self.view.unpack("<H", at, "the optional header")
        if magic not in _OPTIONAL:
            expected = "0x10b (PE32) or 0x20b (PE32+)"
            raise FormatError("Magic is unknown", where=self.view.where, expected=expected, actual=f"{magic:#x}")
        first = _DIRECTORIES_AT[magic]
        if size < first:
            raise FormatError("SizeOfOptionalHeader", where=self.view.where, expected=f"at least {first}", actual=size)
        values = list(self.view.unpack(_OPTIONAL[magic], at + 2, "the optional header"))
        if magic == _PE32_PLUS:
            values.insert(7, 0)
        optional = OptionalHeader(magic, *values)
        count = min(optional.NumberOfRvaAndSizes, _MAX_DIRECTORIES)
        if first + 8 * count > size:
            raise FormatError(
                "NumberOfRvaAndSizes", where=self.view.where, expected=f"at most {(size - first) // 8}", actual=count
            )
        rows = self.view.table("<2I", at + first, 8, count, "the data directories")
        return optional, tuple(DataDirectory(name, *row) for name, row in zip(names.DIRECTORIES, rows, strict=False))

    def report(self, page_size: int = 0) -> Report:
        """Return the neutral report; `page_size` 0 is 4096, which every CPU of Windows has."""
        from emitter.inspect.pe_report import report

        return report(self, page_size)

    @property
    def sections(self) -> tuple[SectionHeader, ...]:
        """The section table; numbers count from 1."""
        return self.tables.sections

    def symbols(self) -> Iterator[CoffSymbol]:
        """Yield the COFF symbols that MinGW's linkers leave in an image."""
        return self.tables.symbols()

    def directory(self, name: str) -> DataDirectory | None:
        """Return a data directory by its name, as in `pe_names.DIRECTORIES`; None for one that is absent or empty."""
        found = next((one for one in self.directories if one.name == name), None)
        return found if found is not None and found.VirtualAddress and found.Size else None

    def rva_to_offset(self, rva: int, size: int = 1) -> int | None:
        """Return the file offset of `size` bytes at an RVA, or None where no section has them in the file."""
        if rva >= 0 and rva + size <= self.optional.SizeOfHeaders:
            return rva
        starts, places = self._placed
        number = bisect_right(starts, rva) - 1
        if number < 0 or rva + size > starts[number] + places[number][0]:
            return None
        return places[number][1] + rva - starts[number]

    @cached_property
    def _placed(self) -> tuple[list[int], list[tuple[int, int]]]:
        """The sections by address: where each starts, and how many bytes of it are where in the file."""
        starts, places = [], []
        for section in sorted(self.sections, key=lambda section: section.VirtualAddress):
            held = section.file_size
            if section.VirtualSize:
                held = min(held, -(-section.VirtualSize // 4096) * 4096)
            starts.append(section.VirtualAddress)
            places.append((held, section.PointerToRawData))
        return starts, places

    def offset_of(self, rva: int, size: int, what: str) -> int:
        """Return `rva_to_offset`; raise FormatError, naming `what`, where no section has the bytes."""
        offset = self.rva_to_offset(rva, size)
        if offset is None:
            raise FormatError(f"{what} is in no section", where=self.view.where, actual=f"{size} bytes at RVA {rva:#x}")
        return offset

    def string_at(self, rva: int, what: str) -> str:
        """Return the NUL-terminated string at an RVA."""
        return self.view.string(self.offset_of(rva, 1, what), self.view.size, what)

    # The directories

    @cached_property
    def export_directory(self) -> directories.ExportDirectory | None:
        """The export directory."""
        from emitter.inspect.pe_directories import read_export_directory

        return read_export_directory(self)

    def exports(self) -> Iterator[directories.Export]:
        """Yield the exports, by ordinal; one with several names once for each."""
        from emitter.inspect.pe_directories import exports

        return exports(self)

    @cached_property
    def imports(self) -> tuple[directories.ImportedDll, ...]:
        """The DLLs that are loaded with this image, then those that are loaded when they are first called."""
        from emitter.inspect.pe_directories import delay_imports, imports

        return (*imports(self), *delay_imports(self))

    def imported_symbols(self, dll: directories.ImportedDll) -> Iterator[directories.ImportedSymbol]:
        """Yield what is imported from a DLL of `imports`."""
        from emitter.inspect.pe_directories import imported_symbols

        return imported_symbols(self, dll)

    @cached_property
    def debug(self) -> tuple[directories.DebugEntry, ...]:
        """The entries of the debug directory."""
        from emitter.inspect.pe_directories import debug_entries

        return debug_entries(self)

    @property
    def codeview(self) -> directories.CodeView | None:
        """The CodeView record: the path of the PDB, its GUID and age."""
        from emitter.inspect.pe_directories import codeview

        return codeview(self)

    @property
    def reproducible(self) -> bool:
        """Whether an IMAGE_DEBUG_TYPE_REPRO entry says that the time stamps are hashes."""
        return any(entry.Type == names.IMAGE_DEBUG_TYPE_REPRO for entry in self.debug)

    @property
    def load_config(self) -> directories.LoadConfig | None:
        """The load configuration."""
        from emitter.inspect.pe_directories import load_config

        return load_config(self)

    @property
    def tls(self) -> directories.TlsDirectory | None:
        """The TLS directory with the addresses of its callbacks."""
        from emitter.inspect.pe_directories import tls_directory

        return tls_directory(self)

    @property
    def certificates(self) -> tuple[directories.Certificate, ...]:
        """The entries of the certificate table, which stands outside all sections."""
        from emitter.inspect.pe_directories import certificates

        return certificates(self)

    def base_relocations(self) -> Iterator[directories.BaseRelocationBlock]:
        """Yield the blocks of base relocations."""
        from emitter.inspect.pe_directories import base_relocations

        return base_relocations(self)
