"""Hashes of pages for code signatures, taken behind the copy: whole pages as they become final, the others at the end.

Digests go straight into the file, so that memory stays flat: 1 GiB has 8 MiB of them. Zero pages, of which holes have
many, are hashed once.
"""

from __future__ import annotations

from contextlib import suppress

from emitter.checksum import sha256
from emitter.layout import HASH_PAGE, HASH_SIZE, UUID_SIZE
from emitter.page_helper import PageHelper
from emitter.reading import WINDOW
from emitter.records import TYPE_CHECKING
from emitter.writing import pwrite, read_back

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from emitter.layout import PageHashes

__all__ = ["PageHasher"]

_WORTH_OPENSSL = 1 << 20  # bytes from which its speed is worth loading it
_WORTH_A_PROCESS = 128 << 20  # bytes from which starting an interpreter (some 20 ms) is
_KEPT = 3  # this process keeps one range of so many, since it copies and takes checksums as well
_ZERO_PAGE = bytes(HASH_PAGE)
_RFC_4122_V3 = (0x0F, 0x30), (0x3F, 0x80)  # (mask, bits) of bytes 6 and 8: version 3, made of a hash, as linkers write


class PageHasher:
    """The tables of one file; they do not overlap, and ascend. Both threads may hand in ranges, each range once."""

    def __init__(self, fd: int, tables: Sequence[PageHashes]) -> None:
        self.fd = fd
        self.tables = tables
        self.digest: Callable[[bytes | memoryview], bytes] = sha256
        self.zero = b""  # the hash of a zero page, when it has been taken
        self.done: list[tuple[int, int, int]] = []  # (number of the table, first page, page behind the last)
        self.helper: PageHelper | None = None
        self.given: list[tuple[int, int, int]] = []  # what the other process hashes, as in `done`
        self.asked = False
        self.turn = 0

    def data(self, start: int, data: bytes, *, in_file: bool = False) -> None:
        """Take in bytes that are final at the file offset `start`; pages of which they are a part wait for the end.

        Where they are in the file already, the other process hashes two ranges of three.
        """
        for number, first, last in self._whole_pages(start, start + len(data)):
            if in_file and self._give(number, first, last):
                continue
            table = self.tables[number]
            low = table.start + first * HASH_PAGE - start
            self._write(number, first, self._hash(data, low, low + (last - first) * HASH_PAGE))

    def _give(self, number: int, first: int, last: int) -> bool:
        """Let the other process hash whole pages, if it is its turn; it is started when there is much to do."""
        if not self.asked:
            self.asked = True
            if sum(table.size for table in self.tables) >= _WORTH_A_PROCESS:
                with suppress(OSError):
                    self.helper = PageHelper(self.fd)
        self.turn = (self.turn + 1) % _KEPT
        if self.helper is None or not self.turn:
            return False
        table = self.tables[number]
        size = (last - first) * HASH_PAGE
        if not self.helper.give(table.start + first * HASH_PAGE, size, table.table + first * HASH_SIZE):
            return False
        self.given.append((number, first, last))
        return True

    def hole(self, start: int, end: int) -> None:
        """Take in zeros that are final."""
        self._start()
        step = WINDOW // HASH_SIZE
        for number, first, last in self._whole_pages(start, end):
            for page in range(first, last, step):
                self._write(number, page, self.zero * min(step, last - page))

    def finish(self) -> None:
        """Hash the pages that nobody handed in whole, when all else is final; then write the identities."""
        if self.helper is not None and self.stop():
            self.done += self.given
        for number, table in enumerate(self.tables):
            at = 0
            for done, first, last in [*sorted(self.done), (number, -(-table.size // HASH_PAGE), 0)]:
                if done == number:
                    self._hash_file(table, at, first)
                    at = max(at, last)
        for table in self.tables:
            pwrite(self.fd, self._identity(table), table.uuid)
            first = (table.uuid - table.start) // HASH_PAGE
            self._hash_file(table, first, (table.uuid - table.start + UUID_SIZE - 1) // HASH_PAGE + 1)

    def stop(self) -> bool:
        """End the other process, and return whether it has hashed all that it was given."""
        helper, self.helper = self.helper, None
        return helper is not None and helper.finish()

    def _whole_pages(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield the pages of each table that lie in a range as a whole."""
        for number, table in enumerate(self.tables):
            low = max(start - table.start, 0) + HASH_PAGE - 1
            first, last = low // HASH_PAGE, min(end - table.start, table.size) // HASH_PAGE
            if first < last:
                yield number, first, last

    def _write(self, number: int, page: int, digests: bytes) -> None:
        pwrite(self.fd, digests, self.tables[number].table + page * HASH_SIZE)
        self.done.append((number, page, page + len(digests) // HASH_SIZE))

    def _start(self) -> None:
        """Choose the implementation when it is first wanted: loading it then costs no time, while the kernel copies."""
        if not self.zero:
            if sum(table.size for table in self.tables) >= _WORTH_OPENSSL:
                from hashlib import sha256 as openssl

                self.digest = lambda data: openssl(data, usedforsecurity=False).digest()
            self.zero = self.digest(_ZERO_PAGE)

    def _hash(self, data: bytes, start: int, end: int) -> bytes:
        self._start()
        # Only a page that may be zero is cut out to be compared; the others are hashed where they are.
        zero, digest, view = self.zero, self.digest, memoryview(data)
        return b"".join([
            zero if not data[at] and data[at : at + HASH_PAGE] == _ZERO_PAGE else digest(view[at : at + HASH_PAGE])
            for at in range(start, end, HASH_PAGE)
        ])  # fmt: skip

    def _hash_file(self, table: PageHashes, first: int, last: int) -> None:
        """Write the hashes of the pages from `first` to before `last`, as they are in the file."""
        step = WINDOW // HASH_PAGE
        for page in range(first, last, step):
            start, end = page * HASH_PAGE, min(min(page + step, last) * HASH_PAGE, table.size)
            data = read_back(self.fd, end - start, table.start + start)
            pwrite(self.fd, self._hash(data, 0, len(data)), table.table + page * HASH_SIZE)

    def _identity(self, table: PageHashes) -> bytes:
        """Return the UUID, made of the hashes of all pages, with the bits that RFC 4122 asks for."""
        size = -(-table.size // HASH_PAGE) * HASH_SIZE
        # In two stages, so that memory stays flat: the hashes of windows of the table, then the hash of those.
        windows = (read_back(self.fd, min(WINDOW, size - at), table.table + at) for at in range(0, size, WINDOW))
        value = bytearray(self.digest(b"".join(map(self.digest, windows)))[:UUID_SIZE])
        for at, (mask, bits) in zip((6, 8), _RFC_4122_V3, strict=True):
            value[at] = value[at] & mask | bits
        return bytes(value)
