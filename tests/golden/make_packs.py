"""Writes the golden packs of the version that is written now; those of released versions are never written again.

    python -m tests.golden.make_packs

Each version has one pack for either byte order, of the package `tests.c_tools.sample_package` as it was then, and
beside it what tests/data/c/dump.c prints for it.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from emitter.pack.format import VERSION_MAJOR, VERSION_MINOR
from emitter.pack.plan import schema_hash
from tests.c_tools import ROOT, dump_text, sample_package
from tests.support import build_pack

if TYPE_CHECKING:
    from emitter.package import ByteOrder

PACKS = os.path.join(ROOT, "tests", "golden", "packs")


def main() -> None:
    """Write both packs and their descriptions."""
    os.makedirs(PACKS, exist_ok=True)
    package = sample_package()
    orders: tuple[ByteOrder, ByteOrder] = ("little", "big")
    for order in orders:
        stem = os.path.join(PACKS, f"v{VERSION_MAJOR}.{VERSION_MINOR}-{order}")
        with open(f"{stem}.pack", "wb") as file:
            file.write(build_pack(package, order))
        with open(f"{stem}.txt", "w", encoding="utf-8") as text:
            text.write(dump_text(package, order, schema=schema_hash(package.tensors)))
        sys.stdout.write(f"{stem}.pack\n")


if __name__ == "__main__":
    main()
