"""Writes the golden sidecars of the version that is written now; those of released versions are never written again.

    python -m tests.golden.make_sidecars

For either byte order a folder with an index pack (`index`), as a library holds it, and its sidecar (`weights.pack`):
the little-endian one takes any file of its schema, the big-endian one is pinned to its own.
"""

from __future__ import annotations

import hashlib
import os
import sys
from typing import TYPE_CHECKING

from emitter import Package
from emitter.checksum import crc32c
from emitter.pack.format import SIDECAR_ALIGNMENT, VERSION_MAJOR, VERSION_MINOR
from emitter.pack.plan import plan_index, plan_pack, point_to_sidecar
from tests.c_tools import ROOT
from tests.support import build_pack

if TYPE_CHECKING:
    from emitter.package import ByteOrder

SIDECARS = os.path.join(ROOT, "tests", "golden", "sidecars")
NAME = "weights.pack"
ORDERS: tuple[ByteOrder, ByteOrder] = ("little", "big")


def golden_package() -> Package:
    """Return the package of the golden sidecars."""
    import numpy

    package = Package(metadata={"licence": "0BSD"}, model_version="v1")
    package.add_tensor("weight", numpy.arange(6, dtype="float32").reshape(2, 3))
    package.add_tensor("bias", numpy.array([1, -2], "int16"), metadata={"unit": "V"})
    package.add_module("engine", "tensorrt", b"an engine", requires={"sm": "87"}, functions={"infer": ["weight"]})
    package.add_alternative("engine", "graph", b"a graph", schema_version=2)
    return package


def golden_files(order: ByteOrder) -> dict[str, bytes]:
    """Return the files of one byte order, by name."""
    package, pinned = golden_package(), order == "big"
    plan = plan_pack(package, order, first_payload=SIDECAR_ALIGNMENT)
    weights = build_pack(package, order, first_payload=SIDECAR_ALIGNMENT)
    crcs = [crc32c(weights[payload.offset : payload.offset + payload.size]) for payload in plan.payloads]
    pin = {"size": len(weights), "sha256": hashlib.sha256(weights).digest()} if pinned else {}
    index = point_to_sidecar(plan_index(package, order, sidecar=NAME, pinned=pinned), plan, crcs, **pin)  # type: ignore[arg-type] # a size and a hash
    return {"index": index.render_index([]), NAME: weights}


def folder_of(order: ByteOrder) -> str:
    """Return the folder of this version's files."""
    return os.path.join(SIDECARS, f"v{VERSION_MAJOR}.{VERSION_MINOR}-{order}")


def main() -> None:
    """Write the files of both byte orders."""
    for order in ORDERS:
        os.makedirs(folder_of(order), exist_ok=True)
        for name, data in golden_files(order).items():
            with open(os.path.join(folder_of(order), name), "wb") as file:
                file.write(data)
        sys.stdout.write(f"{folder_of(order)}\n")


if __name__ == "__main__":
    main()
