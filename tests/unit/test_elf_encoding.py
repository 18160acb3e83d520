"""The records of `emitter.elf`, read back by pyelftools."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from elftools.elf.hash import ELFHashTable, GNUHashTable
from elftools.elf.structs import ELFStructs
from hypothesis import given
from hypothesis import strategies as st

from emitter import elf

if TYPE_CHECKING:
    from emitter.package import ByteOrder

ENCODINGS: list[tuple[int, ByteOrder]] = [(32, "little"), (32, "big"), (64, "little"), (64, "big")]


def structs_of(width: int, byte_order: ByteOrder) -> ELFStructs:
    structs = ELFStructs(little_endian=byte_order == "little", elfclass=width)
    structs.create_basic_structs()
    structs.create_advanced_structs("ET_DYN", "EM_X86_64", "ELFOSABI_SYSV")
    return structs


@pytest.mark.parametrize(("width", "byte_order"), ENCODINGS)
def test_records_are_read_back(width: int, byte_order: ByteOrder) -> None:
    encoding, structs = elf.Encoding(width, byte_order), structs_of(width, byte_order)

    header = elf.Ehdr(elf.ET_DYN, 62, 0x5000400, e_phoff=64, e_phnum=9, e_shoff=0x12340, e_shnum=15, e_shstrndx=14)
    ehdr = structs.Elf_Ehdr.parse(encoding.ehdr(header._replace(ei_osabi=3)))
    assert ehdr["e_ident"]["EI_CLASS"] == f"ELFCLASS{width}"
    assert ehdr["e_ident"]["EI_DATA"] == ("ELFDATA2LSB" if byte_order == "little" else "ELFDATA2MSB")
    assert ehdr["e_ident"]["EI_OSABI"] == "ELFOSABI_LINUX"
    assert (ehdr["e_type"], ehdr["e_machine"], ehdr["e_version"]) == ("ET_DYN", "EM_X86_64", "EV_CURRENT")
    for name in ("e_flags", "e_phoff", "e_phnum", "e_shoff", "e_shnum", "e_shstrndx"):
        assert ehdr[name] == getattr(header, name), name
    assert (ehdr["e_ehsize"], ehdr["e_phentsize"], ehdr["e_shentsize"]) == (
        structs.Elf_Ehdr.sizeof(), structs.Elf_Phdr.sizeof(), structs.Elf_Shdr.sizeof(),
    )  # fmt: skip

    phdr = elf.Phdr(elf.PT_LOAD, elf.PF_R | elf.PF_W, 0x1000, 0x2000, 0x3000, 0x40, 0x50, 0x10000)
    parsed = structs.Elf_Phdr.parse(encoding.phdr(phdr))
    assert {name: parsed[name] for name in phdr._fields} == phdr._asdict() | {"p_type": "PT_LOAD"}

    shdr = elf.Shdr(7, elf.SHT_PROGBITS, 3, 0x1000, 0x2000, 0x30, 4, 5, 64, 24)
    parsed = structs.Elf_Shdr.parse(encoding.shdr(shdr))
    assert {name: parsed[name] for name in shdr._fields} == shdr._asdict() | {"sh_type": "SHT_PROGBITS"}

    sym = elf.Sym(9, elf.st_info(elf.STB_GLOBAL, elf.STT_OBJECT), elf.STV_PROTECTED, 11, 0x4000, 0x123)
    parsed = structs.Elf_Sym.parse(encoding.sym(sym))
    assert (parsed["st_name"], parsed["st_shndx"], parsed["st_value"], parsed["st_size"]) == (9, 11, 0x4000, 0x123)
    assert (parsed["st_info"]["bind"], parsed["st_info"]["type"]) == ("STB_GLOBAL", "STT_OBJECT")
    assert parsed["st_other"]["visibility"] == "STV_PROTECTED"

    dyn = structs.Elf_Dyn.parse(encoding.dyn(elf.DT_SONAME, 77))
    assert (dyn["d_tag"], dyn["d_val"]) == ("DT_SONAME", 77)

    rela = structs.Elf_Rela.parse(encoding.rela(0x44, 5, 24, -16))
    assert (rela["r_offset"], rela["r_info_sym"], rela["r_info_type"], rela["r_addend"]) == (0x44, 5, 24, -16)
    rel = structs.Elf_Rel.parse(encoding.rel(0x48, 6, 3))
    assert (rel["r_offset"], rel["r_info_sym"], rel["r_info_type"]) == (0x48, 6, 3)


@pytest.mark.parametrize(("width", "byte_order"), ENCODINGS)
def test_an_object_without_program_headers_says_size_0(width: int, byte_order: ByteOrder) -> None:
    ehdr = structs_of(width, byte_order).Elf_Ehdr.parse(elf.Encoding(width, byte_order).ehdr(elf.Ehdr(elf.ET_REL, 62)))
    assert (ehdr["e_phentsize"], ehdr["e_phnum"]) == (0, 0)


@pytest.mark.parametrize(
    ("name", "sysv", "gnu"),
    [
        (b"", 0, 0x1505),
        (b"printf", 0x077905A6, 0x156B2BB8),
        (b"exit", 0x0006CF04, 0x7C967E3F),
        (b"syscall", 0x0B09985C, 0xBAC212A0),
    ],
)
def test_hashes_of_known_names(name: bytes, sysv: int, gnu: int) -> None:
    assert (elf.elf_hash(name), elf.gnu_hash(name)) == (sysv, gnu)


@given(st.text(min_size=1, max_size=300))
def test_hashes_agree_with_pyelftools(name: str) -> None:
    data = name.encode()
    assert elf.elf_hash(data) == ELFHashTable.elf_hash(name)
    assert elf.gnu_hash(data) == GNUHashTable.gnu_hash(name)


@given(st.lists(st.binary(max_size=20).filter(lambda text: b"\0" not in text)))
def test_string_table_holds_every_string_once(texts: list[bytes]) -> None:
    table = elf.StringTable()
    offsets = [table.add(text) for text in texts]
    data = table.data()
    assert len(data) == table.size == 1 + sum(len(text) + 1 for text in set(texts) - {b""})
    for text, offset in zip(texts, offsets, strict=True):
        assert data[offset : data.index(b"\0", offset)] == text


@pytest.mark.parametrize("alignment", [4, 8])
@pytest.mark.parametrize("owner", [b"GNU\0", b"emitter\0", b"Linux\0"])
@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 8])
def test_notes_are_padded_to_their_alignment(alignment: int, owner: bytes, size: int) -> None:
    note = elf.Encoding(64, "big").note(owner, 5, b"d" * size, alignment)
    desc = -(-(12 + len(owner)) // alignment) * alignment
    assert len(note) == -(-(desc + size) // alignment) * alignment
    assert note[:12] == len(owner).to_bytes(4, "big") + size.to_bytes(4, "big") + b"\0\0\0\5"
    assert note[12:desc] == owner.ljust(desc - 12, b"\0")
    assert note[desc:] == (b"d" * size).ljust(len(note) - desc, b"\0")


@pytest.mark.parametrize(("width", "byte_order"), ENCODINGS)
@pytest.mark.parametrize("offset", [0, 1, -1, -0x7FFFFFFF])
def test_pack_note_holds_a_signed_distance(width: int, byte_order: ByteOrder, offset: int) -> None:
    encoding = elf.Encoding(width, byte_order)
    note = encoding.pack_note(offset, 0x1234, 2, 3)
    structs = structs_of(width, byte_order)
    header = structs.Elf_Nhdr.parse_stream(io.BytesIO(note))
    word = width // 8
    assert (header["n_namesz"], header["n_descsz"]) == (8, 2 * word + 8)
    desc = note[elf.PACK_NOTE_DESC :]
    assert int.from_bytes(desc[:word], byte_order, signed=True) == offset
    assert int.from_bytes(desc[word : 2 * word], byte_order) == 0x1234
    assert int.from_bytes(desc[2 * word : 2 * word + 4], byte_order) == 0x20003
    assert desc[2 * word + 4 :] == bytes(4)
