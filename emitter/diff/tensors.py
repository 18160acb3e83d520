"""Compares tensors value by value, in bounded memory, whatever their files and byte orders."""

from __future__ import annotations

from itertools import zip_longest

from emitter.diff.model import TensorChange
from emitter.dtypes import BOOL, UINT, DType
from emitter.inspect.elements import is_known, values_of
from emitter.layout import Copy, FilePlan
from emitter.reading import open_reader
from emitter.records import TYPE_CHECKING
from emitter.transforms import swap

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from numpy.typing import NDArray

    from emitter.package import Package, Tensor

__all__ = ["blocks", "compare_packages", "compare_tensors"]

_BLOCK = 4 << 20  # bytes, about


def compare_packages(a: Package, b: Package) -> tuple[list[TensorChange], int]:
    """Return what differs between the tensors of two packages, sorted by name, and how many are equal."""
    before = {tensor.name: tensor for tensor in a.tensors}
    after = {tensor.name: tensor for tensor in b.tensors}
    changes = []
    same = 0
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            changes.append(TensorChange(name, _facts(before[name]), None))
        elif name not in before:
            changes.append(TensorChange(name, None, _facts(after[name])))
        else:
            change = compare_tensors(before[name], after[name])
            if change is None:
                same += 1
            else:
                changes.append(change)
    return changes, same


def compare_tensors(a: Tensor, b: Tensor) -> TensorChange | None:
    """Return what differs between two tensors of one name; None if type, shape and every bit are equal."""
    before, after = _facts(a), _facts(b)
    if before != after or a.nbytes != b.nbytes:
        return TensorChange(a.name, before, after)
    known = not a.encoding and is_known(a.dtype)
    different = 0
    largest: float | None = None
    for one, other in zip_longest(blocks(a), blocks(b), fillvalue=b""):
        if one == other:
            continue
        unequal = _codes(one, a, known) != _codes(other, a, known)
        if unequal.ndim > 1:
            unequal = unequal.any(axis=1)
        different += int(unequal.sum())
        if known and a.dtype.code != BOOL:
            found = _largest_difference(one, other, a.dtype)
            if found is not None:
                largest = found if largest is None else max(largest, found)
    if not different:
        return None
    if not known:
        return TensorChange(a.name, before, after, a.nbytes, different, None, "bytes")
    elements = 1
    for extent in a.shape:
        elements *= extent
    return TensorChange(a.name, before, after, elements, different, largest)


def _codes(data: bytes, tensor: Tensor, known: bool) -> NDArray[Any]:
    """Return what tells elements apart: the bytes of each, the codes of those that share bytes, or single bytes."""
    import numpy as np

    if known and tensor.dtype.bits % 8:
        codes = values_of(data, DType(UINT, tensor.dtype.bits), "little")
        return codes.reshape(-1, tensor.dtype.lanes) if len(codes) % tensor.dtype.lanes == 0 else codes
    raw = np.frombuffer(data, np.uint8)
    return raw.reshape(-1, tensor.dtype.element_bits // 8) if known else raw


def _largest_difference(a: bytes, b: bytes, dtype: DType) -> float | None:
    """Return the largest absolute difference of little-endian elements; of complex ones, of their parts."""
    import numpy as np

    with np.errstate(all="ignore"):
        distance = np.abs(
            values_of(a, dtype, "little").astype(np.float64) - values_of(b, dtype, "little").astype(np.float64)
        )
    distance = distance[~np.isnan(distance)]  # NaN in either, or the same infinity in both
    return float(distance.max()) if distance.size else None


def blocks(tensor: Tensor) -> Iterator[bytes]:
    """Yield the bytes of a tensor, little-endian and row-major, in blocks of some MiB of whole elements.

    Raises InputError where the source is broken or has changed.
    """
    extent, unit = tensor.extent, tensor.swap_unit("little")
    item = max(tensor.dtype.element_bits // 8, 1)
    step = max(_BLOCK // item, 1) * item
    if extent.inflate is None and not extent.fortran_order:
        with open_reader(extent.source) as reader:
            for start in range(0, tensor.nbytes, step):
                yield swap(reader.read(extent.offset + start, min(step, tensor.nbytes - start)), unit)
        return
    # What must be inflated or transposed goes through a file, as when it is emitted.
    from tempfile import TemporaryFile

    from emitter.transfer import write_plan

    copy = Copy(0, tensor.nbytes, extent, unit, tensor.shape, tensor.dtype.element_bits)
    with TemporaryFile(buffering=0) as file:
        file.truncate(tensor.nbytes)
        write_plan(file.fileno(), FilePlan(tensor.nbytes, (), [copy]), None)
        file.seek(0)
        while data := file.read(step):
            yield data


def _facts(tensor: Tensor) -> str:
    shape = f"[{', '.join(map(str, tensor.shape))}]"
    return f"{tensor.dtype} {shape}" + (f", encoding {tensor.encoding}" if tensor.encoding else "")
