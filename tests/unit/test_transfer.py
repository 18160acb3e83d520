"""Copying by the kernel and by hand, holes, the order of a plan, the build id, progress, and what goes wrong."""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import resource
import subprocess
import sys
import threading
import zlib
from typing import TYPE_CHECKING

import numpy as np
import pytest
from google_crc32c import extend as crc32c

from emitter import following, reading, transfer, transforms, writing
from emitter.dtypes import DType
from emitter.errors import InputError, OutputError
from emitter.layout import BUILD_ID_SIZE, Copy, FilePlan, Piece
from emitter.pack.plan import plan_pack
from emitter.package import BufferSource, Extent, FileSource, Inflate, Package, Source, Tensor
from emitter.transfer import write_plan
from emitter.writing import Reserve, pwrite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MIB = 1 << 20
GIB = 1 << 30
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a file system of another kind, always a tmpfs
REFUSALS = [None, "ENOSYS", "EXDEV", "EINVAL", "EPERM", "EOPNOTSUPP", "EBADF", "EOVERFLOW", "EIO"]


@pytest.fixture(scope="module")
def content() -> bytes:
    return np.random.default_rng(1).bytes(5 * MIB + 777)


@pytest.fixture
def source(tmp_path: Path, content: bytes) -> FileSource:
    (tmp_path / "source").write_bytes(content)
    return FileSource.of(tmp_path / "source")


def copy_of(source: Source, offset: int, size: int, at: int) -> Copy:
    return Copy(at, size, Extent(source, offset, size), 1, (size,), 8)


def plan_of(size: int, copies: list[Copy]) -> FilePlan:
    """Return a plan of copies alone."""
    return FilePlan(size, [], copies)


def carry_out(path: Path, plan: FilePlan, progress: Callable[[int, int], None] | None = None) -> list[int]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        os.ftruncate(fd, plan.size)
        return write_plan(fd, plan, None, progress=progress)
    finally:
        os.close(fd)


# Source offset and destination offset, within a page: the kernel copies where they agree.
@pytest.mark.parametrize(("offset", "at"), [(0, 0), (0, 64 << 10), (8, 4096 + 8), (13576, 2 * MIB), (1, 0)])
def test_large_payloads_arrive_by_either_way(
    tmp_path: Path, content: bytes, source: FileSource, offset: int, at: int
) -> None:
    size = len(content) - offset
    crcs = carry_out(tmp_path / "out", plan_of(at + size, [copy_of(source, offset, size, at)]))
    assert (tmp_path / "out").read_bytes() == bytes(at) + content[offset:]
    assert crcs == [crc32c(0, content[offset:])]


def test_the_kernel_copies_where_offsets_agree_and_the_rest_is_read(
    tmp_path: Path, content: bytes, source: FileSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not hasattr(os, "copy_file_range"):
        pytest.skip("copy_file_range is not in this system's os module")
    real, asked = os.copy_file_range, []

    def spy(src: int, dst: int, count: int, offset_src: int, offset_dst: int) -> int:
        asked.append((offset_src, offset_dst, count))
        return real(src, dst, count, offset_src, offset_dst)

    monkeypatch.setattr(os, "copy_file_range", spy)
    small = MIB - 1
    copies = [
        copy_of(source, 4096, 3 * MIB, 8192),
        copy_of(source, 4096 + 3 * MIB, MIB, 8192 + 3 * MIB),  # goes on where the last one ended: one copy
        copy_of(source, 8, MIB, 5 * MIB),  # another offset within the page
        copy_of(source, 0, small, 7 * MIB),  # too small
    ]
    crcs = carry_out(tmp_path / "out", plan_of(8 * MIB, copies))
    assert asked == [(4096, 8192, 4 * MIB)]
    data = (tmp_path / "out").read_bytes()
    for copy, crc in zip(copies, crcs, strict=True):
        stored = content[copy.extent.offset : copy.extent.offset + copy.size]
        assert data[copy.offset : copy.offset + copy.size] == stored
        assert crc == crc32c(0, stored)


@pytest.mark.parametrize("number", REFUSALS)
@pytest.mark.parametrize("good_calls", [0, 2])
def test_what_the_kernel_will_not_copy_is_read_and_written(
    tmp_path: Path,
    content: bytes,
    source: FileSource,
    monkeypatch: pytest.MonkeyPatch,
    number: str | None,
    good_calls: int,
) -> None:
    # None: it returns 0, as old kernels do for files in /proc.
    calls = 0

    def limited(src: int, dst: int, count: int, offset_src: int, offset_dst: int) -> int:
        nonlocal calls
        calls += 1
        if calls <= good_calls:
            return os.pwrite(dst, os.pread(src, min(count, 2000), offset_src), offset_dst)
        if number is None:
            return 0
        raise OSError(getattr(errno, number), number)

    monkeypatch.setattr(os, "copy_file_range", limited, raising=False)
    # A small one before, whose write may wait; and one after, for which the kernel is not asked again.
    parts = [(MIB - 9000, 20), (MIB - 8192, 2 * MIB), (3 * MIB, 2 * MIB)]
    copies = [copy_of(source, offset, size, offset) for offset, size in parts]
    crcs = carry_out(tmp_path / "out", plan_of(5 * MIB, copies))
    assert calls == good_calls + 1
    data = (tmp_path / "out").read_bytes()
    expected = bytearray(5 * MIB)
    for offset, size in parts:
        expected[offset : offset + size] = content[offset : offset + size]
    assert data == expected
    assert crcs == [crc32c(0, content[offset : offset + size]) for offset, size in parts]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_an_error_whichever_call_meets_it(
    tmp_path: Path, source: FileSource, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def full(*arguments: object) -> int:
        raise OSError(number, "full")

    plan = FilePlan(source.size, [], [copy_of(source, 0, source.size, 0)])
    for name in ("copy_file_range", "posix_fallocate"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, full, raising=False)
            with pytest.raises(OutputError) as caught:
                carry_out(tmp_path / "out", plan)
        assert caught.value.hint


def test_the_limit_on_file_size_is_an_error(tmp_path: Path, source: FileSource) -> None:
    program = """
import resource, sys
from tests.unit.test_transfer import *
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
source = FileSource.of(sys.argv[1])
fd = os.open(sys.argv[1] + ".out", os.O_RDWR | os.O_CREAT)
try:
    write_plan(fd, FilePlan(source.size, [], [copy_of(source, int(sys.argv[2]), 4 << 20, 0)]), None)
except OutputError as error:
    print(error)
"""
    for offset in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", program, source.path, offset], capture_output=True, text=True, check=True
        )
        assert "ulimit -f" in done.stdout


def test_tmpfs_to_disk(tmp_path: Path, content: bytes) -> None:
    # Different file systems: the kernel may refuse (EXDEV).
    if not os.access(SHARED_MEMORY, os.W_OK):
        pytest.skip(f"{SHARED_MEMORY} is not there")
    path = f"{SHARED_MEMORY}/emitter-test-{os.getpid()}"
    try:
        with open(path, "wb") as file:
            file.write(content)
        source = FileSource.of(path)
        crcs = carry_out(tmp_path / "out", plan_of(len(content), [copy_of(source, 0, len(content), 0)]))
    finally:
        os.unlink(path)
    assert (tmp_path / "out").read_bytes() == content
    assert crcs == [crc32c(0, content)]


def test_holes_stay_holes_and_their_checksum_is_not_read(tmp_path: Path) -> None:
    size = 3 * GIB
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(size)
        file.seek(MIB)
        file.write(b"x" * 4096)
        file.seek(size - GIB)
        file.write(b"y" * 4096)
    if path.stat().st_blocks * 512 > size // 2:
        pytest.skip("the file system of the temporary directory has no holes")
    source = FileSource.of(path)
    plan = plan_of(size, [copy_of(source, 0, size // 2, 0), copy_of(source, size // 2, size // 2, size // 2)])
    crcs = carry_out(tmp_path / "out", plan)
    status = (tmp_path / "out").stat()
    assert status.st_size == plan.size
    assert status.st_blocks * 512 < MIB
    with (tmp_path / "out").open("rb") as file:
        file.seek(MIB)
        assert file.read(4097) == b"x" * 4096 + b"\0"
        file.seek(size - GIB - 1)
        assert file.read(4098) == b"\0" + b"y" * 4096 + b"\0"
    zeros = bytes(MIB)
    first = crc32c(crc32c(0, zeros), b"x" * 4096 + zeros[4096:])
    for _ in range(1534):
        first = crc32c(first, zeros)
    assert crcs[0] == first


def test_padding_between_payloads_stays_a_hole_where_it_is_large(tmp_path: Path, source: FileSource) -> None:
    copies = [copy_of(source, number * MIB, MIB, number * (64 * MIB)) for number in range(4)]
    carry_out(tmp_path / "out", FilePlan(200 * MIB, [], copies))
    assert (tmp_path / "out").stat().st_blocks * 512 < 8 * MIB


def test_copies_out_of_order_keep_their_checksums_in_the_order_of_the_plan(
    tmp_path: Path, content: bytes, source: FileSource
) -> None:
    copies = [copy_of(source, 100, 50, 900), copy_of(source, 0, 0, 0), copy_of(source, 7, 90, 3)]
    crcs = carry_out(tmp_path / "out", plan_of(1000, copies))
    assert crcs == [crc32c(0, content[100:150]), 0, crc32c(0, content[7:97])]


@pytest.mark.parametrize("size", [0, 1, MIB - 1, MIB])
def test_a_thread_is_started_for_large_copies_alone(
    tmp_path: Path, source: FileSource, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def counting(thread: threading.Thread) -> None:
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", counting)
    carry_out(tmp_path / "out", plan_of(size, [copy_of(source, 0, size, 0)]))
    assert len(started) == (size >= MIB and hasattr(os, "copy_file_range"))
    assert not any(thread.is_alive() for thread in started)


def test_an_error_on_the_second_thread_surfaces(
    tmp_path: Path, source: FileSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(fd: int, length: int, offset: int) -> bytes:
        raise OutputError("cannot be read back")

    if not hasattr(os, "copy_file_range"):
        pytest.skip("copy_file_range is not in this system's os module")
    monkeypatch.setattr(following, "read_back", broken)
    with pytest.raises(OutputError, match="cannot be read back"):
        carry_out(tmp_path / "out", plan_of(source.size, [copy_of(source, 0, source.size, 0)]))


def test_where_no_thread_can_be_started_the_first_one_does_it_all(
    tmp_path: Path, content: bytes, source: FileSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    crcs = carry_out(tmp_path / "out", plan_of(4 * MIB, [copy_of(source, 0, 4 * MIB, 0)]))
    assert crcs == [crc32c(0, content[: 4 * MIB])]


@pytest.mark.parametrize("offset", [0, 1])
def test_an_interruption_ends_the_second_thread(tmp_path: Path, source: FileSource, offset: int) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        carry_out(tmp_path / "out", plan_of(4 * MIB, [copy_of(source, offset, 4 * MIB, 0)]), interrupt)
    assert threading.active_count() == before


class TestSourcesThatChange:
    @pytest.mark.parametrize(("offset", "size"), [(0, 5 * MIB), (1, 5 * MIB), (5 * MIB, 64)])
    def test_truncated(
        self, tmp_path: Path, source: FileSource, monkeypatch: pytest.MonkeyPatch, offset: int, size: int
    ) -> None:
        # Truncated after the first look at it, which an open descriptor does not prevent.
        monkeypatch.setattr(FileSource, "check", lambda self, _fd: os.truncate(self.path, 5 * MIB - 1))
        with pytest.raises(InputError, match="changed while it was read") as caught:
            carry_out(tmp_path / "out", plan_of(size, [copy_of(source, offset, size, 0)]))
        assert source.path in str(caught.value)

    def test_rewritten_in_place(self, tmp_path: Path, source: FileSource) -> None:
        def rewrite(done: int, total: int) -> None:
            with open(source.path, "r+b") as file:
                file.write(b"other")
            os.utime(source.path, ns=(1, 1))

        with pytest.raises(InputError, match="changed while it was read"):
            carry_out(tmp_path / "out", plan_of(64, [copy_of(source, 0, 64, 0)]), rewrite)


class TestTransforms:
    @pytest.mark.parametrize("shape", [(3000, 700), (7, 1_000_000), (1_000_000, 7), (5, 1, 40_000, 9), (2,) * 21])
    @pytest.mark.parametrize("inflated", [False, True])
    def test_large_column_major_arrays(
        self, tmp_path: Path, shape: tuple[int, ...], inflated: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(transforms, "TILE", 64 << 10)
        array = np.random.default_rng(2).integers(0, 1 << 31, shape, np.uint32)
        stored = array.tobytes("F")
        inflate = None
        if inflated:
            compressor = zlib.compressobj(1, wbits=-15)
            inflate = Inflate(len(stored), zlib.crc32(stored), 0)
            stored = compressor.compress(stored) + compressor.flush()
        (tmp_path / "source").write_bytes(b"head" + stored)
        extent = Extent(FileSource.of(tmp_path / "source"), 4, len(stored), "big", inflate, fortran_order=True)
        plan = plan_of(64 + array.nbytes, [Copy(64, array.nbytes, extent, 4, shape, 32)])
        crcs = carry_out(tmp_path / "out", plan)
        data = (tmp_path / "out").read_bytes()
        assert len(data) == plan.size  # what was inflated behind the end is gone
        swapped = array.byteswap().tobytes()
        assert data[64 : 64 + array.nbytes] == swapped
        assert crcs == [crc32c(0, swapped)]

    def test_a_tile_is_long_in_the_first_and_the_last_axis(self) -> None:
        read, written = [], []
        shape, item = (4096, 4096), 4

        def read_zeros(_offset: int, length: int) -> bytes:
            read.append(length)
            return bytes(length)

        transforms.transpose(read_zeros, lambda _offset, data: written.append(len(data)), shape, item, 1)
        assert min(read) >= 2048
        assert min(written) >= 2048

    def test_packed_elements_cannot_be_transposed(self, tmp_path: Path) -> None:
        extent = Extent(BufferSource("memory", memoryview(bytes(8))), 0, 8, fortran_order=True)
        with pytest.raises(InputError, match="packed") as caught:
            carry_out(tmp_path / "out", FilePlan(8, [], [Copy(0, 8, extent, 1, (4, 4), 4)]))
        assert "memory" in str(caught.value)

    @pytest.mark.parametrize("case", ["longer", "shorter", "crc", "broken", "cut", "trailing", "tensor"])
    def test_a_lying_member_is_refused(self, tmp_path: Path, case: str) -> None:
        data = np.random.default_rng(3).bytes(1000) + bytes(600_000)
        compressor = zlib.compressobj(wbits=-15)
        stored = compressor.compress(data) + compressor.flush()
        size = {"longer": len(data) - 1, "shorter": len(data) + 1}.get(case, len(data))
        declared = Inflate(size, zlib.crc32(data) ^ (case == "crc"), 0)
        if case == "broken":
            stored = b"\xff" * len(stored)
        if case == "cut":
            stored = stored[:-1]
        if case == "trailing":
            stored += b"xx"
        extent = Extent(BufferSource("archive", memoryview(stored)), 0, len(stored), inflate=declared)
        size = size + 1 if case == "tensor" else size
        plan = FilePlan(size, [], [Copy(0, size, extent, 1, (size,), 8)])
        with pytest.raises(InputError) as caught:
            carry_out(tmp_path / "out", plan)
        assert "archive" in str(caught.value)
        assert caught.value.hint

    def test_a_bomb_is_not_inflated(self) -> None:
        compressor = zlib.compressobj(9, wbits=-15)
        stored = b"".join([*(compressor.compress(bytes(MIB)) for _ in range(64)), compressor.flush()])
        extent = Extent(BufferSource("bomb", memoryview(stored)), 0, len(stored), inflate=Inflate(1000, 0, 0))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        pieces: Iterator[bytes] = transforms.inflate(lambda offset, length: stored[offset : offset + length], extent)
        produced = 0
        with pytest.raises(InputError, match="declared size"):
            for piece in pieces:
                produced += len(piece)
        assert produced <= 1001
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 << 10

    def test_an_extent_of_another_size_than_its_tensor_is_refused(self, tmp_path: Path, source: FileSource) -> None:
        wrong = Copy(50, 100, Extent(source, 50, 99), 1, (100,), 8)
        for copies in ([wrong], [copy_of(source, 0, 50, 0), wrong]):
            with pytest.raises(InputError, match="fill"):
                carry_out(tmp_path / "out", FilePlan(150, [], copies))


@pytest.mark.parametrize("failing", [1, 3, 40])
def test_a_write_that_fails_on_the_second_thread_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    size = 16 * MIB
    (tmp_path / "in").write_bytes(bytes(range(256)) * (size // 256 + 1))
    threads = []
    count = itertools.count(1)

    def full(fd: int, data: bytes, offset: int) -> None:
        threads.append(threading.current_thread().name)
        if next(count) == failing:
            raise OutputError("no space left on the device")
        pwrite(fd, data, offset)

    monkeypatch.setattr(transfer, "pwrite", full)
    with pytest.raises(OutputError, match="no space left"):
        carry_out(tmp_path / "out", plan_of(size, [copy_of(FileSource.of(tmp_path / "in"), 8, size, 0)]))
    assert "emitter-follower" in threads
    assert not [thread for thread in threading.enumerate() if thread.name == "emitter-follower"]


def test_the_build_id_covers_pieces_index_and_payloads(tmp_path: Path) -> None:
    package = Package()
    package.add_raw("a", b"payload one")
    package.add_raw("b", b"two")
    pack = plan_pack(package, "little")
    header = Piece(0, b"HEAD" + b"?" * BUILD_ID_SIZE + b"more")
    tail = Piece(64 + pack.total_size, b"TAIL")
    copies = [copy._replace(offset=copy.offset + 64) for copy in pack.payloads]
    plan = FilePlan(tail.offset + 4, [header, tail], copies, 64, 4)
    with (tmp_path / "out").open("w+b") as file:
        file.truncate(plan.size)
        crcs = write_plan(file.fileno(), plan, pack)
    data = (tmp_path / "out").read_bytes()
    index = data[64 : 64 + pack.index_size]
    assert index == pack.render_index([crc32c(0, b"payload one"), crc32c(0, b"two")])
    assert crcs == [crc32c(0, b"payload one"), crc32c(0, b"two")]
    blank = b"HEAD" + bytes(BUILD_ID_SIZE) + b"more"
    assert data[4 : 4 + BUILD_ID_SIZE] == hashlib.sha256(blank + b"TAIL" + index).digest()[:BUILD_ID_SIZE]
    assert data[:4] + data[4 + BUILD_ID_SIZE : 32] == b"HEAD" + b"more" + bytes(4)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_a_buffer_of_any_format_is_taken_as_bytes(tmp_path: Path, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int), dtype=np.float64).reshape(shape)
    package = Package()
    package.add(Tensor("t", DType(2, 64), shape, Extent(BufferSource("array", array.data), 0, array.nbytes)))
    pack = plan_pack(package, "little")
    carry_out(tmp_path / "out", FilePlan(pack.total_size, [], pack.payloads))
    assert (tmp_path / "out").read_bytes()[pack.payloads[0].offset :] == array.tobytes()


def test_progress_is_rare_and_ends_with_everything(
    tmp_path: Path, source: FileSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[tuple[int, int]] = []
    copies = [copy_of(source, 0, 4 * MIB, 0), copy_of(source, 3, MIB, 4 * MIB)]
    clock = iter(range(10_000))
    monkeypatch.setattr("time.monotonic", lambda: next(clock) / 40)  # a fortieth of a second per step
    carry_out(tmp_path / "out", FilePlan(5 * MIB, [], copies), lambda done, total: reports.append((done, total)))
    assert reports[-1] == (5 * MIB, 5 * MIB)
    assert [total for _, total in reports] == [5 * MIB] * len(reports)
    assert [done for done, _ in reports] == sorted({done for done, _ in reports})
    assert 2 <= len(reports) <= 3


class TestReserving:
    def test_space_is_taken_at_once(self, tmp_path: Path) -> None:
        fd = os.open(tmp_path / "out", os.O_RDWR | os.O_CREAT)
        try:
            os.ftruncate(fd, 8 * MIB)
            reserve = Reserve(fd)
            reserve(0, MIB - 1)
            assert os.fstat(fd).st_blocks == 0  # too small to pay
            reserve(4 * MIB, 8 * MIB)
            if reserve.works is False:
                pytest.skip("the file system of the temporary directory cannot reserve space")
            assert os.fstat(fd).st_blocks * 512 == 4 * MIB
            os.pwrite(fd, b"x", 0)  # the descriptor does not append
            assert os.pread(fd, 1, 0) == b"x"
        finally:
            os.close(fd)

    def test_data_of_a_sparse_source_alone(
        self, tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with (tmp_path / "sparse").open("wb") as file:
            file.truncate(64 * MIB)
            file.seek(32 * MIB)
            file.write(content[: 4 * MIB])
        source = FileSource.of(tmp_path / "sparse")
        reserved = []
        monkeypatch.setattr(os, "posix_fallocate", lambda _fd, *part: reserved.append(part), raising=False)
        carry_out(tmp_path / "out", FilePlan(64 * MIB, [], [copy_of(source, 0, 64 * MIB, 0)]))
        assert reserved == [(32 * MIB, 4 * MIB)]

    def test_a_file_system_that_cannot_is_not_written_to_instead(self, tmp_path: Path) -> None:
        # ramfs has no fallocate; glibc would write one byte into each block.
        if os.geteuid() != 0 or subprocess.run(["mount", "-t", "ramfs", "ramfs", tmp_path], check=False).returncode:
            pytest.skip("mounting a ramfs is not allowed here")
        try:
            fd = os.open(tmp_path / "out", os.O_RDWR | os.O_CREAT)
            try:
                reserve = Reserve(fd)
                reserve(0, 16 * MIB)
                assert reserve.works is False
                assert os.fstat(fd).st_size == 0
            finally:
                os.close(fd)
        finally:
            subprocess.run(["umount", tmp_path], check=True)

    def test_a_disk_without_room_says_so_before_the_copy(self, tmp_path: Path, content: bytes) -> None:
        if os.geteuid() != 0:
            pytest.skip("mounting a small tmpfs needs root")
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", tmp_path], check=False).returncode:
            pytest.skip("mounting a tmpfs is not allowed here")
        try:
            source = BufferSource("memory", memoryview(content))
            with pytest.raises(OutputError, match="no space left"):
                carry_out(tmp_path / "out", FilePlan(len(content), [], [copy_of(source, 0, len(content), 0)]))
        finally:
            subprocess.run(["umount", tmp_path], check=True)


def test_memory_stays_flat(tmp_path: Path) -> None:
    # 256 MiB by both ways, in a process of its own. (Its ru_maxrss would be that of this process, which forks it.)
    if not os.path.exists("/proc/self/status"):
        pytest.skip("/proc is not there")
    with (tmp_path / "source").open("wb") as file:
        for _ in range(256):
            file.write(bytes(range(256)) * 4096)
    program = """
import sys
from emitter.package import *
from emitter.layout import *
from emitter.transfer import write_plan
import os
source = FileSource.of(sys.argv[1])
size = (source.size >> 1) - 4096
fd = os.open(sys.argv[1] + ".out", os.O_RDWR | os.O_CREAT)
copies = [Copy(at, size, Extent(source, offset, size), 1, (size,), 8) for at, offset in ((4096, 0), (size + 8192, 7))]
plan = FilePlan(2 * size + 16384, [Piece(0, bytes(BUILD_ID_SIZE))], copies, None, 0)
os.ftruncate(fd, plan.size)
assert all(write_plan(fd, plan, None))
print(*[line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")])
"""
    done = subprocess.run(
        [sys.executable, "-I", "-c", program, tmp_path / "source"], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 40 << 10  # KiB


def test_the_constants_agree() -> None:
    # Padding is written with its neighbours only where no large write lies between them.
    assert writing.GAP <= reading.WINDOW // 4
