"""Reads the index of a pack in place: opening is O(1), and no table of tensors is ever built.

The records are those of `emitter.pack.format` (normative text: docs/pack-format.md). Nothing that the bytes say is used
before it has been compared with the bytes that are there.
"""

from __future__ import annotations

import struct

from emitter.dtypes import DType
from emitter.errors import FormatError, LoadError, shown
from emitter.loaders._header import read_header
from emitter.pack import format as fmt
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Index", "Payload", "SidecarRecord", "Table", "TensorRecord"]

_ENTRY = {order: struct.Struct(order + fmt.DIRECTORY_ENTRY.struct_format) for order in "<>"}
_PAYLOAD = {order: struct.Struct(order + fmt.PAYLOAD.struct_format) for order in "<>"}
_TENSOR = {order: struct.Struct(order + fmt.TENSOR.struct_format) for order in "<>"}
_METADATA = {order: struct.Struct(order + fmt.METADATA.struct_format) for order in "<>"}
_SIDECAR = {order: struct.Struct(order + fmt.SIDECAR.struct_format) for order in "<>"}

# Kind: (the record as this version knows it, what a record's size is a multiple of, whether records may grow)
_TABLES = {
    fmt.PAYLOAD.kind: (fmt.PAYLOAD, 8, True),
    fmt.TENSOR.kind: (fmt.TENSOR, 8, True),
    fmt.METADATA.kind: (fmt.METADATA, 8, True),
    fmt.DIMS.kind: (fmt.DIMS, 8, False),
    fmt.STRINGS.kind: (fmt.STRINGS, 1, False),
    fmt.SIDECAR.kind: (fmt.SIDECAR, 8, True),
    **{record.kind: (record, 8, True) for record in fmt.MODULE_RECORDS},
}


class Table(NamedTuple):
    """Where the records of one kind are; a kind that the directory does not name has no records."""

    record_size: int
    offset: int
    records: int

    @property
    def end(self) -> int:
        """Offset in the pack of the byte after the last record."""
        return self.offset + self.records * self.record_size


class Payload(NamedTuple):
    """A payload record. `offset` and `size` are bytes; they lie in the pack, after its index."""

    offset: int
    size: int
    alignment: int
    crc32c: int


class TensorRecord(NamedTuple):
    """A tensor record as it is stored, without its name."""

    dtype: DType
    encoding: int
    ndim: int
    payload: int
    shape_offset: int
    strides_offset: int
    metadata_first: int
    metadata_count: int


class SidecarRecord(NamedTuple):
    """Which file holds the payloads: its name, a file beside the one that holds the index pack.

    `pin` is (size in bytes, SHA-256) of the only file that will do, or None.
    """

    name: str
    pin: tuple[int, bytes] | None


class Index:
    """The index of one pack. `data` is exactly the pack's bytes; `where` names it in messages.

    That of an index pack (`header.sidecar`) says of payloads where they were in the sidecar as it was emitted.
    """

    __slots__ = ("data", "header", "order", "regions", "tables", "where")

    def __init__(self, data: memoryview, where: str) -> None:
        self.header = header = read_header(data, where)
        self.data = data[: header.total_size]
        self.where = where
        self.order = order = "<" if header.byte_order == "little" else ">"
        self.tables = {kind: Table(record.size, 0, 0) for kind, (record, _, _) in _TABLES.items()}
        count, step, start = header.directory_count, header.directory_record_size, header.directory_offset
        if count > fmt.MAX_TABLES:
            raise FormatError(
                "directory_count is out of range", where=where, expected=f"at most {fmt.MAX_TABLES}", actual=count
            )
        if step < fmt.DIRECTORY_ENTRY.size or step % 8:
            raise FormatError(
                "directory_record_size is wrong", where=where, expected="a multiple of 8, at least 16", actual=step
            )
        if start < header.header_size or start % 8:
            raise FormatError(
                "directory_offset is wrong",
                where=where,
                expected=f"a multiple of 8, at least {header.header_size}",
                actual=start,
            )
        self._check_range("the directory", start, count * step)
        self.regions = [(start, start + count * step, "the directory")]
        seen = set()
        for number in range(count):
            kind, record_size, offset, records = _ENTRY[order].unpack_from(self.data, start + number * step)
            if kind in seen:
                raise FormatError(f"table {kind} occurs twice in the directory", where=where)
            seen.add(kind)
            self._check_range(f"table {kind}", offset, records * record_size)
            if offset % 8 or offset < header.header_size:
                raise FormatError(
                    f"the offset of table {kind} is wrong",
                    where=where,
                    expected=f"a multiple of 8, at least {header.header_size}",
                    actual=offset,
                )
            self.regions.append((offset, offset + records * record_size, f"table {kind}"))
            if kind not in _TABLES:
                continue  # of a later version, and no incompatible bit forbids to ignore it
            record, unit, may_grow = _TABLES[kind]
            if record_size < record.size or record_size % unit or (record_size != record.size and not may_grow):
                raise FormatError(
                    f"record_size of table {kind} ({record.name}) is wrong",
                    where=where,
                    expected=f"a multiple of {unit}, at least {record.size}" if may_grow else record.size,
                    actual=record_size,
                )
            self.tables[kind] = Table(record_size, offset, records)
        wanted = 1 if header.sidecar else 0
        found = self.tables[fmt.SIDECAR.kind].records
        if found != wanted:
            raise FormatError(
                "the records of sidecars do not fit the pack's features", where=where, expected=wanted, actual=found
            )

    def __len__(self) -> int:
        """Tensors in the pack."""
        return self.tables[fmt.TENSOR.kind].records

    def raw_tensor(self, number: int) -> tuple[int, ...]:
        """Return the fields of tensor record `number`, unchecked, in the order of `fmt.TENSOR`."""
        table = self.tables[fmt.TENSOR.kind]
        return _TENSOR[self.order].unpack_from(self.data, table.offset + number * table.record_size)

    def tensor(self, number: int) -> TensorRecord:
        """Return tensor record `number`."""
        _, _, code, bits, lanes, *rest = self.raw_tensor(number)
        return TensorRecord(DType(code, bits, lanes), *rest)

    def name_bytes(self, number: int) -> bytes:
        """Return the name of tensor `number` as it is stored."""
        offset, length = self.raw_tensor(number)[:2]
        return self._string_bytes("a tensor's name", offset, length)

    def name(self, number: int) -> str:
        """Return the name of tensor `number`."""
        return self._decode("a tensor's name", self.name_bytes(number))

    def names(self) -> Iterator[str]:
        """Yield every name, in the order of the index: sorted by their UTF-8 bytes."""
        return (self.name(number) for number in range(len(self)))

    def find(self, name: str) -> int | None:
        """Return the number of the tensor called `name`, or None; O(log n)."""
        try:
            wanted = name.encode()
        except UnicodeEncodeError:
            return None
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            found = self.name_bytes(middle)
            if found == wanted:
                return middle
            if found < wanted:
                low = middle + 1
            else:
                high = middle
        return None

    def raw_payload(self, number: int) -> Payload:
        """Return payload record `number`, unchecked."""
        table = self.tables[fmt.PAYLOAD.kind]
        return Payload(*_PAYLOAD[self.order].unpack_from(self.data, table.offset + number * table.record_size))

    def payload(self, number: int, where: str) -> Payload:
        """Return payload record `number`; `where` names the tensor that refers to it."""
        count = self.tables[fmt.PAYLOAD.kind].records
        if number >= count:
            raise FormatError("no such payload", where=where, expected=f"less than {count}", actual=number)
        payload = self.raw_payload(number)
        self.check_payload(payload, where)
        return payload

    def check_payload(self, payload: Payload, where: str) -> None:
        """Raise FormatError for a payload that is not aligned, or not in the pack behind its index."""
        header = self.header
        outside = payload.offset < header.index_size or payload.offset + payload.size > header.total_size
        if outside and not header.sidecar:
            raise FormatError(
                "the payload is not in the pack",
                where=where,
                expected=f"offsets {header.index_size} to {header.total_size}",
                actual=f"{payload.offset} to {payload.offset + payload.size}",
            )
        alignment = payload.alignment
        if not 0 < alignment <= fmt.MAX_ALIGNMENT or alignment & (alignment - 1):
            raise FormatError(
                "the payload's alignment is wrong",
                where=where,
                expected=f"a power of two, at most {fmt.MAX_ALIGNMENT}",
                actual=alignment,
            )
        if payload.offset % alignment:
            raise FormatError(
                "the payload is not aligned", where=where, expected=f"a multiple of {alignment}", actual=payload.offset
            )

    def payload_bytes(self, payload: Payload) -> memoryview:
        """Return the bytes of a payload that has been checked; raise LoadError if they are in a sidecar."""
        if self.header.sidecar:
            raise LoadError(
                f"its bytes are in the file {shown(self.sidecar().name)}",
                where=self.where,
                hint="load the library by its path: the file is looked for beside it",
            )
        return self.data[payload.offset : payload.offset + payload.size]

    def sidecar(self) -> SidecarRecord:
        """Return the sidecar record of an index pack; raise FormatError for one that breaks the format."""
        where = f"{self.where}: the sidecar record"
        at = self.tables[fmt.SIDECAR.kind].offset
        offset, length, flags, size, sha256 = _SIDECAR[self.order].unpack_from(self.data, at)
        name = self.string("the name of the sidecar", offset, length)
        if not fmt.is_sidecar_name(name):
            raise FormatError("not the name of a file in a folder", where=where, actual=shown(name))
        reserved = at + fmt.SIDECAR.offset("reserved")
        pinned = flags == fmt.PINNED
        if flags not in {0, fmt.PINNED} or any(self.data[reserved : reserved + 4]):
            raise FormatError("reserved bits or bytes are not zero", where=where)
        if not pinned and (size or any(sha256)):
            raise FormatError("size and sha256 are not zero, and it is not pinned", where=where)
        return SidecarRecord(name, (size, sha256) if pinned else None)

    def shape(self, record: TensorRecord, where: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return shape and strides (in elements, and row-major) of a tensor."""
        if record.ndim > fmt.MAX_NDIM:
            raise FormatError(
                "too many dimensions", where=where, expected=f"at most {fmt.MAX_NDIM}", actual=record.ndim
            )
        shape = self._dims("shape", record.shape_offset, record.ndim, where)
        strides = self._dims("strides", record.strides_offset, record.ndim, where)
        step = 1
        for axis in reversed(range(record.ndim)):
            if shape[axis] < 0:
                raise FormatError("a dimension is negative", where=where, actual=shape)
            if strides[axis] != step:
                raise FormatError(
                    "strides are not row-major", where=f"{where}: dimension {axis}", expected=step, actual=strides[axis]
                )
            step *= max(shape[axis], 1)
        if step >> 63:
            raise FormatError(
                "the shape is too large", where=where, expected="less than 2^63 elements", actual=list(shape)
            )
        return shape, strides

    def string(self, what: str, offset: int, length: int) -> str:
        """Return a string of the pack; `what` names it in messages."""
        return self._decode(what, self._string_bytes(what, offset, length))

    def raw_metadata(self, first: int, count: int, where: str) -> Iterator[tuple[int, int, int, int]]:
        """Yield each metadata record of an owner: offset and length of the key, offset and length of the value."""
        table = self.tables[fmt.METADATA.kind]
        if first + count > table.records:
            raise FormatError(
                "metadata is not in its table",
                where=where,
                expected=f"at most {table.records} records",
                actual=first + count,
            )
        for number in range(first, first + count):
            yield _METADATA[self.order].unpack_from(self.data, table.offset + number * table.record_size)

    def metadata(self, first: int, count: int, where: str) -> dict[str, str]:
        """Return the metadata of an owner."""
        return {
            self.string("a metadata key", *record[:2]): self.string("a metadata value", *record[2:])
            for record in self.raw_metadata(first, count, where)
        }

    @property
    def model_version(self) -> str:
        """The user's version string, empty if there is none."""
        return self.string("the model version", self.header.model_version_offset, self.header.model_version_length)

    def _check_range(self, what: str, offset: int, size: int) -> None:
        if offset + size > self.header.index_size:
            raise FormatError(
                f"{what} is not in the index",
                where=self.where,
                expected=f"an end of at most {self.header.index_size}",
                actual=f"offset {offset}, {size} bytes",
            )

    def _string_bytes(self, what: str, offset: int, length: int) -> bytes:
        self._check_range(what, offset, length + 1)
        return bytes(self.data[offset : offset + length])

    def _decode(self, what: str, raw: bytes) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise FormatError(f"{what} is not UTF-8", where=self.where, actual=shown(raw)) from error

    def _dims(self, what: str, offset: int, ndim: int, where: str) -> tuple[int, ...]:
        if not ndim:
            return ()
        table = self.tables[fmt.DIMS.kind]
        if offset % 8 or offset < table.offset or offset + 8 * ndim > table.end:
            raise FormatError(
                f"the {what} is not in the pool of dimensions",
                where=where,
                expected=f"a multiple of 8, {table.offset} to {table.end}",
                actual=f"offset {offset}, {ndim} dimensions",
            )
        return struct.unpack_from(f"{self.order}{ndim}q", self.data, offset)
