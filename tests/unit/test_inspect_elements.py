"""Values of tensors: every element type against numpy and ml_dtypes, and statistics against whole arrays."""

from __future__ import annotations

import math
from typing import Any

import google_crc32c
import ml_dtypes
import numpy as np
import pytest

from emitter.dtypes import TABLE
from emitter.inspect.elements import Stats, head, measure, values_of
from emitter.inspect.report import TensorEntry
from emitter.inspect.view import View

NATIVE = [row for row in TABLE if row.in_numpy]
FOREIGN = [row for row in TABLE if not row.in_numpy and row.name != "uint1"]


def _entry(name: str, shape: tuple[int, ...], nbytes: int, encoding: int = 0) -> TensorEntry:
    return TensorEntry("t", name, shape, (), nbytes, 1, 0, 0, encoding, "")


def _measure(data: bytes, name: str, shape: tuple[int, ...], byte_order: str = "little") -> Stats:
    return measure(View.of_bytes(data, "m"), _entry(name, shape, len(data)), byte_order)


@pytest.mark.parametrize("row", FOREIGN, ids=lambda row: str(row.name))
def test_every_code_of_a_type_without_numpy_is_that_of_ml_dtypes(row: Any) -> None:
    kind = np.dtype(getattr(ml_dtypes, row.name))
    codes = np.arange(1 << row.dtype.bits)
    expected = codes.astype(np.uint16 if row.dtype.bits == 16 else np.uint8).view(kind)
    bits = (codes[:, None] >> np.arange(row.dtype.bits)) & 1
    data = np.packbits(bits.astype(np.uint8).ravel(), bitorder="little").tobytes()
    found = values_of(data, row.dtype, "little").astype(np.float64)
    with np.errstate(invalid="ignore"):  # numpy warns of signalling NaNs
        np.testing.assert_array_equal(found, expected.astype(np.float64))
    if row.dtype.bits == 16:
        swapped = np.frombuffer(data, "<u2").astype(">u2").tobytes()
        np.testing.assert_array_equal(values_of(swapped, row.dtype, "big"), found)


@pytest.mark.parametrize("byte_order", ["little", "big"])
@pytest.mark.parametrize("row", NATIVE, ids=lambda row: str(row.name))
def test_statistics_of_numpys_types(row: Any, byte_order: str) -> None:
    generator = np.random.default_rng(7)
    array: Any = generator.integers(-100 if row.name[0] in "ifc" else 0, 100, 91).astype(row.name)
    data = array.astype(array.dtype.newbyteorder("<" if byte_order == "little" else ">")).tobytes()
    stats = _measure(data, row.name, (7, 13), byte_order)
    values = (array.view(f"f{array.itemsize // 2}") if array.dtype.kind == "c" else array).astype(np.float64)
    assert (stats.values, stats.nan, stats.inf) == (values.size, 0, 0)
    assert (stats.minimum, stats.maximum) == (values.min(), values.max())
    assert stats.mean == pytest.approx(values.mean(), rel=1e-12)
    assert stats.crc32c == google_crc32c.value(data)


def test_a_signalling_nan_and_a_sum_without_bounds_warn_of_nothing() -> None:
    stats = _measure(np.array([0x7D01, 0xFC00], "<u2").tobytes(), "float16", (2,))
    assert (stats.nan, stats.inf, stats.mean) == (1, 1, None)
    stats = _measure(np.full(4, 1.7e308).tobytes(), "float64", (4,))
    assert stats.mean == math.inf


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_nan_and_infinity_are_counted_and_left_out_of_the_rest(name: str) -> None:
    data = np.array([math.nan, 1, -math.inf, math.nan, 3, math.inf, math.inf], name).tobytes()
    stats = _measure(data, name, (7,))
    assert stats == Stats(7, 2, 3, 1.0, 3.0, 2.0, google_crc32c.value(data))
    data = np.array([math.nan, math.inf], name).tobytes()
    assert _measure(data, name, (2,)) == Stats(2, 1, 1, None, None, None, google_crc32c.value(data))


def test_no_values_have_no_least_one() -> None:
    assert _measure(b"", "float32", (0, 4)) == Stats(0, 0, 0, None, None, None, 0)


def test_bits_that_fill_the_last_byte_are_no_values() -> None:
    data = bytes([0b00_11_10_01])  # int2: 1, -2, -1, and two bits that belong to none
    assert _measure(data, "int2", (3,)) == Stats(3, 0, 0, -2.0, 1.0, -2 / 3, google_crc32c.value(data))


@pytest.mark.parametrize("name", ["float32", "float6_e2m3fn", "int4", "complex128", "uint1"])
def test_steps_give_what_the_whole_gives(name: str) -> None:
    row = next(row for row in TABLE if row.name == name)
    count = 8 * (3 << 18) // row.dtype.bits * 2 + 8  # two steps and a little
    codes = np.random.default_rng(3).integers(0, 256, row.dtype.nbytes((count,)), np.uint8)
    data = np.arange(len(codes) // 16 * 2, dtype=np.float64).tobytes() if row.in_numpy else codes.tobytes()
    count = len(data) * 8 // row.dtype.bits
    values = values_of(data, row.dtype, "little").astype(np.float64)
    finite = values[np.isfinite(values)]
    stats = _measure(data, name, (count,))
    assert stats.values == values.size
    assert stats.mean == np.cumsum(finite)[-1] / len(finite)
    assert (stats.minimum, stats.maximum) == (finite.min(), finite.max())
    assert stats.crc32c == google_crc32c.value(data)


def test_lanes_count_as_values() -> None:
    data = np.arange(8, dtype="<f4").tobytes()
    stats = _measure(data, "float32x4", (2,))
    assert (stats.values, stats.maximum) == (8, 7.0)


@pytest.mark.parametrize(("name", "encoding"), [("float32", 7), ("99:8:1", 0), ("float64", 3)])
def test_bytes_without_known_values_have_no_statistics(name: str, encoding: int) -> None:
    entry = _entry(name, (2,), 8, encoding)
    view = View.of_bytes(bytes(8), "m")
    assert measure(view, entry, "little") == Stats(None, None, None, None, None, None, google_crc32c.value(bytes(8)))
    assert head(view, entry, "little", 4) is None


def test_head_stops_where_the_tensor_does() -> None:
    data = np.arange(100, dtype="<i2").tobytes() + b"behind"
    entry = _entry("int16", (100,), 200)
    view = View.of_bytes(data, "m")
    assert head(view, entry, "little", 3) == [0, 1, 2]
    assert head(view, entry, "little", 1000) == list(range(100))
    assert head(view, entry, "little", 0) == []
    packed = _entry("uint4", (3,), 2)
    assert head(View.of_bytes(bytes([0x21, 0x03]), "m"), packed, "little", 9) == [1, 2, 3]
