"""Programs linked with our Mach-O files by LLVM's linker and by zig's: what they hold of the pack, byte for byte."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import emitter
from tests.macho_files import MachO, emit, package_of, parse, run

if TYPE_CHECKING:
    from pathlib import Path

PAYLOADS: dict[str, bytes | Path] = {
    "first": bytes(range(251)) * 40,
    "middle": b"m" * 70_001,
    "last": b"the last tensor " * 100,
}
# LLVM's and zig's names of a CPU.
CPUS = {"arm64-apple-macos": ("arm64", "aarch64"), "x86_64-apple-macos": ("x86_64", "x86_64")}
FILES = ["model.o", "libmodel.a", "libmodel.dylib"]

# What the program refers to: the pack and its size, the last tensor alone, the size alone, nothing.
PROGRAMS = {
    "pack": "extern const unsigned char model[]; extern const unsigned long model_size;\n"
    "int main(void) { return model[model_size - 1]; }\n",
    "last": "extern const unsigned char model_t_last[];\nint main(void) { return model_t_last[1]; }\n",
    "size": "extern const unsigned long model_size;\nint main(void) { return (int)model_size; }\n",
    "nothing": "int main(void) { return 0; }\n",
}

# Stands for the description of libSystem in Apple's SDK: a program needs one, and what lazy binding calls.
LIB_SYSTEM = """\
--- !tapi-tbd
tbd-version: 4
targets: [ x86_64-macos, arm64-macos ]
install-name: '/usr/lib/libSystem.B.dylib'
exports:
  - targets: [ x86_64-macos, arm64-macos ]
    symbols: [ dyld_stub_binder ]
...
"""

every_cpu = pytest.mark.parametrize("target", CPUS)


def linked(tmp_path: Path, target: str, program: str, *flags: str, file: str, **options: bool) -> MachO:
    """Emit `file`, compile and link a program with it by ld64.lld; return the program."""
    arch = CPUS[target][0]
    if not (tmp_path / file).exists():
        emit(tmp_path / file, PAYLOADS, target, tensor_symbols=True, **options)
    source, compiled = tmp_path / "main.c", tmp_path / f"{program}-main.o"
    source.write_text(PROGRAMS[program])
    run("clang", f"--target={arch}-apple-macos11", "-O1", "-c", source, "-o", compiled)
    stub = tmp_path / "libSystem.tbd"
    stub.write_text(LIB_SYSTEM)
    output = tmp_path / program
    version = ("-platform_version", "macos", "11.0", "11.0")
    run("ld64.lld", "-arch", arch, *version, compiled, tmp_path / file, stub, *flags, "-o", output)
    return parse(output.read_bytes())


def pack_of(tmp_path: Path) -> bytes:
    """Return the pack of the same tensors, which an object holds as it is."""
    emit(tmp_path / "model.pack", PAYLOADS, "arm64-apple-macos")
    return (tmp_path / "model.pack").read_bytes()


def has_section(file: MachO, name: str) -> bool:
    return name in {f"{row[1]},{row[0]}" for row in file.sections}


@every_cpu
@pytest.mark.parametrize("file", FILES[:2])
@pytest.mark.parametrize("program", ["pack", "last"])
@pytest.mark.parametrize("flags", [(), ("-dead_strip",)])
def test_the_program_has_the_whole_pack(
    target: str, file: str, program: str, flags: tuple[str, ...], tmp_path: Path
) -> None:
    """A linker that takes the pack for several atoms keeps only those that are used, without a word."""
    pack = pack_of(tmp_path)
    found = linked(tmp_path, target, program, *flags, file=file)
    assert found.content("__TEXT,__emitter") == pack
    assert found.section("__TEXT,__emitter")[2] % 64 == 0
    with emitter.load(tmp_path / program) as model:
        model.validate()
        assert {name: bytes(model[name]) for name in model} == PAYLOADS


@every_cpu
def test_the_size_is_an_atom_of_its_own(target: str, tmp_path: Path) -> None:
    size = len(pack_of(tmp_path))
    found = linked(tmp_path, target, "size", "-dead_strip", file="model.o")
    assert not has_section(found, "__TEXT,__emitter")
    assert found.content("__TEXT,__const") == size.to_bytes(8, "little")


@every_cpu
@pytest.mark.parametrize("retain", [False, True])
def test_retain_keeps_what_nobody_refers_to(target: str, retain: bool, tmp_path: Path) -> None:
    found = linked(tmp_path, target, "nothing", "-dead_strip", file="model.o", retain=retain)
    assert has_section(found, "__TEXT,__emitter") == retain
    if retain:
        assert found.content("__TEXT,__emitter") == pack_of(tmp_path)


@every_cpu
@pytest.mark.parametrize("program", ["pack", "last"])
@pytest.mark.parametrize("flags", [(), ("-dead_strip",)])
def test_the_program_binds_to_the_library(target: str, program: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    linked(tmp_path, target, program, *flags, file="libmodel.dylib")
    names = {"pack": {"_model", "_model_size"}, "last": {"_model_t_last"}}[program]
    table = run("llvm-objdump", "--macho", "--bind", tmp_path / program)
    assert {row.split()[-1] for row in table.splitlines() if "libmodel" in row and "__got" in row} == names
    assert "@rpath/libmodel.dylib" in run("llvm-objdump", "--macho", "--dylibs-used", tmp_path / program)


@every_cpu
def test_app_extensions_may_use_the_library(target: str, tmp_path: Path) -> None:
    """Linkers warn of libraries that may call what extensions must not."""
    linked(tmp_path, target, "pack", "-application_extension", file="libmodel.dylib")


@every_cpu
def test_hidden_symbols_do_not_leave_a_library(target: str, tmp_path: Path) -> None:
    """A user's own library that links the object does not export the weights; with --visibility default it does."""
    for visibility, exported in (("hidden", False), ("default", True)):
        emit(tmp_path / "model.o", PAYLOADS, target, visibility=visibility)
        stub = tmp_path / "libSystem.tbd"
        stub.write_text(LIB_SYSTEM)
        arch = CPUS[target][0]
        version = ("-platform_version", "macos", "11.0", "11.0")
        output = tmp_path / "libuser.dylib"
        run("ld64.lld", "-dylib", "-arch", arch, *version, tmp_path / "model.o", stub, "-o", output)
        listed = run("llvm-objdump", "--macho", "--exports-trie", output)
        assert ("_model\n" in listed) == exported


@every_cpu
@pytest.mark.parametrize("style", ["ld", "incbin", "xxd"])
def test_other_tools_symbols_survive_dead_strip(target: str, style: str, tmp_path: Path) -> None:
    """The first blob is used by its ends alone, the second not at all."""
    arch = CPUS[target][0]
    blobs: dict[str, bytes | Path] = {"used": b"used" * 999, "unused": b"unused" * 999, "third": b"3"}
    emitter.emit(package_of(blobs), tmp_path / "blobs.o", target=target, symbols=style)
    expression = {
        "ld": "extern const char _binary_used_start[], _binary_used_end[];\n"
        "long length(void) { return _binary_used_end - _binary_used_start; }\n",
        "incbin": "extern const unsigned char gusedData[], gusedEnd[];\nextern const unsigned gusedSize;\n"
        "long length(void) { return gusedEnd - gusedData + gusedSize; }\n",
        "xxd": "extern unsigned char used[];\nextern unsigned used_len;\n"
        "long length(void) { return used[used_len - 1]; }\n",
    }[style]
    (tmp_path / "main.c").write_text(f"{expression}int main(void) {{ return (int)length(); }}\n")
    run("clang", f"--target={arch}-apple-macos11", "-O1", "-c", tmp_path / "main.c", "-o", tmp_path / "main.o")
    (tmp_path / "libSystem.tbd").write_text(LIB_SYSTEM)
    version = ("-platform_version", "macos", "11.0", "11.0")
    inputs = (tmp_path / "main.o", tmp_path / "blobs.o", tmp_path / "libSystem.tbd")
    run("ld64.lld", "-arch", arch, *version, "-dead_strip", *inputs, "-o", tmp_path / "prog")
    data = (tmp_path / "prog").read_bytes()
    assert data.count(b"used" * 999) == 1 and b"unused" * 10 not in data
    found = parse(data)
    first, last = {
        "ld": ("__binary_used_start", "__binary_used_end"),
        "incbin": ("_gusedData", "_gusedEnd"),
        "xxd": ("_used", "_used_len"),
    }[style]
    assert found.at(first, 3996) == b"used" * 999
    if style != "xxd":
        assert found.symbols()[last].n_value - found.symbols()[first].n_value == 3996


@pytest.fixture(scope="session")
def zig(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment of zig, whose cache all tests share: it builds its own libraries first."""
    pytest.importorskip("ziglang", reason="ziglang is not installed")
    cache = str(tmp_path_factory.mktemp("zig"))
    return {**os.environ, "ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}


@every_cpu
def test_zig_links_all_three(target: str, zig: dict[str, str], tmp_path: Path) -> None:
    pack = pack_of(tmp_path)
    (tmp_path / "main.c").write_text(PROGRAMS["last"])
    for file in FILES:
        emit(tmp_path / file, PAYLOADS, target, tensor_symbols=True)
        output = tmp_path / f"with-{file}"
        # Without -fno-sanitize zig adds calls into a library of its own.
        flags = ("-target", f"{CPUS[target][1]}-macos", "-fno-sanitize=all", "-O1", "-Wl,-dead_strip")
        argv = [sys.executable, "-m", "ziglang", "cc", *flags, "main.c", file, "-o", str(output)]
        done = subprocess.run(argv, env=zig, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found = parse(output.read_bytes())
        if file == "libmodel.dylib":
            table = run("llvm-objdump", "--macho", "--bind", output)
            assert [row.split()[-1] for row in table.splitlines() if "__got" in row and "libmodel" in row] == [
                "_model_t_last"
            ]
        else:
            assert found.content("__TEXT,__emitter") == pack


@every_cpu
def test_linkers_take_their_slice_of_a_universal_file(target: str, tmp_path: Path) -> None:
    pack = pack_of(tmp_path)
    for file in FILES:
        (tmp_path / file).unlink(missing_ok=True)
        emit(tmp_path / file, PAYLOADS, *CPUS, tensor_symbols=True)
        found = linked(tmp_path, target, "last", "-dead_strip", file=file)
        assert has_section(found, "__TEXT,__emitter") == (file != "libmodel.dylib")
        if file != "libmodel.dylib":
            assert found.content("__TEXT,__emitter") == pack


def test_llvms_librarian_takes_the_object(tmp_path: Path) -> None:
    emit(tmp_path / "model.o", PAYLOADS, "arm64-apple-macos")
    run("llvm-libtool-darwin", "-static", "-o", tmp_path / "theirs.a", tmp_path / "model.o")
    assert run("llvm-ar", "t", tmp_path / "theirs.a").split() == ["model.o"]


@pytest.mark.parametrize("target", ["arm64-apple-ios", "arm64-apple-ios-simulator"])
@pytest.mark.parametrize("file", FILES)
def test_programs_for_other_platforms(target: str, file: str, tmp_path: Path) -> None:
    """A linker refuses, or warns of, what was built for another platform than the program."""
    emit(tmp_path / file, PAYLOADS, target, tensor_symbols=True)
    platform = target.removeprefix("arm64-apple-")
    (tmp_path / "main.c").write_text(PROGRAMS["last"])
    triple = f"arm64-apple-ios15{platform.removeprefix('ios')}"
    run("clang", f"--target={triple}", "-O1", "-c", tmp_path / "main.c", "-o", tmp_path / "main.o")
    targets = f"[ arm64-{platform} ]"
    (tmp_path / "libSystem.tbd").write_text(LIB_SYSTEM.replace("[ x86_64-macos, arm64-macos ]", targets))
    inputs = (tmp_path / "main.o", tmp_path / file, tmp_path / "libSystem.tbd")
    version = ("-platform_version", platform, "15.0", "15.0")
    run("ld64.lld", "-arch", "arm64", *version, "-dead_strip", *inputs, "-o", tmp_path / "program")
    found = parse((tmp_path / "program").read_bytes())
    if file == "libmodel.dylib":
        assert "@rpath/libmodel.dylib" in run("llvm-objdump", "--macho", "--dylibs-used", tmp_path / "program")
    else:
        assert found.content("__TEXT,__emitter") == pack_of(tmp_path)
