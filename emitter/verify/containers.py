"""What PATH stands for: files, the files below a directory, and the members of containers.

Containers are zip files (wheel, APK, AAR, jar), tar archives and Debian packages. Stored members are read in place;
others are unpacked into a temporary file, one at a time, and only those that begin like an artefact. How much may be
unpacked is limited, so that a small file cannot fill the disk.
"""

from __future__ import annotations

import os
import stat
from itertools import pairwise

from emitter.errors import EmitterError, FormatError, InputError, shown
from emitter.records import TYPE_CHECKING, NamedTuple
from emitter.verify.compression import COMPRESSIONS
from emitter.verify.unpack import as_file, counted, library_errors, unpacked

if TYPE_CHECKING:
    import tarfile
    import zipfile
    from collections.abc import Callable, Iterator
    from typing import IO

    from emitter.inspect.view import View
    from emitter.verify.unpack import Budget

__all__ = ["HEAD", "Container", "Item", "container_kind", "items_of_container", "walk"]

HEAD = 512  # bytes that recognition looks at
MAX_NESTED = 3

_LOCAL_HEADER = 30  # bytes of a local file header before its name
_UNIX = 3  # the system whose file modes a zip file holds
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


def walk(path: str, errors: list[EmitterError]) -> Iterator[tuple[str, bool]]:
    """Yield (path, whether the user named it) of a file, or of every file below a directory, sorted.

    Symbolic links below a directory are not followed: what they lead to is either visited itself, or outside. Folders
    that cannot be listed go to `errors`.
    """
    if not os.path.isdir(path):
        yield path, True
        return
    folders = [path]
    while folders:
        folder = folders.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            below = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
            files = [entry.path for entry in entries if entry.is_file(follow_symlinks=False)]
        except OSError as error:
            errors.append(InputError(f"cannot list: {error.strerror or error}", where=folder))
            continue
        for file in files:
            yield file, False
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
    except library_errors() as error:
        raise FormatError(f"the {kind} container cannot be read: {error}", where=view.where) from error


def _child(item: Item, container: Container, view: View | None, error: EmitterError | None = None) -> Item:
    member = f"{item.member}!{container.member}" if item.member else container.member
    return Item(item.path, member, view, False, (*item.containers, container), error)


def _name(item: Item) -> str:
    return (item.member or item.path).replace("\\", "/").rpartition("/")[2]


def _zip(kind: str, item: Item, view: View, budget: Budget, wanted: Callable[[bytes, str], bool]) -> Iterator[Item]:
    import zipfile

    with zipfile.ZipFile(as_file(view)) as archive:
        entries = archive.infolist()
        _check_overlap(entries, view.where)
        name = _name(item)
        kind = _zip_kind(name, {entry.filename for entry in entries})
        for entry in entries:
            if entry.is_dir() or _is_link(entry):
                continue
            where = f"{view.where}!{entry.filename}"
            stored = entry.compress_type == zipfile.ZIP_STORED
            if entry.flag_bits & 1:
                if wanted(b"", entry.filename):
                    container = Container(kind, name, entry.filename, stored, 0)
                    yield _child(item, container, None, FormatError("the member is encrypted", where=where))
                continue
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


def _check_overlap(entries: list[zipfile.ZipInfo], where: str) -> None:
    """Raise FormatError where members share bytes: that is how a small file unpacks to more than any disk holds."""
    spans = sorted((entry.header_offset, entry.compress_size, entry.filename) for entry in entries)
    for (start, size, name), (following, _, other) in pairwise(spans):
        if start + _LOCAL_HEADER + size > following:
            raise FormatError("two members share bytes", where=where, actual=f"{shown(name)} and {shown(other)}")


def _is_link(entry: zipfile.ZipInfo) -> bool:
    """Return whether a member is a symbolic link, whose content is a path. The file mode is that of Unix."""
    return entry.create_system == _UNIX and stat.S_ISLNK(entry.external_attr >> 16)


def _zip_data(view: View, header: int) -> int:
    """Return where the bytes of a member begin: behind its local header, whose extra field is its own."""
    magic, name, extra = view.unpack("<4s22xHH", header, "a local file header")
    if magic != b"PK\x03\x04":
        raise FormatError("not a local file header", where=f"{view.where}: offset {header:#x}", actual=magic.hex(" "))
    return header + _LOCAL_HEADER + int(name) + int(extra)


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
    """Yield the member with a view of a temporary file, or with the error that it cannot be unpacked."""
    try:
        with unpacked(head, stream, budget, where) as view:
            yield _child(item, container, view)
    except FormatError as error:
        yield _child(item, container, None, error)


def _is_file(entry: tarfile.TarInfo) -> bool:
    """Return whether a member of a tar archive has content: links and devices have none."""
    return (entry.isreg() or entry.issparse()) and entry.size > 0


def _tar(kind: str, item: Item, view: View, budget: Budget, wanted: Callable[[bytes, str], bool]) -> Iterator[Item]:
    """Yield the members of a tar archive as windows; those with holes are unpacked."""
    import tarfile

    with tarfile.open(fileobj=as_file(view), mode="r:") as archive:
        for entry in archive:
            if not _is_file(entry):
                continue
            name = entry.name.removeprefix("./")
            if entry.issparse():
                yield from _streamed(kind, archive, item, entry, view, budget, wanted)
                continue
            window = view.window(entry.offset_data, entry.size, f"{view.where}!{name}")
            if wanted(window.read_up_to(0, HEAD), name):
                yield _child(item, Container(kind, _name(item), name, True, entry.offset_data), window)


def _streamed(  # noqa: PLR0917 - the parameters of the readers, and two more
    kind: str,
    archive: tarfile.TarFile,
    item: Item,
    entry: tarfile.TarInfo,
    view: View,
    budget: Budget,
    wanted: Callable[[bytes, str], bool],
) -> Iterator[Item]:
    """Yield a member of a tar archive that does not lie there as it is."""
    content = archive.extractfile(entry)
    if content is None:
        return
    name = entry.name.removeprefix("./")
    head = content.read(HEAD)
    if wanted(head, name):
        container = Container(kind, _name(item), name, False, 0)
        yield from _unpacked(item, container, head, content, budget, where=f"{view.where}!{name}")


def _tar_compressed(
    kind: str, item: Item, view: View, budget: Budget, wanted: Callable[[bytes, str], bool]
) -> Iterator[Item]:
    """Yield the members of a compressed tar archive, which is read once from front to end."""
    import tarfile

    opener = next(opener for name, _, opener in COMPRESSIONS if name == kind)
    stream = counted(opener(as_file(view), view.where), budget, view.where)
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for entry in archive:
            if _is_file(entry):
                yield from _streamed("tar", archive, item, entry, view, budget, wanted)


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
