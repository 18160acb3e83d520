"""A second process that hashes pages.

Hashing is most of the work of a signed library, and the interpreter lets one thread do it at a time. Where no process
can be started, or it fails, the first one hashes everything.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from emitter.layout import HASH_PAGE
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Final

__all__ = ["PageHelper"]

_FD: Final = 3  # of the output, in the other process

# Reads lines of three numbers (where pages begin, how many bytes, where their hashes go) until there are no more.
_PROGRAM = f"""
import os, sys
from hashlib import sha256
page, step = {HASH_PAGE}, {HASH_PAGE << 8}
zeros = bytes(page)
zero = sha256(zeros).digest()
for line in sys.stdin.buffer:
    start, size, table = map(int, line.split())
    while size:
        data = memoryview(os.pread({_FD}, min(step, size), start))
        if len(data) % page or not data:
            sys.exit(1)
        hashes = b"".join([
            zero if not data[at] and data[at : at + page] == zeros else sha256(data[at : at + page]).digest()
            for at in range(0, len(data), page)
        ])
        if os.pwrite({_FD}, hashes, table) != len(hashes):
            sys.exit(1)
        start, size, table = start + len(data), size - len(data), table + len(hashes)
"""


class PageHelper:
    """The other process; `give` hands it whole pages of the file `fd`, and `finish` says whether it did them all."""

    def __init__(self, fd: int) -> None:
        """Start it; raise OSError where that cannot be done."""
        # A program that has an interpreter within it names itself there; it must not be started a second time.
        program = os.path.basename(sys.executable or "")
        if not hasattr(os, "posix_spawn") or not program.startswith(("python", "pypy")):
            raise OSError
        read, self._pipe = os.pipe()
        try:
            actions = [(os.POSIX_SPAWN_DUP2, read, 0), (os.POSIX_SPAWN_DUP2, fd, _FD)]
            arguments = [sys.executable, "-I", "-S", "-c", _PROGRAM]
            self._pid = os.posix_spawn(sys.executable, arguments, os.environ, file_actions=actions)
        except BaseException:
            os.close(self._pipe)
            raise
        finally:
            os.close(read)

    def give(self, start: int, size: int, table: int) -> bool:
        """Let it hash `size` bytes of whole pages at `start`, and write the hashes at `table`; False if it has gone."""
        try:
            return os.write(self._pipe, line := b"%d %d %d\n" % (start, size, table)) == len(line)
        except OSError:
            return False

    def finish(self) -> bool:
        """Wait until it has done all that it was given; return whether it has."""
        os.close(self._pipe)
        with suppress(OSError):
            return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1]) == 0
        return False
