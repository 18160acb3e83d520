"""Who imports whom: the directions of the architecture, the home of each dear package, and what starting may cost."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDERS = {"emitter": "emitter", "targets": "emitter.targets", "loaders": "emitter.loaders"}

# What everything may import, and what imports nothing above itself.
FOUNDATION = {
    "checksum", "code", "coff", "dlpack", "dtypes", "elf", "errors", "format", "layout", "limits", "macho", "model",
    "modules", "package", "payloads", "records", "sections", "sources", "targets", "values",
}  # fmt: skip
DRIVERS = {"driver", "jobs", "plan_report", "planner", "verify"}
# What reads artefacts: it takes packs from the loaders.
READERS = {"inspect", "verify"}
COMMAND = {"__main__", "arguments", "cli", "commands", "console", "contents", "diff", "extract"}

# The conveniences of the public API, which would otherwise need a class of their own, imported where they are called.
UPWARD = {
    ("package", "inputs"),
    ("package", "manifest"),
    ("interop", "driver"),  # a library for TVM is one of ours
    ("targets", "llvm"),  # the stub of a target that is not shipped
}

# The one home of each package that costs much to import or that is not everywhere.
HOMES = {
    "cbor2": ("emitter.payloads",),
    "llvmlite": ("emitter.llvm", "emitter.compile.child"),
    "lief": ("emitter.inspect.second_lief",),
    "elftools": ("emitter.inspect.second_elf",),
    "tvm": ("emitter.interop.tvm",),
    "tvm_ffi": ("emitter.interop.tvm",),
}


def _modules() -> Iterator[tuple[str, str]]:
    for folder, package in FOLDERS.items():
        for directory, _, files in os.walk(os.path.join(ROOT, folder)):
            for file in sorted(files):
                if file.endswith(".py"):
                    path = os.path.join(directory, file)
                    parts = os.path.relpath(path, os.path.join(ROOT, folder))[:-3].split(os.sep)
                    yield ".".join([package, *(part for part in parts if part != "__init__")]), path


MODULES = dict(_modules())


def _imports(path: str) -> set[str]:
    """Return the modules that a file imports, anywhere but under `if TYPE_CHECKING`."""
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    found: set[str] = set()

    def walk(node: ast.AST) -> None:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found.update({name for name in names if name in MODULES} or {node.module})
        for child in ast.iter_child_nodes(node):
            walk(child)

    walk(tree)
    return found


def _unit(module: str) -> str:
    """Return the part of the package that a module belongs to: `pack` for emitter.pack.plan."""
    if module == "emitter.pack.format":
        return "format"  # what the format says, which everything may know
    return [*module.split("."), "__init__"][1]


def _level(unit: str) -> int:
    return 0 if unit in FOUNDATION else 2 if unit in DRIVERS else 3 if unit in COMMAND else 1


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_go_downwards(module: str) -> None:
    unit = _unit(module)
    if unit in ("__init__", "loaders"):
        return
    for imported in _imports(MODULES[module]):
        if imported.startswith("emitter.") and (unit, _unit(imported)) not in UPWARD:
            assert _level(_unit(imported)) <= _level(unit), f"{module} imports {imported}"
            assert _unit(imported) != "loaders" or unit in COMMAND | READERS, f"{module} imports {imported}"


@pytest.mark.parametrize("module", sorted(module for module in MODULES if _unit(module) == "loaders"))
def test_the_loader_needs_nothing_that_writes(module: str) -> None:
    for imported in _imports(MODULES[module]):
        if imported.startswith("emitter.") and _unit(imported) != "loaders":
            assert _unit(imported) in FOUNDATION or imported == "emitter.pack.format", f"{module} imports {imported}"


@pytest.mark.parametrize("module", sorted(module for module in MODULES if _unit(module) == "targets"))
def test_a_target_is_data(module: str) -> None:
    # The folder is mapped into the package, so a target that imported more could not be read on its own.
    if not module.rpartition(".")[2].startswith("_") and module != "emitter.targets":
        assert _imports(MODULES[module]) <= {"emitter.targets._base", "__future__"} | {
            other for other in MODULES if _unit(other) == "targets"
        }


def test_structures_of_c_have_one_home() -> None:
    for module, path in MODULES.items():
        with open(path, encoding="utf-8") as file:
            assert ("ctypes.Structure" in file.read()) == (module == "emitter.dlpack"), module


@pytest.mark.parametrize("package", sorted(HOMES))
def test_a_dear_package_has_one_home(package: str) -> None:
    for module, path in MODULES.items():
        if any(imported.split(".")[0] == package for imported in _imports(path)):
            assert module.startswith(HOMES[package]), f"{module} imports {package}"


@pytest.mark.parametrize("module", sorted(MODULES))
def test_every_module_can_be_imported_first(module: str) -> None:
    if module.endswith("__main__"):
        return
    code = f"import sys\nsys.modules.update(dict.fromkeys({sorted(HOMES)!r}))\nimport {module}"
    if any(module in homes for homes in HOMES.values()):
        code = f"import {module}"
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# Milliseconds each, on a path that has 45 in all. argparse brings re, gettext and enum; dataclasses bring inspect.
DEAR = {
    "asyncio", "concurrent.futures", "ctypes", "decimal", "difflib", "elftools", "email", "hashlib", "http",
    "importlib.metadata", "importlib.resources", "json", "lief", "llvmlite", "logging", "ml_dtypes",
    "multiprocessing", "numpy", "pathlib", "platform", "random", "socket", "subprocess", "tempfile", "unittest",
    "urllib", "zipfile",
}  # fmt: skip


@pytest.mark.parametrize(
    ("target", "output"),
    [
        ("x86_64-linux-gnu", "x.so"), ("x86_64-linux-gnu", "x.o"), ("x86_64-linux-gnu", "x.a"),
        ("x86_64-linux-gnu", "x.pack"),
        ("arm64-apple-macos", "x.dylib"), ("arm64-apple-macos", "x.o"), ("arm64-apple-macos", "x.a"),
        ("x86_64-windows-msvc", "x.dll"), ("x86_64-windows-msvc", "x.obj"), ("x86_64-windows-msvc", "x.lib"),
    ],
)  # fmt: skip
def test_a_small_job_imports_nothing_dear(target: str, output: str, tmp_path: Path) -> None:
    blob = tmp_path / "blob.bin"
    blob.write_bytes(bytes(4096))
    destination = tmp_path / output
    # A tree as an installation has it: the finder of an editable one imports much by itself.
    package = tmp_path / "tree" / "emitter"
    package.mkdir(parents=True)
    for entry in (*os.scandir(os.path.join(ROOT, "emitter")), *os.scandir(ROOT)):
        if entry.path != os.path.join(ROOT, entry.name) or entry.name in ("targets", "loaders"):
            (package / entry.name).symlink_to(entry.path)
    paths = [str(package.parent), *(path for path in sys.path if path.endswith("site-packages"))]
    arguments = ["--target", target, f"w=raw:{blob}", "-o", str(destination)]
    program = (
        f"import sys\nsys.path[:0] = {paths!r}\nimport emitter.cli\n"
        f"status = emitter.cli.main({arguments!r})\nprint(*sys.modules)\nsys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert destination.stat().st_size >= 4096
    assert not DEAR & set(done.stdout.split())
