"""Programs without an operating system read every tensor, on emulated boards.

The weights are linked with the program, as an object, or as an archive in a section that the fragment places in a
region of its own; or they are a pack in flash, which the program knows by its address alone.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from cross.table import BOARDS, find_board
from tests.c_tools import need
from tests.run.device import INCLUDE, PROGRAMS, emit, lines

if TYPE_CHECKING:
    from pathlib import Path

    from cross.table import Board
    from tests.run.device import Arrays, Completed, Model

every_board = pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)

USES_FIRST = ("-I.", '-DHEADER="first.h"', "-DNAME=first")


def execute(command: list[str], where: Path) -> Completed:
    return subprocess.run(
        command, check=False, cwd=where, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )


def build(board: Board, where: Path, source: str, *flags: str) -> None:
    """Compile and link `program`; warnings are errors."""
    need(board.c, board.qemu[0])
    if "/" in board.specs and not os.path.exists(board.specs):
        pytest.skip(f"{board.specs} is not installed")
    common = ["-std=c99", "-O1", "-ffreestanding", "-Wall", "-Wextra", "-Werror", f"-I{INCLUDE}", f"-I{PROGRAMS}"]
    done = execute([*board.compiler(), *common, source, "-o", "program", *flags], where)
    assert (done.returncode, done.stderr) == (0, "")


def prints(board: Board, where: Path, tensors: Arrays, pack: str | None = None) -> None:
    """Run `program` and compare what it prints with what numpy has."""
    done = execute([*board.runner(pack), "program"], where)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == lines(tensors, board.name)


def address_of(board: Board, where: Path, symbol: str) -> int:
    done = execute([board.tool("nm"), "program"], where)
    assert done.returncode == 0, done.stderr
    return next(int(line.split()[0], 16) for line in done.stdout.splitlines() if line.split()[-1] == symbol)


@every_board
def test_weights_linked_from_an_object(board: Board, model: Model, tmp_path: Path) -> None:
    """By the section's default name, which a board's own script knows."""
    emit("--target", board.name, model.path, "-o", tmp_path / "first.o", "--header", tmp_path / "first.h")
    build(board, tmp_path, f"{PROGRAMS}/direct.c", *USES_FIRST, "first.o")
    prints(board, tmp_path, model.tensors)


def place(board: Board, where: Path) -> str:
    """Return the option for a board's linker script, one that includes `weights.ld`, after writing its memory map."""
    regions = (("FLASH", "rx", board.flash), ("RAM", "rw", board.ram), ("QSPI", "r", board.weights))
    memory = "\n".join(
        f"  {name} ({access}) : ORIGIN = {origin:#x}, LENGTH = {length:#x}"
        for name, access, (origin, length) in regions
    )
    (where / "memory.ld").write_text(f"MEMORY\n{{\n{memory}\n}}\n")
    return f"-T{PROGRAMS}/board.ld"


@every_board
def test_weights_linked_from_an_archive_into_a_region(board: Board, model: Model, tmp_path: Path) -> None:
    emit(
        "--target", board.name, model.path, "-o", tmp_path / "libfirst.a", "--header", tmp_path / "first.h",
        "--section", ".flash_weights", "--linker-script", tmp_path / "weights.ld", "--region", "QSPI",
    )  # fmt: skip
    script = place(board, tmp_path)
    build(board, tmp_path, f"{PROGRAMS}/direct.c", *USES_FIRST, script, "-L.", "-lfirst")
    origin, length = board.weights
    assert address_of(board, tmp_path, "first") == origin
    assert not origin <= address_of(board, tmp_path, "first_size") < origin + length
    prints(board, tmp_path, model.tensors)


@every_board
def test_the_fragment_keeps_what_nobody_refers_to(board: Board, model: Model, tmp_path: Path) -> None:
    """A program may find the weights by the region's address alone; picolibc's options have --gc-sections."""
    emit(
        "--target", board.name, model.path, "-o", tmp_path / "first.o",
        "--section", ".flash_weights", "--linker-script", tmp_path / "weights.ld", "--region", "QSPI",
    )  # fmt: skip
    script = place(board, tmp_path)
    origin, length = board.weights
    where = [f"-DADDRESS={origin:#x}", f"-DCAPACITY={length:#x}"]
    build(board, tmp_path, f"{PROGRAMS}/flash.c", *where, script, "first.o")
    prints(board, tmp_path, model.tensors)


@every_board
def test_a_pack_at_an_address(board: Board, model: Model, tmp_path: Path) -> None:
    """The program is linked without it, and reads it where the emulator put the file, as a flash tool would."""
    emit("--target", board.name, model.path, "-o", tmp_path / "first.pack")
    build(board, tmp_path, f"{PROGRAMS}/flash.c", f"-DADDRESS={board.pack:#x}", "-DCAPACITY=0x4000")
    prints(board, tmp_path, model.tensors, "first.pack")
    done = execute([*board.runner(), "program"], tmp_path)
    assert done.returncode == 1
    assert "not a pack" in done.stderr + done.stdout


UNALIGNED = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
static uint32_t words[2] = {1, 2};
void arm_hardfault_isr(void)
{
    puts("fault");
    exit(0);
}
int main(void)
{
    volatile uintptr_t odd = (uintptr_t)words + 1;
    puts("before");
    printf("after %lu\n", (unsigned long)*(volatile uint32_t *)odd);
    return 0;
}
"""


def test_the_emulated_m0_faults_on_unaligned_accesses(tmp_path: Path) -> None:
    """So the runs above prove that reading a pack makes none. A Cortex-M4 allows them."""
    (tmp_path / "unaligned.c").write_text(UNALIGNED)
    for name, last in (("thumbv6m-none-eabi", "fault"), ("thumbv7em-none-eabihf", "after 33554432")):
        board = find_board(name)
        assert board is not None
        build(board, tmp_path, "unaligned.c", "-Wno-missing-prototypes")
        done = execute([*board.runner(), "program"], tmp_path)
        assert (done.returncode, done.stdout.splitlines()) == (0, ["before", last])


USER = """
#include "emitter.h"
int use(const void *pack);
int use(const void *pack)
{
    emitter_reader reader;
    emitter_tensor tensor;
    return emitter_open(&reader, pack, 1 << 20) || emitter_validate(&reader) || emitter_find(&reader, "x", &tensor)
        || emitter_check_tensor(&tensor);
}
"""


@pytest.mark.parametrize("level", ["-O0", "-O1", "-O2", "-Os"])
@every_board
def test_the_reader_calls_nothing(board: Board, level: str, tmp_path: Path) -> None:
    """Neither a C library nor an operating system: all that it refers to are GCC's own helpers in libgcc."""
    need(board.c)
    libgcc = execute([board.c, *board.flags, "-print-libgcc-file-name"], tmp_path).stdout.strip()
    helpers = set(execute([board.tool("nm"), "--defined-only", libgcc], tmp_path).stdout.split())
    for source in ('#define EMITTER_IMPLEMENTATION\n#include "emitter.h"\n', USER):
        (tmp_path / "reader.c").write_text(source)
        flags = [*board.flags, level, "-std=c99", "-ffreestanding", f"-I{INCLUDE}", "-Wall", "-Wextra", "-Werror"]
        done = execute([board.c, *flags, "-c", "reader.c", "-o", "reader.o"], tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        undefined = set(execute([board.tool("nm"), "-u", "reader.o"], tmp_path).stdout.split()[1::2])
        assert undefined <= helpers


def test_lld_takes_the_fragment(model: Model, tmp_path: Path) -> None:
    """Debian's lld cannot link picolibc, so here a program that calls nothing is linked."""
    board = find_board("thumbv7em-none-eabihf")
    assert board is not None
    need(board.c, "ld.lld")
    emit(
        "--target", board.name, model.path, "-o", tmp_path / "first.o",
        "--section", ".flash_weights", "--linker-script", tmp_path / "weights.ld", "--region", "QSPI",
    )  # fmt: skip
    (tmp_path / "program.c").write_text("extern const char first[]; int _start(void) { return *first; }\n")
    made = execute([board.c, *board.flags, "-c", "program.c", "-o", "program.o"], tmp_path)
    assert made.returncode == 0, made.stderr
    for gc in ([], ["--gc-sections"]):
        done = execute(["ld.lld", *gc, place(board, tmp_path), "program.o", "first.o", "-o", "program"], tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert address_of(board, tmp_path, "first") == board.weights[0]
