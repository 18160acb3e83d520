"""ELF files of every cross compiler, read here and by readelf and pyelftools; hostile ones, made by hand."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

import pytest

from cross.table import TOOLCHAINS
from emitter.errors import EmitterError, FormatError
from emitter.inspect import open_file, recognise
from emitter.inspect.elf import ElfFile
from emitter.inspect.second_parser import compare
from emitter.inspect.view import View
from tests.elf_objects import run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SOURCE = """
extern int other(int) __attribute__((weak));
int common_one;
__thread int local_storage = 3;
const int table[4] __attribute__((aligned(64))) = {1, 2, 3, 4};
const int *const pointers[3] = {table, table + 1, table + 3};
static int hidden_one(int x) { return x + table[x & 3]; }
int call(int x) { return other ? other(x) : hidden_one(x) + common_one + local_storage; }
__attribute__((visibility("protected"))) int guarded(void) { return *pointers[1]; }
"""
VERSIONS = "V_1 { global: call; guarded; };\nV_2 { global: table; pointers; local: *; } V_1;\n"
NAMES = [toolchain.name for toolchain in TOOLCHAINS]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """Return a function that compiles the source once for a toolchain, as `.o` or as `.so` with versions."""
    known: dict[tuple[str, str], Path] = {}

    def build(name: str, suffix: str) -> Path:
        if (name, suffix) not in known:
            compiler = next(toolchain.c for toolchain in TOOLCHAINS if toolchain.name == name)
            folder = tmp_path_factory.mktemp(name)
            (folder / "a.c").write_text(SOURCE)
            (folder / "v").write_text(VERSIONS)
            output = folder / f"a{suffix}"
            flags = ["-c"] if suffix == ".o" else ["-shared", f"-Wl,--version-script={folder / 'v'},-soname,liba.so.1"]
            run(compiler, "-fPIC", "-fcommon", "-g", "-O1", str(folder / "a.c"), "-o", str(output), *flags, "-lm")
            known[name, suffix] = output
        return known[name, suffix]

    return build


def _elf(path: Path) -> ElfFile:
    reader = open_file(path).reader
    assert isinstance(reader, ElfFile)
    return reader


@pytest.mark.parametrize("suffix", [".o", ".so"])
@pytest.mark.parametrize("name", NAMES)
def test_headers_dynamic_section_and_symbols_are_those_of_pyelftools(
    name: str, suffix: str, built: Callable[[str, str], Path]
) -> None:
    assert compare(_elf(built(name, suffix))) == []


@pytest.mark.parametrize("suffix", [".o", ".so"])
@pytest.mark.parametrize("name", NAMES)
def test_relocations_are_those_of_readelf(name: str, suffix: str, built: Callable[[str, str], Path]) -> None:
    path = built(name, suffix)
    elf = _elf(path)
    expected = re.findall(
        r"^([0-9a-f]{8,16}) +([0-9a-f]{8,16}) +R_", run("readelf", "-rW", str(path)).stdout, re.MULTILINE
    )
    shift = 32 if elf.is_64 else 8
    ours = [(f"{r.r_offset:x}", f"{r.r_sym << shift | r.r_type:x}") for r in elf.relocations()]
    assert ours == [(offset.lstrip("0") or "0", info.lstrip("0") or "0") for offset, info in expected]
    assert ours


@pytest.mark.parametrize("name", NAMES)
def test_versions_are_those_of_readelf(name: str, built: Callable[[str, str], Path]) -> None:
    elf = _elf(built(name, ".so"))
    text = run("readelf", "--dyn-syms", "-W", str(built(name, ".so"))).stdout
    expected = {match[0] for match in re.findall(r" ([\w.]+@@?[\w.]+)( \(\d+\))?$", text, re.MULTILINE)}
    (table,) = (table for table in elf.symbol_tables if table.name == "dynsym")
    # readelf marks the default version @@ in definitions alone, and says no version of the symbol that names one.
    ours = {
        f"{s.name}{'@' if s.hidden_version or not s.st_shndx else '@@'}{s.version}"
        for s in elf.symbols(table)
        if s.version not in ("", s.name)
    }
    assert ours == expected
    assert {"call@@V_1", "table@@V_2"} <= ours
    assert [definition.names for definition in elf.versions_defined] == [("liba.so.1",), ("V_1",), ("V_2", "V_1")]
    assert elf.soname == "liba.so.1"


@pytest.mark.parametrize("name", NAMES)
def test_symbols_are_found_without_section_headers(
    name: str, built: Callable[[str, str], Path], tmp_path: Path
) -> None:
    elf = _elf(built(name, ".so"))
    (table,) = (table for table in elf.symbol_tables if table.name == "dynsym")
    # Section symbols tell nothing without sections, and GNU_HASH does not count what comes before the exports.
    expected = [(s.name, s.st_value, s.version) for s in elf.symbols(table)]
    data = bytearray(built(name, ".so").read_bytes())
    offset, size = (40, 8) if elf.is_64 else (32, 4)
    data[offset : offset + size] = bytes(size)
    at = 60 if elf.is_64 else 48  # e_shnum and e_shstrndx
    data[at : at + 4] = bytes(4)
    bare = recognise(View.of_bytes(bytes(data), "bare")).reader
    assert isinstance(bare, ElfFile)
    assert bare.shdrs == []
    (table,) = bare.symbol_tables
    assert [(s.name, s.st_value, s.version) for s in bare.symbols(table)] == expected
    assert bare.needed == elf.needed
    assert bare.versions_needed == elf.versions_needed
    # All but the order: readelf's sections of relocations are DT_RELA and DT_JMPREL here.
    places = sorted((r.r_offset, r.r_type, r.r_sym) for r in bare.relocations())
    assert places == sorted((r.r_offset, r.r_type, r.r_sym) for r in elf.relocations())


@pytest.mark.parametrize("name", NAMES)
def test_notes_are_those_of_readelf(name: str, built: Callable[[str, str], Path]) -> None:
    path = built(name, ".so")
    text = run("readelf", "-nW", str(path)).stdout
    expected = {
        (owner, int(size, 16)) for owner, size in re.findall(r"^  (\w+) +0x([0-9a-f]{8})\t", text, re.MULTILINE)
    }
    elf = _elf(path)
    assert {(note.owner, note.desc_size) for note in elf.notes()} == expected
    build_id = re.search(r"Build ID: (\w+)", text)
    found = [elf.desc(note).hex() for note in elf.notes() if note.owner == "GNU" and note.n_type == 3]
    assert found == ([build_id[1]] if build_id else [])


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(("armv7", "riscv"))])
def test_build_attributes_are_those_of_readelf(name: str, built: Callable[[str, str], Path]) -> None:
    path = built(name, ".o")
    text = run("readelf", "-A", str(path)).stdout
    ours = _elf(path).build_attributes
    assert [attribute.name for attribute in ours] == re.findall(r"^ +(Tag_\w+):", text, re.MULTILINE)
    for attribute in ours:
        if isinstance(attribute.value, str) and attribute.value:
            assert f'{attribute.name}: "{attribute.value}"' in text


def test_relative_relocations_are_counted_as_readelf_does(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("extern int a[]; int a[9]; int *p[200] = {[0 ... 150] = a}; int *q = a;")
    run("clang", "--target=x86_64-linux-gnu", "-fPIC", "-c", str(tmp_path / "a.c"), "-o", str(tmp_path / "a.o"))
    command = ("ld.lld", "-shared", "-Bsymbolic", "--pack-dyn-relocs=relr", str(tmp_path / "a.o"))
    run(*command, "-o", str(tmp_path / "a.so"))
    text = run("llvm-readelf", "-r", str(tmp_path / "a.so")).stdout
    assert _elf(tmp_path / "a.so").relr_count() == text.count("R_X86_64_RELATIVE") == 152


# Extended numbering


def _extended(count: int, *, shstrndx: int = 1) -> bytes:
    """Return an object of `count` section headers whose numbers do not fit the file header; section 1 has the names."""
    names = b"\0.names\0.last\0"
    ehdr = b"\x7fELF\2\1\1".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, 128, 0, 64, 0, 0, 64, 0, 0xFFFF
    )
    headers = [struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, count, shstrndx, 0, 0, 0)]
    headers += [struct.pack("<IIQQQQIIQQ", 1, 3, 0, 0, 64, len(names), 0, 0, 1, 0)]
    headers += [struct.pack("<IIQQQQIIQQ", 8, 8, 3, 0, 0, number, 0, 0, 1, 0) for number in range(2, count)]
    return (ehdr + names).ljust(128, b"\0") + b"".join(headers)


def test_extended_numbering_is_read_as_readelf_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "many.o"
    path.write_bytes(_extended(70_000))
    elf = _elf(path)
    assert (elf.shnum, len(elf.shdrs), elf.shstrndx) == (70_000, 70_000, 1)
    assert (elf.section_name(1), elf.section_name(69_999), elf.shdrs[69_999].sh_size) == (".names", ".last", 69_999)
    text = run("readelf", "-hW", str(path)).stdout
    assert "0 (70000)" in text and "65535 (1)" in text


@pytest.mark.parametrize("count", [1 << 21, 1 << 32, 1 << 60])
def test_a_hostile_number_of_sections_is_refused_before_it_is_read(count: int, tmp_path: Path) -> None:
    data = bytearray(_extended(10))
    data[128 + 32 : 128 + 40] = struct.pack("<Q", count)
    path = tmp_path / "hostile.o"
    with path.open("wb") as file:
        file.write(data)
        file.truncate(1 << 34)
    elf = _elf(path)
    with pytest.raises(FormatError, match="too many section headers"):
        _ = elf.shdrs
    with open_file(path) as artefact:
        assert artefact.reader is not None
        faults = artefact.reader.report().faults
    assert [fault.part for fault in faults] == ["sections"]


# Hostile tables


def _library(built: Callable[[str, str], Path]) -> tuple[bytearray, ElfFile]:
    path = built("x86_64-linux-gnu", ".so")
    return bytearray(path.read_bytes()), _elf(path)


def _again(data: bytearray) -> ElfFile:
    reader = recognise(View.of_bytes(bytes(data), "hostile")).reader
    assert isinstance(reader, ElfFile)
    return reader


def test_a_chain_of_versions_that_leaves_its_table_is_refused(built: Callable[[str, str], Path]) -> None:
    data, elf = _library(built)
    place = next(shdr.sh_offset for _, shdr in elf.sections() if shdr.sh_type == 0x6FFFFFFD)
    data[place + 16 : place + 20] = struct.pack("<I", 0x7FFFFFF0)
    with pytest.raises(FormatError):
        _ = _again(data).versions_defined


def test_a_chain_of_versions_that_creeps_is_bounded(built: Callable[[str, str], Path]) -> None:
    data, elf = _library(built)
    number, shdr = next((n, shdr) for n, shdr in elf.sections() if shdr.sh_type == 0x6FFFFFFD)
    # 2^32 - 1 records, each one byte after the other, in a table of a megabyte.
    table = len(data)
    data += struct.pack("<4H3I", 1, 0, 2, 1, 0, 20, 1) * 50_000
    at = elf.ehdr.e_shoff + number * 64
    values = [*shdr]
    values[4], values[5], values[7] = table, len(data) - table, 0xFFFFFFFF
    data[at : at + 64] = struct.pack("<IIQQQQIIQQ", *values)
    with pytest.raises(FormatError):
        _ = _again(data).versions_defined


def test_a_segment_of_zeros_is_no_million_notes(built: Callable[[str, str], Path]) -> None:
    data, elf = _library(built)
    number = next(number for number, _ in elf.segments(4))
    place = len(data)
    data += bytes(12 << 20)
    at = elf.ehdr.e_phoff + number * 56
    data[at : at + 56] = struct.pack("<IIQQQQQQ", 4, 4, place, 0, 0, 12 << 20, 0, 4)
    with pytest.raises(FormatError, match="too many notes"):
        list(_again(data).notes())


@pytest.mark.parametrize("field", [0, 4])
def test_a_note_larger_than_its_segment_is_refused(field: int, built: Callable[[str, str], Path]) -> None:
    data, elf = _library(built)
    place = next(phdr.p_offset for _, phdr in elf.segments(4))
    data[place + field : place + field + 4] = struct.pack("<I", 0xFFFFFFF0)
    with pytest.raises(FormatError, match="is not inside of it"):
        list(_again(data).notes())


def test_symbols_stream(built: Callable[[str, str], Path], tmp_path: Path) -> None:
    """A table of 40 million symbols in a sparse file: the first ones come at once."""
    data, elf = _library(built)
    number, shdr = next((n, shdr) for n, shdr in elf.sections() if shdr.sh_type == 2)
    at = elf.ehdr.e_shoff + number * 64
    values = [*shdr]
    values[4], values[5] = 1 << 20, 24 * 40_000_000
    data[at : at + 64] = struct.pack("<IIQQQQIIQQ", *values)
    path = tmp_path / "sparse.so"
    with path.open("wb") as file:
        file.write(data)
        file.truncate(1 << 30)
    with open_file(path) as artefact:
        assert isinstance(artefact.reader, ElfFile)
        report = artefact.reader.report()
        assert report.symbol_count > 39_999_998
        symbols = report.symbols()
        assert [next(symbols).name for _ in range(100)][-1] == ""


def test_a_hash_table_without_an_end_is_bounded(built: Callable[[str, str], Path], tmp_path: Path) -> None:
    data, elf = _library(built)
    assert not elf.dynamic_values(4), "DT_HASH would be asked first"
    place = elf.offset_of(elf.dynamic_values(0x6FFFFEF5)[0], "DT_GNU_HASH")
    data[40:48], data[60:64] = bytes(8), bytes(4)  # no section headers
    data[place : place + 4] = struct.pack("<I", 1 << 27)
    path = tmp_path / "sparse.so"
    with path.open("wb") as file:
        file.write(data)
        file.truncate(1 << 30)
    with pytest.raises(FormatError, match="too many buckets"):
        _ = _elf(path).symbol_tables


def test_identification_is_checked_before_anything_else() -> None:
    good = _extended(3)
    for place, value, message in ((4, 3, "EI_CLASS"), (4, 0, "EI_CLASS"), (5, 3, "EI_DATA")):
        data = bytearray(good)
        data[place] = value
        with pytest.raises(FormatError, match=message):
            recognise(View.of_bytes(bytes(data), "x"))
    for size in (4, 16, 63):
        with pytest.raises(FormatError, match="does not fit"):
            recognise(View.of_bytes(good[:size], "x"))
    with pytest.raises(EmitterError, match="not an object file"):
        recognise(View.of_bytes(b"\x7fELG" + good[4:], "x"))
