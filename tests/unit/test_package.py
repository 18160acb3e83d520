"""The package and its sources."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from emitter import Package
from emitter.dtypes import DType
from emitter.errors import InputError, UsageError
from emitter.package import MAX_NAME_BYTES, BufferSource, Extent, FileSource, Tensor

BYTES = DType(1, 8)


def tensor(name: str = "t", shape: tuple[int, ...] = (3,), alignment: int | None = None) -> Tensor:
    return Tensor(name, BYTES, shape, Extent(BufferSource("memory", memoryview(b"abc")), 0, 3), alignment)


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


@pytest.mark.parametrize("shape", [(1,) * 65, (-1,), (1 << 63,), (1 << 60,), (0, 1 << 62, 1 << 62)])
def test_a_shape_that_cannot_be_written_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="dimension|shape"):
        Package().add(tensor(shape=shape))


def test_two_tensors_of_one_name_are_refused_with_a_proposal() -> None:
    package = Package()
    package.add(tensor())
    with pytest.raises(InputError, match="PREFIX=FILE"):
        package.add(tensor())
    assert len(package.tensors) == 1


def test_raw_bytes_of_any_buffer_are_seen_as_they_are() -> None:
    package = Package()
    package.add_raw("strided", memoryview(b"abcdef")[::2])
    extent = package.tensors[0].extent
    assert isinstance(extent.source, BufferSource)
    assert bytes(extent.source.data) == b"ace"


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
