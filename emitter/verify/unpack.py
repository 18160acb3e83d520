"""Unpacks members of containers: into temporary files, one at a time, and only so much of them."""

from __future__ import annotations

import io
import os
import struct
from contextlib import contextmanager, suppress

from emitter.errors import FormatError, OutputError
from emitter.inspect.view import View
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO, Any

__all__ = ["Budget", "as_file", "counted", "library_errors", "unpacked"]

MAX_MEMBER = 8 << 30
MAX_UNPACKED = 16 << 30

_STEP = 1 << 20


class Budget:
    """How much may be unpacked in one run, in bytes."""

    def __init__(self, member: int = MAX_MEMBER, total: int = MAX_UNPACKED) -> None:
        self.member = member
        self.left = total

    def check_member(self, size: int, where: str) -> None:
        """Raise FormatError for a member that is larger than is allowed."""
        if size > self.member:
            raise FormatError("a member is too large", where=where, expected=f"at most {self.member} bytes")

    def spend(self, size: int, where: str) -> None:
        """Count unpacked bytes; raise FormatError when there are too many."""
        self.left -= size
        if self.left < 0:
            raise FormatError(
                "it unpacks to too much", where=where, hint="unpack it yourself, and verify the folder if you trust it"
            )


def library_errors() -> tuple[type[Exception], ...]:
    """Return what the modules for containers raise for broken ones: errors of their own, and these of Python."""
    import lzma
    import tarfile
    import zipfile
    import zlib

    return (
        zipfile.BadZipFile, zipfile.LargeZipFile, tarfile.TarError, lzma.LZMAError, zlib.error, struct.error, OSError,
        EOFError, ValueError, KeyError, IndexError, NotImplementedError, RuntimeError,
    )  # fmt: skip


class _ViewFile(io.RawIOBase):
    """A view as the file objects that zipfile and tarfile read."""

    def __init__(self, view: View) -> None:
        super().__init__()
        self._view = view
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = (0, self._position, self._view.size)[whence]
        if start + offset < 0:
            msg = "a negative position"
            raise OSError(msg)
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        data = self._view.read_up_to(self._position, min(len(buffer), _STEP))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


def as_file(view: View) -> IO[bytes]:
    """Return a view as a file object, as zipfile and tarfile read them."""
    return io.BufferedReader(_ViewFile(view), _STEP)


class _Counting(io.RawIOBase):
    """A decompressed stream that counts what it gives."""

    def __init__(self, stream: IO[bytes], budget: Budget, where: str) -> None:
        super().__init__()
        self._stream = stream
        self._budget = budget
        self._where = where

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        self._budget.spend(len(data), self._where)
        buffer[: len(data)] = data
        return len(data)


def counted(stream: IO[bytes], budget: Budget, where: str) -> IO[bytes]:
    """Return a decompressed stream that spends the budget with what it gives."""
    return io.BufferedReader(_Counting(stream, budget, where), _STEP)


@contextmanager
def unpacked(head: bytes, stream: IO[bytes], budget: Budget, where: str) -> Iterator[View]:
    """Give a view of a temporary file with `head` and the rest of `stream`; the file is gone afterwards.

    Raises FormatError for what cannot be unpacked or is too much, OutputError where the file cannot be written: that
    says nothing about the member.
    """
    fd, path = _spool()
    try:
        size, data = 0, head
        while data:
            size += len(data)
            budget.check_member(size, where)
            budget.spend(len(data), where)
            _write(fd, data)
            try:
                data = stream.read(_STEP)
            except library_errors() as error:
                raise FormatError(f"the member cannot be unpacked: {error}", where=where) from error
        with View.of_descriptor(os.dup(fd), path) as whole:
            # The same file under the name that messages show.
            yield whole.window(0, whole.size, where)
    finally:
        os.close(fd)
        with suppress(OSError):
            os.unlink(path)


def _spool() -> tuple[int, str]:
    """Return a temporary file, and its name, which it has on Windows alone: whatever ends the process, it is gone."""
    import tempfile

    try:
        fd, path = tempfile.mkstemp(prefix="emitter-")
    except OSError as error:
        raise _no_space(error) from error
    with suppress(OSError):
        os.unlink(path)
    return fd, path


def _write(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(fd, rest) :]
    except OSError as error:
        raise _no_space(error) from error


def _no_space(error: OSError) -> OutputError:
    import tempfile

    return OutputError(
        f"cannot unpack into a temporary file: {error.strerror or error}",
        where=tempfile.tempdir or "the folder for temporary files",
        hint="set TMPDIR to a folder with more space, or unpack it yourself and verify the folder",
    )
