"""What happens to bytes on the way: byte order, DEFLATE, column-major to row-major order; all in bounded memory."""

from __future__ import annotations

from itertools import product

from emitter.errors import InputError
from emitter.reading import WINDOW
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from emitter.package import Extent

    Read = Callable[[int, int], bytes]  # (offset, length) -> exactly that many bytes
    Write = Callable[[int, memoryview], None]  # (offset, bytes)

__all__ = ["inflate", "segments_of_units", "swap", "transpose", "whole_units"]

TILE = 4 << 20  # bytes of a tile of a transposition; about three times as much is in use at once
_SWAP_CODE = {2: "H", 4: "I", 8: "Q"}
_CARRIER = {1: "u1", 2: "u2", 4: "u4", 8: "u8"}


def swap(data: bytes, unit: int) -> bytes:
    """Return `data` (a whole number of units) with the bytes of each `unit` bytes reversed."""
    if unit == 1:
        return data
    if unit in _SWAP_CODE:
        from array import array

        words = array(_SWAP_CODE[unit], data)
        words.byteswap()
        return words.tobytes()
    swapped = bytearray(len(data))
    for index in range(unit):
        swapped[index::unit] = data[unit - 1 - index :: unit]
    return bytes(swapped)


def inflate(read: Read, extent: Extent) -> Iterator[bytes]:
    """Yield the inflated bytes of an extent (raw DEFLATE, RFC 1951), those to skip included, WINDOW at most at a time.

    Never inflates past the declared size by more than WINDOW. Raises InputError, at the latest after the last piece,
    when the stream is broken, or its size or CRC-32 is not the declared one.
    """
    import zlib

    declared = extent.inflate
    if declared is None:
        return
    where = extent.where
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    produced = crc = 0
    position, end = extent.offset, extent.offset + extent.length
    tail = b""
    while not stream.eof:
        if not tail and position < end:
            tail = read(position, min(WINDOW, end - position))
            position += len(tail)
        try:
            data = stream.decompress(tail, WINDOW)
        except zlib.error as error:
            raise InputError(
                f"the compressed data are broken: {error}", where=where, hint="make the file again"
            ) from error
        tail = stream.unconsumed_tail
        produced += len(data)
        if produced > declared.size or (not data and not tail and position == end and not stream.eof):
            break
        crc = zlib.crc32(data, crc)
        if data:
            yield data
    if produced != declared.size or not stream.eof:
        raise InputError(
            "the compressed data do not have the declared size",
            where=where,
            expected=f"{declared.size} bytes",
            actual=f"more than {declared.size}" if produced > declared.size else f"{produced}",
            hint="make the file again",
        )
    if stream.unused_data or position < end:
        raise InputError(
            "there are bytes behind the end of the compressed data",
            where=where,
            expected=f"{extent.length} compressed bytes",
            actual=extent.length - (end - position) - len(stream.unused_data),
            hint="make the file again",
        )
    if crc != declared.crc32:
        raise InputError(
            "the compressed data have another CRC-32",
            where=where,
            expected=f"{declared.crc32:#010x}",
            actual=f"{crc:#010x}",
            hint="make the file again",
        )


def transpose(read: Read, write: Write, shape: tuple[int, ...], item: int, swap_unit: int) -> None:
    """Read a column-major array of `item` bytes per element, and write it row-major; offsets are from its first byte.

    Works in tiles of at most TILE bytes, long in the first axis, along which the source is contiguous, and in the
    last, along which the destination is.
    """
    import numpy as np

    shape = tuple(extent for extent in shape if extent != 1) or (1,)
    if 0 in shape:
        return
    tile = _tile(shape, max(TILE // item, 1))
    axes = range(len(shape))
    carrier = np.dtype(_CARRIER.get(item, f"V{item}"))
    from_source, to_destination = [item], [item]  # bytes from one index to the next, by axis
    for extent in shape[:-1]:
        from_source.append(from_source[-1] * extent)
    for extent in shape[:0:-1]:
        to_destination.insert(0, to_destination[0] * extent)
    for origin in product(*(range(0, extent, step) for extent, step in zip(shape, tile, strict=True))):
        size = tuple(min(step, extent - at) for step, extent, at in zip(tile, shape, origin, strict=True))
        data = b"".join(read(offset, length) for offset, length in _runs(origin, size, shape, from_source, axes))
        array = np.frombuffer(swap(data, swap_unit), carrier).reshape(size[::-1]).transpose()
        view = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        position = 0
        for offset, length in _runs(origin, size, shape, to_destination, axes[::-1]):
            write(offset, view[position : position + length])
            position += length


def _tile(shape: tuple[int, ...], elements: int) -> list[int]:
    """Return the extents of a tile, grown from both ends in turn while it holds no more than `elements`."""
    tile = [1] * len(shape)
    count = 1
    ends = [iter(range(len(shape))), iter(reversed(range(len(shape))))]
    axis = [next(end) for end in ends]
    side = 0
    while count * 2 <= elements:
        while tile[axis[side]] == shape[axis[side]]:
            following = next(ends[side], None)
            if following is None:
                return tile
            axis[side] = following
        at = axis[side]
        count //= tile[at]
        tile[at] = min(tile[at] * 2, shape[at])
        count *= tile[at]
        side = 1 - side
    return tile


def _runs(
    origin: tuple[int, ...], size: tuple[int, ...], shape: tuple[int, ...], strides: list[int], order: range
) -> Iterator[tuple[int, int]]:
    """Yield (offset, length) in bytes of a tile's contiguous runs, ascending. `order`: the axes by ascending stride."""
    length = strides[order[0]]
    count = 0
    for axis in order:
        length *= size[axis]
        count += 1
        if size[axis] != shape[axis]:
            break
    start = sum(at * stride for at, stride in zip(origin, strides, strict=True))
    outer = [axis for axis in order if axis not in order[:count]][::-1]
    for index in product(*(range(0, size[axis] * strides[axis], strides[axis]) for axis in outer)):
        yield start + sum(index), length


def whole_units(blocks: Iterator[bytes], unit: int) -> Iterator[bytes]:
    """Yield the same bytes in blocks of whole units."""
    rest = b""
    for block in blocks:
        data = rest + block if rest else block
        whole = len(data) - len(data) % unit
        rest = data[whole:]
        if whole:
            yield data[:whole]
    if rest:
        yield rest


def segments_of_units(
    segments: Iterator[tuple[int, int, bool]], start: int, unit: int
) -> Iterator[tuple[int, int, bool]]:
    """Yield the segments with their ends moved so that no unit is cut; a unit that is partly a hole counts as data."""
    if unit == 1:
        yield from segments
        return
    done = start
    for low, high, data in segments:
        # Data reach up to the end of their last unit, holes down to the beginning of theirs.
        offset = high - start
        stop = start + (offset + unit - 1) // unit * unit if data else start + offset // unit * unit
        if stop > max(done, low):
            yield done, stop, data
            done = stop
