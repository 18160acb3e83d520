"""The network of tests/data/c/network.c: its weights, its result by numpy, its IR, and what runs it."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

import numpy as np

from emitter import Package, emit
from emitter.attach.stub import descriptor_header
from tests.c_tools import need

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["CLANG", "SOURCE", "TARGETS", "TOLERANCE", "compile_ir", "image_file", "package", "probabilities", "weights"]

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCE = os.path.join(ROOT, "tests", "data", "c", "network.c")
TOLERANCE = 1e-5

# The targets that the network is run on, with what clang calls them.
CLANG = {
    "x86_64-linux-gnu": "x86_64-linux-gnu",
    "aarch64-linux-gnu": "aarch64-linux-gnu",
    "riscv64-linux-gnu": "riscv64-linux-gnu",
    "armv7-linux-gnueabihf": "arm-linux-gnueabihf",
    "s390x-linux-gnu": "s390x-linux-gnu",
    "i686-linux-gnu": "i686-linux-gnu",
    "powerpc64le-linux-gnu": "powerpc64le-linux-gnu",
    "x86_64-windows-gnu": "x86_64-w64-windows-gnu",
    "x86_64-windows-msvc": "x86_64-pc-windows-msvc",
    "arm64-apple-macos": "arm64-apple-macos11.0",
    "x86_64-apple-macos": "x86_64-apple-macos11.0",
}
TARGETS = tuple(CLANG)

_SHAPES = {
    "conv1.weight": (4, 1, 3, 3),
    "conv1.bias": (4,),
    "conv2.weight": (6, 4, 3, 3),
    "conv2.bias": (6,),
    "dense.weight": (5, 96),
    "dense.bias": (5,),
}


def weights() -> dict[str, NDArray[np.float32]]:
    """Return the weights, always the same."""
    random = np.random.default_rng(7)
    return {name: (random.standard_normal(shape) * 0.3).astype(np.float32) for name, shape in _SHAPES.items()}


def package() -> Package:
    """Return a package of the weights."""
    made = Package()
    for name, array in weights().items():
        made.add_tensor(name, array)
    return made


def _image() -> NDArray[np.float32]:
    return np.random.default_rng(8).standard_normal((1, 12, 12)).astype(np.float32)


def image_file(folder: Path) -> Path:
    """Write the image in the byte order of this machine's programs, and return its path."""
    path = folder / "image.bin"
    path.write_bytes(_image().tobytes())
    return path


def image_bytes(byte_order: str) -> bytes:
    """Return the image as a program of that byte order reads it."""
    return _image().astype("<f4" if byte_order == "little" else ">f4").tobytes()


def probabilities() -> NDArray[np.float64]:
    """Return what numpy says, in double precision."""
    w = {name: array.astype(np.float64) for name, array in weights().items()}
    x = _image().astype(np.float64)
    for name in ("conv1", "conv2"):
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))
        x = np.einsum("cyxij,mcij->myx", windows, w[f"{name}.weight"]) + w[f"{name}.bias"][:, None, None]
        x = np.maximum(x, 0)
    x = x.reshape(6, 4, 2, 4, 2).max(axis=(2, 4))
    x = w["dense.weight"] @ x.reshape(-1) + w["dense.bias"]
    x = np.exp(x - x.max())
    result: NDArray[np.float64] = x / x.sum()
    return result


def compile_ir(folder: Path, target: str, *flags: str, way_b: bool = False, name: str = "network.bc") -> Path:
    """Compile the network to LLVM IR for a target; with `way_b` it finds its weights through the pack's descriptor."""
    need("clang")
    defines: list[str] = []
    if way_b:
        (folder / "net_descriptor.h").write_text(descriptor_header("net"))
        defines = ["-DWAY_B", f"-I{folder}", *_offsets(folder, target)]
    # No C library: its headers are not there for every target.
    pic = [] if "windows" in target else ["-fPIC"]
    output = folder / name
    kind = ["-S"] if name.endswith(".ll") else ["-c"]
    command = ["clang", f"--target={CLANG[target]}", "-O1", "-ffreestanding", *pic, "-emit-llvm", *kind, *defines]
    done = subprocess.run([*command, *flags, SOURCE, "-o", str(output)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return output


def _offsets(folder: Path, target: str) -> Sequence[str]:
    """Return the offsets of the weights in the pack as macros, from the map of the pack alone."""
    map_path = folder / "offsets.json"
    emit(package(), folder / "offsets.pack", target=target, map=map_path)
    tensors = json.loads(map_path.read_text())["tensors"]
    return [f"-DAT_{one['name'].upper().replace('.', '_')}={one['pack_offset']}" for one in tensors]
