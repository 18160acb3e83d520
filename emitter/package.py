"""What the user ships: a package of named tensors, whose bytes stay where they are until they are written."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

from emitter.dtypes import DType
from emitter.errors import InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["BufferSource", "ByteOrder", "Extent", "FileSource", "Inflate", "Package", "Source", "Tensor"]

ByteOrder = Literal["little", "big"]

_NO_METADATA: Mapping[str, str] = MappingProxyType({})

MAX_NAME_BYTES = 65535
MAX_NDIM = 64
MAX_ALIGNMENT = 1 << 21


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
        name = os.fspath(path)
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
        return cls(name, _identity(status))

    @property
    def size(self) -> int:
        """Bytes in the file, when it was first seen."""
        return self.identity[2]

    @contextmanager
    def open(self) -> Iterator[int]:
        """Yield a descriptor for reading, and check that the file is the one first seen, both before and after."""
        try:
            fd = os.open(self.path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0))
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


class Extent(NamedTuple):
    """`length` bytes of a source from `offset`, and what must be done to them on the way: nothing, in the fast case.

    `byte_order` is that of the stored elements; whether they are swapped depends on the target. `fortran_order` says
    that the source is column-major: it is transposed to row-major.
    """

    source: Source
    offset: int
    length: int
    byte_order: ByteOrder = "little"
    inflate: Inflate | None = None
    fortran_order: bool = False


class Tensor(NamedTuple):
    """A named, dense, row-major tensor. `alignment` (bytes, a power of two) None means the package's default.

    `encoding` is 0 where the bytes are elements of `dtype`, else the code of a block format that DLPack cannot name;
    such bytes are not checked against the shape, and loaders give them as bytes.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    extent: Extent
    alignment: int | None = None
    encoding: int = 0
    metadata: Mapping[str, str] = _NO_METADATA

    @property
    def nbytes(self) -> int:
        """Bytes of the payload as it is written."""
        return self.extent.length if self.encoding else self.dtype.nbytes(self.shape)


class Package:
    """Named tensors with metadata, in the order in which they were added.

    >>> import numpy
    >>> package = Package()
    >>> package.add_tensor("scale", numpy.ones(4, numpy.float32))
    >>> [tensor.name for tensor in package.tensors]
    ['scale']
    """

    def __init__(self, *, metadata: Mapping[str, str] | None = None, model_version: str = "") -> None:
        self.metadata: dict[str, str] = dict(metadata or {})
        self.model_version = model_version
        self._tensors: dict[str, Tensor] = {}
        self._files: dict[str, FileSource] = {}

    @property
    def files(self) -> list[str]:
        """The paths of all files that were read for this package, in order: what its outputs depend on."""
        return list(self._files)

    @property
    def sources(self) -> list[FileSource]:
        """The files of `files`, as they were first seen."""
        return list(self._files.values())

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors, in source order."""
        return list(self._tensors.values())

    def note_file(self, source: FileSource) -> None:
        """Record that the package depends on a file; `add` does so for the source of each tensor."""
        self._files.setdefault(source.path, source)

    def add(self, tensor: Tensor) -> None:
        """Add a tensor; raise InputError for a name that is taken, UsageError for one that cannot be written."""
        _check(tensor)
        other = self._tensors.get(tensor.name)
        if other is not None:
            raise InputError(
                f"two tensors are called {tensor.name!r}",
                where=tensor.extent.source.path,
                actual=f"the same name in {other.extent.source.path}",
                hint="write PREFIX=FILE for one of the inputs to put PREFIX before its names",
            )
        self._tensors[tensor.name] = tensor
        if isinstance(tensor.extent.source, FileSource):
            self.note_file(tensor.extent.source)

    def add_input(self, argument: str | os.PathLike[str], *, prefix: str = "", keep_metadata: bool = False) -> None:
        """Add every tensor of a file that is recognised by content, or the bytes of `raw:FILE`.

        Recognised are safetensors, the index of a sharded safetensors model, .npy, .npz and .pack.
        `prefix` is put before the tensors' names; for an input that holds one unnamed tensor it is the name.
        """
        from emitter.inputs import read_input

        for tensor in read_input(os.fspath(argument), self, prefix=prefix, keep_metadata=keep_metadata):
            self.add(tensor)

    def add_raw(
        self, name: str, data: bytes | bytearray | memoryview | os.PathLike[str], *, alignment: int | None = None
    ) -> None:
        """Add opaque bytes, or a file of them, as a uint8 tensor of one dimension."""
        if isinstance(data, (bytes, bytearray, memoryview)):
            view = memoryview(data)
            source: Source = BufferSource(name, view.cast("B") if view.contiguous else memoryview(view.tobytes()))
        else:
            source = FileSource.of(data)
        self.add(Tensor(name, DType(1, 8), (source.size,), Extent(source, 0, source.size), alignment))

    def add_tensor(
        self,
        name: str,
        array: object,
        *,
        alignment: int | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        """Add a numpy array (ml_dtypes too), or any CPU array that exports DLPack. A row-major array is not copied."""
        from emitter.inputs.arrays import tensor_from_array

        self.add(tensor_from_array(name, array, alignment=alignment, metadata=metadata))


def _check(tensor: Tensor) -> None:
    where = f"{tensor.extent.source.path}: tensor {tensor.name!r}"
    try:
        encoded = tensor.name.encode()
    except UnicodeEncodeError as error:
        raise InputError("the name is not valid UTF-8", where=where) from error
    if not 0 < len(encoded) <= MAX_NAME_BYTES or b"\0" in encoded:
        raise InputError(
            "the name cannot be written",
            where=where,
            expected=f"1 to {MAX_NAME_BYTES} bytes without NUL",
            actual=f"{len(encoded)} bytes",
        )
    if len(tensor.shape) > MAX_NDIM:
        raise InputError("too many dimensions", where=where, expected=f"at most {MAX_NDIM}", actual=len(tensor.shape))
    if any(not 0 <= extent < 1 << 63 for extent in tensor.shape):
        raise InputError("a dimension is out of range", where=where, expected="0 to 2^63-1", actual=tensor.shape)
    # The largest stride, and with it the size in bytes, must fit an int64; an empty dimension counts as one in strides.
    stride = tensor.dtype.element_bits
    for extent in tensor.shape:
        stride *= max(extent, 1)
    if stride >= 1 << 63:
        raise InputError("the shape is too large", where=where, expected="below 2^63 bits", actual=tensor.shape)
    alignment = tensor.alignment
    if alignment is not None and not (0 < alignment <= MAX_ALIGNMENT and alignment & (alignment - 1) == 0):
        raise UsageError(
            "the alignment cannot be kept",
            where=where,
            expected=f"a power of two, 1 to {MAX_ALIGNMENT}",
            actual=alignment,
        )


def _identity(status: os.stat_result) -> tuple[int, int, int, int, int]:
    # Windows reports the creation time as st_ctime, which does not change with the content: harmless in a comparison.
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


NATIVE_BYTE_ORDER: ByteOrder = "little" if sys.byteorder == "little" else "big"
