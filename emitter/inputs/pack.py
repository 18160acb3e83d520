"""Reads a .pack file of either byte order. Its index is checked completely; its payloads become extents.

Source: docs/pack-format.md; the records are those of `emitter.pack.format`.
"""

from __future__ import annotations

import struct

from emitter.dtypes import DType
from emitter.errors import InputError, shown
from emitter.inputs._common import Contents, qualify
from emitter.inputs._pack_index import Index, check_alignment
from emitter.pack import format as fmt
from emitter.package import Checksum, Extent, Tensor
from emitter.records import TYPE_CHECKING
from emitter.values import payload_bytes

if TYPE_CHECKING:
    from emitter.modules import ModuleFacts
    from emitter.package import FileSource

__all__ = ["read", "read_at"]


def read(source: FileSource, prefix: str) -> Contents:
    """Return the tensors of a file that is a pack; see `read_at`."""
    return read_at(source, prefix, 0, source.size)


def read_at(source: FileSource, prefix: str, offset: int, size: int) -> Contents:
    """Return the tensors of the pack in the `size` bytes at `offset` of a file.

    They are in the order of their payloads, each with its alignment, encoding and metadata.

    A later minor version is read: longer records, unknown tables and unknown compatible bits are skipped. Raises
    InputError for a later major version, for an unknown incompatible bit, and for an index that breaks the format in
    any way.
    """
    with source.open() as fd:
        return _Reader(Index(fd, source, offset, size)).contents(prefix)


class _Reader:
    """Follows the records of a checked index."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.source = index.source
        self.path = index.source.path
        self.payloads = self._payloads()
        self.pairs = list(index.records(fmt.METADATA))
        self.next_pair = 0
        _decode(index.tables[fmt.STRINGS.kind].data, f"{self.path}: pool of strings")

    def contents(self, prefix: str) -> Contents:
        header = self.index.header
        metadata = self._metadata(header["metadata_first"], header["metadata_count"], self.path)
        model_version = self._text(
            header["model_version_offset"], header["model_version_length"], f"{self.path}: model version"
        )
        if len(model_version.encode()) > fmt.MAX_NAME_BYTES:
            expected = f"at most {fmt.MAX_NAME_BYTES} bytes"
            raise InputError(
                "the model version is too long", where=self.path, expected=expected, actual=len(model_version)
            )
        found = []
        previous = b""
        for number, (name_offset, name_length, *record) in enumerate(self.index.records(fmt.TENSOR)):
            where = f"{self.path}: tensor {number}"
            if not 0 < name_length <= fmt.MAX_NAME_BYTES:
                expected = f"1 to {fmt.MAX_NAME_BYTES}"
                raise InputError("the length of the name is wrong", where=where, expected=expected, actual=name_length)
            name = self._string(name_offset, name_length, where)
            if number and name <= previous:
                expected = f"above {shown(previous)}"
                raise InputError("names are not unique and sorted", where=where, expected=expected, actual=shown(name))
            previous = name
            found.append(self._tensor(prefix, _decode(name, where), record))
        modules: list[ModuleFacts] = []
        if self.index.tables[fmt.MODULE.kind].records:
            from emitter.inputs._pack_modules import read_modules

            names = [tensor.name for _, tensor in found]
            modules = [
                module._replace(name=qualify(prefix, module.name))
                for module in read_modules(self.index, self.payloads, names, self._text, self._metadata)
            ]
        found.sort(key=lambda item: item[0])
        return Contents([tensor for _, tensor in found], [(self.path, metadata)], model_version, modules)

    def _tensor(self, prefix: str, name: str, record: list[int]) -> tuple[int, Tensor]:
        """Return the number of a tensor's payload, and the tensor."""
        code, bits, lanes, encoding, ndim, payload, shape_offset, strides_offset, first, count = record
        where = f"{self.path}: tensor {shown(name)}"
        dtype = DType(code, bits, lanes)
        if not bits or not lanes:
            raise InputError("dtype is wrong", where=where, expected="bits and lanes above 0", actual=dtype)
        if payload >= len(self.payloads):
            expected = f"below {len(self.payloads)}"
            raise InputError("the payload's number is wrong", where=where, expected=expected, actual=payload)
        extent, alignment = self.payloads[payload]
        if not extent.label:  # several tensors may have one payload: the first names it
            extent = extent._replace(label=f"tensor {shown(name)}")
            self.payloads[payload] = extent, alignment
        shape = self._shape(ndim, shape_offset, strides_offset, where)
        nbytes = payload_bytes(dtype, shape, where)
        if encoding == 0 and nbytes != extent.length:
            raise InputError(
                "the size of the payload contradicts dtype and shape",
                where=where,
                expected=f"{nbytes} bytes for {dtype} {shown(shape)}",
                actual=extent.length,
            )
        metadata = self._metadata(first, count, where)
        return payload, Tensor(qualify(prefix, name), dtype, shape, extent, alignment, encoding, metadata)

    def _payloads(self) -> list[tuple[Extent, int]]:
        payloads: list[tuple[Extent, int]] = []
        position = self.index.header["index_size"]
        end = self.index.header["total_size"]
        strictest = 8
        for number, (offset, size, alignment, crc) in enumerate(self.index.records(fmt.PAYLOAD)):
            where = f"{self.path}: payload {number}"
            check_alignment(alignment, where)
            if offset % alignment or not position <= offset <= offset + size <= end:
                raise InputError(
                    "the payload is out of place", where=where,
                    expected=f"{alignment}-aligned, within {position} to {end}",
                    actual=f"{size} bytes at {offset}",
                )  # fmt: skip
            at = self.index.base + offset
            checksum = Checksum("CRC-32C", crc, at, size)
            payloads.append((Extent(self.source, at, size, self.index.order, checksum=checksum), alignment))
            position = offset + size
            strictest = max(strictest, alignment)
        if position != end:
            raise InputError(
                "total_size is not the end of the last payload", where=self.path, expected=position, actual=end
            )
        if strictest != self.index.header["alignment"]:
            found = self.index.header["alignment"]
            raise InputError(
                "alignment is not the strictest payload's", where=self.path, expected=strictest, actual=found
            )
        return payloads

    def _shape(self, ndim: int, shape_offset: int, strides_offset: int, where: str) -> tuple[int, ...]:
        if ndim > fmt.MAX_NDIM:
            raise InputError("too many dimensions", where=where, expected=f"at most {fmt.MAX_NDIM}", actual=ndim)
        if ndim == 0:
            if shape_offset or strides_offset:
                raise InputError("a tensor without dimensions has a shape", where=where, expected="offsets 0 and 0")
            return ()
        shape, strides = self._dims(ndim, shape_offset, where), self._dims(ndim, strides_offset, where)
        step = 1
        for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
            if extent < 0 or stride != step:
                raise InputError(
                    "shape or strides are wrong",
                    where=where,
                    expected="row-major strides",
                    actual=f"{shown(shape)}, {shown(strides)}",
                )
            step *= max(extent, 1)
        return shape

    def _dims(self, ndim: int, offset: int, where: str) -> tuple[int, ...]:
        pool = self.index.tables[fmt.DIMS.kind]
        at = offset - pool.offset
        if at < 0 or at % 8 or at + 8 * ndim > len(pool.data):
            raise InputError("shape or strides are outside the pool of dims", where=where, actual=f"offset {offset}")
        return struct.unpack_from(f"{'<' if self.index.order == 'little' else '>'}{ndim}q", pool.data, at)

    def _metadata(self, first: int, count: int, where: str) -> dict[str, str]:
        # The runs of the owners follow each other without a gap.
        if first != self.next_pair or first + count > len(self.pairs):
            expected = f"from {self.next_pair}, below {len(self.pairs)}"
            raise InputError("metadata is out of range", where=where, expected=expected, actual=f"{count} from {first}")
        self.next_pair += count
        metadata = {}
        previous = b""
        for number in range(first, first + count):
            key_offset, key_length, value_offset, value_length = self.pairs[number]
            if not 0 < key_length <= fmt.MAX_NAME_BYTES:
                expected = f"1 to {fmt.MAX_NAME_BYTES}"
                raise InputError("the length of a key is wrong", where=where, expected=expected, actual=key_length)
            key = self._string(key_offset, key_length, where)
            if number > first and key <= previous:
                raise InputError("metadata keys are not unique and sorted", where=where, actual=shown(key))
            previous = key
            metadata[_decode(key, where)] = self._text(value_offset, value_length, where)
        return metadata

    def _string(self, offset: int, length: int, where: str) -> bytes:
        pool = self.index.tables[fmt.STRINGS.kind]
        at = offset - pool.offset
        if at < 0 or at + length + 1 > len(pool.data) or pool.data.find(0, at) != at + length:
            raise InputError(
                "a string is outside the pool of strings, or its NUL is not at its end",
                where=where,
                actual=f"{length} bytes at {offset}",
            )
        return pool.data[at : at + length]

    def _text(self, offset: int, length: int, where: str) -> str:
        return _decode(self._string(offset, length, where), where)


def _decode(text: bytes, where: str) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise InputError("a string is not UTF-8", where=where, actual=shown(text)) from error
