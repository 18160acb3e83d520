"""What several tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emitter.checksum import crc32c
from emitter.pack.plan import plan_pack
from emitter.package import BufferSource

if TYPE_CHECKING:
    from emitter.package import ByteOrder, Package

__all__ = ["build_pack"]


def build_pack(package: Package, byte_order: ByteOrder = "little", **options: int) -> bytes:
    """Return the pack of a package of untransformed buffers, assembled without the emitter's own writer."""
    plan = plan_pack(package, byte_order, **options)
    image = bytearray(plan.total_size)
    crcs = []
    for payload in plan.payloads:
        extent = payload.extent
        if not isinstance(extent.source, BufferSource) or extent.inflate or extent.fortran_order:
            msg = "build_pack takes plain buffers"
            raise TypeError(msg)
        data = bytes(extent.source.data[extent.offset : extent.offset + extent.length])
        unit = payload.swap_unit
        data = b"".join(data[i : i + unit][::-1] for i in range(0, len(data), unit)) if unit > 1 else data
        image[payload.offset : payload.offset + payload.size] = data
        crcs.append(crc32c(data))
    image[: plan.index_size] = plan.render_index(crcs)
    return bytes(image)
