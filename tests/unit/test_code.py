"""Code as an input: what is recognised, and what the options and outputs do with it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from emitter import Package, emit
from emitter.cli import main
from emitter.code import code_input, code_kind, read_source
from emitter.errors import EmitterError, InputError, UsageError
from emitter.link.find import linkers
from emitter.targets import resolve
from tests.code_packages import IR, package

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("code_cache")

ELF_OBJECT = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x01\0\x3e\0"


@pytest.mark.parametrize(
    ("head", "suffix", "kind"),
    [
        (b"BC\xc0\xde\x35\x14\0\0", "", "bitcode"),
        (b"\xde\xc0\x17\x0b\0\0\0\0", "", "bitcode"),
        (b"!<arch>\n", "", "archive"),
        (ELF_OBJECT, "", "object"),
        (b"\x7fELF\x02\x02\x01" + bytes(9) + b"\0\x01\0\x16", "", "object"),
        (b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\0\x3e\0", ".so", None),
        (b"\xcf\xfa\xed\xfe\x07\0\0\x01\x03\0\0\0\x01\0\0\0", "", "object"),
        (b"\xcf\xfa\xed\xfe\x07\0\0\x01\x03\0\0\0\x06\0\0\0", "", None),
        (b"\x64\x86\x02\0" + bytes(16), ".obj", "object"),
        (b"\x64\x86\x02\0" + bytes(12) + b"\xf0\0\x22\0", "", None),
        (b"; ModuleID = 'x'\nsource_filename = \"x\"\n", "", "ir"),
        (b"; a comment\n\ndefine void @f() {\n  ret void\n}\n@x = global i32 0\n", "", "ir"),
        (b"@x = global i32 0\n", "", "ir"),
        (b"anything\n", ".ll", "ir"),
        (b"define the model = 3\n", ".txt", "ir"),
        (b"two words\n", ".txt", None),
        (b"\0\0", ".ll", None),
        (b"", ".ll", None),
        (b'{"a": 1}', "", None),
    ],
)
def test_code_is_recognised_by_content(head: bytes, suffix: str, kind: str | None) -> None:
    assert code_kind(head, suffix) == kind


def test_text_bytes_and_paths_are_code(tmp_path: Path) -> None:
    path = tmp_path / "k.ll"
    path.write_text(IR)
    for given in (IR, str(path), path):
        one = code_input(given)
        assert (one.kind, read_source(one)) == ("ir", IR.encode())
    assert package(path).files == [str(path)]
    assert code_input(b"BC\xc0\xde....").kind == "bitcode"


def test_what_is_no_code_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.bin"
    path.write_bytes(bytes(64))
    for given in (path, bytes(64)):
        with pytest.raises(InputError, match="no code"):
            code_input(given)
    with pytest.raises(UsageError, match=r"no code.*found int"):
        code_input(3)
    with pytest.raises(InputError, match="cannot open"):
        code_input(tmp_path / "missing.ll")


def test_an_input_of_code_is_added_and_has_no_name(tmp_path: Path) -> None:
    path = tmp_path / "k.ll"
    path.write_text(IR)
    made = Package()
    made.add_input(path)
    assert [one.path for one in made.code] == [str(path)]
    assert made.tensors == []
    with pytest.raises(UsageError, match="no tensors to be named"):
        made.add_input(path, prefix="x")
    made.add_input(f"raw:{path}")
    assert [tensor.name for tensor in made.tensors] == ["k.ll"]


@pytest.mark.parametrize(
    ("output", "target", "options", "message"),
    [
        ("x.pack", "x86_64-linux-gnu", {}, "a pack holds no code"),
        ("libx.so", "x86_64-linux-gnu", {"sidecar": True}, "--sidecar cannot be combined with code"),
        ("x.o", "x86_64-linux-gnu", {"symbols": "xxd"}, "--symbols xxd cannot be combined with code"),
        ("libx.so", "x86_64-linux-gnu", {"opt_level": 4}, "-O has no such level.*0 to 3.*4"),
        ("libx.so", "x86_64-linux-gnu", {"compile_seconds": 0}, "--compile-seconds is out of range"),
        ("libx.so", "x86_64-linux-gnu", {"libs": ["nosuch"]}, "no such library"),
        ("libx.so", "x86_64-linux-gnu", {"libs": "m"}, "-l has a value of another type"),
        ("libx.so", "x86_64-linux-gnu", {"export": ["at"], "version_script": "v"}, "--export cannot be combined"),
        ("libx.so", "x86_64-linux-gnu", {"version_script": "none.map"}, "none.map.: no such file"),
        ("libx.so", "x86_64-linux-gnu", {"export": ["att"]}, "does not define.*did you mean at"),
        ("libx.a", "x86_64-linux-gnu", {"linker": "ld.lld"}, "--linker means nothing for this output"),
        ("libx.dylib", ["arm64-apple-macos", "x86_64-apple-macos"], {}, "one target at a time"),
    ],
)
def test_what_does_not_go_with_code_is_refused(
    output: str, target: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(EmitterError, match=message):
        emit(package(IR.replace("net_t_", "x_t_")), tmp_path / output, target=target, **options)
    assert not [entry for entry in tmp_path.iterdir() if entry.name != "cache"]


@pytest.mark.parametrize(("output", "target"), [("x.o", "arm64-apple-macos"), ("x.obj", "x86_64-windows-msvc")])
def test_linkers_that_join_no_objects_say_so(output: str, target: str, tmp_path: Path) -> None:
    found = next(linkers(resolve(target).target), None)
    if found is None:
        pytest.skip(f"no linker for {target} is installed")
    with pytest.raises(EmitterError, match=r"joins no objects.*leave out --linker"):
        emit(package(IR.replace("net_t_", "x_t_")), tmp_path / output, target=target, linker=found.command[0])
    assert not [entry for entry in tmp_path.iterdir() if entry.name != "cache"]


def test_options_of_code_need_code(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="-l says something of code"):
        emit(package(), tmp_path / "libx.so", target="x86_64-linux-gnu", libs=["m"])


def test_the_header_declares_functions_with_their_types(tmp_path: Path) -> None:
    code = (
        IR + "define zeroext i8 @f(ptr readonly %p, double %d, i16 zeroext %n) {\n  ret i8 0\n}\n"
        "define void @g() {\n  ret void\n}\ndefine <4 x float> @v(<4 x float> %x) {\n  ret <4 x float> %x\n}\n"
    )
    emit(package(code), tmp_path / "libnet.a", target="x86_64-linux-gnu", header=tmp_path / "net.h")
    header = (tmp_path / "net.h").read_text()
    assert "extern net_API float at(int64_t);\n" in header
    assert "extern net_API uint8_t f(const void *, double, uint16_t);\n" in header
    assert "extern net_API void g(void);\n" in header
    assert '/* "v": its types are not told */' in header


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"12 x": "13 x"}, r"another size.*expected 48 bytes, found 52 bytes, \[13 x float\]"),
        ({"net_t_w": "net_t_v"}, r"net_t_v \(near net_t_w\)"),
        ({"ret float": "%e = call float @expf(float %v)\n ret float", "define": "declare float @expf(float)\ndefine"},
         r"expf \(-l m\); add -l m"),
        ({"ret float": "call void @zz()\n call void @aa()\n ret float",
          "define": "declare void @zz()\ndeclare void @aa()\ndefine"}, "found aa, zz"),
        ({"@at(": "@net_size("}, "defines what is a name of the constants.*net_size"),
    ],
)  # fmt: skip
def test_names_are_resolved_before_anything_is_linked(change: dict[str, str], message: str, tmp_path: Path) -> None:
    code = IR
    for old, new in change.items():
        code = code.replace(old, new, 1) if old == "define" else code.replace(old, new)
    with pytest.raises(InputError, match=message):
        # No such linker: it is not asked for.
        emit(package(code), tmp_path / "libnet.so", target="s390x-linux-gnu", linker="no-such-linker")


def test_an_array_of_no_extent_takes_any_tensor(tmp_path: Path) -> None:
    emit(package(IR.replace("12 x", "0 x")), tmp_path / "libnet.a", target="x86_64-linux-gnu")
    assert b"\0net_t_w\0at\0" in (tmp_path / "libnet.a").read_bytes()  # the index of the archive: both are defined


def test_the_prefix_says_what_tensors_are_called(tmp_path: Path) -> None:
    code = IR.replace("net_t_", "")
    emit(package(code), tmp_path / "libnet.a", target="x86_64-linux-gnu", symbol_prefix="")
    with pytest.raises(InputError, match="w"):
        emit(package(code), tmp_path / "libnet.a", target="x86_64-linux-gnu", symbol_prefix="x_")


def test_a_plan_says_that_a_linker_decides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "k.ll").write_text(IR)
    np.save(tmp_path / "w.npy", np.arange(12, dtype=np.float32))
    arguments = [
        "plan",
        "--target",
        "s390x-linux-gnu",
        str(tmp_path / "w.npy"),
        str(tmp_path / "k.ll"),
        "--linker",
        "zig",
    ]
    pytest.importorskip("ziglang", reason="ziglang is not installed")
    assert main([*arguments, "-o", str(tmp_path / "libnet.so")]) == 0
    said = capsys.readouterr().out
    assert "library for s390x-linux-gnu, of the size that the linker gives it, with code" in said
    assert main([*arguments, "-o", str(tmp_path / "libnet.so"), "--json"]) == 0
    (output,) = json.loads(capsys.readouterr().out)["outputs"]
    assert (output["size"], output["payload_offset"], output["fits"]) == (None, None, True)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["cache", "k.ll", "w.npy"]


def test_the_command_takes_the_options_of_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "k.ll").write_text(IR + "declare float @expf(float)\n")
    np.save(tmp_path / "w.npy", np.arange(12, dtype=np.float32))
    arguments = ["-v", "--target", "riscv64-linux-gnu", str(tmp_path / "w.npy"), str(tmp_path / "k.ll"), "-O3"]
    arguments += ["--cpu", "generic-rv64", "--features", "+zba", "--abi", "lp64d", "--export", "at", "--no-cache"]
    arguments += ["--compile-seconds", "60", "--compile-memory", "2048", "-o", str(tmp_path / "libnet.a")]
    assert main(arguments) == 0
    assert "LLVM compiles it, -O3, CPU generic-rv64, features +m,+a,+f,+d,+c,+zba" in capsys.readouterr().err
    assert not (tmp_path / "cache").exists()
    assert main(["--target", "riscv64-linux-gnu", str(tmp_path / "w.npy"), "-O3", "-o", str(tmp_path / "x.a")]) == 2
    assert "-O says something of code" in capsys.readouterr().err
