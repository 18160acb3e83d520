"""The depfile."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from emitter.companions import depfile_text
from emitter.errors import OutputError
from tests.c_tools import need

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


# What an output with code is made of: IR, a tensor, a library that -L finds, and a version script.
CODE = {
    "code.ll": "@net_t_w = external constant [4 x i8]\ndeclare i32 @three()\ndefine i32 @first() {\n"
    "  %w = load i32, ptr @net_t_w\n  %t = call i32 @three()\n  %s = add i32 %w, %t\n  ret i32 %s\n}\n",
    "w.bin": "1234",
    "three.c": "int three(void) { return 3; }\n",
    "net.map": "{ global: first; local: *; };\n",
}
GCC = "gcc -shared -fPIC three.c -o libs/libthree.so"
EMIT = (
    f"{sys.executable} -m emitter --target x86_64-linux-gnu --no-cache code.ll w=raw:w.bin -L libs -l three"
    " --version-script net.map --name net -o libnet.so --depfile libnet.so.d"
)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """Return a folder with the files of CODE, and an empty one for the library."""
    need("gcc")
    for name, text in CODE.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "libs").mkdir()
    return tmp_path


@pytest.mark.parametrize("changed", ["code.ll", "w.bin", "libs/libthree.so", "net.map"])
def test_make_rebuilds_when_a_file_that_was_linked_changes(changed: str, code: Path) -> None:
    need("make")
    (code / "Makefile").write_text(f"libnet.so:\n\t@{EMIT}\n-include libnet.so.d\n")
    subprocess.run(GCC.split(), cwd=code, check=True)
    subprocess.run(["make", "-s"], cwd=code, check=True)
    up_to_date = ["make", "-s", "-q"]
    assert subprocess.run(up_to_date, cwd=code, check=False).returncode == 0
    newer = os.stat(code / "libnet.so").st_mtime + 10
    os.utime(code / changed, (newer, newer))
    assert subprocess.run(up_to_date, cwd=code, check=False).returncode == 1


def test_ninja_links_again_when_it_has_built_a_library_anew(code: Path) -> None:
    """The depfile has the path as it was given: an absolute one would be another file to ninja."""
    need("ninja")
    (code / "build.ninja").write_text(
        f"rule gcc\n command = {GCC}\nrule emit\n command = {EMIT}\n depfile = libnet.so.d\n deps = gcc\n"
        # An order, and no dependency: that is known from the depfile alone.
        "build libs/libthree.so: gcc three.c\nbuild libnet.so: emit || libs/libthree.so\n"
    )

    def build() -> str:
        return subprocess.run(["ninja", "-v"], cwd=code, check=True, capture_output=True, text=True).stdout

    build()
    assert "no work to do" in build()
    os.utime(code / "three.c")
    again = build()
    assert "libthree.so" in again
    assert "-m emitter" in again
    assert "no work to do" in build()
