"""ELF relocatable objects: the stub of a target, with the sections, symbols and references of a model laid out on it.

Source: System V gABI, chapter 4 (sections, symbol table, relocation), and the psABI that each target names. What the
stub says about the target (file header, `.note.GNU-stack`, property notes, build attributes) is LLVM's and stays as it
is; everything else is laid out here.
"""

from __future__ import annotations

from emitter import elf
from emitter.errors import LayoutError, shown
from emitter.layout import FilePlan, Piece, align_up, bulk_alignment
from emitter.limits import ELF32_MAX_FILE_SIZE
from emitter.records import TYPE_CHECKING
from emitter.splice.contents import Contents
from emitter.splice.stub import read_stub

if TYPE_CHECKING:
    from emitter.model import ObjectModel, Section
    from emitter.targets._base import Target

__all__ = ["plan_object"]

_KINDS = {  # Section.kind: (sh_type, sh_flags)
    "rodata": (elf.SHT_PROGBITS, elf.SHF_ALLOC),
    "data": (elf.SHT_PROGBITS, elf.SHF_ALLOC | elf.SHF_WRITE),
    "note": (elf.SHT_NOTE, elf.SHF_ALLOC),
}
_TYPES = {"object": elf.STT_OBJECT, "notype": elf.STT_NOTYPE}
_VISIBILITIES = {"default": elf.STV_DEFAULT, "hidden": elf.STV_HIDDEN, "protected": elf.STV_PROTECTED}

_MAX_SECTIONS = 1 << 20  # of a model; far above any use, and far below what a reader would choke on


def plan_object(target: Target, stub: bytes, model: ObjectModel, *, file_offset: int = 0) -> FilePlan:
    """Lay out `model` as an ET_REL file for `target`; offsets in the plan are relative to the file's own start.

    `file_offset` is where that start will be in the output, not 0 in an archive: payloads are aligned in the output. So
    in an archive `sh_offset` of a payload need not be a multiple of `sh_addralign`, a rule that ELF does not have for
    relocatable files. Raises LayoutError for what the class of the file cannot hold, FormatError for a stub that is not
    this target's.
    """
    encoding = elf.Encoding(target.pointer_width, target.byte_order)
    ei_osabi, kept = read_stub(target, stub)
    names = elf.StringTable()  # .shstrtab
    if len(model.sections) > _MAX_SECTIONS:
        raise LayoutError(
            "too many sections",
            expected=f"at most {_MAX_SECTIONS}",
            actual=len(model.sections),
            hint="write several objects",
        )

    # Section numbers are fixed: the model's sections from 1, its windows, the stub's, then relocations and tables.
    relocated = sorted({reference.section for reference in model.references})
    first_kept = 1 + len(model.sections) + len(model.windows)
    first_relocation = first_kept + len(kept)
    symtab = first_relocation + len(relocated)
    extended = first_kept > elf.SHN_LORESERVE  # a symbol may be in a section whose number st_shndx cannot hold
    strtab = symtab + 1 + extended
    shstrtab = strtab + 1
    section_count = shstrtab + 1

    symbols = _Symbols(target, encoding, model)
    contents = Contents()
    headers = [elf.Shdr(0, elf.SHT_NULL, 0, 0, 0, 0, 0, 0, 0)]
    position = encoding.ehdr_size

    def add(
        name: str,
        data: bytes,
        *,
        alignment: int,
        sh_type: int,
        flags: int = 0,
        link: int = 0,
        info: int = 0,
        entsize: int = 0,
    ) -> None:
        nonlocal position
        position = align_up(position, alignment)
        row = elf.Shdr(names.add(name.encode()), sh_type, flags, 0, position, len(data), link, info, alignment, entsize)
        headers.append(row)
        if data:
            contents.pieces.append(Piece(position, data))
        position += len(data)

    for section in model.sections:
        sh_type, sh_flags = _KINDS[section.kind]
        if section.large:
            sh_flags |= target.large_data.sh_flags if target.large_data else 0
        position = _place(section, position + file_offset) - file_offset
        sh_name = names.add(section.name.encode())
        headers.append(elf.Shdr(sh_name, sh_type, sh_flags, 0, position, section.size, 0, 0, section.alignment))
        contents.add_section(section, position)
        position += section.size
    # The gABI has no overlapping sections. Linkers and other tools take these, which are of no section that is linked:
    # GNU ld, lld and mold leave them out, strip and objcopy give each bytes of its own.
    for window in model.windows:
        start = headers[1 + window.section].sh_offset + window.offset
        sh_name = names.add(window.name.encode())
        row = elf.Shdr(sh_name, elf.SHT_PROGBITS, elf.SHF_EXCLUDE, 0, start, window.size, 0, 0, window.alignment)
        headers.append(row)
    for name, sh_type, sh_flags, sh_addralign, sh_entsize, data in kept:
        add(name, data, alignment=sh_addralign, sh_type=sh_type, flags=sh_flags, entsize=sh_entsize)
    # Offsets and sizes of everything that holds payload are fixed.

    is_rel = target.relocation_section == "rel"
    for number in relocated:
        add(
            (".rel" if is_rel else ".rela") + model.sections[number].name,
            _relocations(target, encoding, model, number, symbols, is_rel=is_rel),
            alignment=encoding.word_size,
            sh_type=elf.SHT_REL if is_rel else elf.SHT_RELA,
            flags=elf.SHF_INFO_LINK,
            link=symtab,
            info=1 + number,
            entsize=encoding.rel_size if is_rel else encoding.rela_size,
        )
    table, shndx = symbols.table()
    add(
        ".symtab",
        table,
        alignment=encoding.word_size,
        sh_type=elf.SHT_SYMTAB,
        link=strtab,
        info=symbols.local_count,
        entsize=encoding.sym_size,
    )
    if extended:
        add(".symtab_shndx", shndx, alignment=4, sh_type=elf.SHT_SYMTAB_SHNDX, link=symtab, entsize=4)
    add(".strtab", symbols.strings.data(), alignment=1, sh_type=elf.SHT_STRTAB)
    names.add(b".shstrtab")
    add(".shstrtab", names.data(), alignment=1, sh_type=elf.SHT_STRTAB)

    # File layout is fixed. What e_shnum and e_shstrndx cannot hold is in the first section header (extended numbering).
    many, far = section_count >= elf.SHN_LORESERVE, shstrtab >= elf.SHN_LORESERVE
    headers[0] = headers[0]._replace(sh_size=section_count if many else 0, sh_link=shstrtab if far else 0)
    e_shoff = align_up(position, encoding.word_size)
    size = e_shoff + section_count * encoding.shdr_size
    if not encoding.is_64 and size > ELF32_MAX_FILE_SIZE:
        raise LayoutError(
            "too large for a 32-bit object",
            where=target.name,
            expected=f"at most {ELF32_MAX_FILE_SIZE} bytes",
            actual=size,
            hint="split the package",
        )
    contents.pieces.append(Piece(e_shoff, b"".join(map(encoding.shdr, headers))))
    ehdr = elf.Ehdr(
        elf.ET_REL,
        target.e_machine,
        target.e_flags_object,
        e_shoff=e_shoff,
        e_shnum=0 if many else section_count,
        e_shstrndx=elf.SHN_XINDEX if far else shstrtab,
        ei_osabi=ei_osabi,
    )
    return FilePlan(size, [Piece(0, encoding.ehdr(ehdr)), *contents.pieces], contents.copies, contents.pack_offset)


def _place(section: Section, position: int) -> int:
    """Return the file offset of a section that may start at `position`: aligned, its payload at a fast place."""
    alignment = max(section.alignment, 1)
    bulk = bulk_alignment(section.size - section.bulk_offset) if section.copies else 1
    if bulk > 1 and section.bulk_offset % alignment == 0:
        return align_up(position + section.bulk_offset, max(bulk, alignment)) - section.bulk_offset
    return align_up(position, alignment)


class _Symbols:
    """The symbol table: local symbols that relocations need, then the model's, all global, in its order."""

    def __init__(self, target: Target, encoding: elf.Encoding, model: ObjectModel) -> None:
        self._encoding = encoding
        self.strings = elf.StringTable()
        sections = sorted({reference.to for reference in model.references})
        self.number_of_section = {section: 1 + index for index, section in enumerate(sections)}
        # The second relocation of a pair subtracts the place. It needs a symbol right there, since linkers disagree
        # whether its addend is subtracted or added (GNU ld 2.40 adds it for RISC-V).
        places = [(one.section, one.offset) for one in model.references] if len(target.relocation_relative) == 2 else []
        self.number_of_place = {place: 1 + len(sections) + index for index, place in enumerate(places)}
        self.local_count = 1 + len(sections) + len(places)
        section_info = elf.st_info(elf.STB_LOCAL, elf.STT_SECTION)
        place_info = elf.st_info(elf.STB_LOCAL, elf.STT_NOTYPE)
        self._rows: list[tuple[str, int, int, int | None, int, int]] = [
            *(("", section_info, elf.STV_DEFAULT, section, 0, 0) for section in sections),
            *(
                (f".L{index}", place_info, elf.STV_DEFAULT, section, offset, 0)
                for index, (section, offset) in enumerate(places)
            ),
            *(
                (
                    symbol.name,
                    elf.st_info(elf.STB_GLOBAL, _TYPES[symbol.type]),
                    _VISIBILITIES[symbol.visibility],
                    symbol.section,
                    symbol.value,
                    symbol.size,
                )
                for symbol in model.symbols
            ),
        ]

    def table(self) -> tuple[bytes, bytes]:
        """Return the contents of .symtab and .symtab_shndx."""
        rows = [self._encoding.sym(elf.Sym(0, 0, 0, 0, 0, 0))]
        shndx = [0]
        for name, info, other, section, value, size in self._rows:
            if not self._encoding.is_64 and max(value, size) > ELF32_MAX_FILE_SIZE:
                raise LayoutError(
                    "too large for a 32-bit object", where=f"symbol {shown(name)}", actual=max(value, size)
                )
            index, extended = (elf.SHN_ABS, 0) if section is None else _shndx(section)
            rows.append(self._encoding.sym(elf.Sym(self.strings.add(name.encode()), info, other, index, value, size)))
            shndx.append(extended)
        return b"".join(rows), self._encoding.u32(*shndx)


def _shndx(section: int) -> tuple[int, int]:
    """Return st_shndx of a symbol in a section of the model, and its entry in .symtab_shndx."""
    index = 1 + section
    return (elf.SHN_XINDEX, index) if index >= elf.SHN_LORESERVE else (index, 0)


def _relocations(
    target: Target, encoding: elf.Encoding, model: ObjectModel, section: int, symbols: _Symbols, *, is_rel: bool
) -> bytes:
    add, *subtract = target.relocation_relative
    rows = []
    for reference in model.references:
        if reference.section != section:
            continue
        symbol = symbols.number_of_section[reference.to]
        if is_rel:
            rows.append(encoding.rel(reference.offset, symbol, add))
        else:
            rows.append(encoding.rela(reference.offset, symbol, add, 0))
        rows += (
            encoding.rela(reference.offset, symbols.number_of_place[section, reference.offset], r_type, 0)
            for r_type in subtract
        )
    return b"".join(rows)
