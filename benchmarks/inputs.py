"""Makes the inputs of the benchmarks, in bare Python and in constant memory."""

from __future__ import annotations

import json
import os
import random
import struct
from typing import TYPE_CHECKING

from benchmarks import make_resnet18

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import BinaryIO

__all__ = ["blobs", "many_tensors", "raw", "resnet18", "safetensors", "sparse"]

_STEP = 4 << 20


def resnet18(folder: str) -> tuple[str, str]:
    """Make the ResNet-18-shaped file, and a raw file of the same number of bytes; return both paths."""
    path = os.path.join(folder, "resnet18.safetensors")
    size = make_resnet18.write(path)
    return path, raw(folder, "resnet18.bin", size)


def raw(folder: str, name: str, size: int) -> str:
    """Make a file of `size` random bytes."""
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        _fill(file, size)
    return path


def safetensors(folder: str, name: str, size: int) -> str:
    """Make a safetensors file with `size` bytes of F32 tensors of 4 MiB each, as large models have them or larger."""
    path = os.path.join(folder, name)
    header = _header((f"layers.{number}.weight", (1024, 1024)) for number in range(size // _STEP))
    with open(path, "wb") as file:
        file.write(header)
        _fill(file, size)
    return path


def many_tensors(folder: str, count: int) -> str:
    """Make a safetensors file with `count` tensors of 64 bytes."""
    path = os.path.join(folder, f"tensors-{count}.safetensors")
    with open(path, "wb") as file:
        file.write(_header((f"block.{number // 10}.weight.{number % 10}", (16,)) for number in range(count)))
        _fill(file, 64 * count)
    return path


def sparse(folder: str, size: int) -> str:
    """Make a file of `size` bytes with 1 MiB of data at either end and a hole between."""
    path = os.path.join(folder, "sparse.bin")
    with open(path, "wb") as file:
        _fill(file, 1 << 20)
        file.seek(size - (1 << 20))
        _fill(file, 1 << 20)
    return path


def blobs(folder: str, count: int, size: int) -> list[str]:
    """Make `count` files of `size` random bytes."""
    os.makedirs(os.path.join(folder, "blobs"), exist_ok=True)
    return [raw(folder, os.path.join("blobs", f"blob{number:04}.bin"), size) for number in range(count)]


def _header(entries: Iterable[tuple[str, tuple[int, ...]]]) -> bytes:
    table: dict[str, object] = {}
    position = 0
    for name, shape in entries:
        size = 4
        for extent in shape:
            size *= extent
        table[name] = {"dtype": "F32", "shape": shape, "data_offsets": (position, position + size)}
        position += size
    text = json.dumps(table, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text


def _fill(file: BinaryIO, size: int) -> None:
    # Random throughout: equal payloads would be stored once.
    generator = random.Random(size)
    while size:
        part = min(size, _STEP)
        file.write(generator.randbytes(part))
        size -= part
