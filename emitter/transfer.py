"""Carries out a plan: payloads from their sources, then the index with their checksums, then everything else.

Which way a payload takes (measured, 1 GiB, fresh file, as multiples of `cp`):
- Source and destination at the same offset within a page, much data: the kernel copies (copy_file_range, 0.75), and a
  second thread takes the CRC-32C of the destination behind it at no cost in time.
- Otherwise the kernel's copy is slow (1.3), and a buffer is fast: one thread reads blocks and takes their CRC, the
  other writes them (0.95; one thread for all that, 1.1).
- Where pages are hashed for a signature, that takes longest. A second process does most of it, while one thread does
  all the rest (2.1 in all); where there is none, the kernel copies, and the second thread hashes (3.3).
- Holes of a sparse source stay holes, and their CRC is computed, not read. Small payloads gather in one buffer.
Space is reserved first: a disk that is full says so before the work, and the copy is faster by a quarter.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial

from emitter.checksum import crc32c, sha256
from emitter.errors import InputError
from emitter.following import Followed, Follower, Ranges
from emitter.integrity import check_unwritten, check_written
from emitter.layout import BUILD_ID_SIZE, align_up
from emitter.reading import WINDOW, Reader, open_reader
from emitter.records import TYPE_CHECKING
from emitter.transforms import inflate, segments_of_units, swap, transpose, whole_units
from emitter.writing import FULL, GAP, Reserve, Writer, output_error, pwrite, read_back

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from emitter.following import Sums
    from emitter.layout import Copy, FilePlan
    from emitter.pack.plan import PackPlan
    from emitter.page_hashes import PageHasher

    Progress = Callable[[int, int], None]  # bytes done, bytes in all

__all__ = ["write_plan"]

STEP = 4 << 20  # bytes of one copy by the kernel; the checksum follows one step behind, while they are in the cache
KERNEL_COPY = 1 << 20  # from here on the kernel copies; with less the thread for the checksum would not pay
PAGE = 4096
_PROGRESS_INTERVAL = 0.1  # seconds


def write_plan(fd: int, plan: FilePlan, pack: PackPlan | None, *, progress: Progress | None = None) -> list[int]:
    """Write what `plan` holds into the file `fd`: `plan.size` zero bytes so far, open for reading and writing.

    Returns the CRC-32C of each copy's bytes as written, in the order of `plan.copies` (of one slice's in a universal
    file), which are those of `pack.payloads` if there is a pack. Raises InputError for a source that is broken or has
    changed, OutputError (without `where`) when the file cannot be written.
    """
    transfer = _Transfer(fd, plan, progress)
    try:
        return _carry_out(transfer, fd, plan, pack)
    finally:
        transfer.stop()


def _carry_out(transfer: _Transfer, fd: int, plan: FilePlan, pack: PackPlan | None) -> list[int]:
    transfer.copy_all()
    # Payloads are final, and their checksums known.
    crcs = transfer.finish()
    for copy, crc in zip(plan.copies, crcs, strict=True):
        check_written(copy, crc)
    if plan.slices:
        crcs = _of_one_slice(plan, crcs)
    index = b""
    if pack is not None:
        index = pack.render_index(crcs)
        for offset in plan.pack_offsets:
            pwrite(fd, index, offset)
    for piece in plan.pieces:
        pwrite(fd, piece.data, piece.offset)
    # Everything but the build id and the page hashes is final.
    if plan.build_id_offset is not None:
        pwrite(fd, _build_id(plan, index), plan.build_id_offset)
    if transfer.pages is not None:
        transfer.pages.finish()
    return crcs


def _of_one_slice(plan: FilePlan, crcs: list[int]) -> list[int]:
    """Return the checksums of one slice, after comparing those of the others: all were copied from one source."""
    count = len(crcs) // len(plan.slices)
    for number, crc in enumerate(crcs):
        if crc != crcs[number % count]:
            raise InputError(
                "changed while it was read",
                where=plan.copies[number].extent.where,
                hint="try again when nothing writes to it",
            )
    return crcs[:count]


def _build_id(plan: FilePlan, index: bytes) -> bytes:
    covered = []
    at = plan.build_id_offset
    for piece in plan.pieces:
        data = piece.data
        if at is not None and piece.offset <= at < piece.offset + len(data):
            start = at - piece.offset
            data = data[:start] + bytes(BUILD_ID_SIZE) + data[start + BUILD_ID_SIZE :]
        covered.append(data)
    return sha256(b"".join([*covered, index]))[:BUILD_ID_SIZE]


class _Transfer:
    """The copying of one plan; copies of one source in a row share one opening."""

    def __init__(self, fd: int, plan: FilePlan, progress: Progress | None) -> None:
        self.fd = fd
        self.size = plan.size
        self.copies = plan.copies
        self.slice_copies = len(plan.copies) // (len(plan.slices) or 1)
        self.crcs = [0] * len(plan.copies)
        self.writer = Writer(fd)
        self.reserve = Reserve(fd)
        self.follower: Follower | None = None
        self.pages: PageHasher | None = None
        if plan.page_hashes:
            from emitter.page_hashes import PageHasher

            self.pages = PageHasher(fd, plan.page_hashes)
        self.progress = _Progress(sum(copy.size for copy in plan.copies), progress) if progress is not None else None

    def copy_all(self) -> None:
        slice_number = 0
        for numbers in self._groups():
            with open_reader(self.copies[numbers[0]].extent.source) as reader:
                for number in numbers:
                    check_unwritten(reader, self.copies[number])
                if not reader.sparse:
                    self._reserve_group(numbers)
                for run in self._runs(numbers):
                    if run[0] // self.slice_copies != slice_number:
                        self.writer.flush()  # its padding must not cover the hashes that end the slice before
                        slice_number = run[0] // self.slice_copies
                    self._copy_run(reader, run)
        self.writer.flush()

    def finish(self) -> list[int]:
        """Wait for the checksums, and return them."""
        if self.follower is not None:
            self.follower.finish()
        return self.crcs

    def stop(self) -> None:
        """End the second thread and the other process, whatever they have still to do."""
        if self.follower is not None:
            self.follower.stop()
        if self.pages is not None:
            self.pages.stop()

    def _groups(self) -> Iterator[list[int]]:
        """Yield the numbers of the copies in a row from one source; empty ones without a checksum are left out."""
        group: list[int] = []
        source = None
        for number, copy in enumerate(self.copies):
            if not copy.size and not copy.extent.checksum and not copy.extent.inflate:
                continue
            if copy.extent.source is not source and group:
                yield group
                group = []
            source = copy.extent.source
            group.append(number)
        if group:
            yield group

    def _runs(self, numbers: list[int]) -> Iterator[list[int]]:
        """Yield the numbers of copies that are one piece in the source and in the destination, or of a single copy."""
        run: list[int] = []
        source_end = end = -1
        for number in numbers:
            copy = self.copies[number]
            extent = copy.extent
            if copy.size != extent.length and not extent.inflate:
                raise _disagreement(copy, extent.length)
            plain = copy.swap_unit == 1 and not extent.inflate and not extent.fortran_order
            if run and not (plain and copy.offset == end and extent.offset == source_end):
                yield run
                run = []
            run.append(number)
            end = copy.offset + copy.size
            source_end = extent.offset + copy.size if plain else -1
        yield run

    def _reserve_group(self, numbers: list[int]) -> None:
        start = end = self.copies[numbers[0]].offset
        for number in numbers:
            copy = self.copies[number]
            if copy.offset - end > GAP:
                self.reserve(start, end)
                start = copy.offset
            end = copy.offset + copy.size
        self.reserve(start, end)

    def _copy_run(self, reader: Reader, run: list[int]) -> None:
        copy = self.copies[run[0]]
        extent = copy.extent
        if extent.fortran_order and sum(n != 1 for n in copy.shape) > 1:
            self._transpose(reader, copy, run)
        elif extent.inflate:
            position = copy.offset
            for data in whole_units(_inflated(reader, copy), copy.swap_unit):
                self._put(run, position, swap(data, copy.swap_unit))
                position += len(data)
        else:
            self._copy_plain(reader, run)

    def _copy_plain(self, reader: Reader, run: list[int]) -> None:
        first, last = self.copies[run[0]], self.copies[run[-1]]
        unit = first.swap_unit  # more than 1 in runs of one copy alone
        shift = first.offset - first.extent.offset
        start, end = first.extent.offset, last.extent.offset + last.size
        if end - start < WINDOW // 4 and not reader.sparse:
            self._put(run, first.offset, swap(reader.read_near(start, end - start), unit))
            return
        large = end - start >= KERNEL_COPY
        helped = self.pages is not None and self.pages.helper is not None
        # Where pages are hashed here, the other thread does best not to want the interpreter.
        kernel = reader.kernel_copy and unit == 1 and large and (not shift % PAGE or self.pages is not None)
        kernel = kernel and not helped
        behind = self._second_thread() if large and not helped else None
        sums = self._sums(run, behind if kernel else None, in_file=helped)
        for low, high, data in segments_of_units(reader.segments(start, end), start, unit):
            if not data:
                self._advance(high - low)
                sums.hole(low + shift, high + shift)
                if self.pages is not None:
                    self.pages.hole(low + shift, high + shift)
                continue
            if reader.sparse:
                self.reserve(low + shift, high + shift)
            position = low
            if kernel:
                for copied in self._kernel_copy(reader, low, high, shift):
                    sums.written(position + shift, copied + shift)
                    position = copied
            while position < high:
                # Each write ends on a window of the destination, so that all but the first begin there.
                step = min(high - position, WINDOW - (position + shift) % WINDOW)
                step = step - step % unit or min(unit, high - position)
                block = swap(reader.read(position, step), unit)
                if behind is not None and not kernel:
                    behind.add(partial(pwrite, self.fd, block, position + shift))
                else:
                    self.writer.put(position + shift, block)
                if kernel or helped:
                    self.writer.flush()  # the other one reads it back
                sums.data(position + shift, block)
                position += step
                self._advance(step)

    def _kernel_copy(self, reader: Reader, low: int, high: int, shift: int) -> Iterator[int]:
        """Copy from the source's `low` as far as the kernel will, and yield how far that is after each step."""
        self.writer.flush()  # else its padding might cover what is copied
        position = low
        while position < high and reader.kernel_copy and reader.fd is not None:
            try:
                done = os.copy_file_range(reader.fd, self.fd, min(STEP, high - position), position, position + shift)
            except OSError as error:
                if error.errno in FULL:
                    raise output_error(error) from error
                # ENOSYS, EXDEV, EINVAL, EPERM, EOPNOTSUPP...: reading and writing works, or tells what is wrong.
                done = 0
            if not done:
                # Also where old kernels copy nothing (files in /proc), and at an early end of the file.
                reader.kernel_copy = False
                return
            position += done
            self._advance(done)
            yield position

    def _sums(self, run: list[int], behind: Follower | None, *, in_file: bool) -> Sums:
        """Return the checksums of a run; one that the kernel copies is summed on the second thread, to its end."""
        ranges = Ranges(self.fd, self.copies, self.crcs, run, self.pages, in_file=in_file)
        return ranges if behind is None else Followed(behind, ranges)

    def _second_thread(self) -> Follower | None:
        """Return the second thread, started when it is first wanted; None where none can start.

        Nor where reading and writing move the position of the file (Windows), which both threads would share.
        """
        if self.follower is None and hasattr(os, "pread") and hasattr(os, "pwrite"):
            with suppress(RuntimeError):
                self.follower = Follower()
        return self.follower

    def _transpose(self, reader: Reader, copy: Copy, run: list[int]) -> None:
        item = copy.item_bits // 8
        if copy.item_bits % 8:
            raise InputError(
                "a column-major array of packed elements cannot be turned",
                where=copy.extent.where,
                actual=f"{copy.item_bits} bits per element",
                hint="store it row-major",
            )
        self.writer.flush()
        if copy.extent.inflate:
            # The inflated bytes wait behind the end of the output: they need neither memory nor another directory.
            scratch = align_up(self.size, PAGE)
            position = scratch
            for data in _inflated(reader, copy):
                pwrite(self.fd, data, position)
                position += len(data)
            read: Callable[[int, int], bytes] = lambda offset, length: read_back(self.fd, length, scratch + offset)  # noqa: E731 - two short readers of one kind
        else:
            read = lambda offset, length: reader.read(copy.extent.offset + offset, length)  # noqa: E731 - two short readers of one kind

        def write(offset: int, data: memoryview) -> None:
            pwrite(self.fd, data, copy.offset + offset)
            self._advance(len(data))

        transpose(read, write, copy.shape, item, copy.swap_unit)
        if copy.extent.inflate:
            os.ftruncate(self.fd, self.size)
        Ranges(self.fd, self.copies, self.crcs, run, self.pages).written(copy.offset, copy.offset + copy.size)

    def _put(self, run: list[int], offset: int, data: bytes) -> None:
        """Write bytes of a run that are in memory, and add them to its checksums."""
        self.writer.put(offset, data)
        self._advance(len(data))
        if len(run) == 1 and self.pages is None:
            self.crcs[run[0]] = crc32c(data, self.crcs[run[0]])
        else:
            Ranges(self.fd, self.copies, self.crcs, run, self.pages).data(offset, data)

    def _advance(self, count: int) -> None:
        if self.progress is not None:
            self.progress.advance(count)


class _Progress:
    def __init__(self, total: int, report: Progress) -> None:
        from time import monotonic

        self.now = monotonic
        self.total = total
        self.done = 0
        self.report = report
        self.next = monotonic() + _PROGRESS_INTERVAL

    def advance(self, count: int) -> None:
        self.done += count
        now = self.now()
        if now >= self.next or self.done == self.total:
            self.next = now + _PROGRESS_INTERVAL
            self.report(self.done, self.total)


def _inflated(reader: Reader, copy: Copy) -> Iterator[bytes]:
    """Yield the bytes of a compressed copy, exactly `copy.size`; the rest of the stream is checked too."""
    declared = copy.extent.inflate
    skip = declared.skip if declared is not None else 0
    if declared is None or skip + copy.size != declared.size:
        raise _disagreement(copy, (declared.size if declared is not None else 0) - skip)
    for data in inflate(reader.read, copy.extent):
        if skip < len(data):
            yield data[skip:]
        skip = max(skip - len(data), 0)


def _disagreement(copy: Copy, stored: int) -> InputError:
    return InputError(
        "the stored bytes do not fill the tensor",
        where=copy.extent.where,
        expected=f"{copy.size} bytes",
        actual=stored,
        hint="make the file again",
    )
