"""The table of toolchains covers every target, and its entries are consistent."""

from __future__ import annotations

import pytest

from cross.table import SAME_AS, TOOLCHAINS, UNPACKAGED, Toolchain, find, missing_tool, packages, skip_reason
from emitter import targets


@pytest.mark.parametrize("name", targets.names())
def test_every_target_has_a_toolchain_or_a_reason(name: str) -> None:
    toolchain = find(name)
    assert (toolchain is None) == (name in UNPACKAGED)
    if toolchain is not None:
        target, other = targets.load(name), targets.load(toolchain.name)
        assert target.e_machine == other.e_machine
        assert toolchain.qemu in target.emulators


def test_nothing_but_targets_is_named() -> None:
    known = set(targets.names())
    assert {toolchain.name for toolchain in TOOLCHAINS} | set(SAME_AS) | set(UNPACKAGED) == known


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
