"""Two emitted libraries, two packs in one program: each is read as its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.run.device import TARGETS, Device, Model, lines

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize("option", [(), ("--global",)], ids=["local", "global"])
@pytest.mark.parametrize("target", TARGETS)
def test_two_libraries(
    target: str, option: tuple[str, ...], device_for: Callable[[str], Device], model: Model, other_model: Model
) -> None:
    """With --global both define emitter_pack for everyone, and the first would win if a library looked for its own."""
    device = device_for(target)
    libraries = [device.artefact(model, ".so"), device.artefact(other_model, ".so")]
    done = device.run(device.program("dump.c"), *option, *libraries)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [*lines(model.tensors, target), *lines(other_model.tensors, target)]


@pytest.mark.parametrize("suffixes", [(".o", ".o"), (".a", ".a"), (".o", ".so"), (".so", ".so")], ids="".join)
@pytest.mark.parametrize("target", ["x86_64-linux-gnu", "x86_64-linux-musl", "aarch64-linux-gnu"])
def test_two_packs_in_one_program(
    target: str,
    suffixes: tuple[str, str],
    device_for: Callable[[str], Device],
    model: Model,
    other_model: Model,
    tmp_path: Path,
) -> None:
    device = device_for(target)
    artefacts = [device.artefact(m, suffix) for m, suffix in zip((model, other_model), suffixes, strict=True)]
    second = other_model.name
    done = device.compile(
        "direct.c",
        tmp_path / "program",
        *device.uses(model),
        f'-DHEADER2="{second}.h"',
        f"-DNAME2={second}",
        *map(str, artefacts),
        f"-Wl,-rpath,{device.folder}",
    )
    assert (done.returncode, done.stderr) == (0, "")
    done = device.run(tmp_path / "program")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [*lines(model.tensors, target), *lines(other_model.tensors, target)]
