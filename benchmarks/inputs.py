"""Makes the inputs of the benchmarks, in bare Python."""

from __future__ import annotations

import json
import mmap
import os
import random
import struct
from typing import TYPE_CHECKING

from benchmarks import make_resnet18

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import BinaryIO

__all__ = ["blobs", "many_tensors", "raw", "resnet18", "safetensors", "sparse", "touch_free_memory"]

_STEP = 4 << 20


def resnet18(folder: str) -> tuple[str, str]:
    """Make the ResNet-18-shaped file, and a raw file of the same number of bytes; return both paths."""
    path = os.path.join(folder, "resnet18.safetensors")
    _in_child(lambda: make_resnet18.write(path))
    return path, raw(folder, "resnet18.bin", sum(map(make_resnet18.nbytes, make_resnet18.tensors())))


def raw(folder: str, name: str, size: int) -> str:
    """Make a file of `size` random bytes."""
    return _write(folder, name, lambda file: _fill(file, size))


def safetensors(folder: str, name: str, size: int) -> str:
    """Make a safetensors file with `size` bytes of F32 tensors of 4 MiB each."""

    def write(file: BinaryIO) -> None:
        file.write(_header((f"layers.{number}.weight", (1024, 1024)) for number in range(size // _STEP)))
        _fill(file, size)

    return _write(folder, name, write)


def many_tensors(folder: str, count: int) -> str:
    """Make a safetensors file with `count` tensors of 64 bytes."""

    def write(file: BinaryIO) -> None:
        file.write(_header((f"block.{number // 10}.weight.{number % 10}", (16,)) for number in range(count)))
        _fill(file, 64 * count)

    return _write(folder, f"tensors-{count}.safetensors", write)


def sparse(folder: str, size: int) -> str:
    """Make a file of `size` bytes with 1 MiB of data at either end and a hole between."""

    def write(file: BinaryIO) -> None:
        _fill(file, 1 << 20)
        file.seek(size - (1 << 20))
        _fill(file, 1 << 20)

    return _write(folder, "sparse.bin", write)


def blobs(folder: str, count: int, size: int) -> list[str]:
    """Make `count` files of `size` random bytes, all different."""
    paths = [os.path.join(folder, "blobs", f"blob{number:04}.bin") for number in range(count)]
    os.makedirs(os.path.join(folder, "blobs"), exist_ok=True)

    def write() -> None:
        for path in paths:
            with open(path, "wb") as file:
                file.write(random.Random(path).randbytes(size))

    _in_child(write)
    return paths


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


def _write(folder: str, name: str, write: Callable[[BinaryIO], None]) -> str:
    path = os.path.join(folder, name)

    def make() -> None:
        with open(path, "wb") as file:
            write(file)

    _in_child(make)
    return path


def touch_free_memory() -> None:
    """Use all free memory once, in a process of its own.

    A virtual machine may be given a page when it is first used, which takes ten times as long as to write it: that
    would be charged to whichever command meets such pages.
    """

    def touch() -> None:
        with open("/proc/meminfo", encoding="ascii") as file:
            facts = {line.split(":")[0]: int(line.split()[1]) << 10 for line in file}
        spare, block = 1 << 30, bytes([1]) * (64 << 20)
        with mmap.mmap(-1, max(facts["MemFree"] - spare, len(block))) as memory:
            for _ in range(len(memory) // len(block)):
                memory.write(block)

    if os.path.exists("/proc/meminfo"):
        _in_child(touch)


def _in_child(make: Callable[[], object]) -> None:
    """Call `make` in a process of its own: its memory would count for every command that is measured later."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            make()
            status = 0
        finally:
            os._exit(status)
    if os.waitpid(pid, 0)[1]:
        raise RuntimeError("an input could not be made")
