"""Modules that the stock TVM makes, for tests; importing this skips them where TVM is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

tvm = pytest.importorskip("tvm", reason="apache-tvm is not installed")
tvm_ffi = pytest.importorskip("tvm_ffi", reason="apache-tvm is not installed")

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["compile_host", "compile_model", "const_loader", "constants_of", "packed", "tvm", "tvm_ffi", "values_of"]

HOST = """
@I.ir_module
class Module:
    @T.prim_func
    def add_one(a: T.handle, b: T.handle):
        A = T.match_buffer(a, (4,), "float32")
        B = T.match_buffer(b, (4,), "float32")
        for i in range(4):
            B[i] = A[i] + T.float32(1)
"""


def compile_host(triple: str | None = None, *, system_lib_prefix: str | None = None, **attributes: Any) -> Any:
    """Return a module of kind `llvm` with the function `add_one`: a float32[4] into another, each element plus one."""
    target = {"kind": "llvm", **({"mtriple": triple} if triple else {}), **attributes}
    module = tvm.script.from_source(HOST)
    if system_lib_prefix is not None:
        module = module.with_attr("system_lib_prefix", system_lib_prefix)
    return tvm.compile(module, target=target).mod


MODEL = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            y = R.add(x, R.const([1.0, 2.0, 3.0, 4.0], "float32"))
            R.output(y)
        return y
"""


def compile_model(triple: str | None = None) -> Any:
    """Return a module of kind `relax.VMExecutable` that imports the code it runs: `main` adds 1, 2, 3, 4."""
    target = {"kind": "llvm", **({"mtriple": triple} if triple else {})}
    return tvm.compile(tvm.script.from_source(MODEL), target=tvm.target.Target(target)).mod


def const_loader(constants: Mapping[str, np.ndarray[Any, Any]], functions: Mapping[str, Sequence[str]]) -> Any:
    """Return a module of kind `const_loader`."""
    tensors = {name: tvm.runtime.tensor(np.ascontiguousarray(array)) for name, array in constants.items()}
    return tvm_ffi.get_global_func("ffi.Module.create.const_loader")(tensors, dict(functions))


def packed(module: Any) -> bytes:
    """Return what TVM puts behind __tvm_ffi__library_bin for a module."""
    return bytes(tvm_ffi.get_global_func("runtime.ModulePackImportsToTensor")(module).numpy().tobytes())


def constants_of(module: Any) -> dict[str, Any]:
    """Return the tensors of a module of kind `const_loader`, by TVM's public function."""
    return dict(module.get_function("get_const_var_tensor")())


def values_of(tensor: Any) -> np.ndarray[Any, Any]:
    """Return a tensor of TVM as an array; TVM has no name for complex types, so those come by DLPack."""
    try:
        return np.asarray(tensor.numpy())
    except ValueError:
        return np.from_dlpack(tensor)
