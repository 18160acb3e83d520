"""What the tests of the loader share: packs of every kind of tensor, and packs that were changed afterwards."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from emitter.checksum import crc32c
from emitter.dtypes import BY_NAME, DType
from emitter.pack import format as fmt
from emitter.package import BufferSource, Extent, Package, Tensor
from tests.support import build_pack

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emitter.package import ByteOrder

__all__ = ["add", "directory", "later_pack", "other_pack", "sample", "sample_pack", "seal", "set_field"]


def add(
    package: Package,
    name: str,
    dtype: str | DType,
    shape: tuple[int, ...],
    data: bytes,
    *,
    alignment: int | None = None,
    encoding: int = 0,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Add little-endian `data` as a tensor."""
    kind = BY_NAME[dtype].dtype if isinstance(dtype, str) else dtype
    source = BufferSource(name, memoryview(data))
    package.add(Tensor(name, kind, shape, Extent(source, 0, len(data)), alignment, encoding, metadata or {}))


def sample() -> Package:
    """Return a package with a tensor of each kind that a loader treats in its own way."""
    package = Package(metadata={"licence": "none", "author": "Zoë"}, model_version="2.0-β")
    add(package, "w", "float32", (2, 3), struct.pack("<6f", *range(6)), metadata={"layer": "first", "axis": "0"})
    add(package, "b", "bfloat16", (3,), struct.pack("<3H", 0x3F80, 0x4000, 0xC040))
    add(package, "nibbles", "int4", (3,), bytes([0xF1, 0x07]))
    add(package, "scalar", "int64", (), struct.pack("<q", -5))
    add(package, "empty", "float64", (0, 4), b"")
    add(package, "page", "uint8", (5,), b"abcde", alignment=4096)
    add(package, "blocks", "float32", (64,), bytes(range(34)), encoding=2)
    add(package, "größe", "complex64", (1,), struct.pack("<2f", 1, -2))
    return package


def sample_pack(byte_order: ByteOrder = "little") -> bytes:
    """Return the pack of `sample`."""
    return build_pack(sample(), byte_order)


def other_pack(byte_order: ByteOrder = "little") -> bytes:
    """Return a pack with nothing but the bytes of `other`, for files that hold two."""
    package = Package()
    package.add_raw("other", b"bytes")
    return build_pack(package, byte_order)


def _order(pack: bytes | bytearray) -> str:
    return "<" if pack[8] == 4 else ">"


def seal(pack: bytearray) -> bytes:
    """Return the pack with both checksums of its index made right again."""
    order = _order(pack)
    header_size = struct.unpack_from(order + "I", pack, fmt.HEADER.offset("header_size"))[0]
    index_size = struct.unpack_from(order + "I", pack, fmt.HEADER.offset("index_size"))[0]
    struct.pack_into(order + "I", pack, fmt.HEADER.offset("index_crc32c"), crc32c(bytes(pack[header_size:index_size])))
    struct.pack_into(order + "I", pack, fmt.HEADER_CRC_OFFSET, 0)
    struct.pack_into(order + "I", pack, fmt.HEADER_CRC_OFFSET, crc32c(bytes(pack[:header_size])))
    return bytes(pack)


def set_field(pack: bytes, record: fmt.Record, name: str, value: int, *, number: int = 0) -> bytes:
    """Return the pack with one field of record `number` of a table (or of the header) changed, and resealed."""
    changed = bytearray(pack)
    field = next(field for field in record.fields if field.name == name)
    start = 0
    if record is fmt.DIRECTORY_ENTRY:
        start = fmt.HEADER.size + number * record.size
    elif record is not fmt.HEADER:
        start = directory(pack)[record.kind][1] + number * record.size
    code = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i64": "q"}[field.type]
    struct.pack_into(_order(pack) + code, changed, start + record.offset(name), value)
    return seal(changed)


def directory(pack: bytes) -> dict[int, tuple[int, int, int]]:
    """Return (record_size, offset, count) of each table by kind."""
    order = _order(pack)
    count = struct.unpack_from(order + "I", pack, fmt.HEADER.offset("directory_count"))[0]
    rows = [struct.unpack_from(order + "4I", pack, fmt.HEADER.size + 16 * number) for number in range(count)]
    return {kind: (size, offset, records) for kind, size, offset, records in rows}


def later_pack(pack: bytes, *, compatible: int = 1 << 40, incompatible: int = 0) -> bytes:
    """Return the pack as a later version might write it.

    It has a longer header and longer records, a table of an unknown kind, longer directory entries, and feature bits.
    """
    order = _order(pack)
    tables = directory(pack)
    old_size = struct.unpack_from(order + "I", pack, fmt.HEADER.offset("index_size"))[0]
    shift = 8192  # a multiple of every alignment in the sample
    assert len(pack) < 1 << 20

    index = bytearray(pack[:old_size])
    rows = []
    for kind, (size, offset, count) in {**tables, 77: (24, 0, 2)}.items():
        if kind in (fmt.DIMS.kind, fmt.STRINGS.kind):
            rows.append((kind, size, offset, count))
            continue
        at = len(index)
        for number in range(count):
            record = (
                bytearray(pack[offset + number * size : offset + (number + 1) * size])
                if offset
                else bytearray(b"?" * size)
            )
            if kind == fmt.PAYLOAD.kind:
                struct.pack_into(order + "Q", record, 0, struct.unpack_from(order + "Q", record)[0] + shift)
            index += record + b"later!!!" * 2
        index += bytes(-len(index) % 8)
        rows.append((kind, size + 16, at, count))
    start = len(index)
    for row in rows:
        index += struct.pack(order + "4I", *row) + b"entry..."
    header_size = fmt.HEADER.size + 16  # over the old directory
    index[fmt.HEADER.size : header_size] = b"longer header..."
    assert len(index) <= old_size + shift
    image = bytearray(index + bytes(old_size + shift - len(index)) + pack[old_size:])
    for name, code, value in (
        ("version_minor", "H", 9),
        ("header_size", "I", header_size),
        ("total_size", "Q", len(image)),
        ("index_size", "I", len(index)),
        ("compatible_features", "Q", compatible),
        ("incompatible_features", "Q", incompatible),
        ("directory_offset", "I", start),
        ("directory_count", "I", len(rows)),
        ("directory_record_size", "I", 24),
    ):
        struct.pack_into(order + code, image, fmt.HEADER.offset(name), value)
    return seal(image)
