"""Programs for GPUs as files of their own. `emitter.device` reads them, here and where they are emitted."""

from __future__ import annotations

from emitter.device import program_format
from emitter.inspect.report import Identity, Reader, Report
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from emitter.inspect.view import View

__all__ = ["ELF_PROGRAMS", "DeviceFile", "device_format"]

_SUFFIXES = {".fatbin": "fatbin", ".ptx": "PTX", ".spv": "SPIR-V"}
# ELF files that no system loads: the rules for those that it loads mean nothing for them.
ELF_PROGRAMS = frozenset({"cubin", "hsaco"})
# By the name in `emitter.device`: the format, and the kind in words.
_FORMATS = {
    "cubin": ("cubin", "cubin"),
    "hsaco": ("hsaco", "AMD code object"),
    "fatbin": ("fatbin", "CUDA fatbin"),
    "PTX": ("ptx", "PTX text"),
    "SPIR-V": ("spirv", "SPIR-V module"),
    "HIP bundle": ("hip-bundle", "HIP bundle"),
    "TensorRT plan": ("tensorrt-plan", "TensorRT plan"),
}


def device_format(head: bytes, name: str) -> str | None:
    """Return the name of the format (a key of `emitter.device`) that a file begins, or is called, like; else None."""
    found = program_format(head)
    if found is None:
        found = next((kind for suffix, kind in _SUFFIXES.items() if name.endswith(suffix)), None)
    return found if found in _FORMATS else None


class DeviceFile(Reader):
    """A program for a GPU as a file of its own. Its rules are in `emitter.verify.rules.device`."""

    def __init__(self, view: View, format: str) -> None:  # noqa: A002 - the word of the report
        super().__init__(view)
        self.program = format
        self.format, self.kind = _FORMATS[format]

    def report(self, page_size: int = 0) -> Report:
        """Return a report that says what the file is, and nothing else."""
        view = self.view
        identity = Identity(self.format, "device program", "GPU")
        return Report(
            view.where, view.base, view.size, identity, page_size, (), (), 0, lambda: iter(()), (), (), (), ()
        )
