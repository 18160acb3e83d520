"""A second process that hashes pages.

Hashing is most of the work of a signed library, and the interpreter lets one thread do it at a time. Where no process
can be started, or it fails, the first one hashes everything.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager, nullcontext, suppress

from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

__all__ = ["PageHelper"]

_FD: Final = 3  # of the output, in the other process
_AHEAD = 4  # ranges that wait for it: it never waits for the first process, and that never waits long at the end

# Reads lines of four numbers (bytes of a page, where pages begin, how many bytes, where their hashes go), and answers
# each with a byte. An empty line is the last: a process that the first one has forked may hold the pipe open for long.
_PROGRAM = f"""
import os, sys
from hashlib import sha256
for line in sys.stdin.buffer:
    if line == b"\\n":
        break
    page, start, size, table = map(int, line.split())
    data = memoryview(os.pread({_FD}, size, start))
    if len(data) != size:
        sys.exit(1)
    hashes = b"".join([sha256(data[at : at + page]).digest() for at in range(0, size, page)])
    if os.pwrite({_FD}, hashes, table) != len(hashes) or os.write(1, b".") != 1:
        sys.exit(1)
os._exit(0)  # at once: the first process waits
"""


class PageHelper:
    """The other process; `give` hands it whole pages of the file `fd`, and `finish` says whether it did them all."""

    def __init__(self, fd: int) -> None:
        """Start it; raise OSError where that cannot be done."""
        # A program that has an interpreter within it names itself there; it must not be started a second time.
        program = os.path.basename(sys.executable or "")
        needed = hasattr(os, "posix_spawn") and hasattr(signal, "sigtimedwait")  # macOS has no sigtimedwait
        if not needed or not program.startswith(("python", "pypy")):
            raise OSError
        self._waiting = 0
        self._kills = signal.getsignal(signal.SIGPIPE) is not signal.SIG_IGN  # Python ignores it, unless it is told
        lines, self._lines = os.pipe()
        self._answers, answers = os.pipe()
        try:
            os.set_blocking(self._answers, False)
            actions = [
                (os.POSIX_SPAWN_DUP2, lines, 0),
                (os.POSIX_SPAWN_DUP2, answers, 1),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, fd, _FD),
            ]
            arguments = [sys.executable, "-I", "-S", "-c", _PROGRAM]
            self._pid = os.posix_spawn(sys.executable, arguments, os.environ, file_actions=actions)
        except BaseException:
            os.close(self._lines)
            os.close(self._answers)
            raise
        finally:
            os.close(lines)
            os.close(answers)

    def give(self, page: int, start: int, size: int, table: int) -> bool:
        """Let it hash the `size` bytes of whole pages at `start`, and write the hashes at `table`.

        False if it has enough to do, or has gone.
        """
        with suppress(BlockingIOError):
            self._waiting -= len(os.read(self._answers, _AHEAD))
        if self._waiting >= _AHEAD:
            return False
        if not self._write(b"%d %d %d %d\n" % (page, start, size, table)):
            return False
        self._waiting += 1
        return True

    def _write(self, line: bytes) -> bool:
        try:
            with _without_sigpipe() if self._kills else nullcontext():
                os.write(self._lines, line)
        except OSError:
            return False
        return True

    def finish(self) -> bool:
        """Wait until it has done all that it was given; return whether it has."""
        self._write(b"\n")
        os.close(self._lines)
        try:
            return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1]) == 0
        except OSError:  # somebody else has waited for it
            return False
        finally:
            os.close(self._answers)


@contextmanager
def _without_sigpipe() -> Iterator[None]:
    """Let a write to a process that has gone fail, where SIGPIPE would end this one."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGPIPE,))
    try:
        yield
    except BrokenPipeError:
        if signal.SIGPIPE not in blocked:
            signal.sigtimedwait((signal.SIGPIPE,), 0)  # the one that waits for this thread
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
