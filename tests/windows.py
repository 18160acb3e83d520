"""Programs for Windows in tests: built by MinGW, or by clang and linkers that need no C library, and run by Wine."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.c_tools import need
from tests.run.device import INCLUDE, PROGRAMS, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    Completed = subprocess.CompletedProcess[str]

__all__ = [
    "CPUS",
    "SOURCES",
    "TARGETS",
    "Cpu",
    "Wine",
    "build",
    "clang_for_mingw",
    "compile_and_link",
    "kernel32",
    "link_without_libc",
    "mingw",
    "wine",
    "wine32",
]

SOURCES = os.path.join(ROOT, "tests", "data", "c")

TARGETS = ("x86_64-windows-msvc", "x86_64-windows-gnu", "aarch64-windows-msvc", "i686-windows-gnu")

# What Wine is called: on the path, or where Debian keeps it.
_WINE = ("wine64", "/usr/lib/wine/wine64")
_WINE32 = ("wine32", "/usr/lib/wine/wine")  # that path is Debian's package wine32 for i386
_SECONDS = 300  # the first start makes a prefix


class Cpu(NamedTuple):
    """What the tools call a CPU: clang's triple, lld-link's /machine, llvm-dlltool's -m."""

    triple: str
    machine: str
    dlltool: str
    names: tuple[str, str, str]  # of the functions of kernel32 that no_libc.c calls, in objects


CPUS = {
    "x86_64": Cpu("x86_64-pc-windows-msvc", "x64", "i386:x86-64", ("GetStdHandle", "WriteFile", "ExitProcess")),
    "aarch64": Cpu("aarch64-pc-windows-msvc", "arm64", "arm64", ("GetStdHandle", "WriteFile", "ExitProcess")),
    "i686": Cpu("i686-pc-windows-msvc", "x86", "i386", ("GetStdHandle@4", "WriteFile@20", "ExitProcess@4")),
}


class Wine:
    """A Wine that has a prefix of its own."""

    def __init__(self, command: str, prefix: Path) -> None:
        self._command = command
        self._environment = os.environ | {
            "WINEPREFIX": str(prefix),
            "WINEDEBUG": "-all",
            "WINEDLLOVERRIDES": "mscoree,mshtml=",  # what it would offer to download
        }

    def run(
        self, *command: str | os.PathLike[str], cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> Completed:
        """Run a program, with `env` beside the environment of the tests."""
        argv = [self._command, *map(str, command)]
        env = {**self._environment, **(env or {})}
        return subprocess.run(argv, check=False, capture_output=True, text=True, timeout=_SECONDS, cwd=cwd, env=env)

    def prints(self, *command: str | os.PathLike[str], cwd: Path | None = None) -> list[str]:
        """Run a program that must end well, and return the lines that it prints.

        Standard error is not compared: processes of Wine's own that it starts write there, too.
        """
        done = self.run(*command, cwd=cwd)
        assert done.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout.splitlines()

    def serve(self, option: str) -> None:
        """Tell what serves this prefix to go on when no program runs (-p), or to end all programs (-k)."""
        server = shutil.which("wineserver") or os.path.join(os.path.dirname(_WINE[1]), "wineserver")
        self._silent(server, option)

    def boot(self) -> None:
        """Make the prefix, and start its services: they would write into the output of whoever starts them."""
        self._silent(self._command, "wineboot", "-i")

    def _silent(self, *command: str) -> None:
        null = subprocess.DEVNULL
        subprocess.run(
            command, check=True, env=self._environment, stdin=null, stdout=null, stderr=null, timeout=_SECONDS
        )


@pytest.fixture(scope="session")
def wine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wine]:
    """Return a Wine for programs of 64 bits; skip the test if there is none."""
    yield from _started(_WINE, tmp_path_factory)


@pytest.fixture(scope="session")
def wine32(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wine]:
    """Return a Wine for programs of 32 bits; skip the test if there is none."""
    yield from _started(_WINE32, tmp_path_factory)


def _started(commands: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wine]:
    command = next((found for name in commands if (found := shutil.which(name))), None)
    if command is None:
        pytest.skip(f"{commands[0]} is not installed")
    one = Wine(command, tmp_path_factory.mktemp(commands[0]))
    one.serve("-p")
    try:
        one.boot()
        yield one
    finally:
        one.serve("-k")


def build(*command: str) -> None:
    """Run a compiler or linker that must succeed without a word on standard error."""
    need(command[0])
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), f"{' '.join(command)}\n{done.stdout}{done.stderr}"


def mingw(cpu: str, tool: str = "gcc") -> str:
    """Return the command of a tool of MinGW-w64 for a CPU."""
    return f"{cpu}-w64-mingw32-{tool}"


def clang_for_mingw(cpu: str) -> list[str]:
    """Return the command of clang and lld for MinGW's libraries; libgcc is where GCC says it is."""
    need("clang", "ld.lld", mingw(cpu))
    found = subprocess.run([mingw(cpu), "-print-libgcc-file-name"], check=True, capture_output=True, text=True)
    return ["clang", f"--target={cpu}-w64-windows-gnu", "-fuse-ld=lld", f"-L{os.path.dirname(found.stdout.strip())}"]


def compile_and_link(compiler: Sequence[str], output: Path, source: str, *arguments: str) -> Path:
    """Build a program of cross/programs or tests/data/c with MinGW's C library; warnings are errors."""
    standard = "-std=c++11" if compiler[0].endswith("g++") else "-std=c99"
    folder = PROGRAMS if os.path.exists(os.path.join(PROGRAMS, source)) else SOURCES
    flags = [standard, "-O1", "-Wall", "-Wextra", "-Werror", "-D__USE_MINGW_ANSI_STDIO=1"]
    build(
        *compiler, *flags, f"-I{INCLUDE}", f"-I{PROGRAMS}", os.path.join(folder, source), "-o", str(output), *arguments
    )
    return output


def kernel32(cpu: str, folder: Path) -> Path:
    """Return an import library of kernel32 for a CPU, with what no_libc.c calls, made by llvm-dlltool."""
    library = folder / f"kernel32-{cpu}.lib"
    if not library.exists():
        definition = folder / f"kernel32-{cpu}.def"
        definition.write_text("LIBRARY kernel32.dll\nEXPORTS\n" + "".join(f"{name}\n" for name in CPUS[cpu].names))
        tool = "llvm-dlltool" if shutil.which("llvm-dlltool") else "llvm-dlltool-14"
        build(tool, "-k", "-m", CPUS[cpu].dlltool, "-d", str(definition), "-l", str(library))
    return library


def link_without_libc(cpu: str, folder: Path, header: Path, name: str, *inputs: str | os.PathLike[str]) -> Path:
    """Build no_libc.c for `header` with clang and lld-link, as Microsoft's tools do; return the program."""
    need("clang", "lld-link")
    objects = folder / f"no_libc-{cpu}.obj"
    flags = ["-ffreestanding", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{INCLUDE}"]
    use = [f'-DHEADER="{header}"', f"-DNAME={name}"]
    source = os.path.join(SOURCES, "no_libc.c")
    build("clang", f"--target={CPUS[cpu].triple}", *flags, *use, "-c", source, "-o", str(objects))
    program = folder / f"no_libc-{cpu}.exe"
    options = [f"/machine:{CPUS[cpu].machine}", "/subsystem:console", "/nodefaultlib", f"/out:{program}"]
    build("lld-link", *options, str(objects), *map(str, inputs), str(kernel32(cpu, folder)))
    return program
