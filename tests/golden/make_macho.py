"""Writes the golden dumps of Mach-O files: an object and a library of each CPU, as text.

    python -m tests.golden.make_macho

A difference in `git diff` afterwards is a change of what is written, to be looked at field by field.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.macho_dump import dump
from tests.macho_files import emit

__all__ = ["DUMPS", "make"]

FOLDER = Path(__file__).parent / "macho"
# Of each dump: the file, its target, and the options.
DUMPS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "arm64-object": ("model.o", "arm64-apple-macos", {"tensor_symbols": True, "retain": True}),
    "x86_64-object-xxd": ("model.o", "x86_64-apple-macos", {"symbols": "xxd"}),
    "arm64-library": ("libmodel.dylib", "arm64-apple-macos", {"tensor_symbols": True}),
    "ios-library": ("libmodel.dylib", "arm64-apple-ios", {"install_name": "@rpath/Model.framework/Model"}),
}
_PAYLOADS: dict[str, bytes | Path] = {"bias": b"\1\2\3\4" * 16, "weights": bytes(range(256)) * 80}


def make(name: str, folder: Path) -> str:
    """Return the dump `name`; its file is written into `folder`."""
    file, target, options = DUMPS[name]
    emit(folder / file, _PAYLOADS, target, **options)
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
