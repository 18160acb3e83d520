"""The package and its sources."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from emitter import Package
from emitter.dtypes import DType
from emitter.errors import EmitterError, InputError, UsageError
from emitter.pack.format import MAX_NAME_BYTES
from emitter.pack.plan import plan_pack
from emitter.package import BufferSource, Extent, FileSource, Tensor
from emitter.values import payload_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

BYTES = DType(1, 8)
FLOAT64 = DType(2, 64)


def tensor(
    name: Any = "t", shape: Any = (3,), alignment: Any = None, dtype: DType = BYTES, encoding: int = 0
) -> Tensor:
    extent = Extent(BufferSource("memory", memoryview(b"abc")), 0, 3)
    return Tensor(name, dtype, shape, extent, alignment, encoding)


@pytest.mark.parametrize("name", ["", "a\0b", "x" * (MAX_NAME_BYTES + 1), "\udc80"])
def test_a_name_that_cannot_be_written_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="name"):
        Package().add(tensor(name))


def test_the_longest_name_is_kept() -> None:
    package = Package()
    package.add(tensor("é" * (MAX_NAME_BYTES // 2)))
    assert len(package.tensors) == 1


@pytest.mark.parametrize("alignment", [0, -1, 3, 1 << 22])
def test_an_alignment_that_cannot_be_kept_is_refused(alignment: int) -> None:
    with pytest.raises(UsageError, match=r"power of two.*found"):
        Package().add(tensor(alignment=alignment))


@pytest.mark.parametrize(
    "shape", [(1,) * 65, (-1,), (1 << 63,), (1 << 62, 2), (0, 1 << 62, 1 << 62), (1.0,), (True,), ("3",)]
)
def test_a_shape_that_cannot_be_written_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"dimension|shape"):
        Package().add(tensor(shape=shape))


def test_two_tensors_of_one_name_are_refused_with_a_proposal() -> None:
    package = Package()
    package.add(tensor())
    with pytest.raises(InputError, match="PREFIX=FILE"):
        package.add(tensor())
    assert len(package.tensors) == 1


def as_view(array: Any) -> memoryview:
    """Return the view of an array: that it is a buffer, numpy's types say since Python 3.12 only."""
    return memoryview(array)


@pytest.mark.parametrize(
    ("view", "content"),
    [
        (memoryview(b"abcdef")[::2], b"ace"),
        (memoryview(b"abcdef")[::-1], b"fedcba"),
        (as_view(np.arange(6, dtype=np.uint8).reshape(2, 3)), bytes(range(6))),
        (as_view(np.asfortranarray(np.arange(6, dtype=np.uint8).reshape(2, 3))), bytes(range(6))),
        (as_view(np.arange(3, dtype=">u2")), b"\0\0\0\1\0\2"),
        (as_view(np.zeros(2, "u1,<u2")), bytes(6)),
        (as_view(np.zeros((2, 0))), b""),
        (as_view(np.zeros((0, 3), order="F")), b""),
        (as_view(np.array(7, np.uint8)), b"\7"),
        (memoryview(b""), b""),
        (bytearray(b"ab"), b"ab"),
    ],
)
def test_raw_bytes_of_any_buffer_are_seen_as_they_are(view: memoryview | bytearray, content: bytes) -> None:
    package = Package()
    package.add_raw("x", view)
    assert package.tensors[0].shape == (len(content),)
    extent = package.tensors[0].extent
    assert isinstance(extent.source, BufferSource)
    assert bytes(extent.source.data) == content
    assert extent.source.data.ndim == 1


def test_a_released_view_is_refused() -> None:
    view = memoryview(b"abc")
    view.release()
    with pytest.raises(UsageError, match=r"tensor 'x': the memoryview cannot be read.*released"):
        Package().add_raw("x", view)


class BytesPath:
    def __fspath__(self) -> bytes:
        return b"x"


ARRAY = np.zeros(3)
ODD: dict[str, Callable[[Any], object]] = {
    "metadata with a number": lambda _: Package(metadata={"a": 1}),  # type: ignore[dict-item]  # what is tested
    "metadata with a key that is a number": lambda _: Package(metadata={1: "a"}),  # type: ignore[dict-item]  # what is tested
    "metadata that is a list": lambda _: Package(metadata=["a"]),  # type: ignore[arg-type]  # what is tested
    "model version of bytes": lambda _: Package(model_version=b"1"),  # type: ignore[arg-type]  # what is tested
    "model version None": lambda _: Package(model_version=None),  # type: ignore[arg-type]  # what is tested
    "name of bytes": lambda package: package.add_tensor(b"x", ARRAY),
    "name None": lambda package: package.add_raw(None, b""),
    "tensor that is text": lambda package: package.add("x"),
    "name of a tensor": lambda package: package.add(tensor(7)),
    "alignment of text": lambda package: package.add_tensor("x", ARRAY, alignment="64"),
    "alignment with a point": lambda package: package.add_raw("x", b"", alignment=64.0),
    "alignment True": lambda package: package.add_raw("x", b"", alignment=True),
    "metadata of a tensor": lambda package: package.add_tensor("x", ARRAY, metadata={"a": None}),
    "metadata of a tensor as pairs": lambda package: package.add_tensor("x", ARRAY, metadata=[("a", "b")]),
    "path of bytes": lambda package: package.add_input(b"x"),
    "path that gives bytes": lambda package: package.add_input(BytesPath()),
    "raw path that gives bytes": lambda package: package.add_raw("x", BytesPath()),
    "path None": lambda package: package.add_input(None),
    "path that is a number": lambda package: package.add_raw("x", 3),
    "prefix of bytes": lambda package: package.add_input("x", prefix=b"x"),
    "shape that is a list": lambda package: package.add(tensor(shape=[3])),
    "code above a byte": lambda package: package.add(tensor(dtype=DType(256, 8))),
    "no bits": lambda package: package.add(tensor(dtype=DType(1, 0))),
    "no lanes": lambda package: package.add(tensor(dtype=DType(1, 8, 0))),
    "encoding above 16 bits": lambda package: package.add(tensor(encoding=65536)),
}


@pytest.mark.parametrize("what", ODD)
def test_a_value_of_another_type_is_a_usage_error(what: str) -> None:
    with pytest.raises(UsageError, match="found"):
        ODD[what](Package())


@pytest.mark.parametrize("metadata", [{"a": 1}, {None: "a"}, None, ["a"]])
def test_metadata_of_another_type_that_is_set_later_is_refused_when_it_is_laid_out(metadata: Any) -> None:
    package = Package()
    package.metadata = metadata
    if metadata is None:
        plan_pack(package, "little")
    else:
        with pytest.raises(UsageError, match="metadata"):
            plan_pack(package, "little")


def test_a_model_version_of_another_type_that_is_set_later_is_refused_when_it_is_laid_out() -> None:
    package = Package()
    package.model_version = 3  # type: ignore[assignment]  # what is tested
    with pytest.raises(UsageError, match="model version is not text"):
        plan_pack(package, "little")


LONG = "w" * 65535


@pytest.mark.parametrize(
    "act",
    [
        lambda package: package.add(tensor(LONG)),
        lambda package: package.add(tensor(LONG + "w")),
        lambda package: package.add(tensor(LONG, alignment=3)),
        lambda package: package.add_tensor(LONG, [1]),
        lambda package: package.add_tensor(LONG, ARRAY.astype(object)),
        lambda package: package.add_raw(LONG, b"", alignment=3),
        lambda _: plan_pack(Package(metadata={LONG: "\0"}), "little"),
        lambda _: plan_pack(Package(metadata={"a": LONG + "\0"}), "little"),
    ],
)
def test_a_long_name_is_cut_in_messages(act: Callable[[Package], object]) -> None:
    package = Package()
    package.add(tensor(LONG))
    with pytest.raises(EmitterError) as caught:
        act(package)
    assert len(str(caught.value)) < 1000
    if act is not None and "metadata" not in str(caught.value):
        assert "... (655" in str(caught.value)


@pytest.mark.parametrize(
    ("dtype", "shape", "size"),
    [
        (BYTES, ((1 << 63) - 1,), (1 << 63) - 1),
        (FLOAT64, ((1 << 60) - 1,), (1 << 63) - 8),
        (FLOAT64, (0, 1 << 62), 0),
        (FLOAT64, (), 8),
        (DType(0, 4), (3,), 2),
    ],
)
def test_the_bytes_of_the_largest_shapes(dtype: DType, shape: tuple[int, ...], size: int) -> None:
    assert payload_bytes(dtype, shape, "here") == size


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [(BYTES, (1 << 63,)), (FLOAT64, (1 << 60,)), (DType(0, 4), (1 << 63,)), (BYTES, (0, 1 << 62, 2))],
)
def test_a_shape_beyond_the_largest_is_refused_by_one_rule(dtype: DType, shape: tuple[int, ...]) -> None:
    for call in (lambda: payload_bytes(dtype, shape, "here"), lambda: Package().add(tensor(shape=shape, dtype=dtype))):
        with pytest.raises(InputError, match=r"dimension|shape"):
            call()


@pytest.mark.parametrize(
    ("dtype", "stored", "encoding", "unit"),
    [
        (FLOAT64, "little", 0, 1),
        (FLOAT64, "big", 0, 8),
        (FLOAT64, "big", 1, 1),
        (DType(5, 64), "big", 0, 4),
        (DType(2, 32, 4), "big", 0, 4),
        (DType(0, 4), "big", 0, 1),
        (BYTES, "big", 0, 1),
    ],
)
def test_what_changes_places_with_the_byte_order(dtype: DType, stored: Any, encoding: int, unit: int) -> None:
    one = tensor(dtype=dtype, encoding=encoding)
    one = one._replace(extent=one.extent._replace(byte_order=stored))
    assert one.swap_unit("little") == unit
    assert one.swap_unit(stored) == 1


def test_a_raw_file_is_known_by_its_size_and_noted(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"12345")
    package = Package()
    package.add_raw("x", path)
    assert package.tensors[0].shape == (5,)
    assert package.files == [str(path)]


def test_an_array_is_not_copied() -> None:
    array = np.arange(6, dtype=np.float32)
    package = Package()
    package.add_tensor("a", array)
    source = package.tensors[0].extent.source
    assert isinstance(source, BufferSource)
    array[0] = 42
    assert np.frombuffer(source.data, np.float32)[0] == 42


@pytest.mark.parametrize("kind", ["missing", "directory", "fifo", "nul"])
def test_what_is_not_a_regular_file_is_refused(kind: str, tmp_path: Path) -> None:
    path = str(tmp_path / kind)
    if kind == "directory":
        os.mkdir(path)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "nul":
        path += "\0"
    with pytest.raises(InputError, match=kind):
        FileSource.of(path)


def test_a_pipe_in_the_place_of_an_input_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"12345")
    source = FileSource.of(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(InputError, match="changed while it was read"), source.open():
        pass


def test_a_file_that_only_says_that_it_is_empty_is_refused() -> None:
    if not os.path.exists("/proc/cpuinfo"):
        pytest.skip("there is no /proc")
    with pytest.raises(InputError, match="says that it is empty"):
        Package().add_raw("x", Path("/proc/cpuinfo"))


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_file_that_changes_is_noticed(when: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"12345")
    source = FileSource.of(path)
    if when == "before":
        path.write_bytes(b"1234")

    def read() -> None:
        with source.open() as fd:
            os.read(fd, 1)
            if when == "during":
                path.write_bytes(b"123456")

    with pytest.raises(InputError, match="changed while it was read"):
        read()
