"""Finds tensors whose written bytes are the same, so that they are stored once.

Candidates have the same size and undergo the same transformation; then samples decide, then a comparison of
everything. No hash is trusted. Reads little unless tensors are equal, and never more than a few windows are in
memory.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack

from emitter.integrity import check_sum
from emitter.reading import WINDOW, Reader, open_reader
from emitter.records import TYPE_CHECKING
from emitter.transforms import inflate

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from emitter.package import ByteOrder, Source, Tensor

__all__ = ["find_duplicates"]

_SAMPLE = 64  # bytes at the beginning, in the middle and at the end
_WHOLE = 512  # up to here the sample is everything
_CLASSES = 4  # with more different tensors of equal samples, a checksum sorts them before they are compared one by one


def find_duplicates(tensors: Sequence[Tensor], byte_order: ByteOrder) -> dict[str, str]:
    """Return name -> name of the first tensor with the same bytes as written for `byte_order`, for all but the first.

    Empty tensors are left out. The same bytes under different transformations (a swapped tensor and one in the target's
    order) are not recognised. Raises InputError for a file that cannot be read, is damaged or has changed.
    """
    keys = [_transformation(tensor, byte_order) for tensor in tensors]
    sharing = Counter(keys)
    buckets: dict[Hashable, list[Tensor]] = {}
    same_as: dict[str, str] = {}
    with _Sources() as sources:
        # In source order, so that reading ahead helps.
        for tensor, key in zip(tensors, keys, strict=True):
            if sharing[key] > 1 and key is not None:
                buckets.setdefault((key, _sample(tensor, sources)), []).append(tensor)
        for bucket in buckets.values():
            if len(bucket) > 1:
                _compare(bucket, sources, same_as)
    return same_as


def _transformation(tensor: Tensor, byte_order: ByteOrder) -> Hashable:
    """Return what tensors of the same bytes share, if they are the same function of stored ones; None without bytes."""
    size = tensor.nbytes
    if not size:
        return None
    extent = tensor.extent
    swap_unit = tensor.swap_unit(byte_order)
    if extent.inflate is None and not extent.fortran_order:
        return size, swap_unit
    turned = (tensor.shape, tensor.dtype.element_bits) if extent.fortran_order else None
    return size, swap_unit, turned, extent.inflate


def _sample(tensor: Tensor, sources: _Sources) -> bytes:
    """Return some of the stored bytes, all of them if they are few."""
    extent = tensor.extent
    if extent.inflate:
        return b""  # size and CRC-32 of the member have told apart already
    reader = sources.open(extent.source)
    if extent.length <= _WHOLE:
        return reader.read_near(extent.offset, extent.length)
    middle = extent.offset + extent.length // 2
    last = extent.offset + extent.length - _SAMPLE
    return b"".join(reader.read(offset, _SAMPLE) for offset in (extent.offset, middle, last))


def _compare(bucket: list[Tensor], sources: _Sources, same_as: dict[str, str]) -> None:
    """Sort tensors of equal samples into classes of equal bytes."""
    if not bucket[0].extent.inflate and bucket[0].extent.length <= _WHOLE:
        for tensor in bucket[1:]:
            _check_sum(tensor, bucket[0], sources)
            same_as[tensor.name] = bucket[0].name
        return
    places: dict[Hashable, Tensor] = {}  # the very same bytes need not be read
    classes: list[Tensor] = []
    by_checksum: dict[int, list[Tensor]] = {}
    for tensor in bucket:
        extent = tensor.extent
        place = (id(extent.source), extent.offset, extent.length)
        first = places.setdefault(place, tensor)
        if first is not tensor:
            same_as[tensor.name] = same_as.get(first.name, first.name)
            continue
        known = classes
        if len(classes) >= _CLASSES:
            if not by_checksum:
                for other in classes:
                    by_checksum.setdefault(_checksum(other, sources), []).append(other)
            known = by_checksum.setdefault(_checksum(tensor, sources), [])
        equal = next((other for other in known if _equal(other, tensor, sources)), None)
        if equal is not None:
            _check_sum(tensor, equal, sources)
            same_as[tensor.name] = equal.name
            continue
        known.append(tensor)
        if known is not classes:
            classes.append(tensor)


def _check_sum(tensor: Tensor, equal: Tensor, sources: _Sources) -> None:
    """Compare a tensor that will not be written with its source's checksum, unless that of the other tells as much."""
    declared, other = tensor.extent.checksum, equal.extent.checksum
    if declared is None or (other is not None and declared.algorithm == "CRC-32C" and declared.value == other.value):
        return
    check_sum(sources.open(tensor.extent.source), tensor.extent)


def _equal(first: Tensor, second: Tensor, sources: _Sources) -> bool:
    """Whether the stored bytes are the same, all of them."""
    readers = sources.open(first.extent.source), sources.open(second.extent.source)
    if first.extent.inflate:
        return _same_stream(inflate(readers[0].read, first.extent), inflate(readers[1].read, second.extent))
    starts = first.extent.offset, second.extent.offset
    length = first.extent.length
    for low, high, data in _common_segments(readers, starts, length):
        if data == (False, False):
            continue
        for position in range(low, high, WINDOW):
            count = min(WINDOW, high - position)
            blocks = [
                reader.read(start + position, count) if holds_data else bytes(count)
                for reader, start, holds_data in zip(readers, starts, data, strict=True)
            ]
            if blocks[0] != blocks[1]:
                return False
    return True


def _common_segments(
    readers: tuple[Reader, Reader], starts: tuple[int, int], length: int
) -> Iterator[tuple[int, int, tuple[bool, bool]]]:
    """Yield (start, end, whether each has data) of parts that are all data or all hole in both, from the starts."""
    segments = [reader.segments(start, start + length) for reader, start in zip(readers, starts, strict=True)]
    current = [next(part) for part in segments]
    position = 0
    while True:
        ends = [part[1] - start for part, start in zip(current, starts, strict=True)]
        end = min(ends)
        yield position, end, (current[0][2], current[1][2])
        if end == length:
            return
        position = end
        current = [
            next(parts) if old == end else part for parts, part, old in zip(segments, current, ends, strict=True)
        ]


def _same_stream(first: Iterator[bytes], second: Iterator[bytes]) -> bool:
    """Whether two streams of equal length, in pieces of any size, hold the same bytes."""
    ahead = [b"", b""]
    while True:
        for side, stream in enumerate((first, second)):
            if not ahead[side]:
                ahead[side] = next(stream, b"")
        count = min(map(len, ahead))
        if not count:
            return ahead == [b"", b""]
        if ahead[0][:count] != ahead[1][:count]:
            return False
        ahead = [data[count:] for data in ahead]


def _checksum(tensor: Tensor, sources: _Sources) -> int:
    from emitter.checksum import crc32c, crc32c_zeros

    extent = tensor.extent
    reader = sources.open(extent.source)
    if extent.inflate:
        return extent.inflate.crc32
    crc = 0
    for low, high, data in reader.segments(extent.offset, extent.offset + extent.length):
        if not data:
            crc = crc32c_zeros(high - low, crc)
            continue
        for position in range(low, high, WINDOW):
            crc = crc32c(reader.read(position, min(WINDOW, high - position)), crc)
    return crc


class _Sources:
    """Open sources: the last few used, so that thousands of files do not meet the limit on open files."""

    LIMIT = 8

    def __init__(self) -> None:
        self._open: dict[int, tuple[Reader, Callable[[], object]]] = {}

    def __enter__(self) -> _Sources:  # noqa: PYI034 - typing.Self is not in Python 3.10
        return self

    def __exit__(self, *exception: object) -> None:
        with ExitStack() as stack:
            for _, close in self._open.values():
                stack.callback(close)

    def open(self, source: Source) -> Reader:
        known = self._open.get(id(source))
        if known is not None:
            return known[0]
        if len(self._open) >= self.LIMIT:
            _, close = self._open.pop(next(iter(self._open)))
            close()
        stack = ExitStack()
        reader = stack.enter_context(open_reader(source))
        self._open[id(source)] = reader, stack.close
        return reader
