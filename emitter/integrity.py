"""Compares the bytes of a source with the checksum that came with them: damage must not get a fresh, valid checksum."""

from __future__ import annotations

from emitter.errors import InputError
from emitter.reading import WINDOW
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from emitter.layout import Copy
    from emitter.package import Extent
    from emitter.reading import Reader

__all__ = ["check_sum", "check_unwritten", "check_written"]


def check_written(copy: Copy, crc32c: int) -> None:
    """Raise InputError if `crc32c`, that of the bytes as they were written, tells that the source is damaged."""
    if copy.extent.checksum is not None and _is_written_as_stored(copy):
        _compare(copy.extent, crc32c)


def check_unwritten(reader: Reader, copy: Copy) -> None:
    """Read what `check_written` cannot tell; raise InputError if the source is damaged."""
    if copy.extent.checksum is not None and not _is_written_as_stored(copy):
        check_sum(reader, copy.extent)


def check_sum(reader: Reader, extent: Extent) -> None:
    """Read everything that the checksum of an extent covers; raise InputError if it is not what the source says."""
    declared = extent.checksum
    if declared is None:
        return
    add: Callable[[bytes, int], int]
    if declared.algorithm == "CRC-32":
        from zlib import crc32 as add
    else:
        from emitter.checksum import crc32c as add
    crc = 0
    for low, high, data in reader.segments(declared.offset, declared.offset + declared.length):
        for position in range(low, high, WINDOW):
            count = min(WINDOW, high - position)
            crc = add(reader.read(position, count) if data else bytes(count), crc)
    _compare(extent, crc)


def _is_written_as_stored(copy: Copy) -> bool:
    """Whether the CRC-32C of the source must be that of the copy."""
    extent = copy.extent
    same = copy.swap_unit == 1 and extent.inflate is None and not extent.fortran_order
    return same and extent.checksum is not None and extent.checksum.algorithm == "CRC-32C"


def _compare(extent: Extent, crc: int) -> None:
    declared = extent.checksum
    if declared is not None and crc != declared.value:
        raise InputError(
            f"the bytes are damaged: they have another {declared.algorithm} than the file says",
            where=extent.where,
            expected=f"{declared.value:#010x}",
            actual=f"{crc:#010x}",
            hint="copy or make the file again",
        )
