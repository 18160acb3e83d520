"""Checksums of payloads as they are written, and the second thread, which takes them or writes meanwhile."""

from __future__ import annotations

from emitter.checksum import crc32c, crc32c_zeros
from emitter.reading import WINDOW
from emitter.records import TYPE_CHECKING
from emitter.writing import read_back

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from queue import SimpleQueue
    from threading import Thread
    from typing import Protocol

    from emitter.layout import Copy

    class Pages(Protocol):
        """Takes in ranges of the destination, for the hashes of its pages."""

        def data(self, start: int, data: bytes, *, in_file: bool) -> None:
            """Take in bytes that have been written, or are about to be."""

    class Sums(Protocol):
        """Takes in consecutive ranges of the destination, each final when it is given."""

        def hole(self, start: int, end: int) -> None:
            """Take in zeros."""

        def written(self, start: int, end: int) -> None:
            """Take in what has been written, by reading it back."""

        def data(self, start: int, data: bytes) -> None:
            """Take in bytes that have been written, or are about to be."""


__all__ = ["Followed", "Follower", "Ranges"]

_BEHIND = 8  # tasks that may wait for the second thread: it keeps a block of each in memory


class Ranges:
    """The checksums of the copies of one run, fed with consecutive ranges of the destination; page hashes take part.

    `in_file` says that what `data` takes in has been written already.
    """

    def __init__(
        self,
        fd: int,
        copies: Sequence[Copy],
        crcs: list[int],
        run: list[int],
        pages: Pages | None,
        *,
        in_file: bool = False,
    ) -> None:
        self.fd = fd
        self.pages = pages
        self.in_file = in_file
        self.copies = copies
        self.crcs = crcs
        self.run = run
        self.at = 0  # position in the run

    def hole(self, start: int, end: int) -> None:
        """Take in zeros."""
        for number, low, high in self._split(start, end):
            self.crcs[number] = crc32c_zeros(high - low, self.crcs[number])

    def written(self, start: int, end: int) -> None:
        """Take in what has been written, by reading it back."""
        while start < end:
            data = read_back(self.fd, min(WINDOW - start % WINDOW, end - start), start)
            self._take(start, data, in_file=True)
            start += len(data)

    def data(self, start: int, data: bytes) -> None:
        """Take in bytes."""
        self._take(start, data, in_file=self.in_file)

    def _take(self, start: int, data: bytes, *, in_file: bool) -> None:
        if self.pages is not None:
            self.pages.data(start, data, in_file=in_file)
        for number, low, high in self._split(start, start + len(data)):
            part = data if high - low == len(data) else data[low - start : high - start]
            self.crcs[number] = crc32c(part, self.crcs[number])

    def _split(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        while start < end:
            number = self.run[self.at]
            copy = self.copies[number]
            high = min(end, copy.offset + copy.size)
            yield number, start, high
            start = high
            if high == copy.offset + copy.size:
                self.at += 1


class Follower:
    """A second thread that does tasks in order, a few behind the first: writes and checksums free the interpreter."""

    def __init__(self) -> None:
        from queue import SimpleQueue
        from threading import Semaphore, Thread

        self.queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self.room = Semaphore(_BEHIND)
        self.error: BaseException | None = None
        self.stopped = False
        self.thread: Thread = Thread(target=self._work, name="emitter-follower", daemon=True)
        self.thread.start()

    def add(self, task: Callable[[], None]) -> None:
        """Let the thread do a task, when there is room; raise what it met with an earlier one."""
        self.room.acquire()
        if self.error is not None:
            raise self.error
        self.queue.put(task)

    def finish(self) -> None:
        """Wait until all is done; raise what the thread met."""
        self.queue.put(None)
        self.thread.join()
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        """End the thread, whatever there is still to do."""
        self.stopped = True
        self.queue.put(None)
        self.thread.join()

    def _work(self) -> None:
        while (task := self.queue.get()) is not None:
            self._do(task)
            self.room.release()

    def _do(self, task: Callable[[], None]) -> None:
        try:
            if self.error is None and not self.stopped:
                task()
        except BaseException as error:  # raised again on the first thread
            self.error = error


class Followed:
    """The checksums of a run, by the second thread."""

    def __init__(self, follower: Follower, ranges: Ranges) -> None:
        self.follower = follower
        self.ranges = ranges

    def hole(self, start: int, end: int) -> None:
        """Let the thread take in zeros."""
        self.follower.add(lambda: self.ranges.hole(start, end))

    def written(self, start: int, end: int) -> None:
        """Let the thread read back what has been written."""
        self.follower.add(lambda: self.ranges.written(start, end))

    def data(self, start: int, data: bytes) -> None:
        """Let the thread read back what has been written, which proves it."""
        self.written(start, start + len(data))
