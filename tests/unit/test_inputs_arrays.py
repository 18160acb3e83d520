"""Tensors from numpy arrays and from DLPack."""

from __future__ import annotations

import ctypes
import gc
import weakref
from typing import Any

import ml_dtypes
import numpy
import pytest

from emitter.dtypes import BFLOAT, FLOAT4_E2M1FN, FLOAT6_E2M3FN, INT, TABLE, UINT, DType
from emitter.errors import InputError
from emitter.inputs.arrays import tensor_from_array
from emitter.package import NATIVE_BYTE_ORDER, BufferSource, Package, Tensor


def payload(tensor: Tensor) -> bytes:
    extent = tensor.extent
    assert isinstance(extent.source, BufferSource)
    assert extent.length == extent.source.size
    return bytes(extent.source.data[extent.offset : extent.offset + extent.length])


@pytest.mark.parametrize("row", [row for row in TABLE if row.in_numpy], ids=lambda row: row.name)
@pytest.mark.parametrize("order", ["<", ">"])
def test_numbers_of_numpy_in_both_byte_orders(row: Any, order: str) -> None:
    array = numpy.arange(6).astype(numpy.dtype(row.name).newbyteorder(order)).reshape(3, 2)
    tensor = tensor_from_array("t", array, alignment=128, metadata={"k": "v"})
    assert (tensor.dtype, tensor.shape, tensor.alignment, tensor.metadata) == (row.dtype, (3, 2), 128, {"k": "v"})
    assert payload(tensor) == array.tobytes()
    assert tensor.extent.byte_order == ("big" if order == ">" and array.itemsize > 1 else "little")
    assert not tensor.extent.fortran_order


@pytest.mark.parametrize(
    "row", [row for row in TABLE if not row.in_numpy and not row.dtype.packed], ids=lambda row: row.name
)
def test_whole_byte_types_of_ml_dtypes(row: Any) -> None:
    array = numpy.arange(4).astype(getattr(ml_dtypes, row.name))
    tensor = tensor_from_array("t", array)
    assert (tensor.dtype, payload(tensor)) == (row.dtype, array.tobytes())
    assert tensor.extent.byte_order == (NATIVE_BYTE_ORDER if row.dtype.bits > 8 else "little")


@pytest.mark.parametrize("row", [row for row in TABLE if row.dtype.packed], ids=lambda row: row.name)
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 7, 8, 9])
def test_sub_byte_types_of_ml_dtypes_are_packed(row: Any, count: int) -> None:
    kind = getattr(ml_dtypes, row.name, None)
    if kind is None:
        pytest.skip(f"{row.name} is not in ml_dtypes {ml_dtypes.__version__}")
    bits = row.dtype.bits
    codes = [(37 * i + 11) % (1 << bits) for i in range(count)]
    array = numpy.array(codes, numpy.uint8).view(kind)
    if row.name.startswith("int"):  # in memory these are sign-extended
        array = numpy.array([c - (1 << bits) if c >> (bits - 1) else c for c in codes], numpy.int8).astype(kind)
    tensor = tensor_from_array("t", array)
    expected = sum(code << (bits * i) for i, code in enumerate(codes))
    assert int.from_bytes(payload(tensor), "little") == expected
    assert tensor.nbytes == tensor.extent.length == (count * bits + 7) // 8


def test_a_row_major_array_is_seen_as_it_is_at_emission() -> None:
    array = numpy.zeros((2, 3), numpy.int16)
    tensor = tensor_from_array("t", array)
    array[1, 2] = 0x0101
    assert payload(tensor) == bytes(10) + b"\1\1"


def test_the_memory_stays_alive() -> None:
    array = numpy.full(1000, 7, numpy.uint8)
    gone = weakref.ref(array)
    tensor = tensor_from_array("t", array)
    del array
    gc.collect()
    assert payload(tensor) == b"\7" * 1000
    del tensor
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(
    "array",
    [
        numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3)),
        numpy.arange(24, dtype=">i4").reshape(2, 3, 4)[:, ::-1, ::2],
        numpy.broadcast_to(numpy.arange(3), (2, 3)),
        numpy.arange(10).astype(ml_dtypes.bfloat16)[::3],
        numpy.zeros((0, 3), order="F"),
        numpy.array(5, numpy.int32),
        numpy.float32(1.5),
        numpy.bool_(True),
    ],
)
def test_any_layout_becomes_row_major(array: Any) -> None:
    tensor = tensor_from_array("t", array)
    assert tensor.shape == array.shape
    assert payload(tensor) == array.tobytes("C")


def test_a_read_only_array_is_taken() -> None:
    array = numpy.arange(3)
    array.flags.writeable = False
    assert payload(tensor_from_array("t", array)) == array.tobytes()


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (numpy.array([None]), "dtype 'object'"),
        (numpy.zeros(1, [("a", "f4")]), "this type cannot be written"),
        (numpy.array(["a"]), "this type cannot be written"),
        (numpy.array([b"a"]), "this type cannot be written"),
        (numpy.array(["2020"], "M8[D]"), "this type cannot be written"),
        (numpy.zeros(1, numpy.longdouble), "this type cannot be written"),
        (numpy.zeros(1, "V2"), "this type cannot be written"),
        (numpy.ma.masked_array([1, 2], [True, False]), "mask would be lost.*filled"),
        ([1, 2], "not an array.*found list.*numpy.asarray"),
        (b"abc", "not an array.*add_raw"),
        (None, "not an array"),
    ],
)
def test_what_cannot_be_written_is_refused(array: object, message: str) -> None:
    with pytest.raises(InputError, match=f"tensor 't': .*{message}"):
        tensor_from_array("t", array)


# A producer of DLPack, written against dlpack.h apart from the reader.


class DLTensor(ctypes.Structure):
    """`DLTensor`."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 4),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


class Legacy(ctypes.Structure):
    """`DLManagedTensor`."""

    _fields_ = (("tensor", DLTensor), ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class Versioned(ctypes.Structure):
    """`DLManagedTensorVersioned`."""

    _fields_ = (
        ("version", ctypes.c_uint32 * 2),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    )


ctypes.pythonapi.PyCapsule_New.restype = ctypes.py_object
ctypes.pythonapi.PyCapsule_New.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


class Producer:
    """Exports `data` as a DLPack tensor; `freed` counts the capsules whose destructor has run."""

    def __init__(
        self,
        data: bytes | None,
        dtype: tuple[int, int, int],
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None = None,
        *,
        offset: int = 0,
        flags: int = 0,
        version: tuple[int, int] | None = (1, 0),
        device: int = 1,
    ) -> None:
        self.freed = 0
        self.device = device
        self.versioned = version is not None
        self._data = ctypes.create_string_buffer(data, len(data)) if data is not None else None
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        self._strides = (ctypes.c_int64 * len(shape))(*strides) if strides is not None else None
        self._managed = Versioned() if version else Legacy()
        if version:
            self._managed.version[:] = version
            self._managed.flags = flags
        tensor = self._managed.tensor
        tensor.data = ctypes.addressof(self._data) if self._data is not None else None
        tensor.device[:] = (device, 0)
        tensor.ndim = len(shape)
        tensor.dtype[:] = (dtype[0], dtype[1], dtype[2] & 255, dtype[2] >> 8)
        tensor.shape = ctypes.addressof(self._shape)
        tensor.strides = ctypes.addressof(self._strides) if self._strides is not None else None
        tensor.byte_offset = offset
        self._destructor = Destructor(self._destroy)

    def _destroy(self, _: int) -> None:
        self.freed += 1

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0

    def __dlpack__(self, **options: Any) -> object:
        if options and not self.versioned:
            msg = "__dlpack__() takes no keyword arguments"
            raise TypeError(msg)
        name = b"dltensor_versioned" if self.versioned else b"dltensor"
        destructor = ctypes.cast(self._destructor, ctypes.c_void_p)
        capsule: object = ctypes.pythonapi.PyCapsule_New(ctypes.addressof(self._managed), name, destructor)
        return capsule


class Wrapped:
    """Shows nothing of a numpy array but its DLPack protocol."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)


@pytest.mark.parametrize("row", [row for row in TABLE if row.in_numpy], ids=lambda row: row.name)
def test_dlpack_from_numpy(row: Any) -> None:
    array = numpy.arange(6).astype(row.name).reshape(2, 3)
    try:
        array.__dlpack__()
    except BufferError as error:
        pytest.skip(f"numpy {numpy.__version__} does not export {row.name}: {error}")
    tensor = tensor_from_array("t", Wrapped(array))
    assert (tensor.dtype, tensor.shape, payload(tensor)) == (row.dtype, (2, 3), array.tobytes())
    transposed = tensor_from_array("t", Wrapped(array.T))
    assert (transposed.shape, payload(transposed)) == ((3, 2), array.tobytes("F"))
    reverse = tensor_from_array("t", Wrapped(array[::-1, ::2]))
    assert payload(reverse) == array[::-1, ::2].tobytes()


@pytest.mark.parametrize("version", [(1, 0), (1, 9), None])
@pytest.mark.parametrize("strides", [None, (2, 1)])
def test_dlpack_of_a_type_that_numpy_refuses(version: tuple[int, int] | None, strides: tuple[int, int] | None) -> None:
    producer = Producer(b"xx" + bytes(range(8)), (BFLOAT, 16, 1), (2, 2), strides, offset=2, version=version)
    tensor = tensor_from_array("t", producer)
    assert (tensor.dtype, tensor.shape) == (DType(BFLOAT, 16), (2, 2))
    assert payload(tensor) == bytes(range(8))
    assert tensor.extent.byte_order == NATIVE_BYTE_ORDER
    gc.collect()
    assert producer.freed == 0
    del tensor
    gc.collect()
    assert producer.freed == 1


def test_dlpack_memory_is_not_copied() -> None:
    producer = Producer(bytes(4), (UINT, 8, 1), (4,))
    tensor = tensor_from_array("t", producer)
    assert producer._data is not None
    producer._data[2] = b"\x07"
    assert payload(tensor) == b"\0\0\7\0"


@pytest.mark.parametrize(
    ("dtype", "shape", "strides", "flags", "data", "expected"),
    [
        ((INT, 4, 1), (3,), (1,), 0, b"\x21\x03", b"\x21\x03"),
        ((INT, 4, 1), (3,), (1,), 4, b"\xf1\x02\x03", b"\x21\x03"),
        ((FLOAT4_E2M1FN, 4, 1), (2, 2), (1, 2), 4, b"\1\2\3\4", b"\x31\x42"),
        ((FLOAT6_E2M3FN, 6, 1), (4,), None, 0, b"abc", b"abc"),
        ((2, 32, 4), (2,), (1,), 0, bytes(range(32)), bytes(range(32))),
        ((2, 32, 2), (2,), (-1,), 0, bytes(range(16)), None),
        ((BFLOAT, 16, 1), (2, 2), (1, 2), 0, b"aabbccdd", b"aaccbbdd"),
        ((BFLOAT, 16, 1), (3,), (0,), 0, b"ab", b"ababab"),
        ((BFLOAT, 16, 1), (), None, 0, b"ab", b"ab"),
        ((BFLOAT, 16, 1), (0, 3), None, 0, None, b""),
        ((BFLOAT, 16, 1), (1, 2), (99, 1), 0, b"abcd", b"abcd"),
        ((BFLOAT, 16, 1), (1, 2), (1 << 62, 0), 0, b"ab", b"abab"),
    ],
)
def test_dlpack_layouts(
    dtype: tuple[int, int, int],
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    flags: int,
    data: bytes | None,
    expected: bytes | None,
) -> None:
    negative = expected is None
    producer = Producer(data, dtype, shape, strides, flags=flags, offset=8 if negative else 0)
    tensor = tensor_from_array("t", producer)
    assert (tensor.dtype, tensor.shape) == (DType(*dtype), shape)
    assert payload(tensor) == (bytes([*range(8, 16), *range(8)]) if negative else expected)


class Broken:
    """Fails to export."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **options: Any) -> Any:
        msg = "requires grad"
        raise BufferError(msg)


class NoCapsule(Broken):
    """Exports something else."""

    def __dlpack__(self, **options: Any) -> Any:
        return 7


@pytest.mark.parametrize(
    ("producer", "message"),
    [
        (Producer(b"ab", (BFLOAT, 16, 1), (1,), device=2), "not in CPU memory.*device 2.*copy it to the CPU"),
        (Producer(b"ab", (3, 64, 1), (1,)), "DLPack type 3:64:1"),
        (Producer(b"ab", (INT, 3, 1), (1,)), "DLPack type 0:3:1"),
        (Producer(b"ab", (INT, 8, 0), (1,)), "DLPack type 0:8:0"),
        (Producer(b"ab", (INT, 8, 1), (-1,)), "bad dimension"),
        (Producer(b"ab", (INT, 8, 1), (1 << 62, 4)), "too large"),
        (Producer(None, (INT, 8, 1), (1,)), "has no data"),
        (Producer(b"ab", (INT, 4, 1), (2, 2), (1, 2)), "must be row-major.*contiguous"),
        (Producer(b"ab", (INT, 16, 1), (2,), (1 << 62,)), "strides are out of range"),
        (Producer(b"ab", (INT, 4, 2), (2,), flags=4), "padded elements of several lanes"),
        (Producer(b"ab", (INT, 8, 1), (1,), version=(2, 0)), "another DLPack.*2.0"),
        (Broken(), "does not export DLPack: requires grad"),
        (NoCapsule(), "exports no DLPack capsule.*int"),
    ],
)
def test_dlpack_that_cannot_be_written_is_refused(producer: object, message: str) -> None:
    with pytest.raises(InputError, match=f"tensor 't': .*{message}"):
        tensor_from_array("t", producer)


def test_the_package_takes_arrays() -> None:
    package = Package()
    package.add_tensor("a", numpy.ones(2), metadata={"k": "v"}, alignment=8)
    (tensor,) = package.tensors
    assert (tensor.name, tensor.alignment, tensor.metadata) == ("a", 8, {"k": "v"})
