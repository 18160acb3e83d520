"""COFF objects: the sections and symbols of a model, with the file header that LLVM writes for the target.

Source: Microsoft's PE Format, "COFF File Header" to "COFF String Table". Unlike ELF and Mach-O, an object says nothing
of the target but its machine, so there is no stub to start from; a test compares with LLVM's object.
"""

from __future__ import annotations

from emitter import coff
from emitter.errors import LayoutError, shown
from emitter.layout import FilePlan, Piece, align_up, bulk_alignment
from emitter.limits import COFF_MAX_FILE_SIZE
from emitter.records import TYPE_CHECKING
from emitter.splice.contents import Contents

if TYPE_CHECKING:
    from emitter.model import ObjectModel, Section, Symbol
    from emitter.targets._base import Target

__all__ = ["RAW_DATA_ALIGNMENT", "check_size", "encode_symbol", "place_sections", "plan_object"]

_READ = coff.IMAGE_SCN_CNT_INITIALIZED_DATA | coff.IMAGE_SCN_MEM_READ
_CHARACTERISTICS = {
    "rodata": _READ,
    "data": _READ | coff.IMAGE_SCN_MEM_WRITE,
    "directives": coff.IMAGE_SCN_LNK_INFO | coff.IMAGE_SCN_LNK_REMOVE,
}

RAW_DATA_ALIGNMENT = 4  # of a section's bytes in the file

# The absolute symbol that says what an object's code was compiled for. Bit 0, on 32-bit x86: it registers its exception
# handlers (/SAFESEH), which holds where there is no code. Without it link.exe /SAFESEH refuses the object.
_FEATURES = b"@feat.00"
_I386 = 0x14C
_SAFE_SEH = 1


def plan_object(target: Target, model: ObjectModel, *, file_offset: int = 0) -> FilePlan:
    """Lay out `model` as a COFF object for `target`; offsets in the plan are relative to the object's own start.

    `file_offset` is where that start will be in the output, not 0 in an archive: payloads are aligned in the output. In
    a COFF object visibility and sizes of symbols have no place. Raises LayoutError for what the format cannot hold: an
    alignment above 8192, more than 65279 sections, 4 GiB and more, and references between sections or windows on them,
    which no model for COFF has.
    """
    facts = coff.facts_of(target)
    strings = coff.StringTable()
    contents = Contents()
    first = coff.FILE_HEADER_SIZE + coff.SECTION_HEADER_SIZE * len(model.sections)
    headers, position = place_sections(target, model, strings, contents, first, file_offset=file_offset)

    # Offsets and sizes of everything that holds payload are fixed.
    features = _SAFE_SEH if facts.machine == _I386 else 0
    symbols = [coff.symbol(_FEATURES, features, coff.IMAGE_SYM_ABSOLUTE, coff.IMAGE_SYM_CLASS_STATIC)]
    symbols += (encode_symbol(target, symbol, strings) for symbol in model.symbols)
    symbol_table = align_up(position, RAW_DATA_ALIGNMENT)
    size = symbol_table + coff.SYMBOL_SIZE * len(symbols) + strings.size
    check_size(target, size)

    # File layout is fixed.
    header = coff.file_header(
        facts.machine, len(headers), pointer_to_symbol_table=symbol_table, number_of_symbols=len(symbols)
    )
    head = Piece(0, header + b"".join(headers))
    tables = Piece(symbol_table, b"".join(symbols) + strings.data())
    return FilePlan(size, [head, *contents.pieces, tables], contents.copies, contents.pack_offset)


def place_sections(
    target: Target, model: ObjectModel, strings: coff.StringTable, contents: Contents, first: int, *, file_offset: int
) -> tuple[list[bytes], int]:
    """Place the sections of `model` from the offset `first` on; return their headers, and where the last one ends.

    What they hold goes to `contents`, long names to `strings`. Raises LayoutError, see `plan_object`; every offset in a
    section then fits into a symbol.
    """
    if model.references or model.windows:
        raise LayoutError("a COFF object cannot hold this", where=f"target {target.name}", expected="plain data")
    _check_sections(model)
    headers = []
    position = first
    for section in model.sections:
        position = _place(section, position + file_offset) - file_offset
        characteristics = _CHARACTERISTICS[section.kind] | coff.align_flag(max(section.alignment, 1))
        # An empty section has no place in the file.
        pointer = position if section.size else 0
        name = _section_name(strings, section.name)
        contents.add_section(section, position)
        check_size(target, position + section.size)
        headers.append(coff.SectionHeader(name, 0, 0, section.size, pointer, characteristics).encode())
        position += section.size
    return headers, position


def encode_symbol(target: Target, symbol: Symbol, strings: coff.StringTable, *, sections: int = 0) -> bytes:
    """Return the record of a symbol; `sections` stand before those of its model."""
    number = coff.IMAGE_SYM_ABSOLUTE if symbol.section is None else 1 + sections + symbol.section
    # A number above 32767 is negative to the record, and read as it is meant.
    number -= 0x10000 if number > 0x7FFF else 0
    name = strings.symbol_name((target.symbol_prefix + symbol.name).encode())
    return coff.symbol(name, symbol.value, number, coff.IMAGE_SYM_CLASS_EXTERNAL)


def check_size(target: Target, size: int) -> None:
    """Raise LayoutError for an object of more bytes than its offsets reach."""
    if size > COFF_MAX_FILE_SIZE:
        raise LayoutError(
            "too large for a COFF object",
            where=f"target {target.name}",
            expected=f"at most {COFF_MAX_FILE_SIZE} bytes",
            actual=size,
            hint="split the package, or write a .pack and map it",
        )


def _check_sections(model: ObjectModel) -> None:
    if len(model.sections) > coff.MAX_SECTIONS:
        raise LayoutError(
            "too many sections for a COFF object",
            expected=f"at most {coff.MAX_SECTIONS}",
            actual=len(model.sections),
            hint="write several objects",
        )
    for section in model.sections:
        if section.alignment > coff.MAX_ALIGNMENT:
            raise LayoutError(
                "a COFF section cannot be aligned so",
                where=f"section {shown(section.name)}",
                expected=f"at most {coff.MAX_ALIGNMENT}",
                actual=section.alignment,
                hint="ask for less with --align; a program that needs more copies the data to where it wants them",
            )


def _section_name(strings: coff.StringTable, name: str) -> bytes:
    try:
        return strings.section_name(name.encode())
    except OverflowError as error:
        raise LayoutError(
            "the names of sections are too long together", where=f"section {shown(name)}", hint="choose shorter ones"
        ) from error


def _place(section: Section, position: int) -> int:
    """Return the file offset of a section that may start at `position`: aligned, its payload at a fast place."""
    alignment = max(section.alignment, RAW_DATA_ALIGNMENT)
    bulk = bulk_alignment(section.size - section.bulk_offset) if section.copies else 1
    if bulk > 1 and section.bulk_offset % alignment == 0:
        return align_up(position + section.bulk_offset, max(bulk, alignment)) - section.bulk_offset
    return align_up(position, alignment)
