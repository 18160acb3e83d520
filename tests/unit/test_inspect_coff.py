"""COFF objects of every compiler, /bigobj, and import objects, as llvm-readobj and MinGW's objdump read them."""

from __future__ import annotations

import os
import re
import struct
import subprocess
from typing import TYPE_CHECKING

import pytest

from emitter.errors import FormatError, InputError
from emitter.inspect import open_file, recognise
from emitter.inspect.coff import BigObjFile, CoffFile, ImportObject
from emitter.inspect.pe_names import relocation_name
from emitter.inspect.view import View
from tests.c_tools import need
from tests.foreign_files import compile_c, run_tool

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """
extern int far_away(int);
int common_one;
__declspec(selectany) int any_one = 3;
static int local_one = 5;
__attribute__((section(".a_long_section_name"))) const char table[64] __attribute__((aligned(64))) = "table";
__declspec(dllexport) int a_function_with_a_long_name(int x) { return far_away(x) + local_one + any_one + common_one; }
"""
TRIPLES = (
    "x86_64-windows-msvc",
    "i686-windows-msvc",
    "aarch64-windows-msvc",
    "armv7-windows-msvc",
    "x86_64-w64-mingw32",
)


def _of(data: bytes) -> CoffFile:
    with_reader = recognise(View.of_bytes(data, "x.obj")).reader
    assert isinstance(with_reader, CoffFile)
    return with_reader


def _read(path: str) -> CoffFile:
    with open(path, "rb") as file:
        return _of(file.read())


def _blocks(text: str, name: str) -> list[dict[str, str]]:
    """Return the fields of each block `NAME { ... }` that llvm-readobj prints."""
    found = re.findall(rf"^  {name} \{{\n(.*?)^  \}}", text, re.MULTILINE | re.DOTALL)
    return [dict(re.findall(r"^    (\w+): (.*)$", block, re.MULTILINE)) for block in found]


@pytest.mark.parametrize("triple", TRIPLES)
def test_objects_are_read_as_llvm_reads_them(triple: str, tmp_path: Path) -> None:
    path = compile_c(str(tmp_path), triple, SOURCE, "x.obj")
    coff = _read(path)
    text = run_tool("llvm-readobj", "--file-headers", "--sections", "--symbols", path)
    sections = _blocks(text, "Section")
    assert [section.name for section in coff.sections] == [one["Name"].rpartition(" (")[0] for one in sections]
    for field in ("VirtualSize", "VirtualAddress", "PointerToRawData", "PointerToRelocations"):
        values = [getattr(section, field) for section in coff.sections]
        assert values == [int(one[field], 0) for one in sections], field
    assert [one.SizeOfRawData for one in coff.sections] == [int(one["RawDataSize"], 0) for one in sections]
    assert [one.NumberOfRelocations for one in coff.sections] == [int(one["RelocationCount"]) for one in sections]
    assert ".a_long_section_name" in [section.name for section in coff.sections]
    symbols = _blocks(text, "Symbol")
    assert [(symbol.name, symbol.Value, len(symbol.aux) // 18) for symbol in coff.symbols()] == [
        (one["Name"], int(one["Value"], 0), int(one["AuxSymbolCount"])) for one in symbols
    ]
    for symbol, block in zip(coff.symbols(), symbols, strict=True):
        section = re.search(r"\((-?\d+)\)", block["Section"])
        assert section is not None
        assert symbol.SectionNumber == int(section[1])
        assert symbol.external == ("External" in block["StorageClass"])
        assert symbol.function == ("Function" in block["ComplexType"])
    definitions = [symbol.section_definition for symbol in coff.symbols()]
    found = [(one.Length, one.CheckSum, one.Number, one.Selection) for one in definitions if one is not None]
    expected = re.findall(
        r"AuxSectionDef \{\s+Length: (\S+).*?Checksum: (\S+)\s+Number: (\S+)\s+Selection: (?:\w+ \()?(\w+)",
        text,
        re.DOTALL,
    )
    assert found == [(int(a, 0), int(b, 0), int(c, 0), int(d, 0)) for a, b, c, d in expected]
    assert found


@pytest.mark.parametrize("triple", TRIPLES)
def test_relocations_have_their_names(triple: str, tmp_path: Path) -> None:
    path = compile_c(str(tmp_path), triple, SOURCE, "x.obj", "-O1")
    coff = _read(path)
    names = {symbol.number: symbol.name for symbol in coff.symbols()}
    found = [
        (one.VirtualAddress, relocation_name(coff.header.Machine, one.Type), names[one.SymbolTableIndex])
        for section in coff.sections
        for one in coff.relocations(section)
    ]
    text = run_tool("llvm-readobj", "--relocations", path)
    expected = re.findall(r"^ +0x([0-9A-F]+) (\w+) (\S+)", text, re.MULTILINE)
    assert [(f"{at:X}", kind, name) for at, kind, name in found] == expected
    assert found


@pytest.mark.parametrize("power", [0, 1, 4, 6, 12, 13])
def test_alignments_are_the_bits_of_the_section(power: int, tmp_path: Path) -> None:
    source = f"const char x[1] __attribute__((aligned({1 << power}))) = {{1}};"
    coff = _read(compile_c(str(tmp_path), "x86_64-windows-msvc", source, "x.obj"))
    assert next(section.alignment for section in coff.sections if section.name == ".rdata") == 1 << power


def test_weak_symbols_name_what_stands_in(tmp_path: Path) -> None:
    source = "extern int there(void) __attribute__((weak)); int x(void) { return there ? there() : 0; }"
    coff = _read(compile_c(str(tmp_path), "x86_64-windows-msvc", source, "x.obj"))
    symbols = {symbol.number: symbol for symbol in coff.symbols()}
    weak = next(symbol for symbol in symbols.values() if symbol.weak_default is not None)
    assert weak.name == "there"
    assert symbols[weak.weak_default or 0].name.startswith(".weak.there.default")


def test_more_relocations_than_16_bits_count(tmp_path: Path) -> None:
    text = ".globl y\n.data\n.rept 70000\n.quad y\n.endr\n"
    coff = _read(compile_c(str(tmp_path), "x86_64-windows-msvc", text, "x.s.o"))
    section = next(one for one in coff.sections if one.name == ".data")
    assert section.NumberOfRelocations == 0xFFFF
    rows = list(coff.relocations(section))
    assert len(rows) == 70000
    assert rows[-1].VirtualAddress == 8 * 69999


def _assembled(folder: Path, *flags: str) -> str:
    need("x86_64-w64-mingw32-as")
    source, path = folder / "x.s", folder / "x.obj"
    source.write_text(
        '.section .a_long_section_name,"dr"\n.globl table\ntable: .long 1,2\n.text\n.globl f\nf: call g\n'
    )
    subprocess.run(["x86_64-w64-mingw32-as", *flags, str(source), "-o", str(path)], check=True, timeout=300)
    return str(path)


def test_bigobj_is_read_as_the_plain_form_is(tmp_path: Path) -> None:
    plain, big = _read(_assembled(tmp_path)), _read(_assembled(tmp_path, "-mbig-obj"))
    assert isinstance(big, BigObjFile)
    assert not isinstance(plain, BigObjFile)
    assert big.header.bigobj
    assert (big.header.Machine, big.machine) == (plain.header.Machine, plain.machine)
    fields = [(one.name, one.SizeOfRawData, one.Characteristics, one.NumberOfRelocations) for one in plain.sections]
    assert [
        (one.name, one.SizeOfRawData, one.Characteristics, one.NumberOfRelocations) for one in big.sections
    ] == fields
    assert [(one.name, one.SectionNumber, one.Value) for one in big.symbols()] == [
        (one.name, one.SectionNumber, one.Value) for one in plain.symbols()
    ]
    report = big.report()
    assert not report.faults
    assert "table" in {one.name for one in report.symbols()}


def test_many_sections_are_numbered_beyond_16_bits(tmp_path: Path) -> None:
    count = 66000
    text = "".join(f'.section .s{number},"dr"\n.globl s{number}\ns{number}: .byte 1\n' for number in range(count))
    coff = _read(compile_c(str(tmp_path), "x86_64-windows-msvc", text, "x.s.o"))
    assert isinstance(coff, BigObjFile)
    assert len(coff.sections) >= count
    last = next(one for one in coff.symbols() if one.name == f"s{count - 1}")
    assert coff.sections[last.SectionNumber - 1].name == f".s{count - 1}"


def test_the_report_says_what_the_object_is(tmp_path: Path) -> None:
    path = compile_c(str(tmp_path), "x86_64-windows-msvc", SOURCE, "x.obj", "-fcommon")
    with open_file(path) as artefact:
        assert artefact.reader is not None
        report = artefact.reader.report()
        symbols = {one.name: one for one in report.symbols() if one.type not in ("section", "file")}
    assert not report.faults
    assert (report.identity.format, report.identity.machine, report.identity.pointer_width) == ("coff", "x86-64", 64)
    section = next(one for one in report.sections if one.name == ".a_long_section_name")
    assert (section.alignment, section.size, section.type) == (64, 64, "initialized data")
    assert (symbols["table"].place, symbols["table"].binding, symbols["table"].section) == (
        "defined", "global", section.number,
    )  # fmt: skip
    assert symbols["far_away"].place == "undefined"
    assert (symbols["common_one"].place, symbols["common_one"].size) == ("common", 4)
    assert symbols["local_one"].binding == "local"
    assert symbols["a_function_with_a_long_name"].type == "function"


def test_names_in_base64_are_offsets_too() -> None:
    name = b"a_section_beyond_9999999"
    strings = struct.pack("<I", 4 + len(name) + 1) + name + b"\0"
    symbols_at = 20 + 40
    header = struct.pack("<2H3I2H", 0x8664, 1, 0, symbols_at, 0, 0, 0)
    section = struct.pack("<8s6I2HI", b"//AAAAAE", 0, 0, 0, 0, 0, 0, 0, 0, 0x40300040)
    (one,) = _of(header + section + strings).sections
    assert (one.name, one.alignment) == (name.decode(), 4)


def _import_object(folder: Path, definition: str) -> list[ImportObject]:
    path, library = folder / "x.def", folder / "x.lib"
    path.write_text(definition)
    run_tool("llvm-dlltool", "-m", "i386:x86-64", "-d", str(path), "-l", str(library))
    with open_file(library) as artefact:
        readers = [member.reader for member in artefact.members()]
        return [reader for reader in readers if isinstance(reader, ImportObject)]


def test_import_objects_say_what_they_import(tmp_path: Path) -> None:
    found = _import_object(tmp_path, "LIBRARY outer.dll\nEXPORTS\ntable DATA\ntwice\nnamed @7\nnumbered @9 NONAME\n")
    assert [(one.symbol, one.dll, one.import_type, one.name_type) for one in found] == [
        ("table", "outer.dll", "data", "name"),
        ("twice", "outer.dll", "code", "name"),
        ("named", "outer.dll", "code", "name"),
        ("numbered", "outer.dll", "code", "ordinal"),
    ]
    assert [one.header.OrdinalOrHint for one in found][2:] == [7, 9]
    table, twice = found[0].report(), found[1].report()
    assert [one.name for one in table.symbols()] == ["__imp_table"]
    assert [one.name for one in twice.symbols()] == ["__imp_twice", "twice"]
    assert [one.name for one in twice.dependencies] == ["outer.dll"]


def test_import_objects_that_are_cut_off_are_refused() -> None:
    names = b"twice\0outer.dll\0"
    good = struct.pack("<4H2I2H", 0, 0xFFFF, 0, 0x8664, 0, len(names), 3, 1 << 2) + names
    assert isinstance(recognise(View.of_bytes(good, "x")).reader, ImportObject)
    exported = struct.pack("<4H2I2H", 0, 0xFFFF, 0, 0x8664, 0, len(names) + 4, 3, 4 << 2) + names + b"two\0"
    reader = recognise(View.of_bytes(exported, "x")).reader
    assert isinstance(reader, ImportObject)
    assert (reader.name_type, reader.export_as) == ("exportas", "two")
    for data in (good[:-1], good[:20] + b"twice\0outer_dll_", good[:12] + struct.pack("<I", 1 << 30) + good[16:]):
        with pytest.raises(FormatError):
            recognise(View.of_bytes(data, "x"))


BROKEN = (
    (8, "<I", 1 << 30, "symbols"),  # PointerToSymbolTable
    (12, "<I", 1 << 30, "symbols"),  # NumberOfSymbols
    (20 + 16, "<I", 1 << 30, "sections"),  # SizeOfRawData of the first section
    (20 + 24, "<I", 1 << 30, "sections"),  # PointerToRelocations
)


@pytest.mark.parametrize(("offset", "form", "value", "part"), BROKEN)
def test_a_broken_part_is_a_fault_of_the_report(offset: int, form: str, value: int, part: str, tmp_path: Path) -> None:
    with open(compile_c(str(tmp_path), "x86_64-windows-msvc", SOURCE, "x.obj"), "rb") as file:
        data = bytearray(file.read())
    struct.pack_into(form, data, offset, value)
    report = _of(bytes(data)).report()
    assert part in {fault.part for fault in report.faults}


def test_auxiliary_records_beyond_the_table_are_an_error(tmp_path: Path) -> None:
    with open(compile_c(str(tmp_path), "x86_64-windows-msvc", SOURCE, "x.obj"), "rb") as file:
        data = bytearray(file.read())
    at, count = struct.unpack_from("<2I", data, 8)
    data[at + 18 * (count - 1) + 17] = 9
    data[at + 17] = 255
    with pytest.raises(FormatError, match="NumberOfAuxSymbols of symbol 0"):
        list(_of(bytes(data)).symbols())


NO_COFF = {
    "an optional header": struct.pack("<2H3I2H", 0x8664, 1, 0, 0, 0, 240, 0) + bytes(40),
    "sections beyond the end": struct.pack("<2H3I2H", 0x8664, 9, 0, 0, 0, 0, 0) + bytes(40),
    "too short": b"\x64\x86",
    "an unknown anonymous object": struct.pack("<4H", 0, 0xFFFF, 7, 0x8664) + os.urandom(60),
}


@pytest.mark.parametrize("name", NO_COFF)
def test_what_only_begins_like_coff_is_not_taken_for_it(name: str) -> None:
    with pytest.raises(InputError, match="not an object file"):
        recognise(View.of_bytes(NO_COFF[name], "x"))
