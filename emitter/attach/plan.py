"""Lays out a library with a payload: what the linker wrote, a segment for the pack behind it, new section headers.

Nothing that the linker placed moves. What changes in its bytes: the file header, one program header, the descriptor,
the note that loaders read, the size word, and the symbols of the payload.
"""

from __future__ import annotations

from emitter import elf
from emitter.attach.library import Library
from emitter.attach.references import check_references
from emitter.attach.stub import PLACEHOLDER_AT, exported_names
from emitter.errors import LayoutError, UsageError
from emitter.image import check_alignment, place_pack
from emitter.image.elf import KEPT_ALIGNMENT, PACK_SECTION
from emitter.layout import BUILD_ID_SIZE, FilePlan, Piece, align_up
from emitter.limits import exceeded, too_large
from emitter.pack.format import VERSION_MAJOR, VERSION_MINOR
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from emitter.attach.library import Stub
    from emitter.elf import Phdr, Shdr
    from emitter.model import TensorSymbol
    from emitter.pack.plan import PackPlan
    from emitter.targets._base import Target

__all__ = ["MAX_LIBRARY_SIZE", "plan_attach"]

MAX_LIBRARY_SIZE = 1 << 30  # of the library as linked, which is held in memory

_PT_PHDR = 6
_NOTE_ALIGNMENT = 4
_PACK_NOTE_NAME = ".note.emitter"


class _Place(NamedTuple):
    """Where the pack goes: file offset and address, and the number of its section; and where the notes behind it go."""

    offset: int
    address: int
    section: int
    notes_offset: int
    end: int  # of the segment, in the file

    @property
    def notes_address(self) -> int:
        """The address of the first note."""
        return self.address + self.notes_offset - self.offset


class _Notes(NamedTuple):
    """The notes that move behind the pack: `phdr` is the number of their PT_NOTE.

    `moved` maps the number of each section to its new distance from the first. `merged` says that the spare note has no
    PT_NOTE of its own.
    """

    phdr: int
    moved: dict[int, int]
    size: int
    merged: bool


def plan_attach(
    data: bytes,
    target: Target,
    pack: PackPlan,
    *,
    name: str,
    where: str,
    symbols: Sequence[TensorSymbol] = (),
    say: Callable[[str], None] | None = None,
) -> FilePlan:
    """Return the plan of the library `data`, as its linker wrote it, with `pack` attached.

    The library was linked from code and `stub_model(target, name, symbols)`; `where` names it in messages, `say` gets
    what was decided. `emitter.transfer.write_plan` carries the plan out, `emitter.check.attached.check_attached` checks
    the result. A build id of 20 bytes is made anew as in images (`layout.FilePlan`); one of another length stays.

    Raises UsageError for a library without the stub, with one that is taken, that does not export the names, or in
    which something would read the placeholder; FormatError for a damaged one; LayoutError for what a segment cannot
    hold.
    """
    tell = say or (lambda _line: None)
    library = Library(data, target, where)
    stub = library.find_stub()
    check_alignment(target, pack, KEPT_ALIGNMENT, "")
    values = {name.encode(): (0, pack.total_size), b"emitter_pack": (0, pack.total_size)}
    values |= {symbol.name.encode(): (symbol.offset, symbol.size) for symbol in symbols}
    check_references(library, stub, values.keys())

    # What was linked ends where the section headers begin, unless something stands behind them.
    kept = _end_of_contents(library)
    page = max(1, *(load.p_align for load in library.loads))
    offset = place_pack(kept, KEPT_ALIGNMENT, pack)
    # The same place in a page as in the file, in the first page behind all others.
    memory_end = align_up(max(load.p_vaddr + load.p_memsz for load in library.loads), page)
    notes = _find_notes(library, stub)
    notes_offset = align_up(offset + pack.total_size, _NOTE_ALIGNMENT)
    end = notes_offset + notes.size
    place = _Place(offset, memory_end + offset % page, library.e_shnum, notes_offset, end)
    encoding = library.encoding
    names = library.section_names
    new_names = names + f"{PACK_SECTION}\0{_PACK_NOTE_NAME}\0".encode()
    e_shoff = align_up(place.end + len(new_names), encoding.word_size)
    e_shnum = library.e_shnum + 1
    if e_shnum >= elf.SHN_LORESERVE:
        raise LayoutError(
            "too many sections",
            where=where,
            expected=f"fewer than {elf.SHN_LORESERVE - 1}",
            actual=library.e_shnum,
            hint="link without -r and without a script that keeps sections apart",
        )
    size = e_shoff + e_shnum * encoding.shdr_size
    limit = exceeded(target, "library", max(size, place.address + place.end - offset))
    if limit is not None:
        raise too_large("library", target, size, limit)

    # File layout is fixed.
    image = bytearray(data[:kept])
    note_bytes = _note_bytes(library, stub, notes, place, pack)
    for number in notes.moved:
        row = library.shdrs[number]
        _put(image, row.sh_offset, bytes(row.sh_size))
    _put(image, library.e_phoff, b"".join(map(encoding.phdr, _phdrs(library, stub, notes, place, page, tell))))
    _put_header(image, library, e_shoff, e_shnum)
    _put_words(image, library, stub, place, pack)
    for number, row in enumerate(library.shdrs):
        if row.sh_type in (elf.SHT_DYNSYM, elf.SHT_SYMTAB):
            found = _put_symbols(image, library, stub, number, values, place, notes)
            if row.sh_type == elf.SHT_DYNSYM:
                _check_exports(library, found, {text.encode() for text in exported_names(name, symbols)})
    headers = [
        row._replace(
            sh_addr=place.notes_address + notes.moved[number],
            sh_offset=place.notes_offset + notes.moved[number],
            sh_addralign=_NOTE_ALIGNMENT,
            sh_name=len(names) + len(PACK_SECTION) + 1 if row.sh_addr == stub.pack_note else row.sh_name,
        )
        if number in notes.moved
        else row
        for number, row in enumerate(library.shdrs)
    ]
    headers[library.e_shstrndx] = headers[library.e_shstrndx]._replace(sh_offset=place.end, sh_size=len(new_names))
    headers.append(
        elf.Shdr(
            len(names), elf.SHT_PROGBITS, elf.SHF_ALLOC, place.address, place.offset, pack.total_size,
            sh_addralign=KEPT_ALIGNMENT,
        )
    )  # fmt: skip
    tail = note_bytes + new_names + bytes(e_shoff - place.end - len(new_names))
    tail += b"".join(map(encoding.shdr, headers))
    return FilePlan(
        size=size,
        pieces=[Piece(0, bytes(image)), Piece(place.notes_offset, tail)],
        copies=[copy.moved(place.offset) for copy in pack.payloads],
        pack_offset=place.offset,
        build_id_offset=_build_id(library, headers),
    )


def _end_of_contents(library: Library) -> int:
    """Return the end of what stays: everything but the section headers and their names, where these are last."""
    ends: list[int] = [library.encoding.ehdr_size, library.e_phoff + library.e_phnum * library.encoding.phdr_size]
    ends += (phdr.p_offset + phdr.p_filesz for phdr in library.phdrs)
    ends += (
        row.sh_offset + row.sh_size
        for number, row in enumerate(library.shdrs)
        if number != library.e_shstrndx and row.sh_type not in (elf.SHT_NULL, elf.SHT_NOBITS)
    )
    return max(ends)


def _find_notes(library: Library, stub: Stub) -> _Notes:
    """Return which notes move behind the pack: the one for loaders, whose distance patchelf would break elsewhere.

    It stands in a PT_NOTE of its own. A linker that makes one PT_NOTE of all notes (mold 1.10) leaves the build id and
    the like with it: then all of alignment 4 move, which no reader could follow behind those of alignment 8.
    """
    spare = library.shdrs[stub.section]
    covering = [
        number
        for number, phdr in enumerate(library.phdrs)
        if phdr.p_type == elf.PT_NOTE and phdr.p_vaddr <= stub.pack_note < phdr.p_vaddr + phdr.p_memsz
    ]
    if not covering:
        raise library.broken("notes", "the note for the pack is in no PT_NOTE")
    phdr = library.phdrs[covering[0]]
    moved: dict[int, int] = {}
    size = 0
    for index, row in enumerate(library.shdrs):
        inside = phdr.p_vaddr <= row.sh_addr < phdr.p_vaddr + phdr.p_memsz
        small = row.sh_addralign <= _NOTE_ALIGNMENT or row.sh_addr == stub.pack_note
        if row.sh_type == elf.SHT_NOTE and inside and small:
            moved[index] = size
            size = align_up(size + row.sh_size, _NOTE_ALIGNMENT)
    if not any(library.shdrs[index].sh_addr == stub.pack_note for index in moved):
        raise library.broken("notes", "the note for the pack is not a section of its own")
    return _Notes(covering[0], moved, size, phdr.p_vaddr <= spare.sh_addr < phdr.p_vaddr + phdr.p_memsz)


def _note_bytes(library: Library, stub: Stub, notes: _Notes, place: _Place, pack: PackPlan) -> bytes:
    found = bytearray(notes.size)
    for number, at in notes.moved.items():
        data = library.section_data(number)
        if library.shdrs[number].sh_addr == stub.pack_note:
            distance = place.address - (place.notes_address + at + elf.PACK_NOTE_DESC)
            data = library.encoding.pack_note(distance, pack.total_size, VERSION_MAJOR, VERSION_MINOR)
        _put(found, at, data)
    return bytes(found)


def _phdrs(  # noqa: PLR0917 - what each of the changed ones depends on
    library: Library, stub: Stub, notes: _Notes, place: _Place, page: int, tell: Callable[[str], None]
) -> list[Phdr]:
    """Return the program headers with the pack's PT_LOAD among them, in the place of one that is not needed.

    That is the spare note's own PT_NOTE; where it has none, PT_PHDR, which only programs need.
    """
    spare = library.shdrs[stub.section]
    changed = dict(enumerate(library.phdrs))
    address, size = place.notes_address, notes.size
    changed[notes.phdr] = elf.Phdr(
        elf.PT_NOTE, elf.PF_R, place.notes_offset, address, address, size, size, _NOTE_ALIGNMENT
    )
    if notes.merged:
        slots = [number for number, phdr in enumerate(library.phdrs) if phdr.p_type == _PT_PHDR]
    else:
        slots = [
            number
            for number, phdr in enumerate(library.phdrs)
            if phdr.p_type == elf.PT_NOTE and phdr.p_vaddr <= spare.sh_addr < phdr.p_vaddr + phdr.p_memsz
        ]
    if not slots:
        raise UsageError(
            "the linker made one segment of all notes, and no other program header can be spared",
            where=library.where,
            hint="link with GNU ld, ld.lld or mold",
        )
    if notes.merged:
        tell("the linker merged the notes: PT_PHDR becomes the payload's PT_LOAD")
    del changed[slots[0]]
    size = place.end - place.offset
    load = elf.Phdr(elf.PT_LOAD, elf.PF_R, place.offset, place.address, place.address, size, size, page)
    last = max(number for number, phdr in changed.items() if phdr.p_type == elf.PT_LOAD)
    found = []
    for number, phdr in changed.items():
        found.append(phdr)
        if number == last:
            found.append(load)  # PT_LOAD ascend by address
    return found


def _put(image: bytearray, offset: int, data: bytes) -> None:
    image[offset : offset + len(data)] = data


def _put_header(image: bytearray, library: Library, e_shoff: int, e_shnum: int) -> None:
    """Write e_shoff and e_shnum; every other field of the file header stays, whatever it says."""
    word = library.encoding.word_size
    _put(image, 24 + 2 * word, library.encoding.words(e_shoff))
    _put(image, library.encoding.ehdr_size - 4, e_shnum.to_bytes(2, library.target.byte_order))


def _put_words(image: bytearray, library: Library, stub: Stub, place: _Place, pack: PackPlan) -> None:
    order = library.target.byte_order
    encoding = library.encoding
    distance = place.address - stub.descriptor
    descriptor = distance.to_bytes(8, order, signed=True) + pack.total_size.to_bytes(8, order)
    _put(image, library.offset(stub.descriptor, len(descriptor), "the descriptor"), descriptor)
    _put(image, library.offset(stub.size, encoding.word_size, "the size word"), encoding.words(pack.total_size))


def _put_symbols(  # noqa: PLR0917 - a table, and what is written into it
    image: bytearray,
    library: Library,
    stub: Stub,
    number: int,
    values: dict[bytes, tuple[int, int]],
    place: _Place,
    notes: _Notes,
) -> set[bytes]:
    """Give the symbols of the payload in one symbol table their final values; return the names that are defined there.

    Protected from now on, as in every emitted library: nobody copies the payload, and the library reads its own.
    """
    row = library.shdrs[number]
    encoding = library.encoding
    found = set()
    for index, (symbol_name, sym) in enumerate(library.syms(number)):
        if sym.st_shndx == elf.SHN_UNDEF:
            continue
        new = None
        if sym.st_value == stub.placeholder + PLACEHOLDER_AT and symbol_name in values:
            offset, size = values[symbol_name]
            new = sym._replace(st_value=place.address + offset, st_size=size, st_shndx=place.section)
        elif sym.st_value == stub.size and sym.st_info >> 4 == elf.STB_GLOBAL:
            new = sym
        elif sym.st_shndx in notes.moved:  # the section's own symbol
            moved = place.notes_address + notes.moved[sym.st_shndx] - library.shdrs[sym.st_shndx].sh_addr
            _put(
                image,
                row.sh_offset + index * encoding.sym_size,
                encoding.sym(sym._replace(st_value=sym.st_value + moved)),
            )
        if new is not None:
            found.add(symbol_name)
            if new.st_info >> 4 != elf.STB_LOCAL and new.st_other & 3 == elf.STV_DEFAULT:
                new = new._replace(st_other=new.st_other | elf.STV_PROTECTED)
            _put(image, row.sh_offset + index * encoding.sym_size, encoding.sym(new))
    return found


def _check_exports(library: Library, found: set[bytes], wanted: set[bytes]) -> None:
    missing = sorted(wanted - found)
    if missing:
        raise UsageError(
            "the library does not export the payload",
            where=library.where,
            expected=", ".join(sorted(text.decode() for text in wanted)),
            actual=f"no {', '.join(text.decode() for text in missing)}",
            hint="leave these names global in the version script, and out of --exclude-libs",
        )


def _build_id(library: Library, headers: Sequence[Shdr]) -> int | None:
    """Return the file offset of the build id, if there is one of the length that is made here."""
    head = library.encoding.note(b"GNU\0", elf.NT_GNU_BUILD_ID, bytes(BUILD_ID_SIZE))[:-BUILD_ID_SIZE]
    for row, placed in zip(library.shdrs, headers, strict=False):
        whole = row.sh_type == elf.SHT_NOTE and row.sh_size >= len(head) + BUILD_ID_SIZE
        if whole and library.data[row.sh_offset : row.sh_offset + len(head)] == head:
            return placed.sh_offset + len(head)
    return None
