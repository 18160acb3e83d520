"""Programs of Windows that use packs in DLLs, objects and archives, run by Wine: every tensor, in every way."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.c_tools import need
from tests.run.device import Model, emit, lines
from tests.windows import build, clang_for_mingw, compile_and_link, link_without_libc, mingw

if TYPE_CHECKING:
    from pathlib import Path

    from tests.run.device import Arrays
    from tests.windows import Wine

X86_64 = ("x86_64-windows-msvc", "x86_64-windows-gnu")
# How a program gets at the weights: (suffix of what is emitted, whether an import library stands for it in the link).
WAYS = {
    "import library": (".dll", True), "DLL itself": (".dll", False),
    "object": (".obj", False), "archive": (".lib", False),
}  # fmt: skip


class Artefact(NamedTuple):
    """What was emitted, and what a program is linked with."""

    output: Path
    header: Path
    linked: Path


def artefact(target: str, model: Model, folder: Path, way: str, *options: str) -> Artefact:
    suffix, imported = WAYS[way]
    output, header = folder / f"{model.name}{suffix}", folder / f"{model.name}.h"
    implib = folder / f"{model.name}.dll.lib"
    emit(
        "--target", target, model.path, "-o", output, "--header", header, *options,
        *(("--implib", implib) if imported else ()),
    )  # fmt: skip
    return Artefact(output, header, implib if imported else output)


def crcs(tensors: Arrays) -> list[str]:
    """Return the CRC-32C of each tensor, in the order of their names."""
    return [line.split(" aligned 0x")[1].split()[0] for line in lines(tensors, "x86_64-windows-msvc")]


@pytest.mark.parametrize("target", X86_64)
def test_dll_is_opened_by_name(target: str, model: Model, wine: Wine, tmp_path: Path) -> None:
    dll = artefact(target, model, tmp_path, "DLL itself").output
    program = compile_and_link([mingw("x86_64")], tmp_path / "open_dll.exe", "open_dll.c")
    assert wine.prints(program, dll, model.name) == lines(model.tensors, target)


def test_two_dlls_stand_beside_each_other(model: Model, other_model: Model, wine: Wine, tmp_path: Path) -> None:
    """Both want one address, so one of them is moved: there is nothing in it to relocate."""
    first = artefact("x86_64-windows-msvc", model, tmp_path, "DLL itself").output
    second = artefact("x86_64-windows-gnu", other_model, tmp_path, "DLL itself").output
    program = compile_and_link([mingw("x86_64")], tmp_path / "open_dll.exe", "open_dll.c")
    printed = wine.prints(program, first, model.name, second, other_model.name)
    assert printed == lines(model.tensors, X86_64[0]) + lines(other_model.tensors, X86_64[0])


@pytest.mark.parametrize("compiler", ["gcc", "g++", "clang"])
@pytest.mark.parametrize("way", WAYS)
def test_program_is_linked_with_it(way: str, compiler: str, model: Model, wine: Wine, tmp_path: Path) -> None:
    made = artefact("x86_64-windows-gnu", model, tmp_path, way)
    command = clang_for_mingw("x86_64") if compiler == "clang" else [mingw("x86_64", compiler)]
    program = compile_and_link(
        command, tmp_path / "program.exe", "direct.c",
        f'-DHEADER="{made.header}"', f"-DNAME={model.name}", str(made.linked),
    )  # fmt: skip
    assert wine.prints(program) == lines(model.tensors, "x86_64-windows-gnu")


@pytest.mark.parametrize("way", [way for way in WAYS if way != "DLL itself"])  # which GNU ld alone takes
def test_program_is_linked_as_by_microsofts_tools(way: str, model: Model, wine: Wine, tmp_path: Path) -> None:
    made = artefact("x86_64-windows-msvc", model, tmp_path, way)
    program = link_without_libc("x86_64", tmp_path, made.header, model.name, made.linked)
    assert wine.prints(program) == crcs(model.tensors)


@pytest.mark.parametrize("way", [way for way in WAYS if way != "DLL itself"])
@pytest.mark.parametrize(("cpu", "target"), [("aarch64", "aarch64-windows-msvc"), ("i686", "i686-windows-gnu")])
def test_other_cpus_are_linked_by_lld(cpu: str, target: str, way: str, model: Model, tmp_path: Path) -> None:
    """On 32-bit x86 lld-link demands /SAFESEH of every object."""
    made = artefact(target, model, tmp_path, way)
    program = link_without_libc(cpu, tmp_path, made.header, model.name, made.linked)
    _imports_what_the_dll_exports(program, model.name, way)


@pytest.mark.parametrize("way", WAYS)
def test_32_bit_program_is_linked_by_mingw(way: str, model: Model, tmp_path: Path) -> None:
    _imports_what_the_dll_exports(_link_32_bit(way, model, tmp_path), model.name, way)


@pytest.mark.parametrize("way", WAYS)
def test_32_bit_program_runs(way: str, model: Model, wine32: Wine, tmp_path: Path) -> None:
    assert wine32.prints(_link_32_bit(way, model, tmp_path)) == lines(model.tensors, "i686-windows-gnu")


def _link_32_bit(way: str, model: Model, folder: Path) -> Path:
    made = artefact("i686-windows-gnu", model, folder, way)
    return compile_and_link(
        [mingw("i686")], folder / "program.exe", "direct.c",
        f'-DHEADER="{made.header}"', f"-DNAME={model.name}", str(made.linked),
    )  # fmt: skip


def _imports_what_the_dll_exports(program: Path, name: str, way: str) -> None:
    import lief

    parsed = lief.PE.parse(str(program))
    assert isinstance(parsed, lief.PE.Binary)
    imported = {entry.name for one in parsed.imports if one.name == f"{name}.dll" for entry in one.entries}
    # Without the underscore that C puts before names on 32-bit x86.
    assert imported == ({name, f"{name}_size"} if WAYS[way][0] == ".dll" else set())
    assert (".emitter" in {section.name for section in parsed.sections}) == (WAYS[way][0] != ".dll")


def test_tensor_symbols_are_imported(model: Model, wine: Wine, tmp_path: Path) -> None:
    """More than one name of a DLL: their thunks stand in a row, with an end."""
    made = artefact("x86_64-windows-gnu", model, tmp_path, "import library", "--tensor-symbols")
    source = tmp_path / "tensors.c"
    name = model.name
    source.write_text(f"""
#include <stdio.h>
#include "{made.header}"
int main(void) {{
    printf("%d\\n", (int)((const unsigned char *){name}_t_conv1_weight_data() - {name}_data()) % 64);
    printf("%d %d\\n", {name}_t_mask[0], {name}_t_offsets[0]);
    printf("%lu\\n", (unsigned long){name}_data_size());
    return 0;
}}
""")
    build(mingw("x86_64"), str(source), str(made.linked), "-o", str(tmp_path / "tensors.exe"))
    tensors = model.tensors
    printed = wine.prints(tmp_path / "tensors.exe")
    assert printed[:2] == ["0", f"{int(tensors['mask'][0])} {int(tensors['offsets'][0])}"]


@pytest.mark.parametrize("tool", [("strip",), ("objcopy", "--strip-debug"), ("ld", "-r")])
def test_object_goes_through_tools(tool: tuple[str, ...], model: Model, wine: Wine, tmp_path: Path) -> None:
    made = artefact("x86_64-windows-gnu", model, tmp_path, "object")
    changed = tmp_path / "changed.o"
    options = ["-g"] if tool[0] == "strip" else list(tool[1:])
    output = [str(changed)] if tool[0] == "objcopy" else ["-o", str(changed)]
    build(mingw("x86_64", tool[0]), *options, str(made.output), *output)
    program = compile_and_link(
        [mingw("x86_64")], tmp_path / "program.exe", "direct.c",
        f'-DHEADER="{made.header}"', f"-DNAME={model.name}", str(changed),
    )  # fmt: skip
    assert wine.prints(program) == lines(model.tensors, "x86_64-windows-gnu")


def test_dll_goes_through_strip(model: Model, wine: Wine, tmp_path: Path) -> None:
    dll = artefact("x86_64-windows-gnu", model, tmp_path, "DLL itself").output
    build(mingw("x86_64", "strip"), str(dll))
    program = compile_and_link([mingw("x86_64")], tmp_path / "open_dll.exe", "open_dll.c")
    assert wine.prints(program, dll, model.name) == lines(model.tensors, "x86_64-windows-gnu")


def test_signed_dll_loads_and_its_signature_holds(model: Model, wine: Wine, tmp_path: Path) -> None:
    need("openssl", "osslsigncode")
    dll = artefact("x86_64-windows-msvc", model, tmp_path, "DLL itself").output
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test", "-days", "2",
         "-addext", "extendedKeyUsage=codeSigning", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    signed = tmp_path / "signed" / dll.name
    signed.parent.mkdir()
    sign = ["osslsigncode", "sign", "-h", "sha256", "-certs", str(certificate), "-key", str(key)]
    subprocess.run([*sign, "-in", dll, "-out", signed], check=True, capture_output=True)
    verify = ["osslsigncode", "verify", "-CAfile", str(certificate), "-in", str(signed)]
    done = subprocess.run(verify, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    program = compile_and_link([mingw("x86_64")], tmp_path / "open_dll.exe", "open_dll.c")
    assert wine.prints(program, signed, model.name) == lines(model.tensors, "x86_64-windows-msvc")
    # The payload is part of what is signed.
    data = bytearray(signed.read_bytes())
    data[dll.stat().st_size - 5000] ^= 1
    signed.write_bytes(data)
    assert subprocess.run(verify, check=False, capture_output=True).returncode != 0


def test_large_dll_is_mapped_and_not_read(wine: Wine, tmp_path: Path) -> None:
    """1.5 GiB, most of it a hole: the loader maps the pages, so that the last byte costs one of them."""
    size = 3 << 29
    with (tmp_path / "weights.bin").open("wb") as file:
        file.truncate(size)
        file.seek(size - 1)
        file.write(b"Z")
    emit("--target", "x86_64-windows-msvc", f"raw:{tmp_path / 'weights.bin'}", "-o", tmp_path / "large.dll")
    (tmp_path / "last.c").write_text("""
#include <stdio.h>
#include <windows.h>
#include <psapi.h>
int main(void) {
    HMODULE dll = LoadLibraryA("large.dll");
    const unsigned char *pack = (const unsigned char *)GetProcAddress(dll, "large");
    const size_t *size = (const size_t *)GetProcAddress(dll, "large_size");
    PROCESS_MEMORY_COUNTERS used = {sizeof used, 0};
    if (!pack || !size)
        return 1;
    printf("%c\\n", pack[*size - 1]);
    GetProcessMemoryInfo(GetCurrentProcess(), &used, sizeof used);
    return used.PeakWorkingSetSize > 256u << 20;
}
""")
    build(mingw("x86_64"), str(tmp_path / "last.c"), "-lpsapi", "-o", str(tmp_path / "last.exe"))
    assert wine.prints(tmp_path / "last.exe", cwd=tmp_path) == ["Z"]
