"""What the tests on real CPUs share: models, their artefacts for each target, and programs that are compiled once."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Literal, NamedTuple

import google_crc32c
import numpy as np

from cross.table import TOOLCHAINS
from tests.c_tools import need

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from cross.table import Toolchain

    Arrays = dict[str, NDArray[np.generic]]
    Completed = subprocess.CompletedProcess[str]

__all__ = ["ROOT", "TARGETS", "Device", "Model", "emit", "lines", "write_model"]

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAMS = os.path.join(ROOT, "cross", "programs")
INCLUDE = os.path.join(ROOT, "loaders", "c")
TARGETS = [toolchain.name for toolchain in TOOLCHAINS]

BIG_ENDIAN = ("s390x-linux-gnu",)


def arrays(seed: int) -> Arrays:
    """Return tensors of every element width, among them empty and 0-dimensional ones; other values for another seed."""
    generator = np.random.default_rng(seed)
    return {
        "conv1.weight": generator.standard_normal((8, 3, 5, 5)).astype(np.float32),
        "bn1/running_mean": generator.standard_normal(17).astype(np.float64),
        "bn1.num_batches_tracked": np.array(seed, np.int64),
        "half": generator.standard_normal((3, 7)).astype(np.float16),
        "quantised": generator.integers(-128, 128, (4, 33)).astype(np.int8),
        "offsets": generator.integers(0, 1 << 16, (1,)).astype(np.uint16),
        "mask": generator.integers(0, 2, 9).astype(np.bool_),
        "empty": np.zeros((0, 4), np.float32),
        "имя with blanks": generator.integers(0, 1 << 32, (2, 2)).astype(np.uint32),
    }


class Model(NamedTuple):
    """A safetensors file and what it holds; `name` is its name without suffix, and the symbol's."""

    path: Path
    tensors: Arrays

    @property
    def name(self) -> str:
        """Return the file's name without suffix."""
        return self.path.stem


def write_model(path: Path, seed: int) -> Model:
    """Write `arrays(seed)` as safetensors, by that project's own writer."""
    from safetensors.numpy import save_file

    tensors = arrays(seed)
    save_file(tensors, path)
    return Model(path, tensors)


def lines(tensors: Arrays, target: str) -> list[str]:
    """Return what the programs should print of `tensors`, made by numpy and google-crc32c."""
    order: Literal["<", ">"] = ">" if target in BIG_ENDIAN else "<"
    found = []
    for name, array in sorted(tensors.items(), key=lambda item: item[0].encode()):
        shape = ",".join(map(str, array.shape))
        crc = google_crc32c.value(array.astype(array.dtype.newbyteorder(order)).tobytes())
        found.append(f"{array.dtype.name} [{shape}] aligned 0x{crc:08x} {name}")
    return found


def emit(*arguments: str | os.PathLike[str]) -> None:
    """Run the real command."""
    command = [sys.executable, "-m", "emitter", *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


class Device:
    """A CPU that programs are built for and run on, by its toolchain."""

    def __init__(self, toolchain: Toolchain, folder: Path) -> None:
        self.toolchain = toolchain
        self.name = toolchain.name
        self.folder = folder
        self._programs: dict[tuple[str, ...], str] = {}

    def artefact(self, model: Model, suffix: str) -> Path:
        """Return the model as a library (`.so`), object (`.o`) or archive (`.a`), emitted once, with its header."""
        prefix = "" if suffix == ".o" else "lib"
        path = self.folder / f"{prefix}{model.name}{suffix}"
        if not path.exists():
            emit("--target", self.name, model.path, "-o", path, "--header", self.folder / f"{model.name}.h")
        return path

    def uses(self, model: Model) -> list[str]:
        """Return the flags with which direct.c uses a model by its generated header."""
        return [f"-I{self.folder}", f'-DHEADER="{model.name}.h"', f"-DNAME={model.name}"]

    def compile(self, source: str, output: Path, *flags: str, compiler: list[str] | None = None) -> Completed:
        """Compile and link a program of cross/programs; warnings are errors."""
        command = compiler or ([self.toolchain.cxx] if source.endswith(".cc") else [self.toolchain.c])
        need(command[0])
        standard = "-std=c++11" if source.endswith(".cc") else "-std=c99"
        common = [standard, "-O1", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", f"-I{INCLUDE}", f"-I{PROGRAMS}"]
        path = os.path.join(PROGRAMS, source)
        return subprocess.run(
            [*command, *common, path, "-o", str(output), *flags], check=False, capture_output=True, text=True
        )

    def program(self, source: str, *flags: str) -> str:
        """Return a program that needs nothing of the test, compiled the first time that it is asked for."""
        key = (source, *flags)
        if key not in self._programs:
            output = self.folder / f"program{len(self._programs)}"
            done = self.compile(source, output, *flags, "-ldl")
            assert done.returncode == 0, done.stderr
            self._programs[key] = str(output)
        return self._programs[key]

    def run(self, *command: str | os.PathLike[str], page_size: int | None = None) -> Completed:
        """Run a program, through the emulator where the host cannot."""
        need(*self.toolchain.runner(page_size)[:1])
        argv = [*self.toolchain.runner(page_size), *map(str, command)]
        return subprocess.run(argv, check=False, capture_output=True, text=True, timeout=120)

    def prints(self, tensors: Arrays, *command: str | os.PathLike[str], page_size: int | None = None) -> None:
        """Run a program and compare what it prints with what numpy has."""
        done = self.run(*command, page_size=page_size)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines() == lines(tensors, self.name)
