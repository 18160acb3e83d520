"""Opens files that hold packs, and gives their tensors by name."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import TypeVar

from emitter.errors import LoadError, shown
from emitter.loaders._containers import find
from emitter.loaders._memory import map_file, view_buffer
from emitter.loaders._modules import Module, modules_of
from emitter.loaders._pack import Index
from emitter.loaders._registry import DEFAULT, ModuleTree, Registry
from emitter.loaders._tensor import Tensor, check_crc
from emitter.pack import format as fmt
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from numpy.typing import NDArray
    from typing_extensions import Buffer, Self

    from emitter.package import ByteOrder

__all__ = ["Library", "Pack", "load"]

_T = TypeVar("_T")

# Comparing is slow: names that are looked through for near ones, and characters of one.
_MAX_COMPARED = 5000
_MAX_COMPARED_LENGTH = 256


class _Tensors(ABC):
    """What packs and libraries have in common: tensors by name, like a read-only mapping, and the header's facts."""

    __slots__ = ()

    @abstractmethod
    def _pack(self) -> Pack:
        """Return the pack that is spoken of."""

    def names(self) -> list[str]:
        """Return every name, sorted by its UTF-8 bytes."""
        return list(self._pack().index().names())

    def keys(self) -> list[str]:
        """Return `names()`, so that `dict(library)` works."""
        return self.names()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self._pack().index())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._pack().index().find(name) is not None

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return `tensor(name).numpy()`: a read-only array over the file's own bytes."""
        return self.tensor(name).numpy()

    def get(self, name: str, default: _T | None = None) -> NDArray[Any] | _T | None:
        """Return the array called `name`, or `default` if there is none."""
        index = self._pack().index()
        return default if index.find(name) is None else self[name]

    def tensors(self) -> Iterator[Tensor]:
        """Yield every tensor, in the order of `names()`."""
        pack = self._pack()
        return (Tensor(pack.index, number, pack.base) for number in range(len(pack.index())))

    def values(self) -> Iterator[NDArray[Any]]:
        """Yield the array of every tensor, in the order of `names()`."""
        return (tensor.numpy() for tensor in self.tensors())

    def items(self) -> Iterator[tuple[str, NDArray[Any]]]:
        """Yield (name, array) of every tensor, in the order of `names()`."""
        return ((tensor.name, tensor.numpy()) for tensor in self.tensors())

    def tensor(self, name: str) -> Tensor:
        """Return the tensor called `name`; raise LoadError, with the nearest names, if there is none."""
        pack = self._pack()
        index = pack.index()
        number = index.find(name) if isinstance(name, str) else None
        if number is None:
            raise LoadError(
                f"it holds no tensor called {shown(name)}", where=index.where, hint=_nearest(index, str(name))
            )
        return Tensor(pack.index, number, pack.base)

    @property
    def modules(self) -> list[Module]:
        """The modules: the root first, each before what it imports; empty if there are none."""
        pack = self._pack()
        return list(modules_of(pack.index, pack.base))

    def build_modules(self, place: Mapping[str, str] | None = None, *, registry: Registry | None = None) -> ModuleTree:
        """Return the tree of modules, each built by its registered loader when it is first asked for.

        `place` gives the values of keys that alternatives have conditions on, such as `{"sm": "87"}`. `registry` None
        means the one that `emitter.loaders.module_loader` registers in.
        """
        return ModuleTree(self.modules, place or {}, registry or DEFAULT)

    def module(self, name: str) -> Module:
        """Return the module called `name`; raise LoadError if there is none."""
        modules = self.modules
        for module in modules:
            if module.name == name:
                return module
        where = self._pack().index().where
        names = ", ".join(shown(module.name) for module in modules[:20]) or "it holds no modules"
        raise LoadError(f"it holds no module called {shown(name)}", where=where, hint=names)

    @property
    def metadata(self) -> dict[str, str]:
        """The package's keys and values."""
        index = self._pack().index()
        return index.metadata(index.header.metadata_first, index.header.metadata_count, index.where)

    @property
    def model_version(self) -> str:
        """The version string that the user gave, or empty."""
        return self._pack().index().model_version

    @property
    def schema_hash(self) -> int:
        """The hash of all names, types and shapes: unsigned, 64 bits, the same for every byte order."""
        return self._pack().index().header.schema_hash

    @property
    def version(self) -> tuple[int, int]:
        """The version of the pack format: (major, minor)."""
        header = self._pack().index().header
        return header.version_major, header.version_minor

    @property
    def byte_order(self) -> ByteOrder:
        """The byte order of the elements: that of the CPU which the file is for."""
        return self._pack().index().header.byte_order

    @property
    def alignment(self) -> int:
        """Bytes: the largest alignment of a payload."""
        return self._pack().index().header.alignment


class Pack(_Tensors):
    """One pack of a library.

    `path` is the file that holds its bytes: the library's own, or a sidecar beside it; `sidecar` is then the name that
    the library has for that, and else empty. `file_offset` is where the pack begins in that file, `size` is its bytes,
    `member` the archive member around it, or empty.

    A library in a buffer has no folder to look for a sidecar in: its pack describes every tensor, and has no bytes.
    """

    __slots__ = ("_index", "_own", "_where", "file_offset", "member", "path", "sidecar", "size")

    def __init__(self, index: Index, file_offset: int, member: str, path: str, own: Index | None = None) -> None:
        self._index: Index | None = index
        self._own = own
        self._where = index.where
        named = own or index
        self.path: str = path
        self.sidecar: str = named.sidecar().name if named.header.sidecar else ""
        self.file_offset: int = file_offset
        self.size: int = index.header.total_size
        self.member: str = member

    def __repr__(self) -> str:
        return f"<emitter pack {self._where}: {'closed' if self._index is None else f'{len(self)} tensors'}>"

    def index(self) -> Index:
        """Return the index of the open pack; raise LoadError if its library is closed. For this package's own use."""
        if self._index is None:
            raise LoadError(
                "the library is closed",
                where=self._where,
                hint="take arrays before its `with` block ends, or load it again",
            )
        return self._index

    def _pack(self) -> Pack:
        return self

    @property
    def base(self) -> int:
        """What offsets of payloads in their file count from. For this package's own use."""
        return 0 if self.sidecar else self.file_offset

    def place(self) -> str:
        """Say where the pack is. For this package's own use."""
        member = f"in {shown(self.member)} " if self.member else ""
        return f"{member}at file offset {self.file_offset:#x}"

    def _close(self) -> None:
        self._index = self._own = None

    def validate(self) -> None:
        """Check every rule of the format outside the payloads: O(tensors). Raise FormatError for a broken one."""
        from emitter.loaders._validate import validate

        if self._own is not None:
            validate(self._own)
        validate(self.index())

    def check(self) -> None:
        """Validate the pack, then read every payload; raise FormatError where its CRC-32C differs."""
        self.validate()
        index = self.index()
        for number in range(index.tables[fmt.PAYLOAD.kind].records):
            payload = index.raw_payload(number)
            check_crc(index.payload_bytes(payload), payload.crc32c, f"{self._where}: payload {number}")


class Library(_Tensors):
    """A file, or a buffer, that holds packs. If it holds one, the library gives its tensors itself, else `packs` do.

    `kind` says what the file is. Arrays, views and DLPack capsules lie over the mapped file, and keep it mapped: the
    library may be closed or forgotten, and they stay valid until the last of them is gone. Closing (or leaving the
    `with` block) refuses everything new. Do not truncate or overwrite a file that is mapped: the system ends a process
    that reads what is no longer there (SIGBUS). To replace a file, rename another over it.

    >>> with load("libresnet18.so") as library:    # doctest: +SKIP
    ...     weight = library["conv1.weight"]
    """

    __slots__ = ("kind", "packs", "path")

    def __init__(self, path: str, kind: str, packs: tuple[Pack, ...]) -> None:
        self.path: str = path
        self.kind: str = kind
        self.packs: tuple[Pack, ...] = packs

    def __repr__(self) -> str:
        return f"<emitter library {self.path}: {self.kind}, {len(self.packs)} pack{'s' * (len(self.packs) != 1)}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Refuse everything new. What was given stays valid, and the file mapped until the last of it is gone."""
        for pack in self.packs:
            pack._close()

    def validate(self) -> None:
        """Call `Pack.validate` for every pack."""
        for pack in self.packs:
            pack.validate()

    def check(self) -> None:
        """Call `Pack.check` for every pack: reads everything."""
        for pack in self.packs:
            pack.check()

    def _pack(self) -> Pack:
        if len(self.packs) != 1:
            raise LoadError(
                f"the file holds {len(self.packs)} packs",
                where=self.path,
                actual=", ".join(f"packs[{number}] {pack.place()}" for number, pack in enumerate(self.packs)),
                hint="choose one, as in library.packs[0]",
            )
        return self.packs[0]


def load(source: str | os.PathLike[str] | Buffer) -> Library:
    """Open a file that holds packs, of any CPU, on any machine, without running anything of it.

    `source` is the path of a `.pack`, an ELF, Mach-O or PE library, program or object, or an ar archive; or a buffer
    (bytes, memoryview, mmap, ...) with the content of one. Of a universal file, the slice for the CPU of this host is
    opened, or the first if there is none; `Library.kind` says which. A file is mapped, not read: opening takes the same
    time for every size, but for a library that is pinned to its sidecar, which is read. Raises LoadError for what
    cannot be opened, is truncated, or holds no pack, and for a sidecar that is missing or another one, FormatError for
    what breaks its own format.
    """
    if isinstance(source, (str, os.PathLike)):
        path = os.fsdecode(source)
        data = map_file(path)
    else:
        path = "buffer"
        data = view_buffer(source)
    contents = find(data, path)
    several = len(contents.places) > 1
    packs = []
    for number, place in enumerate(contents.places):
        where = f"{path}: packs[{number}]" if several else path
        index = Index(data[place.offset : place.offset + place.size], where)
        if index.header.total_size != place.size:
            raise LoadError(
                "the file and its pack disagree on the pack's size",
                where=where,
                expected=place.size,
                actual=index.header.total_size,
            )
        if index.header.sidecar and isinstance(source, (str, os.PathLike)):
            from emitter.loaders._sidecar import follow

            beside, pack = follow(index, path)
            packs.append(Pack(pack, 0, place.member, beside, own=index))
        else:
            packs.append(Pack(index, place.offset, place.member, path))
    return Library(path, contents.kind, tuple(packs))


def _nearest(index: Index, name: str) -> str:
    count = len(index)
    if not count:
        return "it holds no tensors"
    if count <= _MAX_COMPARED and len(name) <= _MAX_COMPARED_LENGTH:
        import difflib

        names = [other for other in index.names() if len(other) <= _MAX_COMPARED_LENGTH]
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        if near:
            return f"the nearest {'is' if len(near) == 1 else 'are'} {', '.join(map(shown, near))}"
    return f"names() lists its {count}"
