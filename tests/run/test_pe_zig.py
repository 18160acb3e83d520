"""zig's linker takes DLLs' import libraries and archives, for both CPUs that Windows has today."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import lief
import pytest

from tests.run.device import INCLUDE, Model, emit, lines
from tests.windows import SOURCES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.windows import Wine

    Zig = Callable[..., Path]


@pytest.fixture(scope="session")
def zig(tmp_path_factory: pytest.TempPathFactory) -> Zig:
    """Return a function that builds no_libc.c with `zig cc`; zig keeps what it makes of kernel32 in one cache."""
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("ziglang is not installed")
    cache = tmp_path_factory.mktemp("zig")
    folders = {name: str(cache) for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")}

    def build(cpu: str, program: Path, header: Path, name: str, linked: Path) -> Path:
        command = [
            sys.executable, "-m", "ziglang", "cc", "-target", f"{cpu}-windows-gnu",
            "-nostdlib", "-ffreestanding", "-fno-sanitize=all", "-O1", f"-I{INCLUDE}",
            f'-DHEADER="{header}"', f"-DNAME={name}", os.path.join(SOURCES, "no_libc.c"), str(linked), "-lkernel32",
            "-Wl,-e,mainCRTStartup", "-o", str(program),
        ]  # fmt: skip
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, env=os.environ | folders, timeout=600
        )
        assert (done.returncode, done.stderr) == (0, "")
        return program

    return build


@pytest.mark.parametrize("suffix", [".dll", ".lib"])
@pytest.mark.parametrize("cpu", ["x86_64", "aarch64"])
def test_zig_links_it(cpu: str, suffix: str, model: Model, zig: Zig, tmp_path: Path) -> None:
    program = _link(cpu, suffix, model, zig, tmp_path)
    parsed = lief.PE.parse(str(program))
    assert isinstance(parsed, lief.PE.Binary)
    imports = {one.name: {entry.name for entry in one.entries} for one in parsed.imports}
    dll = f"{model.name}.dll"
    assert imports.get(dll, set()) == ({model.name, f"{model.name}_size"} if suffix == ".dll" else set())
    assert (".emitter" in {section.name for section in parsed.sections}) == (suffix == ".lib")


@pytest.mark.parametrize("suffix", [".dll", ".lib"])
def test_what_zig_links_runs(suffix: str, model: Model, zig: Zig, wine: Wine, tmp_path: Path) -> None:
    program = _link("x86_64", suffix, model, zig, tmp_path)
    expected = [line.split(" aligned 0x")[1].split()[0] for line in lines(model.tensors, "x86_64-windows-msvc")]
    assert wine.prints(program) == expected


def _link(cpu: str, suffix: str, model: Model, zig: Zig, folder: Path) -> Path:
    output, header = folder / f"{model.name}{suffix}", folder / f"{model.name}.h"
    implib = folder / f"{model.name}.dll.lib"
    options: list[str | Path] = ["--implib", implib] if suffix == ".dll" else []
    emit("--target", f"{cpu}-windows-msvc", model.path, "-o", output, "--header", header, *options)
    return zig(cpu, folder / "program.exe", header, model.name, implib if options else output)
