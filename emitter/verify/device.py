"""Programs for GPUs as files: CUDA fatbins and PTX text, recognised and read with bounds.

Sources: `fatbinary_section.h` of the CUDA toolkit for the header of a fatbin; its entries are not documented, and read
here as LLVM and cuobjdump read them. PTX ISA, chapter 4 (directives of a module). Cubins are ELF files (machine 190).
"""

from __future__ import annotations

import re

from emitter.errors import FormatError
from emitter.inspect.report import Identity, Reader, Report
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from emitter.inspect.view import View

__all__ = ["FATBIN_MAGIC", "DeviceFile", "FatbinEntry", "Ptx", "device_format", "read_fatbin", "read_ptx"]

FATBIN_MAGIC = b"\x50\xed\x55\xba"
PTX_KIND, ELF_KIND = 1, 2
BOM = b"\xef\xbb\xbf"

_HEADER_SIZE = 16
_ENTRY_HEADER = 64
_MAX_ENTRIES = 1 << 16
_MAX_PTX_HEAD = 64 << 10  # comments may come before the first directive
_SUFFIXES = {".fatbin": "fatbin", ".ptx": "ptx"}


class FatbinEntry(NamedTuple):
    """A program in a fatbin: `offset` of its header there, `size` of what follows that; `arch` is the sm number."""

    offset: int
    kind: int
    header_size: int
    size: int
    arch: int


class Ptx(NamedTuple):
    """What a PTX text says first: its version, the sm number that it is for, and bits of an address (0: not said)."""

    version: str
    arch: int
    address_size: int


def device_format(head: bytes, name: str) -> str | None:
    """Return `fatbin` or `ptx` for what begins, or is called, like one; else None."""
    if head.startswith(FATBIN_MAGIC):
        return "fatbin"
    text = head.removeprefix(BOM).lstrip()
    if text.startswith(b".version ") or (text.startswith(b"//") and b"\n.version " in head):
        return "ptx"
    return next((kind for suffix, kind in _SUFFIXES.items() if name.endswith(suffix)), None)


def read_fatbin(view: View) -> list[FatbinEntry]:
    """Return the entries of a fatbin; raise FormatError, with the offset, for one that breaks the format."""
    magic = view.read(0, 4, "the magic of the fatbin")
    if magic != FATBIN_MAGIC:
        raise FormatError(
            "not a fatbin",
            where=f"{view.where}: offset 0x0",
            expected=FATBIN_MAGIC.hex(" "),
            actual=magic.hex(" "),
            hint="make it with fatbinary or nvcc",
        )
    version, header_size, size = view.unpack("<HHQ", 4, "the header of the fatbin")
    if version != 1 or header_size != _HEADER_SIZE:
        raise FormatError(
            "the header of the fatbin is of another kind",
            where=f"{view.where}: offset 0x4",
            expected=f"version 1, {_HEADER_SIZE} bytes",
            actual=f"version {version}, {header_size} bytes",
        )
    if size % 8:
        raise FormatError(
            "the size of the fatbin is no multiple of 8", where=f"{view.where}: offset 0x8", actual=f"{size}"
        )
    if header_size + size > view.size:
        raise FormatError(
            "the fatbin is truncated",
            where=f"{view.where}: offset 0x8",
            expected=f"{header_size + size} bytes",
            actual=f"{view.size}",
            hint="copy it again",
        )
    entries: list[FatbinEntry] = []
    position, end = header_size, header_size + size
    while position < end:
        if len(entries) == _MAX_ENTRIES:
            raise FormatError("too many entries", where=view.where, expected=f"at most {_MAX_ENTRIES}")
        view.check(position, _ENTRY_HEADER, "an entry of the fatbin")
        kind, _, entry_header, payload = view.unpack("<HHIQ", position, "an entry of the fatbin")
        (arch,) = view.unpack("<I", position + 28, "an entry of the fatbin")
        where = f"{view.where}: entry {len(entries)} at {position:#x}"
        if entry_header < _ENTRY_HEADER or position + entry_header + payload > end:
            raise FormatError(
                "an entry is not inside of the fatbin",
                where=where,
                expected=f"an end of at most {end:#x}",
                actual=f"{position + entry_header + payload:#x}, header of {entry_header} bytes",
            )
        entries.append(FatbinEntry(position, kind, entry_header, payload, arch))
        position += entry_header + payload
    return entries


def read_ptx(view: View) -> Ptx:
    """Return what a PTX text says first; raise FormatError for what the driver's assembler would not take."""
    head = view.read_up_to(0, _MAX_PTX_HEAD)
    if head.startswith(BOM):
        raise FormatError(
            "the text begins with a byte-order mark",
            where=f"{view.where}: offset 0x0",
            expected=".version",
            actual=BOM.hex(" "),
            hint="save it as UTF-8 without BOM",
        )
    text = re.sub(rb"//[^\n]*|/\*.*?\*/", b" ", head, flags=re.DOTALL)
    match = re.match(rb"\s*\.version\s+(\d+\.\d+)\s+\.target\s+(?:sm|compute)_(\d+)\w*", text)
    if match is None:
        raise FormatError(
            "the text does not begin as PTX",
            where=f"{view.where}: offset 0x0",
            expected=".version, then .target",
            actual=repr(text.strip()[:40].decode("utf-8", "replace")),
        )
    size = re.match(rb"[^.]*\.address_size\s+(\d+)", text[match.end() :])
    return Ptx(match[1].decode(), int(match[2]), int(size[1]) if size else 0)


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
