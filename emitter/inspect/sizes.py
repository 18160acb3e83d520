"""Where the bytes of a pack, or of an object file, go."""

from __future__ import annotations

import re

from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from emitter.inspect.report import PackEntry, Report

__all__ = ["Node", "PackSizes", "module_nodes", "pack_sizes", "section_tree", "tensor_tree"]


class PackSizes(NamedTuple):
    """The bytes of a pack: index + payload + padding is its size. `deduplicated` would come on top without sharing."""

    index_size: int
    payload: int
    padding: int
    deduplicated: int


class Node(NamedTuple):
    """What the names that begin with `name` have together: bytes, as if each were stored by itself, and how many."""

    name: str
    size: int
    members: int
    children: list[Node]


def pack_sizes(pack: PackEntry) -> PackSizes:
    """Return the sizes of a pack; a payload that tensors or modules share is counted once.

    What a sidecar holds is not in it.
    """
    total = 0
    stored: dict[int, int] = {}
    owners = [(tensor.offset, tensor.nbytes) for tensor in pack.tensors()]
    owners += ((one.offset, one.size) for module in pack.modules for one in module.alternatives)
    for offset, size in owners:
        total += size
        stored[offset] = max(size, stored.get(offset, 0))
    stored_size = sum(stored.values())
    payload = 0 if pack.sidecar else stored_size
    return PackSizes(pack.index_size, payload, pack.size - pack.index_size - payload, total - stored_size)


def tensor_tree(pack: PackEntry, depth: int) -> list[Node]:
    """Return the tensors of a pack by the parts of their names (split at `.` and `/`), the largest first."""
    return _tree(((tensor.name, tensor.nbytes) for tensor in pack.tensors()), depth)


def module_nodes(pack: PackEntry) -> list[Node]:
    """Return the modules of a pack by name, each with the bytes of all its forms; below it these by kind and number."""
    nodes = []
    for module in pack.modules:
        forms = [
            Node(f"{number} ({one.kind} {one.schema_version})", one.size, 1, [])
            for number, one in enumerate(module.alternatives)
        ]
        nodes.append(Node(module.name, sum(form.size for form in forms), len(forms), forms if len(forms) > 1 else []))
    return sorted(nodes, key=lambda node: (-node.size, node.name))


def section_tree(report: Report, depth: int) -> list[Node]:
    """Return the sections that have bytes in the file by the parts of their names, the largest first."""
    return _tree(((section.name, section.file_size) for section in report.sections if section.file_size), depth)


class _Growing:
    __slots__ = ("children", "members", "size")

    def __init__(self) -> None:
        self.size = self.members = 0
        self.children: dict[str, _Growing] = {}


def _tree(items: Iterable[tuple[str, int]], depth: int) -> list[Node]:
    root = _Growing()
    for name, size in items:
        node = root
        for prefix in _prefixes(name, depth):
            node = node.children.setdefault(prefix, _Growing())
            node.size += size
            node.members += 1
    return _nodes(root)


def _prefixes(name: str, depth: int) -> Iterator[str]:
    """Yield `a`, `a.b` and so on, at most `depth` of them, the last one the whole name where it has no more parts."""
    ends = [match.start() for match in re.finditer(r"(?<=.)[./]", name)][:depth]
    yield from (name[:end] for end in ends)
    if len(ends) < depth:
        yield name


def _nodes(node: _Growing) -> list[Node]:
    found = [Node(name, child.size, child.members, _nodes(child)) for name, child in node.children.items()]
    return sorted(found, key=lambda child: (-child.size, child.name))
