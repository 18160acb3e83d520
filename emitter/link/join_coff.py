"""Joins a COFF object of code and the sections and symbols of a model into one object, as link.exe and LLD cannot.

Everything of the code keeps its order and its numbers, so that relocations and associated sections stay right: what is
new stands behind it, in each table, and symbols that the code wants become those that the model defines.

Source: Microsoft's PE Format, "COFF File Header" to "COFF String Table".
"""

from __future__ import annotations

from struct import pack_into, unpack_from

from emitter import coff
from emitter.errors import FormatError, LayoutError
from emitter.inspect.coff import BigObjFile, CoffFile
from emitter.inspect.pe_names import IMAGE_SCN_LNK_NRELOC_OVFL
from emitter.inspect.view import View
from emitter.layout import FilePlan, Piece, align_up
from emitter.records import TYPE_CHECKING
from emitter.splice.coff import RAW_DATA_ALIGNMENT, check_size, encode_symbol, place_sections
from emitter.splice.contents import Contents

if TYPE_CHECKING:
    from emitter.model import ObjectModel
    from emitter.targets._base import Target

__all__ = ["plan_joined"]

_POINTERS = 20  # offset in a section header: to raw data, to relocations, to line numbers
_VALUE, _SECTION_NUMBER = 8, 12  # in a symbol
_MANY = 0xFFFF  # NumberOfRelocations with IMAGE_SCN_LNK_NRELOC_OVFL


def plan_joined(target: Target, model: ObjectModel, code: bytes, where: str) -> FilePlan:
    """Lay out `code`, an object called `where`, and `model` as one COFF object for `target`.

    Raises LayoutError for what the format cannot hold, FormatError for an object that is broken or laid out otherwise
    than compilers do.
    """
    view = View.of_bytes(code, where)
    if BigObjFile.fits(view):
        raise LayoutError("a /bigobj object is not joined", where=where, hint="compile it without, or write an archive")
    file = CoffFile(view)
    header, count = file.header, file.header.NumberOfSections
    if count + len(model.sections) > coff.MAX_SECTIONS:
        raise LayoutError("too many sections for a COFF object", where=where, expected=coff.MAX_SECTIONS, actual=count)
    start = coff.FILE_HEADER_SIZE + header.SizeOfOptionalHeader + coff.SECTION_HEADER_SIZE * count
    table, end = header.PointerToSymbolTable, header.PointerToSymbolTable + coff.SYMBOL_SIZE * header.NumberOfSymbols
    _check_order(file, start, table)

    # The sections of the code move as a whole, those of the model follow.
    first = coff.FILE_HEADER_SIZE + coff.SECTION_HEADER_SIZE * (count + len(model.sections))
    strings = coff.StringTable(_strings(code, end, where))
    contents = Contents()
    contents.pieces.append(Piece(first, code[start:table]))
    headers, position = place_sections(target, model, strings, contents, first + table - start, file_offset=0)

    symbols = bytearray(code[table:end])
    wanted = {target.symbol_prefix + symbol.name: symbol for symbol in model.symbols}
    for row in file.symbols():
        if row.name in wanted and row.StorageClass == coff.IMAGE_SYM_CLASS_EXTERNAL:
            if row.SectionNumber or row.Value:  # undefined with a value: a common block
                raise LayoutError("the code defines a symbol of the pack", where=where, actual=row.name)
            symbol = wanted.pop(row.name)
            made = encode_symbol(target, symbol, coff.StringTable(), sections=count)
            at = row.number * coff.SYMBOL_SIZE
            symbols[at + _VALUE : at + _SECTION_NUMBER + 2] = made[_VALUE : _SECTION_NUMBER + 2]
    for symbol in wanted.values():
        symbols += encode_symbol(target, symbol, strings, sections=count)
    symbol_table = align_up(position, RAW_DATA_ALIGNMENT)
    size = symbol_table + len(symbols) + strings.size
    check_size(target, size)

    # File layout is fixed. The time stamp is 0, whatever the code says: an output depends on its inputs alone.
    head = coff.file_header(
        header.Machine,
        count + len(headers),
        pointer_to_symbol_table=symbol_table,
        number_of_symbols=len(symbols) // coff.SYMBOL_SIZE,
        characteristics=header.Characteristics,
    )
    moved = _moved(code[start - coff.SECTION_HEADER_SIZE * count : start], file, first - start)
    pieces = [Piece(0, head + moved + b"".join(headers)), *contents.pieces]
    pieces.append(Piece(symbol_table, bytes(symbols) + strings.data()))
    return FilePlan(size, pieces, contents.copies, contents.pack_offset)


def _check_order(file: CoffFile, start: int, table: int) -> None:
    """Raise FormatError unless all that sections refer to lies between the section table and the symbol table."""
    ends = [table]
    for section in file.sections:
        if section.NumberOfLinenumbers:
            raise FormatError(
                "COFF line numbers, which compilers no longer write", where=file.view.where, hint="strip them"
            )
        relocations = sum(1 for _ in file.relocations(section))
        # Where they are more than a header can say, another record stands before them, with their number.
        many = section.Characteristics & IMAGE_SCN_LNK_NRELOC_OVFL
        relocations += bool(many) and section.NumberOfRelocations == _MANY
        ranges = (
            (section.PointerToRawData, section.file_size),
            (section.PointerToRelocations, 10 * relocations),
        )
        ends += [at + size for at, size in ranges if size and at >= start]
        if any(size and at < start for at, size in ranges):
            ends.append(table + 1)
    if max(ends) > table:
        raise FormatError(
            "sections, relocations and symbols are not in the order in which compilers write them",
            where=file.view.where,
            hint="write an archive",
        )


def _strings(code: bytes, at: int, where: str) -> bytes:
    """Return the string table at `at`, without its size; some writers leave out an empty one."""
    if at == len(code):
        return b""
    (size,) = unpack_from("<I", code, at) if at + 4 <= len(code) else (0,)
    if not 4 <= size <= len(code) - at:
        raise FormatError("the size of the string table", where=where, expected=f"4 to {len(code) - at}", actual=size)
    if size > 4 and code[at + size - 1]:
        raise FormatError("the string table does not end in a NUL", where=where)
    return code[at + 4 : at + size]


def _moved(headers: bytes, file: CoffFile, distance: int) -> bytes:
    """Return section headers whose pointers are `distance` bytes larger, and zero where there is nothing."""
    made = bytearray(headers)
    for number, section in enumerate(file.sections):
        data = section.PointerToRawData + distance if section.file_size else 0
        relocations = section.PointerToRelocations + distance if section.NumberOfRelocations else 0
        pack_into("<3I", made, number * coff.SECTION_HEADER_SIZE + _POINTERS, data, relocations, 0)
    return bytes(made)
