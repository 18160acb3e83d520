"""Writes the golden dumps, as text: objects and shared libraries of each object format.

    python -m tests.golden.make_dumps

A difference in `git diff` afterwards is a change of what is written, to be looked at field by field.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import emitter
from tests import coff_dump, elf_dump, macho_dump

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DUMPS", "make", "path_of"]

# Of each dump, which is called by its folder and name: the file, its target, and the options.
DUMPS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "elf/aarch64-object": ("model.o", "aarch64-linux-gnu", {"tensor_symbols": True, "retain": True}),
    "elf/thumbv6m-object-xxd": ("model.o", "thumbv6m-none-eabi", {"symbols": "xxd"}),
    "elf/x86_64-library": ("libmodel.so", "x86_64-linux-gnu", {"tensor_symbols": True}),
    "elf/s390x-library": ("libmodel.so", "s390x-linux-gnu", {}),
    "elf/armv7-library": ("libmodel.so", "armv7-linux-androideabi", {}),
    "macho/arm64-object": ("model.o", "arm64-apple-macos", {"tensor_symbols": True, "retain": True}),
    "macho/x86_64-object-xxd": ("model.o", "x86_64-apple-macos", {"symbols": "xxd"}),
    "macho/arm64-library": ("libmodel.dylib", "arm64-apple-macos", {"tensor_symbols": True}),
    "macho/ios-library": ("libmodel.dylib", "arm64-apple-ios", {"install_name": "@rpath/Model.framework/Model"}),
    "coff/x86_64-object": (
        "model.obj",
        "x86_64-windows-msvc",
        {"tensor_symbols": True, "section": ".weights_of_a_model"},
    ),
    "coff/i686-object-ld": ("model.o", "i686-windows-gnu", {"symbols": "ld"}),
    "coff/x86_64-library": ("model.dll", "x86_64-windows-msvc", {"tensor_symbols": True}),
    "coff/aarch64-library": ("model.dll", "aarch64-windows-msvc", {}),
    "coff/i686-library": ("libmodel.dll", "i686-windows-gnu", {}),
}
_DUMPERS: dict[str, Callable[[Path], str]] = {
    "elf": elf_dump.dump,
    "macho": macho_dump.dump,
    "coff": coff_dump.dump,
}
_PAYLOADS = {"bias": b"\1\2\3\4" * 16, "weights": bytes(range(256)) * 80}


def path_of(name: str) -> Path:
    """Return where the dump `name` is kept."""
    return Path(__file__).parent / f"{name}.txt"


def make(name: str, folder: Path) -> str:
    """Return the dump `name`; its file is written into `folder`."""
    file, target, options = DUMPS[name]
    package = emitter.Package()
    for tensor, payload in _PAYLOADS.items():
        package.add_raw(tensor, payload)
    emitter.emit(package, folder / file, target=target, **options)
    return _DUMPERS[name.partition("/")[0]](folder / file)


def main() -> None:
    """Write all of them."""
    for name in DUMPS:
        path_of(name).parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            path_of(name).write_text(make(name, Path(scratch)), encoding="utf-8")
        sys.stdout.write(f"{path_of(name)}\n")


if __name__ == "__main__":
    main()
