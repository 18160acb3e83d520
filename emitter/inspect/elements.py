"""The values of tensors as numbers: every element type decoded, and statistics in bounded memory.

Small floating-point types are decoded here by their definition (sign, exponent, mantissa), without ml_dtypes: IEEE 754;
OCP 8-bit Floating Point Specification 1.0 (E4M3FN, E5M2); OCP Microscaling Formats 1.0 (E8M0, FP6, FP4); LLVM's APFloat
for the FNUZ types and E3M4. cross/programs/stats.h computes the same on a device.
"""

from __future__ import annotations

from emitter import dtypes
from emitter.errors import LoadError, shown
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from numpy.typing import NDArray

    from emitter.dtypes import DType
    from emitter.inspect.report import TensorEntry
    from emitter.inspect.view import View

__all__ = ["Stats", "head", "is_known", "measure", "values_of"]

# Bytes of one step: whole elements of every type (6-bit ones have 4 in 3 bytes, complex128 has 16).
_STEP = 3 << 18

# Below, a sum of integers in double precision, with those of a step, is exact in any order.
_EXACT = 1 << 52

_IEEE, _FN, _FNUZ, _FINITE = "ieee", "fn", "fnuz", "finite"


class _Small(NamedTuple):
    """A floating-point type of at most 16 bits: sign, `exponent` bits with `bias`, `mantissa` bits.

    `kind`: the highest exponent means infinity and NaN (ieee), or NaN where the mantissa is all ones too (fn), or
    nothing (finite); fnuz has one NaN, where minus zero would be.
    """

    exponent: int
    mantissa: int
    bias: int
    kind: str


_SMALL: dict[tuple[int, int], _Small] = {
    (dtypes.BFLOAT, 16): _Small(8, 7, 127, _IEEE),
    (dtypes.FLOAT8_E3M4, 8): _Small(3, 4, 3, _IEEE),
    (dtypes.FLOAT8_E4M3, 8): _Small(4, 3, 7, _IEEE),
    (dtypes.FLOAT8_E4M3B11FNUZ, 8): _Small(4, 3, 11, _FNUZ),
    (dtypes.FLOAT8_E4M3FN, 8): _Small(4, 3, 7, _FN),
    (dtypes.FLOAT8_E4M3FNUZ, 8): _Small(4, 3, 8, _FNUZ),
    (dtypes.FLOAT8_E5M2, 8): _Small(5, 2, 15, _IEEE),
    (dtypes.FLOAT8_E5M2FNUZ, 8): _Small(5, 2, 16, _FNUZ),
    (dtypes.FLOAT6_E2M3FN, 6): _Small(2, 3, 1, _FINITE),
    (dtypes.FLOAT6_E3M2FN, 6): _Small(3, 2, 3, _FINITE),
    (dtypes.FLOAT4_E2M1FN, 4): _Small(2, 1, 1, _FINITE),
}

# Types that numpy has: its letter for them.
_NUMPY: dict[tuple[int, int], str] = {
    (dtypes.BOOL, 8): "u1",
    **{(dtypes.INT, bits): f"i{bits // 8}" for bits in (8, 16, 32, 64)},
    **{(dtypes.UINT, bits): f"u{bits // 8}" for bits in (8, 16, 32, 64)},
    **{(dtypes.FLOAT, bits): f"f{bits // 8}" for bits in (16, 32, 64)},
    # Both parts count as values.
    (dtypes.COMPLEX, 64): "f4",
    (dtypes.COMPLEX, 128): "f8",
}


class Stats(NamedTuple):
    """What is known of a tensor's values: counts, and of the finite ones the least, the greatest and the mean.

    The mean is the sum in double precision, from the first value to the last, over the count; None where no value is
    finite. Of complex numbers both parts are values. A type without known values has no counts either. `crc32c` is that
    of the bytes as they were read.
    """

    values: int | None
    nan: int | None
    inf: int | None
    minimum: float | None
    maximum: float | None
    mean: float | None
    crc32c: int


def measure(view: View, tensor: TensorEntry, byte_order: str) -> Stats:
    """Read a tensor of `view` in steps and return its statistics.

    Raises LoadError where numpy is missing, FormatError where the bytes are not in the file.
    """
    from emitter.checksum import crc32c

    dtype = dtypes.parse(tensor.dtype)
    if tensor.encoding or dtype is None or not is_known(dtype):
        crc = view.crc32c(tensor.offset, tensor.nbytes, f"tensor {shown(tensor.name)}")
        return Stats(None, None, None, None, None, None, crc)
    _need_numpy()
    import numpy

    count = nan = inf = finite = crc = 0
    total, low, high = 0.0, float("inf"), float("-inf")
    for data, values in _steps(view, tensor, dtype, byte_order, tensor.nbytes):
        crc = crc32c(data, crc)
        count += len(values)
        # Narrow integers, the most of quantised models, need no floating point: their sums are the same either way.
        if values.dtype.kind in "iu" and values.itemsize <= 2 and total.is_integer() and abs(total) < _EXACT:
            if len(values):
                finite += len(values)
                low, high = min(low, float(values.min())), max(high, float(values.max()))
                total += float(values.sum(dtype=numpy.int64))
            continue
        floats = values.astype(numpy.float64)
        good = floats[numpy.isfinite(floats)]
        if len(good) != len(floats):
            nans = int(numpy.isnan(floats).sum())
            nan += nans
            inf += len(floats) - len(good) - nans
        if len(good):
            finite += len(good)
            low, high = min(low, float(good.min())), max(high, float(good.max()))
            # numpy.sum adds in pairs; a program on a device adds one after the other, as cumsum does.
            with numpy.errstate(over="ignore", invalid="ignore"):
                good[0] += total
                total = float(numpy.cumsum(good, out=good)[-1])
    if not finite:
        return Stats(count, nan, inf, None, None, None, crc)
    return Stats(count, nan, inf, low, high, total / finite, crc)


def head(view: View, tensor: TensorEntry, byte_order: str, count: int) -> list[float | int] | None:
    """Return the first `count` values (parts of complex numbers, lanes) of a tensor, or None where it has none."""
    dtype = dtypes.parse(tensor.dtype)
    if tensor.encoding or dtype is None or not is_known(dtype):
        return None
    bits = dtype.bits // 2 if dtype.code == dtypes.COMPLEX else dtype.bits
    wanted = min(-(-count * bits // 8), tensor.nbytes)
    found: list[float | int] = []
    for data, _ in _steps(view, tensor, dtype, byte_order, -(-wanted // 48) * 48):
        found += values_of(data, dtype, byte_order).tolist()
        if len(found) >= count:
            break
    return found[: min(count, _value_count(tensor, dtype))]


def values_of(data: bytes, dtype: DType, byte_order: str) -> NDArray[Any]:
    """Return the values of whole elements as an array of one dimension: integers as such, all others as float64.

    Packed types begin in the least significant bits of the first byte; what fills the last byte counts as values.
    Raises LoadError where numpy is missing.
    """
    _need_numpy()
    import numpy

    order = "<" if byte_order == "little" else ">"
    name = _NUMPY.get((dtype.code, dtype.bits))
    if name is not None:
        array = numpy.frombuffer(data, f"{order}{name}")
        if not name.startswith("f"):
            return array
        with numpy.errstate(invalid="ignore"):  # a signalling NaN
            return array.astype(numpy.float64)
    if (dtype.code, dtype.bits) == (dtypes.FLOAT8_E8M0FNU, 8):
        powers = numpy.array([2.0 ** (code - 127) for code in range(255)] + [float("nan")])
        return powers[numpy.frombuffer(data, numpy.uint8)]
    codes = _codes(data, dtype.bits, order)
    if dtype.code == dtypes.UINT:
        return codes
    if dtype.code == dtypes.INT:
        sign = 1 << (dtype.bits - 1)
        signed: NDArray[Any] = (codes.astype(numpy.int8) ^ sign) - sign
        return signed
    values: NDArray[Any] = _table(_SMALL[dtype.code, dtype.bits])[codes]
    return values


def _steps(
    view: View, tensor: TensorEntry, dtype: DType, byte_order: str, limit: int
) -> Iterator[tuple[bytes, NDArray[Any]]]:
    """Yield (bytes, values) of the steps of a tensor, without what fills its last byte."""
    left = _value_count(tensor, dtype)
    limit = min(limit, tensor.nbytes)
    for data in view.chunks(tensor.offset, limit, f"tensor {shown(tensor.name)}", _STEP):
        values = values_of(data, dtype, byte_order)[:left]
        left -= len(values)
        yield data, values


def _value_count(tensor: TensorEntry, dtype: DType) -> int:
    count = dtype.lanes * (2 if dtype.code == dtypes.COMPLEX else 1)
    for extent in tensor.shape:
        count *= extent
    return count


def is_known(dtype: DType) -> bool:
    """Whether `values_of` decodes the type."""
    key = (dtype.code, dtype.bits)
    packed = dtype.code in (dtypes.INT, dtypes.UINT) and dtype.bits in (1, 2, 4)
    return key in _NUMPY or key in _SMALL or packed or key == (dtypes.FLOAT8_E8M0FNU, 8)


def _codes(data: bytes, bits: int, order: str) -> NDArray[Any]:
    import numpy

    if bits == 16:
        return numpy.frombuffer(data, f"{order}u2")
    raw = numpy.frombuffer(data, numpy.uint8)
    if bits == 8:
        return raw
    if bits == 6:
        # Four elements in three bytes; a rest of fewer bytes holds fewer.
        padded = numpy.zeros(-(-len(raw) // 3) * 3, numpy.uint32)
        padded[: len(raw)] = raw
        words = padded[0::3] | padded[1::3] << 8 | padded[2::3] << 16
        codes = numpy.stack([words >> shift & 63 for shift in (0, 6, 12, 18)], axis=1).ravel()
        return codes[: len(raw) * 8 // 6]
    shifts = numpy.arange(0, 8, bits, dtype=numpy.uint8)
    return (raw[:, None] >> shifts & (1 << bits) - 1).ravel()


def _table(small: _Small) -> NDArray[Any]:
    """Return the value of every code of a type."""
    import numpy

    bits = 1 + small.exponent + small.mantissa
    codes = numpy.arange(1 << bits)
    sign = numpy.where(codes >> (bits - 1), -1.0, 1.0)
    exponent = codes >> small.mantissa & (1 << small.exponent) - 1
    mantissa = codes & (1 << small.mantissa) - 1
    fraction = mantissa / (1 << small.mantissa)
    values = numpy.where(
        exponent == 0,
        sign * numpy.ldexp(fraction, 1 - small.bias),
        sign * numpy.ldexp(1 + fraction, exponent - small.bias),
    )
    highest = exponent == (1 << small.exponent) - 1
    if small.kind == _IEEE:
        values[highest] = numpy.nan
        infinite = highest & (mantissa == 0)
        values[infinite] = sign[infinite] * numpy.inf
    elif small.kind == _FN:
        values[highest & (mantissa == (1 << small.mantissa) - 1)] = numpy.nan
    elif small.kind == _FNUZ:
        values[1 << (bits - 1)] = numpy.nan
    return values


def _need_numpy() -> None:
    try:
        import numpy  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise LoadError("values need numpy, which is not installed", hint="pip install numpy") from error
