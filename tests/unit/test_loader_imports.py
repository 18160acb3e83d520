"""What the Python loader imports: numpy alone, and only for arrays."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from emitter.package import Package
from tests.loader_support import add, sample_pack
from tests.support import build_pack

if TYPE_CHECKING:
    from pathlib import Path

BLOCK = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Blocker())
"""


def run(program: str, path: Path, blocked: tuple[str, ...] = ()) -> str:
    result = subprocess.run(
        [sys.executable, "-c", f"BLOCKED = {blocked!r}{BLOCK}{program}", path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "sample.pack"
    file.write_bytes(sample_pack())
    return file


HEAVY = ("llvmlite", "lief", "elftools", "ml_dtypes", "google_crc32c", "safetensors")


def test_everything_works_with_numpy_alone(path: Path) -> None:
    program = """
import emitter
with emitter.load(sys.argv[1]) as library:
    library.check()
    print(library["w"].sum(), library["scalar"], library["nibbles"].tolist(), bytes(library.tensor("b").bytes()).hex())
    print(type(library.tensor("w").__dlpack__(copy=True)).__name__)
"""
    assert run(program, path, HEAVY) == "15.0 -5 [241, 7] 803f004040c0\nPyCapsule\n"


def test_a_missing_ml_dtypes_is_said_when_it_is_needed(path: Path) -> None:
    program = """
import emitter
library = emitter.load(sys.argv[1])
for call in (library.tensor("b").numpy, library.tensor("nibbles").unpack):
    try: call()
    except emitter.EmitterError as error: print(type(error).__name__, error)
"""
    lines = run(program, path, HEAVY).splitlines()
    assert len(lines) == 2
    for line, name in zip(lines, ("bfloat16", "int4"), strict=True):
        assert line.startswith("LoadError ")
        assert f"numpy has no {name}, and ml_dtypes is not installed; pip install ml_dtypes" in line


def test_reading_names_and_facts_needs_no_numpy(path: Path) -> None:
    program = """
import emitter
library = emitter.load(sys.argv[1])
library.check()
tensor = library.tensor("w")
print(len(library), library.metadata["licence"], tensor.shape, str(tensor.dtype), bytes(tensor.bytes())[:4].hex())
"""
    assert run(program, path, ("numpy", *HEAVY)) == "8 none (2, 3) float32 00000000\n"


def test_loading_imports_none_of_the_dear_packages(path: Path) -> None:
    program = """
before = set(sys.modules)  # the interpreter's own start, which a site may lengthen
import emitter
library = emitter.load(sys.argv[1])
library.check()
library.names()
dear = {"llvmlite", "lief", "elftools", "json", "inspect", "pathlib", "logging", "argparse", "ctypes", "numpy"}
print(sorted(dear & (set(sys.modules) - before)))
[array for array in library.values()]
print(sorted({"llvmlite", "lief", "elftools", "safetensors"} & set(sys.modules)))
"""
    assert run(program, path).splitlines() == ["[]", "[]"]


def test_opening_does_not_grow_with_the_number_of_tensors(tmp_path: Path) -> None:
    """Counted in reads of the index, not in time."""
    counts = []
    for size in (4, 4096):
        package = Package()
        for number in range(size):
            add(package, f"layer.{number:06}", "uint8", (1,), b"x")
        file = tmp_path / f"{size}.pack"
        file.write_bytes(build_pack(package))
        program = """
import emitter, emitter.loaders, mmap, stat
from emitter.loaders import _pack
calls = []
sys.setprofile(lambda frame, event, arg: calls.append(event))
library = emitter.load(sys.argv[1])
opened = len(calls)
library.tensor("layer.000001")
found = len(calls)
sys.setprofile(None)
print(opened, found - opened)
"""
        counts.append([int(word) for word in run(program, file).split()])
    (small_open, small_find), (large_open, large_find) = counts
    assert large_open == small_open
    assert large_find < small_find * 8  # log2(4096) / log2(4) = 6
