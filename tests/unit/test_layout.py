"""Copies on their way."""

from __future__ import annotations

from emitter.layout import Copy
from emitter.package import BufferSource, Extent


def test_a_copy_that_is_moved_keeps_all_but_its_offset() -> None:
    extent = Extent(BufferSource("memory", memoryview(bytes(48))), 0, 48)
    copy = Copy(64, 48, extent, 4, (3, 2), 64)
    assert copy.moved(4096) == copy._replace(offset=4160)
    assert copy.offset == 64
