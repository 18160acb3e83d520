"""Measures TVM's export_library with ResNet-18's constants, packed by TVM (through LLVM, through C) and by emitter.

    python3 benchmarks/tvm_export.py [--rounds N] [--c] [--json]

Needs apache-tvm (the extra `tvm`) and gcc. One process, since importing TVM takes longer than all that is measured: a
line is what one call of `export_library` takes, linking with gcc included, and what the packing alone takes of it. The
peak is that of the largest process so far, this one included. `--c` adds TVM's path through C source: minutes, and
gigabytes of memory.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

import numpy as np
import tvm
import tvm_ffi

from benchmarks import make_resnet18
from emitter import Package
from emitter.interop.tvm import emit_library_bin, fpack_imports

if TYPE_CHECKING:
    from collections.abc import Callable

HOST = """
@I.ir_module
class Module:
    @T.prim_func
    def nothing(a: T.handle):
        A = T.match_buffer(a, (1,), "float32")
        A[0] = A[0]
"""


def model() -> Any:
    """Return a module that holds 46.8 MB of constants above compiled code."""
    random = np.random.default_rng(18)
    constants = {}
    for name, dtype, shape in make_resnet18.tensors():
        array = random.random(shape, np.float32) if dtype == "F32" else np.zeros(shape, np.int64)
        constants[name] = tvm.runtime.tensor(np.asarray(array))
    root = tvm_ffi.get_global_func("ffi.Module.create.const_loader")(constants, {})
    root.import_module(tvm.compile(tvm.script.from_source(HOST), target="llvm").mod)
    return root


def through_llvm(module: Any, system_lib: bool, prefix: str, folder: str) -> str:
    """Do what export_library does without a hook where TVM has LLVM."""
    target = module.imports[0].get_function("_get_target_string")()
    packed = tvm_ffi.get_global_func("runtime.ModulePackImportsToLLVM")(module, system_lib, target, prefix)
    path = os.path.join(folder, "devc.o")
    packed.write_to_file(path)
    return path


def through_c(module: Any, system_lib: bool, prefix: str, folder: str) -> str:
    """Do what export_library does without a hook where TVM has no LLVM."""
    path = os.path.join(folder, "devc.c")
    with open(path, "w", encoding="ascii") as file:
        file.write(tvm_ffi.get_global_func("runtime.ModulePackImportsToC")(module, system_lib, prefix))
    return path


def from_file(path: str) -> Callable[[Any, bool, str, str], str]:
    """Return what packs the constants of a file instead, which TVM need not have read for that."""

    def pack(_module: Any, _system_lib: bool, _prefix: str, folder: str) -> str:
        package = Package()
        package.add_input(path)
        return emit_library_bin(package, os.path.join(folder, "devc.o"))

    return pack


class Line:
    """What is measured of one way to pack.

    `peak` is the memory of the largest process until the first export ended, in bytes.
    """

    def __init__(self, name: str, pack: Callable[[Any, bool, str, str], str]) -> None:
        self.name = name
        self._pack = pack
        self.exports: list[float] = []
        self.packings: list[float] = []
        self.peak = 0

    def export(self, module: Any) -> None:
        """Export once, into a fresh folder."""
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            module.export_library(f"{folder}/lib.so", fpack_imports=self._timed, workspace_dir=folder)
            self.exports.append(time.perf_counter() - start)
        peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        self.peak = self.peak or peak << 10

    @property
    def export_s(self) -> float:
        """Median seconds of an export."""
        return statistics.median(self.exports)

    @property
    def packing_s(self) -> float:
        """Median seconds of the packing within it."""
        return statistics.median(self.packings)

    def to_json(self) -> dict[str, object]:
        """Return the figures under their keys."""
        return {"name": self.name, "export_s": self.export_s, "packing_s": self.packing_s, "peak_bytes": self.peak}

    def _timed(self, module: Any, system_lib: bool, prefix: str, folder: str) -> str:
        start = time.perf_counter()
        path = self._pack(module, system_lib, prefix, folder)
        self.packings.append(time.perf_counter() - start)
        return path


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Measure TVM's export_library with 46.8 MB of constants.")
    parser.add_argument("--rounds", type=int, default=7, help="exports of each line, in turn (default: 7)")
    parser.add_argument("--c", action="store_true", help="add TVM's path through C source, once")
    parser.add_argument("--json", action="store_true", help="print JSON: medians in seconds, memory in bytes")
    options = parser.parse_args()
    module = model()
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/resnet18.safetensors"
        make_resnet18.write(file)
        lines = [
            Line("emitter, safetensors", from_file(file)),
            Line("emitter, fpack_imports", fpack_imports),
            Line("TVM, LLVM", through_llvm),
        ]
        for _ in range(options.rounds):
            for line in lines:
                line.export(module)
    if options.c:
        lines.append(Line("TVM, C", through_c))
        lines[-1].export(module)
    if options.json:
        document = {"schema": "emitter.benchmarks.tvm/1", "lines": [line.to_json() for line in lines]}
        print(json.dumps(document, indent=1))
        return
    print(f"{'packed by':24} {'export s':>9} {'packing s':>9} {'peak MB':>8}")
    for line in lines:
        print(f"{line.name:24} {line.export_s:9.3f} {line.packing_s:9.3f} {line.peak >> 20:8}")


if __name__ == "__main__":
    main()
