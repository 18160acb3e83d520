"""Linking with -lNAME, the generated header and ordinary flags: right bytes, and no copy of them in the program."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from cross.table import TOOLCHAINS
from tests.run.device import Device, Model, lines, need

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COMBINATIONS = [
    (toolchain.name, compiler, mode)
    for toolchain in TOOLCHAINS
    for compiler in toolchain.compilers()
    for mode in ("default", "-fPIE -pie", "-no-pie", "-fPIC -pie")
]

# GNU ld copies protected symbols into position-dependent code here, whatever refers to them; the loader warns of it.
COPIES = ("armv7-linux-gnueabihf",)


@pytest.mark.parametrize(("target", "compiler", "mode"), COMBINATIONS)
def test_direct_link(
    target: str, compiler: str, mode: str, device_for: Callable[[str], Device], model: Model, tmp_path: Path
) -> None:
    device = device_for(target)
    need(compiler if compiler == "clang" else device.toolchain.c)
    library = device.artefact(model, ".so")
    flags = [] if mode == "default" else mode.split()
    done = device.compile(
        "direct.c",
        tmp_path / "program",
        *flags,
        *device.uses(model),
        f"-L{library.parent}",
        f"-l{model.name}",
        f"-Wl,-rpath,{library.parent}",
        compiler=device.toolchain.compilers()[compiler],
    )
    assert (done.returncode, done.stderr) == (0, "")
    if "no-pie" in mode and target in COPIES:
        done = device.run(tmp_path / "program")
        assert f"copy relocation against non-copyable protected symbol `{model.name}'" in done.stderr
        assert done.stdout.splitlines() == lines(model.tensors, target)
    else:
        device.prints(model.tensors, tmp_path / "program")
        assert _copies(device, tmp_path / "program", model) == []
    # The price of telling GCC to use the global offset table in another way is paid by stderr, which direct.c uses.
    assert "TEXTREL" not in _readelf(device, "-dW", tmp_path / "program")


def _readelf(device: Device, option: str, program: Path) -> str:
    command = [device.toolchain.tool("readelf"), option, str(program)]
    need(command[0])
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _copies(device: Device, program: Path, model: Model) -> list[str]:
    """Return the relocations that copy the model's symbols into the program; those of the C library do not matter."""
    rows = _readelf(device, "-rW", program).splitlines()
    return [row for row in rows if "_COPY" in row and f" {model.name}" in row]


@pytest.mark.parametrize("mode", ["-fPIE -pie", "-no-pie"])
@pytest.mark.parametrize("linker", ["bfd", "lld", "mold"])
def test_default_flags_work_on_x86_64(
    linker: str, mode: str, device_for: Callable[[str], Device], model: Model, tmp_path: Path
) -> None:
    """What a Debian user types must not end in a refusal, whatever the linker: the header sees to it."""
    device = device_for("x86_64-linux-gnu")
    need("ld" if linker == "bfd" else {"lld": "ld.lld"}.get(linker, linker))
    library = device.artefact(model, ".so")
    done = device.compile(
        "direct.c", tmp_path / "program", *mode.split(), f"-fuse-ld={linker}", *device.uses(model),
        f"-L{library.parent}", f"-l{model.name}", f"-Wl,-rpath,{library.parent}",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert _copies(device, tmp_path / "program", model) == []
    assert "TEXTREL" not in _readelf(device, "-dW", tmp_path / "program")
    device.prints(model.tensors, tmp_path / "program")


def test_schema_of_the_header_refuses_other_tensors(
    device_for: Callable[[str], Device], model: Model, tmp_path: Path
) -> None:
    device = device_for("x86_64-linux-gnu")
    artefact = device.artefact(model, ".o")
    flags = [flag.replace(f"{model.name}_SCHEMA", "1") for flag in device.uses(model)]
    done = device.compile("direct.c", tmp_path / "program", *flags, str(artefact))
    assert (done.returncode, done.stderr) == (0, "")
    done = device.run(tmp_path / "program")
    assert done.returncode == 1
    assert "other names, types or shapes" in done.stderr
