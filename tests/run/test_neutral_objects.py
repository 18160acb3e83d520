"""A data-only object never changes the program that it joins.

Baseline programs and libraries are linked with and without the object; what GNU readelf says of flags, build attributes
and properties must be the same. The compilers also say what their own empty objects and libraries look like, which is
what the literals of the targets state.

GNU ld merges the attributes of all its inputs. The lld of Debian 12 takes those of its first input, and GNU ld a few
tags that only describe (the name of the CPU, the goals of optimisation). So where the program's objects come second,
which takes -nostartfiles or -r, the rest is compared.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import pytest

from cross.table import TOOLCHAINS, find
from emitter import targets

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

PROGRAM = """
float scale(float x, double y) { return x * (float)y; }
int main(void) { return (int)scale(0, 0); }
"""

# Flags of the compiler that ask for more, or for less, than the compiler's default.
VARIANTS = {
    "x86_64-linux-gnu": (
        "-fcf-protection=full",
        "-fcf-protection=none",
        "-fcf-protection=full -march=x86-64-v3 -mneeded",
    ),
    "x86_64-linux-musl": ("-fcf-protection=full",),
    "i686-linux-gnu": ("-fcf-protection=full",),
    "aarch64-linux-gnu": ("-mbranch-protection=standard", "-mbranch-protection=bti", "-mbranch-protection=none"),
    "armv7-linux-gnueabihf": (
        "",
        "-mcpu=cortex-a7 -mfpu=neon-vfpv4",
        "-march=armv8-a+simd -mfpu=crypto-neon-fp-armv8",
        "-march=armv7-a+fp -marm",
    ),
    "riscv64-linux-gnu": ("", "-misa-spec=2.2", "-march=rv64imafd", "-march=rv64gc_zba_zbb"),
    "s390x-linux-gnu": ("", "-march=z14 -mzvector"),
    "powerpc64le-linux-gnu": ("", "-mcpu=power9"),
}

LINKERS = ("bfd", "lld")
# The linkers' ways: with the platform's own start files, without them, and to an object.
MODES = {"program": (), "library": ("-shared", "-fPIC", "-nostartfiles"), "object": ("-r", "-nostdlib")}

# Tags that say something about how a program was made, and nothing about what it needs.
DESCRIPTIVE = re.compile(r"Tag_(CPU_name|ABI_optimization_goals|ABI_FP_optimization_goals)")

CASES = [
    pytest.param(name, flags, linker, mode, id=f"{name}-{flags.replace(' ', '') or 'default'}-{linker}-{mode}")
    for name, variants in VARIANTS.items()
    for flags in variants
    for linker in LINKERS
    for mode in MODES
    if (linker, mode) != ("lld", "object")
]


class Identity(NamedTuple):
    """What a file says that it is and needs, as GNU readelf prints it."""

    header: list[str]
    attributes: list[str]
    properties: list[str]

    def without_descriptions(self) -> Identity:
        """Return all but the tags that describe."""
        return self._replace(attributes=[line for line in self.attributes if not DESCRIPTIVE.match(line)])


def data_only_object(name: str, path: Path) -> None:
    """Write the object that must be neutral."""
    path.write_bytes(targets.stub(targets.load(name)))


def identity(path: Path) -> Identity:
    def readelf(option: str) -> list[str]:
        done = subprocess.run(["readelf", option, "-W", os.fspath(path)], check=True, capture_output=True, text=True)
        return [line.strip() for line in done.stdout.splitlines()]

    header = [
        line
        for line in readelf("-h")
        if line.startswith(("Class:", "Data:", "OS/ABI:", "ABI Version:", "Machine:", "Flags:"))
    ]
    properties = [line.partition("Properties:")[2] for line in readelf("-n") if "Properties:" in line]
    return Identity(header, [line for line in readelf("-A") if line.startswith("Tag_")], properties)


def run(command: Iterable[str], where: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(command), check=False, cwd=where, capture_output=True, text=True)


@cache
def _compiler(name: str) -> str:
    toolchain = find(name)
    if toolchain is None:
        pytest.skip(f"no C compiler for {name} is packaged")
    missing = next((tool for tool in (toolchain.c, "readelf") if shutil.which(tool) is None), None)
    if missing:
        pytest.skip(f"{missing} is not installed")
    return toolchain.c


def _linker(linker: str, where: Path) -> list[str]:
    """Return gcc's options for a linker. A cross compiler looks for ld.lld in the folders of -B alone."""
    if linker == "bfd":
        return ["-fuse-ld=bfd"]
    lld = shutil.which("ld.lld")
    if lld is None:
        pytest.skip("ld.lld is not installed")
    tools = where / "tools"
    tools.mkdir()
    (tools / "ld.lld").symlink_to(lld)
    return ["-fuse-ld=lld", f"-B{tools}"]


@pytest.mark.parametrize(("name", "flags", "linker", "mode"), CASES)
def test_a_data_only_object_changes_nothing(name: str, flags: str, linker: str, mode: str, tmp_path: Path) -> None:
    compiler = _compiler(name)
    link = [compiler, *flags.split(), *MODES[mode], *_linker(linker, tmp_path)]
    (tmp_path / "program.c").write_text(PROGRAM)
    pic = ["-fPIC"] if mode != "program" else []
    made = run([compiler, *flags.split(), *pic, "-O1", "-c", "program.c", "-o", "program.o"], tmp_path)
    assert made.returncode == 0, made.stderr
    baseline = run([*link, "program.o", "-o", "baseline"], tmp_path)
    if baseline.returncode != 0:
        reason = next((line for line in baseline.stderr.splitlines() if "error" in line), "")
        if linker == "bfd":
            pytest.fail(baseline.stderr)
        pytest.skip(f"lld cannot link this target's own programs: {reason[:150]}")

    data_only_object(name, tmp_path / "data.o")
    for order in (["program.o", "data.o"], ["data.o", "program.o"]):
        joined = run([*link, *order, "-o", "joined"], tmp_path)
        assert joined.returncode == 0, joined.stderr
        assert joined.stderr == baseline.stderr, "the object makes the linker warn"
        before, after = identity(tmp_path / "baseline"), identity(tmp_path / "joined")
        first = order[0] == "data.o" and mode != "program"
        if first and linker == "lld":
            before, after = before._replace(attributes=[]), after._replace(attributes=[])
        elif first:
            before, after = before.without_descriptions(), after.without_descriptions()
        assert after == before


@pytest.mark.parametrize(
    ("name", "flags", "expected"),
    [
        ("x86_64-linux-gnu", "-fcf-protection=full", "IBT, SHSTK"),
        ("i686-linux-gnu", "-fcf-protection=full", "IBT, SHSTK"),
        ("aarch64-linux-gnu", "-mbranch-protection=standard", "BTI, PAC"),
    ],
)
def test_the_protection_of_a_library_survives(name: str, flags: str, expected: str, tmp_path: Path) -> None:
    """Without properties in the object the linker would switch it off for the whole library (libffi/libffi#822)."""
    compiler = _compiler(name)
    (tmp_path / "program.c").write_text(PROGRAM)
    data_only_object(name, tmp_path / "data.o")
    (tmp_path / "bare.s").write_text('.section .note.GNU-stack,"",%progbits\n')
    link = [compiler, flags, "-shared", "-fPIC", "-nostartfiles", "program.c"]
    for other, protected in (("data.o", True), ("bare.s", False)):
        done = run([*link, other, "-o", "library.so"], tmp_path)
        assert done.returncode == 0, done.stderr
        found = identity(tmp_path / "library.so").properties
        assert any(expected in line for line in found) == protected


def test_the_table_of_flags_covers_every_toolchain() -> None:
    assert set(VARIANTS) == {toolchain.name for toolchain in TOOLCHAINS}


def test_tier_1_is_what_programs_are_run_for() -> None:
    """Of what has an operating system and ELF; test_proofs.py judges all."""
    hosted = [one for one in targets.describe_all() if one.object_format == "elf" and one.image_suffix]
    assert {target.name for target in hosted if target.tier == 1} == {toolchain.name for toolchain in TOOLCHAINS}


def _fields(path: Path) -> dict[str, int]:
    raw = path.read_bytes()
    order = "little" if raw[5] == 1 else "big"
    wide = raw[4] == 2
    return {
        "pointer_width": 64 if wide else 32,
        "byte_order": raw[5],
        "ei_osabi": raw[7],
        "e_machine": int.from_bytes(raw[18:20], order),  # type: ignore[arg-type]  # one of the two
        "e_flags": int.from_bytes(raw[48:52] if wide else raw[36:40], order),  # type: ignore[arg-type]  # one of the two
    }


@pytest.mark.parametrize("name", [toolchain.name for toolchain in TOOLCHAINS])
def test_the_literal_is_what_the_platform_s_own_tools_write(name: str, tmp_path: Path) -> None:
    """xmake-io/xmake#7653: headers from a table, and wrong on three CPUs."""
    compiler = _compiler(name)
    target = targets.load(name)
    (tmp_path / "empty.c").write_text("")
    for command in (["-c", "empty.c", "-o", "empty.o"], ["-shared", "-fPIC", "-nostdlib", "empty.c", "-o", "empty.so"]):
        done = run([compiler, *command], tmp_path)
        assert done.returncode == 0, done.stderr
    expected = {
        "pointer_width": target.pointer_width,
        "byte_order": 1 if target.byte_order == "little" else 2,
        "ei_osabi": target.ei_osabi,
        "e_machine": target.e_machine,
    }
    # Data has no compressed instructions, so its object does not claim them (EF_RISCV_RVC).
    compressed = 0x1 if target.e_machine == 243 else 0
    assert _fields(tmp_path / "empty.o") == {**expected, "e_flags": target.e_flags_object | compressed}
    assert _fields(tmp_path / "empty.so") == {**expected, "e_flags": target.e_flags_image}


@pytest.mark.parametrize("name", [toolchain.name for toolchain in TOOLCHAINS])
def test_segments_are_aligned_for_every_page_that_the_linkers_expect(name: str, tmp_path: Path) -> None:
    compiler = _compiler(name)
    (tmp_path / "empty.c").write_text("")
    for linker in LINKERS:
        where = tmp_path / linker
        where.mkdir()
        options = _linker(linker, where)
        done = run([compiler, *options, "-shared", "-fPIC", "-nostdlib", "empty.c", "-o", f"{linker}.so"], tmp_path)
        if done.returncode != 0:
            assert linker == "lld", done.stderr  # not every CPU is one of lld's
            continue
        command = ["readelf", "-lW", os.fspath(tmp_path / f"{linker}.so")]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        pages = {int(line.split()[-1], 16) for line in text.splitlines() if line.split()[:1] == ["LOAD"]}
        assert pages
        assert all(targets.load(name).max_page_size % page == 0 for page in pages)
