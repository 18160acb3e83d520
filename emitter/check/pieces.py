"""The check of outputs with parts that others made, as LLVM: headers, tables and code are compared as bytes."""

from __future__ import annotations

import os

from emitter.check.readback import difference, expect
from emitter.reading import pread
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from emitter.layout import FilePlan

__all__ = ["check_pieces"]


def check_pieces(fd: int, plan: FilePlan) -> None:
    """Compare the file with the pieces of its plan; raise OutputError with the offset of the first that differs."""
    expect("size of the file", os.fstat(fd).st_size, plan.size)
    for piece in plan.pieces:
        if pread(fd, len(piece.data), piece.offset) != piece.data:
            raise difference(f"{len(piece.data)} bytes at {piece.offset:#x}", "those that were planned", "others")
