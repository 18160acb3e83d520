"""Where bytes are until they are written: files and memory, and extents of them with what must be done on the way."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import contextmanager

from emitter.errors import InputError, UsageError
from emitter.records import TYPE_CHECKING, NamedTuple
from emitter.values import path_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Literal, TypeAlias

__all__ = [
    "NATIVE_BYTE_ORDER",
    "OPEN_FLAGS",
    "BufferSource",
    "ByteOrder",
    "Checksum",
    "Extent",
    "FileSource",
    "Inflate",
    "Source",
    "flat_view",
]

ByteOrder: TypeAlias = 'Literal["little", "big"]'

NATIVE_BYTE_ORDER: ByteOrder = "little" if sys.byteorder == "little" else "big"

# To open a regular file. O_NONBLOCK: a pipe that has taken its place is found out, instead of being waited for.
OPEN_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_BINARY", "O_NONBLOCK"))


class FileSource(NamedTuple):
    """A regular file, identified when it is first seen; `open` refuses a file that has changed since.

    A descriptor is not kept, so that thousands of inputs do not meet the limit on open files; inputs are never mapped,
    since a file that is truncated under a mapping kills the process.
    """

    path: str
    identity: tuple[int, int, int, int, int]  # st_dev, st_ino, st_size, st_mtime_ns, st_ctime_ns

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> FileSource:
        """Identify the regular file at `path`; raise InputError if there is none."""
        name = path_text(path)
        try:
            status = os.stat(name)
        except (OSError, ValueError) as error:
            raise InputError(f"cannot open: {_reason(error)}", where=name) from error
        if not stat.S_ISREG(status.st_mode):
            raise InputError(
                "not a regular file",
                where=name,
                hint="pipes, devices and directories cannot be inputs: write the bytes to a file first",
            )
        source = cls(name, _identity(status))
        if not source.size:
            with source.open() as fd:
                try:
                    more = os.read(fd, 1)
                except OSError as error:
                    raise InputError(f"cannot read: {_reason(error)}", where=name) from error
                if more:
                    raise InputError(
                        "the file says that it is empty, and is not",
                        where=name,
                        hint="files of the kernel (/proc) do so: copy it to an ordinary file first",
                    )
        return source

    @property
    def size(self) -> int:
        """Bytes in the file, when it was first seen."""
        return self.identity[2]

    @contextmanager
    def open(self) -> Iterator[int]:
        """Yield a descriptor for reading, and check that the file is the one first seen, both before and after."""
        try:
            fd = os.open(self.path, OPEN_FLAGS)
        except OSError as error:
            raise InputError(f"cannot open: {_reason(error)}", where=self.path) from error
        try:
            self.check(fd)
            yield fd
            self.check(fd)
        finally:
            os.close(fd)

    def check(self, fd: int) -> None:
        """Raise InputError if the open file `fd` is not what it was when it was first seen."""
        now = _identity(os.fstat(fd))
        if now != self.identity:
            raise InputError(
                "changed while it was read",
                where=self.path,
                expected=f"{self.identity[2]} bytes as first seen",
                actual=f"{now[2]} bytes, or another time stamp or inode",
                hint="try again when nothing writes to it",
            )


class BufferSource(NamedTuple):
    """Bytes in memory, C-contiguous. `path` is a name for messages."""

    path: str
    data: memoryview

    @property
    def size(self) -> int:
        """Bytes in the buffer."""
        return self.data.nbytes


Source = FileSource | BufferSource


class Inflate(NamedTuple):
    """Raw DEFLATE (RFC 1951), as ZIP members hold it: the extent's bytes inflate to `size` bytes with CRC-32 `crc32`.

    The tensor's bytes begin `skip` bytes into the inflated ones.
    """

    size: int
    crc32: int
    skip: int


class Checksum(NamedTuple):
    """What the source says of its own bytes: the CRC of `length` of them from `offset`. They include the extent's.

    CRC-32 is that of ZIP and zlib; CRC-32C see `emitter.checksum`.
    """

    algorithm: Literal["CRC-32", "CRC-32C"]
    value: int
    offset: int
    length: int


class Extent(NamedTuple):
    """`length` bytes of a source from `offset`, and what must be done to them on the way: nothing, in the fast case.

    `byte_order` is that of the stored elements; whether they are swapped depends on the target. `fortran_order` says
    that the source is column-major: it is transposed to row-major. `checksum` is compared when the bytes are written;
    `label` is what the source calls them, for messages.
    """

    source: Source
    offset: int
    length: int
    byte_order: ByteOrder = "little"
    inflate: Inflate | None = None
    fortran_order: bool = False
    checksum: Checksum | None = None
    label: str = ""

    @property
    def where(self) -> str:
        """The source and what it calls the bytes, for messages."""
        return f"{self.source.path}: {self.label}" if self.label else self.source.path


def flat_view(data: bytes | bytearray | memoryview, where: str) -> memoryview:
    """Return the bytes as a view of one dimension: of the same memory if that is row-major without gaps."""
    try:
        view = memoryview(data)
        if not view.nbytes:
            return memoryview(b"")
        return view.cast("B") if view.c_contiguous else memoryview(view.tobytes())
    except ValueError as error:
        raise UsageError(f"the memoryview cannot be read: {error}", where=where) from error


def _identity(status: os.stat_result) -> tuple[int, int, int, int, int]:
    # Windows reports the creation time as st_ctime, which does not change with the content: harmless in a comparison.
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
