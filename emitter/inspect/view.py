"""A window on an open file whose every read is checked against the window's end.

Nothing is mapped and nothing is read whole: a file of 100 GiB costs what its tables cost. A count or a size that a file
states is compared with the window before anything is read or allocated for it.

Reading another format. A module of this package that reads a format holds a subclass of `emitter.inspect.report.Reader`
that is made from a `View` alone, and gives:

- `kind`: what the file is, in words ("ELF shared object"). The constructor reads the header and raises `FormatError`
  where that is broken; everything else is read when it is asked for.
- for an object file, `report(page_size) -> Report`: the neutral model. What cannot be read becomes a `Fault` in it;
  only a broken header raises.
- for a container, `container = True` and `members() -> Iterator[Member]`: a name and a `View` (through `View.window`)
  of each member. Members are recognised by the caller, so a container knows no other format.
- typed records (`emitter.records.NamedTuple`), named after the specification's structures with its field names, as
  attributes or iterators, for rules that need more than the neutral model. Tables stream: `View.table` yields.

It is announced by one row of `emitter.inspect.READERS`.
"""

from __future__ import annotations

import os
import struct

from emitter.errors import FormatError, InputError
from emitter.package import OPEN_FLAGS
from emitter.reading import pread
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from typing_extensions import Self

__all__ = ["MAX_READ", "MAX_STRING", "View"]

MAX_READ = 8 << 20  # bytes that one `read` gives at most: no table needs more at once, and a hostile size asks for it
MAX_STRING = 64 << 10  # bytes of a name; longer ones are refused

_STEP = 256 << 10  # bytes of a table in memory at a time
_BLOCK = 64 << 10  # small reads are served from blocks of this size
_BLOCKS = 16  # blocks kept
_SMALL = 4 << 10


class _Source:
    """The bytes behind all windows of one file: a descriptor, or a buffer."""

    def __init__(self, path: str, fd: int | None, data: memoryview, size: int) -> None:
        self.path = path
        self.fd = fd
        self.data = data
        self.size = size
        self._blocks: dict[int, bytes] = {}

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes at `offset`, which is known to be in the file; less only if the file shrank."""
        if self.fd is None:
            return bytes(self.data[offset : offset + size])
        if size > _SMALL:
            return self._pread(offset, size)
        first, last = offset // _BLOCK, (offset + size - 1) // _BLOCK
        data = self._block(first)
        if last > first:
            data += self._block(last)
        start = offset - first * _BLOCK
        return data[start : start + size]

    def _block(self, number: int) -> bytes:
        block = self._blocks.get(number)
        if block is None:
            if len(self._blocks) == _BLOCKS:
                del self._blocks[next(iter(self._blocks))]
            block = self._blocks[number] = self._pread(number * _BLOCK, _BLOCK)
        return block

    def _pread(self, offset: int, size: int) -> bytes:
        if self.fd is None or self.fd < 0:
            raise InputError("the file is closed", where=self.path)
        try:
            data = pread(self.fd, size, offset)
            while len(data) < size:
                more = pread(self.fd, size - len(data), offset + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise InputError(f"cannot read: {error.strerror or error}", where=f"{self.path}: byte {offset}") from error
        return data

    def buffer(self) -> memoryview:
        """Return all bytes as one buffer; a file is mapped when this is first called."""
        if self.fd is not None and not self.data:
            import mmap

            try:
                self.data = memoryview(mmap.mmap(self.fd, 0, access=mmap.ACCESS_READ))
            except (OSError, ValueError) as error:
                raise InputError(f"cannot map: {error}", where=self.path) from error
        return self.data

    def close(self) -> None:
        if self.fd is not None and self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class View:
    """`size` bytes from `base` of a file; every offset that methods take is relative to the window.

    `where` names the window in messages: `liba.a: member x.o`. `base` is absolute, in the outermost file. A view that
    `open` made is a context manager that closes the file; windows of it share the file and need no closing.
    """

    __slots__ = ("_source", "base", "size", "where")

    def __init__(self, source: _Source, base: int, size: int, where: str) -> None:
        self._source = source
        self.base = base
        self.size = size
        self.where = where

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> View:
        """Open a regular file. Raises InputError for what cannot be opened, is no file, or is empty."""
        import stat

        name = os.fsdecode(path)
        try:
            # Opening a pipe waits for its writer, opening a device may do anything: so the type is looked at first.
            if not stat.S_ISREG(os.stat(name).st_mode):
                raise InputError("not a regular file", where=name, hint="name a file")
            fd = os.open(name, OPEN_FLAGS)
            size = os.fstat(fd).st_size
        except (OSError, ValueError) as error:
            raise InputError(f"cannot open: {getattr(error, 'strerror', None) or error}", where=name) from error
        if not size:
            os.close(fd)
            raise InputError("the file is empty", where=name, expected="an object file, a library or a pack")
        return cls(_Source(name, fd, memoryview(b""), size), 0, size, name)

    @classmethod
    def of_descriptor(cls, fd: int, where: str) -> View:
        """Return a view of an open file; closing it closes `fd`. `where` names it in messages."""
        size = os.fstat(fd).st_size
        return cls(_Source(where, fd, memoryview(b""), size), 0, size, where)

    @classmethod
    def of_bytes(cls, data: bytes | bytearray | memoryview, where: str) -> View:
        """Return a view of a buffer; `where` names it in messages."""
        view = memoryview(data).cast("B") if len(data) else memoryview(b"")
        return cls(_Source(where, None, view, len(view)), 0, len(view), where)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file behind this view and all its windows."""
        self._source.close()

    @property
    def path(self) -> str:
        """The outermost file."""
        return self._source.path

    def check(self, offset: int, size: int, what: str) -> None:
        """Raise FormatError unless `size` bytes at `offset` are in the window. Nothing is read."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise FormatError(
                f"{what} at offset {offset:#x} does not fit into the file",
                where=self.where,
                expected=f"an end of at most {self.size:#x}",
                actual=f"{offset + size:#x} ({size} bytes)",
                hint="the file is truncated, or its header is wrong",
            )

    def read(self, offset: int, size: int, what: str) -> bytes:
        """Return `size` bytes at `offset`: at most MAX_READ. Raises FormatError with `what` in it."""
        self.check(offset, size, what)
        if size > MAX_READ:
            raise FormatError(
                f"{what} is too large", where=self.where, expected=f"at most {MAX_READ} bytes", actual=f"{size} bytes"
            )
        if not size:
            return b""
        data = self._source.read(self.base + offset, size)
        if len(data) != size:
            raise InputError(
                "changed while it was read",
                where=self.where,
                expected=f"{size} bytes at {offset:#x}",
                actual=f"{len(data)} bytes",
                hint="try again when nothing writes to it",
            )
        return data

    def read_up_to(self, offset: int, size: int) -> bytes:
        """Return the `size` bytes at `offset`, fewer where the window ends: for looking at magics."""
        size = min(size, self.size - offset)
        return self.read(offset, size, "the start") if size > 0 else b""

    def chunks(self, offset: int, size: int, what: str, step: int = 1 << 20) -> Iterator[bytes]:
        """Yield the `size` bytes at `offset` in pieces of `step` bytes."""
        self.check(offset, size, what)
        for start in range(offset, offset + size, step):
            yield self.read(start, min(step, offset + size - start), what)

    def unpack(self, form: str, offset: int, what: str) -> tuple[Any, ...]:
        """Return the values of the `struct` format `form` (with its byte order) at `offset`."""
        record = struct.Struct(form)
        return record.unpack(self.read(offset, record.size, what))

    def table(self, form: str, offset: int, entry_size: int, count: int, what: str) -> Iterator[tuple[Any, ...]]:
        """Return an iterator over `count` records of format `form`, each at the start of `entry_size` bytes.

        The whole table is checked to be in the file before the first record is given; then it is read in steps.
        """
        record = struct.Struct(form)
        if count and entry_size < record.size:
            raise FormatError(
                f"the entry size of {what} is wrong", where=self.where, expected=record.size, actual=entry_size
            )
        self.check(offset, count * entry_size, what)
        return self._rows(record, offset, entry_size, count, what)

    def _rows(
        self, record: struct.Struct, offset: int, entry_size: int, count: int, what: str
    ) -> Iterator[tuple[Any, ...]]:
        if entry_size > _STEP:
            for number in range(count):
                yield record.unpack(self.read(offset + number * entry_size, record.size, what))
            return
        per_step = _STEP // entry_size if entry_size else 0
        while count:
            now = min(count, per_step)
            data = self.read(offset, now * entry_size, what)
            if entry_size == record.size:
                yield from record.iter_unpack(data)
            else:
                for position in range(0, len(data), entry_size):
                    yield record.unpack_from(data, position)
            offset += now * entry_size
            count -= now

    def string(self, offset: int, limit: int, what: str) -> str:
        """Return the NUL-terminated string at `offset` that ends before offset `limit`.

        Bytes that are not UTF-8 become surrogates (`surrogateescape`), so that no two names become equal. Raises
        FormatError for one without NUL, or longer than MAX_STRING.
        """
        limit = min(limit, self.size)
        if not 0 <= offset < limit:
            raise FormatError(
                f"{what} is not in the string table",
                where=self.where,
                expected=f"an offset below {limit:#x}",
                actual=f"{offset:#x}",
            )
        end = min(limit, offset + MAX_STRING)
        position, parts = offset, b""
        while position < end:
            part = self.read(position, min(_SMALL if parts else 64, end - position), what)
            head, nul, _ = part.partition(b"\0")
            parts += head
            if nul:
                return parts.decode("utf-8", "surrogateescape")
            position += len(part)
        raise FormatError(
            f"{what} at offset {offset:#x} has no end", where=self.where, expected=f"a NUL before {end:#x}"
        )

    def window(self, offset: int, size: int, where: str) -> View:
        """Return a view of `size` bytes at `offset` of this one. Raises FormatError if they are not there."""
        self.check(offset, size, where)
        return View(self._source, self.base + offset, size, where)

    def buffer(self) -> memoryview:
        """Return the window's bytes as one read-only buffer: the file is mapped. For the loaders, which need one."""
        return self._source.buffer()[self.base : self.base + self.size]

    def crc32c(self, offset: int, size: int, what: str) -> int:
        """Return the CRC-32C of `size` bytes at `offset`, read in steps."""
        from emitter.checksum import crc32c

        value = 0
        for chunk in self.chunks(offset, size, what):
            value = crc32c(chunk, value)
        return value
