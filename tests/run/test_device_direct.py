"""The generated header and ordinary flags: accessors give the right bytes in every mode, without a copy of them.

Using a symbol itself works as the header says, or is refused by the linker; it is never a copy of the data.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from cross.table import TOOLCHAINS
from tests.c_tools import need
from tests.run.device import TARGETS, Device, Model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.run.device import Completed

# "-no-pie" alone links what a compiler with other defaults made for PIE; "-fno-pie -no-pie" is all of it.
MODES = ("", "-fPIE -pie", "-no-pie", "-fno-pie -no-pie", "-fPIC -pie")
COMBINATIONS = [
    (toolchain.name, compiler, mode) for toolchain in TOOLCHAINS for compiler in toolchain.compilers() for mode in MODES
]
LINKERS = {"bfd": ("ld",), "lld": ("ld.lld",), "mold": ("mold",)}


@pytest.mark.parametrize(("target", "compiler", "mode"), COMBINATIONS)
def test_accessors_work_in_every_mode(
    target: str, compiler: str, mode: str, device_for: Callable[[str], Device], model: Model, tmp_path: Path
) -> None:
    device = device_for(target)
    done = _link(device, model, tmp_path / "program", *mode.split(), compiler=compiler)
    assert (done.returncode, done.stderr) == (0, "")
    _works_without_a_copy(device, model, tmp_path / "program")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("linker", LINKERS)
@pytest.mark.parametrize(
    ("target", "compiler"),
    [
        ("x86_64-linux-gnu", "gcc"),
        ("x86_64-linux-gnu", "clang"),
        ("aarch64-linux-gnu", "clang"),
        ("armv7-linux-gnueabihf", "clang"),
    ],
)
def test_accessors_work_with_every_linker(
    target: str,
    compiler: str,
    linker: str,
    mode: str,
    device_for: Callable[[str], Device],
    model: Model,
    tmp_path: Path,
) -> None:
    device = device_for(target)
    need(*LINKERS[linker])
    done = _link(device, model, tmp_path / "program", *mode.split(), f"-fuse-ld={linker}", compiler=compiler)
    assert (done.returncode, done.stderr) == (0, "")
    _works_without_a_copy(device, model, tmp_path / "program")


@pytest.mark.parametrize("options", ["-marm", "-mthumb", "-marm -O0", "-mthumb -O0", "-mthumb -O2 -flto"])
@pytest.mark.parametrize("mode", ["", "-fno-pie -no-pie"])
def test_accessors_of_arm_work_in_both_instruction_sets(
    options: str, mode: str, device_for: Callable[[str], Device], model: Model, tmp_path: Path
) -> None:
    """The accessor is in assembly there."""
    device = device_for("armv7-linux-gnueabihf")
    for compiler in ("gcc", "clang"):
        if compiler == "gcc" or "lto" not in options:
            done = _link(device, model, tmp_path / "program", *mode.split(), *options.split(), compiler=compiler)
            assert (done.returncode, done.stderr) == (0, "")
            _works_without_a_copy(device, model, tmp_path / "program")


@pytest.mark.parametrize("linker", LINKERS)
@pytest.mark.parametrize(
    ("compiler", "mode"),
    [("gcc", ""), ("gcc", "-fPIE -pie"), ("gcc", "-fno-pie -no-pie"), ("clang", "-fno-pie -no-pie")],
)
def test_direct_use_is_refused_rather_than_copied(
    compiler: str, mode: str, linker: str, device_for: Callable[[str], Device], model: Model, tmp_path: Path
) -> None:
    device = device_for("x86_64-linux-gnu")
    need(*LINKERS[linker])
    done = _link(
        device, model, tmp_path / "program", *mode.split(), f"-fuse-ld={linker}", "-DDIRECT", compiler=compiler
    )
    assert done.returncode != 0
    assert model.name in done.stderr
    # The header has the words of GNU ld.
    words = {"bfd": "copy relocation against non-copyable protected symbol", "lld": "cannot preempt symbol"}
    assert words.get(linker, "cannot make copy relocation for protected symbol") in done.stderr
    header = (device.folder / f"{model.name}.h").read_text()
    assert f'"{words["bfd"]}"' in header


def test_direct_use_is_refused_on_aarch64(device_for: Callable[[str], Device], model: Model, tmp_path: Path) -> None:
    device = device_for("aarch64-linux-gnu")
    done = _link(device, model, tmp_path / "program", "-fno-pie", "-no-pie", "-DDIRECT")
    assert done.returncode != 0
    assert "copy relocation against non-copyable protected symbol" in done.stderr


@pytest.mark.parametrize(
    ("target", "compiler", "mode"),
    [
        (target, compiler, mode)
        for target, compiler, mode in COMBINATIONS
        if mode in ("", "-fPIC -pie") and not (target.startswith("x86_64") and compiler == "gcc" and mode == "")
    ],
)
def test_direct_use_works_where_code_finds_data_by_a_table(
    target: str, compiler: str, mode: str, device_for: Callable[[str], Device], model: Model, tmp_path: Path
) -> None:
    device = device_for(target)
    done = _link(device, model, tmp_path / "program", *mode.split(), "-DDIRECT", compiler=compiler)
    assert (done.returncode, done.stderr) == (0, "")
    _works_without_a_copy(device, model, tmp_path / "program")


@pytest.mark.parametrize("mode", ["", "-fno-pie -no-pie"])
@pytest.mark.parametrize("suffix", [".o", ".a"])
@pytest.mark.parametrize("target", TARGETS)
def test_direct_use_always_works_with_objects_and_archives(
    target: str, suffix: str, mode: str, device_for: Callable[[str], Device], model: Model, tmp_path: Path
) -> None:
    device = device_for(target)
    artefact = device.artefact(model, suffix)
    done = device.compile(
        "direct.c", tmp_path / "program", *mode.split(), *device.uses(model), "-DDIRECT", str(artefact)
    )
    assert (done.returncode, done.stderr) == (0, "")
    device.prints(model.tensors, tmp_path / "program")


def _link(device: Device, model: Model, program: Path, *flags: str, compiler: str = "gcc") -> Completed:
    """Link direct.c with -lNAME."""
    command = device.toolchain.compilers()[compiler]
    need(command[0])
    library = device.artefact(model, ".so")
    where = (f"-L{library.parent}", f"-l{model.name}", f"-Wl,-rpath,{library.parent}")
    return device.compile("direct.c", program, *flags, *device.uses(model), *where, compiler=command)


def _works_without_a_copy(device: Device, model: Model, program: Path) -> None:
    device.prints(model.tensors, program)
    # Those of the C library do not matter.
    relocations = _readelf(device, "-rW", program).splitlines()
    assert [row for row in relocations if "_COPY" in row and f" {model.name}" in row] == []
    assert any(f" {model.name}" in row for row in relocations)
    # Other ways to avoid a copy are paid for by stderr, which direct.c uses.
    assert "TEXTREL" not in _readelf(device, "-dW", program)


def _readelf(device: Device, option: str, program: Path) -> str:
    command = [device.toolchain.tool("readelf"), option, str(program)]
    need(command[0])
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_schema_of_the_header_refuses_other_tensors(
    device_for: Callable[[str], Device], model: Model, tmp_path: Path
) -> None:
    device = device_for("x86_64-linux-gnu")
    artefact = device.artefact(model, ".o")
    done = device.compile("direct.c", tmp_path / "program", *device.uses(model), "-DSCHEMA=1", str(artefact))
    assert (done.returncode, done.stderr) == (0, "")
    done = device.run(tmp_path / "program")
    assert done.returncode == 1
    assert "other names, types or shapes" in done.stderr
