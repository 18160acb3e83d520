"""What the command says: by its exit status, and on standard output and standard error, whatever has become of them.

They may be closed, full, or without a reader.
"""

from __future__ import annotations

import os
import sys
import time

from emitter.errors import InputError, OutputError, printable
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "EXIT_DONE",
    "EXIT_ERROR",
    "EXIT_FINDINGS",
    "EXIT_INTERRUPTED",
    "STANDARD_INPUT",
    "STANDARD_OUTPUT",
    "open_missing",
    "printable",
    "progress",
    "read",
    "say",
    "write",
    "write_json",
]

EXIT_DONE = 0
EXIT_FINDINGS = 1
EXIT_ERROR = 2
EXIT_INTERRUPTED = 130

STANDARD_INPUT = "standard input"
STANDARD_OUTPUT = "standard output"


def open_missing() -> None:
    """Give the process a standard output and error where it was started without: what is written there is lost."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - it lives as long as the process


def read(most: int) -> bytes:
    """Return the bytes of standard input, `most` of them at most. Raises InputError where it cannot be read."""
    if sys.stdin is None:
        raise InputError("is closed", where=STANDARD_INPUT, hint="give the bytes by a pipe or with <FILE")
    try:
        return sys.stdin.buffer.read(most)
    except OSError as error:
        raise InputError(f"cannot read: {error.strerror or error}", where=STANDARD_INPUT) from error


def write(data: str | bytes) -> None:
    """Write to standard output and flush it.

    Raises OutputError when it cannot be written, and SystemExit(2) when its reader has gone: there is nobody to tell.
    """
    try:
        if isinstance(data, bytes):
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
        else:
            sys.stdout.write(data)
        sys.stdout.flush()
    except BrokenPipeError:
        _abandon()
        raise SystemExit(2) from None
    except OSError as error:
        _abandon()
        raise OutputError(f"cannot write: {error.strerror or error}", where=STANDARD_OUTPUT) from error


def write_json(document: dict[str, object]) -> None:
    """Write a document to standard output, as `write` does."""
    import json

    write(json.dumps(document, indent=1) + "\n")


def _abandon() -> None:
    # What is left in the buffer goes nowhere: the interpreter would try again to write it at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(line: str) -> None:
    """Write a line to standard error, without control characters. What cannot be said is lost; the status tells."""
    try:
        print(printable(f"emitter: {line}"), file=sys.stderr, flush=True)
    except OSError:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - it lives as long as the process


def progress() -> Callable[[int, int], None]:
    """Return a display of bytes done, which appears after a second of work and is wiped when all are."""
    start = time.monotonic()
    visible = False

    def show(done: int, total: int) -> None:
        nonlocal visible
        if done >= total:
            if visible:
                print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            visible = False
        elif time.monotonic() - start > 1:
            visible = True
            print(f"\remitter: {done >> 20} of {total >> 20} MiB", end="", file=sys.stderr, flush=True)

    return show
