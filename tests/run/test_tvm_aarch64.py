"""The stock TVM runtime for AArch64, under the emulator: what we wrote loads there, and computes the same."""

from __future__ import annotations

import os
import sys
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from emitter.interop.tvm import emit_library_bin, fpack_imports
from emitter.package import Package
from tests.c_tools import toolchain_of
from tests.elf_objects import run
from tests.tvm_modules import compile_host, const_loader, tvm, tvm_ffi

if TYPE_CHECKING:
    from pathlib import Path

TARGET = "aarch64-linux-gnu"
WHEELS = os.path.join(sys.prefix, "wheels-aarch64")  # where cross/setup puts them
LIBRARIES = ("tvm_ffi/lib/libtvm_ffi.so", "tvm/lib/libtvm_runtime.so")

CONSTANTS: dict[str, np.ndarray[Any, Any]] = {
    "weight": np.random.default_rng(6).standard_normal((3, 5), np.float32),
    "bias": np.arange(7, dtype=np.int64),
    "half": np.arange(6, dtype=np.float16).reshape(2, 3),
}

# Opens argv[2] with the runtime argv[1]; prints the tree, the constants and, where there is one, what add_one makes.
HOST = r"""
#include <dlfcn.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/tvm_ffi.h>
#include <cstdio>

namespace ffi = tvm::ffi;

int main(int argc, char **argv) {
    if (argc != 3 || !dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL)) return fprintf(stderr, "%s\n", dlerror()), 1;
    ffi::Module module = ffi::Module::LoadFromFile(argv[2]);
    printf("%s", module->kind());
    for (const auto &one : module->imports()) printf(" %s", one.cast<ffi::Module>()->kind());
    printf("\n");
    auto get = module->GetFunction("get_const_var_tensor").value();
    for (const auto &entry : get().cast<ffi::Map<ffi::String, ffi::Any>>()) {
        const DLTensor *tensor = entry.second.cast<ffi::Tensor>().GetDLTensorPtr();
        size_t size = (tensor->dtype.bits + 7) / 8;
        unsigned sum = 0;
        for (int i = 0; i < tensor->ndim; i++) size *= tensor->shape[i];
        for (size_t i = 0; i < size; i++) sum = sum * 31 + static_cast<unsigned char *>(tensor->data)[i];
        printf("%s %d:%d %d %u\n", entry.first.c_str(), tensor->dtype.code, tensor->dtype.bits, tensor->ndim, sum);
    }
    auto add_one = module->GetFunction("add_one", true);
    if (!add_one.has_value()) return 0;
    float in[4] = {1, 2, 3, 4}, out[4] = {0};
    int64_t shape[1] = {4}, strides[1] = {1};
    DLTensor a{in, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, shape, strides, 0}, b = a;
    b.data = out;
    (*add_one)(&a, &b);
    printf("%g %g %g %g\n", out[0], out[1], out[2], out[3]);
    return 0;
}
"""


@pytest.fixture(scope="module")
def opener(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the command that opens a library, which follows it, with TVM's runtime for AArch64."""
    toolchain = toolchain_of(TARGET)
    folder = tmp_path_factory.mktemp("aarch64")
    wheels = [entry.path for entry in os.scandir(WHEELS)] if os.path.isdir(WHEELS) else []
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for name in set(LIBRARIES) & set(archive.namelist()):
                (folder / os.path.basename(name)).write_bytes(archive.read(name))
    if any(not (folder / os.path.basename(name)).exists() for name in LIBRARIES):
        pytest.skip("apache-tvm for AArch64 is not downloaded")
    (folder / "host.cc").write_text(HOST)
    includes = [f"-I{tvm_ffi.libinfo.find_include_path()}", f"-I{tvm_ffi.libinfo.find_dlpack_include_path()}"]
    run(toolchain.cxx, "-std=c++17", *includes, "host.cc", "-o", "host", "-L.", "-ltvm_ffi", "-ldl", cwd=folder)
    command = toolchain.runner()
    environment = ["-E", f"LD_LIBRARY_PATH={folder}"] if command else ["env", f"LD_LIBRARY_PATH={folder}"]
    return [*command, *environment, str(folder / "host"), str(folder / "libtvm_runtime.so")]


def expected_constants() -> set[str]:
    lines = set()
    for name, array in CONSTANTS.items():
        total = 0
        for byte in array.tobytes():
            total = (total * 31 + byte) & 0xFFFFFFFF
        code = {"f": 2, "i": 0}[array.dtype.kind]
        lines.add(f"{name} {code}:{array.itemsize * 8} {array.ndim} {total}")
    return lines


def test_an_export_with_our_hook_loads_and_computes_on_aarch64(tmp_path: Path, opener: list[str]) -> None:
    module = const_loader(CONSTANTS, {})
    module.import_module(compile_host(TARGET))
    compiler = tvm.support.cc.cross_compiler(f"{TARGET}-gcc")
    module.export_library(str(tmp_path / "ours.so"), fcompile=compiler, fpack_imports=fpack_imports)
    first, *constants, last = run(*opener, str(tmp_path / "ours.so")).stdout.splitlines()
    assert (first, last) == ("const_loader library", "2 3 4 5")
    assert set(constants) == expected_constants()


def test_a_library_without_a_linker_loads_on_aarch64(tmp_path: Path, opener: list[str]) -> None:
    package = Package()
    for name, array in CONSTANTS.items():
        package.add_tensor(name, array)
    emit_library_bin(package, tmp_path / "constants.so", target=TARGET)
    first, *constants = run(*opener, str(tmp_path / "constants.so")).stdout.splitlines()
    assert first == "const_loader library"
    assert set(constants) == expected_constants()
