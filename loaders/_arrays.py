"""Gives the bytes of a tensor as numpy arrays."""

from __future__ import annotations

import sys

from emitter.dtypes import INT, DType, row_of
from emitter.errors import LoadError
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from emitter.package import ByteOrder

__all__ = ["as_array", "raw_array", "unpack"]


def raw_array(data: memoryview) -> NDArray[Any]:
    """Return the bytes as a uint8 array of one dimension, over the same memory."""
    import numpy

    # Not numpy.ndarray(buffer=...): that looks through the view, and lets go of what keeps a mapping from being closed.
    array: NDArray[Any] = numpy.asarray(data)
    return array


def as_array(data: memoryview, dtype: DType, shape: tuple[int, ...], byte_order: ByteOrder, where: str) -> NDArray[Any]:
    """Return the elements as a read-only array; lanes become a last dimension.

    The array lies over `data`, in its byte order, unless only ml_dtypes has the type and the byte order is not this
    machine's: ml_dtypes has native elements alone, so those are copied.
    """
    import numpy

    row = row_of(DType(dtype.code, dtype.bits))
    if row is None:
        raise LoadError(f"numpy has no type for {dtype}", where=where, hint="take .bytes()")
    raw = raw_array(data)
    native = byte_order == sys.byteorder or dtype.swap_unit == 1
    if row.in_numpy:
        kind = numpy.dtype(row.name) if native else numpy.dtype(row.name).newbyteorder()
    else:
        kind = _ml_dtype(row.name, where)
        if not native:
            raw = raw.view(f"u{dtype.swap_unit}").byteswap()
            raw.flags.writeable = False
    try:
        array: NDArray[Any] = raw.view(kind).reshape((*shape, dtype.lanes) if dtype.lanes > 1 else shape)
    except ValueError as error:
        raise LoadError(
            f"numpy cannot hold the shape: {error}", where=where, actual=list(shape), hint="take .bytes()"
        ) from error
    return array


def unpack(data: memoryview, dtype: DType, shape: tuple[int, ...], where: str) -> NDArray[Any]:
    """Return the elements of a type of less than a byte, each in a byte of its own: a copy, in ml_dtypes' types.

    Elements follow one another from the least significant bit of the first byte on (DLPack). uint1 becomes uint8.
    """
    import numpy

    row = row_of(DType(dtype.code, dtype.bits))
    if row is None:
        raise LoadError(f"numpy has no type for {dtype}", where=where, hint="take .bytes()")
    kind = numpy.dtype(numpy.uint8) if row.name == "uint1" else _ml_dtype(row.name, where)
    count = dtype.lanes
    for extent in shape:
        count *= extent
    bits = numpy.unpackbits(raw_array(data), count=count * dtype.bits, bitorder="little").reshape(count, dtype.bits)
    values = numpy.packbits(bits, axis=1, bitorder="little").ravel()
    if dtype.code == INT:
        sign = numpy.uint8(1 << (dtype.bits - 1))
        values = (values ^ sign) - sign  # modulo 256: the sign fills the byte
    return values.view(kind).reshape((*shape, dtype.lanes) if dtype.lanes > 1 else shape)


def _ml_dtype(name: str, where: str) -> Any:
    import numpy

    try:
        import ml_dtypes
    except ImportError as error:
        raise LoadError(
            f"numpy has no {name}, and ml_dtypes is not installed",
            where=where,
            hint="pip install ml_dtypes, or take .bytes()",
        ) from error
    scalar = getattr(ml_dtypes, name, None)
    if scalar is None:
        raise LoadError(
            f"ml_dtypes {ml_dtypes.__version__} has no {name}",
            where=where,
            hint="pip install --upgrade ml_dtypes, or take .bytes()",
        )
    return numpy.dtype(scalar)
