"""What the input readers share: bounded reads, names, shapes, JSON, and values as messages show them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from emitter.errors import InputError
from emitter.package import MAX_NDIM

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emitter.dtypes import DType
    from emitter.package import Tensor

__all__ = ["RAW_HINT", "Contents", "payload_bytes", "pread", "qualify", "shown", "stem"]

RAW_HINT = "write raw:FILE to take its bytes as they are"

_INT64_MAX = (1 << 63) - 1
_SHOWN = 120  # characters of a foreign value in a message


class Contents(NamedTuple):
    """What an input holds. The metadata is the input's own; whether it is kept is the caller's choice."""

    tensors: list[Tensor]
    metadata: dict[str, str]
    model_version: str = ""


def pread(fd: int, length: int, offset: int, where: str) -> bytes:
    """Return `length` bytes from `offset`; raise InputError if the file ends before, or if it cannot be read."""
    parts = []
    missing = length
    try:
        while missing:
            part = _pread(fd, min(missing, 1 << 30), offset + length - missing)
            if not part:
                raise InputError(
                    "ends too early",
                    where=where,
                    expected=f"{length} bytes from offset {offset}",
                    actual=length - missing,
                )
            parts.append(part)
            missing -= len(part)
    except OSError as error:
        raise InputError(f"cannot read: {error.strerror or error}", where=where) from error
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _pread_by_seek(fd: int, length: int, offset: int) -> bytes:
    os.lseek(fd, offset, os.SEEK_SET)
    return os.read(fd, length)


_pread = getattr(os, "pread", _pread_by_seek)  # Windows has no pread; no two threads share a descriptor here


def qualify(prefix: str, name: str) -> str:
    """Return `prefix` and `name` as one name, joined by a dot unless the prefix ends in one of `._-/:`."""
    if not prefix or prefix[-1] in "._-/:":
        return prefix + name
    return f"{prefix}.{name}"


def stem(path: str) -> str:
    """Return the file's name without its last suffix and its folder, on which the output must not depend."""
    return os.path.splitext(os.path.basename(path))[0]


def payload_bytes(dtype: DType, shape: Sequence[int], where: str) -> int:
    """Return the bytes of a compact tensor; raise InputError unless int64 strides can hold its dimensions."""
    if len(shape) > MAX_NDIM:
        raise InputError("too many dimensions", where=where, expected=f"at most {MAX_NDIM}", actual=len(shape))
    elements = step = 1
    for extent in shape:
        if type(extent) is not int or not 0 <= extent <= _INT64_MAX:  # a bool is an int, but no dimension
            raise InputError(
                "shape has a bad dimension", where=where, expected="integers from 0 to 2^63-1", actual=shown(extent)
            )
        elements *= extent
        step *= extent or 1
    if step > _INT64_MAX or elements * dtype.element_bits > 8 * _INT64_MAX:
        raise InputError(
            "shape is too large", where=where, expected="below 2^63 elements and bytes", actual=shown(list(shape))
        )
    return (elements * dtype.element_bits + 7) // 8


def shown(value: object) -> str:
    """Return a value from a file as a message shows it: short, on one line, whatever the value is."""
    if isinstance(value, (str, bytes)):
        return repr(value) if len(value) <= _SHOWN else f"{value[:_SHOWN]!r}... ({len(value)} in all)"
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"  # Python refuses to print long ones
    if value is None or isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        if len(value) <= MAX_NDIM and all(item is None or isinstance(item, (int, str, float)) for item in value):
            text = ", ".join(shown(item) for item in value)
            return f"[{text}]" if len(text) <= 4 * _SHOWN else f"[{text[: 4 * _SHOWN]}...]"
        return f"a list of {len(value)}"
    return "an object" if isinstance(value, dict) else f"a {type(value).__name__}"
