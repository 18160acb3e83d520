"""One tensor of a pack, as a program sees it."""

from __future__ import annotations

import sys

from emitter.checksum import crc32c
from emitter.errors import FormatError, LoadError, shown
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from numpy.typing import NDArray

    from emitter.dtypes import DType
    from emitter.loaders._pack import Index, Payload

__all__ = ["Tensor", "check_crc"]

_STEP = 1 << 20
_CHANGED = "the bytes are not those that were written: crc32c does not match"


class Tensor:
    """A view of one tensor: what its record says, and its bytes where they lie.

    `shape` and `strides` (in elements, row-major) are tuples of ints; `nbytes` and `alignment` are bytes; `encoding` is
    0 where the bytes are elements of `dtype`, else the code of a block format, whose bytes are given as they are;
    `crc32c` is the checksum that was written with the bytes; `file_offset` is where they begin in the file that holds
    them, `Pack.path`.

    >>> tensor = library.tensor("conv1.weight")             # doctest: +SKIP
    >>> tensor.dtype, tensor.shape, tensor.numpy().sum()    # doctest: +SKIP
    """

    __slots__ = (
        "_number", "_open", "_payload", "alignment", "crc32c", "dtype", "encoding", "file_offset", "name", "nbytes",
        "shape", "strides",
    )  # fmt: skip

    def __init__(self, open_index: Callable[[], Index], number: int, file_offset: int) -> None:
        index = open_index()
        record = index.tensor(number)
        self.name: str = index.name(number)
        where = f"{index.where}: tensor {shown(self.name)}"
        if not record.dtype.element_bits:
            raise FormatError("the element type has no bits", where=where, actual=record.dtype)
        payload = index.payload(record.payload, where)
        self._open = open_index
        self._number = number
        self._payload: Payload = payload
        self.dtype: DType = record.dtype
        self.encoding: int = record.encoding
        self.shape, self.strides = index.shape(record, where)
        self.nbytes: int = payload.size
        self.alignment: int = payload.alignment
        self.crc32c: int = payload.crc32c
        self.file_offset: int = file_offset + payload.offset
        if not self.encoding and self.nbytes != self.dtype.nbytes(self.shape):
            raise FormatError(
                f"the payload is not {self.dtype} of shape {list(self.shape)}",
                where=where,
                expected=f"{self.dtype.nbytes(self.shape)} bytes",
                actual=self.nbytes,
            )

    def __repr__(self) -> str:
        return f"<emitter tensor {shown(self.name)}: {self.dtype} {list(self.shape)}, {self.nbytes} bytes>"

    @property
    def metadata(self) -> dict[str, str]:
        """The tensor's keys and values."""
        index = self._open()
        record = index.tensor(self._number)
        return index.metadata(record.metadata_first, record.metadata_count, self._where())

    def bytes(self) -> memoryview:
        """Return the bytes as they lie in the file, in the pack's byte order: a read-only view without a copy.

        Raises LoadError if the library is closed, or if they are in a sidecar and the library was not loaded by a path.
        """
        return self._open().payload_bytes(self._payload)

    def numpy(self) -> NDArray[Any]:
        """Return a read-only array of the tensor's shape and type over the file's own bytes.

        The array's dtype has the pack's byte order. Types that only ml_dtypes has come in those; in the other byte
        order they are copied, which ml_dtypes cannot express otherwise. Lanes are a last dimension. Types whose
        elements share bytes, and encoded tensors, give their raw bytes as uint8 of one dimension (see `unpack`). Raises
        LoadError if the library is closed, or where ml_dtypes is needed and missing.
        """
        from emitter.loaders import _arrays

        data = self.bytes()
        if self.encoding or self.dtype.bits % 8:
            return _arrays.raw_array(data)
        return _arrays.as_array(data, self.dtype, self.shape, self._open().header.byte_order, self._where())

    def unpack(self) -> NDArray[Any]:
        """Return the elements, one per byte for types of less than a byte, as a new array of the tensor's shape.

        Such types come as ml_dtypes' int2, int4, uint2, uint4, float4_e2m1fn, float6_e2m3fn and float6_e3m2fn, uint1 as
        uint8; others as `numpy` gives them. Raises LoadError for an encoded tensor, if the library is closed, or where
        ml_dtypes is missing.
        """
        from emitter.loaders import _arrays

        if self.encoding:
            raise LoadError(
                f"encoding {self.encoding} is known to its own runtime alone", where=self._where(), hint="take .bytes()"
            )
        if self.dtype.bits % 8 == 0:
            array: NDArray[Any] = self.numpy().copy()
            return array
        return _arrays.unpack(self.bytes(), self.dtype, self.shape, self._where())

    def check(self) -> None:
        """Read the bytes and raise FormatError if they are not those that were written (CRC-32C)."""
        check_crc(self.bytes(), self.crc32c, self._where())

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """Return a DLPack capsule, read-only over the file's own bytes, or with `copy=True` over a writable copy.

        The bytes stay mapped for as long as a consumer holds them, the library closed or not. Raises BufferError, as
        the protocol wants: for consumers that cannot see read-only (no `max_version`), for bytes in the other byte
        order, for encoded tensors.
        """
        from emitter.loaders import _dlpack

        where = self._where()
        data = self.bytes()
        if self.encoding:
            raise BufferError(f"{where}: DLPack has no name for encoding {self.encoding}; take .bytes()")
        byte_order = self._open().header.byte_order
        if byte_order != sys.byteorder and self.dtype.swap_unit > 1:
            raise BufferError(
                f"{where}: DLPack has native elements alone, and these are {byte_order}-endian; take .numpy()"
            )
        return _dlpack.export(
            data, self.dtype, self.shape, self.strides,
            where=where, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy,
        )  # fmt: skip

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return (kDLCPU, 0)."""
        from emitter.loaders import _dlpack

        return _dlpack.CPU

    def _where(self) -> str:
        return f"{self._open().where}: tensor {shown(self.name)}"


def check_crc(data: memoryview, expected: int, where: str, what: str = _CHANGED) -> None:
    """Raise FormatError if the CRC-32C of `data` is not `expected`. Reads in steps, so that memory stays bounded."""
    crc = 0
    for start in range(0, len(data), _STEP):
        crc = crc32c(bytes(data[start : start + _STEP]), crc)
    if crc != expected:
        raise FormatError(
            what,
            where=where,
            expected=f"{expected:#010x}",
            actual=f"{crc:#010x}",
            hint="copy or emit the file again",
        )
