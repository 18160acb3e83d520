"""The check of a pack after writing, in a file of its own or within another."""

from __future__ import annotations

import os

from emitter.check.readback import Reader, expect
from emitter.checksum import crc32c
from emitter.pack import format as fmt
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emitter.layout import FilePlan
    from emitter.pack.plan import PackPlan
    from emitter.targets._base import Target

__all__ = ["check_members", "check_pack", "check_pack_at", "check_pack_within", "open_output"]

_STEP = 1 << 20  # bytes of the index that are read at once


def check_pack(fd: int, target: Target, plan: FilePlan, pack: PackPlan | None) -> None:
    """Check a file that is a pack and nothing else."""
    check_pack_at(open_output(fd, target, plan), plan, pack)


def open_output(fd: int, target: Target, plan: FilePlan, member: tuple[int, int] | None = None) -> Reader:
    """Return a reader of the whole file, or of `member` (offset, size in bytes); its size must be the planned one."""
    size = os.fstat(fd).st_size
    expect("size of the file", size, plan.size)
    return Reader(fd, *(member or (0, size)), target)


def check_pack_within(reader: Reader, plan: FilePlan, pack: PackPlan | None) -> int | None:
    """Check the pack if the file, or the member, holds it; return where it is in that, None if it is not."""
    if pack is None or plan.pack_offset is None:
        return None
    at = plan.pack_offset - reader.base
    if not 0 <= at < reader.size:
        return None
    check_pack_at(reader, plan, pack)
    return at


def check_members(holders: Sequence[bool], plan: FilePlan, pack: PackPlan | None) -> None:
    """Check how many members of an archive hold the pack, of which each says whether it does."""
    expect("members that hold the pack", sum(holders), int(pack is not None and plan.pack_offset is not None))


def check_pack_at(reader: Reader, plan: FilePlan, pack: PackPlan | None) -> None:
    """Check the pack's header and its index, with their checksums."""
    if plan.pack_offset is None or pack is None:
        return
    at = plan.pack_offset - reader.base
    reader.bound(at, pack.total_size, "the pack")
    header = reader.read(at, fmt.HEADER.size, "the pack's header")
    crc = 0
    for start in range(fmt.HEADER.size, pack.index_size, _STEP):
        crc = crc32c(reader.read(at + start, min(_STEP, pack.index_size - start), "the index"), crc)
    end = fmt.HEADER_CRC_OFFSET + 4
    expected = {
        "magic": int.from_bytes(fmt.MAGIC, reader.byte_order),
        "byte_order": fmt.BYTE_ORDER_MARK,
        "version_major": fmt.VERSION_MAJOR,
        "version_minor": fmt.VERSION_MINOR,
        "header_size": fmt.HEADER.size,
        "total_size": pack.total_size,
        "index_size": pack.index_size,
        "schema_hash": pack.schema,
        "index_crc32c": crc,
        "header_crc32c": crc32c(header[: fmt.HEADER_CRC_OFFSET] + bytes(4) + header[end:]),
    }
    sizes = {field.name: field.size for field in fmt.HEADER.fields}
    for name, value in expected.items():
        start = fmt.HEADER.offset(name)
        expect(f"{name} of the pack", int.from_bytes(header[start : start + sizes[name]], reader.byte_order), value)
