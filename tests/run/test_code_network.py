"""A small real network, as LLVM IR of another compiler, beside its weights: linked by every linker that is found."""

from __future__ import annotations

import ctypes
import math
import os
import re
import shutil
import subprocess
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from emitter import Package, emit, load, targets
from emitter.link.find import linkers
from tests import flat, network
from tests.c_tools import need, toolchain_of
from tests.windows import Wine, compile_and_link, mingw, wine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["wine"]  # a fixture

LINUX = tuple(name for name in network.TARGETS if "linux" in name)
WINDOWS = ("x86_64-windows-gnu", "x86_64-windows-msvc")
APPLE = ("arm64-apple-macos", "x86_64-apple-macos")
WAYS = pytest.mark.parametrize("way_b", [False, True], ids=["symbols", "descriptor"])
RUNNER = os.path.join(network.ROOT, "tests", "data", "c", "run_network.c")


@pytest.fixture(autouse=True, scope="module")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep compiled code apart from the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EMITTER_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def _found(target: str) -> list[str]:
    """Return the names of all linkers that are at hand, for --linker."""
    one = targets.resolve(target).target
    names = ["zig" if "ziglang" in linker.name else linker.command[0] for linker in linkers(one)]
    if one.object_format == "elf" and shutil.which("mold"):  # which is only taken by name
        names.append("mold")
    if not names:
        pytest.skip("no linker is installed")
    return names


@cache
def _program(target: str, folder: Path) -> Path:
    toolchain = toolchain_of(target)
    program = folder / f"run-{target}"
    subprocess.run([toolchain.c, RUNNER, "-o", str(program), "-ldl"], check=True)
    return program


def _outcome(command: list[str]) -> Any:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return np.array([float(line) for line in done.stdout.split()])


def _assert_right(found: Any) -> None:
    assert found.shape == (5,)
    assert np.abs(found - network.probabilities()).max() < network.TOLERANCE


@WAYS
@pytest.mark.parametrize("target", LINUX)
def test_the_result_is_numpys(
    target: str, way_b: bool, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    toolchain = toolchain_of(target)
    code = network.compile_ir(tmp_path, target, way_b=way_b)
    image = tmp_path / "image.bin"
    image.write_bytes(network.image_bytes(targets.resolve(target).target.byte_order))
    program = _program(target, tmp_path_factory.getbasetemp())
    for number, linker in enumerate(_found(target)):
        package = network.package()
        package.add_code(code)
        output = tmp_path / f"libnet{number}.so"
        notes: list[str] = []
        options: dict[str, Any] = {"soname": "libnet.so", "libs": ["m", "c"], "linker": linker}
        emit(package, output, target=target, name="net", note=notes.append, **options)
        _assert_right(_outcome([*toolchain.runner(), str(program), str(output), str(image)]))
        with load(output) as library:
            for name, array in network.weights().items():
                assert np.array_equal(library[name].astype(np.float32), array), (linker, name)
        assert any("linker:" in note and "as asked for" in note for note in notes)
        assert not any("after all" in note for note in notes), notes
        assert any(("attached after linking" if way_b else "in the ordinary way") in note for note in notes)
        _check_flags(output, linker)


def _check_flags(output: Path, linker: str) -> None:
    """Judge a library by readelf."""
    need("readelf")

    def readelf(*options: str) -> str:
        done = subprocess.run(["readelf", *options, str(output)], check=True, capture_output=True, text=True)
        return done.stdout

    headers, dynamic, symbols = readelf("-lW"), readelf("-dW"), readelf("--dyn-syms", "-W")
    stack = re.search(r"GNU_STACK.*", headers)
    assert stack is not None and " RW " in stack.group(), linker
    assert "GNU_RELRO" in headers and "LOAD" in headers
    assert "BIND_NOW" in dynamic or "NOW" in dynamic
    assert "(GNU_HASH)" in dynamic and "(HASH)" in dynamic and "TEXTREL" not in dynamic, linker
    assert re.findall(r"NEEDED.*\[(.*)\]", dynamic) in (["libm.so.6"], ["libm.so.6", "libc.so.6"]), dynamic
    assert "[libnet.so]" in dynamic
    assert "NT_GNU_BUILD_ID" in readelf("-nW") or "Build ID" in readelf("-nW"), linker
    rows = [re.sub(r" \[.*?\]", "", line).split() for line in symbols.splitlines() if re.match(r"\s*\d+: ", line)]
    defined = {row[7] for row in rows if row[4] in ("GLOBAL", "WEAK") and row[6] != "UND"}
    undefined = {row[7].partition("@")[0] for row in rows if row[4] == "GLOBAL" and row[6] == "UND"}
    assert defined == {"infer", "net", "net_size", "emitter_pack"}, linker
    assert undefined <= {"expf", "memset", "memcpy"}


@WAYS
@pytest.mark.parametrize("target", WINDOWS)
def test_the_dll_gives_numpys_result(target: str, way_b: bool, wine: Wine, tmp_path: Path) -> None:
    need(mingw("x86_64"))
    program = compile_and_link([mingw("x86_64")], tmp_path / "run.exe", "run_network.c")
    code = network.compile_ir(tmp_path, target, way_b=way_b)
    image = network.image_file(tmp_path)
    for number, linker in enumerate(_found(target)):
        package = network.package()
        package.add_code(code)
        output = tmp_path / f"net{number}.dll"
        emit(package, output, target=target, name="net", libs=["m", "c"], linker=linker)
        _assert_right(np.array([float(line) for line in wine.prints(program, output, image)]))
        with load(output) as library:
            assert np.array_equal(library["dense.weight"], network.weights()["dense.weight"])
        need("objdump")
        shown = subprocess.run(["objdump", "-p", str(output)], check=False, capture_output=True, text=True).stdout
        if shown:  # by an objdump that knows PE
            table_of_names = shown.partition("[Ordinal/Name Pointer]")[2].partition("\n\n")[0]
            exports = re.findall(r"\] +(?:\+base\[ *\d+\] +\w+ +)?(\w+)$", table_of_names, re.MULTILINE)
            assert set(exports) == {"infer", "net", "net_size", "emitter_pack"}, shown


@WAYS
@pytest.mark.parametrize("target", APPLE)
def test_a_library_for_apple_gives_numpys_result(target: str, way_b: bool, tmp_path: Path) -> None:
    lief = pytest.importorskip("lief", reason="lief is not installed")
    code = network.compile_ir(tmp_path, target, way_b=way_b)
    for linker in _found(target):
        package = network.package()
        package.add_code(code)
        output = tmp_path / "libnet.dylib"
        emit(package, output, target=target, name="net", libs=["m", "c"], linker=linker)
        with load(output) as library:
            for name, array in network.weights().items():
                assert np.array_equal(library[name], array)
        binary: Any = lief.MachO.parse(str(output)).at(0)
        right, why = lief.MachO.check_layout(binary)
        assert right, why
        own = {"___dso_handle", "__mh_dylib_header"} if linker == "zig" else set()  # its linker exports them
        exported = {one.name for one in binary.exported_symbols}
        assert exported == {"_infer", "_net", "_net_size", "_emitter_pack", *own}
        assert {one.name for one in binary.libraries} >= {"/usr/lib/libSystem.B.dylib"}
        assert binary.has_code_signature or (linker == "zig" and target.startswith("x86_64"))
        _assert_right(flat.outcome(output, target, "infer", network.image_bytes("little")))


@pytest.mark.parametrize("form", ["net.o", "libnet.a"])
@pytest.mark.parametrize("target", ["x86_64-linux-gnu", "aarch64-linux-gnu", "riscv64-linux-gnu"])
def test_objects_and_archives_hold_code_and_data(target: str, form: str, tmp_path: Path) -> None:
    toolchain = toolchain_of(target)
    package = network.package()
    package.add_code(network.compile_ir(tmp_path, target))
    output, header = tmp_path / form, tmp_path / "net.h"
    image = network.image_file(tmp_path)
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include "net.h"\nint main(int c, char **v)\n{\n'
        'float in[144], out[5]; int i; FILE *f = fopen(v[1], "rb");\n'
        "if (c != 2 || !f || fread(in, 1, sizeof in, f) != sizeof in || net_data_size() == 0) return 2;\n"
        'infer(in, out);\nfor (i = 0; i < 5; i++) printf("%.9g\\n", (double)out[i]);\nreturn 0;\n}\n'
    )
    for linker in _found(target)[: 1 if form.endswith(".a") else 3]:
        named: dict[str, Any] = {} if form.endswith(".a") else {"linker": linker}
        emit(package, output, target=target, name="net", header=header, **named)
        command = [toolchain.c, "-Wall", "-Werror", "-O1", "main.c", form, "-lm", "-o", "program"]
        done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        _assert_right(_outcome([*toolchain.runner(), str(tmp_path / "program"), str(image)]))


@pytest.mark.parametrize(
    "target", ["x86_64-linux-gnu", "aarch64-linux-gnu", "x86_64-windows-msvc", "arm64-apple-macos"]
)
def test_the_bytes_do_not_depend_on_the_place(target: str, tmp_path: Path) -> None:
    made: dict[str, set[bytes]] = {}
    for folder in (tmp_path / "a", tmp_path / "another one"):
        folder.mkdir()
        code = network.compile_ir(folder, target, name="network.ll" if "apple" not in target else "network.bc")
        for linker in _found(target):
            package = network.package()
            package.add_code(code.read_bytes())
            output = folder / f"net{targets.resolve(target).target.image_suffix}"
            emit(package, output, target=target, name="net", libs=["m", "c"], linker=linker, no_cache=True)
            made.setdefault(linker, set()).add(output.read_bytes())
    assert made and all(len(files) == 1 for files in made.values()), {name: len(files) for name, files in made.items()}


def test_code_of_numba(tmp_path: Path) -> None:
    """The network as numba compiles it, called by a few lines of IR that give it the weights."""
    numba: Any = pytest.importorskip("numba", reason="numba is not installed")
    if targets.resolve("native").target.name != "x86_64-linux-gnu":
        pytest.skip("numba compiles for its host alone")
    pointer = numba.types.CPointer(numba.types.float32)

    @numba.cfunc(numba.types.void(*[pointer] * 10), error_model="numpy")
    def run(image, w1, b1, w2, b2, w3, b3, first, second, out):  # type: ignore[no-untyped-def] # numba gives the types
        for m in range(4):
            for y in range(10):
                for x in range(10):
                    s = b1[m]
                    for i in range(3):
                        for j in range(3):
                            s += image[(y + i) * 12 + x + j] * w1[m * 9 + i * 3 + j]
                    first[(m * 10 + y) * 10 + x] = max(s, np.float32(0))
        for m in range(6):
            for y in range(8):
                for x in range(8):
                    s = b2[m]
                    for c in range(4):
                        for i in range(3):
                            for j in range(3):
                                s += first[(c * 10 + y + i) * 10 + x + j] * w2[((m * 4 + c) * 3 + i) * 3 + j]
                    second[(m * 8 + y) * 8 + x] = max(s, np.float32(0))
        total = np.float32(0)
        for k in range(5):
            s = b3[k]
            for m in range(6):
                for y in range(4):
                    for x in range(4):
                        at = (m * 8 + 2 * y) * 8 + 2 * x
                        pooled = max(second[at], second[at + 1], second[at + 8], second[at + 9])
                        s += pooled * w3[k * 96 + (m * 4 + y) * 4 + x]
            out[k] = math.exp(s)
            total += out[k]
        for k in range(5):
            out[k] /= total

    names = [f"net_t_{name.replace('.', '_')}" for name in network.weights()]
    sizes = [array.size for array in network.weights().values()]
    declared = "".join(
        f"@{name} = external constant [{size} x float]\n" for name, size in zip(names, sizes, strict=True)
    )
    given = ", ".join(f"ptr @{name}" for name in names)
    wrapper = run._wrapper_name
    shim = (
        f"{declared}@a = internal global [400 x float] zeroinitializer\n"
        "@b = internal global [384 x float] zeroinitializer\n"
        f'declare ptr @"{wrapper}"({", ".join(["ptr"] * 10)})\ndefine void @infer(ptr %image, ptr %out) {{\n'
        f'  %r = call ptr @"{wrapper}"(ptr %image, {given}, ptr @a, ptr @b, ptr %out)\n  ret void\n}}\n'
    )
    package = network.package()
    package.add_code(run.inspect_llvm())
    package.add_code(shim)
    output = tmp_path / "libnet.so"
    # What numba says of its own errors, which this function does not raise, is left out: nothing refers to it.
    emit(package, output, target="x86_64-linux-gnu", name="net", libs=["m", "c"], export=["infer"], opt_level=3)
    library = ctypes.CDLL(str(output))
    out = (ctypes.c_float * 5)()
    library.infer(network.image_bytes("little"), out)
    _assert_right(np.array(out, np.float64))


CONSTANT = """\
@net_t_w = external constant [5 x float]

define void @infer(ptr %image, ptr %out) {
  call void @llvm.memcpy.p0.p0.i32(ptr %out, ptr @net_t_w, i32 20, i1 false)
  ret void
}

declare void @llvm.memcpy.p0.p0.i32(ptr, ptr, i32, i1)
"""


@pytest.mark.parametrize("target", LINUX)
def test_a_library_without_variables_loads_at_every_page_size(
    target: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What is read-only after relocation is then all that there is to write to."""
    toolchain = toolchain_of(target)
    image = network.image_file(tmp_path)
    program = _program(target, tmp_path_factory.getbasetemp())
    for number, linker in enumerate(_found(target)):
        package = Package()
        package.add_tensor("w", np.arange(5, dtype=np.float32))
        package.add_code(CONSTANT)
        output = tmp_path / f"libw{number}.so"
        emit(package, output, target=target, name="net", linker=linker, libs=["c"])
        for page_size in (None, *toolchain.page_sizes):
            command = [*toolchain.runner(page_size), str(program), str(output), str(image)]
            assert _outcome(command).tolist() == [0, 1, 2, 3, 4], (linker, page_size)
