"""The check of ELF objects and shared libraries after writing.

Source: System V gABI, chapters 4 and 5; the GNU hash table as glibc reads it.
"""

from __future__ import annotations

from emitter.check.pack import check_pack_at, check_pack_within, open_output
from emitter.check.readback import (
    DT_GNU_HASH,
    DT_HASH,
    DT_STRSZ,
    DT_STRTAB,
    DT_SYMENT,
    DT_SYMTAB,
    Reader,
    Segments,
    SymbolTable,
    difference,
    expect,
    read_header,
    read_sections,
    require,
    text,
)
from emitter.layout import BUILD_ID_SIZE
from emitter.pack import format as fmt
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from emitter.check.readback import Sym
    from emitter.layout import FilePlan
    from emitter.pack.plan import PackPlan
    from emitter.targets._base import Target

__all__ = ["check_image", "check_object"]

_MAX_LOOKUPS = 1000  # names that are looked up in the hash tables

_FORBIDDEN_TAGS = {
    1: "DT_NEEDED",
    12: "DT_INIT",
    13: "DT_FINI",
    22: "DT_TEXTREL",
    25: "DT_INIT_ARRAY",
    26: "DT_FINI_ARRAY",
}
_REQUIRED_TAGS = {
    DT_HASH: "DT_HASH",
    DT_STRTAB: "DT_STRTAB",
    DT_SYMTAB: "DT_SYMTAB",
    DT_STRSZ: "DT_STRSZ",
    DT_SYMENT: "DT_SYMENT",
    14: "DT_SONAME",
    DT_GNU_HASH: "DT_GNU_HASH",
}
_OBJECT_GLOBAL = 0x11  # st_info
_PROTECTED = 3  # st_other


def check_image(fd: int, target: Target, plan: FilePlan, pack: PackPlan | None, symbol: str | None) -> None:
    """Check an ELF shared library: what a loader would meet, field by field."""
    reader = open_output(fd, target, plan)
    header = read_header(reader, target, e_type=3, e_flags=target.e_flags_image)
    expect("e_ident[EI_OSABI]", reader.read(7, 1, "e_ident")[0], target.ei_osabi)
    read_sections(reader, header)
    segments = Segments(reader, target, header)
    if plan.build_id_offset is not None:
        require("the build id is written", any(reader.read(plan.build_id_offset, BUILD_ID_SIZE, "the build id")))
    dynamic = _check_dynamic(reader, segments)
    table = SymbolTable(reader, segments, dynamic, target.hash_word_size)
    if pack is None or symbol is None:
        return
    check_pack_at(reader, plan, pack)
    address = _check_note(reader, segments, plan, pack)
    for name in (symbol, "emitter_pack"):
        sym = _check_export(table, name.encode())
        expect(f"(st_value, st_size) of {name}", (sym.st_value, sym.st_size), (address, pack.total_size))
    sym = _check_export(table, f"{symbol}_size".encode())
    expect(f"st_size of {symbol}_size", sym.st_size, reader.word)
    at = segments.offset(sym.st_value, reader.word, f"{symbol}_size")
    expect(f"content of {symbol}_size", reader.unpack(reader.word_code, at, "size"), (pack.total_size,))
    for number in range(1, table.count, 1 + table.count // _MAX_LOOKUPS):
        name_bytes = table.name(number)
        expect(f"number of the symbol {text(name_bytes)}", table.find(name_bytes), number)
        sym = _check_export(table, name_bytes)
        if name_bytes != f"{symbol}_size".encode():
            inside = address <= sym.st_value and sym.st_value + sym.st_size <= address + pack.total_size
            require(f"symbol {text(name_bytes)} lies in the pack", inside)


def check_object(
    fd: int,
    target: Target,
    plan: FilePlan,
    pack: PackPlan | None,
    symbol: str | None,
    *,
    member: tuple[int, int] | None = None,
) -> bool:
    """Check an ELF object, or `member` (offset, size in bytes) of an archive; return whether it holds the pack."""
    reader = open_output(fd, target, plan, member)
    header = read_header(reader, target, e_type=1, e_flags=target.e_flags_object)
    sections = read_sections(reader, header)
    if target.image_suffix is not None:  # on bare metal nobody reads it
        require("section .note.GNU-stack is there", any(name == b".note.GNU-stack" for name, _ in sections))
    at = check_pack_within(reader, plan, pack)
    if pack is None or at is None:
        return False
    holders = [
        number for number, (_, row) in enumerate(sections) if row.sh_type == 1 and row.sh_offset == at and row.sh_size
    ]
    expect("number of sections that begin with the pack", len(holders), 1)
    holder = sections[holders[0]][1]
    expect("sh_size of the pack's section", holder.sh_size, pack.total_size)
    expect("sh_flags & (SHF_WRITE | SHF_ALLOC) of the pack's section", holder.sh_flags & 3, 2)
    symtab = next((row for _, row in sections if row.sh_type == 2), None)
    if symbol is None or symtab is None:
        require("section .symtab is there", symtab is not None)
        return True
    strtab = sections[symtab.sh_link][1]
    strings = reader.read(strtab.sh_offset, strtab.sh_size, ".strtab")
    syms = reader.syms(symtab.sh_offset, symtab.sh_size, ".symtab")
    for name, size in ((symbol, pack.total_size), (f"{symbol}_size", reader.word)):
        st_name = strings.find(b"\0" + name.encode() + b"\0") + 1
        found = [sym for sym in syms if sym.st_name == st_name]
        require(f"symbol {name} is there, once", bool(st_name) and len(found) == 1)
        expect(f"st_info of {name}", found[0].st_info, _OBJECT_GLOBAL)
        expect(f"st_size of {name}", found[0].st_size, size)
        if name == symbol:
            expect(f"(st_shndx, st_value) of {name}", (found[0].st_shndx, found[0].st_value), (holders[0], 0))
    return True


def _check_note(reader: Reader, segments: Segments, plan: FilePlan, pack: PackPlan) -> int:
    """Find the pack as loaders do, through the note of `emitter`; return its address."""
    for phdr in segments.of(4):  # PT_NOTE
        align = 8 if phdr.p_align == 8 else 4
        at, end = phdr.p_offset, phdr.p_offset + phdr.p_filesz
        reader.bound(at, phdr.p_filesz, "PT_NOTE")
        while at + 12 <= end:
            namesz, descsz, n_type = reader.unpack("3I", at, "note")
            desc = at + 12 + namesz + -(12 + namesz) % align
            require("a note ends within its PT_NOTE", desc + descsz <= end)
            if n_type == 1 and reader.read(at + 12, namesz, "note") == b"emitter\0":
                expect("size of the note's descriptor", descsz, 2 * reader.word + 8)
                distance, size, version, zero = reader.unpack(
                    f"{reader.word_code.lower()}{reader.word_code}2I", desc, "note"
                )
                address = phdr.p_vaddr + desc - phdr.p_offset + distance
                expect("place of the pack in the note", segments.offset(address, size, "the pack"), plan.pack_offset)
                expect("size of the pack in the note", size, pack.total_size)
                expect("version in the note", (version, zero), (fmt.VERSION_MAJOR << 16 | fmt.VERSION_MINOR, 0))
                return address
            at = desc + descsz + -descsz % align
    raise difference("note of emitter", "in a PT_NOTE", "none")


def _check_dynamic(reader: Reader, segments: Segments) -> dict[int, int]:
    """Return the dynamic section: what lookups need is there, and nothing that runs code or wants other files."""
    phdrs = segments.of(2)
    expect("number of PT_DYNAMIC", len(phdrs), 1)
    at, size = phdrs[0].p_offset, phdrs[0].p_filesz
    expect("p_offset of PT_DYNAMIC", at, segments.offset(phdrs[0].p_vaddr, size, "PT_DYNAMIC"))
    values = reader.unpack(f"{size // reader.word}{reader.word_code}", at, "PT_DYNAMIC")
    dynamic = dict(zip(values[::2], values[1::2], strict=False))
    expect("end of the dynamic section", values[-2:], (0, 0))  # DT_NULL
    for d_tag, name in _FORBIDDEN_TAGS.items():
        require(f"the dynamic section is without {name}", d_tag not in dynamic)
    for d_tag, name in _REQUIRED_TAGS.items():
        require(f"the dynamic section has {name}", d_tag in dynamic)
    expect("DT_FLAGS", dynamic.get(30), 8)  # DF_BIND_NOW
    return dynamic


def _check_export(table: SymbolTable, name: bytes) -> Sym:
    """Check that a name is found as a defined, protected object; return its symbol."""
    sym = table.sym(table.find(name))
    expect(f"(st_info, st_other) of {text(name)}", (sym.st_info, sym.st_other), (_OBJECT_GLOBAL, _PROTECTED))
    require(f"{text(name)} is defined", 0 < sym.st_shndx < 0xFF00)
    return sym
