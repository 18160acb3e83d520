"""A program on each CPU measures tensors of every element type and prints what `emitter inspect` prints on the host."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

import emitter
from emitter.dtypes import TABLE, DType
from emitter.package import BufferSource, Extent, Package, Tensor
from tests.run.device import TARGETS, Device, emit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a pack with tensors of every element type, of random bits; of lanes; of a block format; without values."""
    generator = np.random.default_rng(11)
    package = Package()

    def add(name: str, dtype: DType, shape: tuple[int, ...], encoding: int = 0) -> None:
        data = generator.integers(0, 256, dtype.nbytes(shape), np.uint8)
        if dtype.bits % 8:
            # Bits that belong to no element are zero in a pack.
            bits = dtype.element_bits * int(np.prod(shape))
            data = np.packbits(np.unpackbits(data, bitorder="little")[:bits], bitorder="little")
        extent = Extent(BufferSource(name, memoryview(data.tobytes())), 0, len(data))
        package.add(Tensor(name, dtype, shape, extent, encoding=encoding))

    for row in TABLE:
        add(row.name, row.dtype, (3, 7))
        add(f"{row.name}.empty", row.dtype, (0, 2))
        if row.dtype.bits % 8 == 0:
            add(f"{row.name}.lanes", row.dtype._replace(lanes=3), (5,))
    add("encoded", DType(1, 8), (16,), encoding=3)
    package.add_tensor("plain", generator.standard_normal(1000).astype(np.float32))
    package.add_tensor("infinite", np.array([np.inf, -np.inf, np.nan]))
    path = tmp_path_factory.mktemp("stats") / "all.pack"
    emitter.emit(package, path)
    return path


@pytest.mark.parametrize("target", TARGETS)
def test_device_and_host_print_the_same_statistics(
    target: str, device_for: Callable[[str], Device], pack: Path, tmp_path: Path
) -> None:
    device = device_for(target)
    library = tmp_path / "liball.so"
    emit("--target", target, pack, "-o", library)
    done = device.run(device.program("dump.c"), "--stats", library)
    assert (done.returncode, done.stderr) == (0, "")
    command = [sys.executable, "-m", "emitter", "inspect", "--tensors", "--stats", str(library)]
    host = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (host.returncode, host.stderr) == (0, "")
    assert done.stdout.splitlines() == host.stdout.splitlines()
    assert len(host.stdout.splitlines()) > 3 * len(TABLE) - 10
