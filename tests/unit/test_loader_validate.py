"""Each rule of the pack format that `validate` enforces, broken alone in a pack whose checksums are right."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import pytest

from emitter.errors import EmitterError, FormatError
from emitter.loaders import load
from emitter.pack import format as fmt
from emitter.package import Package
from tests.loader_support import add, directory, sample_pack, seal, set_field
from tests.support import build_pack

if TYPE_CHECKING:
    from emitter.package import ByteOrder


class Rule(NamedTuple):
    """A field that is set to a wrong value, and what the error says."""

    message: str
    record: fmt.Record
    field: str
    value: int
    number: int = 0


# Tensor records of the sample: b blocks empty größe nibbles page scalar w.
# Its payload records: w b nibbles scalar empty page blocks größe.
RULES = (
    Rule("byte_order", fmt.HEADER, "byte_order", 0x01020305),
    Rule("header_size is out of range", fmt.HEADER, "header_size", 120),
    Rule("the alignment is not the largest", fmt.HEADER, "alignment", 8192),
    Rule("schema_hash does not match", fmt.HEADER, "schema_hash", 1),
    Rule("the model version is not in the pool", fmt.HEADER, "model_version_offset", 0),
    Rule("the model version is not ended", fmt.HEADER, "model_version_length", 2),
    Rule("metadata is not in its table", fmt.HEADER, "metadata_first", 4),
    Rule("metadata_first is not behind", fmt.HEADER, "metadata_count", 1),
    Rule("metadata_first is not behind", fmt.TENSOR, "metadata_first", 1),
    Rule("the length of the model version", fmt.HEADER, "model_version_length", 65536),
    Rule("the length of a metadata key", fmt.METADATA, "key_length", 0),
    Rule("record_size of table 2", fmt.DIRECTORY_ENTRY, "record_size", 44, 1),
    Rule("a metadata key is not behind", fmt.HEADER, "metadata_count", 4),
    Rule("directory_offset is wrong", fmt.HEADER, "directory_offset", 132),
    Rule("the directory is not in the index", fmt.HEADER, "directory_count", 1000),
    Rule("directory_count is out of range", fmt.HEADER, "directory_count", 1 << 20),
    Rule("directory_record_size is wrong", fmt.HEADER, "directory_record_size", 12),
    Rule("reserved bytes are not zero", fmt.HEADER, "reserved", 1),
    Rule("occurs twice", fmt.DIRECTORY_ENTRY, "kind", fmt.DIMS.kind, 4),
    Rule("record_size of table 1", fmt.DIRECTORY_ENTRY, "record_size", 20),
    Rule("record_size of table 4", fmt.DIRECTORY_ENTRY, "record_size", 4, 3),
    Rule("table 1 is not in the index", fmt.DIRECTORY_ENTRY, "count", 1 << 31),
    Rule("the offset of table 1 is wrong", fmt.DIRECTORY_ENTRY, "offset", 8),
    Rule("overlap", fmt.DIRECTORY_ENTRY, "offset", 136),
    Rule("the payload is not in the pack", fmt.PAYLOAD, "offset", 0),
    Rule("the payload is not in the pack", fmt.PAYLOAD, "size", 1 << 63),
    Rule("the payload's alignment is wrong", fmt.PAYLOAD, "alignment", 3),
    Rule("the payload's alignment is wrong", fmt.PAYLOAD, "alignment", 0),
    Rule("the payload's alignment is wrong", fmt.PAYLOAD, "alignment", 1 << 22),
    Rule("the payload is not aligned", fmt.PAYLOAD, "alignment", 1 << 21),
    Rule("overlaps the one before", fmt.PAYLOAD, "size", 100),
    Rule("the payload is not float32 of shape", fmt.PAYLOAD, "size", 23),
    Rule("the name is not in the pool", fmt.TENSOR, "name_offset", 0),
    Rule("the name is not ended", fmt.TENSOR, "name_length", 2),
    Rule("the length of the name is out of range", fmt.TENSOR, "name_length", 0),
    Rule("the element type has no bits", fmt.TENSOR, "dtype_bits", 0),
    Rule("the element type has no bits", fmt.TENSOR, "dtype_lanes", 0),
    Rule("the payload is not", fmt.TENSOR, "dtype_bits", 8),
    Rule("the payload is not", fmt.TENSOR, "encoding", 0, 1),
    Rule("schema_hash", fmt.TENSOR, "dtype_code", 2),
    Rule("schema_hash", fmt.TENSOR, "encoding", 3, 1),
    Rule("too many dimensions", fmt.TENSOR, "ndim", 65),
    Rule("no such payload", fmt.TENSOR, "payload", 8),
    Rule("the payload is not", fmt.TENSOR, "payload", 0),
    Rule("the shape is not in the pool", fmt.TENSOR, "shape_offset", 128),
    Rule("the strides is not in the pool", fmt.TENSOR, "strides_offset", 4),
    Rule("has offsets", fmt.TENSOR, "shape_offset", 8, 6),
    Rule("metadata is not in its table", fmt.TENSOR, "metadata_count", 5),
    Rule("reserved bytes are not zero", fmt.TENSOR, "reserved", 1),
    Rule("a metadata key is not in the pool", fmt.METADATA, "key_offset", 0),
    Rule("a metadata value is not ended", fmt.METADATA, "value_length", 1),
    Rule("a dimension is negative|not row-major", fmt.DIMS, "value", -1),
    Rule("not row-major", fmt.DIMS, "value", 7, 1),
)  # fmt: skip


@pytest.mark.parametrize("byte_order", ["little", "big"])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.record.name}-{rule.field}-{rule.value}")  # fmt: skip
def test_a_broken_rule_is_named(rule: Rule, byte_order: ByteOrder) -> None:
    good = sample_pack(byte_order)
    load(good).validate()
    with pytest.raises(FormatError, match=rule.message):
        load(set_field(good, rule.record, rule.field, rule.value, number=rule.number)).validate()


def test_total_size_ends_with_the_last_payload() -> None:
    pack = sample_pack()
    with pytest.raises(FormatError, match="total_size is not the end"):
        load(set_field(pack, fmt.HEADER, "total_size", len(pack) + 8) + bytes(8)).validate()


def test_an_unsorted_or_repeated_name_is_found() -> None:
    package = Package()
    for name in ("aa", "ab", "ac"):
        package.add_raw(name, b"same")
    pack = build_pack(package)
    for old, new in ((b"\0ab\0", b"\0ad\0"), (b"\0ab\0", b"\0aa\0")):
        assert pack.count(old) == 1
        with pytest.raises(FormatError, match="the name is not behind the one before"):
            load(seal(bytearray(pack.replace(old, new)))).validate()
    with pytest.raises(FormatError, match="the pool of strings is not UTF-8"):
        load(seal(bytearray(pack.replace(b"\0ab\0", b"\0a\xff\0")))).validate()


def test_checksums_of_the_index_are_compared() -> None:
    pack = bytearray(sample_pack())
    pack[fmt.HEADER.offset("compatible_features")] ^= 1
    with pytest.raises(FormatError, match="header_crc32c"):
        load(pack)
    pack = bytearray(sample_pack())
    pack[directory(bytes(pack))[fmt.STRINGS.kind][1]] ^= 1
    with pytest.raises(FormatError, match="index_crc32c"):
        load(pack).validate()


@pytest.mark.parametrize("shape", [(0, 1 << 59), (1 << 59, 0), (0,) * 64, (1,) * 64])
def test_odd_shapes_are_valid_or_refused_in_words(shape: tuple[int, ...]) -> None:
    package = Package()
    add(package, "t", "uint8", shape, b"" if 0 in shape else b"x")
    library = load(build_pack(package))
    library.check()
    assert library.tensor("t").shape == shape
    try:
        assert library["t"].shape == shape
    except EmitterError as error:
        assert "numpy cannot hold the shape" in str(error)


def test_an_empty_package_is_valid() -> None:
    library = load(build_pack(Package()))
    library.check()
    assert library.names() == []
    assert library.metadata == {}
    assert library.model_version == ""


def test_every_byte_of_the_index_counts() -> None:
    """No byte before the payloads may change without a complaint; padding is covered by the checksum."""
    pack = sample_pack()
    index_size = struct.unpack_from("<I", pack, fmt.HEADER.offset("index_size"))[0]
    for offset in range(index_size):
        changed = bytearray(pack)
        changed[offset] ^= 0x10
        with pytest.raises(EmitterError):
            load(changed).validate()
