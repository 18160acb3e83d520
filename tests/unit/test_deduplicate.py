"""Tensors that are written as the same bytes: found, not guessed, and cheaply."""

from __future__ import annotations

import os
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emitter.dtypes import DType
from emitter.errors import InputError
from emitter.pack import deduplicate
from emitter.pack.deduplicate import find_duplicates
from emitter.package import BufferSource, Extent, FileSource, Inflate, Package, Source, Tensor
from tests.support import record_reads

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from emitter.package import ByteOrder

FLOAT32 = DType(2, 32)
BYTE = DType(1, 8)


def tensor(name: str, source: Source, offset: int, length: int, **extent: Any) -> Tensor:
    return Tensor(name, BYTE, (length,), Extent(source, offset, length, **extent))


def buffer(name: str, data: bytes, **extent: Any) -> Tensor:
    return tensor(name, BufferSource(name, memoryview(data)), 0, len(data), **extent)


def file_of(path: Path, blocks: Sequence[bytes]) -> list[Tensor]:
    """Write blocks one after the other; return a tensor for each."""
    path.write_bytes(b"".join(blocks))
    source = FileSource.of(path)
    tensors, offset = [], 0
    for number, block in enumerate(blocks):
        tensors.append(tensor(f"{path.name}{number}", source, offset, len(block)))
        offset += len(block)
    return tensors


@pytest.mark.parametrize("size", [1, 64, 512, 513, 100_000, 700_000])
def test_equal_bytes_are_found_in_files_and_buffers(tmp_path: Path, size: int) -> None:
    same = os.urandom(size)
    other = same[:-1] + bytes([same[-1] ^ 1])
    tensors = [*file_of(tmp_path / "a", [same, other, same]), *file_of(tmp_path / "b", [same]), buffer("c", same)]
    assert find_duplicates(tensors, "little") == {"a2": "a0", "b0": "a0", "c": "a0"}


@pytest.mark.parametrize(
    "position", [0, 63, 64, 1000, 262_143, 262_144, 499_999, 500_000, 500_063, 500_064, 999_935, 999_999]
)
def test_one_different_byte_anywhere_tells_apart(tmp_path: Path, position: int) -> None:
    first = bytearray(os.urandom(1_000_000))
    second = bytearray(first)
    second[position] ^= 0x80
    assert find_duplicates(file_of(tmp_path / "a", [bytes(first), bytes(second)]), "little") == {}


def test_equal_checksums_are_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    # More classes of equal samples than are compared one by one, all with the same checksum.
    monkeypatch.setattr(deduplicate, "_checksum", lambda *_: 7)
    blocks = [bytes(600) + bytes([number % 9]) + bytes(1400) for number in range(18)]
    tensors = [buffer(f"t{number}", block) for number, block in enumerate(blocks)]
    assert find_duplicates(tensors, "little") == {f"t{number + 9}": f"t{number}" for number in range(9)}


def test_many_classes_of_equal_samples_are_each_read_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    read = record_reads(monkeypatch)
    blocks = [bytes(600) + number.to_bytes(2, "little") + bytes(9400) for number in range(300)]
    tensors = [buffer(f"t{number}", block) for number, block in enumerate(blocks)]
    assert find_duplicates(tensors, "little") == {}
    assert sum(read) < 4 * sum(map(len, blocks))


def test_the_same_extent_is_not_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    source = BufferSource("memory", memoryview(os.urandom(1_000_000)))
    tensors = [tensor(f"t{number}", source, 0, 1_000_000) for number in range(5)]
    monkeypatch.setattr(deduplicate, "_equal", None)
    assert find_duplicates(tensors, "little") == {f"t{number}": "t0" for number in range(1, 5)}


def test_holes_are_compared_without_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 4 << 30
    with (tmp_path / "sparse").open("wb") as file:
        for at in (size // 2, size + size // 2, 2 * size + size // 4):
            file.seek(at)
            file.write(b"data" * 1024)
        file.truncate(3 * size)
    if (tmp_path / "sparse").stat().st_blocks * 512 > size:
        pytest.skip("the file system of the temporary directory has no holes")
    read = record_reads(monkeypatch)
    source = FileSource.of(tmp_path / "sparse")
    tensors = [tensor(f"t{number}", source, number * size, size) for number in range(3)]
    assert find_duplicates(tensors, "little") == {"t1": "t0"}
    assert sum(read) < 1 << 20


@settings(max_examples=60, deadline=None)
@given(
    pages=st.lists(st.sampled_from(["hole", "zeros", "data", "other"]), min_size=2, max_size=6),
    shifts=st.lists(st.integers(0, 8191), min_size=2, max_size=4),
    length=st.integers(513, 9000),
)
def test_the_answer_is_that_of_comparing_bytes(
    tmp_path_factory: pytest.TempPathFactory, pages: list[str], shifts: list[int], length: int
) -> None:
    path = tmp_path_factory.mktemp("pages") / "file"
    content = {"hole": b"", "zeros": bytes(4096), "data": b"\1" * 4096, "other": bytes(1000) + b"\2" + bytes(3095)}
    with path.open("wb") as file:
        for number, kind in enumerate(pages):
            file.seek(4096 * number)
            file.write(content[kind])
        file.truncate(8192 + 9000)
    source = FileSource.of(path)
    data = path.read_bytes()
    tensors = [tensor(f"t{number}", source, shift, length) for number, shift in enumerate(shifts)]
    expected: dict[str, str] = {}
    first: dict[bytes, str] = {}
    for number, shift in enumerate(shifts):
        known = first.setdefault(data[shift : shift + length], f"t{number}")
        if known != f"t{number}":
            expected[f"t{number}"] = known
    assert find_duplicates(tensors, "little") == expected


def test_empty_tensors_and_other_sizes_are_left_out() -> None:
    assert find_duplicates([buffer("a", b""), buffer("b", b""), buffer("c", b"x"), buffer("d", b"xx")], "little") == {}


class TestTransformations:
    def floats(self, name: str, data: bytes, shape: tuple[int, ...], **extent: Any) -> Tensor:
        source = BufferSource(name, memoryview(data))
        return Tensor(name, FLOAT32, shape, Extent(source, 0, len(data), **extent))

    @pytest.mark.parametrize("target", ["little", "big"])
    def test_byte_orders_are_kept_apart(self, target: ByteOrder) -> None:
        data = os.urandom(4096)
        tensors = [
            self.floats(name, data, (1024,), byte_order=order) for name, order in (("a", "little"), ("b", "big"))
        ]
        tensors += [self.floats("c", data, (1024,), byte_order="big"), buffer("d", data, byte_order="big")]
        # Bytes are never swapped: the opaque one is what the tensor in the target's order is.
        unswapped = "a" if target == "little" else "b"
        expected = {"c": "b", "d": unswapped}
        assert find_duplicates(tensors, target) == expected

    def test_column_major_is_the_same_for_the_same_shape(self) -> None:
        data = os.urandom(4096)
        shapes = {"a": (32, 32), "b": (32, 32), "c": (16, 64)}
        tensors = [self.floats(name, data, shape, fortran_order=True) for name, shape in shapes.items()]
        assert find_duplicates([*tensors, self.floats("d", data, (32, 32))], "little") == {"b": "a"}

    @pytest.mark.parametrize("level", [1, 9])
    def test_compressed_members_are_compared_inflated(self, level: int) -> None:
        data = bytes(range(256)) * 5000
        crafted = bytearray(data)
        crafted[700_000] ^= 1

        def member(name: str, content: bytes, crc: int, method: int) -> Tensor:
            compressor = zlib.compressobj(method, wbits=-15)
            stored = compressor.compress(content) + compressor.flush()
            extent = Extent(
                BufferSource(name, memoryview(stored)), 0, len(stored), inflate=Inflate(len(content), crc, 0)
            )
            return Tensor(name, BYTE, (len(content),), extent)

        crc = zlib.crc32(data)
        assert find_duplicates([member("a", data, crc, 6), member("b", data, crc, level)], "little") == {"b": "a"}
        # A directory may lie about the CRC-32, which is therefore not trusted; who copies the member finds the lie.
        for other in (data[:-1] + b"?", bytes(crafted)):
            assert find_duplicates([member("a", data, crc, 6), member("b", other, crc, level)], "little") == {}


def test_a_file_that_has_changed_is_an_error(tmp_path: Path) -> None:
    tensors = file_of(tmp_path / "a", [bytes(1000), bytes(1000)])
    (tmp_path / "a").write_bytes(bytes(2001))
    with pytest.raises(InputError, match="changed while it was read"):
        find_duplicates(tensors, "little")


def test_thousands_of_files_do_not_exhaust_descriptors(tmp_path: Path) -> None:
    package = Package()
    for number in range(300):
        (tmp_path / str(number)).write_bytes(os.urandom(990) + bytes([number % 2]) + bytes(9))
        package.add_raw(f"t{number}", tmp_path / str(number))
    limit = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    opened = []
    real = os.open

    def counting(path: str, *rest: int) -> int:
        fd = real(path, *rest)
        opened.append(fd)
        return fd

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", counting)
        assert find_duplicates(package.tensors, "little") == {}
    assert max(opened) <= limit + 64
