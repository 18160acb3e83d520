"""The export trie of a Mach-O image, by which dyld finds symbols.

Source: <mach-o/loader.h> (`dyld_info_command`, "export trie"). Every node says the size of its terminal information
(0 for none), that information (here: flags 0 and the address), and its edges: the bytes, a NUL, the offset of the child
in the trie. Numbers are ULEB128. No two edges of a node begin with the same byte, so names that share a beginning share
nodes: dyld walks one edge at a time and never goes back.
"""

from __future__ import annotations

from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["export_trie"]


class _Node:
    __slots__ = ("edges", "offset", "terminal")

    def __init__(self) -> None:
        self.terminal = b""
        self.edges: list[tuple[bytes, _Node]] = []
        self.offset = 0


def export_trie(exports: Iterable[tuple[bytes, int]]) -> bytes:
    """Return the trie of `exports`: names without NUL, each once, and their offsets from the mach header."""
    root = _build(sorted(exports))
    nodes = _preorder(root)
    # Offsets are numbers of variable length: they only grow from one round to the next, so this ends.
    while True:
        position, moved = 0, False
        for node in nodes:
            moved |= node.offset != position
            node.offset = position
            position += _size(node)
        if not moved:
            return b"".join(map(_render, nodes))


def _build(exports: list[tuple[bytes, int]]) -> _Node:
    """Return the root; `path` holds the nodes on the way to the name added last, with the length of their prefixes."""
    root = _Node()
    path = [(0, root)]
    last = b""
    for name, address in exports:
        common = _common(last, name)
        below = None
        while path[-1][0] > common:
            below = path.pop()
        length, parent = path[-1]
        if below is not None and length < common:
            # The edge to `below` is cut where the two names part.
            middle = _Node()
            parent.edges[-1] = (last[length:common], middle)
            middle.edges.append((last[common : below[0]], below[1]))
            path.append((common, middle))
            parent = middle
        leaf = _Node()
        info = _uleb(0) + _uleb(address)
        leaf.terminal = _uleb(len(info)) + info
        parent.edges.append((name[common:], leaf))
        path.append((len(name), leaf))
        last = name
    return root


def _common(one: bytes, other: bytes) -> int:
    """Return the length of the common beginning."""
    length = min(len(one), len(other))
    for index in range(length):
        if one[index] != other[index]:
            return index
    return length


def _preorder(root: _Node) -> list[_Node]:
    nodes, waiting = [], [root]
    while waiting:
        node = waiting.pop()
        nodes.append(node)
        waiting += (child for _, child in reversed(node.edges))
    return nodes


def _size(node: _Node) -> int:
    edges = sum(len(edge) + 1 + _uleb_size(child.offset) for edge, child in node.edges)
    return (len(node.terminal) or 1) + 1 + edges


def _render(node: _Node) -> bytes:
    parts = [node.terminal or b"\0", bytes([len(node.edges)])]
    parts += (edge + b"\0" + _uleb(child.offset) for edge, child in node.edges)
    return b"".join(parts)


def _uleb_size(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)


def _uleb(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
