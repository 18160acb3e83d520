"""The bytes of files and buffers, as read-only memory."""

from __future__ import annotations

import os

from emitter.errors import LoadError, UsageError
from emitter.package import OPEN_FLAGS
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["map_file", "view_buffer"]


def map_file(path: str) -> memoryview:
    """Map a file; raise LoadError for what is not there, empty, or no regular file."""
    import mmap

    try:
        # Opening a pipe waits for its writer, opening a device may do anything: so the type is looked at first, and
        # again when the file is open.
        _check_regular(os.stat(path).st_mode, path)
        fd = os.open(path, OPEN_FLAGS)
        try:
            status = os.fstat(fd)
            _check_regular(status.st_mode, path)
            if not status.st_size:
                raise LoadError("the file is empty", where=path)
            return memoryview(mmap.mmap(fd, 0, access=mmap.ACCESS_READ))
        finally:
            os.close(fd)
    except (OSError, ValueError, OverflowError) as error:
        raise LoadError(f"cannot open: {getattr(error, 'strerror', None) or error}", where=path) from error


def _check_regular(mode: int, path: str) -> None:
    import stat

    if not stat.S_ISREG(mode):
        raise LoadError(
            "not a regular file",
            where=path,
            hint="only files can be mapped: write the bytes to one, or load them as a buffer",
        )


def view_buffer(source: Buffer) -> memoryview:
    """Return the bytes of a buffer, read-only; raise UsageError for what is none, or not contiguous."""
    try:
        view = memoryview(source)
    except (TypeError, ValueError) as error:
        raise UsageError("neither a path nor a buffer", where="load", actual=type(source).__name__) from error
    if not view.c_contiguous:
        raise UsageError("the buffer is not contiguous", where="load", hint="pass bytes(buffer)")
    return (view.cast("B") if view.nbytes else memoryview(b"")).toreadonly()
