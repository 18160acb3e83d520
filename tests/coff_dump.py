"""COFF objects and DLLs as text, for golden dumps: what lief reads of them, and a hash of every byte."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import lief

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["dump"]

_OPTIONAL = (
    "imagebase", "section_alignment", "file_alignment", "major_operating_system_version",
    "minor_operating_system_version", "major_subsystem_version", "minor_subsystem_version", "sizeof_image",
    "sizeof_headers", "checksum", "dll_characteristics", "addressof_entrypoint", "sizeof_code",
    "sizeof_initialized_data",
)  # fmt: skip


def dump(path: Path) -> str:
    """Return the dump of an object or a DLL."""
    data = path.read_bytes()
    lines = [*(_image(path) if data[:2] == b"MZ" else _object(path))]
    return "\n".join([*lines, f"{len(data)} bytes, SHA-256 {hashlib.sha256(data).hexdigest()}", ""])


def _object(path: Path) -> Iterator[str]:
    parsed = lief.COFF.parse(str(path))
    assert isinstance(parsed, lief.COFF.Binary)
    header = parsed.header
    yield "IMAGE_FILE_HEADER"
    yield f"  machine={header.machine.value:#x} time_date_stamp={header.timedatestamp}"
    yield f"  pointer_to_symbol_table={header.pointerto_symbol_table:#x} number_of_symbols={header.nb_symbols}"
    for section in parsed.sections:
        yield _section(section)
    for symbol in parsed.symbols:
        yield (
            f"symbol {_text(symbol.name)} value={symbol.value:#x} section={symbol.section_idx} "
            f"class={symbol.storage_class.value} type={int(symbol.base_type) + int(symbol.complex_type)}"
        )


def _image(path: Path) -> Iterator[str]:
    parsed = lief.PE.parse(str(path))
    assert isinstance(parsed, lief.PE.Binary)
    header, optional = parsed.header, parsed.optional_header
    yield f"IMAGE_DOS_HEADER e_lfanew={parsed.dos_header.addressof_new_exeheader:#x}"
    yield "IMAGE_FILE_HEADER"
    yield f"  machine={header.machine.value:#x} time_date_stamp={header.time_date_stamps}"
    yield f"  size_of_optional_header={header.sizeof_optional_header} characteristics={header.characteristics:#x}"
    yield f"IMAGE_OPTIONAL_HEADER magic={optional.magic.value:#x} subsystem={optional.subsystem.value}"
    for field in _OPTIONAL:
        yield f"  {field}={getattr(optional, field):#x}"
    for directory in parsed.data_directories:
        if directory.size:
            yield f"  {directory.type.name} {directory.rva:#x}+{directory.size:#x}"
    for section in parsed.sections:
        yield _section(section)
    exports = parsed.get_export()
    assert exports is not None
    yield f"exports of {_text(exports.name)} ordinal_base={exports.ordinal_base} time_date_stamp={exports.timestamp}"
    for entry in exports.entries:
        yield f"  {entry.ordinal} {entry.address:#x} {_text(entry.name)}"


def _section(section: lief.PE.Section | lief.COFF.Section) -> str:
    return (
        f"section {_text(section.name)} vm {section.virtual_address:#x}+{section.virtual_size:#x} "
        f"file {section.pointerto_raw_data:#x}+{section.sizeof_raw_data:#x} "
        f"characteristics={int(section.characteristics):#x}"
    )


def _text(name: str | bytes) -> str:
    return name if isinstance(name, str) else name.decode()
