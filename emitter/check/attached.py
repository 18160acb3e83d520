"""The check of a library with an attached payload: the way from the linked note to the payload, walked once more.

Written apart from `emitter.attach`, on the reader that the other checks have. Source: System V gABI, chapters 4 and 5;
docs/attach.md for the notes and the descriptor.
"""

from __future__ import annotations

from emitter.check.pack import check_pack_at, open_output
from emitter.check.readback import Phdr, difference, expect, read_header, read_sections, require, text
from emitter.layout import BUILD_ID_SIZE
from emitter.pack import format as fmt
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from emitter.check.readback import Reader, Shdr
    from emitter.layout import FilePlan
    from emitter.pack.plan import PackPlan
    from emitter.targets._base import Target

__all__ = ["check_attached"]

_PT_LOAD, _PT_NOTE, _PT_PHDR = 1, 4, 6
_SHT_SYMTAB, _SHT_NOTE, _SHT_DYNSYM = 2, 7, 11
_PROTECTED = 3
_PLACEHOLDER_SIZE = 256


def check_attached(fd: int, target: Target, plan: FilePlan, pack: PackPlan, symbol: str) -> None:
    """Check the written library `fd`; raise OutputError that names the first field which differs.

    The segments are what a loader takes; the linked note leads to the descriptor, the descriptor to the payload; the
    note for loaders leads there too; no symbol and no word stands for the placeholder any more.
    """
    reader = open_output(fd, target, plan)
    (e_flags,) = reader.unpack("I", 48 if reader.is_64 else 36, "e_flags")  # the linker's business
    header = read_header(reader, target, e_type=3, e_flags=e_flags)
    phdrs = reader.phdrs(header.e_phoff, header.e_phnum)
    sections = read_sections(reader, header)
    load = _check_loads(reader, phdrs, plan, pack)
    check_pack_at(reader, plan, pack)
    address = load.p_vaddr
    holders = [row for name, row in sections if name == b".emitter"]
    expect("sections called .emitter", len(holders), 1)
    holder = holders[0]
    expect("sh_type and sh_flags of .emitter", (holder.sh_type, holder.sh_flags), (1, 2))  # PROGBITS, ALLOC
    expect(
        "(sh_addr, sh_offset, sh_size) of .emitter",
        (holder.sh_addr, holder.sh_offset, holder.sh_size),
        (address, plan.pack_offset, pack.total_size),
    )

    descriptor, placeholder, size, pack_note = _linked_places(reader, sections)
    distance, length = reader.unpack("qQ", _offset(phdrs, descriptor, 16), "the descriptor")
    expect("address that the descriptor leads to", hex(descriptor + distance), hex(address))
    expect("size in the descriptor", length, pack.total_size)
    word = reader.unpack(reader.word_code, _offset(phdrs, size, reader.word), "the size word")
    expect(f"content of {symbol}_size", word, (pack.total_size,))
    require("the note for loaders has left its place", not any(reader.read(_offset(phdrs, pack_note, 12), 12, "note")))
    _check_pack_note(reader, phdrs, address, pack)
    _check_symbols(reader, sections, symbol, address, placeholder, pack)
    if plan.build_id_offset is not None:
        require("the build id is written", any(reader.read(plan.build_id_offset, BUILD_ID_SIZE, "the build id")))


def _check_loads(reader: Reader, phdrs: Sequence[Phdr], plan: FilePlan, pack: PackPlan) -> Phdr:
    """Judge the segments as a loader does; return the payload's, which is the last."""
    loads = [phdr for phdr in phdrs if phdr.p_type == _PT_LOAD]
    end = file_end = 0
    for number, load in enumerate(loads):
        reader.bound(load.p_offset, load.p_filesz, f"PT_LOAD {number}")
        page = max(load.p_align, 1)
        expect(f"p_vaddr of PT_LOAD {number} modulo p_align", load.p_vaddr % page, load.p_offset % page)
        require(f"PT_LOAD {number} lies behind the one before", load.p_vaddr >= end)
        end, file_end = load.p_vaddr + load.p_memsz, max(file_end, load.p_offset + load.p_filesz)
    payload = loads[-1]
    page = max(load.p_align for load in loads)
    expect("p_offset of the last PT_LOAD", payload.p_offset, plan.pack_offset)
    expect("p_memsz of the payload", payload.p_memsz, payload.p_filesz)
    require("the last PT_LOAD holds the pack", payload.p_filesz >= pack.total_size)
    expect("p_flags of the payload", payload.p_flags, 4)  # PF_R
    expect("p_align of the payload", payload.p_align, page)
    expect("end of all segments in the file", file_end, payload.p_offset + payload.p_filesz)
    if len(loads) > 1:
        before = loads[-2]
        shared = payload.p_vaddr // page < -(-(before.p_vaddr + before.p_memsz) // page)
        require("the payload shares no page with what stands before it", not shared)
    others = [number for number, phdr in enumerate(phdrs) if phdr.p_type == _PT_PHDR]
    require("PT_PHDR stands before every PT_LOAD", not others or others[0] < phdrs.index(loads[0]))
    return payload


def _linked_places(reader: Reader, sections: Sequence[tuple[bytes, Shdr]]) -> list[int]:
    """Return the addresses that the words of the linked note lead to: descriptor, placeholder, size, pack note."""
    for _, row in sections:
        if row.sh_type != _SHT_NOTE or row.sh_size < 24 + 4 * reader.word:
            continue
        if reader.unpack("3I", row.sh_offset, "note") != (8, 4 * reader.word, 2):
            continue
        if reader.read(row.sh_offset + 12, 8, "note") == b"emitter\0":
            words = reader.unpack(f"4{reader.word_code}", row.sh_offset + 24, "note")
            wrap = 1 << 8 * reader.word
            return [(row.sh_addr + 24 + index * reader.word + word) % wrap for index, word in enumerate(words)]
    raise difference("note of emitter, type 2", "in a section", "none")


def _check_pack_note(reader: Reader, phdrs: Sequence[Phdr], address: int, pack: PackPlan) -> None:
    """Check that the note which loaders read is found by them, among the notes of a segment, and leads to the pack."""
    found = [note for phdr in phdrs if phdr.p_type == _PT_NOTE for note in _notes(reader, phdr)]
    wanted = [desc for n_type, owner, desc in found if n_type == 1 and owner == b"emitter\0"]
    wanted = [desc for desc in wanted if address <= desc]  # other objects may have brought notes of their own packs
    expect("notes of emitter, type 1, behind the pack", len(wanted), 1)
    desc = wanted[0]
    at = _offset(phdrs, desc, 2 * reader.word + 8)
    code = f"{reader.word_code.lower()}{reader.word_code}2I"
    distance, size, version, zero = reader.unpack(code, at, "the pack's note")
    expect("address that the note leads to", hex(desc + distance), hex(address))
    expect("size in the note", size, pack.total_size)
    expect("version in the note", (version, zero), (fmt.VERSION_MAJOR << 16 | fmt.VERSION_MINOR, 0))


def _notes(reader: Reader, phdr: Phdr) -> Iterator[tuple[int, bytes, int]]:
    """Yield (n_type, owner, address of the descriptor) of each note of a segment."""
    align = 8 if phdr.p_align == 8 else 4
    position = 0
    while position + 12 <= phdr.p_filesz:
        at = phdr.p_offset + position
        n_namesz, n_descsz, n_type = reader.unpack("3I", at, "note")
        desc = position + 12 + n_namesz + -(12 + n_namesz) % align
        require("a note ends within its PT_NOTE", desc + n_descsz <= phdr.p_filesz)
        yield n_type, reader.read(at + 12, n_namesz, "note"), phdr.p_vaddr + desc
        position = desc + n_descsz + -n_descsz % align


def _check_symbols(  # noqa: PLR0917 - what the symbols of one name must be
    reader: Reader, sections: Sequence[tuple[bytes, Shdr]], symbol: str, address: int, placeholder: int, pack: PackPlan
) -> None:
    """Check the payload's symbols, and that no exported one lies in the placeholder."""
    wanted = {symbol.encode(): (address, pack.total_size), b"emitter_pack": (address, pack.total_size)}
    for title, table in sections:
        if table.sh_type not in (_SHT_SYMTAB, _SHT_DYNSYM):
            continue
        names = sections[table.sh_link][1]
        strings = reader.read(names.sh_offset, names.sh_size, "names of symbols")
        seen = set()
        for sym in reader.syms(table.sh_offset, table.sh_size, text(title)):
            if not sym.st_shndx or sym.st_info & 15 != 1:  # undefined, or not STT_OBJECT
                continue
            name = strings[sym.st_name : strings.find(b"\0", sym.st_name)]
            outside = not placeholder <= sym.st_value < placeholder + _PLACEHOLDER_SIZE
            require(f"symbol {text(name)} is not in the placeholder", outside)
            if table.sh_type == _SHT_DYNSYM and name in wanted:
                seen.add(name)
                expect(f"(st_value, st_size) of {text(name)}", (sym.st_value, sym.st_size), wanted[name])
                numbers = [number for number, (title, _) in enumerate(sections) if title == b".emitter"]
                expect(f"st_shndx of {text(name)}", sym.st_shndx, numbers[0])
                expect(f"st_other of {text(name)}", sym.st_other & 3, _PROTECTED)
        if table.sh_type == _SHT_DYNSYM:
            expect("exported symbols of the payload", sorted(seen), sorted(wanted))


def _offset(phdrs: Sequence[Phdr], address: int, length: int) -> int:
    """Return the file offset of `length` bytes at an address."""
    for phdr in phdrs:
        inside = phdr.p_vaddr <= address and address + length <= phdr.p_vaddr + phdr.p_filesz
        if phdr.p_type == _PT_LOAD and inside:
            return phdr.p_offset + address - phdr.p_vaddr
    raise difference("address in a PT_LOAD", "one of them", hex(address))
