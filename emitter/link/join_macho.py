"""Joins a Mach-O object of code and the sections and symbols of a model into one object, as Apple's `ld -r` would.

The sections of the code keep their addresses and numbers; those of the model follow. The symbol table is made anew,
since it has an order (local, defined, undefined symbols), and the relocations get the new numbers.

Source: <mach-o/loader.h>, <mach-o/nlist.h>, <mach-o/reloc.h>.
"""

from __future__ import annotations

from struct import pack, pack_into, unpack_from

from emitter import macho
from emitter.errors import FormatError, LayoutError
from emitter.inspect import macho_names as names
from emitter.inspect.macho import MachOFile
from emitter.inspect.view import View
from emitter.layout import FilePlan, Piece, align_up
from emitter.records import TYPE_CHECKING, NamedTuple
from emitter.splice.contents import Contents
from emitter.splice.macho import (
    MAX_SECTIONS,
    bulk_place,
    check_size,
    file_section,
    place_sections,
    section_name,
    symbol_rows,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from emitter.inspect.macho_records import Dysymtab, SegmentCommand, Symtab
    from emitter.model import ObjectModel
    from emitter.targets._base import Target

__all__ = ["plan_joined"]

# Commands that are kept as they are; beside them those that name a range of the file.
_KEPT = (
    names.LC_BUILD_VERSION,
    *names.VERSION_MIN_PLATFORMS,
    names.LC_UUID,
    0x2A,  # LC_SOURCE_VERSION
    0x2D,  # LC_LINKER_OPTION
)
_RELOCATION_SIZE = 8
_R_EXTERN, _R_SYMBOLNUM = 1 << 27, 0xFFFFFF
_INDIRECT_SPECIAL = 0xC0000000  # INDIRECT_SYMBOL_LOCAL, INDIRECT_SYMBOL_ABS: no number of a symbol
# Where the size of the pack goes if the code has a section of its usual name: linkers know one section of each name.
_SIZE_SECTION = "__TEXT,__emitter_size"
_VMSIZE, _NSECTS = 32, 64  # in segment_command_64; fileoff and filesize follow vmsize
_SECTION_OFFSET, _SECTION_RELOFF = 48, 56  # in section_64


class _Symbols(NamedTuple):
    """A symbol table: its rows, the new number of each old one, and how many are local, defined and undefined."""

    rows: Sequence[macho.Nlist]
    numbers: Mapping[int, int]
    counts: tuple[int, int, int]


class _Code(NamedTuple):
    """An object of code, taken apart: one segment; `tables` is what stands between its contents and the symbols."""

    file: MachOFile
    segment: SegmentCommand
    symtab: Symtab
    dysymtab: Dysymtab
    tables: tuple[int, int]


def plan_joined(target: Target, model: ObjectModel, code: bytes, where: str) -> FilePlan:
    """Lay out `code`, an object called `where`, and `model` as one MH_OBJECT for `target`.

    Raises LayoutError for what the format cannot hold, FormatError for an object that is broken or laid out otherwise
    than compilers do.
    """
    old = _take_apart(code, where)
    segment = old.segment
    model = _without_clash(model, old, where)
    base = align_up(segment.vmsize, max(section.alignment for section in model.sections))
    merged, addresses, vmsize = place_sections(model, base)
    if segment.nsects + len(merged) > MAX_SECTIONS:
        raise LayoutError("too many sections for Mach-O", where=where, expected=MAX_SECTIONS, actual=segment.nsects)

    # Addresses are fixed. What is filled with zeros has an address and no bytes: files are shorter than their segment.
    size_of_code = align_up(segment.filesize, max(section.alignment for section in model.sections))
    commands_end = macho.HEADER_SIZE + old.file.header.sizeofcmds + len(merged) * macho.SECTION_SIZE
    fileoff = bulk_place(commands_end, model, [address - base + size_of_code for address in addresses], 0)
    distance = fileoff + size_of_code - base
    filesize = vmsize + distance - fileoff
    tables = align_up(fileoff + filesize, 8)
    symoff = align_up(tables + old.tables[1] - old.tables[0], 8)
    strings = macho.StringTable(code[old.symtab.stroff : old.symtab.stroff + old.symtab.strsize] or b"\0")
    made = symbol_rows(target, model, merged, addresses, strings, sections=segment.nsects)
    symbols = _symbols(old, made, where)
    strtab = strings.data()
    stroff = symoff + macho.NLIST_SIZE * len(symbols.rows)
    size = stroff + len(strtab)
    check_size(target, size)

    # File layout is fixed.
    moved = tables - old.tables[0]
    contents = Contents()
    contents.pieces.append(Piece(fileoff, code[segment.fileoff : segment.fileoff + segment.filesize]))
    for section, address in zip(model.sections, addresses, strict=True):
        contents.add_section(section, address + distance)
    contents.pieces.sort(key=lambda piece: piece.offset)
    contents.pieces.append(Piece(tables, _renumbered(code, old, symbols.numbers)))
    contents.pieces.append(Piece(symoff, macho.nlist(symbols.rows) + strtab))
    new_rows = b"".join(macho.section(file_section(section, distance)) for section in merged)
    place = (vmsize, fileoff, filesize)
    commands = []
    for command in old.file.commands:
        body = code[command.offset : command.offset + command.cmdsize]
        if command.cmd == names.LC_SEGMENT_64:
            body = _segment(body, old, place, moved, new_rows)
        elif command.cmd == names.LC_SYMTAB:
            body = macho.symtab(symoff, len(symbols.rows), stroff, len(strtab))
        elif command.cmd == names.LC_DYSYMTAB:
            indirect = old.dysymtab.indirectsymoff + moved if old.dysymtab.nindirectsyms else 0
            body = macho.dysymtab(*symbols.counts, indirect=(indirect, old.dysymtab.nindirectsyms))
        elif command.cmd in names.LINKEDIT_DATA:
            body = _linkedit(body, moved)
        commands.append(body)
    facts = macho.facts_of(target)
    header = macho.header(facts, macho.MH_OBJECT, old.file.header.flags, commands)
    return FilePlan(size, [Piece(0, header), *contents.pieces], contents.copies, contents.pack_offset)


def _take_apart(code: bytes, where: str) -> _Code:
    file = MachOFile(View.of_bytes(code, where))
    symtab, dysymtab = file.symtab, file.dysymtab
    known = (names.LC_SEGMENT_64, names.LC_SYMTAB, names.LC_DYSYMTAB, *_KEPT, *names.LINKEDIT_DATA)
    if (
        len(file.segments) != 1
        or symtab is None
        or dysymtab is None
        or any(one.cmd not in known for one in file.commands)
    ):
        raise FormatError(
            "not an object as compilers write it",
            where=where,
            expected="one LC_SEGMENT_64, LC_SYMTAB, LC_DYSYMTAB, and commands that objects have",
            actual=", ".join(one.name for one in file.commands),
            hint="write an archive",
        )
    (segment,) = file.segments
    start = segment.fileoff + segment.filesize
    ranges = [(one.reloff, _RELOCATION_SIZE * one.nreloc) for one in segment.sections]
    ranges += [(one.dataoff, one.datasize) for one in file.linkedit]
    ranges += [(dysymtab.indirectsymoff, 4 * dysymtab.nindirectsyms)]
    inside = [(one.offset, one.file_size) for one in segment.sections]
    if (
        segment.vmaddr
        or symtab.symoff < start
        or any(one.addr + one.size > segment.vmsize for one in segment.sections)
        or any(size and not (start <= at and at + size <= symtab.symoff) for at, size in ranges)
        or any(size and not (segment.fileoff <= at and at + size <= start) for at, size in inside)
        or any((dysymtab.ntoc, dysymtab.nmodtab, dysymtab.nextrefsyms, dysymtab.nextrel, dysymtab.nlocrel))
        or max(start, symtab.stroff + symtab.strsize) > len(code)
        or code[symtab.stroff : symtab.stroff + symtab.strsize][-1:] not in (b"", b"\0")  # names follow
    ):
        raise FormatError(
            "contents, relocations and symbols are not in the order in which compilers write them",
            where=where,
            hint="write an archive",
        )
    return _Code(file, segment, symtab, dysymtab, (start, symtab.symoff))


def _without_clash(model: ObjectModel, old: _Code, where: str) -> ObjectModel:
    """Return the model with no section named as one of the code; raise LayoutError if that would be the pack's."""
    taken = {(one.segname, one.sectname) for one in old.segment.sections}
    sections = []
    for section in model.sections:
        if section_name(section) in taken:
            if section.holds_pack or tuple(_SIZE_SECTION.split(",")) in taken:
                raise LayoutError(
                    "the code has a section of this name",
                    where=where,
                    actual=section.name,
                    hint="choose another with --section, or write an archive",
                )
            section = section._replace(name=_SIZE_SECTION)  # noqa: PLW2901 - the same section, elsewhere
        sections.append(section)
    return model._replace(sections=sections)


def _symbols(old: _Code, made: Sequence[tuple[str, macho.Nlist]], where: str) -> _Symbols:
    """Return the symbol table of the code and of `made`, the defined symbols of the model with their names."""
    own = {name for name, _ in made}
    local: list[tuple[int, macho.Nlist]] = []
    defined: list[tuple[str, int | None, macho.Nlist]] = [(name, None, row) for name, row in made]
    undefined: list[tuple[int, macho.Nlist]] = []
    wanted: dict[str, int] = {}
    for number, (name, *fields) in enumerate(old.file.symbols()):
        row = macho.Nlist(*fields)
        if not row.n_type & macho.N_EXT or row.n_type & names.N_STAB:
            local.append((number, row))
        elif name in own and (row.n_type & names.N_TYPE or row.n_value):  # undefined with a value: a common block
            raise LayoutError("the code defines a symbol of the pack", where=where, actual=name)
        elif row.n_type & names.N_TYPE:
            defined.append((name, number, row))
        elif name in own:
            wanted[name] = number
        else:
            undefined.append((number, row))
    defined.sort(key=lambda one: one[0].encode(errors="surrogateescape"))
    order = [number for number, _ in local]
    order += [wanted.get(name, -1) if number is None else number for name, number, _ in defined]
    order += [number for number, _ in undefined]
    rows = [*(row for _, row in local), *(row for _, _, row in defined), *(row for _, row in undefined)]
    return _Symbols(rows, {old: new for new, old in enumerate(order)}, (len(local), len(defined), len(undefined)))


def _renumbered(code: bytes, old: _Code, numbers: Mapping[int, int]) -> bytes:
    """Return what stands between the contents and the symbols, with the new numbers of symbols in it."""
    start, end = old.tables
    made = bytearray(code[start:end])
    for section in old.segment.sections:
        for at in range(section.reloff - start, section.reloff - start + section.nreloc * _RELOCATION_SIZE, 8):
            (info,) = unpack_from("<I", made, at + 4)
            if info & _R_EXTERN:
                pack_into("<I", made, at + 4, info & ~_R_SYMBOLNUM | _new(numbers, info & _R_SYMBOLNUM, old))
    first = old.dysymtab.indirectsymoff - start
    for at in range(first, first + 4 * old.dysymtab.nindirectsyms, 4):
        (number,) = unpack_from("<I", made, at)
        if not number & _INDIRECT_SPECIAL:
            pack_into("<I", made, at, _new(numbers, number, old))
    return bytes(made)


def _new(numbers: Mapping[int, int], number: int, old: _Code) -> int:
    if number not in numbers:
        raise FormatError("the number of a symbol", where=old.file.view.where, actual=number)
    return numbers[number]


def _segment(body: bytes, old: _Code, place: tuple[int, int, int], moved: int, rows: bytes) -> bytes:
    """Return the LC_SEGMENT_64 with other (vmsize, fileoff, filesize), sections that moved, and `rows` behind them."""
    vmsize, fileoff, filesize = place
    made = bytearray(body)
    nsects = old.segment.nsects
    pack_into("<I", made, 4, len(body) + len(rows))
    pack_into("<3Q", made, _VMSIZE, vmsize, fileoff, filesize)
    pack_into("<I", made, _NSECTS, nsects + len(rows) // macho.SECTION_SIZE)
    for number, section in enumerate(old.segment.sections):
        at = macho.segment_size(number)
        if section.file_size:
            pack_into("<I", made, at + _SECTION_OFFSET, section.offset + fileoff - old.segment.fileoff)
        if section.nreloc:
            pack_into("<I", made, at + _SECTION_RELOFF, section.reloff + moved)
    return bytes(made) + rows


def _linkedit(body: bytes, moved: int) -> bytes:
    """Return a linkedit_data_command whose range has moved."""
    cmd, cmdsize, dataoff, datasize = unpack_from("<4I", body)
    return pack("<4I", cmd, cmdsize, dataoff + moved if datasize else dataoff, datasize)
