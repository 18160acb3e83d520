"""What several tests share."""

from __future__ import annotations

import hashlib
import tracemalloc
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emitter.checksum import crc32c
from emitter.layout import BUILD_ID_SIZE
from emitter.pack.plan import plan_pack
from emitter.package import BufferSource
from emitter.reading import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from os import PathLike

    import pytest

    from emitter.layout import Copy, FilePlan
    from emitter.pack.plan import PackPlan
    from emitter.package import ByteOrder, Package

__all__ = ["build_pack", "record_reads", "traced", "write_plan"]

_ZEROS = bytes(1 << 20)


@contextmanager
def traced() -> Iterator[Callable[[], int]]:
    """Follow what Python allocates; the function that is given returns the most bytes that were in use at once."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def record_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the length of every read from a source from now on."""
    lengths: list[int] = []
    real = Reader.read

    def recording(self: Reader, offset: int, length: int) -> bytes:
        lengths.append(length)
        return real(self, offset, length)

    monkeypatch.setattr(Reader, "read", recording)
    return lengths


def build_pack(package: Package, byte_order: ByteOrder = "little", **options: Any) -> bytes:
    """Return the pack of a package of untransformed bytes, assembled without the emitter's own writer."""
    plan = plan_pack(package, byte_order, **options)
    image = bytearray(plan.total_size)
    crcs = []
    for payload in plan.payloads:
        extent = payload.extent
        if extent.inflate or extent.fortran_order:
            msg = "build_pack takes plain bytes"
            raise TypeError(msg)
        source = extent.source
        whole = source.data if isinstance(source, BufferSource) else Path(source.path).read_bytes()
        data = bytes(whole[extent.offset : extent.offset + extent.length])
        unit = payload.swap_unit
        data = b"".join(data[i : i + unit][::-1] for i in range(0, len(data), unit)) if unit > 1 else data
        image[payload.offset : payload.offset + payload.size] = data
        crcs.append(crc32c(data))
    image[: plan.index_size] = plan.render_index(crcs)
    return bytes(image)


def write_plan(plan: FilePlan, pack: PackPlan | None, path: str | PathLike[str]) -> None:
    """Carry out a plan of untransformed extents, without the emitter's own writer. Zeros become holes."""
    target = Path(path)
    target.unlink(missing_ok=True)
    with target.open("w+b") as file:
        file.truncate(plan.size)
        for piece in plan.pieces:
            file.seek(piece.offset)
            file.write(piece.data)
        crcs = []
        for copy in plan.copies:
            crc, position = 0, copy.offset
            for block in _blocks(copy):
                crc = crc32c(block, crc)
                if block != _ZEROS[: len(block)]:
                    file.seek(position)
                    file.write(block)
                position += len(block)
            crcs.append(crc)
        digest = hashlib.sha256(b"".join(piece.data for piece in plan.pieces))
        if pack is not None and plan.pack_offset is not None:
            index = pack.render_index(crcs)
            digest.update(index)
            file.seek(plan.pack_offset)
            file.write(index)
        if plan.build_id_offset is not None:
            file.seek(plan.build_id_offset)
            file.write(digest.digest()[:BUILD_ID_SIZE])


def _blocks(copy: Copy) -> Iterator[bytes]:
    extent, unit = copy.extent, copy.swap_unit
    if extent.inflate or extent.fortran_order:
        msg = "write_plan takes untransformed extents"
        raise TypeError(msg)
    step = len(_ZEROS)
    for start in range(0, extent.length, step):
        at, size = extent.offset + start, min(step, extent.length - start)
        if isinstance(extent.source, BufferSource):
            block = bytes(extent.source.data[at : at + size])
        else:
            with Path(extent.source.path).open("rb") as file:
                file.seek(at)
                block = file.read(size)
        yield b"".join(block[i : i + unit][::-1] for i in range(0, size, unit)) if unit > 1 else block
