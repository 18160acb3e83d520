"""What callers and files hand over, checked: text, paths, metadata, shapes."""

from __future__ import annotations

import os
from collections.abc import Mapping

from emitter.errors import InputError, UsageError, shown
from emitter.pack import format as fmt
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from emitter.dtypes import DType

__all__ = [
    "check_alignment",
    "check_function",
    "check_metadata",
    "check_text",
    "output_path",
    "parse_toml",
    "path_text",
    "payload_bytes",
    "typed",
]

_INT64_MAX = (1 << 63) - 1


def path_text(path: object) -> str:
    """Return a path as text; raise UsageError for what is none."""
    if isinstance(path, (str, os.PathLike)):
        name = os.fspath(path)
        if isinstance(name, str):
            return name
    hint = "write os.fsdecode(path)" if isinstance(path, (bytes, os.PathLike)) else None
    raise UsageError("this is not a path", expected="text, or an os.PathLike of text", actual=typed(path), hint=hint)


def output_path(path: object) -> str:
    """Return the path of what is to be written, as text; raise UsageError for a name that no file can have."""
    name = path_text(path)
    try:
        possible = b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:  # half of a surrogate pair
        possible = False
    if not possible:
        raise UsageError("the output has no name that a file can have", where=shown(name), hint="choose another name")
    return name


def check_alignment(value: object, where: str | None = None) -> None:
    """Raise UsageError unless `value` is an alignment that a pack can keep, or None."""
    if value is not None and not (type(value) is int and 0 < value <= fmt.MAX_ALIGNMENT and value & (value - 1) == 0):
        raise UsageError(
            "the alignment cannot be kept",
            where=where,
            expected=f"a power of two, 1 to {fmt.MAX_ALIGNMENT}",
            actual=typed(value),
        )


def check_function(value: object, what: str) -> None:
    """Raise UsageError unless `value` can be called, or is None. `what` names it."""
    if value is not None and not callable(value):
        raise UsageError(f"{what} cannot be called", expected="a function, or None", actual=typed(value))


def check_text(value: object, what: str) -> str:
    """Return `value`; raise UsageError unless it is text. `what` names it."""
    if not isinstance(value, str):
        raise UsageError(f"{what} is not text", expected="a str", actual=typed(value))
    return value


def check_metadata(metadata: object, where: str) -> dict[str, str]:
    """Return a copy of metadata, empty for None; raise UsageError unless it is a mapping of text to text."""
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise UsageError("the metadata is not a mapping", where=where, expected="text by text", actual=typed(metadata))
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise UsageError(
                "the metadata is not text", where=where, expected="a str for a str",
                actual=f"{typed(value)} for {typed(key)}", hint="convert it with str, or json.dumps",
            )  # fmt: skip
    return dict(metadata)


def parse_toml(text: str) -> dict[str, Any]:
    """Return a TOML document. Raises ValueError or RecursionError for what is none."""
    from importlib import import_module

    try:
        toml = import_module("tomllib")
    except ImportError:
        toml = import_module("tomli")  # Python 3.10
    document: dict[str, Any] = toml.loads(text)
    return document


def payload_bytes(dtype: DType, shape: Sequence[int], where: str) -> int:
    """Return the bytes of a compact tensor; raise InputError for a shape that no pack can hold.

    Strides and the size in bytes must fit an int64; an empty dimension counts as one in strides, as in numpy.
    """
    if len(shape) > fmt.MAX_NDIM:
        raise InputError("too many dimensions", where=where, expected=f"at most {fmt.MAX_NDIM}", actual=len(shape))
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


def typed(value: object) -> str:
    """Return a value of the caller's with its type, where that is what is wrong."""
    text = shown(value)
    return text if type(value) in (int, str, bytes) or text.startswith("a ") else f"{text} ({type(value).__name__})"
