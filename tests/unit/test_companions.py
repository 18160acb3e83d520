"""The depfile."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from emitter.companions import depfile_text
from emitter.errors import OutputError

NAMES = [
    "plain",
    "with space",
    "two  spaces",
    "dollar$x",
    "hash#x",
    "back\\slash",
    "per%cent",
    "col,on",
    "(x)",
    "q'q",
    "ünïcode",
]


@pytest.mark.parametrize("name", ["a\nb", "a\rb", "a\tb", "a:b", "a;b", "a|b", "a=b", "a\\"])
def test_what_the_syntax_cannot_hold_is_refused(name: str) -> None:
    for outputs, inputs in ((["out"], [name]), ([name], ["in"]), (["a%b"], ["in"])):
        with pytest.raises(OutputError, match="cannot hold this name"):
            depfile_text(outputs, inputs)


@pytest.mark.parametrize("name", NAMES)
def test_make_rebuilds_when_an_input_changes(name: str, tmp_path: Path) -> None:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    (tmp_path / "Makefile").write_text("all: out\nout:\n\t@echo built >> log\n\t@touch out\n-include out.d\n")
    (tmp_path / name).write_text("1")
    (tmp_path / "out.d").write_text(depfile_text(["out"], [name]))

    def build() -> int:
        subprocess.run(["make", "-s"], cwd=tmp_path, check=True)
        return len((tmp_path / "log").read_text().splitlines())

    assert build() == 1
    assert build() == 1
    newer = os.stat(tmp_path / "out").st_mtime + 10
    os.utime(tmp_path / name, (newer, newer))
    assert build() == 2
    if "%" in name:
        return  # such a name cannot be a target of its own
    os.unlink(tmp_path / name)
    subprocess.run(["make", "-s"], cwd=tmp_path, check=True)  # an input that has gone does not stop the build


@pytest.mark.parametrize("name", [name for name in NAMES if "'" not in name])
def test_ninja_rebuilds_when_an_input_changes(name: str, tmp_path: Path) -> None:
    if shutil.which("ninja") is None:
        pytest.skip("ninja is not installed")
    (tmp_path / "prepared.d").write_text(depfile_text(["out"], [name]))
    (tmp_path / "build.ninja").write_text(
        "rule emit\n command = echo built >> log && touch out && cp prepared.d out.d\n"
        " depfile = out.d\n deps = gcc\nbuild out: emit\n"
    )
    (tmp_path / name).write_text("1")

    def build() -> int:
        subprocess.run(["ninja", "--quiet"], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
        return len((tmp_path / "log").read_text().splitlines())

    assert build() == 1
    assert build() == 1
    newer = os.stat(tmp_path / "out").st_mtime + 10
    os.utime(tmp_path / name, (newer, newer))
    assert build() == 2
