"""The copy engine against a model in plain bytes and numpy: the file is what was planned, the checksums are right."""

from __future__ import annotations

import os
import zlib
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from google_crc32c import extend as crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from emitter import following, reading, transfer, transforms, writing
from emitter.layout import BUILD_ID_SIZE, Copy, FilePlan, Piece
from emitter.package import BufferSource, Extent, FileSource, Inflate, Source
from emitter.transfer import write_plan

if TYPE_CHECKING:
    from pathlib import Path

# Constants small enough that a few hundred bytes cross every boundary.
SMALL = (
    (transfer, "WINDOW", 64), (reading, "WINDOW", 64), (transforms, "WINDOW", 64), (writing, "WINDOW", 64),
    (following, "WINDOW", 64), (reading, "_FIRST_WINDOW", 8), (transfer, "STEP", 48), (transfer, "KERNEL_COPY", 40),
    (transfer, "PAGE", 8), (writing, "RESERVE", 32), (transfer, "GAP", 16), (writing, "GAP", 16),
    (transforms, "TILE", 96),
)  # fmt: skip
SIZES = st.one_of(st.sampled_from([0, 1, 15, 16, 17, 63, 64, 65, 127, 128, 129]), st.integers(0, 400))
SHAPES = st.lists(st.integers(1, 7), min_size=1, max_size=4).map(tuple)


class Spec(NamedTuple):
    """A payload to be: what is before it in source and destination, what is done to it, and where it is."""

    kind: str  # dense, buffer, inflate
    gap: int
    padding: int
    item: int
    swap: bool
    fortran: bool
    shape: tuple[int, ...]


SPECS = st.builds(
    Spec,
    st.sampled_from(["dense", "dense", "dense", "buffer", "inflate"]),
    st.sampled_from([0, 0, 0, 1, 3, 40]),
    st.sampled_from([0, 0, 0, 1, 5, 17, 200]),
    st.sampled_from([1, 2, 3, 4, 8, 16]),
    st.booleans(),
    st.booleans(),
    st.one_of(SHAPES, SIZES.map(lambda size: (size,))),
)


def expected_bytes(stored: bytes, spec: Spec) -> bytes:
    """Return what is to be written for the stored bytes."""
    array = np.frombuffer(stored, f"V{spec.item}").reshape(spec.shape, order="F" if spec.fortran else "C")
    data = np.ascontiguousarray(array).tobytes()
    if not spec.swap:
        return data
    return b"".join(data[i : i + spec.item][::-1] for i in range(0, len(data), spec.item))


def lay_out(directory: Path, specs: list[Spec], random: np.random.Generator) -> tuple[FilePlan, bytes, list[int]]:
    """Return a plan over new sources, the bytes of the whole file, and the checksums."""
    content = bytearray()
    copies: list[Copy] = []
    image = bytearray(b"head" + bytes(BUILD_ID_SIZE))
    crcs = []
    parts: list[tuple[Spec, int, int, bytes]] = []
    for spec in specs:
        stored = random.bytes(int(np.prod(spec.shape)) * spec.item)
        content += random.bytes(spec.gap)
        parts.append((spec, len(content), len(stored), stored))
        content += stored
    path = directory / "source"
    path.write_bytes(content)
    file = FileSource.of(path)
    for spec, start, count, stored in parts:
        source: Source = file
        offset, length, inflate = start, count, None
        if spec.kind == "buffer":
            source, offset = BufferSource("memory", memoryview(stored)), 0
        elif spec.kind == "inflate":
            skip = spec.gap
            whole = random.bytes(skip) + stored
            compressor = zlib.compressobj(wbits=-15)
            data = compressor.compress(whole) + compressor.flush()
            source = BufferSource("archive", memoryview(data))
            offset, length, inflate = 0, len(data), Inflate(len(whole), zlib.crc32(whole), skip)
        image += bytes(spec.padding)
        extent = Extent(source, offset, length, inflate=inflate, fortran_order=spec.fortran)
        data = expected_bytes(stored, spec)
        copies.append(Copy(len(image), len(data), extent, spec.item if spec.swap else 1, spec.shape, spec.item * 8))
        image += data
        crcs.append(crc32c(0, data))
    tail = Piece(len(image), b"tail")
    image += b"tail"
    plan = FilePlan(len(image), [Piece(0, bytes(image[: 4 + BUILD_ID_SIZE])), tail], copies, None, 4)
    return plan, bytes(image), crcs


def run(directory: Path, plan: FilePlan) -> tuple[bytes, list[int]]:
    """Write a plan; return the file and the checksums."""
    fd = os.open(directory / "out", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        os.ftruncate(fd, plan.size)
        crcs = write_plan(fd, plan, None)
    finally:
        os.close(fd)
    data = (directory / "out").read_bytes()
    return data[:4] + bytes(BUILD_ID_SIZE) + data[4 + BUILD_ID_SIZE :], crcs


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("transfer")


@pytest.mark.parametrize(
    "without", [(), ("copy_file_range", "posix_fallocate"), ("copy_file_range", "pread", "pwrite", "SEEK_DATA")]
)
@settings(max_examples=120, deadline=None)
@given(specs=st.lists(SPECS, max_size=8), seed=st.integers(0, 2**32 - 1))
def test_any_mix_of_payloads_is_written_as_the_model_says(
    directory: Path, without: tuple[str, ...], specs: list[Spec], seed: int
) -> None:
    plan, image, crcs = lay_out(directory, specs, np.random.default_rng(seed))
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in SMALL:
            patch.setattr(module, name, value)
        for name in without:  # as on hosts that have no such call
            patch.delattr(os, name)
        assert run(directory, plan) == (image, crcs)


@settings(max_examples=60, deadline=None)
@given(
    pages=st.lists(st.booleans(), min_size=1, max_size=8),
    edges=st.lists(st.integers(0, 8 * 4096), min_size=2, max_size=8),
    shift=st.sampled_from([0, 4096, 8, 1]),
    unit=st.sampled_from([1, 8]),
    small=st.booleans(),
)
def test_holes_are_found_wherever_extents_begin_and_end(
    directory: Path, pages: list[bool], edges: list[int], shift: int, unit: int, small: bool
) -> None:
    # Unlike `dense` above the source has real holes, of whole blocks, and extents that end within them.
    path = directory / "sparse"
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        for number, data in enumerate(pages):
            if data:
                file.seek(number * 4096)
                file.write(os.urandom(4096))
        file.truncate(len(pages) * 4096)
    content = path.read_bytes()
    source = FileSource.of(path)
    ends = sorted({min(edge, len(content)) for edge in edges})
    copies = []
    image = bytearray(shift + len(content))
    for low, high in pairwise(ends):
        size = (high - low) // unit * unit
        stored = content[low : low + size]
        copies.append(Copy(shift + low, size, Extent(source, low, size), unit, (size,), 8))
        image[shift + low : shift + low + size] = b"".join(stored[i : i + unit][::-1] for i in range(0, size, unit))
    # A build id, so that checksums are wanted.
    plan = FilePlan(len(image) + BUILD_ID_SIZE, [Piece(len(image), bytes(BUILD_ID_SIZE))], copies, None, len(image))
    fd = os.open(directory / "out", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        os.ftruncate(fd, plan.size)
        with pytest.MonkeyPatch.context() as patch:
            for module, name, value in SMALL if small else ():
                patch.setattr(module, name, value)
            crcs = write_plan(fd, plan, None)
    finally:
        os.close(fd)
    assert (directory / "out").read_bytes()[:-BUILD_ID_SIZE] == bytes(image)
    assert crcs == [crc32c(0, bytes(image[copy.offset : copy.offset + copy.size])) for copy in copies]
