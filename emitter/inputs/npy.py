"""Reads .npy files without numpy: the header here, the elements later from the file.

Source: numpy.lib.format, versions 1.0, 2.0 and 3.0: the magic, two bytes of version, the length of the header (u16 in
version 1, else u32, little-endian), the header (a Python literal: a dictionary of descr, fortran_order and shape),
the elements.
"""

from __future__ import annotations

import re

from emitter.dtypes import BOOL, COMPLEX, FLOAT, INT, UINT, DType
from emitter.errors import InputError, shown
from emitter.inputs._common import Contents, pread, stem
from emitter.package import NATIVE_BYTE_ORDER, Extent, FileSource, Tensor
from emitter.records import TYPE_CHECKING, NamedTuple
from emitter.values import payload_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from emitter.package import ByteOrder

__all__ = ["Header", "parse_header", "read"]

MAGIC = b"\x93NUMPY"
MAX_HEADER = 64 << 10

_DTYPES = {
    "b1": DType(BOOL, 8),
    **{f"i{size}": DType(INT, 8 * size) for size in (1, 2, 4, 8)},
    **{f"u{size}": DType(UINT, 8 * size) for size in (1, 2, 4, 8)},
    **{f"f{size}": DType(FLOAT, 8 * size) for size in (2, 4, 8)},
    **{f"c{size}": DType(COMPLEX, 8 * size) for size in (8, 16)},
}
_BYTE_ORDERS: dict[str, ByteOrder] = {"<": "little", ">": "big", "=": NATIVE_BYTE_ORDER, "": NATIVE_BYTE_ORDER}
_REFUSED = {
    "O": "elements are Python objects, kept as a pickle, which is never opened",
    "V": "elements have no type: numpy writes those of ml_dtypes (bfloat16, float8) so, and loses their name",
    "f": "elements are of the long double type, which differs between machines",
    "c": "elements are of the complex long double type, which differs between machines",
    "S": "elements are byte strings",
    "a": "elements are byte strings",
    "U": "elements are strings",
    "T": "elements are strings",
    "M": "elements are dates",
    "m": "elements are time spans",
}
_HINT = "save it as safetensors, or as an array of numbers"


class Header(NamedTuple):
    """A parsed header. The elements are `nbytes` bytes from `data_offset`; `fortran_order` only where it matters."""

    dtype: DType
    shape: tuple[int, ...]
    byte_order: ByteOrder
    fortran_order: bool
    data_offset: int
    nbytes: int


def read(source: FileSource, prefix: str) -> Contents:
    """Return the one tensor of a .npy file, called `prefix` or, without one, after the file's stem."""
    path = source.path
    with source.open() as fd:
        header = parse_header(lambda count: pread(fd, count, 0, path), source.size, path)
    extent = Extent(source, header.data_offset, header.nbytes, header.byte_order, fortran_order=header.fortran_order)
    return Contents([Tensor(prefix or stem(path), header.dtype, header.shape, extent)])


def parse_header(read_first: Callable[[int], bytes], size: int, where: str) -> Header:
    """Parse the header of a .npy of `size` bytes, of which `read_first` returns the first ones.

    Raises InputError for a header that is malformed, for a dtype that is not a number's, and unless header and
    elements are exactly `size` bytes.
    """
    start = read_first(min(size, 12))
    if not start.startswith(MAGIC) or len(start) < 10:
        raise InputError(
            "this is not a .npy file, or it is cut off",
            where=where,
            actual=f"{size} bytes that begin {start[:8].hex(' ')}",
        )
    version = start[6]
    if version not in (1, 2, 3):
        raise InputError(
            "the version of .npy is unknown", where=where, expected="1.0, 2.0 or 3.0", actual=f"{version}.{start[7]}"
        )
    fixed = 10 if version == 1 else 12
    length = int.from_bytes(start[8:fixed], "little")
    if fixed + length > size or length > MAX_HEADER:
        limit = max(0, min(size - fixed, MAX_HEADER))
        raise InputError(
            "the header is too long",
            where=where,
            expected=f"at most {limit} bytes",
            actual=length,
            hint="the file may be truncated",
        )
    data_offset = fixed + length
    fields = _parse_literal(read_first(data_offset)[fixed:], version, where)
    dtype, byte_order = _parse_descr(fields["descr"], where)
    shape, fortran_order = fields["shape"], fields["fortran_order"]
    if type(shape) is not tuple:
        raise InputError("shape is wrong", where=where, expected="a tuple of integers", actual=shown(shape))
    if type(fortran_order) is not bool:
        raise InputError("fortran_order is wrong", where=where, expected="True or False", actual=shown(fortran_order))
    nbytes = payload_bytes(dtype, shape, where)
    if nbytes != size - data_offset:
        raise InputError(
            "the file's size contradicts its header",
            where=where,
            expected=f"{nbytes} bytes of elements for {dtype} {shown(shape)}",
            actual=size - data_offset,
            hint="the file may be truncated" if nbytes > size - data_offset else "only one array can be in a .npy file",
        )
    transposed = fortran_order and nbytes > 0 and sum(extent > 1 for extent in shape) > 1
    return Header(dtype, shape, byte_order, transposed, data_offset, nbytes)


def _parse_literal(data: bytes, version: int, where: str) -> dict[str, object]:
    import ast
    import warnings

    where = f"{where}: header"
    try:
        text = data.decode("utf-8" if version == 3 else "latin-1").strip()
        with warnings.catch_warnings():
            # A literal with odd escapes is refused below or harmless, and no concern of the user's.
            warnings.simplefilter("ignore")
            # Python 2 wrote long integers as 3L.
            fields = ast.literal_eval(re.sub(r"(?<=\d)L(?=[,)])", "", text))
    except UnicodeDecodeError as error:
        raise InputError("this is not UTF-8", where=where) from error
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise InputError("this is not a Python literal", where=where, actual=shown(data)) from error
    if not isinstance(fields, dict) or fields.keys() != {"descr", "fortran_order", "shape"}:
        raise InputError(
            "this is not the dictionary of a .npy file",
            where=where,
            expected="descr, fortran_order, shape",
            actual=shown(data),
        )
    return fields


def _parse_descr(descr: object, where: str) -> tuple[DType, ByteOrder]:
    if not isinstance(descr, str):
        raise InputError(
            "elements are structures of several fields", where=where, actual=f"descr {shown(descr)}", hint=_HINT
        )
    match = re.fullmatch(r"([<>|=]?)([A-Za-z])(.*)", descr, re.DOTALL)
    order, kind, rest = match.groups() if match else ("", "", "")
    dtype = _DTYPES.get(kind + rest)
    if dtype is None:
        what = (
            _REFUSED.get(kind, "the element type is unknown")
            if not rest or rest[0] in "0123456789["
            else "the element type is unknown"
        )
        raise InputError(
            what, where=where, expected=f"one of {', '.join(_DTYPES)}", actual=f"descr {shown(descr)}", hint=_HINT
        )
    if order == "|" and dtype.bits > 8:
        raise InputError("descr gives no byte order", where=where, expected="< or >", actual=f"descr {shown(descr)}")
    return dtype, "little" if dtype.bits == 8 else _BYTE_ORDERS[order]
