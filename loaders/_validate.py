"""Every rule of docs/pack-format.md that a pack can break outside its payloads: O(index), and no payload is read."""

from __future__ import annotations

import struct
from itertools import pairwise

from emitter.checksum import sha256
from emitter.errors import FormatError, shown
from emitter.loaders._tensor import check_crc
from emitter.loaders._validate_modules import validate_modules
from emitter.pack import format as fmt
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from emitter.loaders._pack import Index, TensorRecord

__all__ = ["validate"]

_RESERVED = fmt.TENSOR.offset("reserved")


def validate(index: Index) -> None:
    """Raise FormatError for the first rule that is broken."""
    header, where = index.header, index.where
    behind_header = index.data[header.header_size : header.index_size]
    check_crc(behind_header, header.index_crc32c, where, "index_crc32c does not match the index")
    _check_tables(index)
    _check_payloads(index)
    _check_pool(index)
    _check_string(index, where, "the model version", (header.model_version_offset, header.model_version_length))
    end = _check_metadata(index, where, header.metadata_first, header.metadata_count, 0)
    schema, end = _check_tensors(index, end)
    schema += validate_modules(
        index,
        lambda where, what, place: _check_string(index, where, what, place, least=1),
        lambda where, first, count, expected: _check_metadata(index, where, first, count, expected),
        end,
    )
    _check_schema(index, schema)


def _check_tables(index: Index) -> None:
    regions = [region for region in index.regions if region[0] < region[1]]
    for (_, end, first), (start, _, second) in pairwise(sorted(regions)):
        if start < end:
            raise FormatError(
                f"{first} and {second} overlap", where=index.where, expected=f"a start of at least {end}", actual=start
            )


def _check_payloads(index: Index) -> None:
    header = index.header
    end, largest = 0 if header.sidecar else header.index_size, 8
    for number in range(index.tables[fmt.PAYLOAD.kind].records):
        payload = index.raw_payload(number)
        where = f"{index.where}: payload {number}"
        index.check_payload(payload, where)
        if payload.offset < end:
            raise FormatError(
                "the payload overlaps the one before, or is out of order",
                where=where,
                expected=f"at least {end}",
                actual=payload.offset,
            )
        end = payload.offset + payload.size
        largest = max(largest, payload.alignment)
    if header.sidecar:
        index.sidecar()
    elif header.total_size != end:
        raise FormatError(
            "total_size is not the end of the last payload", where=index.where, expected=end, actual=header.total_size
        )
    if header.alignment != largest:
        raise FormatError(
            "the alignment is not the largest of a payload",
            where=index.where,
            expected=largest,
            actual=header.alignment,
        )


def _check_pool(index: Index) -> None:
    pool = index.tables[fmt.STRINGS.kind]
    try:
        bytes(index.data[pool.offset : pool.end]).decode()
    except UnicodeDecodeError as error:
        raise FormatError(
            "the pool of strings is not UTF-8", where=f"{index.where}: offset {pool.offset + error.start}"
        ) from error


def _check_tensors(index: Index, metadata_end: int) -> tuple[bytes, int]:
    """Check the tensors in their order; the package's metadata ends with record `metadata_end`.

    Returns what the schema hash hashes of them, and the record behind their metadata.
    """
    table = index.tables[fmt.TENSOR.kind]
    hashed = [b"emitter schema 1\0" + struct.pack("<Q", len(index))]
    previous = b""
    for number in range(len(index)):
        offset, length = index.raw_tensor(number)[:2]
        where = f"{index.where}: tensor record {number}"
        name = _check_string(index, where, "the name", (offset, length), least=1)
        if name <= previous:
            raise FormatError(
                "the name is not behind the one before",
                where=where,
                expected=f"more than {shown(previous)}",
                actual=shown(name),
            )
        previous = name
        record = index.tensor(number)
        shape = _check_tensor(index, record, where)
        metadata_end = _check_metadata(index, where, record.metadata_first, record.metadata_count, metadata_end)
        at = table.offset + number * table.record_size + _RESERVED
        if any(index.data[at : at + fmt.TENSOR.size - _RESERVED]):
            raise FormatError("reserved bytes are not zero", where=f"{where}: offset {at}")
        dtype = record.dtype
        numbers = (dtype.code, dtype.bits, dtype.lanes, record.encoding, len(shape), *shape)
        hashed += [struct.pack("<I", length), name, struct.pack(f"<BBHHH{len(shape)}q", *numbers)]
    return b"".join(hashed), metadata_end


def _check_schema(index: Index, hashed: bytes) -> None:
    schema = int.from_bytes(sha256(hashed)[:8], "little")
    # What a later version adds to a schema, this one cannot hash.
    version = (index.header.version_major, index.header.version_minor)
    if version <= (fmt.VERSION_MAJOR, fmt.VERSION_MINOR) and schema != index.header.schema_hash:
        raise FormatError(
            "schema_hash does not match the tensors and modules",
            where=index.where,
            expected=f"{schema:#018x}",
            actual=f"{index.header.schema_hash:#018x}",
        )


def _check_tensor(index: Index, record: TensorRecord, where: str) -> tuple[int, ...]:
    dtype = record.dtype
    if not dtype.element_bits:
        raise FormatError("the element type has no bits", where=where, actual=dtype)
    shape, _ = index.shape(record, where)
    if not record.ndim and (record.shape_offset or record.strides_offset):
        raise FormatError("a tensor without dimensions has offsets of them", where=where, expected=0)
    payload = index.payload(record.payload, where)
    if not record.encoding and payload.size != dtype.nbytes(shape):
        raise FormatError(
            f"the payload is not {dtype} of shape {list(shape)}",
            where=where,
            expected=f"{dtype.nbytes(shape)} bytes",
            actual=payload.size,
        )
    return shape


def _check_metadata(index: Index, where: str, first: int, count: int, expected: int) -> int:
    """Check an owner's metadata, which begins with record `expected`; return the record behind it."""
    previous = b""
    for key_offset, key_length, value_offset, value_length in index.raw_metadata(first, count, where):
        key = _check_string(index, where, "a metadata key", (key_offset, key_length), least=1)
        _check_string(index, where, "a metadata value", (value_offset, value_length), most=index.header.index_size)
        if key <= previous:
            raise FormatError(
                "a metadata key is not behind the one before",
                where=where,
                expected=f"more than {shown(previous)}",
                actual=shown(key),
            )
        previous = key
    if first != expected:
        raise FormatError("metadata_first is not behind the owner before", where=where, expected=expected, actual=first)
    return first + count


def _check_string(
    index: Index, where: str, what: str, place: tuple[int, int], *, least: int = 0, most: int | None = None
) -> bytes:
    """Check the string at `place` (offset, length) and return its bytes; `most` None is the limit on names."""
    offset, length = place
    most = fmt.MAX_NAME_BYTES if most is None else most
    pool = index.tables[fmt.STRINGS.kind]
    if not least <= length <= most:
        raise FormatError(
            f"the length of {what} is out of range", where=where, expected=f"{least} to {most}", actual=length
        )
    if offset < pool.offset or offset + length >= pool.end:
        raise FormatError(
            f"{what} is not in the pool of strings",
            where=where,
            expected=f"offsets {pool.offset} to {pool.end}, with a NUL behind it",
            actual=f"offset {offset}, {length} bytes",
        )
    text = bytes(index.data[offset : offset + length + 1])
    if text.find(b"\0") != length:
        raise FormatError(f"{what} is not ended by its only NUL", where=where, actual=shown(text))
    index.string(what, offset, length)  # UTF-8 from its first byte: it begins at a character
    return text[:-1]
