"""Reads DLPack capsules. numpy's own importer refuses bfloat16, float8 and packed types, so this one serves them all.

The capsule is never renamed, so its own destructor frees the producer's tensor when the last view of the memory is
gone.
"""

from __future__ import annotations

import ctypes
from typing import Any

from emitter.dlpack import (
    FLAG_IS_SUBBYTE_TYPE_PADDED,
    K_DL_CPU,
    VERSION,
    DLManagedTensorVersioned,
    DLTensor,
    capsule_is_valid,
    capsule_pointer,
)
from emitter.dtypes import DType, row_of
from emitter.errors import InputError, shown
from emitter.values import payload_bytes

__all__ = ["import_dlpack"]


def import_dlpack(name: str, array: Any) -> tuple[DType, tuple[int, ...], memoryview]:
    """Return the type, the shape and the bytes of an array that exports DLPack: a view where it is row-major."""
    import numpy

    from emitter.inputs.arrays import pack_elements

    where = f"tensor {shown(name)}"
    capsule = _export(array, where)
    tensor, flags = _open(capsule, where)
    if tensor.device_type != K_DL_CPU:
        raise _other_device(tensor.device_type, where)
    dtype = DType(tensor.code, tensor.bits, tensor.lanes)
    if row_of(dtype._replace(lanes=1)) is None or not dtype.lanes:
        raise InputError(
            "elements of this type cannot be written",
            where=where,
            actual=f"DLPack type {dtype.code}:{dtype.bits}:{dtype.lanes}",
        )
    if tensor.ndim < 0 or (tensor.ndim and not tensor.shape):
        raise InputError("the DLPack tensor has no shape", where=where, actual=f"ndim {tensor.ndim}")
    shape = tuple(tensor.shape[: tensor.ndim])
    nbytes = payload_bytes(dtype, shape, where)
    if nbytes == 0:
        return dtype, shape, memoryview(b"")
    if not tensor.data:
        raise InputError("the DLPack tensor has no data", where=where, actual=f"shape {shown(shape)}")

    padded = dtype.bits % 8 != 0 and bool(flags & FLAG_IS_SUBBYTE_TYPE_PADDED)
    if padded and dtype.lanes != 1:
        raise InputError("padded elements of several lanes cannot be written", where=where, actual=dtype)
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else None
    compact = strides is None or _is_compact(shape, strides)
    if not compact and dtype.packed and not padded:
        raise InputError(
            "packed elements must be row-major",
            where=where,
            actual=f"strides {shown(strides)}",
            hint="make it contiguous first",
        )
    item = 1 if dtype.packed else dtype.element_bits // 8
    start = tensor.data + tensor.byte_offset
    if compact:
        elements = 1
        for extent in shape:
            elements *= extent
        view = _memory(start, elements if padded else nbytes, capsule)
    else:
        # Elements lie on both sides of the first one where strides are negative.
        steps = [(extent - 1) * stride * item for extent, stride in zip(shape, strides or (), strict=True)]
        below = -sum(step for step in steps if step < 0)
        span = below + sum(step for step in steps if step > 0) + item
        if span >= 1 << 63:
            raise InputError("strides are out of range", where=where, actual=shown(strides))
        block = _memory(start - below, span, capsule)
        distances = tuple(
            stride * item if extent > 1 else 0 for extent, stride in zip(shape, strides or (), strict=True)
        )
        strided = numpy.ndarray(shape, f"V{item}", block.data, below, distances)
        view = numpy.array(strided, order="C").reshape(-1).view(numpy.uint8)
    if padded:
        view = pack_elements(view, dtype.bits)
    return dtype, shape, memoryview(view)


def _export(array: Any, where: str) -> object:
    try:
        device = array.__dlpack_device__()
        kind = int(device[0])
        if kind == K_DL_CPU:
            try:
                return array.__dlpack__(max_version=VERSION)
            except TypeError:  # a producer from before DLPack 1.0
                return array.__dlpack__()
    except Exception as error:  # the producer's code: whatever it raises, its words are what the user needs
        raise InputError(
            f"the array does not export DLPack: {error}", where=where, hint="convert it to a numpy array first"
        ) from error
    raise _other_device(kind, where)


def _other_device(kind: int, where: str) -> InputError:
    return InputError(
        "the array is not in CPU memory",
        where=where,
        expected="DLPack device 1 (kDLCPU)",
        actual=f"device {kind}",
        hint="copy it to the CPU first",
    )


def _open(capsule: object, where: str) -> tuple[DLTensor, int]:
    """Return the capsule's tensor and its flags."""
    if capsule_is_valid(capsule, b"dltensor_versioned"):
        managed = DLManagedTensorVersioned.from_address(capsule_pointer(capsule, b"dltensor_versioned"))
        if managed.major != VERSION[0]:
            raise InputError(
                "the array exports another DLPack",
                where=where,
                expected="version 1",
                actual=f"{managed.major}.{managed.minor}",
            )
        return managed.dl_tensor, managed.flags
    if capsule_is_valid(capsule, b"dltensor"):
        return DLTensor.from_address(capsule_pointer(capsule, b"dltensor")), 0
    raise InputError("the array exports no DLPack capsule", where=where, actual=type(capsule).__name__)


def _is_compact(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True


def _memory(address: int, size: int, capsule: object) -> Any:
    """Return the memory as a uint8 array that keeps the capsule alive."""
    import numpy

    block: Any = (ctypes.c_uint8 * size).from_address(address)
    block.capsule = capsule  # the array refers to the block, and the block to the capsule
    return numpy.frombuffer(block, numpy.uint8)
