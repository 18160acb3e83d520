"""The check after writing of COFF and PE: it passes what is right, and names the field that is not."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emitter.check import check
from emitter.errors import OutputError
from emitter.targets import load
from tests.coff_files import TARGET_NAMES, every_target, plan_output
from tests.elf_images import package_of, pattern, render

if TYPE_CHECKING:
    from pathlib import Path

    from emitter.options import Format
    from emitter.targets._base import Target

PAYLOADS = {"a": pattern(5000, 1), "b": pattern(64, 2), "empty": b"", "z": pattern(300, 3)}
every_format = pytest.mark.parametrize("format_", ["object", "archive", "library"])


class Output:
    """An output in memory, with what `check` compares it with."""

    def __init__(self, format_: Format, target: Target) -> None:
        self.format = format_
        self.target = target
        self.plan, self.pack = plan_output(target, format_, package_of(PAYLOADS))
        self.data = bytearray(render(self.plan, self.pack))

    def check(self, path: Path) -> None:
        """Write the output at `path` and check it."""
        path.write_bytes(self.data)
        fd = os.open(path, os.O_RDONLY)
        try:
            check(fd, self.format, self.target, self.plan, self.pack, "model")
        finally:
            os.close(fd)

    def find(self, place: str) -> int:
        """Return the file offset of a place of a DLL or an object, read from the file."""
        if place == "file":
            return 0
        if place == "pack":
            assert self.plan.pack_offset is not None
            return self.plan.pack_offset
        if place == "symbols":
            return int(struct.unpack_from("<I", self.data, 8)[0])
        if place == "section":
            return 20 if self.format == "object" else 64 + 4 + 20 + 240
        directory = int(struct.unpack_from("<I", self.data, 64 + 4 + 20 + 112)[0])
        tables = struct.unpack_from("<3I", self.data, directory + 28)
        return int({"directory": directory, "functions": tables[0], "names": tables[1], "ordinals": tables[2]}[place])


@every_target
@every_format
def test_what_is_right_passes(format_: Format, name: str, tmp_path: Path) -> None:
    Output(format_, load(name)).check(tmp_path / "file")


def fails(output: Output, at: int, fault: bytes, field: str, path: Path) -> None:
    assert output.data[at : at + len(fault)] != fault
    output.data[at : at + len(fault)] = fault
    with pytest.raises(OutputError) as caught:
        output.check(path)
    assert field in str(caught.value.where)
    assert caught.value.expected is not None
    assert caught.value.actual is not None
    assert caught.value.hint


COFF, OPTIONAL = 64 + 4, 64 + 4 + 20  # of the DLL's headers

# Faults of a DLL for x86-64: (place, offset from it, bytes, field that the error names).
IMAGE_FAULTS = [
    ("file", 0, b"X", "e_magic"),
    ("file", 60, b"\xff\xff\xff\xff", "signature"),
    ("file", 64, b"X", "signature"),
    ("file", COFF, b"\x64\xaa", "Machine"),
    ("file", COFF + 2, b"\xff\xff", "section headers"),
    ("file", COFF + 4, b"\1", "TimeDateStamp"),
    ("file", COFF + 8, b"\1", "PointerToSymbolTable"),
    ("file", COFF + 16, b"\xe0", "SizeOfOptionalHeader"),
    ("file", COFF + 18, b"\x23", "Characteristics"),  # IMAGE_FILE_RELOCS_STRIPPED
    ("file", OPTIONAL, b"\x0b\1", "Magic"),
    ("file", OPTIONAL + 16, b"\1", "AddressOfEntryPoint"),
    ("file", OPTIONAL + 24, b"\1", "ImageBase"),
    ("file", OPTIONAL + 36, b"\0\2", "FileAlignment"),
    ("file", OPTIONAL + 40, b"\5", "versions"),
    ("file", OPTIONAL + 56, b"\1", "SizeOfImage"),
    ("file", OPTIONAL + 60, b"\1", "SizeOfHeaders"),
    ("file", OPTIONAL + 64, b"\1", "CheckSum"),
    ("file", OPTIONAL + 68, b"\3", "Subsystem"),
    ("file", OPTIONAL + 70, b"\x20", "DllCharacteristics"),  # neither ASLR nor NX
    ("file", OPTIONAL + 108, b"\1", "NumberOfRvaAndSizes"),
    ("file", OPTIONAL + 112, b"\xff\xff\xff", "export directory"),
    ("file", OPTIONAL + 112 + 5 * 8, b"\1", "data directories"),  # relocations
    ("section", 0, b"X", ""),
    ("section", 8, b"\xff\xff", ".rdata"),
    ("section", 12, b"\1", "VirtualAddress of .rdata"),
    ("section", 20, b"\1", "PointerToRawData of .rdata"),
    ("section", 36, b"\x60", "Characteristics of .rdata"),
    ("section", 39, b"\xc0", "Characteristics of .rdata"),  # writable
    ("section", 40, b"X", ".emitter"),
    ("section", 40 + 8, b"\1", ".emitter"),
    ("section", 40 + 24, b"\1", "relocations and line numbers of .emitter"),
    ("directory", 4, b"\1", "time stamp"),
    ("directory", 12, b"\xff\xff\xff\xff", "in the directory"),  # the DLL's name
    ("directory", 16, b"\2", "ordinal base"),
    ("directory", 20, b"\1", "NumberOfNames"),
    ("directory", 28, b"\xff\xff\xff\x7f", "in the directory"),
    ("names", 0, b"\0\0\0\0", "in the directory"),
    ("ordinals", 2, b"\1\1", "ordinal of model"),
    ("ordinals", 2, b"\2", "address of model"),
    ("functions", 4, b"\x09\x10", "not the name of another DLL's export"),
    ("functions", 4, b"\0\0\0\0", "address of model"),
    ("pack", 0, b"X", "magic of the pack"),
    ("pack", 24, b"X", "total_size of the pack"),
    ("pack", 200, b"X", "index_crc32c of the pack"),
    ("directory", -8, b"\1", "model_size"),
]


@pytest.mark.parametrize(("place", "offset", "fault", "field"), IMAGE_FAULTS)
def test_library_fault_is_named(place: str, offset: int, fault: bytes, field: str, tmp_path: Path) -> None:
    output = Output("library", load("x86_64-windows-msvc"))
    if field:
        fails(output, output.find(place) + offset, fault, field, tmp_path / "file")
        return
    output.data[output.find(place)] ^= 1  # a section may be called as it likes
    output.check(tmp_path / "file")


def test_names_of_exports_out_of_order_are_found(tmp_path: Path) -> None:
    output = Output("library", load("x86_64-windows-msvc"))
    at = output.find("names")
    first, second = output.data[at : at + 4], output.data[at + 4 : at + 8]
    fails(output, at, bytes(second + first), "names of exports", tmp_path / "file")


# Faults of an object: (place, offset from it, bytes, field that the error names).
OBJECT_FAULTS = [
    ("file", 0, b"\x4c\x01", "Machine"),
    ("file", 4, b"\1", "TimeDateStamp"),
    ("file", 8, b"\xff\xff\xff\xff", "symbol table"),
    ("file", 12, b"\xff", "symbol table"),
    ("file", 16, b"\x10", "SizeOfOptionalHeader"),
    ("file", 18, b"\1", "Characteristics"),
    ("section", 16, b"\xff\xff\xff", ".rdata"),
    ("section", 40 + 20, b"\1", "sections that begin with the pack"),
    ("section", 40 + 32, b"\1", "relocations and line numbers of .emitter"),
    ("section", 40 + 36, b"\x80", "Characteristics of the pack's section"),
    ("section", 40 + 38, b"\x50", "alignment of the pack's section"),
    ("symbols", 18 + 8, b"\1", "(SectionNumber, Value) of model"),
    ("symbols", 18 + 12, b"\1", "(SectionNumber, Value) of model"),
    ("symbols", 18 + 12, b"\7", "SectionNumber of model"),
    ("symbols", 18 + 16, b"\3", "StorageClass"),
    ("symbols", 18 + 17, b"\1", "NumberOfAuxSymbols of model"),
    ("symbols", 18, b"M", "symbol model is there, once"),
    ("symbols", 18, b"\0\0\0\0\0\0\0\0", "name of symbol"),
    ("pack", 0, b"X", "magic of the pack"),
    ("pack", 150, b"X", "index_crc32c of the pack"),
]


@pytest.mark.parametrize(("place", "offset", "fault", "field"), OBJECT_FAULTS)
@pytest.mark.parametrize("format_", ["object", "archive"])
def test_object_fault_is_named(
    format_: Format, place: str, offset: int, fault: bytes, field: str, tmp_path: Path
) -> None:
    lone = Output("object", load("x86_64-windows-msvc"))
    at = lone.find(place) + offset
    output = Output(format_, lone.target)
    if format_ == "archive":
        start = output.data.index(bytes(lone.data[:4]), 8)  # of the member: where its machine stands
        table = struct.unpack_from("<I", output.data, start + 8)[0]
        at = {"pack": output.find("pack") + offset, "symbols": start + table + offset}.get(place, start + at)
    fails(output, at, fault, field, tmp_path / "file")


def test_size_of_another_value_is_found(tmp_path: Path) -> None:
    output = Output("object", load("i686-windows-gnu"))
    at = output.data.index(output.pack.total_size.to_bytes(4, "little"), 100)
    fails(output, at, b"\1", "content of model_size", tmp_path / "file")


@pytest.mark.parametrize(
    ("offset", "fault", "field"),
    [
        (0, b"?", "magic of the archive"),
        (8 + 58, b"?", "end of the member header"),
        (8 + 48, b"x", "size of the member"),
        (8 + 48, b"9999999999", "end of member"),
        (68, b"\x7f", "first symbol index"),
        (72, b"\0\0\0\7", "second index"),
        (87, b"\0\0\0\7", "symbols of the second index"),
        (88, b"X", "symbols of the second index"),
    ],
)
def test_archive_fault_is_named(offset: int, fault: bytes, field: str, tmp_path: Path) -> None:
    fails(Output("archive", load("x86_64-windows-msvc")), offset, fault, field, tmp_path / "file")


@pytest.mark.parametrize(
    ("offset", "fault", "field"),
    [
        (1, b"/", "number of symbol indexes"),
        (60, b"\xff\xff\xff", "second symbol index"),
        (64, b"\1", "members of the second symbol index"),
        (68, b"\xff\xff", "second symbol index"),
        (72, b"\2", "numbers members"),
        (72, b"\0", "numbers members"),
    ],
)
def test_fault_of_the_second_index_is_named(offset: int, fault: bytes, field: str, tmp_path: Path) -> None:
    output = Output("archive", load("x86_64-windows-msvc"))
    second = output.data.index(b"/ ", 70)
    fails(output, second + offset, fault, field, tmp_path / "file")


@every_format
@pytest.mark.parametrize("change", [-1, 1])
def test_another_size_is_refused(format_: Format, change: int, tmp_path: Path) -> None:
    output = Output(format_, load("x86_64-windows-msvc"))
    output.data = output.data[:-1] if change < 0 else output.data + b"\0"
    with pytest.raises(OutputError) as caught:
        output.check(tmp_path / "file")
    assert caught.value.where == "size of the file"


@settings(max_examples=300, deadline=None)
@given(data=st.data(), name=st.sampled_from(TARGET_NAMES))
def test_no_damage_ends_in_another_error(
    data: st.DataObject, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    format_: Format = data.draw(st.sampled_from(["library", "object", "archive"]))
    output = Output(format_, load(name))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, min(len(output.data), 600) - 1) | st.integers(0, len(output.data) - 1))
        output.data[at] = data.draw(st.integers(0, 255))
    try:
        output.check(tmp_path_factory.getbasetemp() / "damaged")
    except OutputError as error:
        assert error.where  # that, or nothing: any other exception is a fault of the check


def test_empty_tensors_pass(tmp_path: Path) -> None:
    """Symbols of a tensor without bytes may stand where the pack ends."""
    for format_ in ("object", "library"):
        plan, pack = plan_output(load("x86_64-windows-msvc"), format_, package_of({"a": pattern(10), "z": b""}))
        path = tmp_path / "file"
        path.write_bytes(render(plan, pack))
        with path.open("rb") as file:
            check(file.fileno(), format_, load("x86_64-windows-msvc"), plan, pack, "model")
