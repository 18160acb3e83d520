"""Turns constants into linkable and loadable machine files, for any target, from one host.

>>> import emitter
>>> package = emitter.Package()
>>> package.add_raw("table", b"0123456789abcdef")
>>> artefacts = emitter.emit(package, "/tmp/libtable.so", target="aarch64-linux-gnu")
>>> with emitter.load("/tmp/libtable.so") as library:
...     bytes(library["table"])
b'0123456789abcdef'
"""

from __future__ import annotations

import importlib

from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from emitter.driver import Artefact, emit
    from emitter.errors import EmitterError
    from emitter.loaders import load
    from emitter.package import Package

__all__ = ["Artefact", "EmitterError", "Package", "__version__", "emit", "load"]

__version__ = "0.1.0"

# Imported when first used: a command that needs one of them does not pay for the others.
_HOMES = {
    "Artefact": "emitter.driver",
    "EmitterError": "emitter.errors",
    "Package": "emitter.package",
    "emit": "emitter.driver",
    "load": "emitter.loaders",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        msg = f"module 'emitter' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
