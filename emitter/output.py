"""Output files: complete under their name, or not there at all.

An output is written without a name where the system allows that (Linux, O_TMPFILE: whatever ends the process, nothing
is left behind), else under a temporary name in the directory of its destination, and renamed into place when it is
complete. As with a linker the result is a new file: its mode comes from the umask, and a hard link to the old file
keeps the old bytes. Nothing is flushed to the disk (fsync), as with `cp` and linkers.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress

from emitter.errors import EmitterError, OutputError, UsageError, shown
from emitter.package import FileSource
from emitter.records import TYPE_CHECKING
from emitter.writing import output_error, pwrite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from subprocess import Popen
    from types import TracebackType
    from typing import BinaryIO

    from emitter.package import Source

__all__ = [
    "DATA_MODE",
    "IMAGE_MODE",
    "LinkedFile",
    "OutputFile",
    "StreamFile",
    "cleanup_on_signals",
    "ends_with_us",
    "holds",
    "new_directory",
    "open_output",
    "work_folder",
    "write_if_changed",
    "write_small",
]

_BINARY = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)

# Before the umask: what linkers give to objects and archives, and to images.
DATA_MODE = 0o666
IMAGE_MODE = 0o777

# file type -> its name, for what is never replaced
_NOT_A_FILE = {
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}

_STEP = 1 << 20  # bytes that are handed to a stream at once

_temporary: set[str] = set()  # names that must not outlive the process
_children: list[Popen[bytes]] = []  # nor must these
_held = 0  # how many blocks there are whose end signals wait for
_late: list[int] = []  # the signals that do


class OutputFile:
    """A file of `size` zero bytes, to be written through `fd` (open for reading too) and made visible by `commit`.

    Leaving the context without a commit discards it, and leaves an older file under the name as it was.
    """

    def __init__(self, path: str, size: int, mode: int, inputs: Iterable[Source]) -> None:
        self.path = path
        self.size = size
        self.fd = -1
        self._mode = mode
        self._name: str | None = None  # the temporary name, while there may be such a file
        self._destination = _resolve(path, inputs)

    def __enter__(self) -> OutputFile:  # noqa: PYI034 - typing.Self is not in Python 3.10
        try:
            self._open()
            os.ftruncate(self.fd, self.size)
        except OSError as error:
            self._discard()
            raise output_error(error, self.path) from error
        except BaseException:
            self._discard()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._discard()
        if isinstance(error, OutputError) and error.where is None:
            error.where = self.path  # raised by code that knows the descriptor alone

    @property
    def readable(self) -> str:
        """A path under which the file can be opened for reading until it is committed or discarded."""
        return self._name or f"/proc/self/fd/{self.fd}"

    def write(self, data: bytes, offset: int = 0) -> None:
        """Write all of `data` at `offset`; raise OutputError."""
        pwrite(self.fd, data, offset)

    def commit(self) -> None:
        """Give the file its name, replacing an older one in one step. Raises OutputError, the older file untouched."""
        try:
            if self._name is None:
                self._name = self._new_name()
                # A directory descriptor, unused with an absolute path, makes Python call linkat, which follows links.
                os.link(f"/proc/self/fd/{self.fd}", self._name, src_dir_fd=self.fd)
            # Some file systems (NFS) tell only now that the disk is full.
            fd, self.fd = self.fd, -1
            os.close(fd)
            os.replace(self._name, self._destination)
        except OSError as error:
            raise output_error(error, self.path) from error
        _temporary.discard(self._name)
        self._name = None

    def _open(self) -> None:
        directory = os.path.dirname(self._destination)
        unnamed = getattr(os, "O_TMPFILE", 0)
        if unnamed:
            try:
                self.fd = os.open(directory, os.O_RDWR | unnamed | _BINARY, self._mode)
            except OSError:
                pass  # not on this file system; or an error that the attempt with a name explains
            else:
                # Some older kernels ignore the umask here, and a missing /proc would make the file unreachable.
                if not os.fstat(self.fd).st_mode & stat.S_IWOTH and os.path.exists(f"/proc/self/fd/{self.fd}"):
                    return
                os.close(self.fd)
                self.fd = -1
        while True:
            self._name = self._new_name()
            try:
                self.fd = os.open(self._name, os.O_RDWR | os.O_CREAT | os.O_EXCL | _BINARY, self._mode)
            except FileExistsError:
                _temporary.discard(self._name)
            else:
                return

    def _new_name(self) -> str:
        name = os.path.join(os.path.dirname(self._destination), f".emitter-{os.urandom(8).hex()}.tmp")
        _temporary.add(name)  # before there is such a file: a signal may come at any time
        return name

    def _discard(self) -> None:
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            os.close(fd)
        if self._name is not None:
            _remove(self._name)
            self._name = None


class LinkedFile(OutputFile):
    """The same for a file that another program has written, as `written` on the same file system."""

    def __init__(self, path: str, written: str, inputs: Iterable[Source]) -> None:
        super().__init__(path, os.stat(written).st_size, 0, inputs)
        self._name = written

    def _open(self) -> None:
        self.fd = os.open(self._name or "", os.O_RDWR | _BINARY)


class StreamFile:
    """The same for a stream that a caller has opened: the bytes are collected in a temporary file, and then written.

    Leaving the context without a commit writes nothing.
    """

    def __init__(self, path: str, size: int, stream: BinaryIO) -> None:
        from tempfile import TemporaryFile

        self.path = path
        self.size = size
        self._stream = stream
        try:
            self._file = TemporaryFile(buffering=0)  # noqa: SIM115 - __exit__ closes it
            self._file.truncate(size)
        except OSError as error:
            raise output_error(error, path) from error
        self.fd = self._file.fileno()

    def __enter__(self) -> StreamFile:  # noqa: PYI034 - typing.Self is not in Python 3.10
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        if isinstance(error, OutputError) and error.where is None:
            error.where = self.path

    def commit(self) -> None:
        """Write the bytes to the stream, from its position on. Raises OutputError."""
        try:
            self._file.seek(0)
            while block := self._file.read(_STEP):
                view = memoryview(block)
                while view:
                    view = view[self._taken(self._stream.write(view), len(view)) :]
        except (OSError, ValueError) as error:  # ValueError: it is closed
            if isinstance(error, OSError):
                raise output_error(error, self.path) from error
            raise OutputError(f"cannot write: {error}", where=self.path) from error

    def _taken(self, said: object, given: int) -> int:
        """Return how many of `given` bytes the stream took: a raw one may take a part, others take everything."""
        from io import RawIOBase

        if said is None and not isinstance(self._stream, RawIOBase):
            return given
        if not isinstance(said, int) or not 0 < said <= given:
            actual = "none: it would have to wait" if said is None else shown(said)
            hint = "its write must take bytes, and return how many, or None for all"
            raise OutputError(
                "the stream does not take the bytes",
                where=self.path,
                expected=f"1 to {given}",
                actual=actual,
                hint=hint,
            )
        return said


def open_output(
    path: str | os.PathLike[str], size: int, mode: int = DATA_MODE, inputs: Iterable[Source] = ()
) -> OutputFile:
    """Return the context manager of a new file of `size` bytes that `commit` puts at `path`.

    `mode` is DATA_MODE or IMAGE_MODE, before the umask. Symbolic links at `path` are followed, dangling ones too.
    Raises UsageError for a path that is a directory, a device, a pipe or a socket, or the same file as one of
    `inputs` under whatever name; OutputError when the directory cannot be written to.
    """
    return OutputFile(os.fspath(path), size, mode, inputs)


def write_small(
    path: str | os.PathLike[str], data: bytes, mode: int = DATA_MODE, inputs: Iterable[Source] = ()
) -> None:
    """Write a file that is in memory. An existing character device or pipe (`/dev/stdout`) is written to."""
    name = os.fspath(path)
    try:
        into = _kind(name) in (stat.S_IFCHR, stat.S_IFIFO)
    except OSError:
        into = False
    if into:
        try:
            with open(name, "wb", buffering=0) as stream:
                view = memoryview(data)
                while view:
                    view = view[stream.write(view) :]
        except OSError as error:
            raise output_error(error, name) from error
        return
    with open_output(name, len(data), mode, inputs) as out:
        out.write(data)
        out.commit()


@contextmanager
def work_folder(path: str) -> Iterator[str]:
    """Yield a folder beside `path`, which is removed at the end.

    Raises OutputError about `path`, for an OSError of the block too: its files are in the folder.
    """
    name = os.path.join(os.path.dirname(os.path.realpath(path)), f".emitter-{os.urandom(8).hex()}.tmp")
    _temporary.add(name)
    try:
        os.mkdir(name, 0o700)
        yield name
    except OSError as error:
        raise output_error(error, path) from error
    except EmitterError as error:
        if error.where is None and isinstance(error, OutputError):
            error.where = path  # raised by code that knows the descriptor alone
        _rename(error, name, os.path.dirname(path))
        raise
    finally:
        _remove(name)


@contextmanager
def ends_with_us(start: Callable[[], Popen[bytes]]) -> Iterator[Popen[bytes]]:
    """Yield the process that `start` makes; it does not outlive the block, nor a signal that ends this process."""
    global _held  # noqa: PLW0603 - signals are the whole process's
    _held += 1  # a signal between the start and the entry in the list would miss it
    try:
        child = start()
        _children.append(child)
    finally:
        _held -= 1
        if _late and not _held:
            _end(_late[0])
    try:
        with child:
            try:
                yield child
            except BaseException:
                child.kill()
                raise
    finally:
        _children.remove(child)


@contextmanager
def new_directory(path: str) -> Iterator[str]:
    """Yield a temporary directory beside `path`, and rename it to `path` when the block ends without an error.

    `path` must not exist, or be an empty directory. Raises UsageError for one that is not empty, OutputError.
    """
    if not path:
        raise UsageError("the output has no name that a file can have", where=path, hint="name a new directory")
    try:
        entries = os.listdir(path)
    except FileNotFoundError:
        entries = []
    except OSError as error:
        raise output_error(error, path) from error
    if entries:
        actual = f"{len(entries)} entries"
        raise UsageError("the directory is not empty", where=path, actual=actual, hint="name a new directory")
    destination = os.path.abspath(path)
    name = os.path.join(os.path.dirname(destination), f".emitter-{os.urandom(8).hex()}.tmp")
    _temporary.add(name)
    try:
        try:
            os.mkdir(name)
        except OSError as error:
            raise output_error(error, path) from error
        yield name
        try:
            if os.name == "nt" and os.path.isdir(destination):
                os.rmdir(destination)  # there, a rename does not replace even an empty one
            os.replace(name, destination)
        except OSError as error:
            raise output_error(error, path) from error
    except EmitterError as error:
        _rename(error, name, path)
        raise
    finally:
        _remove(name)


def _rename(error: EmitterError, folder: str, path: str) -> None:
    """Let an error about a file in a folder of ours speak of it as of one in the user's `path`."""
    if error.where is not None and error.where.startswith(folder):
        error.where = os.path.join(path, error.where[len(folder) :].lstrip(os.sep))


def holds(path: str | os.PathLike[str], data: bytes) -> bool:
    """Whether `path` is a regular file of exactly these bytes. What cannot be read does not hold them."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size != len(data):
            return False
        with open(path, "rb") as stream:
            return stream.read(len(data) + 1) == data
    except OSError:
        return False


def write_if_changed(path: str | os.PathLike[str], data: bytes, *, inputs: Iterable[Source] = ()) -> bool:
    """Write a file unless it holds these very bytes, so that its time stamp tells of changes; return whether it did."""
    if holds(path, data):
        return False
    write_small(path, data, inputs=inputs)
    return True


def cleanup_on_signals() -> None:
    """Make SIGINT, SIGTERM and SIGHUP end the process and its children after a clean-up, with the status 128 + signal.

    For the command, in the main thread. A signal that is ignored (nohup) stays ignored. The process ends in the
    handler: an exception would be lost where the interpreter cannot pass it on, such as in a destructor.
    """
    import signal

    for number in _ending():
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _end)


def _ending() -> list[int]:
    import signal

    return [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def _end(number: int, _frame: object = None) -> None:
    import signal

    if _held:
        _late.append(number)
        return
    for other in _ending():  # a second one must not interrupt the clean-up
        signal.signal(other, signal.SIG_IGN)
    for child in _children:
        with suppress(OSError):
            child.kill()
            if hasattr(os, "WNOHANG"):  # not Popen.wait: the block that was interrupted may hold its lock
                os.waitpid(child.pid, 0)
    remove_temporary_files()
    if number == signal.SIGINT:
        with suppress(OSError):
            os.write(2, b"emitter: interrupted\n")
    os._exit(128 + number)


def remove_temporary_files() -> None:
    """Remove what unfinished outputs have left: the last resort after an interruption at an unlucky moment."""
    for name in list(_temporary):
        _remove(name)


def _remove(name: str) -> None:
    with suppress(OSError):  # it was never created, or has its final name already
        if os.path.isdir(name):
            from shutil import rmtree  # a linker may make folders in it

            rmtree(name, ignore_errors=True)
        else:
            os.unlink(name)
    _temporary.discard(name)


def _kind(path: str) -> int:
    return stat.S_IFMT(os.stat(path).st_mode)


def _resolve(path: str, inputs: Iterable[Source]) -> str:
    """Return the absolute path of the file to write, links followed; refuse what must not be replaced."""
    if "\0" in path or not path:
        raise UsageError("the output has no name that a file can have", where=shown(path))
    try:
        status = os.stat(path)
    except FileNotFoundError:
        if path.endswith(("/", os.sep)):
            raise UsageError("is the name of a directory", where=path, hint="name a file in it") from None
        return os.path.realpath(path)
    except OSError as error:
        raise output_error(error, path) from error
    kind = stat.S_IFMT(status.st_mode)
    if kind in _NOT_A_FILE:
        hint = "name a file in it" if kind == stat.S_IFDIR else "write to a file: parts of it are written out of order"
        raise UsageError(f"is {_NOT_A_FILE[kind]}, which is never replaced", where=path, hint=hint)
    for source in inputs:
        if isinstance(source, FileSource) and source.identity[:2] == (status.st_dev, status.st_ino):
            raise UsageError(
                "the output is one of the inputs", where=path, actual=source.path, hint="choose another name"
            )
    return os.path.realpath(path)
