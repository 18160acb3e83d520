"""Exports payloads as DLPack: versioned capsules that say read-only, and writable copies.

What the structure says is written here. What keeps the memory alive and ends it is a capsule that numpy makes for an
array over the same bytes: a deleter must take the interpreter lock, may run after the interpreter's end, and may run
while an exception is on its way. A ctypes callback loses that exception; numpy's deleters are C.
"""

from __future__ import annotations

import ctypes

from emitter.dlpack import (
    FLAG_IS_COPIED,
    FLAG_READ_ONLY,
    K_DL_CPU,
    VERSION,
    DLManagedTensor,
    DLManagedTensorVersioned,
    capsule_pointer,
)
from emitter.loaders._arrays import raw_array
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from emitter.dtypes import DType

__all__ = ["CPU", "export"]

CPU = (K_DL_CPU, 0)


def export(
    data: memoryview,
    dtype: DType,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    *,
    where: str,
    stream: object,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> object:
    """Return a DLPack capsule over the read-only bytes `data`, or over a writable copy of them.

    A copy is made if `copy` is true, or if it is None and the bytes are not aligned for their type. The capsule is
    `dltensor_versioned` for consumers that pass a `max_version` of at least (1, 0), else `dltensor`, which cannot say
    read-only: for copies alone. Raises BufferError, as the protocol wants.
    """
    if stream is not None:
        raise BufferError(f"{where}: the bytes are in main memory, which has no streams; pass stream=None")
    if dl_device is not None and tuple(dl_device) != CPU:
        raise BufferError(f"{where}: the bytes are in main memory, device {CPU}; asked for {tuple(dl_device)}")
    versioned = max_version is not None and max_version[0] >= 1
    if not versioned and not copy:
        raise BufferError(
            f"{where}: read-only, which a consumer without max_version=(1, 0) or later cannot see; pass copy=True"
        )

    array = raw_array(data)
    aligned = array.__array_interface__["data"][0] % dtype.swap_unit == 0
    if copy is False and not aligned:
        raise BufferError(f"{where}: the bytes are not aligned to {dtype.swap_unit}; pass copy=True")
    copied = bool(copy) or not aligned
    owner = (array.copy() if copied else array).view(_owner_type())
    dims = ctypes.c_int64 * len(shape)
    owner.dims = dims(*shape), dims(*strides)

    if versioned:
        capsule = _numpy_capsule(owner, where)
        managed = DLManagedTensorVersioned.from_address(capsule_pointer(capsule, b"dltensor_versioned"))
        managed.major, managed.minor = min(VERSION, tuple(max_version or VERSION))
        managed.flags = FLAG_IS_COPIED if copied else FLAG_READ_ONLY
        tensor = managed.dl_tensor
    else:
        capsule = owner.__dlpack__()
        tensor = DLManagedTensor.from_address(capsule_pointer(capsule, b"dltensor")).dl_tensor
    if not len(data):
        tensor.data = None
    tensor.ndim = len(shape)
    tensor.code, tensor.bits, tensor.lanes = dtype
    tensor.shape, tensor.strides = owner.dims if shape else (None, None)
    return capsule


def _numpy_capsule(owner: Any, where: str) -> object:
    try:
        return owner.__dlpack__(max_version=(1, 0))
    except TypeError as error:
        raise BufferError(
            f"{where}: versioned DLPack needs numpy 2.1 or later; or pass copy=True and no max_version"
        ) from error


_owner: Any = None


def _owner_type() -> Any:
    """Return the class of the arrays that capsules own: numpy's, with room for the shape and the strides."""
    global _owner  # noqa: PLW0603 - a cache of one class
    if _owner is None:
        import numpy

        _owner = type("_Owner", (numpy.ndarray,), {})
    return _owner
