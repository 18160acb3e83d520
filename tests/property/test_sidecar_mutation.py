"""Whatever an index pack and its sidecar say, the loader gives a result or an EmitterError, and reads no other file."""

from __future__ import annotations

import contextlib
import os
import struct
import tempfile
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emitter.errors import EmitterError
from emitter.loaders import load
from emitter.pack import format as fmt
from tests.c_pack import Parts
from tests.golden.make_sidecars import NAME, golden_files
from tests.loader_support import directory, seal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILES = golden_files("little")
INDEX, WEIGHTS = FILES["index"], FILES[NAME]
EDGES = (0, 1, 7, 8, 63, 64, 4095, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)


@pytest.fixture(scope="module")
def folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as path:
        yield path


def use(folder: str, index: bytes, weights: bytes) -> None:
    """Load the pair, and do all that it allows."""
    for name, data in (("index", index), (NAME, weights)):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)
    with contextlib.suppress(EmitterError), load(os.path.join(folder, "index")) as library:
        for pack in library.packs:
            assert os.path.dirname(pack.path) == folder
            for call in (pack.validate, pack.check, pack.names, lambda: [bytes(one.bytes()) for one in pack.tensors()]):  # noqa: B023 - called at once
                with contextlib.suppress(EmitterError):
                    call()


@settings(max_examples=150, deadline=None)
@given(field=st.sampled_from([field.name for field in fmt.SIDECAR.fields if field.count == 1]),
       value=st.sampled_from(EDGES))  # fmt: skip
def test_fields_of_the_record(folder: str, field: str, value: int) -> None:
    parts = Parts(INDEX)
    size = {field.name: field.size for field in fmt.SIDECAR.fields}[field]
    parts.set(fmt.SIDECAR, 0, field, value % (1 << (8 * size)))
    use(folder, seal(bytearray(parts.bytes)), WEIGHTS)


@settings(max_examples=150, deadline=None)
@given(name=st.binary(min_size=len(NAME), max_size=len(NAME)))
def test_names(folder: str, name: bytes) -> None:
    parts = Parts(INDEX)
    at = parts.get(fmt.SIDECAR, 0, "name_offset")
    parts.bytes[at : at + len(name)] = name
    use(folder, seal(bytearray(parts.bytes)), WEIGHTS)


@settings(max_examples=200, deadline=None)
@given(at=st.integers(0, len(INDEX) - 1), value=st.integers(0, 255), sealed=st.booleans(), both=st.booleans())
def test_bytes_of_the_index(folder: str, at: int, value: int, sealed: bool, both: bool) -> None:
    changed = bytearray(INDEX)
    changed[at] = value
    weights = bytearray(WEIGHTS)
    if both and at < struct.unpack_from("<I", WEIGHTS, fmt.HEADER.offset("index_size"))[0]:
        weights[at] = value
    with contextlib.suppress(struct.error, IndexError, KeyError, AssertionError):  # of the test's own sealing
        if sealed:
            changed = bytearray(seal(changed))
            weights = bytearray(seal(weights))
    use(folder, bytes(changed), bytes(weights))


@settings(max_examples=100, deadline=None)
@given(length=st.integers(0, len(INDEX)), rest=st.integers(0, len(WEIGHTS)))
def test_truncations(folder: str, length: int, rest: int) -> None:
    use(folder, INDEX[:length], WEIGHTS)
    use(folder, INDEX, WEIGHTS[:rest])


def test_the_pair_is_whole_to_begin_with(tmp_path: Path) -> None:
    assert fmt.SIDECAR.kind in directory(INDEX)
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    with load(tmp_path / "index") as library:
        library.check()
