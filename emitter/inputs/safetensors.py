"""Reads safetensors files, and the JSON index of a model that is split into several of them.

Source: the format of safetensors 0.8: u64 little-endian length of the header, the header (a JSON object, padded with
spaces), the bytes of the tensors, little-endian and row-major, without holes or overlap. Offsets count from the end
of the header. The index is the one that Hugging Face writes: an object whose `weight_map` gives the file of each
tensor, relative to the index.
"""

from __future__ import annotations

import os

from emitter.dtypes import BY_SAFETENSORS
from emitter.errors import InputError, shown
from emitter.inputs._common import RAW_HINT, Contents, pread, qualify
from emitter.package import Extent, FileSource, Tensor
from emitter.records import TYPE_CHECKING
from emitter.values import payload_bytes

if TYPE_CHECKING:
    from typing import Any

__all__ = ["read", "read_index"]

MAX_HEADER = 100_000_000  # as in the reference implementation

_METADATA = "__metadata__"
_KEYS = {"dtype", "shape", "data_offsets"}


def read(source: FileSource, prefix: str) -> Contents:
    """Return the tensors of a safetensors file, in the order of their bytes; raise InputError if it is malformed."""
    path = source.path
    with source.open() as fd:
        if source.size < 8:
            raise InputError(
                "the length of the header is cut off", where=path, expected="8 bytes or more", actual=source.size
            )
        length = int.from_bytes(pread(fd, 8, 0, path), "little")
        limit = min(source.size - 8, MAX_HEADER)
        if not 2 <= length <= limit:
            raise InputError(
                "the header's length is beyond the file, or beyond what is allowed",
                where=path,
                expected=f"2 to {limit} bytes",
                actual=length,
                hint="the file may be truncated",
            )
        header = _parse_object(pread(fd, length, 8, path), f"{path}: header")
    metadata = _string_map(header.pop(_METADATA, {}), f"{path}: {_METADATA}")
    start = 8 + length
    tensors = [_tensor(source, start, prefix, name, entry) for name, entry in header.items()]
    tensors.sort(key=lambda tensor: (tensor.extent.offset, tensor.extent.length))
    _check_cover(source, start, tensors)
    return Contents(tensors, [(path, metadata)])


def _tensor(source: FileSource, start: int, prefix: str, name: str, entry: object) -> Tensor:
    where = f"{source.path}: tensor {shown(name)}"
    if type(entry) is not dict or entry.keys() != _KEYS:
        actual = shown(sorted(entry) if isinstance(entry, dict) else entry)
        raise InputError("the entry is wrong", where=where, expected="dtype, shape, data_offsets", actual=actual)
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    row = BY_SAFETENSORS.get(kind) if type(kind) is str else None
    if row is None:
        expected = f"one of {', '.join(BY_SAFETENSORS)}"
        raise InputError("dtype is unknown", where=where, expected=expected, actual=shown(kind))
    dtype = row.dtype
    if type(shape) is not list:
        raise InputError("shape is wrong", where=where, expected="a list of integers", actual=shown(shape))
    if type(offsets) is not list or len(offsets) != 2 or not type(offsets[0]) is type(offsets[1]) is int:
        raise InputError("data_offsets is wrong", where=where, expected="two integers", actual=shown(offsets))
    begin, end = offsets
    if not 0 <= begin <= end <= source.size - start:
        raise InputError(
            "data_offsets is out of bounds",
            where=where,
            expected=f"0 <= begin <= end <= {source.size - start}, the bytes after the header",
            actual=shown(offsets),
            hint="the file may be truncated",
        )
    nbytes = payload_bytes(dtype, shape, where)
    if nbytes != end - begin:
        raise InputError(
            "data_offsets contradicts dtype and shape",
            where=where,
            expected=f"{nbytes} bytes for {kind} {shown(shape)}",
            actual=end - begin,
        )
    if dtype.packed and _product(shape) * dtype.bits % 8:
        raise InputError(f"a {kind} tensor must fill whole bytes", where=where, actual=f"shape {shown(shape)}")
    return Tensor(qualify(prefix, name), dtype, tuple(shape), Extent(source, start + begin, nbytes))


def _check_cover(source: FileSource, start: int, tensors: list[Tensor]) -> None:
    """Raise InputError unless the tensors, sorted by offset, cover the bytes after the header exactly."""
    position = start
    for number, tensor in enumerate(tensors):
        offset = tensor.extent.offset
        if offset != position:
            before = f"tensor {shown(tensors[number - 1].name)}" if number else "the header"
            raise InputError(
                f"the tensor overlaps {before}" if offset < position else f"there is a hole after {before}",
                where=f"{source.path}: tensor {shown(tensor.name)}",
                expected=f"data_offsets that begin at {position - start}",
                actual=offset - start,
            )
        position += tensor.extent.length
    if position != source.size:
        raise InputError(
            "there are bytes after the last tensor", where=source.path, expected=f"{position} bytes", actual=source.size
        )


def read_index(source: FileSource, prefix: str) -> Contents:
    """Return the tensors of all files that a safetensors index names, in the order in which it first names them."""
    path = source.path
    if source.size > MAX_HEADER:
        raise InputError(
            "the JSON is too long for an index",
            where=path,
            expected=f"at most {MAX_HEADER} bytes",
            actual=source.size,
            hint=RAW_HINT,
        )
    with source.open() as fd:
        index = _parse_object(pread(fd, source.size, 0, path), path)
    if "weight_map" not in index:
        is_manifest = str(index.get("schema", "")).startswith("emitter.manifest/")
        hint = f"write --manifest {path}" if is_manifest else RAW_HINT
        raise InputError("this JSON is no safetensors index", where=path, expected="the key weight_map", hint=hint)
    shard_of = _string_map(index["weight_map"], f"{path}: weight_map")
    metadata = [(path, _index_metadata(index.get("metadata", {}), f"{path}: metadata"))]
    folder = os.path.dirname(path)
    tensors: list[Tensor] = []
    for shard in dict.fromkeys(shard_of.values()):
        _check_shard_name(shard, path)
        contents = read(FileSource.of(os.path.join(folder, shard)), "")
        where = f"{path}: {shown(shard)}"
        for tensor in contents.tensors:
            if shard_of.get(tensor.name) != shard:
                raise InputError(
                    f"tensor {shown(tensor.name)} is in this file, and the index does not say so",
                    where=where,
                    hint="give the files themselves as inputs instead of the index",
                )
        present = {tensor.name for tensor in contents.tensors}
        for name, named in shard_of.items():
            if named == shard and name not in present:
                raise InputError(f"tensor {shown(name)} is not in this file, and the index says it is", where=where)
        metadata += contents.metadata
        tensors += contents.tensors
    if prefix:
        tensors = [Tensor(qualify(prefix, t.name), t.dtype, t.shape, t.extent) for t in tensors]
    return Contents(tensors, metadata)


def _check_shard_name(shard: str, path: str) -> None:
    # The index may come from anywhere: it reaches files in its own folder and below, on every host.
    parts = shard.replace("\\", "/").split("/")
    if not shard or "\0" in shard or ".." in parts or not parts[0] or ":" in parts[0]:
        raise InputError(
            "weight_map names a file outside the index's folder",
            where=path,
            expected="a relative path without ..",
            actual=shown(shard),
        )


def _index_metadata(value: object, where: str) -> dict[str, str]:
    """Return the index's own metadata; what is not a string (`total_size`) becomes its JSON text."""
    import json

    if not isinstance(value, dict):
        raise InputError("this is not an object", where=where, actual=shown(value))
    try:
        return {key: item if isinstance(item, str) else json.dumps(item) for key, item in value.items()}
    except (RecursionError, ValueError) as error:
        raise InputError("a value is too deep or too long", where=where) from error


def _string_map(value: object, where: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise InputError("this is not an object", where=where, expected="strings by name", actual=shown(value))
    for key, item in value.items():
        if type(item) is not str:
            raise InputError(f"the value of {shown(key)} is not a string", where=where, actual=shown(item))
    return value


def _parse_object(text: bytes, where: str) -> dict[str, Any]:
    """Return the JSON object `text`; raise InputError for anything else, and for a name that occurs twice."""
    import json

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        members = dict(pairs)
        if len(members) != len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]  # add returns None
            raise InputError(f"the name {shown(twice)} occurs twice", where=where)
        return members

    try:
        value = json.loads(text.decode(), object_pairs_hook=unique)
    except UnicodeDecodeError as error:
        raise InputError(
            "the JSON is not UTF-8", where=where, actual=f"byte {text[error.start]:#04x} at {error.start}"
        ) from error
    except json.JSONDecodeError as error:
        raise InputError(
            f"this is not JSON: {error.msg}", where=where, actual=f"{shown(error.doc[error.pos :][:20])} at {error.pos}"
        ) from error
    except ValueError as error:  # an integer with more digits than Python converts
        raise InputError("the JSON has a number that is too long", where=where) from error
    except RecursionError as error:
        raise InputError("the JSON is nested too deeply", where=where) from error
    if not isinstance(value, dict):
        raise InputError("the JSON is not an object", where=where, actual=shown(value))
    return value


def _product(shape: list[int]) -> int:
    elements = 1
    for extent in shape:
        elements *= extent
    return elements
