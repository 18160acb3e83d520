"""Compilers for tests of the C and C++ sides, and the package that the programs in tests/data/c expect."""

from __future__ import annotations

import math
import os
import shutil
import struct
import subprocess
from typing import TYPE_CHECKING

import pytest

from cross.table import find, skip_reason
from emitter import Package, dtypes
from emitter.checksum import crc32c
from emitter.dtypes import DType
from emitter.package import BufferSource, ByteOrder, Extent, Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cross.table import Toolchain

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
INCLUDE = os.path.join(ROOT, "loaders", "c")
DATA = os.path.join(ROOT, "tests", "data", "c")
WARNINGS = ("-pedantic", "-Wall", "-Wextra", "-Werror", "-Wconversion", "-Wshadow")
C_COMPILERS = ("gcc", "clang-14")
CXX_COMPILERS = ("g++", "clang++-14")


def need(*tools: str) -> None:
    """Skip the test, by name, if a tool is missing."""
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


def toolchain_of(target: str) -> Toolchain:
    """Return what builds and runs programs of a target; skip the test, by name, if a part of it is missing."""
    reason, toolchain = skip_reason(target), find(target)
    if reason is not None or toolchain is None:
        pytest.skip(reason or target)
    return toolchain


def build(compiler: str, output: str, *arguments: str) -> str:
    """Compile, and return `output`; the test fails with the compiler's words."""
    need(compiler)
    command = [compiler, f"-I{INCLUDE}", *arguments, "-o", output]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    return output


def sanitizers(compiler: str) -> tuple[str, ...]:
    """Return options that make a program die of undefined behaviour; of accesses outside too, where GCC builds it."""
    if compiler.startswith("clang"):  # its run-time library is not installed everywhere
        return ("-fsanitize=undefined", "-fsanitize-trap=undefined")
    return ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a program; its return code is for the test to judge."""
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def tensor(
    name: str,
    dtype: DType,
    shape: tuple[int, ...],
    data: bytes,
    *,
    alignment: int | None = None,
    encoding: int = 0,
    metadata: dict[str, str] | None = None,
) -> Tensor:
    """Return a tensor of little-endian bytes in memory."""
    extent = Extent(BufferSource("test", memoryview(data)), 0, len(data))
    return Tensor(name, dtype, shape, extent, alignment, encoding, metadata or {})


def sample_package() -> Package:
    """Return a package with every named element type, shapes of every kind, and metadata."""
    package = Package(
        metadata={"license": "0BSD", "author": "\N{LATIN SMALL LETTER E WITH ACUTE}"}, model_version="v1.2"
    )
    rows = {row.name: row.dtype for row in dtypes.TABLE}
    package.add(
        tensor("conv1.weight", rows["float32"], (2, 3), struct.pack("<6f", *range(1, 7)), metadata={"k": "v", "a": ""})
    )
    for bits in (8, 16, 32, 64):
        code = {8: "b", 16: "h", 32: "i", 64: "q"}[bits]
        package.add(tensor(f"int{bits}", rows[f"int{bits}"], (2,), struct.pack(f"<2{code}", -1, 2)))
        package.add(tensor(f"uint{bits}", rows[f"uint{bits}"], (2,), struct.pack(f"<2{code}", -1, 2)))
    package.add(tensor("float16", rows["float16"], (2,), struct.pack("<2H", 0x3C00, 0xC000)))
    package.add(tensor("bfloat16", rows["bfloat16"], (2,), struct.pack("<2H", 0x3F80, 0xC000)))
    for name, dtype in rows.items():
        if name.startswith("float8"):
            package.add(tensor(name, dtype, (2,), b"\x38\xc0"))
    package.add(tensor("complex64", rows["complex64"], (1,), struct.pack("<2f", 1, -2)))
    package.add(tensor("complex128", rows["complex128"], (1,), struct.pack("<2d", 1, -2)))
    package.add(tensor("bool", rows["bool"], (3,), b"\1\0\1"))
    values = {4: (8, 7, 15, 0, 3), 2: (2, 1, 3, 0, 1), 1: (1, 0, 1, 1, 0), 6: (63, 1, 32, 0, 21)}
    for name, dtype in rows.items():
        if dtype.packed:
            number = sum(value << i * dtype.bits for i, value in enumerate(values[dtype.bits]))
            package.add(tensor(name, dtype, (5,), number.to_bytes((5 * dtype.bits + 7) // 8, "little")))
    package.add(tensor("scalar", rows["float64"], (), struct.pack("<d", 2.5)))
    package.add(tensor("empty", rows["float32"], (3, 0, 2), b""))
    package.add(tensor("lanes", DType(2, 32, 4), (1,), struct.pack("<4f", 1, 2, 3, 4)))
    package.add(tensor("blocks", rows["uint8"], (256,), b"\x11" * 18, encoding=0x8001))
    package.add(tensor("one", rows["uint8"], (1,), b"\x01", alignment=1))
    package.add(tensor("odd", rows["float32"], (1,), struct.pack("<f", 9), alignment=1))
    package.add(tensor("\N{CYRILLIC SMALL LETTER ZHE}/\U0001f600", rows["uint8"], (1,), b"\x07", alignment=4096))
    return package


def stored(tensor: Tensor, byte_order: ByteOrder) -> bytes:
    """Return the bytes of a tensor of `sample_package` in the given order, swapped here on its own."""
    source = tensor.extent.source
    assert isinstance(source, BufferSource)
    data = bytes(source.data)
    dtype = tensor.dtype
    unit = 1 if tensor.encoding or dtype.bits % 8 else dtype.bits // 8 // (2 if dtype.code == dtypes.COMPLEX else 1)
    if byte_order == "little":
        return data
    return b"".join(data[at : at + unit][::-1] for at in range(0, len(data), unit))


def dump_text(package: Package, byte_order: ByteOrder, *, schema: int, alignment: int = 64) -> str:
    """Return what tests/data/c/dump.c prints for the pack of a package without equal payloads."""
    alignments = [tensor.alignment or alignment for tensor in package.tensors]
    lines = [f"schema {schema:016x} alignment {max([8, *alignments])} version {package.model_version}"]
    lines += _metadata_lines(package.metadata)
    for one in sorted(package.tensors, key=lambda tensor: tensor.name.encode()):
        data = stored(one, byte_order)
        row = dtypes.row_of(DType(one.dtype.code, one.dtype.bits))
        strides = [math.prod(max(extent, 1) for extent in one.shape[axis + 1 :]) for axis in range(len(one.shape))]
        lines.append(
            f"{one.name.encode().hex()} {row.name if row else 'unknown'}"
            f" {one.dtype.code}:{one.dtype.bits}:{one.dtype.lanes}"
            f" {one.encoding} {','.join(map(str, one.shape))} {','.join(map(str, strides))}"
            f" {one.alignment or alignment} {crc32c(data):08x} {data.hex()}"
        )
        lines += _metadata_lines(one.metadata)
    return "\n".join(lines) + "\n"


def _metadata_lines(metadata: Mapping[str, str]) -> list[str]:
    pairs = sorted((key.encode(), value.encode()) for key, value in metadata.items())
    return [f"  {key.hex()}={value.hex()}" for key, value in pairs]
