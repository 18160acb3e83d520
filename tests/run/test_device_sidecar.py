"""Programs of every CPU open libraries whose payloads are in a file beside them, as they open any other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.run.device import TARGETS, Device, Model, emit, lines

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize("target", TARGETS)
def test_every_tensor_with_its_checksum(
    target: str, device_for: Callable[[str], Device], model: Model, other_model: Model, tmp_path: Path
) -> None:
    """One is pinned, one is not; both are open at once."""
    device = device_for(target)
    paths = [tmp_path / "libfirst.so", tmp_path / "libsecond.so"]
    emit("--target", target, model.path, "-o", paths[0], "--sidecar", "--pin")
    emit("--target", target, other_model.path, "-o", paths[1], "--sidecar")
    done = device.run(device.program("dump.c"), *paths)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == lines(model.tensors, target) + lines(other_model.tensors, target)
    with open(tmp_path / "libfirst.pack", "r+b") as sidecar:
        sidecar.seek(-1, 2)
        sidecar.write(b"\x55")
    done = device.run(device.program("dump.c"), paths[0])
    assert done.returncode == 1
    assert "libfirst.pack: not the file that the library was made with: its SHA-256 differs" in done.stderr
