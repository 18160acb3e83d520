"""Payloads past 2 and 4 GiB, read by programs: the bytes at every edge of 32-bit numbers.

The payload is a file of holes with a few bytes in it. Links of such objects would write gigabytes of zeros, so most of
them are of objects whose payload was made SHT_NOBITS: linkers then place it, and check distances, without copying it.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from elftools.elf.elffile import ELFFile

from emitter import Package, emit, load
from emitter.limits import linkers
from emitter.targets import resolve
from tests.c_tools import INCLUDE, toolchain_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIZE = (1 << 32) + (1 << 28) + 5
MARKS = {0: 11, (1 << 31) - 1: 12, 1 << 31: 13, (1 << 32) - 1: 14, 1 << 32: 15, SIZE - 1: 16}
READ = " ".join(map(str, MARKS.values()))
OFFSETS = ", ".join(f"{offset}u" for offset in MARKS)  # in C


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "w"
    with path.open("wb") as file:
        file.truncate(SIZE)
        for offset, value in MARKS.items():
            file.seek(offset)
            file.write(bytes([value]))
    if path.stat().st_blocks > 1 << 10:
        pytest.skip("the file system of temporary files keeps no holes")
    return path


def package(weights: Path) -> Package:
    made = Package()
    made.add_input(f"raw:{weights}", prefix="w")
    return made


def run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


OPENS = r"""
#define EMITTER_LIBRARY
#include "emitter.h"
#include <stdio.h>
int main(int argc, char **argv) {
    static const uint64_t at[] = {MARKS};
    emitter_library library;
    emitter_tensor tensor;
    char message[512];
    (void)argc;
    if (emitter_library_open(&library, argv[1], message, sizeof message)) return puts(message), 1;
    if (emitter_find(&library.reader, "w", &tensor)) return puts("not found"), 1;
    if (tensor.nbytes != at[sizeof at / sizeof *at - 1] + 1) return puts("size"), 1;
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        printf(i ? " %d" : "%d", ((const unsigned char *)tensor.data)[at[i]]);
    emitter_library_close(&library);
    return 0;
}
"""


@pytest.mark.parametrize("sidecar", [False, True])
@pytest.mark.parametrize("target", ["x86_64-linux-gnu", "aarch64-linux-gnu", "s390x-linux-gnu"])
def test_a_program_reads_every_edge(target: str, sidecar: bool, weights: Path, tmp_path: Path) -> None:
    toolchain = toolchain_of(target)
    emit(package(weights), tmp_path / "libw.so", target=target, sidecar=sidecar)
    (tmp_path / "main.c").write_text(OPENS.replace("MARKS", OFFSETS))
    run(toolchain.c, f"-I{INCLUDE}", "main.c", "-o", "main", "-ldl", cwd=tmp_path)
    assert run(*toolchain.runner(), str(tmp_path / "main"), str(tmp_path / "libw.so")) == READ
    assert sum(entry.stat().st_blocks for entry in tmp_path.iterdir()) < 1 << 12  # what was a hole is one


@pytest.mark.parametrize(
    ("target", "output", "sidecar"),
    [
        ("x86_64-linux-gnu", "w.so", False),
        ("s390x-linux-gnu", "w.so", True),
        ("x86_64-linux-gnu", "w.o", False),
        ("aarch64-linux-gnu", "w.a", False),
        ("riscv64-linux-gnu", "w.pack", False),
        ("arm64-apple-macos", "w.dylib", True),
        ("x86_64-windows-msvc", "w.dll", True),
    ],
)
def test_python_reads_every_edge(target: str, output: str, sidecar: bool, weights: Path, tmp_path: Path) -> None:
    emit(package(weights), tmp_path / output, target=target, sidecar=sidecar)
    with load(tmp_path / output) as library:
        array = library["w"]
        assert array.nbytes == SIZE
        assert {offset: int(array[offset]) for offset in MARKS} == MARKS
        assert not array[(1 << 31) + 1 : (1 << 31) + 5000].any()


LINKED = r"""
#include <stddef.h>
#include <stdio.h>
extern const unsigned char w[], w_t_w[];
extern const size_t w_size;
const unsigned char *volatile last = w_t_w; /* a pointer in data reaches everything */
int main(void) {
    const unsigned char *volatile start = w;
    const unsigned char *tensor = last;
    static const unsigned long long at[] = {MARKS};
    printf("%zu %td", w_size, tensor - start);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) printf(" %d", tensor[at[i]]);
    return 0;
}
"""


def make_nobits(path: Path) -> None:
    """Change sh_type of the section of more than 1 GiB, so that it takes no room in what is linked from the object."""
    with path.open("r+b") as file:
        elf = ELFFile(file)
        places = [
            elf["e_shoff"] + number * elf["e_shentsize"]
            for number, section in enumerate(elf.iter_sections())
            if section["sh_size"] >> 30
        ]
        (place,) = places
        file.seek(place + 4)
        file.write((8).to_bytes(4, "little" if elf.little_endian else "big"))


class Linking:
    """An object of the far payload, and the ways to link it, in one folder."""

    def __init__(self, target: str, weights: Path, folder: Path, *, large: bool) -> None:
        self.toolchain = toolchain_of(target)
        self.folder = folder
        self.pack_size = 0
        emit(
            package(weights), folder / "w.o", target=target, tensor_symbols=True, linker_script=folder / "far.ld",
            large_data="auto" if large else "never",
        )  # fmt: skip
        with load(folder / "w.o") as library:
            self.pack_size = library.packs[0].size
            self.offset = library.tensor("w").file_offset - library.packs[0].file_offset
        (folder / "main.c").write_text(LINKED.replace("MARKS", OFFSETS))

    def link(self, linker: str, *, script: bool) -> subprocess.CompletedProcess[str]:
        """Link a program with "GNU ld", "lld" or "mold"."""
        name = {"GNU ld": "bfd"}.get(linker, linker)
        flags = [f"-fuse-ld={name}"]
        if name != "bfd":
            path = shutil.which(f"ld.{name}")
            if path is None:
                pytest.skip(f"ld.{name} is not installed")
            (self.folder / f"ld.{name}").unlink(missing_ok=True)
            (self.folder / f"ld.{name}").symlink_to(path)  # cross compilers look only here
            flags.append(f"-B{self.folder}")
        (self.folder / "main").unlink(missing_ok=True)
        command = [self.toolchain.c, *flags, "main.c", "w.o", *(["-Wl,-T,far.ld"] if script else []), "-o", "main"]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False, timeout=300)

    def run(self) -> str:
        return run(*self.toolchain.runner(), str(self.folder / "main"))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Give a folder in which no linked program stays: gigabytes, not all of them holes."""
    yield tmp_path
    (tmp_path / "main").unlink(missing_ok=True)


CPUS = ("x86_64-linux-gnu", "aarch64-linux-gnu", "riscv64-linux-gnu", "s390x-linux-gnu", "powerpc64le-linux-gnu")
# Each place of the payload that the plan speaks of.
PLACES = [(target, False, script) for target in CPUS for script in (False, True)] + [
    ("x86_64-linux-gnu", True, False),
    ("x86_64-linux-gnu", True, True),
]


@pytest.mark.parametrize(("target", "large", "script"), PLACES)
def test_linkers_do_what_the_plan_says(target: str, large: bool, script: bool, weights: Path, folder: Path) -> None:
    linking = Linking(target, weights, folder, large=large)
    make_nobits(folder / "w.o")
    said = linkers(resolve(target).target, linking.pack_size, large=large, script=script)
    assert said
    for linker in said:
        done = linking.link(linker.name, script=script)
        if linker.links:
            assert done.returncode == 0, f"{linker.name}: {done.stderr}"
            # The payload is zeros here; its place and its size are real.
            assert linking.run() == f"{linking.pack_size} {linking.offset}" + " 0" * len(MARKS), linker.name
        elif "without checking" not in linker.says:
            assert done.returncode != 0, linker.name


def test_a_real_link_past_4_gib(weights: Path, folder: Path) -> None:
    # lld writes such a file in seconds; GNU ld takes a minute (docs/large-data.md).
    linking = Linking("x86_64-linux-gnu", weights, folder, large=True)
    done = linking.link("lld", script=True)
    assert done.returncode == 0, done.stderr
    assert linking.run() == f"{linking.pack_size} {linking.offset} {READ}"


@pytest.mark.parametrize("flags", [(), ("-no-pie", "-fno-pie"), ("-static",)])
def test_size_and_symbol_stay_near(flags: tuple[str, ...], weights: Path, folder: Path) -> None:
    """In ordinary code, `w_size` and `w` are reached at a distance of 32 bits: statically with musl alone."""
    target = "x86_64-linux-musl" if "-static" in flags else "x86_64-linux-gnu"
    linking = Linking(target, weights, folder, large=True)
    make_nobits(folder / "w.o")
    run(linking.toolchain.c, *flags, "main.c", "w.o", "-o", "main", cwd=folder)
    assert linking.run().startswith(f"{linking.pack_size} {linking.offset} ")
