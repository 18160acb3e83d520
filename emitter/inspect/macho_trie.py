"""Walks the export trie of Mach-O: a radix tree of names whose nodes refer to each other by offset.

A node is the size of its terminal data (ULEB128; 0: no name ends here), that data (flags, then an address, or for a
re-export a library's ordinal and a name), the number of children, and for each child the rest of a name, ended by NUL,
and the offset of its node (ULEB128). A hostile trie has loops, overlapping nodes and endless names: nodes that do not
overlap add up to the trie's size at most, and more than that is refused.

Source: <mach-o/loader.h> (dyld_info_command, EXPORT_SYMBOL_FLAGS_*).
"""

from __future__ import annotations

from emitter.errors import FormatError
from emitter.inspect.view import MAX_READ
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.inspect.view import View

__all__ = ["Export", "walk"]

EXPORT_SYMBOL_FLAGS_WEAK_DEFINITION = 0x04
EXPORT_SYMBOL_FLAGS_REEXPORT = 0x08
EXPORT_SYMBOL_FLAGS_STUB_AND_RESOLVER = 0x10

_MAX_NAME = 64 << 10  # bytes
_MAX_GROWTH = 64  # how many bytes of names one byte of a trie may stand for: real ones stay below 10
_MIN_NAMES = 1 << 20


class Export(NamedTuple):
    """An exported name. `address` counts from the Mach header; a re-export has an ordinal and its name there."""

    name: str
    flags: int
    address: int
    resolver: int = 0  # of a stub: the address of its resolver
    ordinal: int = 0
    imported_name: str = ""

    @property
    def reexport(self) -> bool:
        """Whether another library defines it."""
        return bool(self.flags & EXPORT_SYMBOL_FLAGS_REEXPORT)

    @property
    def weak(self) -> bool:
        """Whether it is a weak definition."""
        return bool(self.flags & EXPORT_SYMBOL_FLAGS_WEAK_DEFINITION)


def walk(view: View, offset: int, size: int) -> Iterator[Export]:
    """Yield the names of the trie of `size` bytes at `offset`, depth first, children in the order in which they stand.

    Raises FormatError for nodes outside, loops, nodes that overlap, and names without end.
    """
    view.check(offset, size, "the export trie")
    if size > MAX_READ:
        # Tries above this size exist in no library that is shipped: 8 MiB hold some 400,000 names.
        raise FormatError("the export trie is too large", where=view.where, expected=f"at most {MAX_READ}", actual=size)
    yield from _Trie(view.read(offset, size, "the export trie"), f"{view.where}: export trie at {offset:#x}").walk()


class _Trie:
    def __init__(self, data: bytes, where: str) -> None:
        self.data, self.where = data, where

    def walk(self) -> Iterator[Export]:
        """Yield every name."""
        read = names = 0
        seen: set[int] = set()
        limit = max(_MIN_NAMES, _MAX_GROWTH * len(self.data))
        waiting: list[tuple[bytes, bytes, int]] = [(b"", b"", 0)] if self.data else []
        while waiting:
            prefix, rest, node = waiting.pop()
            if node in seen:
                raise FormatError("two edges lead to one node", where=self.where, actual=f"node {node:#x}")
            seen.add(node)
            name = prefix + rest
            names += len(name)
            if len(name) > _MAX_NAME or names > limit:
                raise FormatError("the names are too long", where=self.where, actual=f"node {node:#x}")
            export, children, end = self._node(node, name)
            read += end - node
            if read > len(self.data):
                raise FormatError("nodes overlap", where=self.where, actual=f"node {node:#x}")
            if export is not None:
                yield export
            waiting.extend((name, edge, child) for edge, child in reversed(children))

    def _node(self, at: int, name: bytes) -> tuple[Export | None, list[tuple[bytes, int]], int]:
        terminal, position = self._uleb(at)
        export = None
        if terminal:
            if position + terminal > len(self.data):
                raise self._outside(f"the terminal data of node {at:#x}", position + terminal)
            export = self._export(position, position + terminal, name)
            position += terminal
        if position >= len(self.data):
            raise self._outside(f"node {at:#x}", position + 1)
        count = self.data[position]
        position += 1
        children = []
        for _ in range(count):
            end = self.data.find(b"\0", position)
            if end < 0:
                raise self._outside(f"an edge of node {at:#x}", len(self.data) + 1)
            edge = self.data[position:end]
            child, position = self._uleb(end + 1)
            if child >= len(self.data):
                raise self._outside("a node", child + 1)
            children.append((edge, child))
        return export, children, position

    def _export(self, at: int, end: int, name: bytes) -> Export:
        text = name.decode("utf-8", "surrogateescape")
        flags, at = self._uleb(at)
        if flags & EXPORT_SYMBOL_FLAGS_REEXPORT:
            ordinal, at = self._uleb(at)
            imported = self.data[at:end].partition(b"\0")[0]
            return Export(text, flags, 0, 0, ordinal, imported.decode("utf-8", "surrogateescape"))
        address, at = self._uleb(at)
        resolver, at = self._uleb(at) if flags & EXPORT_SYMBOL_FLAGS_STUB_AND_RESOLVER else (0, at)
        if at > end:
            raise self._outside(f"the terminal data of {name!r}", at)
        return Export(text, flags, address, resolver)

    def _uleb(self, position: int) -> tuple[int, int]:
        value = shift = 0
        while position < len(self.data) and shift < 64:
            byte = self.data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFFFFFFFFFFFFFF, position
            shift += 7
        raise FormatError("a ULEB128 number has no end", where=self.where, actual=f"up to offset {position:#x}")

    def _outside(self, what: str, end: int) -> FormatError:
        return FormatError(
            f"{what} ends outside", where=self.where, expected=f"at most {len(self.data):#x}", actual=f"{end:#x}"
        )
