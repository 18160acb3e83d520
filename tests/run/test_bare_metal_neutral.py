"""Weights change nothing about the firmware that they join: see test_neutral_objects.py.

Programs are compiled for the CPU of each board and for others whose programs the target's objects may join (a Cortex-M7
with double precision, a Cortex-M33, RISC-V with fewer or more extensions). Nothing but the program is linked: the
attributes are the compiler's, not those of a C library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cross.table import BOARDS, find_board
from tests.c_tools import need
from tests.elf_objects import package_of, write_pack_object
from tests.run.test_neutral_objects import identity, run

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = "float pick(float x, float y) { return y; }\nint _start(void) { return pick(0, 1) == pick(1, 1); }\n"

CASES = [
    pytest.param(board.name, flags, linker, mode, id=f"{board.name}-{flags.replace(' ', '')}-{linker}-{mode}")
    for board in BOARDS
    for flags in (" ".join(board.flags), *board.variants)
    for linker in ("bfd", "lld")
    for mode in ("program", "object")
    if (linker, mode) != ("lld", "object")
]


@pytest.mark.parametrize(("name", "flags", "linker", "mode"), CASES)
def test_weights_change_nothing(name: str, flags: str, linker: str, mode: str, tmp_path: Path) -> None:
    board = find_board(name)
    assert board is not None
    link = ["ld.lld"] if linker == "lld" else [board.c, *flags.split(), "-nostdlib"]
    link += ["-r"] if mode == "object" else []
    need(board.c, link[0])
    (tmp_path / "program.c").write_text(PROGRAM)
    made = run([board.c, *flags.split(), "-O1", "-ffreestanding", "-c", "program.c", "-o", "program.o"], tmp_path)
    assert made.returncode == 0, made.stderr
    baseline = run([*link, "program.o", "-o", "baseline"], tmp_path)
    assert baseline.returncode == 0, baseline.stderr

    write_pack_object(name, package_of({"a": b"abc"}), tmp_path / "data.o")
    for order in (["program.o", "data.o"], ["data.o", "program.o"]):
        joined = run([*link, *order, "-o", "joined"], tmp_path)
        assert joined.returncode == 0, joined.stderr
        assert joined.stderr == baseline.stderr, "the object makes the linker warn"
        before, after = identity(tmp_path / "baseline"), identity(tmp_path / "joined")
        if order[0] == "data.o":
            before, after = before.without_descriptions(), after.without_descriptions()
        if order[0] == "data.o" and linker == "lld":  # it takes the attributes of its first input
            before, after = before._replace(attributes=[]), after._replace(attributes=[])
        assert after == before
