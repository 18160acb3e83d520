"""Finds the sidecar of a library, and checks that it belongs to it: docs/pack-format.md, Sidecar."""

from __future__ import annotations

import os

from emitter.errors import EmitterError, LoadError, shown
from emitter.loaders._memory import map_file
from emitter.loaders._pack import Index

__all__ = ["follow"]

_STEP = 1 << 20


def follow(index: Index, path: str) -> tuple[str, Index]:
    """Return path and index of the sidecar that `index`, the index pack in the file `path`, names.

    Raises LoadError for one that is not there or is another one, and what `Index` raises for one that is no pack; each
    names the file.
    """
    name, pin = index.sidecar()
    folders = dict.fromkeys((os.path.dirname(path), os.path.dirname(os.path.realpath(path))))
    candidates = [os.path.join(folder, name) for folder in folders]
    found = next(filter(os.path.exists, candidates), None)
    if found is None:
        raise LoadError(
            f"its bytes are in the file {shown(name)}, which is not there",
            where=index.where,
            expected=" or ".join(dict.fromkeys(map(os.path.abspath, candidates))),
            hint="put it beside the library",
        )
    try:
        data = map_file(found)
        if pin is not None:
            _check_pin(data, found, *pin)
        sidecar = Index(data, found)
        _check_kinship(index, sidecar)
    except EmitterError as error:
        error.hint = f"it is the sidecar that {path} names: put the right one there"
        raise
    return found, sidecar


def _check_pin(data: memoryview, where: str, size: int, sha256: bytes) -> None:
    import hashlib

    if len(data) != size:
        raise LoadError(
            "not the file that the library is pinned to", where=where, expected=f"{size} bytes", actual=len(data)
        )
    digest = hashlib.sha256()
    for start in range(0, size, _STEP):
        digest.update(data[start : start + _STEP])
    if digest.digest() != sha256:
        raise LoadError(
            "not the file that the library is pinned to",
            where=where,
            expected=f"SHA-256 {sha256.hex()}",
            actual=digest.hexdigest(),
        )


def _check_kinship(index: Index, sidecar: Index) -> None:
    if sidecar.header.sidecar:
        raise LoadError("an index without bytes", where=sidecar.where, expected="a pack with them")
    pairs = (
        ("byte order", index.header.byte_order, sidecar.header.byte_order),
        ("schema_hash", f"{index.header.schema_hash:#018x}", f"{sidecar.header.schema_hash:#018x}"),
    )
    for what, expected, actual in pairs:
        if expected != actual:
            raise LoadError(
                f"the sidecar is of another library: its {what} differs",
                where=sidecar.where,
                expected=expected,
                actual=actual,
            )
