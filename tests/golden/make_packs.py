"""Writes the golden packs of the version that is written now; those of released versions are never written again.

    python -m tests.golden.make_packs

Each version has one pack for either byte order, of `golden_package` as it was then, and beside it what
tests/data/c/dump.c prints for it.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from emitter import load
from emitter.pack.format import VERSION_MAJOR, VERSION_MINOR
from tests.c_tools import ROOT, dump_text, sample_package
from tests.support import build_pack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter import Package
    from emitter.loaders import Library
    from emitter.package import ByteOrder

PLACES: list[dict[str, str]] = [{"sm": "87", "tensorrt": "10.3"}, {"driver": "551", "sm": "90"}, {}]  # as in dump.c
PACKS = os.path.join(ROOT, "tests", "golden", "packs")


def golden_package() -> Package:
    """Return the package of the golden packs: tensors of every kind, and modules with all that a module may have."""
    package = sample_package()
    graph = package.add_module(
        "graph", "graph", b"a graph", schema_version=3, functions={"plan": ["scalar", "bool"], "idle": []}
    )
    engine = package.add_module(
        "engine",
        "tensorrt",
        b"an engine for sm_87",
        requires={"sm": "== 87", "tensorrt": ">= 10.3, < 11"},
        imports=[graph],
        functions={"infer": ["conv1.weight", "float16", "conv1.weight"]},
        metadata={"precision": "fp16", "empty": ""},
        alignment=256,
    )
    package.add_alternative(engine, "tensorrt", b"an engine for sm_90", requires={"driver": ">= 550.54"})
    package.add_alternative(engine, "graph", b"a fallback", schema_version=2)
    package.add_module("root", "library", b"the root", imports=[engine, graph])
    return package


def module_lines(library: Library) -> Iterator[str]:
    """Yield what dump.c prints of modules, as the Python loader has them."""
    for module in library.modules:
        yield f"module {module.name}"
        for one in module.alternatives:
            yield f"  {one.kind} {one.schema_version} {one.alignment} {one.crc32c:08x} {bytes(one.bytes()).hex()}"
        yield from (f"  chosen {module.select(place).number}" for place in PLACES)
        yield from (f"  import {child.name}" for child in module.imports)
        for name, tensors in module.functions.items():
            yield f"  function {name}:" + "".join(f" {tensor.name}" for tensor in tensors)
        yield from (f"  {key.encode().hex()}={value.encode().hex()}" for key, value in module.metadata.items())


def main() -> None:
    """Write both packs and their descriptions."""
    os.makedirs(PACKS, exist_ok=True)
    package = golden_package()
    orders: tuple[ByteOrder, ByteOrder] = ("little", "big")
    for order in orders:
        stem = os.path.join(PACKS, f"v{VERSION_MAJOR}.{VERSION_MINOR}-{order}")
        pack = build_pack(package, order)
        with open(f"{stem}.pack", "wb") as file:
            file.write(pack)
        with open(f"{stem}.txt", "w", encoding="utf-8") as text:
            opened = load(pack)
            text.write(dump_text(package, order, schema=opened.schema_hash))
            text.writelines(f"{line}\n" for line in module_lines(opened))
        sys.stdout.write(f"{stem}.pack\n")


if __name__ == "__main__":
    main()
