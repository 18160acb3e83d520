"""Streams of compressed files: (name, magic, what opens one)."""

from __future__ import annotations

from emitter.errors import InputError
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO

__all__ = ["COMPRESSIONS"]


def _gzip(file: IO[bytes], where: str) -> IO[bytes]:
    import gzip

    return gzip.GzipFile(filename=where, fileobj=file)  # type: ignore[return-value] # it reads as one


def _bz2(file: IO[bytes], where: str) -> IO[bytes]:
    import bz2

    del where
    return bz2.BZ2File(file)


def _xz(file: IO[bytes], where: str) -> IO[bytes]:
    import lzma

    del where
    return lzma.LZMAFile(file)


def _zstd(file: IO[bytes], where: str) -> IO[bytes]:
    from importlib import import_module

    try:
        module = import_module("compression.zstd")  # of Python 3.14
    except ImportError as error:
        raise InputError(
            "this Python cannot read zstd", where=where, hint="unpack it first, or use Python 3.14 or later"
        ) from error
    stream: IO[bytes] = module.ZstdFile(file)
    return stream


COMPRESSIONS: tuple[tuple[str, bytes, Callable[[IO[bytes], str], IO[bytes]]], ...] = (
    ("gz", b"\x1f\x8b", _gzip),
    ("bz2", b"BZh", _bz2),
    ("xz", b"\xfd7zXZ\0", _xz),
    ("zst", b"\x28\xb5\x2f\xfd", _zstd),
)
