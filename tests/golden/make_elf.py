"""Writes the golden dumps of ELF files: objects and shared libraries, as text.

    python -m tests.golden.make_elf

A difference in `git diff` afterwards is a change of what is written, to be looked at field by field.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import emitter
from tests.elf_dump import dump

__all__ = ["DUMPS", "FOLDER", "make"]

FOLDER = Path(__file__).parent / "elf"
# Of each dump: the file, its target, and the options.
DUMPS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "aarch64-object": ("model.o", "aarch64-linux-gnu", {"tensor_symbols": True, "retain": True}),
    "thumbv6m-object-xxd": ("model.o", "thumbv6m-none-eabi", {"symbols": "xxd"}),
    "x86_64-library": ("libmodel.so", "x86_64-linux-gnu", {"tensor_symbols": True}),
    "s390x-library": ("libmodel.so", "s390x-linux-gnu", {}),
    "armv7-library": ("libmodel.so", "armv7-linux-androideabi", {}),
}
_PAYLOADS = {"bias": b"\1\2\3\4" * 16, "weights": bytes(range(256)) * 80}


def make(name: str, folder: Path) -> str:
    """Return the dump `name`; its file is written into `folder`."""
    file, target, options = DUMPS[name]
    package = emitter.Package()
    for tensor, payload in _PAYLOADS.items():
        package.add_raw(tensor, payload)
    emitter.emit(package, folder / file, target=target, **options)
    return dump(folder / file)


def main() -> None:
    """Write all of them."""
    FOLDER.mkdir(exist_ok=True)
    for name in DUMPS:
        with tempfile.TemporaryDirectory() as scratch:
            (FOLDER / f"{name}.txt").write_text(make(name, Path(scratch)), encoding="utf-8")
        sys.stdout.write(f"{FOLDER / name}.txt\n")


if __name__ == "__main__":
    main()
