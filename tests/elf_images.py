"""Libraries for tests, written from their plans without the emitter's own writer."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

from emitter import targets
from emitter.checksum import crc32c
from emitter.image.elf import plan_image
from emitter.layout import BUILD_ID_SIZE
from emitter.model import TensorSymbol
from emitter.pack.plan import plan_pack
from emitter.package import BufferSource, Package

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from elftools.elf.elffile import ELFFile

    from emitter.layout import FilePlan
    from emitter.pack.plan import PackPlan
    from emitter.targets._base import Target

# The ELF targets that load libraries.
TARGET_NAMES = tuple(
    target.name for target in targets.describe_all() if target.object_format == "elf" and target.image_suffix
)


class Image(NamedTuple):
    """A library that was written, and what it was made from. `payloads` are the tensors' bytes by name."""

    path: Path
    target: Target
    plan: FilePlan
    pack: PackPlan
    symbols: Sequence[TensorSymbol]
    payloads: dict[str, bytes]


def pattern(size: int, seed: int = 1) -> bytes:
    """Return bytes that repeat at no power of two."""
    unit = bytes((i * i + seed * 7 + i) % 251 for i in range(997))
    return (unit * (size // len(unit) + 1))[:size]


def package_of(payloads: dict[str, bytes]) -> Package:
    """Return a package of raw tensors."""
    package = Package()
    for name, data in payloads.items():
        package.add_raw(name, data)
    return package


def section_of(elffile: ELFFile, name: str) -> Any:
    """Return a section that must be there, of whichever class pyelftools makes of it."""
    section = elffile.get_section_by_name(name)
    assert section is not None, name
    return section


def symbols_of(pack: PackPlan, prefix: str) -> list[TensorSymbol]:
    """Return one symbol for each tensor."""
    return [
        TensorSymbol(f"{prefix}{name}", name, pack.payloads[number].offset, pack.payloads[number].size)
        for name, number in pack.index_of.items()
    ]


def render(plan: FilePlan, pack: PackPlan) -> bytes:
    """Carry out a plan of untransformed buffers in memory."""
    image = bytearray(plan.size)
    written = bytearray(plan.size)  # how often each byte is written
    crcs = []

    def put(offset: int, data: bytes) -> None:
        assert offset >= 0 and offset + len(data) <= plan.size
        assert b"\1" not in written[offset : offset + len(data)], "two parts of the plan overlap"
        image[offset : offset + len(data)] = data
        written[offset : offset + len(data)] = b"\1" * len(data)

    for piece in plan.pieces:
        put(piece.offset, piece.data)
    for copy in plan.copies:
        assert isinstance(copy.extent.source, BufferSource)
        data = bytes(copy.extent.source.data[copy.extent.offset : copy.extent.offset + copy.extent.length])
        crcs.append(crc32c(data))
        put(copy.offset, data)
    assert plan.pack_offset is not None
    index = pack.render_index(crcs)
    put(plan.pack_offset, index)
    if plan.build_id_offset is not None:
        digest = hashlib.sha256(b"".join(piece.data for piece in plan.pieces) + index).digest()[:BUILD_ID_SIZE]
        image[plan.build_id_offset : plan.build_id_offset + BUILD_ID_SIZE] = digest
    return bytes(image)


def write_image(
    path: Path, target: Target, payloads: dict[str, bytes], *, name: str = "model", **options: int
) -> Image:
    """Write a library at `path`, with the symbols `NAME_t_TENSOR`."""
    pack = plan_pack(package_of(payloads), target.byte_order)
    symbols = symbols_of(pack, f"{name}_t_")
    plan = plan_image(target, pack, name=name, soname=path.name, symbols=symbols)
    path.write_bytes(render(plan, pack))
    path.chmod(0o755)
    return Image(path, target, plan, pack, symbols, payloads)
