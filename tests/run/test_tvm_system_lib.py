"""The system library of TVM: a constructor registers the modules before main, on every CPU that runs here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from cross.table import TOOLCHAINS
from emitter.interop.tvm import emit_library_bin
from emitter.interop.tvm_wire import plan_wire
from emitter.layout import FilePlan
from emitter.package import Package
from emitter.targets import load
from tests import macho_files
from tests.c_tools import toolchain_of
from tests.elf_objects import run
from tests.support import write_plan
from tests.windows import mingw

if TYPE_CHECKING:
    from pathlib import Path

    from cross.table import Toolchain
    from tests.windows import Wine

# Stands in for the function of TVM's runtime, whose declaration in C this is.
MAIN = r"""
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static const char *names[2];
static const unsigned char *places[2];
static int count;

int TVMFFIEnvModRegisterSystemLibSymbol(const char *name, void *place) {
    if (count < 2) {
        names[count] = name;
        places[count] = place;
    }
    count++;
    return 0;
}

int main(void) {
    uint64_t nbytes = 0, i;
    uint32_t sum = 0;
    if (count != 1) return printf("%d registered\n", count), 1;
    for (i = 0; i < 8; i++) nbytes |= (uint64_t)places[0][i] << 8 * i;
    for (i = 0; i < nbytes + 8; i++) sum = sum * 31 + places[0][i];
    printf("%s %u %u %u\n", names[0], (unsigned)(nbytes + 8), (unsigned)sum, (unsigned)((uintptr_t)places[0] % 64));
    return 0;
}
"""


def package() -> Package:
    made = Package()
    made.add_tensor("w", np.arange(70000, dtype=np.float32))
    made.add_module("engine", "cuda", b"a payload of an odd size")
    return made


def expected(folder: Path) -> str:
    wire = plan_wire(package())
    write_plan(FilePlan(wire.size, wire.pieces, wire.copies), None, folder / "wire")
    total = 0
    for byte in (folder / "wire").read_bytes():
        total = (total * 31 + byte) & 0xFFFFFFFF
    return f"model___tvm_ffi__library_bin {wire.size} {total} 0\n"


@pytest.mark.parametrize("toolchain", TOOLCHAINS, ids=[one.name for one in TOOLCHAINS])
def test_the_constructor_runs_before_main(tmp_path: Path, toolchain: Toolchain) -> None:
    toolchain_of(toolchain.name)  # or it is skipped
    (tmp_path / "main.c").write_text(MAIN)
    emit_library_bin(package(), tmp_path / "devc.o", target=toolchain.name, system_lib_prefix="model_")
    for name, flags in (("static", ["-static"]), ("pie", ["-fPIE", "-pie"])):
        done = run(toolchain.c, *flags, "main.c", "devc.o", "-o", name, cwd=tmp_path)
        assert done.stderr == ""
        assert run(*toolchain.runner(), str(tmp_path / name)).stdout == expected(tmp_path)


def test_it_runs_on_windows_too(tmp_path: Path, wine: Wine) -> None:
    (tmp_path / "main.c").write_text(MAIN)
    emit_library_bin(package(), tmp_path / "devc.o", target="x86_64-windows-gnu", system_lib_prefix="model_")
    run(mingw("x86_64"), "main.c", "devc.o", "-o", "main.exe", cwd=tmp_path)
    assert wine.prints(tmp_path / "main.exe") == [expected(tmp_path).rstrip("\n")]


@pytest.mark.parametrize("target_name", ["x86_64-windows-msvc", "aarch64-windows-msvc", "i686-windows-gnu"])
def test_linkers_of_windows_take_the_object(tmp_path: Path, target_name: str) -> None:
    target = load(target_name)
    emit_library_bin(package(), tmp_path / "devc.obj", target=target_name, system_lib_prefix="model_")
    machine = {"x86_64": "x64", "aarch64": "arm64", "i686": "x86"}[target_name.partition("-")[0]]
    undefined = f"/alternatename:{target.symbol_prefix}TVMFFIEnvModRegisterSystemLibSymbol={target.symbol_prefix}model_"
    options = ["/dll", "/noentry", "/nodefaultlib", f"/machine:{machine}", "/export:model___tvm_ffi__library_bin,data"]
    run("lld-link", *options, f"{undefined}__tvm_ffi__library_bin", "devc.obj", "/out:x.dll", cwd=tmp_path)
    wire = plan_wire(package())
    write_plan(FilePlan(wire.size, wire.pieces, wire.copies), None, tmp_path / "wire")
    assert (tmp_path / "wire").read_bytes() in (tmp_path / "x.dll").read_bytes()


@pytest.mark.parametrize("target_name", ["arm64-apple-macos", "x86_64-apple-macos"])
def test_the_linker_for_apple_keeps_the_constructor_and_the_bytes(tmp_path: Path, target_name: str) -> None:
    emit_library_bin(package(), tmp_path / "devc.o", target=target_name, system_lib_prefix="model_")
    wire = plan_wire(package())
    write_plan(FilePlan(wire.size, wire.pieces, wire.copies), None, tmp_path / "wire")
    version = ["-platform_version", "macos", "13.0", "13.0", "-undefined", "dynamic_lookup"]
    arch = target_name.partition("-")[0]
    macho_files.run(
        "ld64.lld", "-arch", arch, *version, "-dylib", "-dead_strip", tmp_path / "devc.o", "-o", tmp_path / "x.dylib"
    )
    data = (tmp_path / "x.dylib").read_bytes()
    at = data.index((tmp_path / "wire").read_bytes())
    assert at % 64 == 0
    listing = run("llvm-objdump", "-h", str(tmp_path / "x.dylib")).stdout
    (row,) = (line.split() for line in listing.splitlines() if "__mod_init_func" in line or "__init_offsets" in line)
    assert int(row[2], 16) in {4, 8}  # one constructor
