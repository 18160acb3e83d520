"""Tensors from Python: numpy arrays, with the types of ml_dtypes, and any array in CPU memory that exports DLPack."""

from __future__ import annotations

from emitter.dtypes import BY_NAME, DType
from emitter.errors import InputError, shown
from emitter.package import NATIVE_BYTE_ORDER, BufferSource, Extent, Tensor
from emitter.records import TYPE_CHECKING
from emitter.values import check_metadata, payload_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from emitter.package import ByteOrder

__all__ = ["tensor_from_array"]


def tensor_from_array(
    name: str,
    array: object,
    *,
    alignment: int | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Tensor:
    """Return a tensor over the memory of `array`: a numpy array or scalar, or a CPU array that exports DLPack.

    A C-contiguous array of whole-byte elements is not copied: its memory is kept alive, and its bytes at emission are
    what is written. Other layouts are copied to row-major order, and the sub-byte types of ml_dtypes (one element per
    byte) are packed, least significant bits first. The byte order of a numpy array is kept.

    Raises InputError for object, string, date, structured and long double elements, masked arrays, and memory of
    other devices.
    """
    import numpy

    where = f"tensor {shown(name)}"
    pairs = check_metadata(metadata, where)
    if isinstance(array, (numpy.ndarray, numpy.generic)):
        dtype, byte_order, shape, data = _from_numpy(name, array)
    elif hasattr(array, "__dlpack__"):
        from emitter.inputs.dlpack import import_dlpack

        dtype, shape, data = import_dlpack(name, array)
        byte_order = NATIVE_BYTE_ORDER
    else:
        raise InputError(
            "this is not an array",
            where=where,
            expected="a numpy array, or an object with __dlpack__",
            actual=type(array).__name__,
            hint="convert it with numpy.asarray, or use add_raw for bytes",
        )
    payload_bytes(dtype, shape, where)
    if dtype.packed or dtype.bits == 8:
        byte_order = "little"  # nothing to swap
    source = BufferSource(f"array {shown(name)}", data)
    return Tensor(name, dtype, shape, Extent(source, 0, data.nbytes, byte_order), alignment, metadata=pairs)


def _from_numpy(
    name: str, array: Any
) -> tuple[DType, ByteOrder, tuple[int, ...], memoryview]:  # numpy is imported by the caller alone
    import numpy

    where = f"tensor {shown(name)}"
    if isinstance(array, numpy.ma.MaskedArray):
        raise InputError("a masked array's mask would be lost", where=where, hint="fill it first: array.filled(value)")
    array = numpy.asarray(array)
    row = BY_NAME.get(array.dtype.name) if array.dtype.names is None else None
    if row is None:
        raise InputError(
            "elements of this type cannot be written",
            where=where,
            expected=f"one of {', '.join(BY_NAME)}",
            actual=f"dtype {shown(str(array.dtype))}",
            hint="convert it with astype, or use add_raw for its bytes",
        )
    if not array.flags.c_contiguous:
        array = numpy.array(array, order="C")
    elements = array.reshape(-1).view(numpy.uint8)
    if row.dtype.packed:
        elements = pack_elements(elements, row.dtype.bits)
    order = array.dtype.byteorder
    byte_order: ByteOrder = "big" if order == ">" else "little" if order == "<" else NATIVE_BYTE_ORDER
    return row.dtype, byte_order, array.shape, memoryview(elements)


def pack_elements(elements: Any, bits: int) -> Any:
    """Return the low `bits` (1, 2, 4 or 6) of each byte of a uint8 array, packed, least significant bits first.

    What is left of the last byte is zero.
    """
    import numpy

    group = 4 if bits == 6 else 8 // bits  # the elements that fill whole bytes
    count = elements.size
    padded = numpy.zeros((-(-count // group), group), numpy.uint8)
    padded.reshape(-1)[:count] = elements & ((1 << bits) - 1)
    words = numpy.zeros(len(padded), "<u4")
    for position in range(group):
        words |= padded[:, position].astype("<u4") << (position * bits)
    packed = words.view(numpy.uint8).reshape(-1, 4)[:, : group * bits // 8].reshape(-1)
    return packed[: (count * bits + 7) // 8]
