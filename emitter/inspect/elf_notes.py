"""The notes of ELF files, and the GNU properties in them.

Source: gABI, chapter 5 (Note Section); Linux Extensions to gABI (NT_GNU_PROPERTY_TYPE_0).
"""

from __future__ import annotations

from emitter.errors import FormatError
from emitter.inspect.elf_records import Note, Property
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.inspect.elf import ElfFile

__all__ = ["MAX_NOTES", "read_notes", "read_properties"]

MAX_NOTES = 1 << 16  # in one file; a segment of zeros would hold one in every 12 bytes
_MAX_OWNER = 4096
_MAX_REGIONS = 1 << 12

_PT_NOTE, _SHT_NOTE = 4, 7
_NT_GNU_PROPERTY_TYPE_0 = 5


def read_notes(elf: ElfFile) -> Iterator[Note]:
    """Yield the notes of PT_NOTE segments, then those of SHT_NOTE sections that no such segment covers.

    Raises FormatError for a note that leaves its segment or section.
    """
    left = MAX_NOTES
    covered: list[tuple[int, int]] = []
    regions = [(p.p_offset, p.p_filesz, p.p_align, f"segment {n}") for n, p in elf.segments(_PT_NOTE)]
    regions += [(s.sh_offset, s.sh_size, s.sh_addralign, f"section {n}") for n, s in elf.sections(_SHT_NOTE)]
    if len(regions) > _MAX_REGIONS:
        raise FormatError(
            "too many segments and sections of notes",
            where=elf.view.where,
            expected=f"at most {_MAX_REGIONS}",
            actual=len(regions),
        )
    for offset, size, alignment, source in regions:
        if any(start <= offset and offset + size <= end for start, end in covered):
            continue
        if source.startswith("segment"):
            covered.append((offset, offset + size))
        elf.view.check(offset, size, f"the notes of {source}")
        for note in _run(elf, offset, size, 8 if alignment == 8 else 4, source):
            left -= 1
            if left < 0:
                raise FormatError("too many notes", where=elf.view.where, expected=f"at most {MAX_NOTES}")
            yield note


def _run(elf: ElfFile, start: int, size: int, alignment: int, source: str) -> Iterator[Note]:
    view, end = elf.view, start + size
    position = start
    while position + 12 <= end:
        n_namesz, n_descsz, n_type = view.unpack(elf.layouts.order + "3I", position, f"a note of {source}")
        desc = position + _align(12 + n_namesz, alignment)
        if desc + n_descsz > end or n_namesz > _MAX_OWNER:
            raise FormatError(
                f"a note of {source} is not inside of it",
                where=f"{view.where}: offset {position:#x}",
                expected=f"an end of at most {end:#x}",
                actual=f"{desc + n_descsz:#x}",
            )
        owner = view.read(position + 12, n_namesz, "the owner of a note").removesuffix(b"\0")
        yield Note(owner.decode("utf-8", "surrogateescape"), n_type, desc, n_descsz, alignment, source)
        position = start + _align(desc + n_descsz - start, alignment)


def read_properties(elf: ElfFile) -> list[Property]:
    """Return the properties of every NT_GNU_PROPERTY_TYPE_0 note, in file order."""
    properties = []
    for note in elf.notes():
        if note.n_type != _NT_GNU_PROPERTY_TYPE_0 or note.owner != "GNU":
            continue
        desc = elf.desc(note)
        position = 0
        while position + 8 <= note.desc_size:
            pr_type, pr_datasz = (_number(elf, desc[at : at + 4]) for at in (position, position + 4))
            data = desc[position + 8 : position + 8 + pr_datasz]
            if len(data) != pr_datasz:
                raise FormatError(
                    f"property {pr_type:#x} is not inside of its note",
                    where=elf.view.where,
                    expected=f"{pr_datasz} bytes",
                    actual=f"{len(data)} bytes",
                )
            properties.append(Property(pr_type, _number(elf, data) if pr_datasz in (4, 8) else data))
            position += 8 + _align(pr_datasz, elf.layouts.word_size)
    return properties


def _number(elf: ElfFile, data: bytes) -> int:
    return int.from_bytes(data, "little" if elf.layouts.order == "<" else "big")


def _align(value: int, alignment: int) -> int:
    return (value + alignment - 1) & -alignment
