"""Whatever a file says, it gives tensors that lie in it, or an EmitterError."""

from __future__ import annotations

import io
import json
import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.numpy import load, save

from emitter.checksum import crc32c
from emitter.dtypes import BY_SAFETENSORS
from emitter.errors import EmitterError
from emitter.inputs import read_input
from emitter.pack import format as fmt
from emitter.package import Package
from tests.support import build_pack

if TYPE_CHECKING:
    from pathlib import Path

    from emitter.package import ByteOrder

ORDERS: tuple[ByteOrder, ...] = ("little", "big")

EDGES = [
    0,
    1,
    2,
    7,
    8,
    9,
    63,
    64,
    65,
    127,
    128,
    255,
    65535,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 63,
    (1 << 64) - 1,
]


@cache
def valid(kind: str) -> bytes:
    arrays: dict[str, Any] = {
        "a": numpy.arange(6, dtype=numpy.float32).reshape(2, 3),
        "bb": numpy.arange(3, dtype=numpy.int8),
        "c": numpy.zeros((0, 2)),
    }
    file = io.BytesIO()
    if kind == "safetensors":
        return save(arrays, {"format": "np"})
    if kind == "npy":
        numpy.save(file, arrays["a"])
    elif kind == "npz":
        numpy.savez(file, **arrays)
    elif kind == "npz, deflated":
        numpy.savez_compressed(file, **arrays)
    else:
        package = Package(metadata={"format": "np"})
        for name, array in arrays.items():
            package.add_tensor(name, array, metadata={"k": "v"})
        return build_pack(package, "big" if "big" in kind else "little")
    return file.getvalue()


@st.composite
def mutations(draw: st.DrawFn, data: bytes) -> bytes:
    """Change a few bytes or words, cut or insert."""
    image = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(image)))
        match draw(st.sampled_from(["byte", "word", "cut", "insert", "end", "copy"])):
            case "byte":
                image[at : at + 1] = bytes([draw(st.integers(0, 255))])
            case "word":
                size = draw(st.sampled_from([2, 4, 8]))
                order = draw(st.sampled_from(ORDERS))
                image[at : at + size] = (draw(st.sampled_from(EDGES)) % (1 << 8 * size)).to_bytes(size, order)
            case "cut":
                del image[at : at + draw(st.integers(1, 20))]
            case "insert":
                image[at:at] = draw(st.binary(max_size=20))
            case "end":
                del image[at:]
            case _:
                start = draw(st.integers(0, len(image)))
                image[at:at] = image[start : start + 50]
    return bytes(image)


def seal(image: bytes) -> bytes:
    """Give a changed pack right checksums, so that the checks behind them are reached."""
    if len(image) < fmt.HEADER.size:
        return image
    order: ByteOrder = "big" if image[8:9] == b"\1" else "little"
    data = bytearray(image)

    def word(name: str) -> int:
        at = fmt.HEADER.offset(name)
        return int.from_bytes(data[at : at + 4], order)

    def put(name: str, value: int) -> None:
        at = fmt.HEADER.offset(name)
        data[at : at + 4] = value.to_bytes(4, order)

    header, index = word("header_size"), word("index_size")
    put("index_crc32c", crc32c(bytes(data[header:index])))
    put("header_crc32c", 0)
    put("header_crc32c", crc32c(bytes(data[:header])))
    data[24:32] = len(data).to_bytes(8, order)  # total_size
    put("header_crc32c", 0)
    put("header_crc32c", crc32c(bytes(data[:header])))
    return bytes(data)


def check(path: Path, content: bytes) -> bool:
    """Return whether `content` is accepted; fail unless it gives tensors within the file, or an EmitterError."""
    path.write_bytes(content)
    package = Package()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            package.add_input(path, keep_metadata=True)
    except EmitterError as error:
        assert str(path) in str(error) or "tensor" in str(error)
        assert len(str(error)) < 3000
        return False
    for tensor in package.tensors:
        extent = tensor.extent
        assert 0 <= extent.offset <= extent.offset + extent.length <= len(content)
        if extent.inflate:
            assert extent.inflate.skip + tensor.nbytes == extent.inflate.size
        else:
            assert tensor.nbytes == extent.length
    return True


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("inputs") / "x"


KINDS = ["safetensors", "npy", "npz", "npz, deflated", "pack", "pack, big-endian"]
SETTINGS = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("kind", KINDS)
def test_the_unchanged_file_is_read(path: Path, kind: str) -> None:
    assert check(path, valid(kind))


@pytest.mark.parametrize("kind", KINDS)
@SETTINGS
@given(data=st.data())
def test_a_changed_file_gives_tensors_or_an_error(path: Path, kind: str, data: st.DataObject) -> None:
    check(path, data.draw(mutations(valid(kind))))


@pytest.mark.parametrize("kind", ["pack", "pack, big-endian"])
@SETTINGS
@given(data=st.data())
def test_a_changed_pack_with_right_checksums(path: Path, kind: str, data: st.DataObject) -> None:
    check(path, seal(data.draw(mutations(valid(kind)))))


@SETTINGS
@given(content=st.binary(max_size=200))
def test_any_bytes(path: Path, content: bytes) -> None:
    check(path, content)


@SETTINGS
@given(
    start=st.sampled_from([b"\x93NUMPY\x01\x00", b"PK\x03\x04", b"PK\x05\x06", fmt.MAGIC, b"{"]),
    rest=st.binary(max_size=200),
)
def test_any_bytes_after_a_magic(path: Path, start: bytes, rest: bytes) -> None:
    check(path, start + rest)


@SETTINGS
@given(text=st.text("()[]{}'\\:,-+*0123456789eEjLxTrueFalsNondct<>|f4 \n\0_", max_size=80), version=st.integers(0, 4))
def test_any_npy_header(path: Path, text: str, version: int) -> None:
    header = text.encode()
    check(path, b"\x93NUMPY" + bytes([version, 0]) + len(header).to_bytes(2 if version == 1 else 4, "little") + header)


DIMENSIONS = st.one_of(st.integers(-1, 3), st.sampled_from(EDGES), st.floats(), st.booleans(), st.none(), st.just("1"))
ENTRIES = st.fixed_dictionaries(
    {
        "dtype": st.one_of(st.sampled_from(sorted(BY_SAFETENSORS)), st.just("F33"), st.none()),
        "shape": st.lists(DIMENSIONS, max_size=3),
        "data_offsets": st.lists(
            st.one_of(st.integers(0, 24), st.sampled_from(EDGES), st.floats()), min_size=1, max_size=3
        ),
    },
    optional={"more": st.none()},
)


@SETTINGS
@given(
    header=st.dictionaries(st.text(max_size=3), st.one_of(ENTRIES, st.none()), max_size=3),
    size=st.sampled_from([0, 8, 16, 24]),
)
def test_any_safetensors_header_that_is_accepted_is_accepted_by_the_reference(
    path: Path, header: dict[str, Any], size: int
) -> None:
    text = json.dumps(header).encode()
    content = len(text).to_bytes(8, "little") + text + bytes(size)
    if check(path, content) and not any(e["dtype"] == "F4" or "_" in e["dtype"] for e in header.values()):
        load(content)


@SETTINGS
@given(data=st.data())
def test_a_plausible_safetensors_file_is_judged_as_by_the_reference(path: Path, data: st.DataObject) -> None:
    """Tensors laid end to end, sometimes with one byte too many or too few."""
    header: dict[str, Any] = {}
    position = 0
    for number in range(data.draw(st.integers(0, 4))):
        shape = data.draw(st.lists(st.integers(0, 3), max_size=3))
        dtype = data.draw(st.sampled_from(["U8", "I16", "F32", "F64", "BOOL"]))
        nbytes = BY_SAFETENSORS[dtype].dtype.nbytes(tuple(shape))
        begin = max(0, position + data.draw(st.sampled_from([0] * 9 + [-1, 1])))
        end = begin + max(0, nbytes + data.draw(st.sampled_from([0] * 9 + [-1, 1])))
        header[f"t{number}"] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
        position = end
    size = max(0, position + data.draw(st.sampled_from([0] * 9 + [-1, 1])))
    text = json.dumps(header).encode()
    content = len(text).to_bytes(8, "little") + text + bytes(size)
    try:
        expected = set(load(content))
    except SafetensorError:
        assert not check(path, content)
    else:
        assert check(path, content)
        assert {tensor.name for tensor in read_input(str(path), Package())} == expected
