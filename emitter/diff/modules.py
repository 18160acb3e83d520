"""Compares the modules of two packages: their facts as text, and their bytes."""

from __future__ import annotations

from itertools import zip_longest

from emitter.checksum import crc32c
from emitter.diff.model import Change
from emitter.diff.tensors import blocks
from emitter.modules import payload_tensors
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from emitter.modules import Alternative, Module
    from emitter.package import Package, Tensor

__all__ = ["compare_modules"]


def compare_modules(a: Package, b: Package) -> list[Change]:
    """Return what differs between the modules of two packages, sorted by name."""
    before, after = _by_name(a), _by_name(b)
    changes = []
    for name in sorted(before.keys() | after.keys()):
        one, other = before.get(name), after.get(name)
        facts = (one and _facts(one[0]), other and _facts(other[0]))
        if facts[0] != facts[1]:
            changes.append(Change("", name, *facts))
        if one is None or other is None:
            continue
        for number, (first, second) in enumerate(zip(one[1], other[1], strict=False)):
            if any(left != right for left, right in zip_longest(blocks(first), blocks(second))):
                changes.append(Change("", f"{name}, bytes of alternative {number}", _content(first), _content(second)))
    return changes


def _by_name(package: Package) -> dict[str, tuple[Module, list[Tensor]]]:
    return {module.name: (module, payload_tensors([module])) for module in package.modules}


def _facts(module: Module) -> str:
    functions = (f"{name}({', '.join(tensors)})" for name, tensors in sorted(module.functions.items()))
    metadata = (f"{key}={value}" for key, value in sorted(module.metadata.items()))
    parts = {
        "": " or ".join(map(_form, module.alternatives)),
        "imports ": ", ".join(child.name for child in module.imports),
        "functions ": ", ".join(functions),
        "metadata ": ", ".join(metadata),
    }
    return "; ".join(label + text for label, text in parts.items() if text)


def _form(one: Alternative) -> str:
    conditions = " and ".join(f"{condition.key} {condition.requirement}" for condition in one.conditions)
    return f"{one.kind} version {one.schema_version}" + (f" if {conditions}" if conditions else "")


def _content(payload: Tensor) -> str:
    crc = 0
    for block in blocks(payload):
        crc = crc32c(block, crc)
    return f"{payload.nbytes} bytes, CRC-32C {crc:#010x}"
