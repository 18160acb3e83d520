"""Writing into a descriptor: exact positioned writes, small ones gathered, space reserved, errors in plain words."""

from __future__ import annotations

import errno
import os

from emitter.errors import OutputError
from emitter.reading import WINDOW, pread

__all__ = ["FULL", "GAP", "Reserve", "Writer", "output_error", "pwrite", "read_back"]

RESERVE = 1 << 20  # from here on space is reserved
GAP = 64 << 10  # padding up to here is written, or reserved, with the bytes around it; more stays a hole
FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))

# errno -> (what, hint)
_REASONS = {
    errno.ENOSPC: ("no space left on the device", "free some space, or write to another file system"),
    errno.EDQUOT: ("the disk quota is exceeded", "free some space, or write to another file system"),
    errno.EFBIG: ("larger than the file system or `ulimit -f` allows", "raise it, or write to another file system"),
    errno.EROFS: ("the file system is read-only", "write to another directory"),
    errno.EACCES: ("no permission to write there", "write to another directory, or change the permissions of this one"),
    errno.EPERM: ("the system permits no change there", "it may be immutable (see lsattr): write to another directory"),
    errno.EBUSY: ("in use by the system", "it may be a mount point: write to another place"),
    errno.ETXTBSY: ("in use by a running program", "end it, or write under another name"),
    errno.ENOENT: ("the directory does not exist", "create it first"),
    errno.ENOTDIR: ("a part of the path is not a directory", "check the path"),
    errno.ENAMETOOLONG: ("the name is too long for the file system", "choose a shorter name"),
    errno.ELOOP: ("the symbolic links lead in a circle", "remove the link first"),
}  # fmt: skip

# The same for what Windows says (winerror): a file that is open, locked, or mapped, cannot be replaced there.
_HELD = ("open or loaded in another program", "end the program, or write under another name")
_WINDOWS_REASONS = {
    5: ("access is denied", "if a program has loaded it, end that, or write under another name"),  # ERROR_ACCESS_DENIED
    32: _HELD,  # ERROR_SHARING_VIOLATION
    33: _HELD,  # ERROR_LOCK_VIOLATION
    1224: _HELD,  # ERROR_USER_MAPPED_FILE
}


def pwrite(fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
    """Write all of `data` at `offset`; raise OutputError. Without pwrite (Windows) the file position moves."""
    call = getattr(os, "pwrite", None)
    view = memoryview(data)
    try:
        while view:
            if call is not None:
                written = call(fd, view, offset)
            else:
                os.lseek(fd, offset, os.SEEK_SET)
                written = os.write(fd, view)
            view = view[written:]
            offset += written
    except OSError as error:
        raise output_error(error) from error
    finally:
        view.release()


def output_error(error: OSError, path: str | None = None) -> OutputError:
    """Return what the system said as an OutputError: what, and what to do."""
    unknown = (f"cannot be written: {error.strerror or error}", None)
    what, hint = _REASONS.get(error.errno or 0, unknown)
    what, hint = _WINDOWS_REASONS.get(getattr(error, "winerror", None) or 0, (what, hint))
    if error.errno == errno.ENOENT and path is not None and os.path.isdir(os.path.dirname(os.path.abspath(path))):
        what, hint = "no file can be made in this directory", "write to another directory"
    return OutputError(what, where=path, hint=hint)


def read_back(fd: int, length: int, offset: int) -> bytes:
    """Return bytes of the output; raise OutputError."""
    try:
        data = pread(fd, length, offset)
        while len(data) < length:
            more = pread(fd, length - len(data), offset + len(data))
            if not more:
                raise OutputError(
                    "became shorter while it was written", expected=f"{offset + length} bytes", hint="try again"
                )
            data += more
    except OSError as error:
        raise output_error(error) from error
    return data


class Writer:
    """Gathers small writes in ascending order, with the zero padding between them."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.start = 0
        self.buffer = bytearray()

    def put(self, offset: int, data: bytes) -> None:
        """Take in bytes; large ones are written at once."""
        gap = offset - self.start - len(self.buffer)
        if len(data) > WINDOW // 4:
            self.flush()
            pwrite(self.fd, data, offset)
            return
        if not self.buffer or not 0 <= gap <= GAP or len(self.buffer) + gap + len(data) > WINDOW:
            self.flush()
            self.start = offset
        else:
            self.buffer += bytes(gap)
        self.buffer += data

    def flush(self) -> None:
        """Write what has gathered."""
        if self.buffer:
            pwrite(self.fd, self.buffer, self.start)
            self.buffer.clear()


class Reserve:
    """Reserves space where the file system can, never by the writes with which glibc stands in for one that cannot."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.works: bool | None = None if hasattr(os, "posix_fallocate") else False

    def __call__(self, start: int, end: int) -> None:
        """Reserve a range; raise OutputError if there is no room."""
        if end - start < RESERVE or self.works is False:
            return
        try:
            if self.works is None:
                self._first(start, end)
            else:
                os.posix_fallocate(self.fd, start, end - start)
        except OSError as error:
            if error.errno in FULL:
                raise output_error(error) from error
            self.works = False
        else:
            self.works = True

    def _first(self, start: int, end: int) -> None:
        # glibc refuses to emulate on a descriptor that appends (EBADF), and the kernel does not mind.
        import fcntl

        flags = fcntl.fcntl(self.fd, fcntl.F_GETFL)
        fcntl.fcntl(self.fd, fcntl.F_SETFL, flags | os.O_APPEND)
        try:
            os.posix_fallocate(self.fd, start, end - start)
        finally:
            fcntl.fcntl(self.fd, fcntl.F_SETFL, flags)
