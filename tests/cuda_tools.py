"""NVIDIA's compiler and cuobjdump from the package index, and what tests make with them."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.c_tools import need

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["KERNELS", "compile_device", "cuobjdump", "images_of", "nvcc_object", "standin", "tool", "toolkit"]

DATA = Path(__file__).parent / "data" / "cuda"
KERNELS = DATA / "kernels.cu"
SEPARATE = ("-gencode", "arch=compute_75,code=sm_75", "-gencode", "arch=compute_80,code=sm_80")
ALL = (*SEPARATE, "-gencode", "arch=compute_90,code=[sm_90,compute_90]")

# What the tests compile: name of the file, and nvcc's options.
INPUTS: dict[str, Sequence[str]] = {
    "all.fatbin": ("-fatbin", *ALL),
    "one.fatbin": ("-fatbin", "-gencode", "arch=compute_80,code=sm_80"),
    "plain.fatbin": ("-fatbin", *ALL, "-Xfatbin", "--compress=false"),
    "zstd.fatbin": ("-fatbin", *ALL, "-Xfatbin", "-compress-all"),
    "lz4.fatbin": ("-fatbin", "-arch=sm_80", "-Xfatbin", "-compress-all", "--compress-mode=speed"),
    "ptx.fatbin": ("-fatbin", "-gencode", "arch=compute_75,code=compute_75"),
    "specific.fatbin": ("-fatbin", "-gencode", "arch=compute_90a,code=[sm_90a,compute_90a]"),
    "family.fatbin": ("-fatbin", "-gencode", "arch=compute_100f,code=[sm_100f,compute_100f]"),
    "debug.fatbin": ("-fatbin", "-arch=sm_80", "-G"),
    "relocatable.fatbin": ("-fatbin", "-arch=sm_80", "-rdc=true"),
    "lto.fatbin": ("-fatbin", "-arch=sm_80", "-dlto"),
    "sm_75.cubin": ("-cubin", "-arch=sm_75"),
    "sm_80.cubin": ("-cubin", "-arch=sm_80"),
    "sm_90.cubin": ("-cubin", "-arch=sm_90"),
    "sm_120.cubin": ("-cubin", "-arch=sm_120"),
    "relocatable.cubin": ("-cubin", "-arch=sm_80", "-rdc=true"),
    "compute_75.ptx": ("-ptx", "-arch=compute_75"),
    "compute_90a.ptx": ("-ptx", "-arch=compute_90a"),
}


def toolkit() -> Path:
    """Return the folder of the toolkit; skip the test without one."""
    for folder in sys.path:
        for found in sorted(Path(folder).glob("nvidia/cu*/bin/nvcc"), reverse=True):
            return found.parents[1]
    found_nvcc = shutil.which("nvcc")
    if found_nvcc is None:
        pytest.skip("nvcc is not installed")
    return Path(found_nvcc).resolve().parents[1]


def tool(name: str) -> str:
    """Return the path of a tool of the toolkit; skip the test without it."""
    path = toolkit() / "bin" / name
    if not path.exists():
        pytest.skip(f"{name} is not installed")
    return str(path)


def _run(*command: str, cwd: Path | None = None) -> str:
    environment = {**os.environ, "PATH": os.pathsep.join([str(toolkit() / "bin"), os.environ["PATH"]])}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=cwd)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def compile_device(name: str, folder: Path) -> Path:
    """Return one of INPUTS, compiled in `folder` unless it is there."""
    output = folder / name
    if not output.exists():
        need("g++")
        _run(tool("nvcc"), *INPUTS[name], str(KERNELS), "-o", str(output), cwd=folder)
    return output


def nvcc_object(folder: Path) -> Path:
    """Return nvcc's own object for the same kernels as `all.fatbin`, compiled in `folder` unless it is there."""
    need("g++")
    output = folder / "nvcc.o"
    if not output.exists():
        _run(tool("nvcc"), "-c", *ALL, str(KERNELS), "-o", str(output), cwd=folder)
    return output


def cuobjdump(*arguments: str, cwd: Path | None = None) -> str:
    """Return what cuobjdump prints."""
    return _run(tool("cuobjdump"), *arguments, cwd=cwd)


def images_of(file: Path, folder: Path) -> list[tuple[str, bytes]]:
    """Return what cuobjdump extracts from a file, in its order: (architecture and kind, bytes)."""
    folder.mkdir()
    listed = cuobjdump("-lelf", "-lptx", str(file))
    kinds = [kind for kind in ("elf", "ptx") if f"{kind.upper()} file" in listed]
    for kind in kinds:
        cuobjdump(f"-x{kind}", "all", str(file), cwd=folder)
    found = []
    for path in folder.iterdir():
        # An entry with a name is called after that, others are numbered.
        match = re.fullmatch(r"[\w-]+(?:\.(\d+))?\.(sm_\w+)\.(cubin|ptx)", path.name)
        assert match is not None, path.name
        found.append((match[3], int(match[1] or 0), match[2], path.read_bytes()))
    assert len(found) == len(re.findall(r"^(?:ELF|PTX) file", listed, re.MULTILINE))
    return [(f"{name} {kind}", data) for kind, _, name, data in sorted(found)]


def entries_of(fatbin: bytes) -> list[tuple[int, int, bytes]]:
    """Return (kind, sm number, stored bytes) of each entry of a fatbin, read here on its own."""
    magic, _, header, size = struct.unpack_from("<IHHQ", fatbin)
    assert magic == 0xBA55ED50
    position, found = header, []
    while position < header + size:
        kind, _, entry_header, stored = struct.unpack_from("<HHIQ", fatbin, position)
        (arch,) = struct.unpack_from("<I", fatbin, position + 28)
        start = position + entry_header
        found.append((kind, arch, fatbin[start : start + stored]))
        position = start + stored
    return found


def standin(folder: Path, *flags: str, compiler: str = "gcc", source: str = "libcuda") -> Path:
    """Return a stand-in for a library of NVIDIA's, `libcuda.so.1` by default, compiled in `folder`."""
    need(compiler)
    folder.mkdir(exist_ok=True)
    output = folder / {"libcuda": "libcuda.so.1", "libcudart": "libcudart.so"}[source]
    subprocess.run(
        [
            compiler,
            "-shared",
            "-fPIC",
            "-Wall",
            "-Wextra",
            "-Werror",
            *flags,
            str(DATA / f"{source}.c"),
            "-o",
            str(output),
        ],
        check=True,
    )
    return output
