"""Programs for GPUs as files of their own. `emitter.device` reads them, here and where they are emitted."""

from __future__ import annotations

from emitter.device import program_format
from emitter.inspect.report import Identity, Reader, Report
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from emitter.inspect.view import View

__all__ = ["DeviceFile", "device_format"]

_SUFFIXES = {".fatbin": "fatbin", ".ptx": "ptx"}
_FORMATS = {"fatbin": "fatbin", "PTX": "ptx"}  # cubins are ELF files, which have a reader


def device_format(head: bytes, name: str) -> str | None:
    """Return `fatbin` or `ptx` for what begins, or is called, like one; else None."""
    found = _FORMATS.get(program_format(head) or "")
    return found or next((kind for suffix, kind in _SUFFIXES.items() if name.endswith(suffix)), None)


class DeviceFile(Reader):
    """A fatbin or a PTX text as a file of its own. Its rules are in `emitter.verify.rules.device`."""

    def __init__(self, view: View, format: str) -> None:  # noqa: A002 - the word of the report
        super().__init__(view)
        self.format = format
        self.kind = {"fatbin": "CUDA fatbin", "ptx": "PTX text"}[format]

    def report(self, page_size: int = 0) -> Report:
        """Return a report that says what the file is, and nothing else."""
        view = self.view
        identity = Identity(self.format, "device program", "CUDA")
        return Report(
            view.where, view.base, view.size, identity, page_size, (), (), 0, lambda: iter(()), (), (), (), ()
        )
