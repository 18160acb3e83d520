"""The export trie, walked by code of the tests' own and by lief."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emitter.image.trie import export_trie
from tests.macho_files import trie_exports

NAMES = st.text(alphabet="_abt0", min_size=1, max_size=12)
# Addresses at the edges of ULEB128 and of 32 bits.
ADDRESSES = st.sampled_from([0, 1, 127, 128, 16383, 16384, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 63])


@settings(max_examples=300, deadline=None)
@given(exports=st.dictionaries(NAMES, ADDRESSES, max_size=40))
def test_every_name_is_found(exports: dict[str, int]) -> None:
    trie = export_trie((name.encode(), address) for name, address in exports.items())
    assert trie_exports(trie) == exports


def test_order_of_the_exports_does_not_matter() -> None:
    exports = [
        (name, 64 * number) for number, name in enumerate([b"_m", b"_m_size", b"_m_t_a", b"_n", b"_emitter_pack"])
    ]
    assert export_trie(exports) == export_trie(reversed(exports))


def test_no_exports() -> None:
    assert export_trie([]) == b"\0\0"


@pytest.mark.parametrize("count", [1000, 5000])
def test_each_name_the_beginning_of_the_next(count: int) -> None:
    """The deepest trie there is: no recursion, and offsets that grow from one round to the next."""
    exports = {"_" + "x" * number: number for number in range(1, count)}
    assert trie_exports(export_trie((name.encode(), address) for name, address in exports.items())) == exports


def test_one_node_with_as_many_edges_as_there_are_bytes() -> None:
    exports = [(bytes([byte]) + b"_", byte) for byte in range(1, 256)]
    trie = export_trie(exports)
    assert trie[:2] == b"\0\xff"
    assert len(trie) > 255 * 5


def test_prefixes_are_shared() -> None:
    long = b"_model_with_a_long_name"
    both = export_trie([(long, 0x4000), (long + b"_size", 0x3FF8)])
    assert both.count(long) == 1 and both.count(b"_size") == 1
