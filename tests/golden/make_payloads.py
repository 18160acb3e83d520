"""Writes the golden libraries of modules from dataclasses, one for each version of their form; what is there stays.

    python -m tests.golden.make_payloads

A library for x86-64 Linux holds one module, of `tests.payload_versions`, and the tensors that it refers to.
"""

from __future__ import annotations

import os
import sys

from emitter import Package, emit
from emitter.payloads import encode, tensor_names
from tests.c_tools import ROOT
from tests.payload_versions import CURRENT, KIND, graph_of

PAYLOADS = os.path.join(ROOT, "tests", "golden", "payloads")


def library_of(version: int) -> str:
    """Return the path of the library of a version."""
    return os.path.join(PAYLOADS, f"libnet-v{version}.so")


def golden_package(version: int) -> Package:
    """Return the package of a version."""
    import numpy

    package = Package(model_version=str(version))
    package.add_tensor("conv.weight", numpy.arange(4, dtype="float32"))
    package.add_tensor("dense.weight", numpy.arange(6, dtype="int16"))
    graph = graph_of(version)
    package.add_module("net", KIND, encode(graph), schema_version=version, functions={"infer": tensor_names(graph)})
    return package


def main() -> None:
    """Write the libraries that are not there."""
    os.makedirs(PAYLOADS, exist_ok=True)
    for version in range(1, CURRENT + 1):
        if not os.path.exists(library_of(version)):
            emit(golden_package(version), library_of(version), target="x86_64-linux-gnu")
            sys.stdout.write(f"{library_of(version)}\n")


if __name__ == "__main__":
    main()
