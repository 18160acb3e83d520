"""Universal files: the slices that llvm-lipo put there, and what is no universal file."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

import pytest

from emitter.errors import FormatError, InputError
from emitter.inspect import open_file, recognise
from emitter.inspect.universal import UniversalFile
from emitter.inspect.view import View
from tests.foreign_files import archive, compile_c, run_tool, universal

if TYPE_CHECKING:
    from pathlib import Path

ARCHS = {"arm64": "arm64-apple-macos11", "x86_64": "x86_64-apple-macos11", "arm64e": "arm64e-apple-macos11"}


@pytest.fixture(scope="module")
def thin(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = str(tmp_path_factory.mktemp("universal"))
    return {arch: compile_c(folder, triple, f"int {arch} = 1;", f"{arch}.o") for arch, triple in ARCHS.items()}


def test_slices_are_those_of_llvm_lipo(thin: dict[str, str], tmp_path: Path) -> None:
    path = universal(str(tmp_path), list(thin.values()))
    listed = run_tool("llvm-lipo", "-archs", path).split()
    with open_file(path) as artefact:
        reader = artefact.reader
        assert isinstance(reader, UniversalFile)
        assert [one.machine for one in reader.slices] == listed
        assert not list(reader.faults())
        for member in artefact.members():
            with open(thin[member.name], "rb") as file:
                assert member.view.read(0, member.view.size, "all") == file.read()
            assert member.reader is not None
            report = member.reader.report()
            assert report.base == next(one.offset for one in reader.slices if one.machine == member.name)
            assert f"_{member.name}" in {symbol.name for symbol in report.symbols()}
        text = run_tool("llvm-objdump", "--macho", "--universal-headers", path)
        offsets = [int(one) for one in re.findall(r"^ *offset (\d+)", text, re.MULTILINE)]
        aligns = [int(one) for one in re.findall(r"^ *align 2\^(\d+)", text, re.MULTILINE)]
        assert [(one.offset, one.align) for one in reader.slices] == list(zip(offsets, aligns, strict=True))


def test_archives_in_a_universal_file_are_members(thin: dict[str, str], tmp_path: Path) -> None:
    libraries = [
        archive(str(tmp_path / f"{arch}.a"), [path], "darwin") for arch, path in thin.items() if arch != "arm64e"
    ]
    path = universal(str(tmp_path), libraries)
    with open_file(path) as artefact:
        objects = list(artefact.objects())
        assert [one.name for one in objects] == ["arm64.o", "x86_64.o"] or len(objects) == 2
        assert {one.parent.name for one in objects if one.parent} == {"arm64", "x86_64"}
        assert {one.reader.report().identity.machine for one in objects if one.reader} == {"arm64", "x86_64"}


def _fat64(*slices: tuple[int, int, int], count: int | None = None) -> bytes:
    head = struct.pack(">4sI", b"\xca\xfe\xba\xbf", len(slices) if count is None else count)
    return head + b"".join(struct.pack(">2I2Q2I", 0x0100000C, 0, *one, 0) for one in slices)


def test_64_bit_offsets_are_read(thin: dict[str, str], tmp_path: Path) -> None:
    with open(thin["arm64"], "rb") as file:
        data = file.read()
    path = tmp_path / "fat64"
    path.write_bytes(_fat64((4096, len(data), 12)).ljust(4096, b"\0") + data)
    with open_file(path) as artefact:
        (member,) = artefact.members()
        assert member.kind == "Mach-O object"
    assert "fat_magic FAT_MAGIC_64" in run_tool("llvm-objdump", "--macho", "--universal-headers", str(path))


FAULTS = (
    (_fat64((4097, 64, 12)), "offset is not aligned"),
    (_fat64((4096, 64, 16)), "align is too large"),
    (_fat64((0, 64, 0)), "overlaps the header"),
    (_fat64((4096, 64, 0), (4100, 64, 0)), "overlaps slice arm64"),
    (_fat64((4096, 64, 0), (8192, 64, 0)), "two slices are for one CPU"),
)


@pytest.mark.parametrize(("data", "message"), FAULTS)
def test_a_wrong_table_is_told(data: bytes, message: str) -> None:
    reader = UniversalFile(View.of_bytes(data.ljust(9000, b"\0"), "x"))
    assert message in [fault.what for fault in reader.faults()]
    if "overlaps" in message:
        with pytest.raises(FormatError, match=message):
            list(reader.members())


def test_a_slice_outside_of_the_file_is_an_error() -> None:
    reader = UniversalFile(View.of_bytes(_fat64((4096, 64, 0)), "x"))
    with pytest.raises(FormatError, match="does not fit"):
        list(reader.members())


def test_a_table_that_is_cut_off_is_an_error() -> None:
    with pytest.raises(FormatError):
        UniversalFile(View.of_bytes(_fat64(count=2), "x"))
    with pytest.raises(FormatError, match="nfat_arch"):
        UniversalFile(View.of_bytes(_fat64(count=0), "x"))


@pytest.mark.parametrize("major", [45, 52, 65])
def test_a_java_class_is_no_universal_file(major: int) -> None:
    data = struct.pack(">4s2H", b"\xca\xfe\xba\xbe", 0, major) + bytes(64)
    with pytest.raises(InputError, match="not an object file"):
        recognise(View.of_bytes(data, "X.class"))
