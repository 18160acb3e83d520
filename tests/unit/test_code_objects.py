"""Objects of other compilers as code: what they define, want and export, as each format says it."""

from __future__ import annotations

import ctypes
import os
import subprocess
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from emitter import emit, load, targets
from emitter.errors import EmitterError, InputError
from emitter.inspect import open_file
from emitter.inspect.coff import CoffFile
from emitter.inspect.coff_report import object_report
from emitter.inspect.view import View
from emitter.link.objects import read_objects
from emitter.writing import pwrite
from tests.c_tools import need
from tests.code_packages import package_of_four
from tests.macho_files import run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("code_cache")

HOST = "x86_64-linux-gnu"
CLANG = {
    HOST: HOST,
    "x86_64-windows-gnu": "x86_64-w64-windows-gnu",
    "x86_64-windows-msvc": "x86_64-pc-windows-msvc",
    "arm64-apple-macos": "arm64-apple-macos11.0",
    "x86_64-apple-macos": "x86_64-apple-macos11.0",
    "arm64-apple-ios-simulator": "arm64-apple-ios14.0-simulator",
}
IMPLIB = {"x86_64-windows-gnu": "net.dll.a", "x86_64-windows-msvc": "net.dll.lib"}
every_format = pytest.mark.parametrize("target", [HOST, "arm64-apple-macos", "x86_64-windows-msvc"])


def compiled(folder: Path, target: str, source: str, *flags: str, name: str = "code", suffix: str = ".c") -> Path:
    """Compile a source to an object, or to IR; no headers are needed."""
    need("clang")
    path, output = folder / f"{name}{suffix}", folder / f"{name}{targets.load(target).object_suffix}"
    path.write_text(source)
    pic = [] if "windows" in target else ["-fPIC"]
    argv = ["clang", f"--target={CLANG[target]}", "-O1", *pic, *flags, "-c", str(path), "-o"]
    subprocess.run([*argv, str(output)], check=True)
    return output


def written(folder: Path, target: str, form: str, *code: str | bytes | Path, **options: Any) -> Path:
    one = targets.load(target)
    suffix = {"object": one.object_suffix, "archive": one.archive_suffix, "library": one.image_suffix}[form]
    output = folder / f"net{suffix}"
    emit(package_of_four(*code), output, target=target, name="net", **options)
    return output


@every_format
@pytest.mark.parametrize("form", ["object", "library"])
def test_a_tensor_that_is_declared_weak_is_there(target: str, form: str, tmp_path: Path) -> None:
    code = "@net_t_w = extern_weak constant [4 x float]\ndefine ptr @where() {\n  ret ptr @net_t_w\n}\n"
    output = written(tmp_path, target, form, code)
    if target == HOST and form == "library":
        library = ctypes.CDLL(str(output))
        library.where.restype = ctypes.c_void_p
        assert list((ctypes.c_float * 4).from_address(library.where())) == [2, 3, 5, 7]
    elif form == "object":
        name = f"{targets.load(target).symbol_prefix}net_t_w"
        kinds = {line.split()[-1]: line.split()[-2] for line in run("llvm-nm", output).splitlines()}
        assert kinds[name] not in "Uwv"
    if form == "object" or target == HOST:  # one that nobody has is zero, where a library may have such
        written(tmp_path, target, form, code.replace("net_t_w", "elsewhere"))


@pytest.mark.parametrize("target", ["arm64-apple-macos", "x86_64-apple-macos"])
@pytest.mark.parametrize("form", ["object", "archive", "library"])
def test_an_object_of_another_system_is_refused(target: str, form: str, tmp_path: Path) -> None:
    need("clang")
    (tmp_path / "k.c").write_text("int f(void) { return 1; }\n")
    cpu = target.partition("-")[0]
    for triple, found in ((f"{cpu}-apple-ios14.0-simulator", "iOS Simulator"), (f"{cpu}-apple-ios14.0", "iOS")):
        flags = ["-c", f"--target={triple}", "k.c", "-o", "k.o"]
        if subprocess.run(["clang", *flags], check=False, cwd=tmp_path, capture_output=True).returncode:
            continue
        with pytest.raises(InputError, match=rf"the system of this object.*expected macOS, found.*{found}"):
            written(tmp_path, target, form, tmp_path / "k.o")


@pytest.mark.parametrize("target", ["x86_64-windows-msvc", "arm64-apple-macos", HOST])
@pytest.mark.parametrize("align", [1, 4, 8, 64])
def test_the_descriptor_is_aligned(target: str, align: int, tmp_path: Path) -> None:
    code = """
        @net_descriptor = external hidden global { i64, i64 }, align 16
        define i64 @d() {
          %v = load volatile i64, ptr @net_descriptor, align 16
          ret i64 %v
        }
    """
    output = written(tmp_path, target, "object", code, align=align)
    with open_file(str(output)) as artefact:
        assert artefact.reader is not None
        report = artefact.reader.report()
        name = f"{targets.load(target).symbol_prefix}net_descriptor"
        (symbol,) = (one for one in report.symbols() if one.name == name)
        section = next(one for one in report.sections if one.number == symbol.section)
        assert section.alignment >= 16 and symbol.value % 16 == 0


@every_format
def test_local_names_may_be_those_of_the_pack(target: str, tmp_path: Path) -> None:
    source = """
        extern const float net_t_w[4];
        static volatile int net = 7, net_size = 5;
        float at(int i) { return net_t_w[i] + net++ + net_size++; }
    """
    for form in ("object", "archive", "library"):
        output = written(tmp_path, target, form, compiled(tmp_path, target, source))
        with load(output) if form == "library" else open_file(str(output)) as found:
            assert found is not None


@every_format
def test_one_inline_function_in_two_objects(target: str, tmp_path: Path) -> None:
    source = "inline int helper(int x) { return x * 3; }\nint NAME(int x) { return helper(x) + 1; }\n"
    objects = [
        compiled(tmp_path, target, source.replace("NAME", name), "-O0", name=name, suffix=".cc") for name in ("a", "b")
    ]
    written(tmp_path, target, "archive", *objects)
    output = written(tmp_path, target, "library", *objects)
    if target == HOST:
        assert ctypes.CDLL(str(output))["_Z1ai"](5) == 16


@pytest.mark.parametrize("target", [name for name in CLANG if "simulator" not in name])
def test_objects_export_what_ir_does(target: str, tmp_path: Path) -> None:
    """The same functions, from IR and from an object of the same source; in the header as well."""
    source = """
        extern const float net_t_w[4];
        float score(int i) { return net_t_w[i]; }
        HIDDEN int inner(void) { return 1; }
        int variable = 3;
    """.replace(
        "HIDDEN", "static __attribute__((used))" if "windows" in target else '__attribute__((visibility("hidden")))'
    )
    built = compiled(tmp_path, target, source)
    ir = compiled(tmp_path, target, source, "-emit-llvm", name="ir")
    exported = []
    for code in (built, ir):
        output = written(tmp_path, target, "library", code, header=tmp_path / "net.h")
        with open_file(str(output)) as artefact:
            assert artefact.reader is not None
            tables = ("dynsym", "exports")
            names = {one.name for one in artefact.reader.report().symbols() if one.table in tables and one.section}
            names |= {one.name for one in artefact.reader.report().symbols() if one.table == "exports"}
        exported.append({one.removeprefix(targets.load(target).symbol_prefix) for one in names})
        assert "score" in (tmp_path / "net.h").read_text()
    assert "score" in exported[0] and exported[0] - {"__dso_handle", "_mh_dylib_header"} == exported[1] - {
        "__dso_handle", "_mh_dylib_header"
    }  # fmt: skip
    assert not {"inner", "variable"} & exported[0]


@pytest.mark.parametrize("target", [name for name in CLANG if name != "x86_64-windows-gnu"])  # MinGW's are static
def test_what_llvm_itself_calls_is_in_the_libraries(target: str, tmp_path: Path) -> None:
    """Sine and cosine of one value, memory that is filled: calls that nobody wrote."""
    source = """
        float sinf(float), cosf(float);
        float both(float x) { return sinf(x) * cosf(x); }
        void fill(double *p, long n) { for (long i = 0; i < n; i++) p[i] = 1.5; }
        void zero(char *p, long n) { for (long i = 0; i < n; i++) p[i] = 0; }
    """
    flags = ("-emit-llvm", "-O2", "-ffast-math", "-fno-math-errno")
    output = written(tmp_path, target, "library", compiled(tmp_path, target, source, *flags), libs=["m", "c"])
    with open_file(str(output)) as artefact:
        assert artefact.reader is not None
        symbols = list(artefact.reader.report().symbols())
        wanted = {one.name for one in symbols if one.place == "undefined" or one.table == "imports"}
        assert any("sin" in name or "cos" in name for name in wanted), wanted


@pytest.mark.parametrize("form", ["object", "archive", "library"])
@every_format
def test_without_the_calls_of_linux(target: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "define i32 @one() {\n  ret i32 1\n}\n"
    expected = written(tmp_path, target, form, code).read_bytes()
    for name in ("pread", "pwrite", "copy_file_range", "posix_fallocate"):
        monkeypatch.delattr(os, name, raising=False)
    assert written(tmp_path, target, form, code).read_bytes() == expected


def test_weak_functions_of_coff_are_definitions(tmp_path: Path) -> None:
    target = "x86_64-windows-gnu"
    weak = compiled(tmp_path, target, "__attribute__((weak)) int soft(void) { return 4; }\n", name="weak")
    user = compiled(tmp_path, target, "int soft(void);\nint hard(void) { return soft(); }\n", name="user")
    (one,) = read_objects(str(weak), weak.read_bytes(), targets.load(target), "object")
    assert "soft" in one.defined and not one.undefined
    archive = written(tmp_path, target, "archive", weak, user)
    assert "soft in" in run("llvm-nm", "--print-armap", archive).partition("\n\n")[0]
    written(tmp_path, target, "library", weak, user, export=["hard"])


@pytest.mark.parametrize("count", [32766, 32767, 32768, 40000, 65000])
def test_section_numbers_of_coff_have_sixteen_bits(count: int, tmp_path: Path) -> None:
    """Numbers above 32767 are sections; those from 65280 on are the special, negative ones."""
    need("llvm-mc")
    source = tmp_path / "many.s"
    rows = "".join(f'.section .x$s{n},"dr"\n.byte 1\n' for n in range(count))
    source.write_text(rows + '.section .last,"dr"\n.globl last\nlast: .byte 7\n')
    run("llvm-mc", "-filetype=obj", "-triple=x86_64-pc-windows-msvc", source, "-o", tmp_path / "many.obj")
    with View.open(tmp_path / "many.obj") as view:
        file = CoffFile(view)
        (symbol,) = (one for one in file.symbols() if one.name == "last")
        assert file.sections[symbol.SectionNumber - 1].name == ".last"
        assert [one.SectionNumber for one in file.symbols() if one.name == "@feat.00"] in ([], [-1])
    output = written(tmp_path, "x86_64-windows-msvc", "object", tmp_path / "many.obj")
    with View.open(output) as view:
        report = object_report(CoffFile(view))
        assert not report.faults
        names = {one.number: one.name for one in report.sections}
        found = {
            one.name: names[one.section] for one in report.symbols() if one.section and one.name in ("last", "net")
        }
        assert found == {"last": ".last", "net": ".emitter"}


@pytest.mark.parametrize("target", ["x86_64-windows-gnu", "x86_64-windows-msvc"])
def test_what_objects_export_by_themselves(target: str, tmp_path: Path) -> None:
    source = "__declspec(dllexport) int state = 3;\n__declspec(dllexport) int run(void) { return state; }\n"
    output = written(tmp_path, target, "library", compiled(tmp_path, target, source), implib=tmp_path / IMPLIB[target])
    with open_file(str(output)) as artefact:
        assert artefact.reader is not None
        names = {one.name for one in artefact.reader.report().symbols() if one.table == "exports"}
    assert names == {"net", "net_size", "emitter_pack", "state", "run"}
    listed = run("llvm-nm", tmp_path / IMPLIB[target], quiet=False)
    assert "__imp_state" in listed and "__imp_run" in listed and " T run" in listed and " T state" not in listed


def test_an_exported_variable_is_in_the_import_library(tmp_path: Path) -> None:
    code = "@state = global i32 3\ndefine i32 @run() {\n  ret i32 1\n}\n"
    written(tmp_path, "x86_64-windows-msvc", "library", code, export=["state", "run"], implib=tmp_path / "net.dll.lib")
    listed = run("llvm-nm", tmp_path / "net.dll.lib", quiet=False)
    assert "__imp_state" in listed and " T run" in listed


@every_format
def test_an_archive_with_code_is_checked_byte_for_byte(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte that is not written as it was planned, anywhere but in the payload, is found."""
    code = "define i32 @one() {\n  ret i32 1\n}\n"
    output = written(tmp_path, target, "archive", code)
    data = output.read_bytes()
    payload = data.index(np.array([2, 3, 5, 7], np.float32).tobytes())
    output.unlink()
    places = [at for at in range(0, len(data), len(data) // 59) if not payload - 64 <= at < payload + 64 and data[at]]

    def flipped(place: int, fd: int, data: bytes, offset: int) -> None:
        if 0 <= place - offset < len(data):
            data = bytes(data[: place - offset]) + b"\xff" + bytes(data[place - offset + 1 :])
        pwrite(fd, data, offset)

    for place in places:
        monkeypatch.setattr("emitter.transfer.pwrite", partial(flipped, place))
        with pytest.raises(EmitterError):
            written(tmp_path, target, "archive", code)
        assert not output.exists()
    assert len(places) > 10


def test_line_numbers_and_damaged_strings_of_coff(tmp_path: Path) -> None:
    target = "x86_64-windows-msvc"
    data = bytearray(compiled(tmp_path, target, "int f(void) { return 1; }\n").read_bytes())
    changed = bytearray(data)
    changed[20 + 34 : 20 + 36] = (1).to_bytes(2, "little")  # NumberOfLinenumbers of the first section
    with pytest.raises(EmitterError, match="line numbers"):
        written(tmp_path, target, "object", bytes(changed))
