"""Objects for Windows and Apple's systems that register their fatbins: what tools read in them, and that they run.

A program for Windows makes the calls that one on Linux makes, recorded by the same stand-in for the CUDA runtime.
"""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from emitter import Package, emit
from emitter.targets import load
from tests import macho_files
from tests.cuda_tools import DATA, compile_device
from tests.elf_objects import run
from tests.windows import build, mingw

if TYPE_CHECKING:
    from pathlib import Path

    from tests.windows import Wine

WINDOWS = ("x86_64-windows-msvc", "x86_64-windows-gnu", "aarch64-windows-msvc")
APPLE = ("x86_64-apple-macos", "arm64-apple-macos", "arm64-apple-ios")
KERNELS, VARIABLES = ["fill", "axpy"], ["scale", "counter"]
CALLS = {
    "__cudaRegisterFatBinary",
    "__cudaRegisterFatBinaryEnd",
    "__cudaRegisterFunction",
    "__cudaRegisterVar",
    "__cudaUnregisterFatBinary",
    "atexit",
}


@pytest.fixture(scope="session")
def fatbin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_device("all.fatbin", tmp_path_factory.mktemp("fatbins"))


def registered(output: Path, fatbin: Path, *targets: str, **options: Any) -> Path:
    package = Package()
    package.add_input(fatbin)
    emit(package, output, target=targets, cuda_register=True, **options)
    return output


class Section(NamedTuple):
    """What llvm-readobj says of a section."""

    alignment: int
    writable: bool
    data: bytes


def sections_of(file: Path) -> dict[str, Section]:
    """Return the sections by their names, those of Mach-O with the segment's."""
    listing = run("llvm-readobj", "--sections", "--section-data", str(file)).stdout
    found = {}
    for block in listing.split("  Section {\n")[1:]:
        (name,) = re.findall(r"^    Name: (\S+)", block, re.MULTILINE)
        segment = re.findall(r"^    Segment: (\S+)", block, re.MULTILINE)
        power = re.findall(r"^    Alignment: (\d+)", block, re.MULTILINE)
        flag = re.findall(r"IMAGE_SCN_ALIGN_(\d+)BYTES", block)
        rows = re.findall(r"^      [0-9A-F]+: ((?:[0-9A-F]+ ?)+) *\|", block, re.MULTILINE)
        found[",".join([*segment, name])] = Section(
            1 << int(power[0]) if power else int(flag[0]), "IMAGE_SCN_MEM_WRITE" in block, bytes.fromhex("".join(rows))
        )
    return found


def names_of(file: Path, *options: str) -> set[str]:
    return set(run("llvm-nm", "-j", *options, str(file)).stdout.split())


@pytest.mark.parametrize("target", [*WINDOWS, *APPLE])
def test_the_sections_are_those_that_cuda_names(target: str, fatbin: Path, tmp_path: Path) -> None:
    facts = load(target)
    output = registered(tmp_path / f"kernels{facts.object_suffix}", fatbin, target)
    places = {
        "coff": (".nv_fatbin", ".nvFatBinSegment", ".CRT$XCU"),
        "macho": ("__NV_CUDA,__nv_fatbin", "__NV_CUDA,__fatbin", "__DATA,__mod_init_func"),
    }[facts.object_format]
    sections = sections_of(output)
    fatbins, wrapper, constructors = (sections[name] for name in places)
    assert fatbins.data == fatbin.read_bytes()
    assert fatbins.alignment % 8 == 0
    assert (wrapper.alignment, len(wrapper.data)) == (8, 24)
    assert wrapper.data[:8] == bytes.fromhex("b1436246 01000000")
    assert (constructors.alignment, len(constructors.data)) == (8, 8)
    assert not constructors.writable  # as link.exe wants it: what it joins .CRT$XCU with is read-only
    prefix = facts.symbol_prefix
    assert names_of(output, "--undefined-only") == {prefix + name for name in CALLS}
    defined = names_of(output, "--defined-only", "--extern-only") - {"@feat.00"}
    assert defined == {prefix + name for name in (*KERNELS, *VARIABLES)}


@pytest.mark.parametrize("target", [*WINDOWS, *APPLE])
def test_an_archive_has_the_symbols_in_its_index(target: str, fatbin: Path, tmp_path: Path) -> None:
    facts = load(target)
    output = registered(tmp_path / f"kernels{facts.archive_suffix}", fatbin, target, symbol_prefix="p_")
    index = run("llvm-nm", "--print-armap", str(output)).stdout.split("\n\n")[0]
    found = [line.split(" in ")[0] for line in index.splitlines() if " in " in line]
    assert sorted(found) == sorted(f"{facts.symbol_prefix}p_{name}" for name in (*KERNELS, *VARIABLES))


def test_one_archive_for_several_cpus(fatbin: Path, tmp_path: Path) -> None:
    output = registered(tmp_path / "libkernels.a", fatbin, *APPLE[:2])
    assert set(macho_files.run("llvm-lipo", "-archs", output).split()) == {"x86_64", "arm64"}
    assert output.read_bytes().count(fatbin.read_bytes()) == 2


@pytest.mark.parametrize("suffix", [".o", ".a"])
def test_a_program_for_windows_makes_the_same_calls(suffix: str, fatbin: Path, tmp_path: Path, wine: Wine) -> None:
    records = []
    for target, compiler, runtime, flags in (
        ("cuda-host", "gcc", "libcudart.so", ["-fPIC", "-Wl,-rpath,$ORIGIN"]),
        ("x86_64-windows-gnu", mingw("x86_64"), "cudart.dll", ["-D__USE_MINGW_ANSI_STDIO=1"]),
    ):
        folder = tmp_path / target
        folder.mkdir()
        kernels = registered(folder / f"kernels{suffix}", fatbin, target)
        library, program, record = folder / runtime, folder / "program.exe", folder / "record"
        strict = ["-Wall", "-Wextra", "-Werror", *flags]
        build(compiler, "-shared", *strict, str(DATA / "libcudart.c"), "-o", str(library))
        inputs = [str(DATA / "launch.c"), str(kernels), str(library)]
        build(compiler, *strict, "-DVARIABLE", *inputs, "-o", str(program))
        if target == "cuda-host":
            subprocess.run([program], check=True, env={"CUDA_RECORD": str(record)})
        else:
            done = wine.run(program, cwd=folder, env={"CUDA_RECORD": "record"})
            assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        records.append(record.read_text().splitlines())
    on_linux, on_windows = records
    assert len(on_linux) == 9
    assert on_linux[-1] == "__cudaUnregisterFatBinary(1), 0 live"
    assert on_windows == on_linux


# Stands for the CUDA runtime and the C library.
RUNTIME = "".join(f"int {name}(void) {{ return 0; }}\n" for name in sorted(CALLS))


@pytest.mark.parametrize("target", ["x86_64-windows-msvc", "aarch64-windows-msvc"])
def test_the_linker_for_windows_keeps_all_of_it(target: str, fatbin: Path, tmp_path: Path) -> None:
    cpu = target.partition("-")[0]
    (tmp_path / "runtime.c").write_text(RUNTIME)
    output = registered(tmp_path / "kernels.obj", fatbin, target)
    runtime = tmp_path / "runtime.obj"
    build("clang", f"--target={cpu}-pc-windows-msvc", "-c", str(tmp_path / "runtime.c"), "-o", str(runtime))
    library = tmp_path / "x.dll"
    exports = [f"/export:{name}" for name in KERNELS]
    machine = {"x86_64": "x64", "aarch64": "arm64"}[cpu]
    options = ["/dll", "/noentry", "/nodefaultlib", "/opt:ref,icf", f"/machine:{machine}", f"/out:{library}"]
    build("lld-link", *options, *exports, str(output), str(runtime))
    assert fatbin.read_bytes() in library.read_bytes()
    listing = run("llvm-readobj", "--sections", "--coff-exports", str(library)).stdout
    assert re.findall(r"Name: (\.nv\S+)", listing) == [".nvFatBi", ".nv_fatb"]  # eight characters, as link.exe cuts
    # Kernels are told apart by their addresses.
    assert len(set(re.findall(r"  RVA: (0x[0-9A-F]{3,})", listing))) == len(KERNELS)


@pytest.mark.parametrize("target", APPLE[:2])
def test_the_linker_for_apple_keeps_all_of_it(target: str, fatbin: Path, tmp_path: Path) -> None:
    output = registered(tmp_path / "kernels.o", fatbin, target, visibility="default")
    version = ["-platform_version", "macos", "13.0", "13.0", "-undefined", "dynamic_lookup"]
    library = tmp_path / "x.dylib"
    arch = target.partition("-")[0]
    macho_files.run("ld64.lld", "-arch", arch, *version, "-dylib", "-dead_strip", "--icf=all", output, "-o", library)
    found = macho_files.parse(library.read_bytes())
    assert found.content("__NV_CUDA,__nv_fatbin") == fatbin.read_bytes()
    assert len(found.content("__NV_CUDA,__fatbin")) == 24
    listing = macho_files.run("llvm-objdump", "--section-headers", library)
    assert re.search(r"(__mod_init_func|__init_offsets) ", listing)
    exported = names_of(library, "--defined-only", "--extern-only")
    assert {f"_{name}" for name in (*KERNELS, *VARIABLES)} <= exported
    # Kernels are told apart by their addresses.
    rows = [line.split() for line in macho_files.run("llvm-nm", library).splitlines()]
    assert len({row[0] for row in rows if row[-1] in {f"_{name}" for name in KERNELS}}) == len(KERNELS)
