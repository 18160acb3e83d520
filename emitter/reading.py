"""Reading sources: exact positioned reads, read-ahead for small neighbours, and the holes of sparse files."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager

from emitter.errors import InputError
from emitter.package import BufferSource, FileSource
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.package import Source

__all__ = ["WINDOW", "Reader", "open_reader", "pread"]

# Bytes of one read: small enough that the second-level cache still holds them when they are written and checksummed.
WINDOW = 256 << 10
_FIRST_WINDOW = 4 << 10


def pread(fd: int, length: int, offset: int) -> bytes:
    """Return up to `length` bytes at `offset` of `fd`. Without pread (Windows) the file position moves."""
    call = getattr(os, "pread", None)
    if call is not None:
        return bytes(call(fd, length, offset))
    os.lseek(fd, offset, os.SEEK_SET)
    return os.read(fd, length)


class Reader:
    """An open source; `fd` is None for a buffer. `sparse`: it may have holes. `kernel_copy`: the kernel may copy it."""

    def __init__(self, source: Source, fd: int | None) -> None:
        self.source = source
        self.fd = fd
        self.kernel_copy = fd is not None and hasattr(os, "copy_file_range")
        self.sparse = False
        if fd is not None and hasattr(os, "SEEK_DATA"):
            status = os.fstat(fd)
            self.sparse = status.st_blocks * 512 < status.st_size
        self._view = _bytes_of(source) if isinstance(source, BufferSource) else memoryview(b"")
        self._ahead = b""  # bytes read ahead, from _ahead_at
        self._ahead_at = 0
        self._ahead_size = _FIRST_WINDOW
        self._segment = (0, 0, True)  # the segment found last

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly `length` bytes at `offset`; raise InputError if the source ends before, or cannot be read."""
        if self.fd is None:
            data = bytes(self._view[offset : offset + length])
            if len(data) == length:
                return data
            raise self._ended(offset + len(data), offset + length)
        try:
            data = pread(self.fd, length, offset)
            while len(data) < length:
                more = pread(self.fd, length - len(data), offset + len(data))
                if not more:
                    raise self._ended(offset + len(data), offset + length)
                data += more
        except OSError as error:
            raise InputError(
                f"cannot read: {error.strerror or error}", where=f"{self.source.path}: byte {offset}"
            ) from error
        return data

    def read_near(self, offset: int, length: int) -> bytes:
        """Return what `read` returns, reading ahead, ever more while small extents follow each other closely."""
        if self.fd is None:
            return self.read(offset, length)
        start = offset - self._ahead_at
        if 0 <= start <= len(self._ahead) - length:
            return self._ahead[start : start + length]
        near = 0 <= start <= len(self._ahead) + self._ahead_size
        self._ahead_size = min(self._ahead_size * 4, WINDOW) if near else _FIRST_WINDOW
        wanted = max(length, min(self._ahead_size, self.source.size - offset))
        self._ahead_at = offset
        self._ahead = self.read(offset, wanted)
        return self._ahead if wanted == length else self._ahead[:length]

    def segments(self, start: int, end: int) -> Iterator[tuple[int, int, bool]]:
        """Yield (start, end, whether there are data) of the parts of a range; one without data is a hole, all zero."""
        if not self.sparse or self.fd is None:
            if start < end:
                yield start, end, True
            return
        while start < end:
            low, high, data = self._segment
            if not low <= start < high:
                low, high, data = self._segment = self._find_segment(self.fd, start)
            stop = min(high, end)
            yield start, stop, data
            start = stop

    def _find_segment(self, fd: int, position: int) -> tuple[int, int, bool]:
        forever = max(self.source.size, position + 1)
        try:
            data = os.lseek(fd, position, os.SEEK_DATA)
        except OSError as error:
            # ENXIO: nothing but a hole follows. Anything else: this file system does not tell; all counts as data.
            return position, forever, error.errno != errno.ENXIO
        if data > position:
            return position, data, False
        return position, max(os.lseek(fd, position, os.SEEK_HOLE), position + 1), True

    def _ended(self, actual: int, expected: int) -> InputError:
        return InputError(
            "changed while it was read",
            where=self.source.path,
            expected=f"at least {expected} bytes",
            actual=f"{actual} bytes",
            hint="try again when nothing writes to it",
        )


@contextmanager
def open_reader(source: Source) -> Iterator[Reader]:
    """Open a source; a file is checked before and after to be the one first seen."""
    if isinstance(source, FileSource):
        with source.open() as fd:
            yield Reader(source, fd)
    else:
        yield Reader(source, None)


def _bytes_of(source: BufferSource) -> memoryview:
    view = source.data
    if not view.nbytes:
        return memoryview(b"")
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")
