"""Compiled code, kept by content: what is in the folder is trusted, so the folder and its files must be the user's.

A file is called by the SHA-256 of all that the object depends on. Its first line holds the SHA-256 of that name and of
the rest: the facts, a line of JSON, and the object. It is whole when it gets its name.
"""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress

from emitter.errors import EmitterError, UsageError
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from emitter.code import CodeInput
    from emitter.compile import Settings
    from emitter.targets._base import Target

__all__ = ["Cache", "key_of"]

_MAGIC = b"emitter-code/3 "
_MAX_ENTRIES = 512
_MAX_SIZE = 1 << 30
_PUBLIC = stat.S_IWGRP | stat.S_IWOTH


class Cache:
    """The folder of EMITTER_CACHE_DIR, or `emitter` where the system keeps caches of the user."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    @classmethod
    def open(cls) -> Cache | None:
        """Return the cache, with its folder made; None where there is no place for one.

        Raises UsageError for a folder of EMITTER_CACHE_DIR that others may write to, or that cannot be made.
        """
        named = os.environ.get("EMITTER_CACHE_DIR")
        folder = os.path.abspath(named) if named else _default()
        if folder is None:
            return None
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            status = os.stat(folder)
        except OSError as error:
            if not named:
                return None
            raise UsageError(
                f"the cache cannot be used: {error.strerror or error}", where=folder, hint="correct EMITTER_CACHE_DIR"
            ) from error
        if _is_own(status) and stat.S_ISDIR(status.st_mode):
            return cls(folder)
        if not named:
            return None
        raise UsageError(
            "the cache is a folder that others may write to",
            where=folder,
            expected="a folder of this user, writable by nobody else",
            hint="chmod go-w, or name another one in EMITTER_CACHE_DIR, or add --no-cache",
        )

    def get(self, key: str) -> tuple[dict[str, Any], bytes] | None:
        """Return (facts, object) of a key; None if it is not there, not this user's, or damaged."""
        import json

        try:
            with open(self._path(key), "rb", opener=_open_itself) as file:
                status = os.fstat(file.fileno())
                if not (_is_own(status) and stat.S_ISREG(status.st_mode) and status.st_size <= _MAX_SIZE):
                    return None
                head, _, rest = file.read().partition(b"\n")
        except OSError:
            return None
        if head != _head(key, rest):
            return None
        facts, _, data = rest.partition(b"\n")
        with suppress(OSError):
            os.utime(self._path(key))  # the oldest are removed first
        return json.loads(facts), data

    def put(self, key: str, facts: dict[str, Any], data: bytes) -> None:
        """Keep an object; where that fails nothing is kept."""
        import json

        from emitter.output import write_small

        path = self._path(key)
        rest = json.dumps(facts).encode() + b"\n" + data
        with suppress(OSError, EmitterError):
            if os.path.lexists(path):
                os.unlink(path)  # a link is not followed, as when it is read, and a pipe not written to
            write_small(path, _head(key, rest) + b"\n" + rest, 0o600)
            self._prune()

    def _path(self, key: str) -> str:
        return os.path.join(self.folder, f"{key}.code")

    def _prune(self) -> None:
        with os.scandir(self.folder) as entries:
            found = [
                (entry.stat(follow_symlinks=False).st_mtime, entry.path)
                for entry in entries
                if entry.name.endswith(".code")
            ]
        for _, path in sorted(found)[: max(len(found) - _MAX_ENTRIES, 0)]:
            with suppress(OSError):  # a folder of this name, or another process was faster
                os.unlink(path)


def _open_itself(path: str, flags: int) -> int:
    """Open a file, but no link, and wait for no pipe."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))


def _head(key: str, rest: bytes) -> bytes:
    from hashlib import sha256

    return _MAGIC + sha256(key.encode() + b"\n" + rest).hexdigest().encode()


def key_of(inputs: Sequence[CodeInput], modules: Sequence[bytes], target: Target, settings: Settings) -> str:
    """Return the name of what `modules` compile to: a hash of all that has a say in it."""
    from hashlib import sha256

    from emitter import __version__

    digest = sha256(repr((_MAGIC, __version__, _llvm(), tuple(target), tuple(settings)[:5])).encode())
    for one, data in zip(inputs, modules, strict=True):
        digest.update(repr((one.kind, len(data))).encode() + sha256(data).digest())
    return digest.hexdigest()


def _llvm() -> tuple[object, ...]:
    """Identify the installed LLVM without loading it: by llvmlite's version, and its library's size and time."""
    for folder in sys.path:
        package = os.path.join(folder or ".", "llvmlite")
        try:
            with open(os.path.join(package, "_version.py"), "rb") as file:
                version = file.read(4096)
        except OSError:
            continue
        for name in ("libllvmlite.so", "libllvmlite.dylib", "llvmlite.dll"):
            with suppress(OSError):
                status = os.stat(os.path.join(package, "binding", name))
                return version, status.st_size, status.st_mtime_ns
        return version, 0, 0
    return ()


def _default() -> str | None:
    if os.name == "nt":
        base = os.environ.get("LOCALAPPDATA", "")
    elif sys.platform == "darwin":
        base = os.path.expanduser("~/Library/Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME", "") or os.path.expanduser("~/.cache")
    return os.path.join(base, "emitter") if os.path.isabs(base) else None


def _is_own(status: os.stat_result) -> bool:
    if os.name == "nt":
        return True  # the folder is in the user's profile, whose access list says it
    return status.st_uid == os.geteuid() and not status.st_mode & _PUBLIC
