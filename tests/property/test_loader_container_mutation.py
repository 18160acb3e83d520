"""Whatever Mach-O, PE, COFF and universal files hold, the loader gives a result or an EmitterError: nothing else."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emitter.errors import EmitterError
from emitter.loaders import load
from tests.container_files import ARM64, X86_64, bigobj, coff_object, macho, pe, universal
from tests.loader_support import sample_pack

_PACKS = sample_pack() + bytes(-len(sample_pack()) % 64) + sample_pack()
FILES = {
    "macho-64": macho(_PACKS),
    "macho-32-big": macho(sample_pack("big"), wide=False, order="big"),
    "universal": universal([(X86_64, macho(_PACKS)), (ARM64, macho(b"", cputype=ARM64))]),
    "universal-64": universal([(X86_64, macho(_PACKS))], wide=True),
    "pe-64": pe(_PACKS),
    "pe-32": pe(_PACKS, wide=False, machine=0x14C),
    "object": coff_object(_PACKS),
    "bigobj": bigobj(_PACKS),
}
_TABLES = 512  # bytes: all headers of all of them


def use(data: bytes | bytearray) -> None:
    """Open the file, and read what it holds as far as it goes."""
    with contextlib.suppress(EmitterError):
        for pack in load(data).packs:
            assert pack.file_offset >= 0
            assert pack.file_offset + pack.size <= len(data)
            with contextlib.suppress(EmitterError):
                pack.check()


@pytest.mark.parametrize("name", FILES)
def test_the_files_are_right(name: str) -> None:
    library = load(FILES[name])
    library.check()
    assert {len(pack) for pack in library.packs} == {8}


@pytest.mark.parametrize("name", FILES)
def test_every_word_of_the_tables_at_every_edge(name: str) -> None:
    good = FILES[name]
    order = ">" if "big" in name or "universal" in name else "<"
    for offset in range(2, _TABLES, 2):
        for form, size in (("H", 2), ("I", 4), ("Q", 8)):
            for value in (0, 1, 255, 1 << 15, (1 << 8 * size) - 1, (1 << 8 * size - 1)):
                if value < 1 << 8 * size:
                    changed = bytearray(good)
                    struct.pack_into(order + form, changed, offset, value)
                    use(changed)


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(sorted(FILES)),
    st.lists(st.tuples(st.integers(0, _TABLES), st.binary(min_size=1, max_size=9)), max_size=5),
    st.integers(0, 1 << 15),
)
def test_mutations_and_truncations(name: str, patches: list[tuple[int, bytes]], cut: int) -> None:
    good = FILES[name]
    changed = bytearray(good)
    for offset, patch in patches:
        changed[offset : offset + len(patch)] = patch
    use(changed)
    use(changed[: cut % len(good)])


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.sampled_from([data[:size] for data in FILES.values() for size in (2, 4, 8, 12, 96)]))
def test_any_bytes_behind_a_magic(tail: bytes, head: bytes) -> None:
    use(head + tail)
