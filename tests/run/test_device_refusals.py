"""The opener refuses, with a message, what would make dlopen fail without a reason or kill the process."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.c_tools import need
from tests.run.device import TARGETS, Device, Model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OTHER = {"aarch64-linux-gnu": "AArch64", "riscv64-linux-gnu": "RISC-V", "s390x-linux-gnu": "S/390"}


@pytest.mark.parametrize("target", TARGETS)
def test_truncated_library_is_refused(
    target: str, device_for: Callable[[str], Device], model: Model, tmp_path: Path
) -> None:
    device = device_for(target)
    whole = device.artefact(model, ".so").read_bytes()
    end = _end_of_segments(device, device.artefact(model, ".so"))
    # Cut before the end of what is mapped; behind it stand section headers, which nothing needs at run time.
    for size in (0, 3, 51, 63, 64, 200, 4096, end // 2, end - 4096, end - 1):
        path = tmp_path / f"cut{size}.so"
        path.write_bytes(whole[:size])
        done = device.run(device.program("dump.c"), path)
        assert done.returncode == 1, (size, done)
        assert f"{path}: " in done.stderr
        assert any(word in done.stderr for word in ("truncated", "shorter", "not within the file")), done.stderr


def _end_of_segments(device: Device, library: Path) -> int:
    command = [device.toolchain.tool("readelf"), "-lW", str(library)]
    need(command[0])
    rows = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    loads = [row.split() for row in rows if row.split()[:1] == ["LOAD"]]
    return max(int(offset, 16) + int(filesz, 16) for _, offset, _, _, filesz, *_ in loads)


@pytest.mark.parametrize("other", sorted(OTHER))
def test_library_of_another_machine_is_refused(
    other: str, device_for: Callable[[str], Device], model: Model, tmp_path: Path
) -> None:
    device = device_for("x86_64-linux-gnu")
    from tests.run.device import emit

    emit("--target", other, model.path, "-o", tmp_path / "libmodel.so")
    done = device.run(device.program("dump.c"), tmp_path / "libmodel.so")
    assert done.returncode == 1
    assert f"built for {OTHER[other]}" in done.stderr
    assert "this process is x86-64" in done.stderr


def test_emulated_program_names_its_own_machine(device_for: Callable[[str], Device], model: Model) -> None:
    device, native = device_for("aarch64-linux-gnu"), device_for("x86_64-linux-gnu")
    done = device.run(device.program("dump.c"), native.artefact(model, ".so"))
    assert done.returncode == 1
    assert "built for x86-64" in done.stderr
    assert "this process is AArch64" in done.stderr


def test_what_is_no_library_is_refused(device_for: Callable[[str], Device], model: Model, tmp_path: Path) -> None:
    device = device_for("x86_64-linux-gnu")
    text = tmp_path / "text.so"
    text.write_text("#!/bin/sh\nexit 0\n" * 100)
    for path in (text, tmp_path, tmp_path / "absent.so", device.artefact(model, ".o")):
        done = device.run(device.program("dump.c"), path)
        assert done.returncode == 1
        assert f"error: {path}: " in done.stderr


def test_library_without_a_pack_is_refused(device_for: Callable[[str], Device], tmp_path: Path) -> None:
    device = device_for("x86_64-linux-gnu")
    source = tmp_path / "empty.c"
    source.write_text("int nothing;\n")
    library = tmp_path / "libempty.so"
    subprocess.run([device.toolchain.c, "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    done = device.run(device.program("dump.c"), library)
    assert done.returncode == 1
    assert "holds no pack" in done.stderr
