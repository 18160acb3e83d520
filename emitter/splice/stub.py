"""The stub of a target: an empty object that LLVM made. It is read here, with every bound checked, to be built upon.

Source: System V gABI, chapter 4. What a stub may hold is a closed list: a section that nobody expects would mean
something that the layout does not keep.
"""

from __future__ import annotations

from struct import Struct

from emitter import elf
from emitter.errors import FormatError
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from emitter.targets._base import Target

__all__ = ["KeptSection", "read_stub"]

_EHDR_IDENT = 16
_MAX_STUB_SIZE = 64 << 10
_TABLES = (elf.SHT_NULL, elf.SHT_SYMTAB, elf.SHT_STRTAB)  # made anew


class KeptSection(NamedTuple):
    """A section of the stub that goes into the object as it is."""

    name: str
    sh_type: int
    sh_flags: int
    sh_addralign: int
    sh_entsize: int
    contents: bytes


def read_stub(target: Target, stub: bytes) -> tuple[int, list[KeptSection]]:
    """Return EI_OSABI and the sections to keep: the stack note, the property notes, the build attributes.

    Raises FormatError if the stub is not an object of `target`, is damaged, or holds anything else.
    """
    where = f"the stub of {target.name}"
    is_64 = target.pointer_width == 64
    order = "<" if target.byte_order == "little" else ">"
    word = "Q" if is_64 else "I"
    ehdr = Struct(f"{order}HHI3{word}I6H")
    shdr = Struct(f"{order}2I4{word}2I2{word}")
    if not _EHDR_IDENT + ehdr.size <= len(stub) <= _MAX_STUB_SIZE:
        raise FormatError(
            "not a stub", where=where, expected=f"at most {_MAX_STUB_SIZE} bytes of ELF", actual=f"{len(stub)} bytes"
        )
    found = (bytes(stub[:7]), ei_osabi := stub[7])
    expected = elf.ELFMAG + bytes((
        elf.ELFCLASS64 if is_64 else elf.ELFCLASS32,
        elf.ELFDATA2LSB if target.byte_order == "little" else elf.ELFDATA2MSB,
        elf.EV_CURRENT,
    ))  # fmt: skip
    fields = ehdr.unpack_from(stub, _EHDR_IDENT)
    e_type, e_machine, _, _, _, e_shoff, e_flags, *_, e_shentsize, e_shnum, e_shstrndx = fields
    for field, wanted, actual in (
        ("e_ident", (expected, target.ei_osabi), found),
        ("e_type", elf.ET_REL, e_type),
        ("e_machine", target.e_machine, e_machine),
        ("e_flags", target.e_flags_object, e_flags),
        ("e_shentsize", shdr.size, e_shentsize),
    ):
        if wanted != actual:
            raise FormatError(f"{field} is not the target's", where=where, expected=wanted, actual=actual)
    if e_shoff + e_shnum * shdr.size > len(stub) or not e_shstrndx < e_shnum:
        raise FormatError(
            "the section table is outside the file", where=where, actual=f"e_shoff {e_shoff}, e_shnum {e_shnum}"
        )

    headers = [shdr.unpack_from(stub, e_shoff + index * shdr.size) for index in range(e_shnum)]
    for index, header in enumerate(headers):
        if header[1] not in (elf.SHT_NULL, elf.SHT_NOBITS) and header[4] + header[5] > len(stub):
            raise FormatError(
                f"section {index} is outside the file",
                where=where,
                actual=f"sh_offset {header[4]}, sh_size {header[5]}",
            )
    names = stub[headers[e_shstrndx][4] :][: headers[e_shstrndx][5]]
    attributes = target.attributes
    kept = []
    for sh_name, sh_type, sh_flags, _, sh_offset, sh_size, _, _, sh_addralign, sh_entsize in headers:
        end = names.find(b"\0", sh_name)
        if end < 0:
            raise FormatError("a section name is outside its table", where=where, actual=f"sh_name {sh_name}")
        name = names[sh_name:end].decode("ascii", "replace")
        keep = (
            name == ".note.GNU-stack"
            or (name == ".note.gnu.property" and sh_type == elf.SHT_NOTE)
            or (attributes is not None and (name, sh_type) == (attributes.section, attributes.sh_type))
        )
        if keep:
            contents = bytes(stub[sh_offset : sh_offset + sh_size])
            kept.append(KeptSection(name, sh_type, sh_flags, max(sh_addralign, 1), sh_entsize, contents))
        elif sh_type not in _TABLES:
            raise FormatError(
                "holds a section that does not belong into a stub", where=where, actual=f"{name} of type {sh_type:#x}"
            )
    return ei_osabi, kept
