# ruff: noqa: N815 - the names of the specification
"""The data directories of a PE image: exports, imports, debug, load configuration, TLS, certificates, relocations.

Counts that a file states are bounded by what the format can address (ordinals have 16 bits), and lists that end with a
zero entry by limits far above what linkers make.

Source: Microsoft, "PE Format"; <winnt.h> for IMAGE_LOAD_CONFIG_DIRECTORY; <delayimp.h> for delayed imports.
"""

from __future__ import annotations

from emitter.errors import FormatError
from emitter.inspect import pe_names as names
from emitter.inspect.budget import NameBudget
from emitter.inspect.view import MAX_STRING
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.inspect.pe import PeFile

__all__ = [
    "BaseRelocationBlock",
    "Certificate",
    "CodeView",
    "DebugEntry",
    "Export",
    "ExportDirectory",
    "ImportedDll",
    "ImportedSymbol",
    "LoadConfig",
    "TlsDirectory",
]

_MAX_ORDINALS = 1 << 16
_MAX_DLLS = 4096
_MAX_SYMBOLS = 1 << 16  # of one DLL
_MAX_BLOCK = 8 + 2 * (1 << 16)  # bytes: entries have 16 bits, and none is needed twice
_MAX_ENTRIES = 4096  # of the debug directory, certificates, TLS callbacks


class ExportDirectory(NamedTuple):
    """IMAGE_EXPORT_DIRECTORY; `name` is the DLL's own."""

    name: str
    Characteristics: int
    TimeDateStamp: int
    MajorVersion: int
    MinorVersion: int
    Name: int
    Base: int
    NumberOfFunctions: int
    NumberOfNames: int
    AddressOfFunctions: int
    AddressOfNames: int
    AddressOfNameOrdinals: int


class Export(NamedTuple):
    """An export: `name` is empty for one by ordinal alone; `forwarder` is `DLL.name`, and `rva` then its text's."""

    ordinal: int
    name: str
    rva: int
    forwarder: str


class ImportedDll(NamedTuple):
    """A DLL that is imported: `lookup` and `address` are the RVAs of the lookup table and of the address table."""

    name: str
    delay: bool
    lookup: int
    address: int
    TimeDateStamp: int


class ImportedSymbol(NamedTuple):
    """An imported symbol, by name (with the hint) or, where that is empty, by ordinal."""

    name: str
    ordinal: int


class DebugEntry(NamedTuple):
    """IMAGE_DEBUG_DIRECTORY."""

    Characteristics: int
    TimeDateStamp: int
    MajorVersion: int
    MinorVersion: int
    Type: int
    SizeOfData: int
    AddressOfRawData: int
    PointerToRawData: int


class CodeView(NamedTuple):
    """The CodeView record: `signature` is RSDS (16 bytes of `guid`) or NB10 (4 bytes)."""

    signature: str
    guid: bytes
    age: int
    path: str


class LoadConfig(NamedTuple):
    """IMAGE_LOAD_CONFIG_DIRECTORY, as far as the file's reaches; what is beyond `Size` is 0. Addresses are virtual."""

    Size: int
    TimeDateStamp: int
    SecurityCookie: int
    SEHandlerTable: int
    SEHandlerCount: int
    GuardCFCheckFunctionPointer: int
    GuardCFDispatchFunctionPointer: int
    GuardCFFunctionTable: int
    GuardCFFunctionCount: int
    GuardFlags: int


class TlsDirectory(NamedTuple):
    """IMAGE_TLS_DIRECTORY. Addresses are virtual, not RVAs; `callbacks` are those of the functions."""

    StartAddressOfRawData: int
    EndAddressOfRawData: int
    AddressOfIndex: int
    AddressOfCallBacks: int
    SizeOfZeroFill: int
    Characteristics: int
    callbacks: tuple[int, ...]


class Certificate(NamedTuple):
    """WIN_CERTIFICATE at `offset` of the file."""

    offset: int
    dwLength: int
    wRevision: int
    wCertificateType: int


class BaseRelocationBlock(NamedTuple):
    """IMAGE_BASE_RELOCATION with its entries, each type << 12 | offset in the page."""

    VirtualAddress: int
    SizeOfBlock: int
    entries: tuple[int, ...]


def _too_many(pe: PeFile, what: str, limit: int) -> FormatError:
    return FormatError(f"too many {what}", where=pe.view.where, expected=f"at most {limit}")


def read_export_directory(pe: PeFile) -> ExportDirectory | None:
    """Return the export directory, or None."""
    place = pe.directory("EXPORT")
    if place is None:
        return None
    row = pe.view.unpack("<2I2H7I", pe.offset_of(place.VirtualAddress, 40, "the export directory"), "exports")
    directory = ExportDirectory(pe.string_at(row[4], "the name of the DLL") if row[4] else "", *row)
    for field in ("NumberOfFunctions", "NumberOfNames"):
        if getattr(directory, field) > _MAX_ORDINALS:
            raise FormatError(
                field, where=pe.view.where, expected=f"at most {_MAX_ORDINALS}", actual=getattr(directory, field)
            )
    return directory


def exports(pe: PeFile) -> Iterator[Export]:
    """Yield the exports by ordinal."""
    directory, place = pe.export_directory, pe.directory("EXPORT")
    if directory is None or place is None or not directory.NumberOfFunctions:
        return
    count, functions = directory.NumberOfNames, directory.NumberOfFunctions
    named: dict[int, list[int]] = {}
    if count:
        what = "the export names"
        pointers = pe.view.table("<I", pe.offset_of(directory.AddressOfNames, 4 * count, what), 4, count, what)
        at = pe.offset_of(directory.AddressOfNameOrdinals, 2 * count, "the export ordinals")
        for (index,), (pointer,) in zip(
            pe.view.table("<H", at, 2, count, "the export ordinals"), pointers, strict=True
        ):
            if index >= functions:
                raise FormatError("an export ordinal", where=pe.view.where, expected=f"below {functions}", actual=index)
            named.setdefault(index, []).append(pointer)
    what = "the export addresses"
    at = pe.offset_of(directory.AddressOfFunctions, 4 * functions, what)
    take = NameBudget(pe.view, "the export names").take
    for index, (rva,) in enumerate(pe.view.table("<I", at, 4, functions, what)):
        if not rva and index not in named:
            continue  # an ordinal that is not used
        inside = place.VirtualAddress <= rva < place.VirtualAddress + place.Size
        forwarder = take(pe.string_at(rva, "a forwarder")) if inside else ""
        for pointer in named.get(index, (0,)):
            name = take(pe.string_at(pointer, "an export's name")) if pointer else ""
            yield Export(directory.Base + index, name, rva, forwarder)


def imports(pe: PeFile) -> Iterator[ImportedDll]:
    """Yield the DLLs of the import directory."""
    place = pe.directory("IMPORT")
    if place is None:
        return
    take = NameBudget(pe.view, "the names of DLLs").take
    for number in range(_MAX_DLLS):
        what = f"import descriptor {number}"
        at = pe.offset_of(place.VirtualAddress + 20 * number, 20, what)
        lookup, stamp, _, name, address = pe.view.unpack("<5I", at, what)
        if not name and not address:
            return
        yield ImportedDll(take(pe.string_at(name, "the name of a DLL")), False, lookup or address, address, stamp)
    raise _too_many(pe, "imported DLLs", _MAX_DLLS)


def delay_imports(pe: PeFile) -> Iterator[ImportedDll]:
    """Yield the DLLs of the delay-load directory."""
    place = pe.directory("DELAY_IMPORT")
    if place is None:
        return
    take = NameBudget(pe.view, "the names of DLLs").take
    for number in range(_MAX_DLLS):
        what = f"delay-load descriptor {number}"
        at = pe.offset_of(place.VirtualAddress + 32 * number, 32, what)
        attributes, name, _, address, lookup, _, _, stamp = pe.view.unpack("<8I", at, what)
        if not name:
            return
        base = 0 if attributes & 1 else pe.optional.ImageBase  # the oldest form holds addresses
        text = take(pe.string_at(name - base, "the name of a DLL"))
        yield ImportedDll(text, True, lookup - base, address - base, stamp)
    raise _too_many(pe, "delay-loaded DLLs", _MAX_DLLS)


def imported_symbols(pe: PeFile, dll: ImportedDll) -> Iterator[ImportedSymbol]:
    """Yield what is imported from a DLL."""
    size, form, by_ordinal = (8, "<Q", 1 << 63) if pe.is_64 else (4, "<I", 1 << 31)
    take = NameBudget(pe.view, "the import names").take
    for number in range(_MAX_SYMBOLS):
        what = "an import lookup entry"
        (entry,) = pe.view.unpack(form, pe.offset_of(dll.lookup + number * size, size, what), what)
        if not entry:
            return
        if entry & by_ordinal:
            yield ImportedSymbol("", entry & 0xFFFF)
            continue
        (hint,) = pe.view.unpack("<H", pe.offset_of(entry, 2, "an import's hint"), "an import's hint")
        yield ImportedSymbol(take(pe.string_at(entry + 2, "an import's name")), hint)
    raise _too_many(pe, f"symbols from {dll.name!r}", _MAX_SYMBOLS)


def debug_entries(pe: PeFile) -> tuple[DebugEntry, ...]:
    """Return the entries of the debug directory."""
    place = pe.directory("DEBUG")
    if place is None:
        return ()
    count = place.Size // 28
    if count > _MAX_ENTRIES:
        raise _too_many(pe, "debug entries", _MAX_ENTRIES)
    at = pe.offset_of(place.VirtualAddress, 28 * count, "the debug directory") if count else 0
    return tuple(DebugEntry(*row) for row in pe.view.table("<2I2H4I", at, 28, count, "the debug directory"))


def codeview(pe: PeFile) -> CodeView | None:
    """Return the first CodeView record, or None."""
    for entry in pe.debug:
        if entry.Type != names.IMAGE_DEBUG_TYPE_CODEVIEW or not entry.PointerToRawData:
            continue
        at, size = entry.PointerToRawData, min(entry.SizeOfData, MAX_STRING)
        pe.view.check(at, entry.SizeOfData, "the CodeView record")
        data = pe.view.read(at, size, "the CodeView record")
        signature, head = data[:4], 24 if data[:4] == b"RSDS" else 16
        if signature in (b"RSDS", b"NB10") and size >= head:
            guid = data[4:20] if signature == b"RSDS" else data[8:12]
            path = data[head:].partition(b"\0")[0].decode("utf-8", "surrogateescape")
            return CodeView(signature.decode(), guid, int.from_bytes(data[head - 4 : head], "little"), path)
    return None


# Offset and size of the fields of LoadConfig after Size and TimeDateStamp, by pointer width.
_LOAD_CONFIG = {
    32: ((60, 4), (64, 4), (68, 4), (72, 4), (76, 4), (80, 4), (84, 4), (88, 4)),
    64: ((88, 8), (96, 8), (104, 8), (112, 8), (120, 8), (128, 8), (136, 8), (144, 4)),
}


def load_config(pe: PeFile) -> LoadConfig | None:
    """Return the load configuration, or None."""
    place = pe.directory("LOAD_CONFIG")
    if place is None:
        return None
    what = "the load configuration"
    at = pe.offset_of(place.VirtualAddress, 8, what)
    size, stamp = pe.view.unpack("<2I", at, what)
    fields = _LOAD_CONFIG[pe.pointer_width]
    held = min(size, sum(fields[-1]))
    data = pe.view.read(pe.offset_of(place.VirtualAddress, max(held, 8), what), max(held, 8), what)
    values = [int.from_bytes(data[at : at + width], "little") if at + width <= held else 0 for at, width in fields]
    return LoadConfig(size, stamp, *values)


def tls_directory(pe: PeFile) -> TlsDirectory | None:
    """Return the TLS directory, or None."""
    place = pe.directory("TLS")
    if place is None:
        return None
    form, width = ("<4Q2I", 8) if pe.is_64 else ("<6I", 4)
    what = "the TLS directory"
    row = pe.view.unpack(form, pe.offset_of(place.VirtualAddress, 4 * width + 8, what), what)
    callbacks: list[int] = []
    if row[3]:
        at = row[3] - pe.optional.ImageBase
        while True:
            what = "the TLS callbacks"
            data = pe.view.read(pe.offset_of(at + width * len(callbacks), width, what), width, what)
            address = int.from_bytes(data, "little")
            if not address:
                break
            callbacks.append(address)
            if len(callbacks) > _MAX_ENTRIES:
                raise _too_many(pe, what, _MAX_ENTRIES)
    return TlsDirectory._make((*row, tuple(callbacks)))


def certificates(pe: PeFile) -> tuple[Certificate, ...]:
    """Return the entries of the certificate table, which are 8-aligned."""
    place = pe.directory("SECURITY")
    if place is None:
        return ()
    pe.view.check(place.VirtualAddress, place.Size, "the certificate table")
    found: list[Certificate] = []
    at, end = place.VirtualAddress, place.VirtualAddress + place.Size
    while at + 8 <= end:
        one = Certificate(at, *pe.view.unpack("<I2H", at, "a certificate"))
        if one.dwLength < 8 or at + one.dwLength > end:
            raise FormatError(
                "dwLength of a certificate", where=pe.view.where, expected=f"from 8 to {end - at}", actual=one.dwLength
            )
        found.append(one)
        if len(found) > _MAX_ENTRIES:
            raise _too_many(pe, "certificates", _MAX_ENTRIES)
        at += -(-one.dwLength // 8) * 8
    return tuple(found)


def base_relocations(pe: PeFile) -> Iterator[BaseRelocationBlock]:
    """Yield the blocks of base relocations."""
    place = pe.directory("BASERELOC")
    if place is None:
        return
    what = "the base relocations"
    at = pe.offset_of(place.VirtualAddress, place.Size, what)
    end = at + place.Size
    while at + 8 <= end:
        page, size = pe.view.unpack("<2I", at, what)
        most = min(end - at, _MAX_BLOCK)
        if size < 8 or size % 2 or size > most:
            raise FormatError("SizeOfBlock", where=pe.view.where, expected=f"even, from 8 to {most}", actual=size)
        count = (size - 8) // 2
        entries = tuple(entry for (entry,) in pe.view.table("<H", at + 8, 2, count, what))
        yield BaseRelocationBlock(page, size, entries)
        at += size
