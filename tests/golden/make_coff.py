"""Writes the golden dumps of COFF and PE files: objects and DLLs, as text.

    python -m tests.golden.make_coff

A difference in `git diff` afterwards is a change of what is written, to be looked at field by field.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import emitter
from tests.coff_dump import dump

__all__ = ["DUMPS", "FOLDER", "make"]

FOLDER = Path(__file__).parent / "coff"
# Of each dump: the file, its target, and the options.
DUMPS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "x86_64-object": ("model.obj", "x86_64-windows-msvc", {"tensor_symbols": True, "section": ".weights_of_a_model"}),
    "i686-object-ld": ("model.o", "i686-windows-gnu", {"symbols": "ld"}),
    "x86_64-library": ("model.dll", "x86_64-windows-msvc", {"tensor_symbols": True}),
    "aarch64-library": ("model.dll", "aarch64-windows-msvc", {}),
    "i686-library": ("libmodel.dll", "i686-windows-gnu", {}),
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
