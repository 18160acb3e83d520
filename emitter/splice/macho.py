"""Mach-O relocatable objects, as LLVM lays them out for the same target.

Source: <mach-o/loader.h> and <mach-o/nlist.h>. LLVM's objects, and ours, have MH_SUBSECTIONS_VIA_SYMBOLS: each symbol
begins an atom, which a linker may drop or move alone. So symbols within a blob are N_ALT_ENTRY, and what stands behind
the last byte of a blob still belongs to its atom.
"""

from __future__ import annotations

from emitter import macho
from emitter.errors import LayoutError, shown
from emitter.layout import FilePlan, Piece, align_up, bulk_alignment
from emitter.limits import MACHO_MAX_FILE_SIZE
from emitter.records import TYPE_CHECKING, NamedTuple
from emitter.splice.contents import Contents

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emitter.model import ObjectModel, Section
    from emitter.targets._base import MachO, Target

__all__ = [
    "MAX_SECTIONS",
    "MergedSection",
    "bulk_place",
    "check_size",
    "file_section",
    "place_sections",
    "plan_object",
    "section_name",
    "symbol_rows",
]

# Where data goes whose section is named as in ELF: those that C's own constants and variables have.
_NAMES = {"rodata": "__TEXT,__const", "data": "__DATA,__data"}
MAX_SECTIONS = 255  # n_sect has 8 bits
_PROTECTION = macho.VM_PROT_READ | macho.VM_PROT_WRITE | macho.VM_PROT_EXECUTE  # of the one segment of an object


class MergedSection(NamedTuple):
    """The sections of a model that have one name: linkers know one of each, divided into atoms by its symbols."""

    segname: str
    sectname: str
    addr: int
    size: int
    alignment: int


def plan_object(target: Target, model: ObjectModel, *, file_offset: int = 0) -> FilePlan:
    """Lay out `model` as an MH_OBJECT for `target`; offsets in the plan are relative to the file's own start.

    `file_offset` is where that start will be in the output, not 0 in an archive: payloads are aligned in the output.
    Raises LayoutError for an alignment above 2^15, a name above 16 bytes, more than 4 GiB, more than 255 sections,
    protected symbols, and references between sections or windows on them, which no model for Mach-O has.
    """
    facts = macho.facts_of(target)
    merged, addresses, vmsize = place_sections(model)

    # Addresses and sizes of sections are fixed.
    commands_size = macho.segment_size(len(merged)) + 24 + 24 + 80  # LC_BUILD_VERSION, LC_SYMTAB, LC_DYSYMTAB
    fileoff = bulk_place(macho.HEADER_SIZE + commands_size, model, addresses, file_offset)
    symoff = align_up(fileoff + vmsize, 8)
    stroff = symoff + macho.NLIST_SIZE * len(model.symbols)
    strings = macho.StringTable(b"\0")
    rows = [row for _, row in symbol_rows(target, model, merged, addresses, strings)]
    strtab = strings.data()
    size = stroff + len(strtab)
    check_size(target, size)

    # File layout is fixed.
    header = _header(facts, merged, fileoff, vmsize, (symoff, len(rows), stroff, len(strtab)))
    contents = Contents()
    contents.pieces.append(Piece(0, header))
    for section, addr in zip(model.sections, addresses, strict=True):
        contents.add_section(section, fileoff + addr)
    contents.pieces.sort(key=lambda piece: piece.offset)
    contents.pieces.append(Piece(symoff, macho.nlist(rows) + strtab))
    return FilePlan(size, contents.pieces, contents.copies, contents.pack_offset)


def check_size(target: Target, size: int) -> None:
    """Raise LayoutError for an object of more bytes than its offsets reach."""
    if size > MACHO_MAX_FILE_SIZE:
        raise LayoutError(
            "too large for a Mach-O object",
            where=f"target {target.name}",
            expected=f"at most {MACHO_MAX_FILE_SIZE} bytes, as its offsets have 32 bits",
            actual=size,
            hint="write a library with --sidecar, or a .pack, which have no such limit; or split the package",
        )


def section_name(section: Section) -> tuple[str, str]:
    """Return segname and sectname of a section, which may be named as in ELF."""
    segname, comma, sectname = section.name.partition(",")
    if not comma:
        segname, _, sectname = _NAMES[section.kind].partition(",")
    return segname, sectname


def place_sections(model: ObjectModel, start: int = 0) -> tuple[list[MergedSection], list[int], int]:
    """Return the sections of the file, the address of each section of the model in them, and the end of all.

    They begin at the address `start` or behind it. Raises LayoutError, see `plan_object`.
    """
    if model.references or model.windows:
        raise LayoutError("a Mach-O object cannot hold this", expected="plain data")
    ends: dict[int, int] = {}  # the largest value of a symbol in each section
    for symbol in model.symbols:
        if symbol.section is not None:
            ends[symbol.section] = max(symbol.value, ends.get(symbol.section, 0))
    members: dict[tuple[str, str], list[int]] = {}
    for number, section in enumerate(model.sections):
        members.setdefault(section_name(section), []).append(number)
        if section.alignment > 1 << macho.MAX_SECTION_ALIGN:
            raise LayoutError(
                "a Mach-O object cannot keep the alignment",
                where=f"section {shown(section.name)}",
                expected=f"at most {1 << macho.MAX_SECTION_ALIGN}, the most that linkers accept",
                actual=section.alignment,
                hint="ask for less with --align",
            )
    if len(members) > MAX_SECTIONS:
        raise LayoutError("too many sections for Mach-O", expected=f"at most {MAX_SECTIONS}", actual=len(members))
    addresses = [0] * len(model.sections)
    merged = []
    position = start
    for (segname, sectname), numbers in members.items():
        alignment = max(1, *(model.sections[number].alignment for number in numbers))
        addr = position = align_up(position, alignment)
        for number in numbers:
            section = model.sections[number]
            position = addresses[number] = align_up(position, max(section.alignment, 1))
            # A symbol behind the last byte names a byte that belongs to the same atom: what follows is another's.
            position += max(section.size, ends.get(number, 0) + 1)
        merged.append(MergedSection(segname, sectname, addr, position - addr, alignment))
    return merged, addresses, position


def bulk_place(start: int, model: ObjectModel, addresses: Sequence[int], file_offset: int) -> int:
    """Return the file offset of address 0, at `start` or behind it: the largest payload gets a fast place."""
    at = align_up(start, 8)
    bulk, wanted = 1, 0
    for section, addr in zip(model.sections, addresses, strict=True):
        one = bulk_alignment(section.size - section.bulk_offset) if section.copies else 1
        if one > bulk and section.bulk_offset % max(section.alignment, 1) == 0:
            bulk, wanted = one, addr + section.bulk_offset
    return at + -(at + file_offset + wanted) % bulk


def symbol_rows(
    target: Target,
    model: ObjectModel,
    merged: Sequence[MergedSection],
    addresses: Sequence[int],
    strings: macho.StringTable,
    *,
    sections: int = 0,
) -> list[tuple[str, macho.Nlist]]:
    """Return the symbols with their names: defined external ones, in the order of the names as Apple's tools want it.

    `sections` stand before those of the model.
    """
    numbers = {(section.segname, section.sectname): number for number, section in enumerate(merged, 1 + sections)}
    rows = []
    for symbol in sorted(model.symbols, key=lambda symbol: symbol.name):
        if symbol.visibility == "protected":
            raise LayoutError(
                "Mach-O has no protected symbols",
                where=f"symbol {shown(symbol.name)}",
                expected="--visibility default or hidden",
                hint="libraries export what is default, and no other library can take its place: names have two levels",
            )
        n_type = macho.N_EXT | (macho.N_PEXT if symbol.visibility == "hidden" else 0)
        n_sect, n_desc, n_value = 0, macho.N_NO_DEAD_STRIP if symbol.retain else 0, symbol.value
        if symbol.section is None:
            n_type |= macho.N_ABS
        else:
            n_type |= macho.N_SECT
            n_sect = numbers[section_name(model.sections[symbol.section])]
            n_desc |= macho.N_ALT_ENTRY if symbol.value else 0
            n_value += addresses[symbol.section]
        name = target.symbol_prefix + symbol.name
        rows.append((name, macho.Nlist(strings.add(name.encode()), n_type, n_sect, n_desc, n_value)))
    return rows


def _header(
    facts: MachO, merged: Sequence[MergedSection], fileoff: int, vmsize: int, symtab: tuple[int, int, int, int]
) -> bytes:
    sections = [file_section(section, fileoff) for section in merged]
    commands = [
        macho.segment(macho.Segment("", 0, vmsize, fileoff, vmsize, _PROTECTION, sections)),
        macho.build_version(facts),
        macho.symtab(*symtab),
        macho.dysymtab(0, symtab[1], 0),
    ]
    return macho.header(facts, macho.MH_OBJECT, macho.MH_SUBSECTIONS_VIA_SYMBOLS, commands)


def file_section(section: MergedSection, distance: int) -> macho.Section:
    """Return the record of a section whose bytes are in the file at its address plus `distance`."""
    align = section.alignment.bit_length() - 1
    return macho.Section(section.segname, section.sectname, section.addr, section.size, section.addr + distance, align)
