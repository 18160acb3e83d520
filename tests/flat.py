"""Lays out a Mach-O library as tests/data/c/run_flat.c reads it: in memory as dyld would, at a base that is free.

dyld is Apple's alone, but code for its systems calls functions as code for Linux does, but for variable arguments: so
what a linker made for Apple's CPUs is run here, read by lief.
"""

from __future__ import annotations

import os
import struct
import subprocess
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.c_tools import toolchain_of

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["outcome", "write_flat"]

_BASE = 0x4_0000_0000
_SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "c", "run_flat.c")
_HOSTS = {"arm64-apple-macos": "aarch64-linux-gnu", "x86_64-apple-macos": "x86_64-linux-gnu"}


def outcome(library: Path, target: str, entry: str, image: bytes) -> NDArray[np.float64]:
    """Return what the function `entry` of a library for `target` makes of `image`, run beside the library."""
    toolchain = toolchain_of(_HOSTS[target])
    folder = library.parent
    program, data = folder / "run_flat", folder / "image.bin"
    data.write_bytes(image)
    flags = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([toolchain.c, *flags, _SOURCE, "-lm", "-o", str(program)], check=True)
    command = [*toolchain.runner(), str(program), str(write_flat(library, entry, folder / "flat.bin")), str(data)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return np.array([float(line) for line in done.stdout.split()])


def write_flat(library: Path, entry: str, output: Path) -> Path:
    """Write the memory of `library`, with what is bound into it; `entry` is the function that is called."""
    lief: Any = pytest.importorskip("lief", reason="lief is not installed")
    binary: Any = lief.MachO.parse(str(library)).at(0)
    size = max(segment.virtual_address + segment.virtual_size for segment in binary.segments)
    memory = bytearray(size)
    for segment in binary.segments:
        content = bytes(segment.content)
        memory[segment.virtual_address : segment.virtual_address + len(content)] = content
    for relocation in binary.relocations:
        (value,) = struct.unpack_from("<Q", memory, relocation.address)
        struct.pack_into("<Q", memory, relocation.address, value + _BASE)
    bindings = [(one.address, one.symbol.name.removeprefix("_")) for one in binary.bindings]
    bindings = [(address, name) for address, name in bindings if name != "dyld_stub_binder"]
    place = next(one.value for one in binary.exported_symbols if one.name == f"_{entry}")
    head = struct.pack("<4Q", _BASE, place, size, len(bindings))
    rows = b"".join(struct.pack("<Q24s", address, name.encode()) for address, name in bindings)
    output.write_bytes(head + memory + rows)
    return output
