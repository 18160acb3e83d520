"""The generated header on Windows: imported from a library unless told otherwise, never from an object; C and C++."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emitter import Package, emit
from emitter.errors import UsageError
from tests import c_tools
from tests.elf_objects import run
from tests.windows import CPUS, mingw

if TYPE_CHECKING:
    from pathlib import Path

# Compilers as (command, options): MinGW's, clang for MSVC, and clang in the place of Microsoft's cl.
COMPILERS = {
    "gcc": [mingw("x86_64"), "-std=c99", *c_tools.WARNINGS, "-c"],
    "gcc, 32 bits": [mingw("i686"), "-std=c99", *c_tools.WARNINGS, "-c"],
    "g++": [mingw("x86_64", "g++"), "-x", "c++", "-std=c++11", *c_tools.WARNINGS, "-c"],
    **{
        f"clang, C, {cpu}": ["clang", f"--target={facts.triple}", "-std=c99", *c_tools.WARNINGS, "-c"]
        for cpu, facts in CPUS.items()
    },
    "clang, C++": ["clang", f"--target={CPUS['x86_64'].triple}", "-x", "c++", "-std=c++17", *c_tools.WARNINGS, "-c"],
    "cl, C": ["clang", "--driver-mode=cl", f"--target={CPUS['x86_64'].triple}", "/W4", "/WX", "/TC", "/c"],
    "cl, C++": ["clang", "--driver-mode=cl", f"--target={CPUS['x86_64'].triple}", "/W4", "/WX", "/TP", "/c"],
}

USER = """
#include "model.h"
#include "model.h"
const void *use(void);
const void *use(void) { return model_data_size() ? (const void *)model_data() : (const void *)model_t_w_data(); }
const void *use_directly(void);
const void *use_directly(void) { return model_size ? (const void *)model : (const void *)model_t_w; }
"""


def undefined(folder: Path, output: str, compiler: str, *options: str) -> set[str]:
    """Compile a user of the header of an emitted output, and return what the object needs."""
    package = Package()
    package.add_raw("w", b"abc")
    emit(package, folder / output, target="x86_64-windows-msvc", tensor_symbols=True, header=str(folder / "model.h"))
    (folder / "user.c").write_text(USER)
    command = [*COMPILERS[compiler], *options]
    result = ["/Fouser.o"] if compiler.startswith("cl,") else ["-o", "user.o"]
    run(*command, "user.c", *result, cwd=folder)
    lines = run("llvm-nm", "--undefined-only", "user.o", cwd=folder).stdout.split()
    return {name for name in lines if "model" in name}


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(
    ("output", "options", "imported"),
    [
        ("model.dll", [], True),
        ("model.dll", ["-Dmodel_STATIC"], False),
        ("model.obj", [], False),
        ("model.lib", [], False),
        ("model.obj", ["-Dmodel_API=__declspec(dllimport)"], True),
    ],
)
def test_symbols_are_imported_from_libraries_alone(
    output: str, options: list[str], imported: bool, compiler: str, tmp_path: Path
) -> None:
    names = undefined(tmp_path, output, compiler, *options)
    underscore = "_" if "32" in compiler or "i686" in compiler else ""
    expected = {f"{underscore}{name}" for name in ("model", "model_size", "model_t_w")}
    if imported:
        assert names == {f"__imp_{name}" for name in expected}
    else:  # GCC reaches a symbol that may be far through a pointer of its own
        assert {name.removeprefix(".refptr.") for name in names} == expected


def test_headers_of_a_library_and_of_an_archive_are_two(tmp_path: Path) -> None:
    """One path for both in a call is refused: the one says dllimport, and the other must not."""
    package = Package()
    package.add_raw("w", b"abc")
    header = tmp_path / "model.h"
    targets = ["x86_64-windows-msvc", "thumbv7em-none-eabihf"]  # {lib} is a library, and an archive
    (tmp_path / targets[0]).mkdir()
    (tmp_path / targets[1]).mkdir()
    with pytest.raises(UsageError, match=r"model\.h: two outputs would be one file"):
        emit(package, tmp_path / "{target}" / "{lib}", target=targets, name="model", header=str(header))
    beside = str(tmp_path / "{target}" / "model.h")
    emit(package, tmp_path / "{target}" / "{lib}", target=targets, name="model", header=beside)
    assert "dllimport" in (tmp_path / targets[0] / "model.h").read_text()
    assert "dllimport" not in (tmp_path / targets[1] / "model.h").read_text()
