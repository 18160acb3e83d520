"""Programs that NVIDIA's compiler made: its cuobjdump finds them in what is written, and the loaders load them.

No GPU is needed: a stand-in for libcuda, tests/data/cuda/libcuda.c, records every call and judges the images.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

import emitter
from emitter import Package, emit
from emitter.device import read_program
from emitter.inspect.view import View
from emitter.loaders import CudaDriver
from tests.c_tools import INCLUDE, WARNINGS, build, need, toolchain_of
from tests.cuda_tools import (
    DATA,
    INPUTS,
    compile_device,
    cuobjdump,
    entries_of,
    images_of,
    nvcc_object,
    standin,
)

if TYPE_CHECKING:
    from pathlib import Path

TARGETS = ("cuda-host", "cuda-host-aarch64")
FATBINS = sorted(name for name in INPUTS if name.endswith(".fatbin"))


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cuda")


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return standin(tmp_path_factory.mktemp("driver")).parent


def emitted(folder: Path, suffix: str, *files: Path, target: str = "cuda-host") -> Path:
    package = Package()
    package.add_tensor("w", np.arange(1000, dtype=np.float32))
    for file in files:
        package.add_input(file)
    output = folder / f"libout{suffix}"
    emit(package, output, target=target)
    return output


@pytest.mark.parametrize("name", FATBINS)
def test_cuobjdump_agrees_about_the_architectures(name: str, made: Path) -> None:
    fatbin = compile_device(name, made)
    with View.open(fatbin) as view:
        images = [image.name for image in read_program(view).images]
    listed = re.findall(r"^Fatbin (elf|ptx) code:\n=+\narch = sm_(\w+)", cuobjdump(str(fatbin)), re.MULTILINE)
    # It says nothing of what is optimised at link time.
    assert [name for name in images if not name.startswith("lto")] == [
        f"{'sm' if kind == 'elf' else 'compute'}_{arch}" for kind, arch in listed
    ]


# Every fatbin for one target, and one for the other, in every format.
FILES = [
    (name, suffix, target)
    for target in TARGETS
    for name in (FATBINS if target == "cuda-host" else ["all.fatbin"])
    for suffix in (".o", ".so", ".a")
]


@pytest.mark.parametrize(("name", "suffix", "target"), FILES)
def test_cuobjdump_extracts_what_was_compiled(name: str, suffix: str, target: str, made: Path, tmp_path: Path) -> None:
    fatbin = compile_device(name, made)
    output = emitted(tmp_path, suffix, fatbin, target=target)
    expected = images_of(fatbin, tmp_path / "expected")
    assert expected
    assert images_of(output, tmp_path / "found") == expected
    with View.open(output) as view:
        data = view.read(0, view.size, "the output")
    assert fatbin.read_bytes() in data


def test_it_extracts_the_same_as_from_nvccs_own_object(made: Path, tmp_path: Path) -> None:
    own = images_of(nvcc_object(made), tmp_path / "own")
    ours = images_of(emitted(tmp_path, ".o", compile_device("all.fatbin", made)), tmp_path / "ours")
    assert ours == own
    assert [name for name, _ in own] == ["sm_75 cubin", "sm_80 cubin", "sm_90 cubin", "sm_90 ptx"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("suffix", [".o", ".so"])
def test_several_programs_in_one_file(suffix: str, target: str, made: Path, tmp_path: Path) -> None:
    names = ("all.fatbin", "compute_75.ptx", "zstd.fatbin", "sm_80.cubin", "plain.fatbin")
    files = [compile_device(name, made) for name in names]
    output = emitted(tmp_path, suffix, *files, target=target)
    expected = []
    for file in files:
        if file.suffix == ".fatbin":
            expected += images_of(file, tmp_path / f"expected-{file.stem}")
    found = images_of(output, tmp_path / "found")
    assert sorted(found) == sorted(expected)
    # Uncompressed machine code is the bytes of the entries.
    code = [data for kind, _, data in entries_of(files[0].read_bytes()) if kind == 2]
    assert [data for name, data in found if name.endswith("cubin") and data in code]
    with emitter.load(output) as library:
        for file in files:
            [payload] = {bytes(one.bytes()) for one in library.module(file.stem).alternatives}
            assert payload == file.read_bytes()


@pytest.mark.parametrize("strip", [["strip"], ["llvm-strip"], ["strip", "-g"], ["objcopy"]])
@pytest.mark.parametrize("suffix", [".o", ".so"])
def test_they_are_still_found_after_edits(strip: list[str], suffix: str, made: Path, tmp_path: Path) -> None:
    need(strip[0])
    if suffix == ".o" and len(strip) == 1 and strip[0] != "objcopy":
        strip = [strip[0], "-g"]  # all of an object's symbols are needed
    fatbin = compile_device("all.fatbin", made)
    output = emitted(tmp_path, suffix, fatbin)
    edited = tmp_path / f"edited{suffix}"
    subprocess.run(_edit(strip, output, edited), check=True)
    assert images_of(edited, tmp_path / "found") == images_of(fatbin, tmp_path / "expected")
    with emitter.load(edited) as library:
        assert bytes(library.module("all").select({"sm": "80"}).bytes()) == fatbin.read_bytes()
        assert library["w"][999] == 999
    if suffix == ".so":
        # The bytes are there once.
        assert edited.stat().st_size < output.stat().st_size + 8192


def _edit(command: list[str], source: Path, output: Path) -> list[str]:
    if command[0] == "objcopy":
        return ["objcopy", str(source), str(output)]
    return [*command, "-o", str(output), str(source)]


@pytest.mark.parametrize("linker", ["bfd", "lld", "mold"])
def test_a_link_takes_the_bytes_once(linker: str, made: Path, tmp_path: Path) -> None:
    need({"bfd": "ld", "lld": "ld.lld", "mold": "mold"}[linker], "gcc")
    fatbin = compile_device("plain.fatbin", made)
    output = emitted(tmp_path, ".o", fatbin)
    linked = tmp_path / "linked.so"
    subprocess.run(
        ["gcc", "-shared", "-nostdlib", f"-fuse-ld={linker}", str(output), "-Wl,--build-id=none", "-o", str(linked)],
        check=True,
    )
    assert linked.read_bytes().count(fatbin.read_bytes()) == 1


def test_a_fatbin_over_2_gib(made: Path, tmp_path: Path) -> None:
    """Made by padding: a cubin in the fatbin is followed by zeros, which are a hole in every file."""
    small = compile_device("one.fatbin", made).read_bytes()
    kind, arch, code = entries_of(small)[0]
    assert (kind, arch) == (2, 80)
    size = (2 << 30) + 4096
    header = bytearray(small[16:80])
    header[8:16] = size.to_bytes(8, "little")
    big = tmp_path / "big.fatbin"
    with big.open("wb") as file:
        file.write(small[:8] + (64 + size).to_bytes(8, "little") + bytes(header) + code)
        file.truncate(16 + 64 + size)
    for suffix in (".o", ".so"):
        package = Package()
        package.add_input(big)
        output = tmp_path / f"big{suffix}"
        emit(package, output, target="cuda-host")
        assert output.stat().st_size > size
        assert output.stat().st_blocks * 512 < 64 << 20
        assert re.findall(r"\.(sm_\w+)\.cubin", cuobjdump("-lelf", str(output))) == ["sm_80"]
        with emitter.load(output) as library:
            image = library.module("big").select({"sm": "86"}).bytes()
            assert image.nbytes == 80 + size
            assert bytes(image[80 : 80 + len(code)]) == code
        output.unlink()


def record_of(path: Path) -> list[str]:
    lines = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return lines


LIFE = [
    "cuInit(0)",
    "cuDevicePrimaryCtxRetain(0)",
    "cuLibraryLoadData({image}, 64-aligned: 1) = 1",
    "cuLibraryGetKernel(1, axpy)",
    "cuLibraryGetGlobal(1, counter)",
    "cuLibraryGetKernel(1, missing) = not found",
    "cuLibraryUnload(1), 0 live",
    "cuDevicePrimaryCtxRelease(0)",
]

# The module, the GPU's sm number, and the image that the driver gets, in its own words; None where none suits.
CHOICES = [
    ("all", "75", "fatbin"), ("all", "86", "fatbin"), ("all", "120", "fatbin"), ("all", "70", None),
    ("k", "80", "sm_80.cubin"), ("k", "89", "sm_80.cubin"), ("k", "90", "sm_90.cubin"), ("k", "75", "compute_75.ptx"),
    ("k", "121", "compute_75.ptx"), ("k", "61", None), ("relocatable", "80", None),
]  # fmt: skip


@pytest.fixture(scope="session")
def package(made: Path) -> Package:
    package = Package()
    package.add_tensor("w", np.arange(1000, dtype=np.float32))
    for name in ("all.fatbin", "relocatable.fatbin"):
        package.add_input(compile_device(name, made))
    for name in ("compute_75.ptx", "sm_80.cubin", "sm_90.cubin"):
        package.add_input(compile_device(name, made), prefix="k")
    return package


@pytest.fixture(scope="session")
def library(package: Package, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library")
    for target in TARGETS:
        emit(package, folder / f"{target}.so", target=target)
    return folder


def expected_record(image: str | None, made: Path) -> list[str]:
    if image is None:
        return ["cuInit(0)"]
    if image == "fatbin":
        words = f"fatbin, {(made / 'all.fatbin').stat().st_size} bytes"
    elif image.endswith(".ptx"):
        words = f"PTX, {(made / image).stat().st_size} bytes"
    else:
        # The stand-in takes the end of the section headers for that of the file.
        data = (made / image).read_bytes()
        words = f"cubin, {int.from_bytes(data[40:48], 'little') + 64 * int.from_bytes(data[60:62], 'little')} bytes"
    return [line.format(image=words) for line in LIFE]


@pytest.mark.parametrize(("module", "sm", "image"), CHOICES)
@pytest.mark.parametrize("language", ["c", "c++", "python", "aarch64"])
def test_loaders_hand_the_best_image_to_the_driver(
    language: str, module: str, sm: str, image: str | None, driver: Path, library: Path, made: Path, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    environment = {**os.environ, "CUDA_RECORD": str(record), "CUDA_SM": sm, "LD_LIBRARY_PATH": str(driver)}
    file, target = library / "cuda-host.so", "cuda-host"
    if language == "python":
        command = [sys.executable, str(DATA / "load.py"), str(file), module]
    else:
        file, target = (
            (library / "cuda-host-aarch64.so", "cuda-host-aarch64") if language == "aarch64" else (file, target)
        )
        command = [*loader_of(language, made), str(file), module]
        if language == "aarch64":
            command.append(str(foreign_driver(made)))
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    lines = record_of(record)
    if language == "python" and image == "compute_75.ptx":
        lines = [line.replace("64-aligned: 0", "64-aligned: 1") for line in lines]  # a copy, with the NUL
    assert lines == expected_record(image, made), done.stdout + done.stderr
    assert done.returncode == (0 if image else 3)
    if module == "relocatable":
        assert "it has to be linked before it runs: nvcc -dlink" in done.stdout
    elif image is None:
        names = {"all": "sm_90 sm_80 sm_75 compute_90", "k": "compute_75 sm_80 sm_90"}[module]
        assert f"no image of the program suits this GPU: expected code for sm_{sm}" in done.stdout
        assert f"found {names}" in done.stdout


def loader_of(language: str, folder: Path) -> list[str]:
    """Return the command that runs tests/data/cuda/load.c, compiled once."""
    output = folder / f"load-{language}"
    if language == "aarch64":
        toolchain = toolchain_of("cuda-host-aarch64")
        if not output.exists():
            build(toolchain.c, str(output), "-D_GNU_SOURCE", *WARNINGS, str(DATA / "load.c"), "-ldl")
        return [*toolchain.runner(), str(output)]
    if not output.exists():
        compiler = ("gcc", "-std=c99") if language == "c" else ("g++", "-std=c++11", "-x", "c++")
        build(compiler[0], str(output), *compiler[1:], "-D_GNU_SOURCE", *WARNINGS, str(DATA / "load.c"), "-ldl")
    return [str(output)]


def foreign_driver(folder: Path) -> Path:
    toolchain = toolchain_of("cuda-host-aarch64")
    output = folder / "aarch64" / "libcuda.so.1"
    return output if output.exists() else standin(output.parent, compiler=toolchain.c)


@pytest.mark.parametrize("language", ["c", "python"])
def test_without_a_driver_or_a_gpu(language: str, driver: Path, library: Path, made: Path) -> None:
    load = loader_of("c", made) if language == "c" else [sys.executable, str(DATA / "load.py")]
    command = [*load, str(library / "cuda-host.so"), "all"]
    if any(os.path.exists(f"{folder}/libcuda.so.1") for folder in ("/usr/lib64", "/usr/lib/x86_64-linux-gnu")):
        pytest.skip("there is a driver here")
    bare = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=bare)
    assert done.returncode == 3
    assert "there is no CUDA driver here" in done.stdout
    environment = {**bare, "LD_LIBRARY_PATH": str(driver), "CUDA_DEVICES": "0"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 3
    assert "CUDA_ERROR_NO_DEVICE (100)" in done.stdout


@pytest.mark.parametrize("language", ["c", "python"])
def test_the_driver_of_cuda_11(language: str, library: Path, made: Path, tmp_path: Path) -> None:
    old = standin(tmp_path / "old", "-DNO_LIBRARIES").parent
    record = tmp_path / "record"
    load = loader_of("c", made) if language == "c" else [sys.executable, str(DATA / "load.py")]
    environment = {**os.environ, "CUDA_RECORD": str(record), "LD_LIBRARY_PATH": str(old)}
    done = subprocess.run([*load, str(library / "cuda-host.so"), "all"], check=False, env=environment)
    assert done.returncode == 0
    expected = expected_record("fatbin", made)
    names = {"cuLibraryGetKernel": "cuModuleGetFunction", "cuLibrary": "cuModule"}
    for name, older in names.items():
        expected = [line.replace(name, older) for line in expected]
    assert record_of(record) == expected


def test_loading_a_thousand_times_leaves_nothing(
    driver: Path, package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "record"
    monkeypatch.setenv("CUDA_RECORD", str(record))
    monkeypatch.setenv("CUDA_SM", "80")
    for name in ("a", "b"):
        emit(package, tmp_path / f"lib{name}.so", target="cuda-host")
    with CudaDriver(library=str(driver / "libcuda.so.1")) as cuda:
        for _ in range(500):
            # Two libraries with the same names: each has its own program.
            with emitter.load(tmp_path / "liba.so") as first, emitter.load(tmp_path / "libb.so") as second:
                one, two = cuda.load(first.module("all")), cuda.load(second.module("all"))
                assert one.kernel("axpy") != two.kernel("axpy")
                one.close()
                two.close()
                one.close()
    lines = record_of(record)
    assert sum(line.startswith("cuLibraryLoadData") for line in lines) == 1000
    assert sum(line.startswith("cuLibraryUnload") for line in lines) == 1000
    assert lines[-1] == "cuDevicePrimaryCtxRelease(0)"
    assert lines[-2].endswith("0 live")


def test_a_kernel_is_started_from_python(driver: Path, library: Path, tmp_path: Path) -> None:
    record = tmp_path / "record"
    environment = {**os.environ, "CUDA_RECORD": str(record), "LD_LIBRARY_PATH": str(driver)}
    program = (
        "import ctypes, sys, emitter\nfrom emitter.loaders import CudaDriver\n"
        "with emitter.load(sys.argv[1]) as library, CudaDriver() as driver:\n"
        "    tree = library.build_modules(driver.place, registry=driver.registry())\n"
        "    with tree['all'] as program:\n"
        "        program.launch('fill', (4,), (32, 2), ctypes.c_int(7), shared_bytes=16)\n"
        "    assert len(tree['k'].variable('scale')) == 2\n"
    )
    command = [sys.executable, "-c", program, str(library / "cuda-host.so")]
    subprocess.run(command, check=True, env=environment)
    assert "cuLaunchKernel(fill, 4 1 1, 32 2 1, 16, (nil), first 7)" in record_of(record)


def test_the_header_beside_others(tmp_path: Path) -> None:
    """It is found where emitter.h is, and a program may include it in several files."""
    copy = tmp_path / "copy.h"
    subprocess.run([sys.executable, "-m", "emitter", "header", "--cuda", "-o", str(copy)], check=True)
    with open(os.path.join(INCLUDE, "emitter_cuda.h"), "rb") as file:
        assert copy.read_bytes() == file.read()
    (tmp_path / "a.c").write_text('#include "emitter_cuda.h"\nint a(void) { return EMITTER_CUDA_OK; }\n')
    (tmp_path / "b.c").write_text(
        '#include "emitter_cuda.h"\nint a(void);\nint main(void) { return a() + EMITTER_CUDA_OK; }\n'
    )
    need("clang-14")
    build("clang-14", str(tmp_path / "ab"), *WARNINGS, str(tmp_path / "a.c"), str(tmp_path / "b.c"), "-ldl")


@pytest.mark.parametrize("compiler", ["x86_64-w64-mingw32-gcc", "i686-w64-mingw32-gcc"])
def test_the_header_compiles_for_windows(compiler: str, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text(
        '#include "emitter_cuda.h"\nint main(void) { emitter_cuda cuda; return emitter_cuda_open(&cuda, NULL, 0); }\n'
    )
    build(compiler, str(tmp_path / "a.exe"), *WARNINGS, str(tmp_path / "a.c"))


def test_verify_has_nothing_against_what_nvcc_made(made: Path, tmp_path: Path) -> None:
    files = [compile_device(name, made) for name in INPUTS]
    for target in TARGETS:
        outputs = [emitted(tmp_path, suffix, *files[:3], target=target) for suffix in (".so", ".o", ".a")]
        command = [
            sys.executable,
            "-m",
            "emitter",
            "verify",
            "--fail-on",
            "warning",
            "--target",
            target,
            *map(str, outputs),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
    done = subprocess.run([*command[:4], *map(str, files)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
