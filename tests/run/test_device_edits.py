"""What people do to a library afterwards (strip, patchelf) leaves it loadable, and its data right."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.c_tools import need
from tests.run.device import TARGETS, Device, Model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EDITS: dict[str, tuple[tuple[str, ...], ...]] = {
    "strip": (("strip",),),
    "strip --strip-debug": (("strip", "--strip-debug"),),
    "llvm-strip": (("llvm-strip",),),
    "llvm-strip, then strip": (("llvm-strip",), ("strip",)),
    "soname": (("patchelf", "--set-soname", "libwith-a-longer-name-than-before.so.1"),),
    "needed": (("patchelf", "--add-needed", "libc.so.6"),),
    "rpath": (("patchelf", "--set-rpath", "/opt/a/long/folder:$ORIGIN/lib"),),
    "soname, then strip": (("patchelf", "--set-soname", "libmodel.so.1"), ("strip",)),
}


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("target", [target for target in TARGETS if target != "x86_64-linux-musl"])
def test_edited_library_loads(
    target: str, edit: str, device_for: Callable[[str], Device], model: Model, tmp_path: Path
) -> None:
    device = device_for(target)
    library = tmp_path / "libmodel.so"
    shutil.copy(device.artefact(model, ".so"), library)
    for tool, *arguments in EDITS[edit]:
        command = device.toolchain.tool(tool) if tool == "strip" else tool
        need(command)
        subprocess.run([command, *arguments, str(library)], check=True, capture_output=True)
    device.prints(model.tensors, device.program("dump.c"), library)


@pytest.mark.parametrize("target", TARGETS)
def test_file_calls_it_a_shared_library_that_is_not_stripped(
    target: str, device_for: Callable[[str], Device], model: Model
) -> None:
    need("file")
    library = device_for(target).artefact(model, ".so")
    text = subprocess.run(["file", "-b", str(library)], check=True, capture_output=True, text=True).stdout
    assert "shared object" in text
    assert text.rstrip().endswith("not stripped")
    assert "BuildID" in text
