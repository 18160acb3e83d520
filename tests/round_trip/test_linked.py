"""Packs come out of what linkers make of objects for Windows and Apple's systems, which name them by no note."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import emitter
from emitter import Package, targets
from tests.foreign_files import run_tool

if TYPE_CHECKING:
    from pathlib import Path

SIZES = {"one": 5000, "two": 70000}
SOURCE = "extern const char one[], two[];\nint main(void) { return one[0] + two[0]; }\n"


def objects(folder: Path, target: str) -> list[Path]:
    """Emit two objects, and compile a program that uses both with clang's triple of the target."""
    facts, paths = targets.load(target), []
    for name, size in SIZES.items():
        package = Package()
        package.add_raw(name, bytes([len(name)]) * size)
        paths.append(folder / f"{name}{facts.object_suffix}")
        emitter.emit(package, paths[-1], target=target, name=name)
    (folder / "main.c").write_text(SOURCE)
    run_tool(
        "clang",
        f"--target={facts.llvm_triple}",
        "-c",
        folder / "main.c",
        "-o",
        folder / "main.o",
    )
    return [folder / "main.o", *paths]


def assert_both(path: Path, kind: str) -> None:
    with emitter.load(path) as library:
        assert library.kind == kind
        library.check()
        assert {pack.names()[0]: pack.tensor(pack.names()[0]).nbytes for pack in library.packs} == SIZES


def test_gnu_ld_and_strip(tmp_path: Path) -> None:
    main, *packs = objects(tmp_path, "x86_64-windows-gnu")
    program, joined = tmp_path / "program.exe", tmp_path / "joined.o"
    run_tool("x86_64-w64-mingw32-gcc", "-Wl,--gc-sections", main, *packs, "-o", program)
    assert_both(program, "PE32+ executable for x86-64")
    run_tool("x86_64-w64-mingw32-strip", program)
    assert_both(program, "PE32+ executable for x86-64")
    run_tool("x86_64-w64-mingw32-ld", "-r", *packs, "-o", joined)
    assert_both(joined, "COFF object for x86-64")


@pytest.mark.parametrize(("cpu", "name"), [("x86_64", "x86-64"), ("aarch64", "AArch64")])
def test_lld_link(tmp_path: Path, cpu: str, name: str) -> None:
    inputs = objects(tmp_path, f"{cpu}-windows-msvc")
    program = tmp_path / "program.exe"
    run_tool("lld-link", f"/out:{program}", "/entry:main", "/subsystem:console", "/nodefaultlib", "/opt:ref", *inputs)
    assert_both(program, f"PE32+ executable for {name}")


@pytest.mark.parametrize("options", [(), ("-dead_strip",)])
@pytest.mark.parametrize(("cpu", "name"), [("x86_64", "x86-64"), ("arm64", "AArch64")])
def test_ld64(tmp_path: Path, cpu: str, name: str, options: tuple[str, ...]) -> None:
    inputs = objects(tmp_path, f"{cpu}-apple-macos")
    library = tmp_path / "linked.dylib"
    version = ("-platform_version", "macos", "11.0", "11.0")
    run_tool("ld64.lld", "-dylib", "-arch", cpu, *version, *options, *inputs, "-o", library)
    assert_both(library, f"Mach-O dynamic library for {name}")
