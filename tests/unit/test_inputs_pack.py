""".pack files as inputs: planned by the emitter, changed field by field."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Any

import numpy
import pytest

from emitter.checksum import crc32c
from emitter.dtypes import DType
from emitter.errors import InputError
from emitter.inputs import read_input
from emitter.pack import format as fmt
from emitter.package import BufferSource, Extent, FileSource, Package, Tensor
from tests.golden.make_packs import PACKS, golden_package
from tests.support import build_pack

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from emitter.package import ByteOrder

ORDERS: tuple[ByteOrder, ...] = ("little", "big")


def payload(tensor: Tensor) -> bytes:
    extent = tensor.extent
    assert isinstance(extent.source, FileSource)
    with extent.source.open() as fd:
        return os.pread(fd, extent.length, extent.offset)


def sample() -> Package:
    package = Package(metadata={"author": "A", "note": ""}, model_version="v7")
    package.add_tensor("z", numpy.arange(6, dtype="<f4").reshape(2, 3), alignment=256, metadata={"axis": "0"})
    package.add_tensor("a", numpy.array(5, "<i8"))
    package.add_tensor("empty", numpy.zeros((0, 4)))
    package.add_raw("Größe", b"abcde")
    block = BufferSource("block", memoryview(bytes(18)))
    package.add(Tensor("q", DType(1, 4), (32,), Extent(block, 0, 18), encoding=3))
    return package


class Image:
    """A pack that can be changed and sealed again with right checksums."""

    def __init__(self, data: bytes, byte_order: ByteOrder = "little") -> None:
        self.data = bytearray(data)
        self.order = "<" if byte_order == "little" else ">"

    def get(self, record: fmt.Record, field: str, start: int = 0) -> int:
        """Return a field of the record at `start`."""
        found = next(f for f in record.fields if f.name == field)
        return int(
            struct.unpack_from(self.order + fmt._STRUCT_CODE[found.type], self.data, start + record.offset(field))[0]
        )

    def set(self, record: fmt.Record, field: str, value: int, start: int = 0) -> None:
        """Write a field of the record at `start`."""
        found = next(f for f in record.fields if f.name == field)
        code = "B" if found.count > 1 else fmt._STRUCT_CODE[found.type]
        struct.pack_into(self.order + code, self.data, start + record.offset(field), value)

    def entry(self, record: fmt.Record) -> int:
        """Return the offset of a table's entry in the directory."""
        start = self.get(fmt.HEADER, "directory_offset")
        size = self.get(fmt.HEADER, "directory_record_size")
        return next(
            at
            for at in range(start, start + 99 * size, size)
            if self.get(fmt.DIRECTORY_ENTRY, "kind", at) == record.kind
        )

    def record(self, record: fmt.Record, number: int = 0) -> int:
        """Return the offset of a record."""
        at = self.entry(record)
        return self.get(fmt.DIRECTORY_ENTRY, "offset", at) + number * self.get(fmt.DIRECTORY_ENTRY, "record_size", at)

    def sealed(self) -> bytes:
        """Return the pack with the checksums of its header and index."""
        header, index = self.get(fmt.HEADER, "header_size"), self.get(fmt.HEADER, "index_size")
        self.set(fmt.HEADER, "index_crc32c", crc32c(bytes(self.data[header:index])))
        self.set(fmt.HEADER, "header_crc32c", 0)
        self.set(fmt.HEADER, "header_crc32c", crc32c(bytes(self.data[:header])))
        return bytes(self.data)


def read(tmp_path: Path, data: bytes, **options: Any) -> list[Tensor]:
    (tmp_path / "x.pack").write_bytes(data)
    return list(read_input(str(tmp_path / "x.pack"), Package(), **options))


@pytest.mark.parametrize("byte_order", ORDERS)
def test_reads_either_byte_order_in_the_order_of_the_payloads(tmp_path: Path, byte_order: ByteOrder) -> None:
    original = sample()
    tensors = read(tmp_path, build_pack(original, byte_order))
    assert [tensor.name for tensor in tensors] == ["z", "a", "empty", "Größe", "q"]
    for tensor, before in zip(tensors, original.tensors, strict=True):
        assert (tensor.dtype, tensor.shape, tensor.encoding) == (before.dtype, before.shape, before.encoding)
        assert tensor.extent.byte_order == byte_order
        assert tensor.alignment == (before.alignment or 64)
    sign = "<" if byte_order == "little" else ">"
    assert payload(tensors[0]) == numpy.arange(6, dtype=sign + "f4").tobytes()
    assert payload(tensors[1]) == numpy.array(5, sign + "i8").tobytes()
    assert payload(tensors[3]) == b"abcde"
    assert payload(tensors[4]) == bytes(18)


@pytest.mark.parametrize("byte_order", ORDERS)
def test_a_pack_of_a_pack_is_the_same_pack(tmp_path: Path, byte_order: ByteOrder) -> None:
    data = build_pack(sample(), byte_order)
    tensors = read(tmp_path, data, keep_metadata=True)
    again = Package()
    again.add_input(tmp_path / "x.pack", keep_metadata=True)
    copied = Package(metadata=again.metadata, model_version=again.model_version)
    for tensor in tensors:
        extent = Extent(BufferSource("copy", memoryview(payload(tensor))), 0, tensor.nbytes, byte_order)
        copied.add(
            Tensor(tensor.name, tensor.dtype, tensor.shape, extent, tensor.alignment, tensor.encoding, tensor.metadata)
        )
    assert build_pack(copied, byte_order) == data


def test_metadata_and_version_are_kept_only_when_asked(tmp_path: Path) -> None:
    (tmp_path / "x.pack").write_bytes(build_pack(sample()))
    package = Package()
    package.add_input(tmp_path / "x.pack", prefix="p")
    assert (package.metadata, package.model_version) == ({}, "")
    assert not any(tensor.metadata for tensor in package.tensors)
    kept = Package()
    kept.add_input(tmp_path / "x.pack", keep_metadata=True)
    assert (kept.metadata, kept.model_version) == ({"author": "A", "note": ""}, "v7")
    assert kept.tensors[0].metadata == {"axis": "0"}
    other = Package(model_version="mine")
    other.add_input(tmp_path / "x.pack", prefix="p")
    assert other.model_version == "mine"
    message = (
        "x.pack: the model version has another value already: expected 'mine', found 'v7'; leave out --keep-metadata"
    )
    with pytest.raises(InputError, match=message):
        other.add_input(tmp_path / "x.pack", keep_metadata=True)


@pytest.mark.parametrize(("first", "second", "kept"), [("", "v7", "v7"), ("v7", "", "v7"), ("v7", "v7", "v7")])
def test_model_versions_of_two_packs_that_agree_are_kept(tmp_path: Path, first: str, second: str, kept: str) -> None:
    package = Package()
    for name, version in (("a", first), ("b", second)):
        part = Package(model_version=version)
        part.add_raw(name, b"x")
        (tmp_path / name).write_bytes(build_pack(part))
        package.add_input(tmp_path / name, keep_metadata=True)
    assert package.model_version == kept


def test_equal_payloads_become_equal_extents(tmp_path: Path) -> None:
    package = Package()
    for name in ("c", "a", "b"):
        package.add_raw(name, b"same")
    options: Any = {"same_as": {"a": "c", "b": "c"}}
    data = build_pack(package, **options)
    first, *others = read(tmp_path, data)
    assert {first.name, *(tensor.name for tensor in others)} == {"a", "b", "c"}
    assert all(tensor.extent == first.extent for tensor in others)


def test_an_empty_pack(tmp_path: Path) -> None:
    assert read(tmp_path, build_pack(Package())) == []


def later(byte_order: ByteOrder) -> Image:
    """Return the sample as a later version writes it: longer records, another table, a compatible bit."""
    old = Image(build_pack(sample(), byte_order), byte_order)
    sign = old.order
    header = old.data[: fmt.HEADER.size] + b"\x77" * 16
    old_index = old.get(fmt.HEADER, "index_size")
    grow = {fmt.PAYLOAD.kind: 8, fmt.TENSOR.kind: 16, fmt.METADATA.kind: 8, 99: 0}
    tables = []
    for record in (fmt.PAYLOAD, fmt.TENSOR, fmt.METADATA, fmt.DIMS, fmt.STRINGS):
        at = old.entry(record)
        size, offset, count = (old.get(fmt.DIRECTORY_ENTRY, name, at) for name in ("record_size", "offset", "count"))
        records = [bytes(old.data[offset + i * size : offset + (i + 1) * size]) for i in range(count)]
        extra = b"\x55" * grow.get(record.kind, 0)
        tables.append((record.kind, size + len(extra), offset, count, b"".join(r + extra for r in records)))
    tables.insert(1, (99, 24, 0, 2, b"\x33" * 48))
    directory_size = 24 * len(tables)
    position = len(header) + directory_size
    body = bytearray()
    moved = {}
    directory = bytearray()
    for kind, size, offset, count, data in tables:
        moved[kind] = (offset, position + len(body))
        directory += struct.pack(sign + "4I", kind, size, position + len(body), count) + b"\x44" * 8
        body += data + bytes(-len(data) % 8)
    index_size = position + len(body)
    shift = 4096
    assert index_size <= old_index + shift
    image = Image(bytes(header + directory + body), byte_order)
    image.data += bytes(old_index + shift - index_size) + old.data[old_index:]
    changes = {
        "version_minor": fmt.VERSION_MINOR + 1,
        "header_size": len(header),
        "index_size": index_size,
        "directory_offset": len(header),
        "directory_count": len(tables),
        "directory_record_size": 24,
        "compatible_features": 1 << 63,
        "total_size": len(image.data),
    }
    for field, value in changes.items():
        image.set(fmt.HEADER, field, value)

    def move(record: fmt.Record, field: str, start: int, pool: fmt.Record) -> None:
        value = image.get(record, field, start)
        if value:
            image.set(record, field, value - moved[pool.kind][0] + moved[pool.kind][1], start)

    move(fmt.HEADER, "model_version_offset", 0, fmt.STRINGS)
    for number in range(5):
        at = image.record(fmt.PAYLOAD, number)
        image.set(fmt.PAYLOAD, "offset", image.get(fmt.PAYLOAD, "offset", at) + shift, at)
        at = image.record(fmt.TENSOR, number)
        move(fmt.TENSOR, "name_offset", at, fmt.STRINGS)
        move(fmt.TENSOR, "shape_offset", at, fmt.DIMS)
        move(fmt.TENSOR, "strides_offset", at, fmt.DIMS)
    for number in range(3):
        at = image.record(fmt.METADATA, number)
        move(fmt.METADATA, "key_offset", at, fmt.STRINGS)
        move(fmt.METADATA, "value_offset", at, fmt.STRINGS)
    return image


@pytest.mark.parametrize("byte_order", ORDERS)
def test_a_later_minor_version_is_read(tmp_path: Path, byte_order: ByteOrder) -> None:
    tensors = read(tmp_path, later(byte_order).sealed(), keep_metadata=True)
    assert [(t.name, t.shape, t.metadata) for t in tensors] == [(t.name, t.shape, t.metadata) for t in sample().tensors]
    assert payload(tensors[3]) == b"abcde"


@pytest.mark.parametrize("name", sorted(name for name in os.listdir(PACKS) if name.endswith(".pack")))
def test_golden_packs_are_read_for_ever(name: str) -> None:
    package = Package()
    package.add_input(os.path.join(PACKS, name), keep_metadata=True)
    expected = golden_package()
    assert [tensor.name for tensor in package.tensors] == [tensor.name for tensor in expected.tensors]
    names = [] if name.startswith("v0.1") else [module.name for module in expected.modules]
    assert sorted(module.name for module in package.modules) == sorted(names)


def test_an_index_without_bytes_is_refused(tmp_path: Path) -> None:
    image = Image(build_pack(sample()))
    image.set(fmt.HEADER, "incompatible_features", fmt.SIDECAR_FEATURE)
    with pytest.raises(InputError, match=r"they are in a sidecar; name the \.pack beside the library"):
        read(tmp_path, image.sealed())


@pytest.mark.parametrize("bit", [1, 5, 63])
def test_an_incompatible_bit_is_refused_by_number(tmp_path: Path, bit: int) -> None:
    image = Image(build_pack(sample()))
    image.set(fmt.HEADER, "incompatible_features", 1 << bit)
    with pytest.raises(InputError, match=f"not known: bit {bit}; use a newer version"):
        read(tmp_path, image.sealed())


def test_the_damage_of_a_text_mode_transfer_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"magic is damaged.*binary mode"):
        read(tmp_path, build_pack(sample()).replace(b"\r\n", b"\n"))


@pytest.mark.parametrize("size", [4, 8, 12, 100, 127, 128, 300, -1])
def test_a_truncated_pack(tmp_path: Path, size: int) -> None:
    with pytest.raises(InputError, match=r"x\.pack"):
        read(tmp_path, build_pack(sample())[:size])


@pytest.mark.parametrize(("at", "what"), [(80, "header"), (200, "index")])
def test_a_flipped_bit_is_found_by_its_checksum(tmp_path: Path, at: int, what: str) -> None:
    data = bytearray(build_pack(sample()))
    data[at] ^= 1
    with pytest.raises(InputError, match=f"{what}'s CRC-32C is wrong"):
        read(tmp_path, bytes(data))


def head(field: str, value: int) -> Callable[[Image], None]:
    return lambda image: image.set(fmt.HEADER, field, value)


def table(record: fmt.Record, field: str, value: int) -> Callable[[Image], None]:
    return lambda image: image.set(fmt.DIRECTORY_ENTRY, field, value, image.entry(record))


def in_record(record: fmt.Record, number: int, field: str, value: int) -> Callable[[Image], None]:
    return lambda image: image.set(record, field, value, image.record(record, number))


def add(record: fmt.Record, number: int, field: str, value: int) -> Callable[[Image], None]:
    def change(image: Image) -> None:
        at = image.record(record, number)
        image.set(record, field, image.get(record, field, at) + value, at)

    return change


def text(number: int, value: bytes, at: int = 0) -> Callable[[Image], None]:
    """Write over the name of a tensor."""

    def change(image: Image) -> None:
        start = image.get(fmt.TENSOR, "name_offset", image.record(fmt.TENSOR, number)) + at
        image.data[start : start + len(value)] = value

    return change


def first_stride(image: Image) -> None:
    at = image.get(fmt.TENSOR, "strides_offset", image.record(fmt.TENSOR, 4))
    struct.pack_into("<q", image.data, at, 4)


def first_extent(image: Image) -> None:
    at = image.get(fmt.TENSOR, "shape_offset", image.record(fmt.TENSOR, 4))
    struct.pack_into("<q", image.data, at, -2)


# The tensors by name: 0 Größe, 1 a, 2 empty, 3 q, 4 z. The payloads in source order: 0 z, 1 a, 2 empty, 3 Größe, 4 q.
WRONG: list[tuple[Callable[[Image], None], str]] = [
    (head("byte_order", 0x01020305), "byte-order mark"),
    (head("version_major", 2), "a later major version"),
    (head("header_size", 120), "header_size or index_size"),
    (head("header_size", 132), "header_size or index_size"),
    (head("index_size", 100), "header_size or index_size"),
    (head("index_size", 1 << 31), "header_size or index_size"),
    (head("total_size", 1 << 62), "total_size is beyond"),
    (head("total_size", 200), "total_size is beyond"),
    (head("reserved", 1), "reserved bytes"),
    (head("alignment", 3), "alignment is wrong"),
    (head("alignment", 1 << 22), "alignment is wrong"),
    (head("alignment", 64), "alignment is not the strictest"),
    (head("alignment", 512), "alignment is not the strictest"),
    (head("metadata_count", 4), "metadata is out of range"),
    (head("metadata_first", 0xFFFFFFFF), "metadata is out of range"),
    (head("model_version_offset", 8), "outside the pool of strings"),
    (head("model_version_length", 1 << 31), "outside the pool of strings"),
    (head("directory_offset", 132), "out of place"),
    (head("directory_offset", 0), "out of place"),
    (head("directory_count", 1 << 31), "too many tables"),
    (head("directory_count", 4), "pool of strings"),
    (head("directory_record_size", 8), "record size is wrong"),
    (head("directory_record_size", 20), "record size is wrong"),
    (table(fmt.TENSOR, "kind", 1), "occurs twice"),
    (table(fmt.DIMS, "kind", 77), "pool of dims"),
    (table(fmt.METADATA, "record_size", 20), "record size is wrong"),
    (table(fmt.TENSOR, "offset", 0), "out of place"),
    (table(fmt.TENSOR, "offset", 209), "out of place"),
    (table(fmt.TENSOR, "count", 1 << 31), "out of place"),
    (table(fmt.TENSOR, "record_size", 36), "record size is wrong"),
    (table(fmt.TENSOR, "record_size", 0), "record size is wrong"),
    (table(fmt.DIMS, "record_size", 16), "record size is wrong|out of place|overlap"),
    (table(fmt.PAYLOAD, "count", 6), "tables overlap"),
    (in_record(fmt.PAYLOAD, 0, "alignment", 0), "alignment is wrong"),
    (add(fmt.PAYLOAD, 0, "offset", 4), "out of place"),
    (in_record(fmt.PAYLOAD, 0, "offset", 0), "out of place"),
    (in_record(fmt.PAYLOAD, 1, "offset", 256), "out of place"),
    (in_record(fmt.PAYLOAD, 4, "size", 1 << 63), "out of place"),
    (in_record(fmt.PAYLOAD, 4, "size", 17), "total_size is not the end"),
    (in_record(fmt.PAYLOAD, 1, "size", 4), "contradicts dtype and shape"),
    (in_record(fmt.TENSOR, 1, "name_length", 0), "length of the name"),
    (in_record(fmt.TENSOR, 1, "name_length", 65536), "length of the name"),
    (in_record(fmt.TENSOR, 1, "name_length", 2), "outside the pool of strings, or its NUL"),
    (in_record(fmt.TENSOR, 1, "name_offset", 0xFFFFFFFF), "outside the pool of strings"),
    (text(1, b"\xff"), "not UTF-8"),
    (text(1, b"z"), "not unique and sorted"),
    (text(3, b"a"), "not unique and sorted"),
    (in_record(fmt.TENSOR, 1, "dtype_bits", 0), "dtype is wrong"),
    (in_record(fmt.TENSOR, 1, "dtype_lanes", 0), "dtype is wrong"),
    (in_record(fmt.TENSOR, 1, "dtype_lanes", 2), "contradicts dtype and shape"),
    (in_record(fmt.TENSOR, 3, "encoding", 0), "contradicts dtype and shape"),
    (in_record(fmt.TENSOR, 1, "ndim", 65), "too many dimensions"),
    (in_record(fmt.TENSOR, 1, "ndim", 1), "outside the pool of dims"),
    (in_record(fmt.TENSOR, 1, "shape_offset", 8), "without dimensions has a shape"),
    (in_record(fmt.TENSOR, 4, "ndim", 64), "outside the pool of dims"),
    (add(fmt.TENSOR, 4, "shape_offset", 4), "outside the pool of dims"),
    (in_record(fmt.TENSOR, 4, "strides_offset", 0), "outside the pool of dims"),
    (first_stride, "row-major strides"),
    (first_extent, "shape or strides"),
    (in_record(fmt.TENSOR, 1, "payload", 5), "payload's number"),
    (in_record(fmt.TENSOR, 1, "metadata_count", 9), "metadata is out of range"),
    (in_record(fmt.TENSOR, 1, "reserved", 1), "reserved bytes"),
    (add(fmt.TENSOR, 4, "metadata_first", 1), "metadata is out of range"),
    (add(fmt.TENSOR, 0, "metadata_count", 1), "metadata is out of range"),
    (in_record(fmt.METADATA, 1, "key_offset", 8), "outside the pool of strings"),
    (in_record(fmt.METADATA, 1, "key_length", 0), "length of a key"),
    (in_record(fmt.METADATA, 1, "value_length", 1 << 30), "outside the pool of strings"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), WRONG, ids=[f"{i}-{row[1]}" for i, row in enumerate(WRONG)])
def test_a_wrong_field_is_refused(tmp_path: Path, change: Callable[[Image], None], message: str) -> None:
    image = Image(build_pack(sample()))
    change(image)
    try:
        data = image.sealed()
    except struct.error:
        data = bytes(image.data)
    with pytest.raises(InputError, match=rf"x\.pack.*({message})"):
        read(tmp_path, data)


def test_metadata_keys_must_be_sorted(tmp_path: Path) -> None:
    image = Image(build_pack(sample()))
    first, second = image.record(fmt.METADATA, 0), image.record(fmt.METADATA, 1)
    size = fmt.METADATA.size
    image.data[first : first + size], image.data[second : second + size] = (
        image.data[second : second + size], image.data[first : first + size],
    )  # fmt: skip
    with pytest.raises(InputError, match="keys are not unique and sorted"):
        read(tmp_path, image.sealed())


def test_bytes_after_the_pack_do_not_belong_to_it(tmp_path: Path) -> None:
    assert len(read(tmp_path, build_pack(sample()) + b"more")) == 5


def test_a_table_that_is_not_named_is_empty(tmp_path: Path) -> None:
    package = Package()
    package.add_raw("a", b"x")
    image = Image(build_pack(package))
    image.set(fmt.DIRECTORY_ENTRY, "kind", 99, image.entry(fmt.METADATA))
    assert [tensor.name for tensor in read(tmp_path, image.sealed())] == ["a"]


def test_a_header_beyond_its_limit(tmp_path: Path) -> None:
    package = Package()
    for number in range(fmt.MAX_HEADER_SIZE // 32):
        package.add_raw(f"t{number}", b"x")
    image = Image(build_pack(package))
    image.set(fmt.HEADER, "header_size", fmt.MAX_HEADER_SIZE + 8)
    with pytest.raises(InputError, match=f"header_size is too large: expected at most {fmt.MAX_HEADER_SIZE}"):
        read(tmp_path, image.sealed())
