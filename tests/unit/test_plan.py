"""The layout of a pack."""

from __future__ import annotations

import struct

import pytest

from emitter import Package
from emitter.checksum import crc32c
from emitter.dtypes import DType
from emitter.errors import LayoutError
from emitter.pack import format as fmt
from emitter.pack import plan as plan_module
from emitter.pack.plan import plan_pack, row_major_strides
from emitter.package import BufferSource, ByteOrder, Extent, Tensor
from tests.support import build_pack

FLOAT = DType(2, 32)


def package_of(*sizes: int, alignment: int | None = None) -> Package:
    package = Package()
    for number, size in enumerate(sizes):
        package.add_raw(f"t{number}", bytes([number % 251]) * size, alignment=alignment)
    return package


def field(pack: bytes, name: str, order: str = "<") -> int:
    record = next(field for field in fmt.HEADER.fields if field.name == name)
    code = {"u16": "H", "u32": "I", "u64": "Q"}[record.type]
    return int(struct.unpack_from(order + code, pack, fmt.HEADER.offset(name))[0])


@pytest.mark.parametrize("record", fmt.RECORDS, ids=lambda record: record.name)
def test_fields_are_naturally_aligned_and_fill_the_record(record: fmt.Record) -> None:
    for one in record.fields:
        assert record.offset(one.name) % (one.size // one.count) == 0, one.name
    assert struct.calcsize("<" + record.struct_format) == record.size
    assert record.size % 8 == 0 or record is fmt.STRINGS


@pytest.mark.parametrize("order", ["little", "big"])
def test_the_index_states_its_own_checksums(order: ByteOrder) -> None:
    pack = build_pack(package_of(3, 400), order)
    char = "<" if order == "little" else ">"
    header = bytearray(pack[: fmt.HEADER.size])
    struct.pack_into("I", header, fmt.HEADER_CRC_OFFSET, 0)
    assert field(pack, "header_crc32c", char) == crc32c(bytes(header))
    index_size = field(pack, "index_size", char)
    assert field(pack, "index_crc32c", char) == crc32c(pack[fmt.HEADER.size : index_size])
    assert field(pack, "byte_order", char) == 0x01020304
    assert field(pack, "total_size", char) == len(pack)


@pytest.mark.parametrize("alignment", [1, 8, 64, 4096, 1 << 16, 1 << 21])
@pytest.mark.parametrize("delta", [-1, 0, 1])
def test_each_payload_is_aligned_and_none_overlap(alignment: int, delta: int) -> None:
    package = package_of(0, 1, max(alignment + delta, 0), 5, alignment=alignment)
    plan = plan_pack(package, "little")
    end = plan.index_size
    for payload, wanted in zip(plan.payloads, plan.payload_alignments, strict=True):
        assert payload.offset % alignment == 0
        assert wanted == alignment
        assert payload.offset >= end
        end = payload.offset + payload.size
    assert plan.total_size == end
    assert plan.alignment == max(alignment, 8)


@pytest.mark.parametrize(("size", "wanted"), [((1 << 20) - 1, 64), (1 << 20, 64 << 10), (64 << 20, 64 << 10)])
def test_the_payloads_of_a_large_pack_begin_where_copying_is_fast(size: int, wanted: int) -> None:
    package = Package()
    source = BufferSource("virtual", memoryview(b""))
    package.add(Tensor("t", DType(1, 8), (size,), Extent(source, 0, size)))
    start = plan_pack(package, "little").payload_start
    assert start % wanted == 0
    assert start <= max(wanted, 512)


def test_sizes_beyond_32_bits() -> None:
    package = Package()
    source = BufferSource("virtual", memoryview(b""))
    for name, size in (("a", (1 << 32) - 1), ("b", 1 << 32), ("c", (1 << 31) + 1)):
        package.add(Tensor(name, DType(1, 8), (size,), Extent(source, 0, size)))
    plan = plan_pack(package, "little")
    offsets = [payload.offset for payload in plan.payloads]
    assert offsets[1] == offsets[0] + (1 << 32)
    assert offsets[2] == offsets[1] + (1 << 32)
    assert plan.total_size == offsets[2] + (1 << 31) + 1


def test_records_are_sorted_by_the_bytes_of_the_name_and_payloads_are_in_source_order() -> None:
    package = Package()
    names = ["b", "a", "é", "Z", "aa", "a.b", "\U0001f600"]
    for name in names:
        package.add_raw(name, name.encode())
    pack = build_pack(package)
    plan = plan_pack(package, "little")
    assert [plan.index_of[name] for name in names] == list(range(len(names)))
    tensors = table(pack, fmt.TENSOR)
    found = [pack[offset : offset + length] for offset, length, *_ in tensors]
    assert found == sorted(name.encode() for name in names)
    assert all(pack[offset + length] == 0 for offset, length, *_ in tensors)


def table(pack: bytes, record: fmt.Record) -> list[tuple[int, ...]]:
    for entry in range(field(pack, "directory_count")):
        at = field(pack, "directory_offset") + 16 * entry
        kind, size, offset, count = struct.unpack_from("<4I", pack, at)
        if kind == record.kind:
            return [struct.unpack_from("<" + record.struct_format, pack, offset + size * i) for i in range(count)]
    raise AssertionError(record.name)


def test_equal_payloads_are_stored_once_with_the_stricter_alignment() -> None:
    package = Package()
    package.add_raw("first", b"same", alignment=8)
    package.add_raw("second", b"same", alignment=256)
    package.add_raw("third", b"else")
    plan = plan_pack(package, "little", same_as={"second": "first"})
    assert plan.index_of == {"first": 0, "second": 0, "third": 1}
    assert plan.payload_alignments == [256, 64]
    assert plan.payloads[0].offset % 256 == 0


@pytest.mark.parametrize(
    ("dtype", "source_order", "target_order", "unit"),
    [
        (FLOAT, "little", "little", 1),
        (FLOAT, "little", "big", 4),
        (FLOAT, "big", "little", 4),
        (FLOAT, "big", "big", 1),
        (DType(5, 64), "little", "big", 4),
        (DType(0, 4), "little", "big", 1),
        (DType(1, 8), "little", "big", 1),
    ],
)
def test_elements_are_swapped_if_and_only_if_the_orders_differ(
    dtype: DType, source_order: ByteOrder, target_order: ByteOrder, unit: int
) -> None:
    package = Package()
    extent = Extent(BufferSource("memory", memoryview(bytes(16))), 0, 16, source_order)
    package.add(Tensor("t", dtype, (128 // dtype.bits,), extent))
    assert plan_pack(package, target_order).payloads[0].swap_unit == unit


def test_block_formats_are_never_swapped() -> None:
    package = Package()
    extent = Extent(BufferSource("memory", memoryview(bytes(16))), 0, 16)
    package.add(Tensor("t", FLOAT, (100,), extent, encoding=0x8000))
    plan = plan_pack(package, "big")
    assert plan.payloads[0].swap_unit == 1
    assert plan.payloads[0].size == 16


def test_the_schema_hash_depends_on_the_schema_alone() -> None:
    def schema(order: ByteOrder = "little", **tensors: tuple[DType, tuple[int, ...]]) -> int:
        package = Package(model_version="7", metadata={"k": "v"})
        for name, (dtype, shape) in tensors.items():
            size = dtype.nbytes(shape)
            package.add(Tensor(name, dtype, shape, Extent(BufferSource("memory", memoryview(bytes(size))), 0, size)))
        return plan_pack(package, order).schema

    base = schema(a=(FLOAT, (2, 3)), b=(FLOAT, ()))
    assert schema("big", b=(FLOAT, ()), a=(FLOAT, (2, 3))) == base
    others = [
        schema(a=(FLOAT, (3, 2)), b=(FLOAT, ())),
        schema(a=(FLOAT, (6,)), b=(FLOAT, ())),
        schema(a=(DType(0, 32), (2, 3)), b=(FLOAT, ())),
        schema(a=(FLOAT, (2, 3)), c=(FLOAT, ())),
        schema(a=(FLOAT, (2, 3))),
    ]
    assert len({base, *others}) == 6


def test_strides_are_numpys() -> None:
    np = pytest.importorskip("numpy")
    for shape in [(), (3,), (2, 3, 4), (2, 1, 3), (0, 2), (2, 0, 3)]:
        expected = [stride // 8 for stride in np.zeros(shape).strides] if 0 not in shape else None
        if expected is not None:
            assert row_major_strides(shape) == expected
    assert row_major_strides((2, 0, 3)) == [3, 3, 1]


def test_an_index_beyond_its_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "_U32_MAX", 400)
    plan_pack(package_of(1), "little")
    with pytest.raises(LayoutError, match="index is too large"):
        plan_pack(package_of(1, 1, 1, 1), "little")


def test_equal_strings_and_shapes_are_stored_once() -> None:
    package = Package()
    for number in range(100):
        package.add(
            Tensor(
                f"{number}",
                FLOAT,
                (2, 3, 4),
                Extent(BufferSource("m", memoryview(bytes(96))), 0, 96),
                metadata={"k": "v"},
            )
        )
    pack = build_pack(package)
    assert len(table(pack, fmt.DIMS)) == 6
    assert len(table(pack, fmt.METADATA)) == 100
    assert len({key for key, *_ in table(pack, fmt.METADATA)}) == 1
