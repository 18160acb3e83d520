"""Programs on each CPU open an emitted library, or have it linked in, and see what numpy sees on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cross.table import TOOLCHAINS
from tests.run.device import TARGETS, Device, Model, emit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PAGES = [(toolchain.name, size) for toolchain in TOOLCHAINS for size in toolchain.page_sizes]
CXX_TARGETS = [toolchain.name for toolchain in TOOLCHAINS if toolchain.cxx]


@pytest.mark.parametrize("target", TARGETS)
def test_c_program_opens_the_library(target: str, device_for: Callable[[str], Device], model: Model) -> None:
    device = device_for(target)
    device.prints(model.tensors, device.program("dump.c"), device.artefact(model, ".so"))


@pytest.mark.parametrize("target", CXX_TARGETS)
def test_cxx_program_opens_the_library(target: str, device_for: Callable[[str], Device], model: Model) -> None:
    device = device_for(target)
    device.prints(model.tensors, device.program("dump.cc"), device.artefact(model, ".so"))


@pytest.mark.parametrize(("target", "page_size"), PAGES)
def test_library_loads_with_larger_pages(
    target: str, page_size: int, device_for: Callable[[str], Device], model: Model
) -> None:
    device = device_for(target)
    device.prints(model.tensors, device.program("dump.c"), device.artefact(model, ".so"), page_size=page_size)


@pytest.mark.parametrize("suffix", [".o", ".a"])
@pytest.mark.parametrize("target", TARGETS)
def test_pack_is_linked_in(
    target: str, suffix: str, device_for: Callable[[str], Device], model: Model, tmp_path: Path
) -> None:
    device = device_for(target)
    artefact = device.artefact(model, suffix)
    done = device.compile("direct.c", tmp_path / "program", *device.uses(model), str(artefact))
    assert (done.returncode, done.stderr) == (0, "")
    device.prints(model.tensors, tmp_path / "program")


@pytest.mark.parametrize("target", TARGETS)
def test_alignment_in_memory_is_as_asked(
    target: str, device_for: Callable[[str], Device], model: Model, tmp_path: Path
) -> None:
    device = device_for(target)
    emit("--target", target, "--align", "4096", model.path, "-o", tmp_path / "libmodel.so")
    device.prints(model.tensors, device.program("dump.c"), tmp_path / "libmodel.so")


def test_large_model_is_mapped_and_not_copied(device_for: Callable[[str], Device], tmp_path: Path) -> None:
    """The index and one tensor of a payload of 64 MiB: the file's other pages stay untouched."""
    device = device_for("x86_64-linux-gnu")
    if not device.toolchain.native:
        pytest.skip("memory of an emulated program is the emulator's")
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(64 << 20)
    emit("--target", device.name, f"w=raw:{tmp_path / 'w.bin'}", "-o", tmp_path / "libw.so")
    program = device.program("first.c")
    done = device.run(program, tmp_path / "libw.so", "w")
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) < 16 << 10  # KiB


def test_real_model(device_for: Callable[[str], Device], tmp_path: Path) -> None:
    """The model that the silero-vad package carries: trained weights, in a file that another writer made."""
    from importlib.util import find_spec
    from pathlib import Path

    from safetensors.numpy import load_file

    spec = find_spec("silero_vad")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("silero-vad is not installed")
    path = Path(spec.submodule_search_locations[0]) / "data" / "silero_vad_16k.safetensors"
    device = device_for("aarch64-linux-gnu")
    emit("--target", device.name, path, "-o", tmp_path / "libvad.so")
    device.prints(load_file(path), device.program("dump.c"), tmp_path / "libvad.so")
