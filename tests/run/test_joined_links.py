"""Objects of code and data for Apple and Windows, which no linker joins: linked with programs, and run."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from emitter import emit, load, targets
from tests import flat, network
from tests.c_tools import need
from tests.macho_files import parse, run
from tests.run.test_macho_links import CPUS, LIB_SYSTEM
from tests.windows import Wine, clang_for_mingw, mingw, wine

if TYPE_CHECKING:
    from pathlib import Path

    from emitter import Package

__all__ = ["wine"]  # a fixture

WAYS = pytest.mark.parametrize("way_b", [False, True], ids=["symbols", "descriptor"])
WINDOWS = ("x86_64-windows-gnu", "x86_64-windows-msvc")

# What a user's own program does with the header.
MAIN = """\
#include <stdio.h>
#include "net.h"
int main(int count, char **words)
{
    float in[144], out[5];
    int i;
    FILE *f = fopen(words[1], "rb");
    if (count != 2 || !f || fread(in, 1, sizeof in, f) != sizeof in || net_data_size() == 0)
        return 2;
    infer(in, out);
    for (i = 0; i < 5; i++)
        printf("%.9g\\n", (double)out[i]);
    return 0;
}
"""


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMITTER_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "joined-cache"))


def package(folder: Path, target: str, *flags: str, way_b: bool = False) -> Package:
    """Return the network's weights and its code."""
    made = network.package()
    made.add_code(network.compile_ir(folder, target, *flags, way_b=way_b))
    return made


def assert_right(found: Any) -> None:
    assert found.shape == (5,) and np.abs(found - network.probabilities()).max() < network.TOLERANCE


@WAYS
@pytest.mark.parametrize("flags", [(), ("-g",), ("-ffunction-sections",)], ids=["plain", "debug", "sections"])
@pytest.mark.parametrize("target", CPUS)
def test_a_library_of_an_object_for_apple_gives_numpys_result(
    target: str, flags: tuple[str, ...], way_b: bool, tmp_path: Path
) -> None:
    """Without the parts that nobody refers to, which LLD takes away by the symbols."""
    output = tmp_path / "net.o"
    emit(package(tmp_path, target, *flags, way_b=way_b), output, target=target, name="net")
    run("llvm-objdump", "--macho", "--private-headers", output)
    assert "_infer" in run("llvm-nm", "--defined-only", output) and run("llvm-nm", "-u", output).split() == ["_expf"]
    stub, library = tmp_path / "libSystem.tbd", tmp_path / "libuser.dylib"
    stub.write_text(LIB_SYSTEM.replace("dyld_stub_binder", "dyld_stub_binder, _expf, _memset, _memcpy, _bzero"))
    version = ("-platform_version", "macos", "11.0", "11.0")
    command = ("ld64.lld", "-dylib", "-arch", CPUS[target][0], *version, "-dead_strip", "-exported_symbol", "_infer")
    run(*command, "-install_name", "@rpath/libuser.dylib", output, stub, "-o", library)
    assert_right(flat.outcome(library, target, "infer", network.image_bytes("little")))
    emit(network.package(), tmp_path / "net.pack", target=target)
    content = parse(library.read_bytes()).content("__TEXT,__emitter")
    assert content.startswith((tmp_path / "net.pack").read_bytes())
    with load(library) as model:
        assert {name: model[name].tolist() for name in model} == {k: v.tolist() for k, v in network.weights().items()}


@pytest.mark.parametrize("target", CPUS)
def test_zig_links_an_object_for_apple(target: str, tmp_path: Path) -> None:
    pytest.importorskip("ziglang", reason="ziglang is not installed")
    import sys

    header = tmp_path / "net.h"
    emit(package(tmp_path, target), tmp_path / "net.o", target=target, name="net", header=header)
    (tmp_path / "main.c").write_text(MAIN)
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", f"{CPUS[target][1]}-macos"]
    command = [*zig, "-fno-sanitize=all", "main.c", "net.o", "-o", "program"]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with load(tmp_path / "program") as model:
        assert np.array_equal(model["dense.weight"], network.weights()["dense.weight"])


@WAYS
@pytest.mark.parametrize("linker", ["mingw", "lld"])
@pytest.mark.parametrize("target", WINDOWS)
def test_a_program_of_an_object_for_windows_gives_numpys_result(
    target: str, linker: str, way_b: bool, wine: Wine, tmp_path: Path
) -> None:
    compiler = [mingw("x86_64")] if linker == "mingw" else clang_for_mingw("x86_64")
    need(compiler[0])
    output = tmp_path / f"net{targets.resolve(target).target.object_suffix}"
    notes: list[str] = []
    made = package(tmp_path, target, "-g", way_b=way_b)
    emit(made, output, target=target, name="net", header=tmp_path / "net.h", note=notes.append)
    assert "object: code and data are joined without a linker" in notes
    # What Microsoft's compilers ask for where floating point is used, and their C library has.
    mark = "int _fltused;\n" if target.endswith("-msvc") else ""
    (tmp_path / "main.c").write_text(MAIN + mark)
    flags = ["-Wall", "-Werror", "-O1"]
    command = [*compiler, *flags, "main.c", output.name, "-lm", "-o", "program.exe"]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    image = network.image_file(tmp_path)
    assert_right(np.array([float(line) for line in wine.prints(tmp_path / "program.exe", image)]))
    with load(tmp_path / "program.exe") as model:
        assert np.array_equal(model["dense.weight"], network.weights()["dense.weight"])


def test_lld_links_a_dll_of_an_object_for_arm(tmp_path: Path) -> None:
    """No Windows for Arm runs here: the code must lead to the tensor in what LLD links."""
    need("lld-link", "llvm-objdump")
    target, map_path = "aarch64-windows-msvc", tmp_path / "map.json"
    made = network.package()
    made.add_code(b"""
        @net_t_conv1_bias = external constant [4 x float]
        define ptr @where() { ret ptr @net_t_conv1_bias }
        define i32 @_DllMainCRTStartup() { ret i32 1 }
    """)
    emit(made, tmp_path / "net.obj", target=target, name="net", map=map_path)
    library = tmp_path / "user.dll"
    command = ("lld-link", "/nologo", "/dll", "/machine:arm64", "/export:where", "/nodefaultlib", "/opt:ref")
    run(*command, tmp_path / "net.obj", f"/out:{library}")
    with load(library) as model:
        assert np.array_equal(model["conv1.bias"], network.weights()["conv1.bias"])
    shown = run("llvm-objdump", "-d", "--no-show-raw-insn", library)
    found = re.search(r"adrp\s+x0, (0x[0-9a-f]+).*?\n.*?add\s+x0, x0, #(\d+)", shown)
    assert found is not None, shown
    section = re.search(r"\.emitter\s+[0-9a-f]+\s+([0-9a-f]+)", run("llvm-objdump", "-h", library))
    assert section is not None
    tensors = {one["name"]: one["pack_offset"] for one in json.loads(map_path.read_text())["tensors"]}
    assert int(found[1], 16) + int(found[2]) == int(section[1], 16) + tensors["conv1.bias"]
