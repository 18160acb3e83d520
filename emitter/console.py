"""Standard output and standard error of the command, whatever has become of them: closed, full, or without a reader."""

from __future__ import annotations

import os
import sys

from emitter.errors import InputError, OutputError, printable

__all__ = ["STANDARD_INPUT", "STANDARD_OUTPUT", "open_missing", "printable", "read", "say", "write"]

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


def _abandon() -> None:
    # What is left in the buffer goes nowhere: the interpreter would try again to write it at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(line: str) -> None:
    """Write a line to standard error, without control characters. What cannot be said is lost; the status tells."""
    try:
        print(printable(f"emitter: {line}"), file=sys.stderr, flush=True)
    except OSError:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - it lives as long as the process
