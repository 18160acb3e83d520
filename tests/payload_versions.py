"""A kind of module whose form has changed twice, as its author keeps it: the dataclasses of today and of before.

The golden libraries of `tests.golden.make_payloads` hold each version as it was written then.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from emitter.loaders import ModuleSource, Registry
from emitter.payloads import TensorRef, decode, encode

__all__ = ["CURRENT", "KIND", "Graph", "GraphV1", "GraphV2", "Node", "Quantisation", "graph_of", "registry"]

KIND = "example.graph"
CURRENT = 3


@dataclass(frozen=True)
class GraphV1:
    """Version 1: one chain of operations, each with one weight."""

    name: str
    operations: list[str]
    weights: list[TensorRef]

    def __post_init__(self) -> None:
        if len(self.operations) != len(self.weights):
            raise ValueError("each operation has one weight")


@dataclass(frozen=True)
class NodeV2:
    """A node of version 2."""

    operation: str
    inputs: list[int]
    weights: list[TensorRef] = field(default_factory=list)
    attributes: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.stride.is_integer():
            raise ValueError("a stride is a whole number")

    @property
    def stride(self) -> float:
        """The attribute of that name, or 1."""
        return self.attributes.get("stride", 1.0)


@dataclass(frozen=True)
class GraphV2:
    """Version 2: a graph, whose nodes number their inputs; -1 is the graph's input."""

    name: str
    nodes: list[NodeV2]


@dataclass(frozen=True)
class Quantisation:
    """How a tensor is quantised."""

    scale: float
    zero_point: int = 0


@dataclass(frozen=True)
class Node:
    """A node: attributes have a place each instead of names, and a weight may be quantised."""

    operation: str
    inputs: tuple[int, ...]
    weights: tuple[TensorRef, ...] = ()
    stride: int = 1
    quantisation: Quantisation | None = None


@dataclass(frozen=True)
class Graph:
    """Version 3, the current one. `engine` came later, within the version: it has a default."""

    name: str
    nodes: tuple[Node, ...]
    engine: bytes | None = None


def one_to_two(data: memoryview) -> bytes:
    """Make the chain of version 1 the graph of version 2."""
    old = decode(GraphV1, data)
    nodes = [
        NodeV2(operation, [number - 1], [weight])
        for number, (operation, weight) in enumerate(zip(old.operations, old.weights, strict=True))
    ]
    return encode(GraphV2(old.name, nodes))


def two_to_three(data: memoryview) -> bytes:
    """Give the attribute `stride` its place."""
    old = decode(GraphV2, data)
    nodes = [Node(node.operation, tuple(node.inputs), tuple(node.weights), int(node.stride)) for node in old.nodes]
    return encode(Graph(old.name, tuple(nodes)))


def registry() -> Registry:
    """Return a registry with the loader of the current version and the steps that lead to it."""
    made = Registry()

    @made.module_loader(KIND, schema_version=CURRENT)
    def load_graph(source: ModuleSource) -> Graph:
        return decode(Graph, source.bytes())

    made.module_upgrade(KIND, 1)(one_to_two)
    made.module_upgrade(KIND, 2)(two_to_three)
    return made


def graph_of(version: int) -> object:
    """Return the graph that the golden library of a version holds."""
    weights = [TensorRef("conv.weight"), TensorRef("dense.weight")]
    if version == 1:
        return GraphV1("net", ["conv", "dense"], weights)
    if version == 2:
        nodes = [NodeV2("conv", [-1], weights[:1], {"stride": 2.0}), NodeV2("dense", [0], weights[1:])]
        return GraphV2("net", nodes)
    conv = Node("conv", (-1,), (weights[0],), 2, Quantisation(0.25, -3))
    return Graph("net", (conv, Node("dense", (0,), (weights[1],))), b"\x00engine")
