"""The stock apache-tvm wheel as the client: what we write loads, and is byte for byte what TVM would have packed."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from emitter.contents import package_of
from emitter.dtypes import TABLE
from emitter.errors import TargetError
from emitter.extract import extract
from emitter.interop.tvm import emit_library_bin, fpack_imports
from emitter.package import BufferSource, Extent, Package, Tensor
from tests.c_tools import toolchain_of
from tests.elf_objects import run, section_of
from tests.tvm_modules import (
    compile_host,
    compile_model,
    const_loader,
    constants_of,
    packed,
    tvm,
    tvm_ffi,
    values_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SYMBOL = "__tvm_ffi__library_bin"
CONSTANTS: dict[str, np.ndarray[Any, Any]] = {
    "weight": np.random.default_rng(5).standard_normal((3, 5), np.float32),
    "bias": np.arange(7, dtype=np.int64),
    "scale": np.array(0.5),
    "none": np.zeros((0, 4), np.float16),
    "half": np.arange(6).astype(ml_dtypes.bfloat16).reshape(2, 3),
}


def link(folder: Path, *objects: str) -> Path:
    run("gcc", "-shared", *objects, "-o", "lib.so", cwd=folder)
    return folder / "lib.so"


def blob_of(path: Path, symbol: str = SYMBOL) -> tuple[bytes, int]:
    """Return what is behind a symbol of an ELF object or library, and the alignment of its section."""
    with path.open("rb") as file:
        elf = ELFFile(file)
        (found,) = section_of(elf, ".symtab").get_symbol_by_name(symbol)
        section = elf.get_section(found["st_shndx"])
        start = found["st_value"] - section["sh_addr"]
        return bytes(section.data()[start : start + found["st_size"]]), section["sh_addralign"]


def test_constants_of_every_type_come_back_equal(tmp_path: Path) -> None:
    package = Package()
    data = {}
    for row in TABLE:
        if row.dtype.bits % 8 == 0:
            size = row.dtype.bits // 8 * 4
            data[row.name] = b"\0\1\1\0" if row.name == "bool" else bytes(range(size))
            extent = Extent(BufferSource(row.name, memoryview(data[row.name])), 0, size)
            package.add(Tensor(row.name, row.dtype, (2, 2), extent))
    emit_library_bin(package, tmp_path / "devc.o", target="x86_64-linux-gnu")
    module = tvm.runtime.load_module(str(link(tmp_path, "devc.o")))
    found = constants_of(module)
    assert found.keys() == data.keys()
    for name, tensor in found.items():
        values = values_of(tensor)
        assert (values.dtype.name, values.shape, values.tobytes()) == (name, (2, 2), data[name])


def test_a_library_without_a_linker_opens(tmp_path: Path) -> None:
    package = Package()
    for name, array in CONSTANTS.items():
        package.add_tensor(name, array)
    emit_library_bin(package, tmp_path / "constants.so", target="x86_64-linux-gnu")
    found = constants_of(tvm.runtime.load_module(str(tmp_path / "constants.so")))
    assert {name: values_of(one).tobytes() for name, one in found.items()} == {
        name: array.tobytes() for name, array in CONSTANTS.items()
    }


def test_a_tree_opens_beside_what_tvm_compiled(tmp_path: Path) -> None:
    compile_host().write_to_file(str(tmp_path / "host.o"))
    inner_payload = save_bytes(const_loader({"inner": np.ones(2, np.float32)}, {}))
    package = Package()
    for name, array in CONSTANTS.items():
        package.add_tensor(name, array)
    package.add_module("host", "_lib", b"")
    package.add_module("inner", "const_loader", inner_payload, imports=["host"])
    package.add_module("root", "const_loader", b"", imports=["inner", "host"])
    emit_library_bin(package, tmp_path / "devc.o", target="x86_64-linux-gnu")
    root = tvm.runtime.load_module(str(link(tmp_path, "host.o", "devc.o")))
    assert root.kind == "const_loader"
    assert [one.kind for one in root.imports] == ["const_loader", "library"]
    inner = root.imports[0]
    assert [one.kind for one in inner.imports] == ["library"]
    assert values_of(constants_of(inner)["inner"]).tolist() == [1, 1]
    for name, array in CONSTANTS.items():
        values = values_of(constants_of(root)[name])
        assert (values.dtype, values.shape, values.tobytes()) == (array.dtype, array.shape, array.tobytes())
    assert added(root.get_function("add_one")) == [2, 3, 4, 5]


def save_bytes(module: Any) -> bytes:
    """Return the payload that TVM packs of a module without imports: what stands behind its kind."""
    data = packed(module)
    at = data.index(b"const_loader") + len(b"const_loader")
    size = int.from_bytes(data[at : at + 8], "little")
    return data[at + 8 : at + 8 + size]


def added(function: Callable[..., None]) -> list[float]:
    result = tvm.runtime.tensor(np.zeros(4, np.float32))
    function(tvm.runtime.tensor(np.arange(1, 5, dtype=np.float32)), result)
    return [float(value) for value in result.numpy()]


def tree(host: Any) -> Any:
    """Return a TVM module: constants above a library and two more modules, one of which is imported twice.

    TVM's own packing refuses most trees of that kind; it takes this one.
    """
    root = const_loader(CONSTANTS, {"first": ["weight", "bias"], "second": []})
    shared, other = compile_model(), compile_model()
    shared.clear_imports()
    other.clear_imports()
    other.import_module(shared)
    for one in (shared, other, host):
        root.import_module(one)
    return root


@pytest.mark.parametrize("target_name", ["x86_64-linux-gnu", "aarch64-linux-gnu", "s390x-linux-gnu"])
def test_our_bytes_are_those_that_tvm_packs(tmp_path: Path, target_name: str) -> None:
    theirs = packed(tree(compile_host()))
    (tmp_path / "theirs").write_bytes(theirs)
    # Its order of constants is that of a hash table: so the package is read out of a library of TVM's own.
    (tmp_path / "x.s").write_text(f'.globl {SYMBOL}\n.data\n{SYMBOL}: .incbin "theirs"\n')
    run("gcc", "-c", "x.s", "-o", "theirs.o", cwd=tmp_path)
    package = package_of(tmp_path / "theirs.o")
    assert sorted(tensor.name for tensor in package.tensors) == sorted(CONSTANTS)
    assert {name: names for module in package.modules for name, names in module.functions.items()} == {
        "first": ("weight", "bias"),
        "second": (),
    }
    emit_library_bin(package, tmp_path / "ours.o", target=target_name)
    assert blob_of(tmp_path / "ours.o") == (theirs, 64)


def test_one_tensor_and_the_same_modules_are_packed_alike(tmp_path: Path) -> None:
    # Nothing of the bytes comes from TVM here.
    root = const_loader({"weight": CONSTANTS["weight"]}, {"f": ["weight"]})
    left, right = const_loader({}, {}), const_loader({}, {})
    for one in (left, right, compile_host()):
        root.import_module(one)
    package = Package()
    package.add_tensor("weight", CONSTANTS["weight"])
    package.add_module("host", "_lib", b"")
    empty = bytes(8 * 4)
    left_module = package.add_module("left", "const_loader", empty)
    right_module = package.add_module("right", "const_loader", empty)
    package.add_module(
        "root", "const_loader", b"", imports=["host", right_module, left_module], functions={"f": ["weight"]}
    )
    emit_library_bin(package, tmp_path / "ours.o", target="aarch64-linux-gnu")
    assert blob_of(tmp_path / "ours.o")[0] == packed(root)


# The hook of export_library.


def test_an_export_with_our_hook_loads_and_computes(tmp_path: Path) -> None:
    module = tree(compile_host())
    module.export_library(str(tmp_path / "ours.so"), fpack_imports=fpack_imports, workspace_dir=str(tmp_path))
    assert blob_of(tmp_path / "devc.o") == (packed(module), 64)
    loaded = tvm.runtime.load_module(str(tmp_path / "ours.so"))
    assert added(loaded.get_function("add_one")) == [2, 3, 4, 5]
    assert {name: values_of(one).tobytes() for name, one in constants_of(loaded).items()} == {
        name: array.tobytes() for name, array in CONSTANTS.items()
    }
    module.export_library(str(tmp_path / "theirs.so"))
    theirs = tvm.runtime.load_module(str(tmp_path / "theirs.so"))
    assert shape_of(loaded) == shape_of(theirs)


def test_a_compiled_model_runs_in_tvms_virtual_machine(tmp_path: Path) -> None:
    from tvm import relax

    path = str(tmp_path / "model.so")
    compile_model().export_library(path, fpack_imports=fpack_imports)
    machine = relax.VirtualMachine(tvm.runtime.load_module(path), tvm.cpu())
    assert machine["main"](tvm.runtime.tensor(np.ones(4, np.float32))).numpy().tolist() == [2, 3, 4, 5]


def shape_of(module: Any) -> Any:
    return module.kind, [shape_of(one) for one in module.imports]


@pytest.mark.parametrize(
    ("triple", "attributes"),
    [("aarch64-linux-gnu", {}), ("riscv64-linux-gnu", {"mattr": ["+m", "+a", "+f", "+d"], "mabi": "lp64d"})],
)
def test_an_export_for_another_cpu_needs_to_be_told_nothing(
    tmp_path: Path, triple: str, attributes: dict[str, Any]
) -> None:
    toolchain = toolchain_of(triple)
    if triple.startswith("riscv") and "riscv64" not in tvm_ffi.get_global_func("target.llvm_get_targets")():
        pytest.skip("the LLVM of apache-tvm does not know riscv64")
    module = tree(compile_host(triple, **attributes))
    module.export_library(
        str(tmp_path / "ours.so"),
        fcompile=tvm.support.cc.cross_compiler(toolchain.c),
        fpack_imports=fpack_imports,
        workspace_dir=str(tmp_path),
    )
    assert blob_of(tmp_path / "devc.o") == (packed(module), 64)
    assert blob_of(tmp_path / "ours.so")[0] == packed(module)
    # What TVM's loader begins with, done by the C library of the CPU: the library is opened, and the symbol, the bytes
    # behind it and the function are found. test_tvm_aarch64.py has the runtime itself.
    (tmp_path / "main.c").write_text(OPENER)
    run(toolchain.c, "main.c", "-o", "main", "-ldl", cwd=tmp_path)
    done = run(*toolchain.runner(), str(tmp_path / "main"), str(tmp_path / "ours.so"))
    assert done.stdout == f"{len(packed(module)) - 8} 0 {sum(packed(module)) & 0xFFFFFFFF}\n"


OPENER = r"""
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    void *library = argc > 1 ? dlopen(argv[1], RTLD_LAZY | RTLD_LOCAL) : NULL;
    const unsigned char *bin = library ? dlsym(library, "__tvm_ffi__library_bin") : NULL;
    if (!bin || !dlsym(library, "__tvm_ffi_add_one")) return fprintf(stderr, "%s\n", dlerror()), 1;
    uint64_t nbytes = 0, i;
    uint32_t sum = 0;
    for (i = 0; i < 8; i++) nbytes |= (uint64_t)bin[i] << 8 * i;
    for (i = 0; i < nbytes + 8; i++) sum += bin[i];
    printf("%llu %u %u\n", (unsigned long long)nbytes, (unsigned)((uintptr_t)bin % 64), (unsigned)sum);
    return 0;
}
"""


def test_a_triple_that_is_not_supported_is_refused_by_name(tmp_path: Path) -> None:
    module = const_loader(CONSTANTS, {})
    module.import_module(compile_host("hexagon-unknown-elf"))
    with pytest.raises(TargetError, match="hexagon-unknown-elf"):
        fpack_imports(module, False, "", str(tmp_path))


def test_two_triples_in_one_tree_are_refused(tmp_path: Path) -> None:
    module = const_loader(CONSTANTS, {})
    for triple in ("x86_64-linux-gnu", "aarch64-linux-gnu"):
        module.import_module(compile_host(triple))
    with pytest.raises(TargetError, match="several triples"):
        fpack_imports(module, False, "", str(tmp_path))


# The system library: registered by a constructor, in the real runtime.

SYSTEM = """
import ctypes, sys
import numpy, tvm, tvm_ffi
ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
module = tvm_ffi.system_lib("model_")
print(module.kind, *(one.kind for one in module.imports))
print(*(f"{name}={one.numpy().tolist()}" for name, one in module.get_function("get_const_var_tensor")().items()))
"""


def test_the_runtime_finds_what_our_constructor_registered(tmp_path: Path) -> None:
    package = Package()
    package.add_tensor("bias", CONSTANTS["bias"])
    emit_library_bin(package, tmp_path / "devc.o", target="x86_64-linux-gnu", system_lib_prefix="model_")
    runtime = tvm_ffi.libinfo.find_libtvm_ffi()
    path = link(tmp_path, "devc.o", runtime)
    done = subprocess.run([sys.executable, "-c", SYSTEM, str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "const_loader library\nbias=[0, 1, 2, 3, 4, 5, 6]\n"), done.stderr


CALL = """
result = tvm.runtime.tensor(numpy.zeros(4, numpy.float32))
module.get_function("add_one")(tvm.runtime.tensor(numpy.ones(4, numpy.float32)), result)
print(result.numpy().tolist())
"""


def test_an_export_of_a_system_library_with_our_hook_computes(tmp_path: Path) -> None:
    module = const_loader({"bias": CONSTANTS["bias"]}, {})
    module.import_module(compile_host(system_lib_prefix="model_"))
    module.export_library(str(tmp_path / "model.tar"), fpack_imports=fpack_imports)
    run("tar", "xf", "model.tar", cwd=tmp_path)
    assert blob_of(tmp_path / "model_devc.o", f"model_{SYMBOL}") == (packed(module), 64)
    path = link(tmp_path, "lib0.o", "model_devc.o", tvm_ffi.libinfo.find_libtvm_ffi())
    done = subprocess.run([sys.executable, "-c", SYSTEM + CALL, str(path)], capture_output=True, text=True, check=False)
    expected = "const_loader library\nbias=[0, 1, 2, 3, 4, 5, 6]\n[2.0, 2.0, 2.0, 2.0]\n"
    assert (done.returncode, done.stdout) == (0, expected), done.stderr


# What TVM itself exported, read without it.


@pytest.mark.parametrize("form", ["llvm", "c"])
def test_libraries_of_tvm_are_read(tmp_path: Path, form: str) -> None:
    module = tree(compile_host())
    if form == "llvm":
        module.export_library(str(tmp_path / "theirs.so"))
    else:
        module.imports[2].write_to_file(str(tmp_path / "host.o"))
        source = tvm_ffi.get_global_func("runtime.ModulePackImportsToC")(module, False, "")
        (tmp_path / "devc.c").write_text(source)
        run("gcc", "-shared", "-fPIC", "devc.c", "-o", "theirs.so", cwd=tmp_path)
    command = (
        "import sys; sys.modules['tvm'] = sys.modules['tvm_ffi'] = None; import emitter.cli as c; sys.exit(c.main())"
    )
    shown = subprocess.run(
        [sys.executable, "-c", command, "inspect", "theirs.so"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.count(" const_loader ") == 1
    assert shown.stdout.count(" relax.VMExecutable ") == 2
    assert "tensors      5: --tensors lists them" in shown.stdout
    extract(tmp_path / "theirs.so", f"{tmp_path}/out/", only=["weight"])
    assert np.load(tmp_path / "out" / "weight.npy").tobytes() == CONSTANTS["weight"].tobytes()
