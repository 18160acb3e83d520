"""Lays out a pack as an ELF shared library: no linker, no relocations, no code.

Two segments. The first is read-only and mapped from the start of the file: headers, notes, the tables that `dlsym`
uses, and the pack. The second holds `.dynamic` alone: writable at first (older versions of glibc store addresses into
it) and read-only once it is loaded (RELRO).

Source: System V gABI, chapters 4 and 5; the psABI of each CPU for what its `Target` says.
"""

from __future__ import annotations

from emitter import elf
from emitter.errors import LayoutError, shown
from emitter.image import check_alignment, place_pack
from emitter.layout import BUILD_ID_SIZE, FilePlan, Piece, align_up
from emitter.limits import ELF32_MAX_FILE_SIZE
from emitter.pack.format import VERSION_MAJOR, VERSION_MINOR
from emitter.records import TYPE_CHECKING, NamedTuple
from emitter.sections import FATBIN_SECTION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emitter.elf import Encoding
    from emitter.model import TensorSymbol
    from emitter.pack.plan import PackPlan
    from emitter.targets._base import Target


__all__ = ["KEPT_ALIGNMENT", "PACK_SECTION", "plan_image"]

# What every loader keeps: musl, and glibc before 2.35, place a library at a multiple of the page only, whatever p_align
# says.
KEPT_ALIGNMENT = 4096

# A section of its own, not .rodata: `objcopy --dump-section .emitter=x.pack` then gives the pack as it is, and strip,
# which rebuilds segments from sections, finds every byte of it described. The name does not begin with .rel, .debug or
# .note, by which tools judge.
PACK_SECTION = ".emitter"

# Likewise: elfutils takes a name that begins with .rel (lld calls it .relro_padding) for a relocation section.
_RELRO_PADDING = ".bss.rel.ro"

_U32_MAX = 0xFFFFFFFF


class _Export(NamedTuple):
    name: bytes
    section: str
    offset: int
    size: int


class _Section:
    """A section: its size is known when it is made, its place when it is placed, its content when all are placed."""

    __slots__ = (
        "address", "alignment", "alloc", "content", "entsize", "info",
        "link", "name", "offset", "sh_type", "size", "write",
    )  # fmt: skip

    def __init__(
        self, name: str, sh_type: int, *, size: int = 0, content: bytes = b"", alignment: int = 1, alloc: bool = True
    ) -> None:
        self.name = name
        self.sh_type = sh_type
        self.size = size or len(content)
        self.content = content
        self.alignment = alignment
        self.alloc = alloc
        self.write = False
        self.link = ""
        self.info = self.entsize = self.offset = self.address = 0

    @property
    def end(self) -> int:
        return self.offset + self.size


def plan_image(
    target: Target, pack: PackPlan, *, name: str, soname: str, symbols: Sequence[TensorSymbol] = ()
) -> FilePlan:
    """Return the plan of a shared library that holds `pack` and nothing else.

    Exports, all STT_OBJECT and STV_PROTECTED: `name` and `emitter_pack` (the pack), `name`_size (its size in bytes, an
    object of pointer width), and `symbols`. The caller has made sure that the names differ. The pack is at a multiple
    of 4096 bytes, such that its payload has the file offset that `layout.bulk_alignment` wants. Raises LayoutError for
    a payload alignment above 4096, a soname that no loader finds, and a size that the target cannot map.
    """
    soname_bytes = _check_request(target, pack, soname)
    _check_size(target, pack.total_size)
    encoding = elf.Encoding(target.pointer_width, target.byte_order)
    word = encoding.word_size

    exports = [
        _Export(name.encode(), PACK_SECTION, 0, pack.total_size),
        _Export(b"emitter_pack", PACK_SECTION, 0, pack.total_size),
        _Export(f"{name}_size".encode(), ".rodata", 0, word),
    ]
    listed = list(exports)  # these are in .symtab too: without one, tools call the file stripped
    exports += [_Export(symbol.name.encode(), PACK_SECTION, symbol.offset, symbol.size) for symbol in symbols]
    order, gnu_hash = encoding.gnu_hash([export.name for export in exports])
    exports = [exports[number] for number in order]
    sysv_hash = encoding.sysv_hash([export.name for export in exports], target.hash_word_size)
    dynstr, strtab = elf.StringTable(), elf.StringTable()
    soname_offset = dynstr.add(soname_bytes)
    for export in exports:
        dynstr.add(export.name)
    for export in listed:
        strtab.add(export.name)
    if dynstr.size > _U32_MAX:
        raise LayoutError(
            "the symbols' names are too long together",
            expected=f"at most {_U32_MAX} bytes",
            actual=dynstr.size,
            hint="emit fewer tensor symbols; tensors are found by name without them",
        )

    # Sizes of everything are fixed.
    property_notes = []
    if target.properties:
        note = encoding.properties((p.pr_type, p.value) for p in target.properties)
        property_notes = [_Section(".note.gnu.property", elf.SHT_NOTE, content=note, alignment=word)]
    build_id = _Section(
        ".note.gnu.build-id",
        elf.SHT_NOTE,
        content=encoding.note(b"GNU\0", elf.NT_GNU_BUILD_ID, bytes(BUILD_ID_SIZE)),
        alignment=4,
    )
    pack_note = _Section(".note.emitter", elf.SHT_NOTE, content=encoding.pack_note(0, 0, 0, 0), alignment=4)
    gnu_hash_table = _Section(".gnu.hash", elf.SHT_GNU_HASH, content=gnu_hash, alignment=word)
    hash_table = _Section(".hash", elf.SHT_HASH, content=sysv_hash, alignment=target.hash_word_size)
    gnu_hash_table.link = hash_table.link = ".dynsym"
    hash_table.entsize = target.hash_word_size
    gnu_hash_table.entsize = 0 if encoding.is_64 else 4  # in the 64-bit class its words are of two sizes
    dynsym = _symbol_section(".dynsym", elf.SHT_DYNSYM, encoding, len(exports), ".dynstr")
    dynstr_section = _Section(".dynstr", elf.SHT_STRTAB, content=dynstr.data())
    size_word = _Section(".rodata", elf.SHT_PROGBITS, content=encoding.words(pack.total_size), alignment=word)
    near = [*property_notes, build_id, gnu_hash_table, hash_table, dynsym, dynstr_section, size_word]
    # The pack in one section, or its end, where the fatbins are, in one of the name that CUDA's tools look for.
    split = pack.fatbins[0] if target.device_code and pack.fatbins[0] else pack.total_size
    packed = _Section(PACK_SECTION, elf.SHT_PROGBITS, size=split, alignment=KEPT_ALIGNMENT)
    fatbins = []
    if split < pack.total_size:
        alignment = min(split & -split, pack.alignment)
        fatbins.append(_Section(FATBIN_SECTION, elf.SHT_PROGBITS, size=pack.total_size - split, alignment=alignment))
    dynamic = _Section(".dynamic", elf.SHT_DYNAMIC, content=_dynamic(encoding, {}, 0, 0), alignment=word)
    dynamic.link, dynamic.entsize = ".dynstr", encoding.dyn_size
    padding = _Section(_RELRO_PADDING, elf.SHT_NOBITS)
    dynamic.write = padding.write = True
    attributes = []
    if target.attributes:
        facts = target.attributes
        attributes = [_Section(facts.section, facts.sh_type, content=facts.contents, alloc=False)]
    symtab = _symbol_section(".symtab", elf.SHT_SYMTAB, encoding, len(listed), ".strtab")
    symtab.alloc = False
    tail = [*attributes, symtab, _Section(".strtab", elf.SHT_STRTAB, content=strtab.data(), alloc=False)]
    phnum = 7 + 2 * len(property_notes) + (1 if target.attributes and target.attributes.p_type else 0)

    # Places of the first segment: addresses are file offsets.
    near_end = _place(near, encoding.ehdr_size + phnum * encoding.phdr_size)
    for section in near:
        section.address = section.offset
    packed.offset = packed.address = place_pack(near_end, KEPT_ALIGNMENT, pack)
    for section in fatbins:
        section.offset = section.address = packed.end
    # The note stands behind the pack: it holds a distance, and patchelf moves what stands where it wants room for more
    # program headers.
    _place([pack_note], packed.offset + pack.total_size)
    pack_note.address = pack_note.offset

    # Of the second: the same place in a page as in the file. It is protected up to a page boundary, and glibc rounds
    # the end down to its own page: so it ends at the largest one's. The padding is a section, or GNU strip cuts it off.
    page = target.max_page_size
    dynamic.offset = align_up(pack_note.end, word)
    dynamic.address = align_up(pack_note.end, page) + dynamic.offset % page
    padding.offset, padding.address = dynamic.end, dynamic.address + dynamic.size
    padding.size = -padding.address % page
    memory_end = padding.address + padding.size

    # Of what is not loaded.
    sections = [*near, packed, *fatbins, pack_note, dynamic, *([padding] if padding.size else []), *tail]
    names = elf.StringTable()
    name_offsets = [names.add(section.name.encode()) for section in sections] + [names.add(b".shstrtab")]
    tail.append(_Section(".shstrtab", elf.SHT_STRTAB, content=names.data(), alloc=False))
    sections.append(tail[-1])
    e_shoff = align_up(_place(tail, dynamic.end), word)
    size = e_shoff + (1 + len(sections)) * encoding.shdr_size
    _check_size(target, max(memory_end, size))

    # File layout is fixed. Now the content that depends on it.
    index = {section.name: number for number, section in enumerate(sections, 1)}
    address = {section.name: section.address for section in sections}
    distance = packed.address - (pack_note.address + elf.PACK_NOTE_DESC)
    pack_note.content = encoding.pack_note(distance, pack.total_size, VERSION_MAJOR, VERSION_MINOR)
    dynsym.content = _symbol_table(encoding, exports, dynstr, index, address)
    symtab.content = _symbol_table(encoding, listed, strtab, index, address)
    dynamic.content = _dynamic(encoding, address, soname_offset, dynstr.size)

    r, rw = elf.PF_R, elf.PF_R | elf.PF_W
    second = (dynamic.offset, dynamic.address, dynamic.address, dynamic.size, memory_end - dynamic.address)
    phdrs = [
        elf.Phdr(elf.PT_LOAD, r, 0, 0, 0, pack_note.end, pack_note.end, page),
        elf.Phdr(elf.PT_LOAD, rw, *second, page),
        _phdr(elf.PT_DYNAMIC, rw, dynamic, dynamic),
        *(_phdr(p_type, r, note, note) for note in property_notes for p_type in (elf.PT_NOTE, elf.PT_GNU_PROPERTY)),
        _phdr(elf.PT_NOTE, r, build_id, build_id),
        _phdr(elf.PT_NOTE, r, pack_note, pack_note),
        elf.Phdr(elf.PT_GNU_STACK, rw, 0, 0, 0, 0, 0, 16),
        elf.Phdr(elf.PT_GNU_RELRO, r, *second, 1),
    ]
    if target.attributes and target.attributes.p_type:
        phdrs.append(_phdr(target.attributes.p_type, r, attributes[0], attributes[0]))
    shdrs = [elf.Shdr(0, elf.SHT_NULL, 0, 0, 0, 0, sh_addralign=0)]
    for section, sh_name in zip(sections, name_offsets, strict=True):
        sh_flags = (elf.SHF_ALLOC if section.alloc else 0) | (elf.SHF_WRITE if section.write else 0)
        shdrs.append(
            elf.Shdr(
                sh_name, section.sh_type, sh_flags, section.address, section.offset, section.size,
                index[section.link] if section.link else 0, section.info, section.alignment, section.entsize,
            )
        )  # fmt: skip
    ehdr = elf.Ehdr(
        e_type=elf.ET_DYN,
        e_machine=target.e_machine,
        e_flags=target.e_flags_image,
        e_phoff=encoding.ehdr_size,
        e_phnum=phnum,
        e_shoff=e_shoff,
        e_shnum=len(shdrs),
        e_shstrndx=index[".shstrtab"],
        ei_osabi=target.ei_osabi,
    )
    head = [(0, encoding.ehdr(ehdr) + b"".join(map(encoding.phdr, phdrs)))]
    end = [(e_shoff, b"".join(map(encoding.shdr, shdrs)))]
    return FilePlan(
        size=size,
        pieces=[
            Piece(0, _render(0, head, near)),
            Piece(pack_note.offset, _render(pack_note.offset, end, [pack_note, dynamic, *tail])),
        ],
        copies=[copy.moved(packed.offset) for copy in pack.payloads],
        pack_offset=packed.offset,
        build_id_offset=build_id.end - BUILD_ID_SIZE,
    )


def _check_request(target: Target, pack: PackPlan, soname: str) -> bytes:
    """Refuse what no library can hold; return the soname as the file system spells it."""
    check_alignment(target, pack, KEPT_ALIGNMENT)
    try:
        name = soname.encode(errors="surrogateescape")  # file names need not be UTF-8
    except UnicodeEncodeError:
        name = b""
    if not name or b"/" in name or b"\0" in name:
        raise LayoutError(
            "the soname is not a file name",
            expected="a name without '/' and NUL, such as libNAME.so",
            actual=shown(soname),
            hint="give another one with --soname",
        )
    return name


def _check_size(target: Target, size: int) -> None:
    limit = target.max_image_size or (ELF32_MAX_FILE_SIZE if target.pointer_width == 32 else None)
    if limit is not None and size > limit:
        raise LayoutError(
            "the library is too large",
            where=f"target {target.name}",
            expected=f"at most {limit} bytes",
            actual=size,
            hint="a process with 32-bit pointers has no room for more: split the package",
        )


def _symbol_section(name: str, sh_type: int, encoding: Encoding, count: int, link: str) -> _Section:
    section = _Section(name, sh_type, size=(1 + count) * encoding.sym_size, alignment=encoding.word_size)
    section.link, section.info, section.entsize = link, 1, encoding.sym_size
    return section


def _place(sections: Sequence[_Section], position: int) -> int:
    for section in sections:
        section.offset = align_up(position, section.alignment)
        position = section.end
    return position


def _phdr(p_type: int, p_flags: int, first: _Section, last: _Section) -> elf.Phdr:
    """Return the program header of sections that are neighbours in the file."""
    size = last.end - first.offset
    memory = size if first.alloc else 0
    return elf.Phdr(p_type, p_flags, first.offset, first.address, first.address, size, memory, first.alignment)


def _dynamic(encoding: Encoding, address: dict[str, int], soname: int, dynstr_size: int) -> bytes:
    """Return the dynamic section. Its size is the same with `address` empty, before places are fixed."""
    entries = (
        (elf.DT_SONAME, soname),
        (elf.DT_GNU_HASH, address.get(".gnu.hash", 0)),
        (elf.DT_HASH, address.get(".hash", 0)),
        (elf.DT_STRTAB, address.get(".dynstr", 0)),
        (elf.DT_SYMTAB, address.get(".dynsym", 0)),
        (elf.DT_STRSZ, dynstr_size),
        (elf.DT_SYMENT, encoding.sym_size),
        (elf.DT_FLAGS, elf.DF_BIND_NOW),
        (elf.DT_FLAGS_1, elf.DF_1_NOW),
        (elf.DT_NULL, 0),
    )
    return b"".join(encoding.dyn(d_tag, d_val) for d_tag, d_val in entries)


def _symbol_table(
    encoding: Encoding,
    exports: Sequence[_Export],
    strings: elf.StringTable,
    index: dict[str, int],
    address: dict[str, int],
) -> bytes:
    info = elf.st_info(elf.STB_GLOBAL, elf.STT_OBJECT)
    entries = [elf.Sym(0, 0, 0, elf.SHN_UNDEF, 0, 0)]
    entries += [
        # Protected: a linker then refuses to copy the payload into a program that is not position-independent.
        elf.Sym(strings.add(name), info, elf.STV_PROTECTED, index[section], address[section] + offset, size)
        for name, section, offset, size in exports
    ]
    return b"".join(map(encoding.sym, entries))


def _render(start: int, records: Sequence[tuple[int, bytes]], sections: Sequence[_Section]) -> bytes:
    """Return the bytes from the file offset `start` to the end of the last record or section."""
    parts = sorted([*records, *((section.offset, section.content) for section in sections)], key=lambda part: part[0])
    result = bytearray()
    for offset, content in parts:
        result += bytes(offset - start - len(result))
        result += content
    return bytes(result)
