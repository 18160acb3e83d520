"""The check of objects that LLVM made: it passes what is right, and names what is not."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from emitter.check import check
from emitter.errors import OutputError
from emitter.layout import FilePlan, Piece
from emitter.targets import load

if TYPE_CHECKING:
    from pathlib import Path

PLAN = FilePlan(12, [Piece(0, b"head"), Piece(8, b"tail")], [], compiled=True)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"head1234tail", None),
        (b"heaD1234tail", "4 bytes at 0x0"),
        (b"head1234tai\0", "4 bytes at 0x8"),
        (b"head1234tai", "size of the file"),
    ],
)
@pytest.mark.parametrize("target", ["x86_64-windows-msvc", "arm64-apple-macos", "cuda-host"])
def test_the_pieces_are_compared(target: str, data: bytes, message: str | None, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(data)
    fd = os.open(tmp_path / "x", os.O_RDONLY)
    try:
        if message is None:
            check(fd, "object", load(target), PLAN, None, None)
        else:
            with pytest.raises(OutputError, match=message):
                check(fd, "object", load(target), PLAN, None, None)
    finally:
        os.close(fd)
