"""Objects of code that are broken, or laid out as no compiler does: not joined with a pack, and said what is wrong."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

import pytest

from emitter.errors import EmitterError, FormatError, LayoutError
from tests.joined_files import (
    COFF_SECTION,
    INDIRECT,
    INTEL,
    JUMPS,
    LC_DATA_IN_CODE,
    LC_DYSYMTAB,
    LC_LINKER_OPTION,
    LC_SEGMENT_64,
    LC_SYMTAB,
    MANY,
    SECTION_64,
    UNUSUAL,
    WINDOWS,
    assembled,
    coff_section,
    command_field,
    emit_joined,
    joined_plan,
    load_command,
    patch,
    section_64,
    section_field,
    strings_of_size,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


# Mach-O: a source with one of everything that has a place in the file, and one with none of it.
FULL = INDIRECT + JUMPS + '.zerofill __DATA,__bss,_zeros,9,4\n.linker_option "' + "x" * 80 + '"'
BARE = "_f: nop\n.zerofill __DATA,__bss,_zeros,9,4"


def second_segment(data: bytearray) -> None:
    at = load_command(data, LC_LINKER_OPTION)
    (size,) = struct.unpack_from("<I", data, at + 4)
    data[at : at + size] = struct.pack("<2I", LC_SEGMENT_64, size) + bytes(size - 8)


def relocation_of_no_symbol(data: bytearray) -> None:
    (reloff,) = struct.unpack_from("<I", data, section_64(data, "__text") + SECTION_64["reloff"])
    patch(data, reloff + 4, "I", 1 << 27 | 99)


def indirect_symbol_of_no_symbol(data: bytearray) -> None:
    (at,) = struct.unpack_from("<I", data, load_command(data, LC_DYSYMTAB) + 56)
    patch(data, at, "I", 99)


def unfinished_names(data: bytearray) -> None:
    data[-1] = ord("x")


NOT_AN_OBJECT = "not an object as compilers write it"
NOT_IN_ORDER = "contents, relocations and symbols are not in the order in which compilers write them"
BROKEN_MACHO = {
    "a command that may name a part of the file": (FULL, command_field(LC_LINKER_OPTION, 0, 0x31), NOT_AN_OBJECT),
    "no symbol table": (FULL, command_field(LC_SYMTAB, 0, 0x1B), NOT_AN_OBJECT),
    "no groups of symbols": (FULL, command_field(LC_DYSYMTAB, 0, 0x1B), NOT_AN_OBJECT),
    "two segments": (FULL, second_segment, NOT_AN_OBJECT),
    "vmaddr": (BARE, command_field(LC_SEGMENT_64, 24, 4096), NOT_IN_ORDER),
    "symbols before contents": (BARE, command_field(LC_SYMTAB, 8, 32), NOT_IN_ORDER),
    "a section beyond vmsize": (BARE, section_field("__bss", "size", 4096), NOT_IN_ORDER),
    "relocations before the contents": (FULL, section_field("__text", "reloff", 32), NOT_IN_ORDER),
    "relocations behind the symbols": (FULL, section_field("__text", "reloff", lambda at: at + 4096), NOT_IN_ORDER),
    "data in code before the contents": (FULL, command_field(LC_DATA_IN_CODE, 8, 32), NOT_IN_ORDER),
    "data in code behind the symbols": (FULL, command_field(LC_DATA_IN_CODE, 12, 4096), NOT_IN_ORDER),
    "indirect symbols before the contents": (FULL, command_field(LC_DYSYMTAB, 56, 32), NOT_IN_ORDER),
    "indirect symbols behind the symbols": (FULL, command_field(LC_DYSYMTAB, 60, 4096), NOT_IN_ORDER),
    "bytes before the segment": (BARE, section_field("__text", "offset", 32), NOT_IN_ORDER),
    "bytes behind the segment": (BARE, section_field("__text", "offset", lambda at: at + 8), NOT_IN_ORDER),
    "names behind the file": (BARE, command_field(LC_SYMTAB, 20, lambda size: size + 1), NOT_IN_ORDER),
    "names without end": (BARE, unfinished_names, NOT_IN_ORDER),
    "a segment behind the file": (BARE, command_field(LC_SEGMENT_64, 48, 4096), NOT_IN_ORDER),
    "a table of contents": (BARE, command_field(LC_DYSYMTAB, 36, 1), NOT_IN_ORDER),
    "modules": (BARE, command_field(LC_DYSYMTAB, 44, 1), NOT_IN_ORDER),
    "references of modules": (BARE, command_field(LC_DYSYMTAB, 52, 1), NOT_IN_ORDER),
    "relocations of all sections, external": (BARE, command_field(LC_DYSYMTAB, 68, 1), NOT_IN_ORDER),
    "relocations of all sections, local": (BARE, command_field(LC_DYSYMTAB, 76, 1), NOT_IN_ORDER),
    "a relocation of no symbol": (FULL, relocation_of_no_symbol, "the number of a symbol: found 99"),
    "an indirect symbol that is none": (FULL, indirect_symbol_of_no_symbol, "the number of a symbol: found 99"),
}


@pytest.mark.parametrize("name", BROKEN_MACHO)
def test_mach_o_that_no_compiler_writes_is_refused(name: str, tmp_path: Path) -> None:
    source, change, words = BROKEN_MACHO[name]
    _refused(tmp_path, INTEL, source, change, words)


def _refused(folder: Path, target: str, source: str, change: Callable[[bytearray], None], words: str) -> None:
    """Check that a plan is refused with these words, and an output, perhaps before it is planned."""
    data = bytearray(assembled(target, source))
    joined_plan(target, bytes(data))
    change(data)
    with pytest.raises(FormatError, match=f"^code.o: {re.escape(words)}"):
        joined_plan(target, bytes(data))
    with pytest.raises(EmitterError):
        emit_joined(folder, target, bytes(data))
    assert list(folder.iterdir()) == []


def relocations_end_10_bytes_too_late(data: bytearray) -> None:
    """Move them, so that they end in the symbol table if the first record, which holds their number, counts as well."""
    at = coff_section(data, ".data") + COFF_SECTION["PointerToRelocations"]
    (first,) = struct.unpack_from("<I", data, at)
    data[first + 10 : first + 20] = data[first : first + 10]
    patch(data, at, "I", first + 10)


COFF_ORDER = "sections, relocations and symbols are not in the order in which compilers write them"
BROKEN_COFF = {
    "bytes in the headers": (UNUSUAL, section_field(".text", "PointerToRawData", 20), COFF_ORDER),
    "bytes behind the symbols": (UNUSUAL, section_field(".text", "SizeOfRawData", 400), COFF_ORDER),
    "relocations in the headers": (UNUSUAL, section_field(".text", "PointerToRelocations", 20), COFF_ORDER),
    "relocations behind the symbols": (
        UNUSUAL,
        section_field(".text", "PointerToRelocations", lambda at: at + 200),
        COFF_ORDER,
    ),
    "many relocations, 10 bytes too late": (MANY, relocations_end_10_bytes_too_late, COFF_ORDER),
    "line numbers": (
        UNUSUAL,
        section_field(".text", "NumberOfLinenumbers", lambda both: both + (1 << 16)),
        "COFF line numbers, which compilers no longer write",
    ),
    "names of less than nothing": (UNUSUAL, strings_of_size(3), "the size of the string table: expected 4 to "),
    "names behind the file": (UNUSUAL, strings_of_size(lambda size: size + 1), "the size of the string table"),
    "names without end": (UNUSUAL, unfinished_names, "the string table does not end in a NUL"),
}


@pytest.mark.parametrize("name", BROKEN_COFF)
def test_coff_that_no_compiler_writes_is_refused(name: str, tmp_path: Path) -> None:
    source, change, words = BROKEN_COFF[name]
    _refused(tmp_path, WINDOWS, source, change, words)


@pytest.mark.parametrize(("target", "most"), [(INTEL, 255), (WINDOWS, 0xFEFF)])
def test_as_many_sections_as_the_format_has(target: str, most: int) -> None:
    """Those of the code, and two of the pack; one more is refused. An assembler would take long for those of COFF."""

    def code(sections: int) -> bytes:
        if target == INTEL:
            return assembled(
                INTEL, "_f: nop\n" + "".join(f".section __DATA,__s{n}\n.byte 1\n" for n in range(1, sections))
            )
        size = 20 + 40 * sections
        return struct.pack("<2H3I2H", 0x8664, sections, 0, size, 0, 0, 0) + bytes(40 * sections) + b"\4\0\0\0"

    head = bytes(joined_plan(target, code(most - 2)).pieces[0].data)
    assert struct.unpack_from(*(("<I", head, 32 + 64) if target == INTEL else ("<H", head, 2))) == (most,)
    with pytest.raises(LayoutError, match="too many sections"):
        joined_plan(target, code(most - 1))
