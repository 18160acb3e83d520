"""A package with a tree of five modules that share constants, imports and bytes, for tests of every reader."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from emitter import Package
from emitter.checksum import crc32c
from emitter.pack import format as fmt
from tests.support import build_pack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.package import ByteOrder

__all__ = ["GRAPH", "PLACES", "changed_module_tables", "module_package", "module_tables_of", "with_checksums"]

GRAPH = b'{"nodes": ["conv", "relu"]}'

# What a place says of itself, and the number of the alternative of the module `engine` that fits; None for none.
PLACES: list[tuple[dict[str, str], int]] = [
    ({"sm": "87", "tensorrt": "10.3.0"}, 0),
    ({"sm": "87", "tensorrt": "10.10"}, 0),
    ({"sm": "87", "tensorrt": "11"}, 2),  # at the upper version, which is excluded
    ({"sm": "87", "tensorrt": "10.2.99"}, 2),
    ({"sm": "87"}, 2),
    ({"sm": "087", "tensorrt": "10.3"}, 2),  # text is compared as text
    ({"sm": "90"}, 2),
    ({"sm": "90", "driver": "550.54.15"}, 1),
    ({"sm": "90", "driver": "0550.54"}, 1),
    ({"sm": "90", "driver": "549.999999999999999999999999"}, 2),
    ({"sm": "90", "driver": "551-beta"}, 2),  # not a version
    ({"sm": "90", "driver": ""}, 2),
    ({"sm": "90", "driver": "550."}, 2),
    ({}, 2),
]


def module_package() -> Package:
    """Return the package: root -> (engine -> graph, device -> graph), tables; `w` is taken by two modules."""
    package = Package(metadata={"licence": "none"}, model_version="1")
    package.add_tensor("w", np.arange(12, dtype=np.float32).reshape(3, 4))
    package.add_tensor("b", np.arange(4, dtype=np.float64))
    package.add_tensor("scale", np.array(0.5, np.float32), alignment=256)
    graph = package.add_module("graph", "graph", GRAPH, schema_version=2, functions={"plan": ["w", "b"]})
    engine = package.add_module(
        "engine",
        "tensorrt",
        b"engine for sm_87 " * 40,
        requires={"sm": "== 87", "tensorrt": ">= 10.3, < 11"},
        imports=[graph],
        functions={"infer": ["b", "w", "w"], "calibrate": ["scale"]},
        metadata={"precision": "fp16"},
        alignment=256,
    )
    package.add_alternative(engine, "tensorrt", b"engine for sm_90", requires={"sm": "90", "driver": ">=550.54"})
    package.add_alternative("engine", "graph", GRAPH, schema_version=2)
    device = package.add_module("device", "cuda", b"\x50\xed\x55\xba", imports=["graph"], functions={"kernel": ["w"]})
    tables = package.add_module("tables", "raw", b"", metadata={"empty": ""})
    package.add_module("root", "library", b"root", imports=[engine, device, tables])
    return package


def module_tables_of(data: bytes, order: ByteOrder) -> tuple[int, int]:
    """Return where the tables of modules begin and end in a pack."""
    sign = "<" if order == "little" else ">"
    count = int.from_bytes(data[84:88], order)
    kinds = {record.kind: record for record in fmt.MODULE_RECORDS}
    ranges = []
    for number in range(count):
        kind, size, offset, records = struct.unpack_from(f"{sign}4I", data, fmt.HEADER.size + 16 * number)
        if kind in kinds:
            ranges.append((offset, offset + size * records))
    return min(ranges)[0], max(ranges)[1]


def changed_module_tables(order: ByteOrder) -> Iterator[tuple[int, bytes]]:
    """Yield packs in which a byte of the tables of modules is another, and which byte that is, from 1."""
    data = build_pack(module_package(), order)
    start, end = module_tables_of(data, order)
    for at in range(start, end):
        for value in {0, 1, data[at] ^ 1, data[at] ^ 0x80, 0xFF} - {data[at]}:
            changed = bytearray(data)
            changed[at] = value
            yield at - start + 1, with_checksums(changed, order)


def with_checksums(data: bytearray, order: ByteOrder) -> bytes:
    """Return a pack whose index has been changed, with checksums that fit again."""
    index_size = int.from_bytes(data[32:36], order)
    data[36:40] = crc32c(bytes(data[fmt.HEADER.size : index_size])).to_bytes(4, order)
    data[20:24] = bytes(4)
    data[20:24] = crc32c(bytes(data[: fmt.HEADER.size])).to_bytes(4, order)
    return bytes(data)
