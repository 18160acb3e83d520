"""Hashes of pages for code signatures, taken behind the copy: whole pages as they become final, the others at the end.

Digests go straight into the file, so that memory stays flat: 1 GiB has 8 MiB of them. Zero pages, of which holes have
many, are hashed once.
"""

from __future__ import annotations

from contextlib import suppress

from emitter.checksum import sha256
from emitter.layout import HASH_SIZE, UUID_SIZE
from emitter.page_helper import PageHelper
from emitter.reading import WINDOW
from emitter.records import TYPE_CHECKING
from emitter.writing import pwrite, read_back

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from emitter.layout import PageHashes

__all__ = ["PageHasher"]

_WORTH_OPENSSL = 1 << 20  # bytes from which its speed is worth loading it
_WORTH_A_PROCESS = 32 << 20  # bytes from which starting an interpreter (some 20 ms) is
_RFC_4122_V3 = (0x0F, 0x30), (0x3F, 0x80)  # (mask, bits) of bytes 6 and 8: version 3, made of a hash, as linkers write


class PageHasher:
    """The tables of one file; they do not overlap, and ascend. Both threads may hand in ranges, each range once."""

    def __init__(self, fd: int, tables: Sequence[PageHashes]) -> None:
        self.fd = fd
        self.tables = tables
        self.size = sum(table.size for table in tables)
        self.sha256: Callable[[bytes | memoryview], bytes] | None = None  # when it has been wanted
        self.zeros: dict[int, bytes] = {}  # bytes of a page -> the hash of a zero page, when it has been taken
        self.done: list[tuple[int, int, int]] = []  # (number of the table, first page, page behind the last)
        self.given: list[tuple[int, int, int]] = []  # what the other process hashes, as in `done`
        self.helper: PageHelper | None = None
        if self.size >= _WORTH_A_PROCESS:
            with suppress(OSError):
                self.helper = PageHelper(fd)

    def data(self, start: int, data: bytes, *, in_file: bool = False) -> None:
        """Take in bytes that are final at the file offset `start`; pages of which they are a part wait for the end.

        Where they are in the file already, the other process hashes as much as it can.
        """
        for number, first, last in self._whole_pages(start, start + len(data)):
            if in_file and self._give(number, first, last):
                continue
            table = self.tables[number]
            low = table.start + first * table.page - start
            self._write(number, first, self._hash(data, low, low + (last - first) * table.page, table.page))

    def _give(self, number: int, first: int, last: int) -> bool:
        """Let the other process hash whole pages, if there is one that has time."""
        table = self.tables[number]
        if self.helper is None:
            return False
        start, size = table.start + first * table.page, (last - first) * table.page
        if not self.helper.give(table.page, start, size, table.table + first * HASH_SIZE):
            return False
        self.given.append((number, first, last))
        return True

    def hole(self, start: int, end: int) -> None:
        """Take in zeros that are final."""
        step = WINDOW // HASH_SIZE
        for number, first, last in self._whole_pages(start, end):
            page = self.tables[number].page
            if page not in self.zeros:
                self.zeros[page] = self._digest(bytes(page))
            for at in range(first, last, step):
                self._write(number, at, self.zeros[page] * min(step, last - at))

    def finish(self) -> None:
        """Hash the pages that nobody handed in whole, when all else is final; then write the identities."""
        for number, table in enumerate(self.tables):
            at = 0
            for done, first, last in [*sorted(self.done + self.given), (number, -(-table.size // table.page), 0)]:
                if done == number:
                    self._hash_file(table, at, first)
                    at = max(at, last)
        if not self.stop():
            for number, first, last in self.given:
                self._hash_file(self.tables[number], first, last)
        for table in self.tables:
            pwrite(self.fd, self._identity(table), table.uuid)
            first = (table.uuid - table.start) // table.page
            self._hash_file(table, first, (table.uuid - table.start + UUID_SIZE - 1) // table.page + 1)

    def stop(self) -> bool:
        """End the other process, and return whether it has hashed all that it was given."""
        helper, self.helper = self.helper, None
        return helper is not None and helper.finish()

    def _whole_pages(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield the pages of each table that lie in a range as a whole."""
        for number, table in enumerate(self.tables):
            low = max(start - table.start, 0) + table.page - 1
            first, last = low // table.page, min(end - table.start, table.size) // table.page
            if first < last:
                yield number, first, last

    def _write(self, number: int, page: int, digests: bytes) -> None:
        pwrite(self.fd, digests, self.tables[number].table + page * HASH_SIZE)
        self.done.append((number, page, page + len(digests) // HASH_SIZE))

    def _digest(self, data: bytes | memoryview) -> bytes:
        """Return a SHA-256. The implementation is chosen late: loading it costs no time while the kernel copies."""
        if self.sha256 is None:
            self.sha256 = sha256
            if self.size >= _WORTH_OPENSSL:
                from hashlib import sha256 as openssl

                self.sha256 = lambda data: openssl(data, usedforsecurity=False).digest()
        return self.sha256(data)

    def _hash(self, data: bytes, start: int, end: int, page: int) -> bytes:
        digest, view = self._digest, memoryview(data)
        return b"".join([digest(view[at : min(at + page, end)]) for at in range(start, end, page)])

    def _hash_file(self, table: PageHashes, first: int, last: int) -> None:
        """Write the hashes of the pages from `first` to before `last`, as they are in the file."""
        step = WINDOW // table.page
        for page in range(first, last, step):
            start, end = page * table.page, min(min(page + step, last) * table.page, table.size)
            data = read_back(self.fd, end - start, table.start + start)
            pwrite(self.fd, self._hash(data, 0, len(data), table.page), table.table + page * HASH_SIZE)

    def _identity(self, table: PageHashes) -> bytes:
        """Return the UUID, made of the hashes of all pages, with the bits that RFC 4122 asks for."""
        size = -(-table.size // table.page) * HASH_SIZE
        # In two stages, so that memory stays flat: the hashes of windows of the table, then the hash of those.
        windows = (read_back(self.fd, min(WINDOW, size - at), table.table + at) for at in range(0, size, WINDOW))
        value = bytearray(self._digest(b"".join(map(self._digest, windows)))[:UUID_SIZE])
        for at, (mask, bits) in zip((6, 8), _RFC_4122_V3, strict=True):
            value[at] = value[at] & mask | bits
        return bytes(value)
