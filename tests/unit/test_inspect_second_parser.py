"""Two parsers compared: they agree on sound files, and each way to disagree is a difference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import emitter
from emitter.inspect import open_file, recognise
from emitter.inspect.elf import ElfFile
from emitter.inspect.second_parser import MAX_RECORDS, MAX_SIZE, Difference, compare
from emitter.inspect.view import View
from emitter.package import Package
from tests.elf_objects import TARGET_NAMES, run

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = "const int blob[3] = {1, 2, 3}; int counter; extern int other; int *where(void) { return &other + counter; }"


def _compared(path: Path) -> list[Difference] | None:
    with open_file(path) as artefact:
        (member,) = artefact.objects()
        assert member.reader is not None
        return compare(member.reader)


@pytest.mark.parametrize("target", TARGET_NAMES)
def test_emitted_objects_are_read_alike(target: str, tmp_path: Path) -> None:
    package = Package()
    package.add_raw("w", bytes(range(99)))
    emitter.emit(package, tmp_path / "w.o", target=target, tensor_symbols=True)
    assert _compared(tmp_path / "w.o") == []


@pytest.mark.parametrize(
    "triple", ["arm64-apple-macos11", "x86_64-apple-macos11", "x86_64-windows-msvc", "aarch64-windows-msvc"]
)
def test_objects_of_other_systems_are_read_alike(triple: str, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text(SOURCE)
    run("clang", f"--target={triple}", "-c", "-O1", "-g", str(tmp_path / "a.c"), "-o", str(tmp_path / "a.o"))
    assert _compared(tmp_path / "a.o") == []


def test_a_dll_is_read_alike(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text(f"int other; __declspec(dllexport) {SOURCE.replace('extern int other;', '')}")
    run("x86_64-w64-mingw32-gcc", "-shared", str(tmp_path / "a.c"), "-o", str(tmp_path / "a.dll"))
    assert _compared(tmp_path / "a.dll") == []


@pytest.fixture
def elf(tmp_path: Path) -> ElfFile:
    package = Package()
    package.add_raw("w", bytes(range(99)))
    emitter.emit(package, tmp_path / "libw.so", target="x86_64-linux-gnu")
    reader = recognise(View.of_bytes((tmp_path / "libw.so").read_bytes(), "libw.so")).reader
    assert isinstance(reader, ElfFile)
    return reader


def test_a_field_that_differs_is_a_difference(elf: ElfFile) -> None:
    first = elf.phdrs[0]
    elf.phdrs = [first._replace(p_align=1), *elf.phdrs[1:]]
    (difference,) = compare(elf) or []
    assert (difference.parser, difference.subject) == ("pyelftools", "segment 0")
    assert (difference.ours, difference.theirs) == (str(tuple(first._replace(p_align=1))), str(tuple(first)))


def test_to_find_nothing_is_a_difference(elf: ElfFile) -> None:
    elf.dynamic = []
    differences = compare(elf) or []
    assert {(one.subject, one.ours) for one in differences} == {("dynamic section", "nothing")}
    assert all(one.theirs != "nothing" for one in differences)


def test_to_refuse_a_file_is_a_difference(elf: ElfFile) -> None:
    data = bytearray(elf.view.read(0, elf.view.size, "it"))
    data[62:64] = (elf.shnum + 5).to_bytes(2, "little")  # e_shstrndx: here sections have no names then
    changed = ElfFile(View.of_bytes(bytes(data), "changed.so"))
    assert len(changed.shdrs) == elf.shnum
    assert any("Error" in one.theirs or one.theirs == "nothing" for one in compare(changed) or [])


def test_large_files_and_other_formats_are_not_compared(tmp_path: Path, elf: ElfFile) -> None:
    data = elf.view.read(0, elf.view.size, "it")
    with (tmp_path / "large.so").open("wb") as file:
        file.write(data)
        file.truncate(MAX_SIZE + 1)
    assert _compared(tmp_path / "large.so") is None
    (tmp_path / "many.s").write_text("".join(f"s{n}:\n" for n in range(MAX_RECORDS + 1)))
    run("as", str(tmp_path / "many.s"), "-o", str(tmp_path / "many.o"))
    assert _compared(tmp_path / "many.o") is None
    package = Package()
    package.add_raw("w", b"1")
    emitter.emit(package, tmp_path / "w.pack")
    assert _compared(tmp_path / "w.pack") is None
