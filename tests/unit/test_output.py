"""Output files: whole under their name, or not there; what is followed, kept, refused; killed processes."""

from __future__ import annotations

import errno
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from emitter import output
from emitter.errors import EmitterError, OutputError, UsageError
from emitter.output import DATA_MODE, IMAGE_MODE, open_output, write_if_changed, write_small
from emitter.package import FileSource

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=["unnamed", "named"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to hide an unfinished file: without a name (Linux), and under a temporary name (everywhere)."""
    if request.param == "named":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    elif not hasattr(os, "O_TMPFILE"):
        pytest.skip("O_TMPFILE is not in this system's os module")
    return str(request.param)


@pytest.fixture
def umask() -> Iterator[None]:
    """Set a umask that takes nothing that a mode below does not mention."""
    old = os.umask(0o027)
    yield
    os.umask(old)


def write(path: Path, data: bytes = b"new", mode: int = DATA_MODE) -> None:
    with open_output(path, len(data), mode) as out:
        out.write(data)
        out.commit()


@pytest.mark.usefixtures("way", "umask")
class TestCommit:
    @pytest.mark.parametrize(("mode", "expected"), [(DATA_MODE, 0o640), (IMAGE_MODE, 0o750)])
    @pytest.mark.parametrize("old_mode", [None, 0o600, 0o777])
    def test_a_new_file_with_the_mode_of_a_linker(
        self, tmp_path: Path, mode: int, expected: int, old_mode: int | None
    ) -> None:
        path = tmp_path / "out"
        if old_mode is not None:
            path.write_bytes(b"the old content")
            path.chmod(old_mode)
        write(path, b"new", mode)
        assert path.read_bytes() == b"new"
        assert stat.S_IMODE(path.stat().st_mode) == expected
        assert os.listdir(tmp_path) == ["out"]

    def test_what_is_not_written_is_zero(self, tmp_path: Path) -> None:
        with open_output(tmp_path / "out", 100_000) as out:
            out.write(b"x", 99_999)
            assert os.pread(out.fd, 10, 99_995) == b"\0\0\0\0x"
            out.commit()
        assert (tmp_path / "out").read_bytes() == bytes(99_999) + b"x"

    def test_the_old_file_stays_until_the_commit(self, tmp_path: Path) -> None:
        path = tmp_path / "out"
        path.write_bytes(b"old")
        with open_output(path, 3) as out:
            out.write(b"new")
            assert path.read_bytes() == b"old"
            out.commit()
            assert path.read_bytes() == b"new"

    @pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, OutputError, ValueError, None])
    def test_anything_else_leaves_the_old_file_and_no_debris(
        self, tmp_path: Path, error: type[BaseException] | None
    ) -> None:
        path = tmp_path / "out"
        path.write_bytes(b"old")

        def work() -> None:
            with open_output(path, 3) as out:
                out.write(b"new")
                if error is not None:
                    raise error("stop")

        if error is None:
            work()
        else:
            with pytest.raises(error):
                work()
        assert path.read_bytes() == b"old"
        assert os.listdir(tmp_path) == ["out"]
        assert not output._temporary  # what a signal would have removed

    def test_a_failing_rename_leaves_the_old_file_and_no_debris(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "out"
        path.write_bytes(b"old")

        def fail(*arguments: object) -> None:
            raise OSError(errno.EACCES, "denied")

        monkeypatch.setattr(os, "replace", fail)
        with pytest.raises(OutputError, match="permission"):
            write(path)
        assert path.read_bytes() == b"old"
        assert os.listdir(tmp_path) == ["out"]

    def test_a_symbolic_link_is_followed(self, tmp_path: Path) -> None:
        (tmp_path / "far").mkdir()
        (tmp_path / "far" / "real").write_bytes(b"old")
        (tmp_path / "link").symlink_to("far/real")
        (tmp_path / "dangling").symlink_to("far/not-there-yet")
        write(tmp_path / "link")
        write(tmp_path / "dangling")
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "far" / "real").read_bytes() == b"new"
        assert (tmp_path / "far" / "not-there-yet").read_bytes() == b"new"
        assert sorted(os.listdir(tmp_path / "far")) == ["not-there-yet", "real"]

    def test_a_hard_link_keeps_the_old_bytes(self, tmp_path: Path) -> None:
        (tmp_path / "out").write_bytes(b"old")
        (tmp_path / "other").hardlink_to(tmp_path / "out")
        write(tmp_path / "out")
        assert (tmp_path / "other").read_bytes() == b"old"

    def test_a_relative_path_means_the_directory_of_the_start(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "sub").mkdir()
        monkeypatch.chdir(tmp_path)
        with open_output("out", 0) as out:
            os.chdir("sub")
            out.commit()
        assert os.listdir(tmp_path / "sub") == []
        assert (tmp_path / "out").exists()

    def test_long_and_odd_names(self, tmp_path: Path) -> None:
        for name in ("n" * 255, "ü\udcff\n.so", "-o"):
            write(tmp_path / name)
        assert len(os.listdir(tmp_path)) == 3

    def test_an_output_error_learns_its_file(self, tmp_path: Path) -> None:
        with pytest.raises(OutputError) as caught, open_output(tmp_path / "out", 1):
            raise OutputError("no space left on the device")
        assert str(caught.value).startswith(str(tmp_path / "out"))


def test_a_missing_proc_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "exists", lambda _path: False)
    write(tmp_path / "out")
    assert os.listdir(tmp_path) == ["out"]


def test_a_mode_that_the_umask_should_have_narrowed_is_not_trusted(tmp_path: Path) -> None:
    # Some kernels ignore the umask for files without a name; a umask of 0 looks the same.
    old = os.umask(0)
    try:
        with open_output(tmp_path / "out", 1) as out:
            assert len(os.listdir(tmp_path)) == 1
            out.commit()
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o666


def test_a_file_system_without_unnamed_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def open_without(path: str, flags: int, *rest: int) -> int:
        if flags & getattr(os, "O_TMPFILE", 0) == getattr(os, "O_TMPFILE", -1):
            raise OSError(errno.EOPNOTSUPP, "no")
        return real(path, flags, *rest)

    monkeypatch.setattr(os, "open", open_without)
    with open_output(tmp_path / "out", 1) as out:
        (name,) = os.listdir(tmp_path)
        assert name.startswith(".emitter-")
        out.commit()
    assert os.listdir(tmp_path) == ["out"]


class TestRefusals:
    def test_a_directory(self, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(tmp_path)
        for name in (tmp_path, tmp_path / "link", f"{tmp_path}/new/"):
            with pytest.raises(UsageError, match="directory"):
                open_output(name, 1)

    def test_devices_pipes_and_sockets(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "fifo")
        (tmp_path / "null").symlink_to("/dev/null")
        server = socket.socket(socket.AF_UNIX)
        with server:
            server.bind(str(tmp_path / "socket"))
            for name, what in (("fifo", "a pipe"), ("socket", "a socket"), ("null", "a character device")):
                with pytest.raises(UsageError, match=what):
                    open_output(tmp_path / name, 1)
        with pytest.raises(UsageError, match="a character device"):
            open_output("/dev/null", 1)
        assert stat.S_ISCHR(os.stat("/dev/null").st_mode)

    def test_standard_output_that_is_a_pipe(self) -> None:
        program = "from emitter.output import open_output; open_output('/dev/stdout', 1)"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert "is a pipe, which is never replaced" in done.stderr

    def test_an_input_under_any_name(self, tmp_path: Path) -> None:
        path = tmp_path / "in"
        path.write_bytes(b"weights")
        (tmp_path / "symbolic").symlink_to("in")
        (tmp_path / "hard").hardlink_to(path)
        inputs = [FileSource.of(path)]
        for name in ("in", "symbolic", "hard", "./in"):
            for call in (lambda name=name: open_output(tmp_path / name, 1, DATA_MODE, inputs),
                         lambda name=name: write_small(tmp_path / name, b"x", inputs=inputs),
                         lambda name=name: write_if_changed(tmp_path / name, b"x", inputs=inputs)):  # fmt: skip
                with pytest.raises(UsageError, match="one of the inputs"):
                    call()
        assert path.read_bytes() == b"weights"

    @pytest.mark.parametrize(
        ("name", "message", "hint"),
        [
            ("no/such/out", "the directory does not exist", "create it first"),
            ("file/out", "not a directory", "check the path"),
            ("loop", "in a circle", "remove the link"),
            ("n" * 256, "too long", "shorter"),
        ],
    )
    def test_a_path_that_cannot_be(self, tmp_path: Path, name: str, message: str, hint: str) -> None:
        (tmp_path / "file").write_bytes(b"")
        (tmp_path / "loop").symlink_to("loop")
        with pytest.raises(OutputError) as caught:
            write(tmp_path / name)
        assert message in caught.value.what
        assert hint in str(caught.value.hint)
        assert caught.value.where == str(tmp_path / name)
        assert sorted(os.listdir(tmp_path)) == ["file", "loop"]

    @pytest.mark.parametrize("name", ["", "a\0b"])
    def test_a_name_that_cannot_be(self, name: str) -> None:
        with pytest.raises(UsageError, match="no name"):
            open_output(name, 1)

    @pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM, errno.EDQUOT, errno.EIO])
    def test_errors_of_the_system(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
        def fail(*arguments: object) -> int:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "open", fail)
        with pytest.raises(OutputError) as caught:
            write(tmp_path / "out")
        assert caught.value.hint or os.strerror(number) in caught.value.what

    def test_a_directory_without_permission(self) -> None:
        # Not tmp_path: its parents belong to the user alone.
        with tempfile.TemporaryDirectory() as directory:
            os.chmod(directory, 0o555)  # noqa: S103 - others may pass, nobody may write
            user = os.geteuid()
            if user == 0:
                os.seteuid(65534)  # root may write anywhere
            try:
                with pytest.raises(OutputError, match="no permission") as caught:
                    write(Path(directory, "out"))
            finally:
                os.seteuid(user)
                os.chmod(directory, 0o755)  # noqa: S103 - so that it can be removed
            assert caught.value.hint
            assert os.listdir(directory) == []

    def test_a_full_disk(self, tmp_path: Path) -> None:
        if os.geteuid() != 0:
            pytest.skip("mounting a small tmpfs needs root")
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", tmp_path], check=False).returncode:
            pytest.skip("mounting a tmpfs is not allowed here")
        try:
            (tmp_path / "out").write_bytes(b"old")
            with pytest.raises(OutputError, match="no space left") as caught:
                write(tmp_path / "out", bytes(1 << 20))
            assert caught.value.where == str(tmp_path / "out")
            assert (tmp_path / "out").read_bytes() == b"old"
            assert os.listdir(tmp_path) == ["out"]
        finally:
            subprocess.run(["umount", tmp_path], check=True)


class TestSmallFiles:
    def test_an_unchanged_file_keeps_its_time_stamp(self, tmp_path: Path) -> None:
        path = tmp_path / "model.h"
        assert write_if_changed(path, b"one")
        os.utime(path, ns=(1, 1))
        assert not write_if_changed(path, b"one")
        assert path.stat().st_mtime_ns == 1
        for data in (b"two", b"longer", b"", b"x"):
            assert write_if_changed(path, data)
            assert path.read_bytes() == data
            assert path.stat().st_mtime_ns != 1
        assert os.listdir(tmp_path) == ["model.h"]

    def test_a_device_or_pipe_is_written_to(self, tmp_path: Path) -> None:
        write_small("/dev/null", b"text")
        os.mkfifo(tmp_path / "fifo")
        data = bytes(range(256)) * 1000  # more than a pipe holds
        writer = threading.Thread(target=write_small, args=(tmp_path / "fifo", data))
        writer.start()
        with (tmp_path / "fifo").open("rb") as pipe:
            assert pipe.read() == data
        writer.join()
        assert stat.S_ISFIFO((tmp_path / "fifo").stat().st_mode)

    def test_a_directory_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(EmitterError):
            write_if_changed(tmp_path, b"text")


# A process that writes the same 64 MiB over and over, and says when it begins.
WRITER = """
import os, sys
from emitter.layout import Copy, FilePlan
from emitter.output import cleanup_on_signals, open_output
from emitter.package import Extent, FileSource
from emitter.transfer import write_plan
named, cleanup, path = sys.argv[1] == "named", sys.argv[2] == "cleanup", sys.argv[3]
if named:
    os.__dict__.pop("O_TMPFILE", None)
if cleanup:
    cleanup_on_signals()
source = FileSource.of(path + ".in")
plan = FilePlan(source.size, [], [Copy(0, source.size, Extent(source, 0, source.size), 1, (source.size,), 8)])
print("go", flush=True)
try:
    while True:
        with open_output(path, plan.size) as out:
            write_plan(out.fd, plan, None)
            out.commit() if "commit" in sys.argv else None
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize(
    ("way", "cleanup", "number", "status"),
    [
        ("named", "cleanup", signal.SIGTERM, 143),
        ("named", "cleanup", signal.SIGHUP, 129),
        ("named", "cleanup", signal.SIGINT, 130),
        ("unnamed", "cleanup", signal.SIGTERM, 143),
        ("unnamed", "plain", signal.SIGTERM, -signal.SIGTERM),
        ("unnamed", "plain", signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_a_process_that_is_ended_at_any_moment(
    tmp_path: Path, way: str, cleanup: str, number: int, status: int
) -> None:
    if way == "unnamed" and not hasattr(os, "O_TMPFILE"):
        pytest.skip("O_TMPFILE is not in this system's os module")
    path = tmp_path / "out"
    (tmp_path / "out.in").write_bytes(bytes(64 << 20))
    path.write_bytes(b"old")
    for attempt in range(6):
        process = subprocess.Popen([sys.executable, "-c", WRITER, way, cleanup, str(path)], stdout=subprocess.PIPE)
        with process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"go\n"
            time.sleep(0.0037 * attempt)
            process.send_signal(number)
            process.wait(timeout=60)
        assert process.returncode == status
        assert path.read_bytes() == b"old"
        assert sorted(os.listdir(tmp_path)) == ["out", "out.in"]


def test_a_process_that_is_ended_around_the_commit_leaves_a_whole_file(tmp_path: Path) -> None:
    (tmp_path / "out.in").write_bytes(b"new" * 1000)
    (tmp_path / "out").write_bytes(b"old")
    for attempt in range(6):
        arguments = ["named" if attempt % 2 else "unnamed", "cleanup", str(tmp_path / "out"), "commit"]
        process = subprocess.Popen([sys.executable, "-c", WRITER, *arguments], stdout=subprocess.PIPE)
        with process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"go\n"
            time.sleep(0.02 + 0.0037 * attempt)
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)
        assert process.returncode == 143
        assert (tmp_path / "out").read_bytes() in {b"old", b"new" * 1000}
        assert sorted(os.listdir(tmp_path)) == ["out", "out.in"]


def test_a_second_signal_does_not_interrupt_the_clean_up(tmp_path: Path) -> None:
    program = """
import os, signal, sys
from emitter import output
output.cleanup_on_signals()
def remove():
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        os.kill(os.getpid(), number)
    os.write(1, b"clean")
output.remove_temporary_files = remove
os.kill(os.getpid(), signal.SIGTERM)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (143, "clean", "")


@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_in_a_destructor_ends_the_process_too(name: str, status: int) -> None:
    program = f"""
import os, signal
from emitter.output import cleanup_on_signals
cleanup_on_signals()
class Object:
    def __del__(self):
        os.kill(os.getpid(), signal.{name})
Object()
print("alive")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (status, "")


def test_ignored_signals_stay_ignored() -> None:
    program = """
import os, signal
from emitter.output import cleanup_on_signals
signal.signal(signal.SIGHUP, signal.SIG_IGN)
cleanup_on_signals()
os.kill(os.getpid(), signal.SIGHUP)
print("alive")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "alive\n"


def test_what_goes_wrong_in_a_work_folder_names_the_output(tmp_path: Path) -> None:
    path = os.fspath(tmp_path / "out")
    with pytest.raises(OutputError, match="larger than the file system") as caught, output.work_folder(path) as folder:
        Path(folder, "part").write_bytes(b"")
        raise OSError(errno.EFBIG, "File too large")
    assert caught.value.where == path
    assert os.listdir(tmp_path) == []
    with pytest.raises(OutputError) as caught, output.work_folder(path) as folder:
        Path(folder, "deep", "er").mkdir(parents=True)
        raise OutputError("no space left on the device")
    assert caught.value.where == path
    with pytest.raises(EmitterError) as told, output.work_folder(path) as folder:
        raise EmitterError("no object file", where=os.path.join(folder, "out"))
    assert told.value.where == path
    assert os.listdir(tmp_path) == []
    with pytest.raises(OutputError, match="does not exist"), output.work_folder(os.path.join(path, "no", "such")):
        pytest.fail("there is no such folder")


def test_what_goes_wrong_in_a_new_directory_is_said_of_the_name_that_was_given(tmp_path: Path) -> None:
    path = f"{tmp_path}/out/"
    with pytest.raises(OutputError) as caught, output.new_directory(path) as folder:
        raise OutputError("no space left on the device", where=os.path.join(folder, "w.npy"))
    assert caught.value.where == f"{tmp_path}/out/w.npy"
    assert os.listdir(tmp_path) == []


def test_what_is_left_can_be_removed_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    out = open_output(tmp_path / "out", 1).__enter__()  # left as by an interruption
    assert len(os.listdir(tmp_path)) == 1
    output.remove_temporary_files()
    assert os.listdir(tmp_path) == []
    os.close(out.fd)
