"""The header and the directory of a pack: what must hold before any record is looked at.

Source: docs/pack-format.md; the records are those of `emitter.pack.format`.
"""

from __future__ import annotations

import struct
from itertools import pairwise

from emitter.checksum import crc32c
from emitter.errors import InputError
from emitter.inputs._common import pread
from emitter.pack import format as fmt
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.package import ByteOrder, FileSource

__all__ = ["Index", "Table", "check_alignment"]

_TABLES = {record.kind: record for record in fmt.RECORDS if record.kind}
_POOLS = (fmt.DIMS.kind, fmt.STRINGS.kind)  # their records are bare values, which cannot grow
_STEP = 1 << 20


class Table(NamedTuple):
    """One table of the index. `offset` is in the pack; `data` are all of its bytes."""

    offset: int
    records: int
    record_size: int
    data: bytes


class Index:
    """The checked header, and the known tables, of the pack at `base` of `source`, which is open as `fd`.

    The pack has at most `size` bytes, by default all from there on. Offsets are relative to it.
    """

    def __init__(self, fd: int, source: FileSource, base: int = 0, size: int | None = None) -> None:
        self.source = source
        self.path = source.path
        self.base = base
        self.size = source.size - base if size is None else size
        self.order: ByteOrder = "little"
        self.header = self._read_header(fd)
        self.tables = self._read_tables(fd)

    def records(self, record: fmt.Record) -> Iterator[tuple[int, ...]]:
        """Return the fields, without the reserved ones, of each record of a table."""
        table = self.tables[record.kind]
        reserved = next((field for field in record.fields if field.name.startswith("reserved")), None)
        if reserved:  # a later version gives it a meaning only together with an incompatible feature bit
            at = record.offset(reserved.name)
            if any(table.data[at + byte :: table.record_size].strip(b"\0") for byte in range(reserved.size)):
                raise InputError(
                    "reserved bytes are not zero", where=f"{self.path}: table {record.kind} ({record.name})"
                )
        return self._iterate(record, table)

    def _read_header(self, fd: int) -> dict[str, int]:
        where = f"{self.path}: header"
        size = self.size
        start = pread(fd, min(size, fmt.HEADER.size), self.base, where)
        if start[:8] != fmt.MAGIC:
            raise InputError(
                "the magic is damaged", where=where, expected=fmt.MAGIC.hex(" "), actual=start[:8].hex(" "),
                hint="transfer the file again, in binary mode",
            )  # fmt: skip
        if len(start) < fmt.HEADER.size:
            raise InputError("the header is cut off", where=where, expected=f"{fmt.HEADER.size} bytes", actual=size)
        mark = start[8:12]
        if mark == fmt.BYTE_ORDER_MARK.to_bytes(4, "big"):
            self.order = "big"
        elif mark != fmt.BYTE_ORDER_MARK.to_bytes(4, "little"):
            raise InputError(
                "the byte-order mark is wrong", where=where, expected="01 02 03 04 or 04 03 02 01", actual=mark.hex(" ")
            )
        names = [field.name for field in fmt.HEADER.fields if not field.name.startswith("reserved")][1:]
        values = struct.unpack(self._format(fmt.HEADER), start)[1:]
        header: dict[str, int] = dict(zip(names, values, strict=True))
        if header["version_major"] > fmt.VERSION_MAJOR:
            raise InputError(
                "the pack is of a later major version", where=where,
                expected=f"at most {fmt.VERSION_MAJOR}", actual=header["version_major"],
                hint="use a newer release of emitter",
            )  # fmt: skip
        header_size, index_size = header["header_size"], header["index_size"]
        if not fmt.HEADER.size <= header_size <= index_size <= size or header_size % 8 or index_size % 8:
            raise InputError(
                "header_size or index_size is wrong", where=where,
                expected=f"{fmt.HEADER.size} <= header_size <= index_size <= {size}, multiples of 8",
                actual=f"{header_size} and {index_size}",
                hint="the file may be truncated",
            )  # fmt: skip
        if header_size > fmt.MAX_HEADER_SIZE:
            raise InputError(
                "header_size is too large", where=where, expected=f"at most {fmt.MAX_HEADER_SIZE}", actual=header_size
            )
        at = fmt.HEADER_CRC_OFFSET
        crc = self._crc(fd, at + 4, header_size, crc32c(start[:at] + bytes(4)))
        if crc != header["header_crc32c"]:
            raise InputError(
                "the header's CRC-32C is wrong",
                where=where,
                expected=f"{header['header_crc32c']:#010x}",
                actual=f"{crc:#010x}",
            )
        if header["incompatible_features"] & fmt.SIDECAR_FEATURE:
            raise InputError(
                "an index without bytes: they are in a sidecar", where=where, hint="name the .pack beside the library"
            )
        unknown = header["incompatible_features"] & ~fmt.KNOWN_INCOMPATIBLE
        if unknown:
            bits = ", ".join(str(bit) for bit in range(64) if unknown >> bit & 1)
            raise InputError(
                f"the pack needs features that are not known: bit {bits}",
                where=where,
                hint="use a newer version of emitter",
            )
        if any(start[fmt.HEADER.offset("reserved") : fmt.HEADER.size]):
            raise InputError("reserved bytes are not zero", where=where)
        if not index_size <= header["total_size"] <= size:
            raise InputError(
                "total_size is beyond the file, or within the index",
                where=where,
                expected=f"{index_size} to {size}",
                actual=header["total_size"],
                hint="the file may be truncated",
            )
        crc = self._crc(fd, header_size, index_size, 0)
        if crc != header["index_crc32c"]:
            raise InputError(
                "the index's CRC-32C is wrong",
                where=where,
                expected=f"{header['index_crc32c']:#010x}",
                actual=f"{crc:#010x}",
            )
        check_alignment(header["alignment"], where)
        return header

    def _crc(self, fd: int, start: int, end: int, crc: int) -> int:
        while start < end:
            step = min(end - start, _STEP)
            crc = crc32c(pread(fd, step, self.base + start, self.path), crc)
            start += step
        return crc

    def _read_tables(self, fd: int) -> dict[int, Table]:
        header = self.header
        where = f"{self.path}: directory"
        offset, count, stride = header["directory_offset"], header["directory_count"], header["directory_record_size"]
        if stride < fmt.DIRECTORY_ENTRY.size or stride % 8:
            raise InputError(
                "the record size is wrong", where=where, expected="a multiple of 8, at least 16", actual=stride
            )
        if count > fmt.MAX_TABLES:
            raise InputError(
                "there are too many tables", where=where, expected=f"at most {fmt.MAX_TABLES}", actual=count
            )
        spans = [self._span(offset, count * stride, where)]
        directory = Table(offset, count, stride, pread(fd, count * stride, self.base + offset, where))
        tables: dict[int, Table] = {}
        kinds = set()
        for kind, record_size, at, records in self._iterate(fmt.DIRECTORY_ENTRY, directory):
            record = _TABLES.get(kind)
            where = f"{self.path}: table {kind} ({record.name if record else 'unknown'})"
            if kind in kinds:
                raise InputError("the table occurs twice", where=where)
            kinds.add(kind)
            spans.append(self._span(at, records * record_size, where))
            if record is None:
                continue
            if record_size != record.size if kind in _POOLS else record_size < record.size or record_size % 8:
                raise InputError(
                    "the record size is wrong",
                    where=where,
                    expected=record.size if kind in _POOLS else f"a multiple of 8, at least {record.size}",
                    actual=record_size,
                )
            tables[kind] = Table(at, records, record_size, pread(fd, records * record_size, self.base + at, where))
        for kind, record in _TABLES.items():
            tables.setdefault(kind, Table(0, 0, record.size, b""))
        for (_, end), (start, _) in pairwise(sorted(span for span in spans if span[0] < span[1])):
            if start < end:
                raise InputError(
                    "tables overlap",
                    where=f"{self.path}: directory",
                    actual=f"one begins at {start}, another ends at {end}",
                )
        return tables

    def _span(self, offset: int, size: int, where: str) -> tuple[int, int]:
        first, last = self.header["header_size"], self.header["index_size"]
        if offset % 8 or not first <= offset <= offset + size <= last:
            raise InputError(
                "the table is out of place",
                where=where,
                expected=f"8-aligned, within {first} to {last}",
                actual=f"{size} bytes at {offset}",
            )
        return offset, offset + size

    def _format(self, record: fmt.Record) -> str:
        return ("<" if self.order == "little" else ">") + record.struct_format

    def _iterate(self, record: fmt.Record, table: Table) -> Iterator[tuple[int, ...]]:
        return struct.iter_unpack(f"{self._format(record)}{table.record_size - record.size}x", table.data)


def check_alignment(alignment: int, where: str) -> None:
    """Raise InputError unless `alignment` is one that a pack can have."""
    if not 0 < alignment <= fmt.MAX_ALIGNMENT or alignment & (alignment - 1):
        raise InputError(
            "alignment is wrong", where=where, expected=f"a power of two, 1 to {fmt.MAX_ALIGNMENT}", actual=alignment
        )
