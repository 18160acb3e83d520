"""What PATH stands for: files, the files below a directory, and the members of containers.

Containers are zip files (wheel, APK, AAR, jar), tar archives and Debian packages. Stored members are read in place;
others are unpacked into a temporary file, one at a time, and only those that begin like an artefact. How much may be
unpacked is limited, so that a small file cannot fill the disk.
"""

from __future__ import annotations

import io
import os
import struct

from emitter.errors import EmitterError, FormatError, InputError
from emitter.inspect.view import View
from emitter.records import TYPE_CHECKING, NamedTuple
from emitter.verify.compression import COMPRESSIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import IO, Any

__all__ = ["HEAD", "Budget", "Container", "Item", "container_kind", "items_of_container", "walk"]

HEAD = 512  # bytes that recognition looks at
MAX_MEMBER = 8 << 30
MAX_UNPACKED = 16 << 30
MAX_NESTED = 3

_STEP = 1 << 20
_AR = b"!<arch>\n"


class Container(NamedTuple):
    """Where a member lies: the container's kind (`apk`, `wheel`, `zip`, `tar`, `deb`), and the member's place in it.

    `stored` is whether its bytes lie in the container as they are, from `data_offset`. `name` is the container's own
    name, without folders; the names of all members are not kept.
    """

    kind: str
    name: str
    member: str
    stored: bool
    data_offset: int


class Item(NamedTuple):
    """Something to look at. `view` is None for what has been refused: `error` says why."""

    path: str
    member: str
    view: View | None
    named: bool  # by the user: then it must be an artefact
    containers: tuple[Container, ...] = ()
    error: EmitterError | None = None


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


def walk(path: str) -> Iterator[tuple[str, bool]]:
    """Yield (path, whether the user named it) of a file, or of every file below a directory, sorted.

    Symbolic links below a directory are not followed: what they lead to is either visited itself, or outside.
    """
    if not os.path.isdir(path):
        yield path, True
        return
    folders = [path]
    while folders:
        folder = folders.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            raise InputError(f"cannot list: {error.strerror or error}", where=folder) from error
        below = []
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                below.append(entry.path)
            elif entry.is_file(follow_symlinks=False):
                yield entry.path, False
        folders += reversed(below)


def container_kind(head: bytes) -> str | None:
    """Return `zip`, `tar`, a compression, or `deb` for what begins like a container that is unpacked, else None."""
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "zip"
    if head.startswith(_AR + b"debian-binary"):
        return "deb"
    if head[257:262] == b"ustar":
        return "tar"
    return next((kind for kind, magic, _ in COMPRESSIONS if head.startswith(magic)), None)


def items_of_container(
    kind: str, item: Item, view: View, budget: Budget, wanted: Callable[[bytes, str], bool]
) -> Iterator[Item]:
    """Yield the members of the container `view` that are artefacts or containers: those whose head is `wanted`.

    The view of a member is valid until the next one is asked for. A member that cannot be unpacked is an item with an
    error; a container that breaks its format raises FormatError.
    """
    if len(item.containers) == MAX_NESTED:
        raise FormatError("containers are nested too deeply", where=view.where, expected=f"at most {MAX_NESTED}")
    reader = _READERS.get(kind, _tar_compressed)
    try:
        yield from reader(kind, item, view, budget, wanted)
    except EmitterError:
        raise
    except _library_errors() as error:
        raise FormatError(f"the {kind} container cannot be read: {error}", where=view.where) from error


def _library_errors() -> tuple[type[Exception], ...]:
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


def _file(view: View) -> IO[bytes]:
    return io.BufferedReader(_ViewFile(view), _STEP)


def _child(item: Item, container: Container, view: View | None, error: EmitterError | None = None) -> Item:
    member = f"{item.member}!{container.member}" if item.member else container.member
    return Item(item.path, member, view, False, (*item.containers, container), error)


def _name(item: Item) -> str:
    return (item.member or item.path).replace("\\", "/").rpartition("/")[2]


def _zip(kind: str, item: Item, view: View, budget: Budget, wanted: Callable[[bytes, str], bool]) -> Iterator[Item]:
    import zipfile

    with zipfile.ZipFile(_file(view)) as archive:
        entries = archive.infolist()
        name = _name(item)
        kind = _zip_kind(name, {entry.filename for entry in entries})
        for entry in entries:
            if entry.is_dir():
                continue
            where = f"{view.where}!{entry.filename}"
            if entry.flag_bits & 1:
                continue  # encrypted: nothing in it can be loaded as it is
            stored = entry.compress_type == zipfile.ZIP_STORED
            offset = _zip_data(view, entry.header_offset) if stored else 0
            container = Container(kind, name, entry.filename, stored, offset)
            if stored:
                window = view.window(offset, entry.compress_size, where)
                if wanted(window.read_up_to(0, HEAD), entry.filename):
                    yield _child(item, container, window)
                continue
            with archive.open(entry) as stream:
                head = stream.read(HEAD)
                if wanted(head, entry.filename):
                    yield from _unpacked(item, container, head, stream, budget, where=where)


def _zip_data(view: View, header: int) -> int:
    """Return where the bytes of a member begin: behind its local header, whose extra field is its own."""
    magic, name, extra = view.unpack("<4s22xHH", header, "a local file header")
    if magic != b"PK\x03\x04":
        raise FormatError("not a local file header", where=f"{view.where}: offset {header:#x}", actual=magic.hex(" "))
    return header + 30 + int(name) + int(extra)


def _zip_kind(name: str, members: set[str]) -> str:
    suffix = name.rpartition(".")[2].lower()
    if suffix == "whl":
        return "wheel"
    if "AndroidManifest.xml" in members or suffix in {"apk", "aar"}:
        return "aar" if suffix == "aar" or any(member.startswith("jni/") for member in members) else "apk"
    return "zip"


def _unpacked(
    item: Item, container: Container, head: bytes, stream: IO[bytes], budget: Budget, *, where: str
) -> Iterator[Item]:
    """Yield the member with a view of a temporary file, which is gone afterwards."""
    import tempfile
    from contextlib import suppress

    # A file that has a name only while it is open could not be opened by it on Windows.
    fd, path = tempfile.mkstemp(prefix="emitter-")
    try:
        try:
            with os.fdopen(fd, "wb") as spool:
                size, data = 0, head
                while data:
                    size += len(data)
                    budget.check_member(size, where)
                    budget.spend(len(data), where)
                    spool.write(data)
                    data = stream.read(_STEP)
        except FormatError as error:
            yield _child(item, container, None, error)
        except _library_errors() as error:
            yield _child(item, container, None, FormatError(f"the member cannot be unpacked: {error}", where=where))
        else:
            with View.open(path) as whole:
                # The same file under the name that messages show.
                yield _child(item, container, whole.window(0, whole.size, where))
    finally:
        with suppress(OSError):
            os.unlink(path)


def _tar(kind: str, item: Item, view: View, budget: Budget, wanted: Callable[[bytes, str], bool]) -> Iterator[Item]:
    """Yield the members of a tar archive as windows."""
    import tarfile

    del budget
    with tarfile.open(fileobj=_file(view), mode="r:") as archive:
        for entry in archive:
            if not entry.isreg() or entry.issparse() or not entry.size:
                continue
            name = entry.name.removeprefix("./")
            window = view.window(entry.offset_data, entry.size, f"{view.where}!{name}")
            if wanted(window.read_up_to(0, HEAD), name):
                yield _child(item, Container(kind, _name(item), name, True, entry.offset_data), window)


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


def _tar_compressed(
    kind: str, item: Item, view: View, budget: Budget, wanted: Callable[[bytes, str], bool]
) -> Iterator[Item]:
    """Yield the members of a compressed tar archive, which is read once from front to end."""
    import tarfile

    opener = next(opener for name, _, opener in COMPRESSIONS if name == kind)
    stream = io.BufferedReader(_Counting(opener(_file(view), view.where), budget, view.where), _STEP)
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for entry in archive:
            if not entry.isreg() or entry.issparse() or not entry.size:
                continue
            content = archive.extractfile(entry)
            if content is None:
                continue
            name = entry.name.removeprefix("./")
            head = content.read(HEAD)
            if wanted(head, name):
                container = Container("tar", _name(item), name, False, 0)
                yield from _unpacked(item, container, head, content, budget, where=f"{view.where}!{name}")


def _deb(kind: str, item: Item, view: View, budget: Budget, wanted: Callable[[bytes, str], bool]) -> Iterator[Item]:
    """Yield the files of a Debian package: an archive of three members, of which data.tar holds them (deb(5))."""
    del kind
    position = len(_AR)
    while position + 60 <= view.size:
        header = view.read(position, 60, "a member header")
        digits = header[48:58].strip()
        if header[58:] != b"`\n" or not digits.isdigit():
            raise FormatError("not a member header", where=f"{view.where}: offset {position:#x}")
        size = int(digits)
        name = header[:16].decode("ascii", "replace").rstrip().rstrip("/")
        if name.startswith("data.tar"):
            inner = view.window(position + 60, size, view.where)
            found = container_kind(inner.read_up_to(0, HEAD))
            if found is None:
                raise FormatError(f"{name} is not compressed in a way that is known", where=view.where)
            yield from _READERS.get(found, _tar_compressed)(found, item, inner, budget, wanted)
        position += 60 + size + size % 2


_READERS: dict[str, Callable[..., Iterator[Item]]] = {"zip": _zip, "tar": _tar, "deb": _deb}
