"""A tree of five modules with shared constants: nothing is copied, in any container, on any CPU, in C and Python."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

from emitter import emit, load
from emitter.checksum import crc32c
from emitter.loaders import ModuleSource, Registry
from emitter.targets import load as load_target
from tests.c_tools import need
from tests.module_packages import GRAPH, module_package
from tests.run.device import PROGRAMS, TARGETS
from tests.run.test_bare_metal import build, every_board, execute
from tests.windows import compile_and_link, mingw

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cross.table import Board
    from emitter.loaders import Library
    from tests.run.device import Device
    from tests.windows import Wine

PLACE = {"sm": "87", "tensorrt": "10.3.0"}
FACTS = [f"{key}={value}" for key, value in PLACE.items()]
KINDS = ("library", "tensorrt", "graph", "cuda", "raw")

LAZY = [
    "build graph: graph 2", "__init_plan of 2",
    "build engine: tensorrt 1", "__init_calibrate of 1", "__init_infer of 3",
]  # fmt: skip
EAGER = [*LAZY, "build device: cuda 1", "__init_kernel of 1", "build tables: raw 1", "build root: library 1"]


class Artefact(NamedTuple):
    """The tree as a file for one target; `data` is the file with its bytes, which is another one with a sidecar."""

    path: Path
    data: Path
    header: Path


def write(folder: Path, target: str, suffix: str, *, sidecar: bool = False) -> Artefact:
    prefix = "lib" if suffix in {".so", ".a", ".dylib"} else ""
    path = folder / f"{prefix}m{suffix}"
    header = None if suffix == ".pack" else folder / "m.h"
    emit(module_package(), path, target=target, sidecar=sidecar, header=header)
    return Artefact(path, path.with_suffix(".pack") if sidecar else path, folder / "m.h")


def in_pack(library: Library, file_offset: int) -> int:
    return file_offset - library.packs[0].base


def lines_of(path: Path) -> list[str]:
    """Return what constants.c prints of the modules, as the Python loader finds them; offsets are in the pack."""
    lines = []
    with load(path) as library:
        for module in library.modules:
            lines.append(f"module {module.name}")
            for one in module.alternatives:
                at = in_pack(library, one.file_offset)
                crc = crc32c(bytes(one.bytes()))
                lines.append(f"  {one.kind} {one.schema_version}: {one.size} bytes at {at}, crc32c 0x{crc:08x}")
            for name, tensors in module.functions.items():
                arguments = "".join(f" {one.name} at {in_pack(library, one.file_offset)}" for one in tensors)
                lines.append(f"  function {name}:{arguments}")
    return lines


def expected(artefact: Artefact, *, eager: bool) -> list[str]:
    with load(artefact.path) as library:
        engine = in_pack(library, library.module("engine").alternatives[0].file_offset)
    end = ["infer 72", "shared 1", f"engine at {engine}, kernel {'built' if eager else 'not built'}"]
    return [*lines_of(artefact.path), *(EAGER if eager else LAZY), *end]


# C, on each CPU.
@pytest.mark.parametrize("how", ["eagerly", "lazily"])
@pytest.mark.parametrize("sidecar", [False, True], ids=["whole", "sidecar"])
@pytest.mark.parametrize("target", TARGETS)
def test_a_library_gives_functions_their_constants(
    target: str, sidecar: bool, how: str, device_for: Callable[[str], Device], tmp_path: Path
) -> None:
    device = device_for(target)
    artefact = write(tmp_path, target, ".so", sidecar=sidecar)
    done = device.run(device.program("constants.c"), how, artefact.path, *FACTS)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == expected(artefact, eager=how == "eagerly")


@pytest.mark.parametrize("suffix", [".o", ".a"])
@pytest.mark.parametrize("target", TARGETS)
def test_a_program_has_the_tree_linked_in(
    target: str, suffix: str, device_for: Callable[[str], Device], tmp_path: Path
) -> None:
    device = device_for(target)
    artefact = write(tmp_path, target, suffix)
    uses = ['-DHEADER="m.h"', "-DNAME=m", f"-I{tmp_path}"]
    done = device.compile("constants.c", tmp_path / "program", *uses, str(artefact.path))
    assert (done.returncode, done.stderr) == (0, "")
    for how in ("eagerly", "lazily"):
        done = device.run(tmp_path / "program", how, *FACTS)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines() == expected(artefact, eager=how == "eagerly")


def test_nothing_is_allocated(tmp_path: Path) -> None:
    need("gcc", "nm")
    write(tmp_path, "x86_64-linux-gnu", ".o")
    source, output = os.path.join(PROGRAMS, "constants.c"), tmp_path / "constants.o"
    include = os.path.join(os.path.dirname(os.path.dirname(PROGRAMS)), "loaders", "c")
    flags = [f"-I{include}", f"-I{tmp_path}", '-DHEADER="m.h"', "-DNAME=m", "-O0"]
    subprocess.run(["gcc", *flags, "-c", source, "-o", str(output)], check=True)
    undefined = subprocess.run(["nm", "-u", str(output)], check=True, capture_output=True, text=True).stdout
    called = set(re.findall(r"U (\w+)", undefined)) - {"_GLOBAL_OFFSET_TABLE_", "__stack_chk_fail"}
    assert {name for name in called if name != "m" and not name.startswith("m_")} == {
        "memset", "printf", "putchar", "puts", "strchr", "strcmp",
    }  # fmt: skip


def test_a_place_that_fits_nothing_takes_the_fallback(device_for: Callable[[str], Device], tmp_path: Path) -> None:
    device = device_for("x86_64-linux-gnu")
    artefact = write(tmp_path, device.name, ".so")
    lines = device.run(device.program("constants.c"), "lazily", artefact.path, "sm=86").stdout.splitlines()
    assert "build engine: graph 2" in lines
    assert "infer 72" in lines


@every_board
def test_a_program_without_an_operating_system_has_the_tree_linked_in(board: Board, tmp_path: Path) -> None:
    artefact = write(tmp_path, board.name, ".o")
    build(board, tmp_path, f"{PROGRAMS}/constants.c", "-I.", '-DHEADER="m.h"', "-DNAME=m", artefact.path.name)
    done = execute([*board.runner(), "program"], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    with load(artefact.path) as library:
        fallback = in_pack(library, library.module("graph").alternatives[0].file_offset)
    built = [line.replace("tensorrt 1", "graph 2") for line in LAZY]
    end = ["infer 72", "shared 1", f"engine at {fallback}, kernel not built"]
    assert done.stdout.splitlines() == [*lines_of(artefact.path), *built, *end]


@pytest.mark.parametrize("sidecar", [False, True], ids=["whole", "sidecar"])
@pytest.mark.parametrize("target", ["x86_64-windows-gnu", "x86_64-windows-msvc"])
def test_a_dll_gives_functions_their_constants(target: str, sidecar: bool, wine: Wine, tmp_path: Path) -> None:
    artefact = write(tmp_path, target, ".dll", sidecar=sidecar)
    program = compile_and_link([mingw("x86_64")], tmp_path / "constants.exe", "constants.c")
    for how in ("eagerly", "lazily"):
        assert wine.prints(program, how, artefact.path, *FACTS) == expected(artefact, eager=how == "eagerly")


def test_a_32_bit_dll_gives_functions_their_constants(wine32: Wine, tmp_path: Path) -> None:
    artefact = write(tmp_path, "i686-windows-gnu", ".dll")
    program = compile_and_link([mingw("i686")], tmp_path / "constants.exe", "constants.c")
    assert wine32.prints(program, "lazily", artefact.path, *FACTS) == expected(artefact, eager=False)


@pytest.mark.parametrize("suffix", [".obj", ".lib"])
def test_a_program_for_windows_has_the_tree_linked_in(suffix: str, wine: Wine, tmp_path: Path) -> None:
    artefact = write(tmp_path, "x86_64-windows-gnu", suffix)
    uses = ['-DHEADER="m.h"', "-DNAME=m", f"-I{tmp_path}"]
    program = compile_and_link([mingw("x86_64")], tmp_path / "p.exe", "constants.c", *uses, str(artefact.path))
    assert wine.prints(program, "eagerly", *FACTS) == expected(artefact, eager=True)


# Python, whatever the CPU.
FORMATS = {"elf": [".so", ".o", ".a"], "macho": [".dylib", ".o", ".a"], "coff": [".dll", ".obj", ".lib"]}
CONTAINERS = [
    (target, suffix)
    for target in (*TARGETS, "arm64-apple-macos", "x86_64-apple-macos", "x86_64-windows-msvc", "i686-windows-gnu")
    for suffix in (*FORMATS[load_target(target).object_format], ".pack")
]


def mapped(path: Path) -> list[tuple[int, int, int]]:
    """Return (start, end, file offset) of each mapping of a file in this process."""
    found = []
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            span, _, offset, _, inode, *name = line.split(maxsplit=5)
            if name and name[0].rstrip("\n") == str(path) and inode != "0":
                start, end = (int(part, 16) for part in span.split("-"))
                found.append((start, end, int(offset, 16)))
    return found


def address_of(data: memoryview) -> int:
    return int(np.frombuffer(data, np.uint8).ctypes.data)


@pytest.mark.parametrize(
    ("target", "suffix", "sidecar"),
    [
        (target, suffix, sidecar)
        for target, suffix in CONTAINERS
        for sidecar in ([False, True] if suffix in {".so", ".dylib", ".dll"} else [False])
    ],
)
def test_the_loader_gives_views_of_the_mapped_file(target: str, suffix: str, sidecar: bool, tmp_path: Path) -> None:
    artefact = write(tmp_path, target, suffix, sidecar=sidecar)
    with load(artefact.path) as library:
        library.check()
        maps = mapped(artefact.data)
        assert maps

        def file_offset(address: int) -> int:
            """Return where the byte at an address is in the file; what is no part of a mapping was copied."""
            return next(address - start + offset for start, end, offset in maps if start <= address < end)

        root, tables, device, engine, graph = library.modules
        assert [child.name for child in root.imports] == ["engine", "device", "tables"]
        assert engine.imports[0].number == device.imports[0].number == graph.number
        for module in (root, device, engine, graph):
            for one in module.alternatives:
                assert file_offset(address_of(one.bytes())) == one.file_offset
        assert bytes(tables.alternatives[0].bytes()) == b""
        # Equal bytes are stored once, and so are constants, whoever takes them.
        assert address_of(engine.alternatives[2].bytes()) == address_of(graph.alternatives[0].bytes())
        assert bytes(graph.alternatives[0].bytes()) == GRAPH
        taken = [*engine.functions["infer"], *graph.functions["plan"], *device.functions["kernel"]]
        addresses = {
            tensor.name: {one.numpy().ctypes.data for one in taken if one.name == tensor.name} for tensor in taken
        }
        assert {name: len(found) for name, found in addresses.items()} == {"w": 1, "b": 1}
        for tensor in taken:
            assert file_offset(tensor.numpy().ctypes.data) == tensor.file_offset
        w, b = engine.functions["infer"][1], engine.functions["infer"][0]
        np.testing.assert_array_equal(w.numpy(), np.arange(12, dtype=np.float32).reshape(3, 4))
        np.testing.assert_array_equal(b.numpy(), np.arange(4, dtype=np.float64))
        if library.byte_order == "little":
            view: Any = w  # numpy declares a protocol without the versions of DLPack
            assert np.from_dlpack(view).ctypes.data == w.numpy().ctypes.data


@pytest.mark.parametrize(("target", "suffix"), CONTAINERS)
def test_the_tree_is_built_children_first(target: str, suffix: str, tmp_path: Path) -> None:
    artefact = write(tmp_path, target, suffix)
    built: list[str] = []
    registry = Registry()

    def name(source: ModuleSource) -> str:
        built.append(source.name)
        return f"{source.name}({', '.join(map(str, source.imports))})"

    for kind in KINDS:
        registry.module_loader(kind, schema_version=2 if kind == "graph" else 1)(name)
    with load(artefact.path) as library:
        tree = library.build_modules(PLACE, registry=registry)
        module, tensors = tree.function("infer")
        assert (module, built) == ("engine(graph())", ["graph", "engine"])
        assert [tensor.name for tensor in tensors] == ["b", "w", "w"]
        assert tree.root == "root(engine(graph()), device(graph()), tables())"
        assert sorted(built) == ["device", "engine", "graph", "root", "tables"]
