"""Lays out a library with a payload: what the linker wrote, a segment for the pack behind it, new section headers.

Nothing that the linker placed moves. What changes in its bytes: the file header, one program header, the descriptor,
the note that loaders read, the size word, and the symbols of the payload.
"""

from __future__ import annotations

from emitter import elf
from emitter.attach.library import Library
from emitter.attach.references import check_references
from emitter.attach.stub import SPARE_SECTION, exported_names
from emitter.errors import LayoutError, UsageError
from emitter.image.elf import KEPT_ALIGNMENT, PACK_SECTION
from emitter.layout import BUILD_ID_SIZE, FilePlan, Piece, align_up, bulk_alignment
from emitter.limits import exceeded, too_large
from emitter.pack.format import VERSION_MAJOR, VERSION_MINOR
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from emitter.attach.library import Stub
    from emitter.elf import Phdr
    from emitter.model import TensorSymbol
    from emitter.pack.plan import PackPlan
    from emitter.targets._base import Target

__all__ = ["MAX_LIBRARY_SIZE", "plan_attach"]

MAX_LIBRARY_SIZE = 1 << 30  # of the library as linked, which is held in memory

_PT_PHDR = 6


class _Place(NamedTuple):
    """Where the pack goes: file offset and address, and the number of its section."""

    offset: int
    address: int
    section: int


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
    if pack.alignment > KEPT_ALIGNMENT:
        raise LayoutError(
            "a library cannot keep the alignment of a tensor",
            where=f"target {target.name}",
            expected=f"at most {KEPT_ALIGNMENT}",
            actual=pack.alignment,
            hint="loaders place libraries at multiples of a page: ask for less",
        )
    values = {name.encode(): (0, pack.total_size), b"emitter_pack": (0, pack.total_size)}
    values |= {symbol.name.encode(): (symbol.offset, symbol.size) for symbol in symbols}
    check_references(library, stub, values.keys())

    # What was linked ends where the section headers begin, unless something stands behind them.
    kept = _end_of_contents(library)
    page = max(1, *(load.p_align for load in library.loads))
    offset = align_up(kept, KEPT_ALIGNMENT)
    if pack.payload_start % KEPT_ALIGNMENT == 0:
        offset += -(offset + pack.payload_start) % bulk_alignment(pack.total_size - pack.payload_start)
    # The same place in a page as in the file, in the first page behind all others.
    memory_end = align_up(max(load.p_vaddr + load.p_memsz for load in library.loads), page)
    place = _Place(offset, memory_end + offset % page, library.e_shnum)
    names_offset = offset + pack.total_size
    encoding = library.encoding
    names = library.section_names
    new_names = names + PACK_SECTION.encode() + b"\0"
    e_shoff = align_up(names_offset + len(new_names), encoding.word_size)
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
    limit = exceeded(target, "library", max(size, place.address + pack.total_size))
    if limit is not None:
        raise too_large("library", target, max(size, place.address + pack.total_size), limit)

    # File layout is fixed.
    image = bytearray(data[:kept])
    phdrs = _with_load(library, stub, _load(place, pack, page), tell)
    _put(image, library.e_phoff, b"".join(map(encoding.phdr, phdrs)))
    _put_header(image, library, e_shoff, e_shnum)
    _put_words(image, library, stub, place, pack)
    for number, row in enumerate(library.shdrs):
        if row.sh_type in (elf.SHT_DYNSYM, elf.SHT_SYMTAB):
            found = _put_symbols(image, library, stub, number, values, place)
            if row.sh_type == elf.SHT_DYNSYM:
                _check_exports(library, found, {text.encode() for text in exported_names(name, symbols)})
    headers = list(library.shdrs)
    headers[library.e_shstrndx] = headers[library.e_shstrndx]._replace(sh_offset=names_offset, sh_size=len(new_names))
    headers.append(
        elf.Shdr(
            len(names), elf.SHT_PROGBITS, elf.SHF_ALLOC, place.address, place.offset, pack.total_size,
            sh_addralign=KEPT_ALIGNMENT,
        )
    )  # fmt: skip
    tail = new_names + bytes(e_shoff - names_offset - len(new_names)) + b"".join(map(encoding.shdr, headers))
    return FilePlan(
        size=size,
        pieces=[Piece(0, bytes(image)), Piece(names_offset, tail)],
        copies=[copy.moved(place.offset) for copy in pack.payloads],
        pack_offset=place.offset,
        build_id_offset=_build_id(library),
    )


def _end_of_contents(library: Library) -> int:
    """Return the end of what stays: everything but the section headers and their names, where these are last."""
    ends = [library.encoding.ehdr_size, library.e_phoff + library.e_phnum * library.encoding.phdr_size]
    ends += (phdr.p_offset + phdr.p_filesz for phdr in library.phdrs)
    ends += (
        row.sh_offset + row.sh_size
        for number, row in enumerate(library.shdrs)
        if number != library.e_shstrndx and row.sh_type not in (elf.SHT_NULL, elf.SHT_NOBITS)
    )
    return max(ends)


def _load(place: _Place, pack: PackPlan, page: int) -> Phdr:
    return elf.Phdr(
        elf.PT_LOAD, elf.PF_R, place.offset, place.address, place.address, pack.total_size, pack.total_size, page
    )


def _with_load(library: Library, stub: Stub, load: Phdr, tell: Callable[[str], None]) -> list[Phdr]:
    """Return the program headers with `load` among them, in the place of one that is not needed.

    That is the spare note's own PT_NOTE. A linker that makes one PT_NOTE of all notes (mold 1.10) gives none to spare,
    but has PT_PHDR, which only programs need: then that one goes, and PT_NOTE is narrowed to the notes of alignment 4,
    the build id's and the pack's, which no reader could follow behind the spare one of alignment 8.
    """
    spare = library.shdrs[stub.section]
    covering = [
        phdr
        for phdr in library.phdrs
        if phdr.p_type == elf.PT_NOTE and phdr.p_vaddr <= spare.sh_addr < phdr.p_vaddr + phdr.p_memsz
    ]
    if not covering:
        raise library.broken("notes", f"{SPARE_SECTION} is in no PT_NOTE")
    slot = covering[0]
    changed = dict(enumerate(library.phdrs))
    if slot.p_vaddr <= stub.pack_note < slot.p_vaddr + slot.p_memsz:
        headers = [phdr for phdr in library.phdrs if phdr.p_type == _PT_PHDR]
        if not headers:
            raise UsageError(
                "the linker made one segment of all notes, and no other program header can be spared",
                where=library.where,
                hint="link with GNU ld, ld.lld or mold",
            )
        changed[library.phdrs.index(slot)] = _narrowed(library, stub, slot)
        slot = headers[0]
        tell("the linker merged the notes: PT_PHDR becomes the payload's PT_LOAD")
    del changed[library.phdrs.index(slot)]
    last = max(number for number, phdr in changed.items() if phdr.p_type == elf.PT_LOAD)
    found = []
    for number, phdr in changed.items():
        found.append(phdr)
        if number == last:
            found.append(load)  # PT_LOAD ascend by address
    return found


def _narrowed(library: Library, stub: Stub, phdr: Phdr) -> Phdr:
    """Return a PT_NOTE for the run of 4-aligned notes that holds the pack's."""
    inside = sorted(
        (row.sh_addr, row.sh_addr + row.sh_size, row.sh_addralign)
        for row in library.shdrs
        if row.sh_type == elf.SHT_NOTE and phdr.p_vaddr <= row.sh_addr < phdr.p_vaddr + phdr.p_memsz
    )
    start = end = stub.pack_note
    for low, high, alignment in inside:
        if alignment > 4:
            if low > stub.pack_note:
                break
            start = high
        elif low <= stub.pack_note:
            start = min(start, low)
        end = max(end, high)
    moved = start - phdr.p_vaddr
    return phdr._replace(
        p_offset=phdr.p_offset + moved,
        p_vaddr=start,
        p_paddr=phdr.p_paddr + moved,
        p_filesz=end - start,
        p_memsz=end - start,
        p_align=4,
    )


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
    note = encoding.pack_note(
        place.address - stub.pack_note - elf.PACK_NOTE_DESC, pack.total_size, VERSION_MAJOR, VERSION_MINOR
    )
    _put(image, library.offset(stub.pack_note, len(note), "the pack's note"), note)
    _put(image, library.offset(stub.size, encoding.word_size, "the size word"), encoding.words(pack.total_size))


def _put_symbols(  # noqa: PLR0917 - a table, and what is written into it
    image: bytearray,
    library: Library,
    stub: Stub,
    number: int,
    values: dict[bytes, tuple[int, int]],
    place: _Place,
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
        if sym.st_value == stub.placeholder and symbol_name in values:
            offset, size = values[symbol_name]
            new = sym._replace(st_value=place.address + offset, st_size=size, st_shndx=place.section)
        elif sym.st_value == stub.size and sym.st_info >> 4 == elf.STB_GLOBAL:
            new = sym
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
            hint="leave these names global in the version script, and do not link with --exclude-libs or -Wl,-s",
        )


def _build_id(library: Library) -> int | None:
    """Return the file offset of the build id, if there is one of the length that is made here."""
    head = library.encoding.note(b"GNU\0", elf.NT_GNU_BUILD_ID, bytes(BUILD_ID_SIZE))[:-BUILD_ID_SIZE]
    for row in library.shdrs:
        whole = row.sh_type == elf.SHT_NOTE and row.sh_size >= len(head) + BUILD_ID_SIZE
        if whole and library.data[row.sh_offset : row.sh_offset + len(head)] == head:
            return row.sh_offset + len(head)
    return None
