"""The check of objects that LLVM made, and of archives of them: their headers and tables are compared as bytes."""

from __future__ import annotations

import os

from emitter.check.readback import difference, expect
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from emitter.layout import FilePlan

__all__ = ["check_compiled"]


def check_compiled(fd: int, plan: FilePlan) -> None:
    """Compare the file with the pieces of its plan; raise OutputError with the offset of the first that differs."""
    expect("size of the file", os.fstat(fd).st_size, plan.size)
    for piece in plan.pieces:
        if os.pread(fd, len(piece.data), piece.offset) != piece.data:
            raise difference(f"{len(piece.data)} bytes at {piece.offset:#x}", "those that LLVM wrote", "others")
