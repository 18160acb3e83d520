"""The table of toolchains covers every target, and its entries are consistent."""

from __future__ import annotations

from itertools import pairwise

import pytest

from cross.table import (
    BOARDS,
    SAME_AS,
    TOOLCHAINS,
    UNPACKAGED,
    Board,
    Toolchain,
    find,
    find_board,
    missing_tool,
    packages,
    skip_reason,
)
from emitter import targets

ELF = [target.name for target in targets.describe_all() if target.object_format == "elf"]


@pytest.mark.parametrize("name", ELF)
def test_every_elf_target_has_a_toolchain_a_board_or_a_reason(name: str) -> None:
    toolchain, board = find(name), find_board(name)
    assert [toolchain is not None, board is not None, name in UNPACKAGED].count(True) == 1
    if toolchain is not None:
        target, other = targets.load(name), targets.load(toolchain.name)
        assert target.e_machine == other.e_machine
        assert toolchain.qemu in target.emulators


def test_nothing_but_targets_is_named() -> None:
    named = [toolchain.name for toolchain in TOOLCHAINS] + [board.name for board in BOARDS] + [*SAME_AS, *UNPACKAGED]
    assert sorted(named) == sorted(ELF)


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_board_is_consistent(board: Board) -> None:
    target = targets.load(board.name)
    assert target.image_suffix is None
    assert board.qemu[0] in target.emulators
    assert set(board.packages) <= set(packages())
    assert board.compiler()[0] == board.c
    assert board.tool("nm") == board.c.replace("gcc", "nm")
    assert board.runner("x.pack")[-2:] == [f"loader,file=x.pack,addr={board.pack:#x},force-raw=on", "-kernel"]
    areas = sorted((board.flash, board.ram, board.weights, (board.pack, 1)))
    assert all(origin + size <= after for (origin, size), (after, _) in pairwise(areas))


@pytest.mark.parametrize("toolchain", TOOLCHAINS, ids=lambda toolchain: toolchain.name)
def test_toolchain_is_consistent(toolchain: Toolchain) -> None:
    assert set(toolchain.packages) <= set(packages())
    assert toolchain.runner(65536)[:3] == [toolchain.qemu, "-p", "65536"]
    assert toolchain.runner() == [] or toolchain.runner()[:2] == [toolchain.qemu, "-L"]
    assert next(iter(toolchain.compilers())) == "gcc"


def test_a_missing_tool_is_named() -> None:
    toolchain = Toolchain(name="x", triple="x", c="no-such-gcc", qemu="no-such-qemu", packages=())
    assert missing_tool(toolchain) == "no-such-gcc"
    assert skip_reason("aarch64-linux-android") == "aarch64-linux-android: the Android NDK is not in Debian"
