"""The structures of DLPack, which the input of arrays reads and the loader writes.

Source: dlpack.h 1.1 (DLDevice, DLDataType, DLTensor, DLManagedTensor, DLManagedTensorVersioned); the Python
specification of the protocol (`__dlpack_device__`, `__dlpack__`, names of capsules). Native alignment and
byte order.
"""

from __future__ import annotations

import ctypes

__all__ = [
    "FLAG_IS_COPIED",
    "FLAG_IS_SUBBYTE_TYPE_PADDED",
    "FLAG_READ_ONLY",
    "K_DL_CPU",
    "VERSION",
    "DLManagedTensor",
    "DLManagedTensorVersioned",
    "DLTensor",
    "capsule_is_valid",
    "capsule_pointer",
]

VERSION = (1, 1)
K_DL_CPU = 1

FLAG_READ_ONLY = 1 << 0
FLAG_IS_COPIED = 1 << 1
FLAG_IS_SUBBYTE_TYPE_PADDED = 1 << 2  # one element of less than a byte per byte


class DLTensor(ctypes.Structure):
    """DLTensor, with the fields of its DLDevice (device_*) and its DLDataType (code, bits, lanes) side by side."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class DLManagedTensor(ctypes.Structure):
    """What a capsule named `dltensor` points to."""

    _fields_ = (("dl_tensor", DLTensor), ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class DLManagedTensorVersioned(ctypes.Structure):
    """What a capsule named `dltensor_versioned` points to: `major` and `minor` are its DLPackVersion."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("dl_tensor", DLTensor),
    )


# Prototypes of our own: those of `ctypes.pythonapi` are shared with every other user of ctypes in the process.
capsule_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
