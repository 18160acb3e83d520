"""The types of emitter.h for ctypes, and a pack that can be taken apart and changed."""

from __future__ import annotations

import ctypes
import struct

from emitter.checksum import crc32c
from emitter.pack import format as fmt

STATUS = dict(enumerate((
    "OK", "ARGUMENT", "NOT_A_PACK", "TRUNCATED", "FOREIGN_BYTE_ORDER", "VERSION", "FEATURE", "MISALIGNED", "CHECKSUM",
    "MALFORMED", "SCHEMA", "NOT_FOUND", "DTYPE", "ENCODED", "LIBRARY_ERROR", "SIDECAR",
)))  # fmt: skip


class Table(ctypes.Structure):
    """emitter0_table_."""

    _fields_ = [("offset", ctypes.c_uint32), ("count", ctypes.c_uint32), ("record_size", ctypes.c_uint32)]


class Reader(ctypes.Structure):
    """emitter0_reader."""

    _fields_ = [
        ("where", ctypes.c_char_p), ("where_record", ctypes.c_uint32), ("alignment", ctypes.c_uint32),
        ("unknown_features", ctypes.c_uint64), ("schema", ctypes.c_uint64), ("size", ctypes.c_uint64),
        ("base", ctypes.c_void_p),
        ("index_size", ctypes.c_uint32), ("index_crc32c", ctypes.c_uint32), ("header_size", ctypes.c_uint32),
        ("model_version_offset", ctypes.c_uint32), ("metadata_first", ctypes.c_uint32),
        ("metadata_count", ctypes.c_uint32),
        ("payload", Table), ("tensor", Table), ("metadata", Table), ("dim", Table), ("string", Table),
        ("sidecar", Table),
        ("module", Table), ("alternative", Table), ("condition", Table), ("imported", Table), ("function", Table),
        ("argument", Table),
    ]  # fmt: skip


class TensorView(ctypes.Structure):
    """emitter0_tensor."""

    _fields_ = [
        ("data", ctypes.c_void_p), ("nbytes", ctypes.c_uint64), ("name", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("name_length", ctypes.c_uint32), ("alignment", ctypes.c_uint32), ("crc32c", ctypes.c_uint32),
        ("metadata_first", ctypes.c_uint32), ("metadata_count", ctypes.c_uint32), ("ndim", ctypes.c_int32),
        ("dtype_lanes", ctypes.c_uint16), ("encoding", ctypes.c_uint16),
        ("dtype_code", ctypes.c_uint8), ("dtype_bits", ctypes.c_uint8),
    ]  # fmt: skip


class Entry(ctypes.Structure):
    """emitter0_entry."""

    _fields_ = [
        ("key", ctypes.c_char_p), ("value", ctypes.c_char_p),
        ("key_length", ctypes.c_uint32), ("value_length", ctypes.c_uint32),
    ]  # fmt: skip


def is_zero(value: object) -> bool:
    """Return whether every field of a structure is zero or null, whatever its padding is."""
    if isinstance(value, ctypes.Structure):
        return all(is_zero(getattr(value, name)) for name, *_ in value._fields_)
    return not value


class Memory:
    """Bytes at an address that is a multiple of 4096, plus `shift`."""

    def __init__(self, data: bytes, shift: int = 0) -> None:
        self.buffer = ctypes.create_string_buffer(len(data) + 8192)
        self.address = (ctypes.addressof(self.buffer) + 4095 & -4096) + shift
        self.size = len(data)
        ctypes.memmove(self.address, data, len(data))


class Parts:
    """A little-endian pack under change: `sealed` puts the checksums of the index right again."""

    def __init__(self, pack: bytes) -> None:
        self.bytes = bytearray(pack)

    def header(self, field: str) -> int:
        """Return a field of the header."""
        return self._number(fmt.HEADER, field, 0)

    def set_header(self, field: str, value: int) -> None:
        """Change a field of the header."""
        self._set(fmt.HEADER, field, 0, value)

    def table(self, record: fmt.Record) -> int:
        """Return the offset of a table's directory entry."""
        for number in range(self.header("directory_count")):
            at = self.header("directory_offset") + number * self.header("directory_record_size")
            if self._number(fmt.DIRECTORY_ENTRY, "kind", at) == record.kind:
                return at
        raise KeyError(record.name)

    def entry(self, record: fmt.Record, field: str) -> int:
        """Return a field of a table's directory entry."""
        return self._number(fmt.DIRECTORY_ENTRY, field, self.table(record))

    def set_entry(self, record: fmt.Record, field: str, value: int) -> None:
        """Change a field of a table's directory entry."""
        self._set(fmt.DIRECTORY_ENTRY, field, self.table(record), value)

    def at(self, record: fmt.Record, number: int) -> int:
        """Return the offset of a record."""
        return self.entry(record, "offset") + number * self.entry(record, "record_size")

    def get(self, record: fmt.Record, number: int, field: str) -> int:
        """Return a field of a record."""
        return self._number(record, field, self.at(record, number))

    def set(self, record: fmt.Record, number: int, field: str, value: int) -> None:
        """Change a field of a record."""
        self._set(record, field, self.at(record, number), value)

    def sealed(self) -> bytes:
        """Return the pack, with the checksums of its index."""
        header_size, index_size = self.header("header_size"), self.header("index_size")
        self.set_header("index_crc32c", crc32c(bytes(self.bytes[header_size:index_size])))
        self.set_header("header_crc32c", 0)
        self.set_header("header_crc32c", crc32c(bytes(self.bytes[:header_size])))
        return bytes(self.bytes)

    def _code(self, record: fmt.Record, field: str) -> str:
        (one,) = (one for one in record.fields if one.name == field)
        return {"u8": "<B", "u16": "<H", "u32": "<I", "u64": "<Q", "i64": "<q"}[one.type]

    def _number(self, record: fmt.Record, field: str, at: int) -> int:
        return int(struct.unpack_from(self._code(record, field), self.bytes, at + record.offset(field))[0])

    def _set(self, record: fmt.Record, field: str, at: int, value: int) -> None:
        struct.pack_into(self._code(record, field), self.bytes, at + record.offset(field), value)
