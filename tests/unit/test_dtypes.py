"""Element types."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from emitter.dtypes import BY_SAFETENSORS, TABLE, DType, Row, describe, parse, row_of


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_name_and_type_agree_in_both_directions(row: Row) -> None:
    assert describe(row.dtype) == row.name
    assert parse(row.name) == row.dtype
    assert row_of(row.dtype) == row


@pytest.mark.parametrize("row", [row for row in TABLE if row.in_numpy], ids=lambda row: row.name)
def test_numpy_agrees_on_size(row: Row) -> None:
    assert np.dtype(row.name).itemsize * 8 == row.dtype.element_bits


@pytest.mark.parametrize(
    "row", [row for row in TABLE if not row.in_numpy and not row.dtype.packed], ids=lambda row: row.name
)
def test_ml_dtypes_has_what_numpy_lacks(row: Row) -> None:
    assert np.dtype(getattr(ml_dtypes, row.name)).itemsize * 8 == row.dtype.element_bits


def test_lanes_are_part_of_the_name() -> None:
    vector = DType(2, 32, 4)
    assert describe(vector) == "float32x4"
    assert parse("float32x4") == vector
    assert vector.nbytes((3,)) == 48
    assert parse("float32x1") is None
    assert parse("float32x65536") is None
    assert parse("float33") is None


def test_a_type_without_a_name_is_described_by_its_numbers() -> None:
    assert describe(DType(2, 24)) == "2:24:1"


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("float32", 4),
        ("complex64", 4),
        ("complex128", 8),
        ("int8", 1),
        ("bool", 1),
        ("bfloat16", 2),
        ("int4", 1),
        ("float6_e2m3fn", 1),
    ],
)
def test_swap_unit(name: str, unit: int) -> None:
    dtype = parse(name)
    assert dtype is not None
    assert dtype.swap_unit == unit


@pytest.mark.parametrize(
    ("name", "shape", "size"),
    [
        ("int4", (3,), 2),
        ("float6_e3m2fn", (4,), 3),
        ("float6_e3m2fn", (5,), 4),
        ("uint1", (9,), 2),
        ("float32", (), 4),
        ("float32", (3, 0), 0),
    ],
)
def test_nbytes_rounds_packed_types_up(name: str, shape: tuple[int, ...], size: int) -> None:
    dtype = parse(name)
    assert dtype is not None
    assert dtype.nbytes(shape) == size


def test_every_safetensors_type_is_known() -> None:
    known = "BOOL U8 I8 I16 U16 I32 U32 I64 U64 F16 BF16 F32 F64 C64 F8_E4M3 F8_E5M2 F8_E8M0 F6_E2M3 F6_E3M2 F4"
    assert set(known.split()) <= set(BY_SAFETENSORS)
