"""emitter.h compiles, without a warning, for systems whose own compilers do not run here."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests import c_tools

if TYPE_CHECKING:
    from pathlib import Path

LIBRARY = os.path.join(c_tools.DATA, "library.c")
EVERYTHING = os.path.join(c_tools.DATA, "everything.c")
MINGW = "--target=x86_64-w64-windows-gnu"
LANGUAGES = {"C": ("-std=c99",), "C++": ("-x", "c++", "-std=c++11")}


def compiles(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), " ".join(command)


@pytest.mark.parametrize(
    "options", [("-O0",), ("-O2",), ("-O1", "-DEMITTER_IMPLEMENTATION"), ("-O3", "-std=gnu17")], ids=" ".join
)
def test_the_opener_for_windows_by_gcc(tmp_path: Path, options: tuple[str, ...]) -> None:
    output = str(tmp_path / "library.o")
    c_tools.build("x86_64-w64-mingw32-gcc", output, "-std=c99", *c_tools.WARNINGS, *options, "-c", LIBRARY)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_opener_for_windows_by_clang(language: str) -> None:
    c_tools.need("clang", "x86_64-w64-mingw32-gcc")  # the headers are MinGW's
    compiles("clang", MINGW, *LANGUAGES[language], *c_tools.WARNINGS, f"-I{c_tools.INCLUDE}", "-fsyntax-only", LIBRARY)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("cpu", ["x86_64", "aarch64", "i686"])
def test_the_core_as_microsofts_compiler_takes_it(cpu: str, language: str) -> None:
    """Without the SDK and its headers: the core needs none."""
    c_tools.need("clang")
    target = f"--target={cpu}-pc-windows-msvc"
    options = (*LANGUAGES[language], *c_tools.WARNINGS, "-ffreestanding", f"-I{c_tools.INCLUDE}", "-fsyntax-only")
    compiles("clang", target, *options, EVERYTHING)


@pytest.mark.parametrize(
    ("command", "target", "options"),
    [
        ("cc", "aarch64-macos", ("-std=c99",)),
        ("c++", "x86_64-macos", ("-x", "c++", "-std=c++11", "-c")),
    ],
)
def test_the_opener_for_macos(tmp_path: Path, command: str, target: str, options: tuple[str, ...]) -> None:
    """Compiled with macOS's own headers, and linked: nothing here can run it."""
    pytest.importorskip("ziglang", reason="ziglang is not installed")
    output = tmp_path / "library"
    compiles(
        *(sys.executable, "-m", "ziglang", command, "-target", target, *c_tools.WARNINGS, "-fno-sanitize=all"),
        *(f"-I{c_tools.INCLUDE}", *options, LIBRARY, "-o", str(output)),
    )
    assert output.read_bytes()[:4] == b"\xcf\xfa\xed\xfe"


def test_a_system_without_an_opener_is_told_at_once(tmp_path: Path) -> None:
    c_tools.need("gcc")
    source = tmp_path / "a.c"
    source.write_text('#define EMITTER_LIBRARY\n#include "emitter.h"\n')
    done = c_tools.run("gcc", "-U__unix__", "-ffreestanding", f"-I{c_tools.INCLUDE}", "-fsyntax-only", str(source))
    assert done.returncode == 1
    first = next(line for line in done.stderr.splitlines() if "error" in line)
    assert "EMITTER_LIBRARY is for Windows, Apple's systems, and POSIX systems with ELF" in first
