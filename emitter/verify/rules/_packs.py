"""The packs of a file with their bytes: what the rules about packs and about programs for GPUs share."""

from __future__ import annotations

import os
from contextlib import contextmanager

from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.inspect.view import View
    from emitter.loaders import Pack
    from emitter.verify.check import Check

__all__ = ["Payload", "alone", "data_of", "loaded", "payloads"]


class Payload(NamedTuple):
    """Bytes that a pack names: of a tensor, or of an alternative of a module.

    `offset` counts from the start of the file that holds them; `kind` and `conditions` (their keys) are a module's.
    """

    subject: str
    kind: str
    offset: int
    size: int
    alignment: int
    crc32c: int
    conditions: tuple[str, ...] = ()


def loaded(check: Check) -> list[Pack]:
    """Return the packs of a file as the loader gives them. Those that follow their sidecar have its bytes."""

    def find() -> list[Pack]:
        from emitter.errors import LoadError
        from emitter.loaders import load

        if not check.report.packs:
            return []
        if alone(check):
            try:
                return list(load(check.path).packs)
            except LoadError:
                pass  # a sidecar that is not there: its own rule says so
        return list(load(check.view.buffer()).packs)

    return check.fact("loaded packs", find)


def alone(check: Check) -> bool:
    """Return whether the file is a file of its own, which has a folder to look for a sidecar in."""
    return not check.member and not check.containers


@contextmanager
def data_of(check: Check, pack: Pack) -> Iterator[View | None]:
    """Yield a view of the file that holds the bytes of a pack, or None where that is a sidecar which is not there."""
    if not pack.sidecar:
        yield check.view
    elif os.path.basename(pack.path) == pack.sidecar:
        from emitter.inspect.view import View

        with View.open(pack.path) as view:
            yield view
    else:
        yield None


def payloads(pack: Pack) -> Iterator[Payload]:
    """Yield the payloads that a pack names, each as often as it is named."""
    for tensor in pack.tensors():
        yield Payload(f"tensor {tensor.name}", "", tensor.file_offset, tensor.nbytes, tensor.alignment, tensor.crc32c)
    for module in pack.modules:
        for one in module.alternatives:
            subject = f"module {module.name or module.number}, alternative {one.number}"
            keys = tuple(condition.key for condition in one.conditions)
            yield Payload(subject, one.kind, one.file_offset, one.size, one.alignment, one.crc32c, keys)
