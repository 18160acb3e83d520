"""The JSON of `emitter inspect`, written piece by piece: a symbol table of millions is never in memory."""

from __future__ import annotations

from collections.abc import Iterator

from emitter.errors import EmitterError
from emitter.inspect.modules import module_json
from emitter.inspect.sizes import pack_sizes, tensor_tree
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from emitter.inspect.report import Artefact, PackEntry, Report
    from emitter.inspect.sizes import Node
    from emitter.interop.tvm_read import TvmLibrary

__all__ = ["inspect_document", "pieces"]

_OF_REPORT = (
    "identity", "page_size", "hardening", "dependencies", "segments", "sections", "packs", "tvm", "symbols",
)  # fmt: skip


def pieces(value: object) -> Iterator[str]:
    """Yield a JSON document in pieces; an iterator in it becomes a list that is never held whole.

    Iterators are values of the document, of their items, and so on: what holds none itself holds none deeper.
    """
    import json

    if isinstance(value, dict) and any(isinstance(item, Iterator) for item in value.values()):
        opening = "{"
        for key, item in value.items():
            yield f"{opening}{json.dumps(key)}: "
            yield from pieces(item)
            opening = ",\n"
        yield "}"
    elif isinstance(value, Iterator):
        opening = "["
        for item in value:
            yield opening
            yield from pieces(item)
            opening = ",\n"
        yield "[]" if opening == "[" else "]"
    else:
        yield json.dumps(value)


def inspect_document(
    artefact: Artefact,
    objects: Iterator[tuple[Artefact, Report | None]],
    faults: list[EmitterError],
    depth: int | None,
) -> dict[str, object]:
    """Return the document `emitter.inspect/1`, with iterators in it; `depth` None leaves trees of sizes out.

    `faults` are those of the container, complete when `objects` has ended.
    """
    return {
        "schema": "emitter.inspect/1",
        "path": artefact.name,
        "kind": artefact.kind,
        "size": artefact.view.size,
        "objects": (_object(member, report, depth) for member, report in objects),
        "faults": (error.to_json() for error in faults),
    }


def _object(artefact: Artefact, report: Report | None, depth: int | None) -> dict[str, object]:
    document: dict[str, object] = {
        "member": artefact.name if artefact.parent is not None else "",
        "kind": artefact.kind,
        "file_offset": artefact.view.base,
        "size": artefact.view.size,
    }
    if report is None:
        # Keys do not depend on what a member is, so what cannot be known is null.
        faults = [_fault("header", artefact.error)] if artefact.error else []
        return document | dict.fromkeys(_OF_REPORT) | {"faults": faults}
    faults = [_fault(fault.part, fault.error) for fault in report.faults]
    identity = report.identity._asdict()
    return document | {
        "identity": identity,
        "page_size": report.page_size,
        "hardening": [entry._asdict() for entry in report.hardening],
        "dependencies": [entry._asdict() for entry in report.dependencies],
        "segments": [entry._asdict() for entry in report.segments],
        "sections": (entry._asdict() for entry in report.sections),
        "packs": (_pack(artefact, entry, depth, faults) for entry in report.packs),
        "tvm": [_tvm(artefact, entry) for entry in report.tvm],
        "symbols": _until_broken((entry._asdict() for entry in report.symbols()), "symbols", faults),
        # Last, since reading the symbols may add to it.
        "faults": (fault for fault in faults),
    }


def _pack(artefact: Artefact, pack: PackEntry, depth: int | None, faults: list[dict[str, object]]) -> dict[str, object]:
    sizes: dict[str, object] = {"index": pack.index_size, "payload": None, "padding": None, "deduplicated": None}
    tree = None
    try:
        found = pack_sizes(pack)
        sizes |= {"payload": found.payload, "padding": found.padding, "deduplicated": found.deduplicated}
        tree = None if depth is None else [_node(node) for node in tensor_tree(pack, depth)]
    except EmitterError as error:
        faults.append(_fault("tensors", error))
    base = 0 if pack.sidecar else artefact.view.base
    return {
        "file_offset": artefact.view.base + pack.offset,
        "size": pack.size,
        "symbol": pack.symbol or None,
        "version": ".".join(map(str, pack.version)),
        "byte_order": pack.byte_order,
        "alignment": pack.alignment,
        "model_version": pack.model_version,
        "schema_hash": f"0x{pack.schema_hash:016x}",
        "metadata": pack.metadata,
        "sidecar": pack.sidecar or None,
        "tensors": pack.tensor_count,
        "modules": [module_json(base, module) for module in pack.modules],
        "sizes": sizes | {"tree": tree},
    }


def _tvm(artefact: Artefact, library: TvmLibrary) -> dict[str, object]:
    return {
        "symbol": library.symbol,
        "old": library.old,
        "file_offset": artefact.view.base + library.offset,
        "size": library.size,
        "complete": library.error is None,
        "modules": [
            {
                "kind": module.kind,
                "file_offset": artefact.view.base + module.offset,
                "size": module.size,
                "imports": list(module.imports),
                "tensors": len(module.constants.tensors) if module.constants else 0,
                "functions": [
                    {"name": name, "tensors": list(tensors)}
                    for name, tensors in (module.constants.functions if module.constants else {}).items()
                ],
            }
            for module in library.modules
        ],
    }


def _node(node: Node) -> dict[str, object]:
    children = [_node(child) for child in node.children]
    return {"name": node.name, "size": node.size, "count": node.members, "children": children}


def _until_broken(
    items: Iterator[dict[str, Any]], part: str, faults: list[dict[str, object]]
) -> Iterator[dict[str, Any]]:
    """Yield what can be read; what stops it becomes a fault."""
    try:
        yield from items
    except EmitterError as error:
        faults.append(_fault(part, error))


def _fault(part: str, error: EmitterError) -> dict[str, object]:
    return {"part": part, **error.to_json()}
