"""Finds packs in ELF files, reading no more than the tables that lead to them.

Executables and shared objects: through the notes `emitter` type 1 in PT_NOTE segments, which survive strip. Relocatable
objects: a section that begins with a pack. Libraries whose notes were moved: such a section, or the symbol
`emitter_pack`. Source: System V ABI, chapters 4 and 5 (field names are its own); e_machine
from its registry.
"""

from __future__ import annotations

import struct

from emitter.errors import FormatError, LoadError
from emitter.layout import align_up
from emitter.loaders._binary import Binary
from emitter.pack import format as fmt
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MAGIC", "find_packs"]

MAGIC = b"\x7fELF"

NOTE_OWNER = b"emitter\0"
NOTE_TYPE = 1

_ET_REL, _ET_EXEC, _ET_DYN = 1, 2, 3
_TYPES = {_ET_REL: "relocatable object", _ET_EXEC: "executable", _ET_DYN: "shared object", 4: "core file"}
_MACHINES = {
    3: "Intel 80386", 8: "MIPS", 20: "PowerPC", 21: "64-bit PowerPC", 22: "IBM S/390", 40: "ARM", 62: "x86-64",
    164: "Hexagon", 183: "AArch64", 190: "NVIDIA CUDA", 243: "RISC-V", 258: "LoongArch",
}  # fmt: skip
_PT_LOAD, _PT_NOTE = 1, 4
_PN_XNUM = 0xFFFF
_SHT_PROGBITS, _SHT_NOTE, _SHT_DYNSYM = 1, 7, 11
_PACK_SYMBOL = b"emitter_pack\0"
_SHF_ALLOC = 2

# By EI_CLASS. Ehdr from e_type on; fields of Phdr and Shdr in the order of the tuples below.
_EHDR = {1: "HHIIIIIHHHHHH", 2: "HHIQQQIHHHHHH"}
_PHDR = {1: ("IIIIIIII", (0, 1, 2, 4, 7)), 2: ("IIQQQQQQ", (0, 2, 3, 5, 7))}
_SHDR = {1: "IIIIIIIIII", 2: "IIQQQQIIQQ"}
_SYM = {1: ("IIIBBH", (0, 1, 2)), 2: ("IBBHQQ", (0, 4, 5))}  # st_name, st_value, st_size
_WORD = {1: "iI", 2: "qQ"}


class _Segment(NamedTuple):
    p_type: int
    p_offset: int
    p_vaddr: int
    p_filesz: int
    p_align: int


class _Section(NamedTuple):
    sh_name: int
    sh_type: int
    sh_flags: int
    sh_addr: int
    sh_offset: int
    sh_size: int
    sh_link: int
    sh_info: int
    sh_addralign: int
    sh_entsize: int


def find_packs(data: memoryview, where: str) -> tuple[str, list[tuple[int, int]]]:
    """Return what the file is, and (offset, size) in bytes of each pack in it, ascending.

    Raises FormatError for a file that breaks its format, LoadError for one that is truncated.
    """
    elf = _Elf(data, where)
    if elf.e_type == _ET_REL:
        packs = set(elf.packs_by_section())
    elif elf.e_type in (_ET_EXEC, _ET_DYN):
        try:
            packs = set(elf.packs_by_note())
        except FormatError:
            # patchelf moves notes, which breaks the distance in them. Section headers, if there are any, still say it:
            # a section of the pack's own, or where a linker joined it with others, the symbol that libraries export.
            packs = set(elf.packs_by_section()) or set(elf.packs_by_symbol())
            if not packs:
                raise
    else:
        packs = set()
    return elf.kind, sorted(packs)


class _Elf(Binary):
    """An ELF file: class and byte order are resolved here, once."""

    def __init__(self, data: memoryview, where: str) -> None:
        super().__init__(data, where, "<")
        self.check_range(0, 16, "the ELF identification")
        self.ei_class, ei_data = data[4], data[5]
        if self.ei_class not in _EHDR:
            raise FormatError(
                "EI_CLASS is unknown", where=where, expected="1 (32-bit) or 2 (64-bit)", actual=self.ei_class
            )
        if ei_data not in (1, 2):
            raise FormatError(
                "EI_DATA is unknown", where=where, expected="1 (little-endian) or 2 (big-endian)", actual=ei_data
            )
        self.order = "<" if ei_data == 1 else ">"
        (
            self.e_type, self.e_machine, _, _, self.e_phoff, self.e_shoff, _, _,
            self.e_phentsize, self.e_phnum, self.e_shentsize, self.e_shnum, _,
        ) = self.unpack(_EHDR[self.ei_class], 16, "the ELF header")  # fmt: skip
        machine = _MACHINES.get(self.e_machine, f"machine {self.e_machine}")
        self.kind = f"ELF {_TYPES.get(self.e_type, f'file of type {self.e_type}')} for {machine}"

    def segments(self) -> list[_Segment]:
        count = self.e_phnum
        if count == _PN_XNUM:
            count = self.first_section().sh_info
        form, order = _PHDR[self.ei_class]
        rows = self.table(form, self.e_phoff, self.e_phentsize, count, "the program header table")
        return [_Segment(*(row[field] for field in order)) for row in rows]

    def first_section(self) -> _Section:
        return _Section(*self.unpack(_SHDR[self.ei_class], self.e_shoff, "section header 0"))

    def sections(self) -> list[_Section]:
        if not self.e_shoff:
            return []
        count = self.e_shnum or self.first_section().sh_size
        rows = self.table(_SHDR[self.ei_class], self.e_shoff, self.e_shentsize, count, "the section header table")
        return [_Section(*row) for row in rows]

    # Executables and shared objects
    def packs_by_note(self) -> Iterator[tuple[int, int]]:
        segments = self.segments()
        loads = [segment for segment in segments if segment.p_type == _PT_LOAD]
        # The system maps a truncated library without a word, and kills the process that reads past its end. So do we
        # refuse it.
        for load in loads:
            self.check_range(load.p_offset, load.p_filesz, "a PT_LOAD segment")
        for note in segments:
            if note.p_type != _PT_NOTE:
                continue
            self.check_range(note.p_offset, note.p_filesz, "a PT_NOTE segment")
            end = note.p_offset + note.p_filesz
            for offset, size in self.descriptions(note.p_offset, end, 8 if note.p_align == 8 else 4):
                yield self.pack_of_note(offset, size, note.p_vaddr + offset - note.p_offset, loads)

    def descriptions(self, start: int, end: int, alignment: int) -> Iterator[tuple[int, int]]:
        """Yield (offset, size) of the description of each of our notes in a run of notes."""
        position = start
        while position + 12 <= end:
            n_namesz, n_descsz, n_type = self.unpack("III", position, "a note")
            desc = position + align_up(12 + n_namesz, alignment)
            if desc + n_descsz > end:
                raise FormatError(
                    "a note is not in its segment",
                    where=f"{self.where}: offset {position:#x}",
                    expected=f"an end of at most {end:#x}",
                    actual=f"{desc + n_descsz:#x}",
                )
            if n_type == NOTE_TYPE and self.data[position + 12 : position + 12 + n_namesz] == NOTE_OWNER:
                yield desc, n_descsz
            position = start + align_up(desc + n_descsz - start, alignment)

    def pack_of_note(self, offset: int, size: int, address: int, loads: list[_Segment]) -> tuple[int, int]:
        """Return (file offset, size) of the pack of a note; its description is at `offset`, loaded at `address`."""
        where = f"{self.where}: .note.emitter at {offset:#x}"
        form = _WORD[self.ei_class] + "II"
        if size < struct.calcsize("=" + form):
            raise FormatError(
                "the note is too short", where=where, expected=f"{struct.calcsize('=' + form)} bytes", actual=size
            )
        distance, pack_size, version, reserved = self.unpack(form, offset, "the note")
        if reserved:
            raise FormatError("the last word of the note is not zero", where=where, actual=reserved)
        if version >> 16 > fmt.VERSION_MAJOR:
            raise LoadError(
                "the pack has a later major version",
                where=where,
                expected=f"at most {fmt.VERSION_MAJOR}.x",
                actual=f"{version >> 16}.{version & 0xFFFF}",
                hint="use a newer release of emitter, or emit the file again",
            )
        start = address + distance
        for load in loads:
            if load.p_vaddr <= start and start + pack_size <= load.p_vaddr + load.p_filesz:
                place = load.p_offset + start - load.p_vaddr
                if self.data[place : place + len(fmt.MAGIC)] == fmt.MAGIC:
                    return place, pack_size
        raise FormatError(
            "the note leads to no pack",
            where=where,
            actual=f"address {start:#x}, {pack_size} bytes",
            hint="a tool that edited the file has moved the note or the pack: emit or link it again",
        )

    def packs_by_symbol(self) -> Iterator[tuple[int, int]]:
        sections = self.sections()
        loads = [segment for segment in self.segments() if segment.p_type == _PT_LOAD]
        form, order = _SYM[self.ei_class]
        for table in sections:
            if table.sh_type != _SHT_DYNSYM or table.sh_link >= len(sections):
                continue
            names = sections[table.sh_link]
            self.check_range(names.sh_offset, names.sh_size, "the dynamic string table")
            strings = self.data[names.sh_offset : names.sh_offset + names.sh_size]
            count = table.sh_size // max(struct.calcsize("=" + form), 1)
            for row in self.table(form, table.sh_offset, table.sh_entsize, count, "the dynamic symbol table"):
                name, value, size = (row[field] for field in order)
                if strings[name : name + len(_PACK_SYMBOL)] == _PACK_SYMBOL:
                    for load in loads:
                        if load.p_vaddr <= value and value + size <= load.p_vaddr + load.p_filesz:
                            place = load.p_offset + value - load.p_vaddr
                            yield from self.packs_of_section(place, size, "the symbol emitter_pack")

    # Relocatable objects
    def packs_by_section(self) -> Iterator[tuple[int, int]]:
        for number, section in enumerate(self.sections()):
            if section.sh_type != _SHT_PROGBITS or not section.sh_flags & _SHF_ALLOC:
                continue
            self.check_range(section.sh_offset, section.sh_size, f"section {number}")
            yield from self.packs_of_section(section.sh_offset, section.sh_size, f"section {number}")
