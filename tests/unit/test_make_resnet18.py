"""The ResNet-18-shaped file is what torchvision's state dict is, judged by the safetensors project's reader."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
from safetensors.numpy import load_file

from benchmarks import make_resnet18

if TYPE_CHECKING:
    from pathlib import Path


def test_names_shapes_and_types() -> None:
    found = {name: (dtype, shape) for name, dtype, shape in make_resnet18.tensors()}
    assert len(found) == 122
    assert found["conv1.weight"] == ("F32", (64, 3, 7, 7))
    assert found["layer2.0.downsample.0.weight"] == ("F32", (128, 64, 1, 1))
    assert found["layer4.1.bn2.num_batches_tracked"] == ("I64", ())
    assert "layer1.0.downsample.0.weight" not in found
    # The published count of parameters, which leaves out the running statistics.
    parameters = sum(
        int(np.prod(shape)) for name, (_, shape) in found.items() if "running" not in name and "tracked" not in name
    )
    assert parameters == 11_689_512


def test_file_is_valid_and_the_same_every_time(tmp_path: Path) -> None:
    first, second = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    assert make_resnet18.write(str(first)) == 46_796_608
    # In an interpreter without site-packages: it needs nothing.
    subprocess.run([sys.executable, "-I", "-S", make_resnet18.__file__, str(second)], check=True, capture_output=True)
    assert first.read_bytes() == second.read_bytes()
    tensors = load_file(first)
    assert [name for name, _, _ in make_resnet18.tensors() if name not in tensors] == []
    assert all(np.isfinite(array).all() for array in tensors.values())
    assert sum(array.nbytes for array in tensors.values()) == 46_796_608
