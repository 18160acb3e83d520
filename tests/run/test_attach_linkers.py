"""An attached payload is read by code and by loaders, whatever linked, loads or edits the library."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, NamedTuple

import pytest

from emitter import Package, load, targets
from emitter.attach.file import attach
from emitter.pack.plan import plan_pack
from tests.attach_files import LINKERS, USE, compile_kernels, hash_of, link, linker, write_stub
from tests.c_tools import need
from tests.run.device import TARGETS, Device, Model
from tests.support import build_pack

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EDITS: dict[str, tuple[str, ...]] = {
    "strip": ("strip",),
    "llvm-strip": ("llvm-strip",),
    "soname": ("patchelf", "--set-soname", "libwith-a-longer-name-than-before.so.1"),
    "needed": ("patchelf", "--add-needed", "libc.so.6"),
    "rpath": ("patchelf", "--set-rpath", "/opt/a/long/folder:$ORIGIN/lib"),
}

# What is broken before anything is attached: the edit of the library as it was linked.
BROKEN = {
    ("riscv64-linux-gnu", "lld", "strip"): "GNU strip 2.40 cannot read what lld 14 links for RISC-V",
}


class Attached(NamedTuple):
    """A library with its payload, and what its functions shall say."""

    path: Path
    device: Device
    prints: str


@pytest.fixture(scope="session")
def attached_for(
    device_for: Callable[[str], Device], model: Model, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], Attached]:
    """Return a function that gives the library of a target and a linker, made once."""
    made: dict[tuple[str, str], Attached] = {}
    zig = str(tmp_path_factory.mktemp("zig"))

    def get(target: str, linker_name: str) -> Attached:
        if (target, linker_name) in made:
            return made[target, linker_name]
        device = device_for(target)
        command = linker(linker_name, device.toolchain)
        need(device.toolchain.c)
        folder = tmp_path_factory.mktemp(f"{target}-{linker_name}")
        found = targets.load(target)
        stub = write_stub(folder / "stub.o", target)
        env = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": zig, "ZIG_LOCAL_CACHE_DIR": zig}
        linked = link(command, folder / "linked.so", compile_kernels(folder, [device.toolchain.c]), stub, env=env)
        package = Package()
        package.add_input(model.path)
        pack = plan_pack(package, found.byte_order)
        path = folder / "libmodel.so"
        attach(str(linked), str(path), found, pack, name="model")
        value = hash_of(build_pack(package, found.byte_order))
        made[target, linker_name] = Attached(path, device, f"{value:016x} {value:016x} {value:016x} {value:016x} 1\n")
        return made[target, linker_name]

    return get


def _program(device: Device) -> str:
    """Return the program that calls a library's functions, compiled once."""
    output = device.folder / "use-attached"
    if not output.exists():
        source = device.folder / "use-attached.c"
        source.write_text(USE)
        subprocess.run([device.toolchain.c, "-O1", str(source), "-o", str(output), "-ldl"], check=True)
    return str(output)


def _is_right(attached: Attached, library: Path, model: Model) -> None:
    device = attached.device
    done = device.run(_program(device), library)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", attached.prints)
    device.prints(model.tensors, device.program("dump.c"), library)
    with load(library) as loaded:
        assert {name: array.tobytes() for name, array in loaded.items()}.keys() == model.tensors.keys()


@pytest.mark.parametrize("linker_name", LINKERS)
@pytest.mark.parametrize("target", TARGETS)
def test_code_and_loaders_read_the_payload(
    target: str, linker_name: str, attached_for: Callable[[str, str], Attached], model: Model
) -> None:
    attached = attached_for(target, linker_name)
    _is_right(attached, attached.path, model)
    for page_size in attached.device.toolchain.page_sizes:
        done = attached.device.run(_program(attached.device), attached.path, page_size=page_size)
        assert (done.returncode, done.stdout) == (0, attached.prints), done.stderr


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("linker_name", LINKERS)
@pytest.mark.parametrize("target", [target for target in TARGETS if target != "x86_64-linux-musl"])
def test_the_payload_survives_edits(
    target: str,
    linker_name: str,
    edit: str,
    attached_for: Callable[[str, str], Attached],
    model: Model,
    tmp_path: Path,
) -> None:
    attached = attached_for(target, linker_name)
    tool, *arguments = EDITS[edit]
    command = attached.device.toolchain.tool(tool) if tool == "strip" else tool
    need(command)
    library = tmp_path / "libmodel.so"
    if (target, linker_name, edit) in BROKEN:
        shutil.copy(attached.path.parent / "linked.so", library)
        assert subprocess.run([command, *arguments, str(library)], check=False, capture_output=True).returncode
        return
    shutil.copy(attached.path, library)
    subprocess.run([command, *arguments, str(library)], check=True, capture_output=True)
    _is_right(attached, library, model)


OPTIONS = {
    "gc-sections": ("--gc-sections", "-z", "now", "-z", "relro"),
    "separate-code": ("-z", "separate-code"),
    "noseparate-code": ("-z", "noseparate-code"),
    "page": ("-z", "max-page-size=65536"),
    "no build id": ("--build-id=none",),
    "packed": ("-z", "pack-relative-relocs"),
    "stripped symbols": ("-s",),
    "sorted": ("--icf=all", "-O2"),
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("linker_name", ["bfd", "lld", "mold"])
def test_options_of_linkers_change_nothing(
    linker_name: str, options: str, attached_for: Callable[[str, str], Attached], model: Model, tmp_path: Path
) -> None:
    attached = attached_for("x86_64-linux-gnu", linker_name)
    folder = attached.path.parent
    flags = [*linker(linker_name, attached.device.toolchain), "-shared", *OPTIONS[options]]
    linked = tmp_path / "linked.so"
    argv = [*flags, "-o", str(linked), str(folder / "kernels.o"), str(folder / "stub.o")]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    if done.returncode or "warning" in done.stderr:
        pytest.skip(f"{linker_name} does not know {' '.join(OPTIONS[options])}")
    package = Package()
    package.add_input(model.path)
    library = tmp_path / "libmodel.so"
    attach(str(linked), str(library), targets.load("x86_64-linux-gnu"), plan_pack(package, "little"), name="model")
    _is_right(attached, library, model)
    for edit in ("strip", "llvm-strip", "soname"):
        need(EDITS[edit][0])
        edited = tmp_path / f"{edit}.so"
        shutil.copy(library, edited)
        subprocess.run([*EDITS[edit], str(edited)], check=True, capture_output=True)
        _is_right(attached, edited, model)
