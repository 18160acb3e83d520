"""Element types: DLPack's (code, bits, lanes), and the names that other formats give them.

Source: `DLDataTypeCode` and `DLDataType` of dlpack.h 1.1; the `Dtype` enumeration of safetensors 0.8. One table serves
the inputs, the pack, the loaders and the generated headers.
"""

from __future__ import annotations

from emitter.records import NamedTuple

__all__ = ["BY_NAME", "BY_SAFETENSORS", "TABLE", "DType", "Row", "describe", "parse"]


class DType(NamedTuple):
    """An element type: DLPack type code, bits of one lane, lanes of one element."""

    code: int
    bits: int
    lanes: int = 1

    @property
    def element_bits(self) -> int:
        """Bits of one element, all lanes."""
        return self.bits * self.lanes

    @property
    def packed(self) -> bool:
        """Whether elements share bytes, least significant bits first (DLPack's rule for sub-byte types)."""
        return self.element_bits % 8 != 0

    @property
    def swap_unit(self) -> int:
        """Bytes that change places with the byte order: a lane, or a component of a complex lane; 1 if none do."""
        if self.bits % 8:
            return 1
        unit = self.bits // 8
        return unit // 2 if self.code == COMPLEX else unit

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of a compact tensor of `shape`; packed types fill the last byte with zero bits."""
        elements = 1
        for extent in shape:
            elements *= extent
        return (elements * self.element_bits + 7) // 8

    def __str__(self) -> str:
        return describe(self)


# DLDataTypeCode
INT, UINT, FLOAT, OPAQUE_HANDLE, BFLOAT, COMPLEX, BOOL = range(7)
(
    FLOAT8_E3M4,
    FLOAT8_E4M3,
    FLOAT8_E4M3B11FNUZ,
    FLOAT8_E4M3FN,
    FLOAT8_E4M3FNUZ,
    FLOAT8_E5M2,
    FLOAT8_E5M2FNUZ,
    FLOAT8_E8M0FNU,
) = range(7, 15)
FLOAT6_E2M3FN, FLOAT6_E3M2FN, FLOAT4_E2M1FN = range(15, 18)


class Row(NamedTuple):
    """One named element type. `safetensors` is None where that format has no such type."""

    name: str
    dtype: DType
    safetensors: str | None
    in_numpy: bool  # numpy itself has the type, under the same name; else ml_dtypes has, or (packed types) nobody


TABLE: tuple[Row, ...] = (
    Row("bool", DType(BOOL, 8), "BOOL", True),
    Row("int8", DType(INT, 8), "I8", True),
    Row("int16", DType(INT, 16), "I16", True),
    Row("int32", DType(INT, 32), "I32", True),
    Row("int64", DType(INT, 64), "I64", True),
    Row("uint8", DType(UINT, 8), "U8", True),
    Row("uint16", DType(UINT, 16), "U16", True),
    Row("uint32", DType(UINT, 32), "U32", True),
    Row("uint64", DType(UINT, 64), "U64", True),
    Row("float16", DType(FLOAT, 16), "F16", True),
    Row("float32", DType(FLOAT, 32), "F32", True),
    Row("float64", DType(FLOAT, 64), "F64", True),
    Row("complex64", DType(COMPLEX, 64), "C64", True),
    Row("complex128", DType(COMPLEX, 128), None, True),
    Row("bfloat16", DType(BFLOAT, 16), "BF16", False),
    Row("float8_e3m4", DType(FLOAT8_E3M4, 8), None, False),
    Row("float8_e4m3", DType(FLOAT8_E4M3, 8), None, False),
    Row("float8_e4m3b11fnuz", DType(FLOAT8_E4M3B11FNUZ, 8), None, False),
    Row("float8_e4m3fn", DType(FLOAT8_E4M3FN, 8), "F8_E4M3", False),
    Row("float8_e4m3fnuz", DType(FLOAT8_E4M3FNUZ, 8), "F8_E4M3FNUZ", False),
    Row("float8_e5m2", DType(FLOAT8_E5M2, 8), "F8_E5M2", False),
    Row("float8_e5m2fnuz", DType(FLOAT8_E5M2FNUZ, 8), "F8_E5M2FNUZ", False),
    Row("float8_e8m0fnu", DType(FLOAT8_E8M0FNU, 8), "F8_E8M0", False),
    Row("float6_e2m3fn", DType(FLOAT6_E2M3FN, 6), "F6_E2M3", False),
    Row("float6_e3m2fn", DType(FLOAT6_E3M2FN, 6), "F6_E3M2", False),
    Row("float4_e2m1fn", DType(FLOAT4_E2M1FN, 4), "F4", False),
    Row("int2", DType(INT, 2), None, False),
    Row("int4", DType(INT, 4), None, False),
    Row("uint1", DType(UINT, 1), None, False),
    Row("uint2", DType(UINT, 2), None, False),
    Row("uint4", DType(UINT, 4), None, False),
)

BY_NAME: dict[str, Row] = {row.name: row for row in TABLE}
BY_SAFETENSORS: dict[str, Row] = {row.safetensors: row for row in TABLE if row.safetensors}
_BY_DTYPE: dict[DType, Row] = {row.dtype: row for row in TABLE}


def describe(dtype: DType) -> str:
    """Return the table's name, with `xN` for N lanes (`float32x4`), or `code:bits:lanes` for a type without a name."""
    row = _BY_DTYPE.get(DType(dtype.code, dtype.bits))
    if row is None:
        return f"{dtype.code}:{dtype.bits}:{dtype.lanes}"
    return row.name if dtype.lanes == 1 else f"{row.name}x{dtype.lanes}"


def parse(name: str) -> DType | None:
    """Return the type that `describe` calls `name`, or None."""
    row = BY_NAME.get(name)
    if row is not None:
        return row.dtype
    base, _, lanes = name.rpartition("x")
    if base in BY_NAME and lanes.isascii() and lanes.isdecimal() and 1 < int(lanes) < 65536:
        return BY_NAME[base].dtype._replace(lanes=int(lanes))
    return None


def row_of(dtype: DType) -> Row | None:
    """Return the table row of a one-lane type, or None."""
    return _BY_DTYPE.get(dtype)
