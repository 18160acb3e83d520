"""`emitter diff`: what differs is said, and nothing else, across formats, CPUs and byte orders."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from emitter import Package, emit
from emitter.cli import main
from emitter.diff import TensorChange, diff
from emitter.diff import tensors as diff_tensors
from emitter.diff.output import to_json, to_markdown, to_text
from emitter.dtypes import TABLE, DType
from emitter.errors import EmitterError
from emitter.package import BufferSource, Extent, Tensor
from tests.elf_objects import run
from tests.module_packages import module_package

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

OLD: dict[str, NDArray[Any]] = {
    "w": np.arange(12, dtype=np.float32).reshape(3, 4),
    "same": np.arange(3, dtype=np.int16),
    "type": np.ones(4, np.float32),
    "gone": np.ones(2, np.float64),
}
NEW = {
    "w": OLD["w"] + np.array([0, 0.5, 0, -2], np.float32),
    "same": OLD["same"],
    "type": np.ones(4, np.float16),
    "new": np.zeros((2, 2), np.int8),
}
EXPECTED = [
    TensorChange("gone", "float64 [2]", None),
    TensorChange("new", None, "int8 [2, 2]"),
    TensorChange("type", "float32 [4]", "float16 [4]"),
    TensorChange("w", "float32 [3, 4]", "float32 [3, 4]", 12, 6, 2.0),
]


def made(
    folder: Path, file: str, arrays: dict[str, NDArray[Any]], target: str = "aarch64-linux-gnu", **options: Any
) -> Path:
    path = folder / file
    if file.endswith(".safetensors"):
        save_file(arrays, str(path))
        return path
    package = Package()
    for key, array in arrays.items():
        package.add_tensor(key, array)
    emit(package, path, target=target, **options)
    return path


@pytest.mark.parametrize("second", ["b.safetensors", "libb.so", "b.o", "libb.a", "b.pack"])
@pytest.mark.parametrize("target", ["aarch64-linux-gnu", "s390x-linux-gnu"])
def test_tensors_are_compared_by_value_whatever_holds_them(tmp_path: Path, second: str, target: str) -> None:
    difference = diff(made(tmp_path, "liba.so", OLD), made(tmp_path, second, NEW, target))
    assert list(difference.tensors) == EXPECTED
    assert difference.same_tensors == 1
    assert not difference.empty


def test_equal_files_differ_in_nothing(tmp_path: Path) -> None:
    first = made(tmp_path, "liba.so", OLD)
    assert diff(first, first).empty
    assert diff(first, made(tmp_path, "a.safetensors", OLD)).empty
    assert diff(made(tmp_path, "a.o", OLD), made(tmp_path, "a.npz.safetensors", OLD)).empty


def test_compressed_and_column_major_inputs_are_compared_too(tmp_path: Path) -> None:
    arrays = {"w": np.asfortranarray(OLD["w"]), "same": OLD["same"]}
    np.savez_compressed(tmp_path / "a.npz", **arrays)  # type: ignore[arg-type] # numpy's stub wants allow_pickle
    difference = diff(tmp_path / "a.npz", made(tmp_path, "b.safetensors", {"w": NEW["w"], "same": OLD["same"]}))
    assert list(difference.tensors) == [EXPECTED[-1]]


def one(dtype: DType, data: bytes, count: int) -> Package:
    package = Package()
    package.add(Tensor("t", dtype, (count,), Extent(BufferSource("buffer", memoryview(data)), 0, len(data))))
    return package


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_every_element_type_counts_its_elements(row: Any) -> None:
    count = 8
    size = count * row.dtype.bits // 8
    data = bytes(size)
    other = bytearray(data)
    other[0] |= 1  # the first element alone
    changes, same = diff_tensors.compare_packages(one(row.dtype, data, count), one(row.dtype, bytes(other), count))
    assert same == 0
    assert [(change.elements, change.different, change.unit) for change in changes] == [(count, 1, "elements")]
    assert (changes[0].largest_difference is None) == (row.name == "bool")


def test_nan_and_infinity_have_no_difference_that_hides_the_others() -> None:
    a = np.array([np.nan, np.inf, 1, np.inf, 2], "<f4").tobytes()
    b = np.array([1, np.inf, np.nan, 3, 2.5], "<f4").tobytes()
    changes, _ = diff_tensors.compare_packages(one(DType(2, 32), a, 5), one(DType(2, 32), b, 5))
    assert changes[0].different == 4
    assert changes[0].largest_difference == float("inf")
    changes, _ = diff_tensors.compare_packages(one(DType(2, 32), a[:4], 1), one(DType(2, 32), b[:4], 1))
    assert changes[0].largest_difference is None


def test_lanes_and_encodings() -> None:
    a, b = bytes(24), bytes(23) + b"\1"
    lanes = DType(2, 32, 3)
    changes, _ = diff_tensors.compare_packages(one(lanes, a, 2), one(lanes, b, 2))
    assert (changes[0].elements, changes[0].different) == (2, 1)
    unknown = DType(200, 64)
    changes, _ = diff_tensors.compare_packages(one(unknown, a, 3), one(unknown, b, 3))
    assert (changes[0].elements, changes[0].different, changes[0].unit) == (24, 1, "bytes")


def test_large_tensors_are_compared_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diff_tensors, "_BLOCK", 64)
    a = np.zeros(1000, "<f4")
    b = a.copy()
    b[[0, 15, 16, 999]] = [1, 2, 3, 4]
    changes, _ = diff_tensors.compare_packages(
        one(DType(2, 32), a.tobytes(), 1000), one(DType(2, 32), b.tobytes(), 1000)
    )
    assert (changes[0].different, changes[0].largest_difference) == (4, 4.0)


def test_what_artefacts_say_of_themselves_is_compared(tmp_path: Path) -> None:
    a = made(tmp_path, "liba.so", OLD)
    b = made(tmp_path, "libb.so", OLD, "x86_64-linux-gnu", tensor_symbols=True, name="a", soname="liba.so")
    difference = diff(a, b)
    assert not difference.tensors
    identity = {change.subject: (change.before, change.after) for change in difference.sections["identity"]}
    assert identity["machine"] == ("AArch64", "x86-64")
    added = {change.subject for change in difference.sections["symbols"] if change.kind == "added"}
    assert {f"a_t_{name} (dynsym)" for name in OLD} == added
    text = to_text(difference)
    assert "~ machine: AArch64 -> x86-64" in text
    assert "+ a_t_w (dynsym)" in text


def test_members_of_archives_are_compared_by_name(tmp_path: Path) -> None:
    (tmp_path / "empty.s").write_text("")
    for name in ("x.o", "y.o", "z.o"):
        made(tmp_path, name, OLD if name != "z.o" else {"z": OLD["w"]}, name="m" + name[0])
    run("ar", "rcsD", "a.a", "x.o", cwd=tmp_path)
    run("ar", "rcsD", "b.a", "x.o", "z.o", cwd=tmp_path)
    difference = diff(tmp_path / "a.a", tmp_path / "b.a")
    assert [(change.member, change.kind) for change in difference.sections["identity"]] == [("z.o", "added")]
    assert [change.name for change in difference.tensors] == ["z"]


def test_programs_without_packs_are_compared(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int f(void) { return 1; }")
    (tmp_path / "b.c").write_text("int f(void) { return 1; } int g;")
    for name in "ab":
        run("gcc", "-c", f"{name}.c", cwd=tmp_path)
    difference = diff(tmp_path / "a.o", tmp_path / "b.o")
    assert [change.subject for change in difference.sections["symbols"]] == ["g (symtab)"]
    assert not difference.tensors


def test_modules_are_compared_by_their_facts_and_bytes(tmp_path: Path) -> None:
    emit(module_package(), tmp_path / "a.pack")
    package = module_package()
    engine = package.modules[1]
    engine.alternatives[0] = engine.alternatives[0]._replace(schema_version=2)
    package.modules[2].alternatives[0] = package.add_module("x", "k", b"\x50\xed\x55\xbb").alternatives[0]
    package.add_module("top", "k", b"", imports=["root", "x"])
    emit(package, tmp_path / "libb.so", target="s390x-linux-gnu")
    difference = diff(tmp_path / "a.pack", tmp_path / "libb.so")
    modules = {change.subject: (change.before, change.after) for change in difference.sections["modules"]}
    assert modules.keys() == {"device", "device, bytes of alternative 0", "engine", "top", "x"}
    assert modules["top"] == (None, "k version 1; imports root, x")
    assert "tensorrt version 2 if sm == 87 and tensorrt >= 10.3, < 11 or" in str(modules["engine"][1])
    assert "CRC-32C" in str(modules["device, bytes of alternative 0"][0])


def test_damage_is_an_error_and_not_a_difference(tmp_path: Path) -> None:
    a = made(tmp_path, "liba.so", OLD)
    broken = tmp_path / "libb.so"
    broken.write_bytes(a.read_bytes()[:-2000])
    with pytest.raises(EmitterError):
        diff(a, broken)
    for content in (b"", b"text"):
        broken.write_bytes(content)
        with pytest.raises(EmitterError):
            diff(a, broken)


def test_markdown_is_a_table_whatever_the_names(tmp_path: Path) -> None:
    a = made(tmp_path, "a.pack", {"a|b`c\n": np.zeros(2)})
    b = made(tmp_path, "b.pack", {"a|b`c\n": np.ones(2)})
    lines = to_markdown(diff(a, b)).splitlines()
    row = next(line for line in lines if "2 of 2 elements" in line)
    assert row.replace("\\|", "").count("|") == 6
    assert "| 1 |" in row


def test_the_command_says_by_its_status_whether_anything_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = str(made(tmp_path, "a.safetensors", OLD)), str(made(tmp_path, "libb.so", NEW))
    assert main(["diff", a, a]) == 0
    assert "are equal" in capsys.readouterr().out
    assert main(["diff", a, b, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document == to_json(diff(a, b))
    assert document["tensors"][-1]["largest_difference"] == 2.0
    assert main(["diff", a, str(tmp_path / "nobody")]) == 2
