"""Reads and checks the header of a pack: fixed work, whatever the size of the pack."""

from __future__ import annotations

import struct

from emitter.checksum import crc32c
from emitter.errors import FormatError, LoadError
from emitter.pack import format as fmt
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from emitter.package import ByteOrder

__all__ = ["Header", "read_header"]

_MARK_OFFSET = fmt.HEADER.offset("byte_order")
_HEADER = {order: struct.Struct(order + fmt.HEADER.struct_format) for order in "<>"}


class Header(NamedTuple):
    """The header's fields, under their own names, and the byte order that its mark says."""

    byte_order: ByteOrder
    version_major: int
    version_minor: int
    header_size: int
    total_size: int
    index_size: int
    index_crc32c: int
    schema_hash: int
    model_version_offset: int
    model_version_length: int
    metadata_first: int
    metadata_count: int
    directory_offset: int
    directory_count: int
    directory_record_size: int
    alignment: int
    sidecar: bool


def read_header(data: memoryview, where: str) -> Header:
    """Read and check the header of the pack that begins `data`, which may be longer than the pack.

    `sidecar` says that it is an index pack, whose payloads are in another file. Raises FormatError for a header that
    breaks the format, LoadError for one that is truncated, or that this version cannot read.
    """
    size = fmt.HEADER.size
    if data[: len(fmt.MAGIC)] != fmt.MAGIC:
        raise FormatError(
            "not a pack",
            where=where,
            expected=f"magic {fmt.MAGIC.hex(' ')}",
            actual=bytes(data[: len(fmt.MAGIC)]).hex(" "),
        )
    if len(data) < size:
        raise _truncated(where, size, len(data))
    mark = bytes(data[_MARK_OFFSET : _MARK_OFFSET + 4])
    orders = {fmt.BYTE_ORDER_MARK.to_bytes(4, "little"): "<", fmt.BYTE_ORDER_MARK.to_bytes(4, "big"): ">"}
    order = orders.get(mark)
    if order is None:
        raise FormatError(
            "byte_order is no byte-order mark",
            where=where,
            expected="01 02 03 04 in either order",
            actual=mark.hex(" "),
        )
    (
        _, _, version_major, version_minor, header_size, header_crc, total_size, index_size, index_crc,
        _, incompatible, schema_hash, *rest,
    ) = _HEADER[order].unpack_from(data)  # fmt: skip
    if version_major > fmt.VERSION_MAJOR:
        raise LoadError(
            "the pack has a later major version",
            where=where,
            expected=f"at most {fmt.VERSION_MAJOR}.x",
            actual=f"{version_major}.{version_minor}",
            hint="use a newer release of emitter, or emit the file again",
        )
    if not size <= header_size <= fmt.MAX_HEADER_SIZE or header_size % 8:
        raise FormatError(
            "header_size is out of range",
            where=where,
            expected=f"a multiple of 8, {size} to {fmt.MAX_HEADER_SIZE}",
            actual=header_size,
        )
    if header_size > len(data):
        raise _truncated(where, header_size, len(data))
    at = fmt.HEADER_CRC_OFFSET
    found_crc = crc32c(bytes(data[:at]) + bytes(4) + bytes(data[at + 4 : header_size]))
    if found_crc != header_crc:
        raise FormatError(
            "header_crc32c does not match the header",
            where=where,
            expected=f"{header_crc:#010x}",
            actual=f"{found_crc:#010x}",
        )
    sidecar = bool(incompatible & fmt.SIDECAR_FEATURE)
    unknown = incompatible & ~fmt.KNOWN_INCOMPATIBLE & ~fmt.SIDECAR_FEATURE
    if unknown:
        bits = ", ".join(str(bit) for bit in range(64) if unknown >> bit & 1)
        raise LoadError(
            f"the pack needs a feature that this version does not know: incompatible feature bit {bits}",
            where=where,
            hint="use a newer release of emitter",
        )
    reserved = fmt.HEADER.offset("reserved")
    if any(data[reserved:size]):
        raise FormatError("reserved bytes are not zero", where=f"{where}: offset {reserved}")
    byte_order: ByteOrder = "little" if order == "<" else "big"
    sizes = (version_major, version_minor, header_size, total_size, index_size, index_crc)
    header = Header._make((byte_order, *sizes, schema_hash, *rest, sidecar))
    if not header_size <= index_size <= total_size or index_size % 8:
        raise FormatError(
            "index_size is out of range",
            where=where,
            expected=f"a multiple of 8, {header_size} to total_size {total_size}",
            actual=index_size,
        )
    if sidecar and total_size != index_size:
        raise FormatError(
            "total_size of an index pack is not its index_size", where=where, expected=index_size, actual=total_size
        )
    if total_size > len(data):
        raise _truncated(where, total_size, len(data))
    return header


def _truncated(where: str, expected: int, actual: int) -> LoadError:
    return LoadError(
        "the pack is truncated",
        where=where,
        expected=f"{expected} bytes",
        actual=actual,
        hint="copy or emit the file again",
    )
