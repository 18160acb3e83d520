"""Objects that register their fatbins make the calls that nvcc's own object makes, at the same times.

A stand-in for libcudart, tests/data/cuda/libcudart.c, records the calls, and ends a program that breaks their rules.
"""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from emitter import Package, emit
from emitter.errors import EmitterError, InputError, LayoutError, TargetError, UsageError
from tests.c_tools import need, toolchain_of
from tests.cuda_tools import DATA, compile_device, images_of, nvcc_object, standin

if TYPE_CHECKING:
    from pathlib import Path

COMPILERS = {"cuda-host": "gcc", "cuda-host-aarch64": "aarch64-linux-gnu-gcc"}


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cuda-register")


def need_target(target: str) -> list[str]:
    """Return what runs a program of the target; skip where nothing does."""
    return toolchain_of(target).runner()


def runtime(folder: Path, target: str = "cuda-host") -> Path:
    """Return the folder of the stand-in for a target, compiled once."""
    home = folder / f"runtime-{target}"
    if not (home / "libcudart.so").exists():
        standin(home, compiler=COMPILERS[target], source="libcudart")
    return home


def registered(output: Path, *files: Path, target: str = "cuda-host", **options: Any) -> Path:
    package = Package()
    for file in files:
        package.add_input(file)
    emit(package, output, target=target, cuda_register=True, **options)
    return output


def link(compiler: str, output: Path, home: Path, *arguments: object) -> Path:
    need(compiler)
    command = [compiler, *map(str, arguments), f"-L{home}", "-lcudart", "-o", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return output


def record_of(command: list[str], home: Path, folder: Path) -> list[str]:
    record = folder / "record"
    environment = {**os.environ, "CUDA_RECORD": str(record), "LD_LIBRARY_PATH": str(home)}
    if command[0].startswith("qemu"):
        del environment["LD_LIBRARY_PATH"]  # which is for the emulator
        command = [*command[:-1], "-E", f"LD_LIBRARY_PATH={home}", command[-1]]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    lines = record.read_text().splitlines() if record.exists() else []
    assert done.returncode == 0, f"{lines}\n{done.stderr}"
    record.unlink()
    return lines


def nvccs_record(made: Path, folder: Path) -> list[str]:
    """Return the calls of a program that is linked with nvcc's object."""
    home = runtime(made)
    program = link("g++", folder / "theirs", home, "-x", "c", DATA / "launch.c", "-x", "none", nvcc_object(made))
    return record_of([str(program)], home, folder)


CALLS = [
    r"__cudaRegisterFatBinary\(\d+ bytes, [0-9a-f]{16}\) = 1",
    r"__cudaRegisterFunction\(1, fill, fill, -1\)",
    r"__cudaRegisterFunction\(1, axpy, axpy, -1\)",
    r"__cudaRegisterVar\(1, scale, scale, 0, 4, 1, 0\)",
    r"__cudaRegisterVar\(1, counter, counter, 0, 4, 0, 0\)",
    r"__cudaRegisterFatBinaryEnd\(1\)",
    r"cudaLaunchKernel\(axpy, 4 1 1, 32 2 1, 1.5, 0, \(nil\)\)",
    r"__cudaUnregisterFatBinary\(1\), 0 live",
]


def is_life(lines: list[str]) -> bool:
    return len(lines) == len(CALLS) and all(map(re.fullmatch, CALLS, lines))


@pytest.mark.parametrize("target", COMPILERS)
@pytest.mark.parametrize("suffix", [".o", ".a"])
def test_the_calls_are_those_of_nvccs_object(suffix: str, target: str, made: Path, tmp_path: Path) -> None:
    runner = need_target(target)
    home = runtime(made, target)
    output = registered(tmp_path / f"kernels{suffix}", compile_device("all.fatbin", made), target=target)
    program = link(COMPILERS[target], tmp_path / "ours", home, DATA / "launch.c", output)
    lines = record_of([*runner, str(program)], home, tmp_path)
    assert is_life(lines)
    assert lines == nvccs_record(made, tmp_path)


@pytest.mark.parametrize("pie", ["-pie", "-no-pie", "-static-pie"])
@pytest.mark.parametrize("linker", ["bfd", "lld", "mold"])
def test_linkers_and_programs_of_every_kind(linker: str, pie: str, made: Path, tmp_path: Path) -> None:
    need({"bfd": "ld", "lld": "ld.lld", "mold": "mold"}[linker])
    home = runtime(made)
    output = registered(tmp_path / "kernels.o", compile_device("all.fatbin", made))
    arguments: list[object] = [DATA / "launch.c", output, f"-fuse-ld={linker}", pie]
    if pie == "-static-pie":
        arguments += ["-fPIE", DATA / "libcudart.c"]
        program = tmp_path / "program"
        subprocess.run(["gcc", *map(str, arguments), "-o", str(program)], check=True)
    else:
        program = link("gcc", tmp_path / "program", home, "-fPIE" if pie == "-pie" else "-fno-pie", *arguments)
    assert is_life(record_of([str(program)], home, tmp_path))


@pytest.mark.parametrize("name", ["all.fatbin", "one.fatbin", "plain.fatbin", "lz4.fatbin", "specific.fatbin"])
def test_the_names_of_every_form(name: str, made: Path, tmp_path: Path) -> None:
    home = runtime(made)
    output = registered(tmp_path / "kernels.o", compile_device(name, made))
    program = link("gcc", tmp_path / "program", home, "-DVARIABLE", DATA / "launch.c", output)
    lines = record_of([str(program)], home, tmp_path)
    assert lines.pop(6) == "cudaMemcpyToSymbol(scale, 1.5, 4, 0, 1)"
    assert is_life(lines)


def test_cuobjdump_reads_object_and_program(made: Path, tmp_path: Path) -> None:
    fatbin = compile_device("all.fatbin", made)
    output = registered(tmp_path / "kernels.o", fatbin)
    program = link("gcc", tmp_path / "program", runtime(made), DATA / "launch.c", output)
    expected = images_of(fatbin, tmp_path / "expected")
    assert images_of(output, tmp_path / "object") == expected
    assert images_of(program, tmp_path / "linked") == expected


@pytest.mark.parametrize("target", COMPILERS)
def test_libraries_come_and_go_a_thousand_times(target: str, made: Path, tmp_path: Path) -> None:
    """Two libraries with the same kernel names, in one process; at the end they are unregistered at exit."""
    runner = need_target(target)
    compiler, home = COMPILERS[target], runtime(made, target)
    output = registered(tmp_path / "kernels.o", compile_device("all.fatbin", made), target=target)
    for name in ("a", "b"):
        link(compiler, tmp_path / f"lib{name}.so", home, "-shared", "-fPIC", DATA / "plugin.c", output)
    cycle = link(compiler, tmp_path / "cycle", home, "-Wl,--no-as-needed", DATA / "cycle.c", "-ldl")
    times = 1000 if not runner else 20
    script = tmp_path / "run"
    script.write_text(f'#!/bin/sh\nexec "$@" {tmp_path}/liba.so {tmp_path}/libb.so {times}\n')
    record = tmp_path / "record"
    environment = {**os.environ, "CUDA_RECORD": str(record), "LD_LIBRARY_PATH": str(home)}
    command = [*runner, str(cycle)]
    if runner:
        del environment["LD_LIBRARY_PATH"]
        command = [*runner, "-E", f"LD_LIBRARY_PATH={home}", str(cycle)]
    subprocess.run(["sh", str(script), *command], check=True, env=environment)
    lines = record.read_text().splitlines()
    starts = [line for line in lines if line.startswith("cudaLaunchKernel")]
    assert len(starts) == 2 * times
    assert sum("__cudaRegisterFatBinary(" in line for line in lines) == 2 * times
    assert sum("__cudaUnregisterFatBinary(" in line for line in lines) == 2 * times
    assert sum(line.endswith(", 0 live") for line in lines) == times
    assert lines[-1].endswith(", 0 live")


def test_two_packages_with_the_same_kernels_in_one_program(made: Path, tmp_path: Path) -> None:
    home = runtime(made)
    fatbin = compile_device("all.fatbin", made)
    first = registered(tmp_path / "first.o", fatbin)
    second = registered(tmp_path / "second.o", compile_device("plain.fatbin", made), symbol_prefix="other_")
    program = link("gcc", tmp_path / "program", home, DATA / "launch.c", first, second)
    lines = record_of([str(program)], home, tmp_path)
    assert [line for line in lines if "axpy" in line] == [
        "__cudaRegisterFunction(1, axpy, axpy, -1)",
        "__cudaRegisterFunction(2, axpy, axpy, -1)",
        "cudaLaunchKernel(axpy, 4 1 1, 32 2 1, 1.5, 0, (nil))",
    ]
    assert lines[-2:] == ["__cudaUnregisterFatBinary(2), 1 live", "__cudaUnregisterFatBinary(1), 0 live"]


def test_several_fatbins_in_one_object(made: Path, tmp_path: Path) -> None:
    source = tmp_path / "more.cu"
    source.write_text('extern "C" __global__ void more(int *x) { *x = 1; }\n')
    from tests.cuda_tools import tool

    more = tmp_path / "more.fatbin"
    subprocess.run([tool("nvcc"), "-fatbin", "-arch=sm_80", str(source), "-o", str(more)], check=True)
    home = runtime(made)
    fatbin = compile_device("all.fatbin", made)
    output = registered(tmp_path / "kernels.o", more, fatbin)
    program = link("gcc", tmp_path / "program", home, DATA / "launch.c", output)
    lines = record_of([str(program)], home, tmp_path)
    assert lines[1] == "__cudaRegisterFunction(1, more, more, -1)"
    assert [line for line in lines if "FatBinary(" in line and "Un" not in line] == [
        lines[0], nvccs_record(made, tmp_path)[0].replace("= 1", "= 2"),
    ]  # fmt: skip
    found, expected = images_of(output, tmp_path / "found"), []
    for file in (more, fatbin):
        expected += images_of(file, tmp_path / f"expected-{file.stem}")
    assert sorted(found) == sorted(expected)


def test_the_bytes_are_the_same_every_time(made: Path, tmp_path: Path) -> None:
    fatbin = compile_device("all.fatbin", made)
    first = registered(tmp_path / "a.o", fatbin).read_bytes()
    assert registered(tmp_path / "b.o", fatbin).read_bytes() == first


REFUSED: list[tuple[list[str], dict[str, Any], type[EmitterError], str]] = [
    (["compute_75.ptx"], {}, InputError, "not a fatbin, which the CUDA runtime wants"),
    (["sm_80.cubin"], {}, InputError, "not a fatbin, which the CUDA runtime wants"),
    (["relocatable.fatbin"], {}, InputError, "the code is relocatable"),
    (["ptx.fatbin"], {}, InputError, "no kernel or variable can be read from the fatbin"),
    (["all.fatbin", "one.fatbin"], {}, LayoutError, "two symbols would be called 'fill'"),
    (["all.fatbin"], {"target": "x86_64-linux-gnu"}, TargetError, "no CUDA programs run beside this target"),
    (["all.fatbin"], {"target": "i686-windows-gnu"}, TargetError, "no CUDA programs run beside this target"),
    (["all.fatbin"], {"name": "x"}, UsageError, "--name cannot be combined with --cuda-register"),
    (["all.fatbin"], {"map": "x.json"}, UsageError, "--map cannot be combined with --cuda-register"),
    (["all.fatbin"], {"symbols": "ld"}, UsageError, "cannot be combined with --cuda-register"),
]


@pytest.mark.parametrize(("names", "options", "error", "message"), REFUSED)
def test_what_cannot_be_registered_is_refused(
    names: list[str], options: dict[str, Any], error: type[EmitterError], message: str, made: Path, tmp_path: Path
) -> None:
    files = [compile_device(name, made) for name in names]
    with pytest.raises(error, match=message):
        registered(tmp_path / "x.o", *files, **options)
    assert not (tmp_path / "x.o").exists()


def test_tensors_go_into_another_object(made: Path, tmp_path: Path) -> None:
    package = Package()
    package.add_raw("w", b"1234")
    package.add_input(compile_device("all.fatbin", made))
    with pytest.raises(UsageError, match="--cuda-register takes fatbins alone"):
        emit(package, tmp_path / "x.o", target="cuda-host", cuda_register=True)
    with pytest.raises(UsageError, match="--cuda-register means nothing for this output"):
        emit(package, tmp_path / "x.so", target="cuda-host", cuda_register=True)
