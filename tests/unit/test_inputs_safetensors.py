"""safetensors files and indices: written by the real package, and malformed by hand."""

from __future__ import annotations

import importlib.util
import json
import os
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from emitter.dtypes import BY_SAFETENSORS
from emitter.errors import InputError
from emitter.inputs import read_input
from emitter.package import FileSource, Package, Tensor

if TYPE_CHECKING:
    from pathlib import Path

F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def payload(tensor: Tensor) -> bytes:
    extent = tensor.extent
    assert isinstance(extent.source, FileSource)
    with extent.source.open() as fd:
        return os.pread(fd, extent.length, extent.offset)


def write(path: Path, header: Any, data: bytes = b"") -> str:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return str(path)


def read(path: str | Path, **options: Any) -> list[Tensor]:
    return list(read_input(str(path), Package(), **options))


def test_reads_what_the_real_package_writes_under_any_name(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {
        "f32": numpy.arange(6, dtype=numpy.float32).reshape(2, 3),
        "bf16": numpy.arange(5).astype(ml_dtypes.bfloat16),
        "f8": numpy.arange(3).astype(ml_dtypes.float8_e4m3fn),
        "bool": numpy.array([True, False]),
        "c64": numpy.array([1 + 2j], numpy.complex64),
        "scalar": numpy.array(7, numpy.int64),
        "empty": numpy.zeros((0, 4), numpy.float16),
        "Größe": numpy.ones(1, numpy.uint8),
    }
    path = tmp_path / "x.bin"
    save_file(arrays, path)
    tensors = {tensor.name: tensor for tensor in read(path)}
    assert tensors.keys() == arrays.keys()
    for name, array in arrays.items():
        tensor = tensors[name]
        assert tensor.shape == array.shape
        assert str(tensor.dtype) == array.dtype.name
        assert payload(tensor) == array.tobytes()
        assert tensor.extent.byte_order == "little"


def test_tensors_are_in_the_order_of_their_bytes(tmp_path: Path) -> None:
    header = {"b": {**F32, "data_offsets": [8, 16]}, "a": F32}
    assert [t.name for t in read(write(tmp_path / "x", header, bytes(16)))] == ["a", "b"]


@pytest.mark.parametrize("kind", BY_SAFETENSORS)
def test_every_dtype(tmp_path: Path, kind: str) -> None:
    row = BY_SAFETENSORS[kind]
    size = 8 * row.dtype.bits // 8
    path = write(tmp_path / "x", {"t": {"dtype": kind, "shape": [2, 4], "data_offsets": [0, size]}}, bytes(range(size)))
    (tensor,) = read(path)
    assert (tensor.dtype, tensor.nbytes) == (row.dtype, size)
    with safe_open(path, framework="numpy") as real:
        assert real.get_slice("t").get_shape() == [2, 4]


def test_the_largest_header_of_the_smallest_file(tmp_path: Path) -> None:
    assert read(write(tmp_path / "x", b"{}")) == []
    assert read(write(tmp_path / "y", b"{}      ")) == []


def entry(**changes: Any) -> dict[str, Any]:
    return {"t": {**F32, **changes}}


MALFORMED: list[tuple[str, Any, int, str]] = [
    ("cut header", b'{"t":', 0, "not JSON"),
    ("nothing but a brace", b"{", 0, "length"),
    ("not UTF-8", b'{"\xff":1}', 0, "not UTF-8"),
    ("byte-order mark", b'{}\xef\xbb\xbf', 0, "not JSON"),
    ("two objects", b"{}{}", 0, "not JSON"),
    ("nested deeply", b'{"a":' + b"[" * 200_000, 0, "nested too deeply"),
    ("nested objects", b'{"a":' * 200_000, 0, "nested too deeply"),
    ("long integer", b'{"t":{"dtype":"F32","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,0]}}', 0,
     "(too long|bad dimension)"),
    ("name twice", b'{"t":{},"t":{}}', 0, "'t' occurs twice"),
    ("key twice", b'{"t":{"dtype":"F32","dtype":"F32"}}', 0, "'dtype' occurs twice"),
    ("no object as entry", {"t": [1]}, 8, "entry is wrong"),
    ("unknown key", entry(extra=1), 8, "entry is wrong.*extra"),
    ("missing key", {"t": {"dtype": "F32", "shape": [2]}}, 8, "entry is wrong"),
    ("unknown dtype", entry(dtype="F33"), 8, "dtype is unknown.*'F33'"),
    ("dtype no string", entry(dtype=["F32"]), 8, "dtype is unknown"),
    ("shape no list", entry(shape=2), 8, "shape is wrong.*found 2"),
    ("negative dimension", entry(shape=[-2]), 8, "bad dimension.*-2"),
    ("float dimension", entry(shape=[2.0]), 8, "bad dimension.*2.0"),
    ("bool dimension", entry(shape=[True, 2]), 8, "bad dimension.*True"),
    ("huge dimension", entry(shape=[1 << 63]), 8, "bad dimension"),
    ("huge product", entry(shape=[1 << 40, 1 << 40]), 8, "too large"),
    ("huge strides of nothing", entry(shape=[0, 1 << 40, 1 << 40], data_offsets=[0, 0]), 0, "too large"),
    ("many dimensions", entry(shape=[1] * 65), 8, "too many dimensions"),
    ("offsets no list", entry(data_offsets=8), 8, "data_offsets is wrong"),
    ("one offset", entry(data_offsets=[8]), 8, "data_offsets is wrong"),
    ("bool offsets", entry(data_offsets=[False, 8]), 8, "data_offsets is wrong"),
    ("float offsets", entry(data_offsets=[0, 8.0]), 8, "data_offsets is wrong"),
    ("begin after end", entry(data_offsets=[8, 0]), 8, "out of bounds"),
    ("negative begin", entry(data_offsets=[-8, 0]), 8, "out of bounds"),
    ("past the end", entry(), 7, "out of bounds.*truncated"),
    ("contradiction", entry(shape=[1]), 8, "contradicts.*4 bytes for F32"),
    ("half a byte", {"t": {"dtype": "F4", "shape": [3], "data_offsets": [0, 2]}}, 2, "whole bytes"),
    ("overlap", {"a": F32, "b": {**F32, "data_offsets": [4, 12]}}, 12, "'b': the tensor overlaps tensor 'a'"),
    ("same bytes", {"a": F32, "b": F32}, 8, "overlaps"),
    ("hole", {"a": F32, "b": {**F32, "data_offsets": [9, 17]}}, 17, "hole after tensor 'a'"),
    ("hole at the start", entry(data_offsets=[1, 9]), 9, "hole after the header"),
    ("trailing bytes", entry(), 9, "after the last tensor"),
    ("metadata no object", {"__metadata__": 1}, 0, "__metadata__: this is not an object"),
    ("metadata no string", {"__metadata__": {"a": 1}}, 0, "'a' is not a string"),
    ("lone surrogate", b'{"\\ud800":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}', 1, "not valid UTF-8"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("header", "size", "message"), [row[1:] for row in MALFORMED], ids=[row[0] for row in MALFORMED]
)
def test_malformed_files_are_refused_by_name(tmp_path: Path, header: Any, size: int, message: str) -> None:
    path = write(tmp_path / "broken.safetensors", header, bytes(size))
    with pytest.raises(InputError, match=rf"(?s)broken\.safetensors.*{message}") as caught:
        Package().add_input(path)
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize("length", [0, 1, 3, 100, 100_000_001, 1 << 31, 1 << 63, (1 << 64) - 1])
def test_a_header_length_beyond_the_file_is_refused(tmp_path: Path, length: int) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(length.to_bytes(8, "little") + b"{}")
    with pytest.raises(InputError, match="length"):
        read(path)


@pytest.mark.parametrize("size", range(11))
def test_a_file_that_ends_in_its_first_bytes(tmp_path: Path, size: int) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes((b"\x02\0\0\0\0\0\0\0{}")[:size])
    if size == 10:
        assert read(path) == []
    else:
        with pytest.raises(InputError, match=r"empty|truncated or damaged|length"):
            read(path)


def test_metadata_is_checked_always_and_kept_only_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "x"
    save_file({"a": numpy.zeros(1)}, path, metadata={"format": "np", "author": "A"})
    package = Package()
    package.add_input(path)
    assert package.metadata == {}
    kept = Package(metadata={"format": "np"})
    kept.add_input(path, keep_metadata=True)
    assert kept.metadata == {"format": "np", "author": "A"}
    other = Package(metadata={"format": "pt"})
    with pytest.raises(InputError, match="'format' has another value already: expected 'pt', found 'np'"):
        other.add_input(path, keep_metadata=True)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"a": "\ud800"}, "not valid UTF-8"),
        ({"": "x"}, "cannot be kept"),
        ({"a": "x\0"}, "no NUL"),
        ({"k" * 65536: "x"}, "key"),
    ],
)
def test_metadata_that_cannot_be_kept(tmp_path: Path, metadata: dict[str, str], message: str) -> None:
    path = write(tmp_path / "x", {"__metadata__": metadata})
    assert read(path) == []
    with pytest.raises(InputError, match=message):
        read(path, keep_metadata=True)


def test_a_hundred_thousand_tensors(tmp_path: Path) -> None:
    header = {f"t{i}": {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]} for i in range(100_000)}
    tensors = read(write(tmp_path / "x", header, bytes(100_000)))
    assert [tensor.extent.offset - tensors[0].extent.offset for tensor in tensors] == list(range(100_000))


def shards(folder: Path, **changes: Any) -> str:
    """Write two files by the real package, and their index."""
    (folder / "sub").mkdir()
    save_file({"a": numpy.zeros(2, numpy.float32), "b": numpy.ones(3)}, folder / "m-1.safetensors", {"format": "np"})
    save_file({"c": numpy.ones(1, numpy.int8)}, folder / "sub" / "m-2.safetensors", {"format": "np"})
    weight_map = {"c": "sub/m-2.safetensors", "a": "m-1.safetensors", "b": "m-1.safetensors", **changes.pop("map", {})}
    index = {"metadata": {"total_size": 33}, "weight_map": {k: v for k, v in weight_map.items() if v is not None}}
    path = folder / "model.json"
    path.write_text(json.dumps({**index, **changes}, indent=2))
    return str(path)


def test_an_index_reads_all_of_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shards(tmp_path)
    package = Package()
    package.add_input(path, prefix="m", keep_metadata=True)
    assert [tensor.name for tensor in package.tensors] == ["m.c", "m.b", "m.a"]
    assert package.metadata == {"total_size": "33", "format": "np"}
    assert set(package.files) == {path, str(tmp_path / "m-1.safetensors"), str(tmp_path / "sub" / "m-2.safetensors")}
    assert payload(package.tensors[0]) == b"\x01"
    monkeypatch.chdir(tmp_path)
    assert [tensor.name for tensor in read("model.json")] == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight_map": [1]}, "weight_map: this is not an object"),
        ({"weight_map": {"a": 1}}, "'a' is not a string"),
        ({"metadata": []}, "metadata: this is not an object"),
        ({"map": {"c": "/etc/passwd"}}, "outside the index's folder.*'/etc/passwd'"),
        ({"map": {"c": "../x"}}, "outside"),
        ({"map": {"c": "sub/../../x"}}, "outside"),
        ({"map": {"c": "C:x"}}, "outside"),
        ({"map": {"c": "..\\x"}}, "outside"),
        ({"map": {"c": "x\0y"}}, "outside"),
        ({"map": {"c": ""}}, "outside"),
        ({"map": {"c": "missing"}}, "cannot open"),
        ({"map": {"d": "m-1.safetensors"}}, "'d' is not in this file"),
        ({"map": {"a": None}}, "'a' is in this file, and the index does not say so"),
        ({"map": {"a": "sub/m-2.safetensors"}}, "'a'"),
        ({"map": {"c": "model.json"}}, "model.json"),
    ],
)
def test_an_index_that_lies_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"(?s){message}"):
        read(shards(tmp_path, **changes))


@pytest.mark.parametrize("text", ["{}", '{\n "layers": []}', " {}"])
def test_other_json_is_refused_with_the_way_out(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"no safetensors index.*weight_map.*raw:FILE"):
        read(path)


def test_a_manifest_is_named_as_one(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_text('{"schema": "emitter.manifest/1", "tensors": []}')
    with pytest.raises(InputError, match=r"no safetensors index.*--manifest .*manifest.json"):
        read(path)


def test_files_of_one_model_with_different_metadata(tmp_path: Path) -> None:
    path = shards(tmp_path)
    save_file({"c": numpy.ones(1, numpy.int8)}, tmp_path / "sub" / "m-2.safetensors", {"format": "pt"})
    assert [tensor.name for tensor in read(path)] == ["c", "b", "a"]
    message = r"m-1.safetensors: metadata 'format' has another value already: expected 'pt', found 'np'"
    with pytest.raises(InputError, match=message):
        read(path, keep_metadata=True)


def test_a_published_model(tmp_path: Path) -> None:
    spec = importlib.util.find_spec("silero_vad")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("silero-vad is not installed")
    (folder,) = spec.submodule_search_locations
    found = [
        os.path.join(at, name) for at, _, names in os.walk(folder) for name in names if name.endswith(".safetensors")
    ]
    assert found
    for path in found:
        tensors = {tensor.name: tensor for tensor in read(path)}
        with safe_open(path, framework="numpy") as real:
            assert set(real.keys()) == set(tensors)
            for name, tensor in tensors.items():
                array = real.get_tensor(name)
                assert (tensor.shape, str(tensor.dtype)) == (array.shape, array.dtype.name)
                assert payload(tensor) == array.tobytes()
