"""Makes room in an object that LLVM wrote: the section of one symbol grows from one byte to what is to be put there.

Source: System V gABI, chapter 4; Microsoft's PE Format; <mach-o/loader.h>.
"""

from __future__ import annotations

from struct import pack_into, unpack_from

from emitter.errors import LayoutError
from emitter.layout import BULK_ALIGNMENTS, Piece, align_up, bulk_alignment
from emitter.limits import COFF_MAX_FILE_SIZE, ELF32_MAX_FILE_SIZE, MACHO_MAX_FILE_SIZE
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from emitter.inspect.view import View
    from emitter.targets._base import ObjectFormat, Target

    Grown = tuple[int, int, list[Piece]]

__all__ = ["grow"]

_SYMBOL_SIZE = {True: (16, "Q"), False: (8, "I")}  # of Elf64_Sym and Elf32_Sym: where st_size is, and its code
_COFF_FILE_HEADER, _COFF_SECTION_HEADER, _COFF_SYMBOL = 20, 40, 18
_LC_SYMTAB = 0x2
_WITH_DATA = (0x29, 0x2E)  # LC_DATA_IN_CODE, LC_LINKER_OPTIMIZATION_HINT
_SEGMENT_COMMAND_64, _SECTION_64 = 72, 80  # bytes


def grow(target: Target, data: bytes, symbol: str, size: int) -> Grown:
    """Return the file offset of the section that holds `symbol` alone, the size of the file, and its other bytes.

    In `data`, an object of `target`, that section has one byte, and in Mach-O it is the last; now it has `size`. Raises
    LayoutError for more than the format can hold.
    """
    from emitter.inspect.view import View

    limit, function = _FORMATS[target.object_format]
    most = len(data) + size + BULK_ALIGNMENTS[0][1]  # wherever it is put
    if most > limit and not (target.object_format == "elf" and target.pointer_width == 64):
        raise LayoutError(
            f"too large for an object of {target.name}",
            expected=f"at most {limit} bytes",
            actual=most,
            hint="split the package",
        )
    return function(target, View.of_bytes(data, "LLVM's object"), bytearray(data), symbol, size)


def _at_the_end(data: bytearray, alignment: int, size: int) -> int:
    return align_up(len(data), max(alignment, bulk_alignment(size)))


def _grow_elf(target: Target, view: View, data: bytearray, symbol: str, size: int) -> Grown:
    from emitter.inspect.elf import ElfFile

    elf = ElfFile(view)
    table, found = next((table, one) for table, one in elf.all_symbols() if one.name == symbol)
    start = _at_the_end(data, elf.shdrs[found.shndx].sh_addralign, size)
    for number, header in enumerate(elf.shdrs):
        at = elf.ehdr.e_shoff + number * elf.ehdr.e_shentsize
        if number == found.shndx:
            pack_into(elf.layouts.shdr, data, at, *header._replace(sh_offset=start, sh_size=size))
        elif target.attributes is None and elf.section_name(number).endswith(".attributes"):
            # LLVM's for AArch64, which older linkers mishandle: an inactive header takes its place.
            pack_into(elf.layouts.shdr, data, at, *[0] * len(header))
    offset, code = _SYMBOL_SIZE[elf.is_64]
    at = table.offset + found.number * table.entry_size + offset
    pack_into(elf.layouts.order + code, data, at, size)
    return start, start + size, [Piece(0, bytes(data))]


def _grow_coff(_target: Target, view: View, data: bytearray, symbol: str, size: int) -> Grown:
    from emitter.inspect.coff import CoffFile

    coff = CoffFile(view)
    symbols = list(coff.symbols())
    prefixed = (symbol, f"_{symbol}")
    number = next(one.SectionNumber for one in symbols if one.SectionNumber > 0 and one.name in prefixed)
    start = _at_the_end(data, coff.sections[number - 1].alignment, size)
    # SizeOfRawData, PointerToRawData
    pack_into("<2I", data, _COFF_FILE_HEADER + _COFF_SECTION_HEADER * (number - 1) + 16, size, start)
    table = unpack_from("<I", data, 8)[0]  # PointerToSymbolTable
    for one in symbols:
        if one.section_definition is not None and one.SectionNumber == number:
            pack_into("<I2HI", data, table + _COFF_SYMBOL * (one.number + 1), size, 0, 0, 0)  # Length, CheckSum
    return start, start + size, [Piece(0, bytes(data))]


def _grow_macho(_target: Target, view: View, data: bytearray, symbol: str, size: int) -> Grown:
    from emitter.inspect.macho import MachOFile

    macho = MachOFile(view)
    number = next(one.n_sect for one in macho.symbols() if one.name == f"_{symbol}")
    (segment,) = macho.segments
    held = macho.sections[number - 1]
    tail = held.offset + held.size
    moved = align_up(size, 8)  # how far what stands behind it goes
    at_segment = macho.header_size
    for command in macho.commands:
        if command.cmd == _LC_SYMTAB:
            symoff, nsyms, stroff = unpack_from("<3I", data, command.offset + 8)
            pack_into("<3I", data, command.offset + 8, symoff + moved, nsyms, stroff + moved)
        elif command.cmd in _WITH_DATA:
            dataoff = unpack_from("<I", data, command.offset + 8)[0]
            pack_into("<I", data, command.offset + 8, dataoff + moved)
        elif command.offset == at_segment:
            pack_into("<Q", data, at_segment + 32, held.addr + size - segment.vmaddr)  # vmsize
            pack_into("<Q", data, at_segment + 48, held.offset + size - segment.fileoff)  # filesize
    for section in macho.sections:
        at = at_segment + _SEGMENT_COMMAND_64 + _SECTION_64 * (section.number - 1)
        if section.reloff:
            pack_into("<I", data, at + 56, section.reloff + moved)
        if section.number == number:
            pack_into("<Q", data, at + 40, size)
    pieces = [Piece(0, bytes(data[: held.offset])), Piece(tail + moved, bytes(data[tail:]))]
    return held.offset, len(data) + moved, pieces


_FORMATS: Mapping[ObjectFormat, tuple[int, Callable[[Target, View, bytearray, str, int], Grown]]] = {
    "elf": (ELF32_MAX_FILE_SIZE, _grow_elf),
    "macho": (MACHO_MAX_FILE_SIZE, _grow_macho),
    "coff": (COFF_MAX_FILE_SIZE, _grow_coff),
}
