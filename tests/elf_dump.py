"""A readable dump of an ELF file, by pyelftools: every header and table, and a digest of what is long."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import SymbolTableSection

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["dump"]

_SHORT = 64  # bytes that are shown whole


def dump(path: Path) -> str:
    """Return the dump of an ELF file, line by line."""
    with path.open("rb") as file:
        return "\n".join(_lines(ELFFile(file))) + "\n"


def _lines(elf: ELFFile) -> Iterator[str]:
    yield _fields("file header", elf.header, elf.header["e_ident"])
    for segment in elf.iter_segments():
        yield _fields("segment", segment.header)
    for number, section in enumerate(elf.iter_sections()):
        yield _fields(f"section {number} {section.name!r}", section.header)
        if isinstance(section, SymbolTableSection):
            for symbol in section.iter_symbols():
                entry = symbol.entry
                yield f"  symbol {symbol.name!r}: " + " ".join(
                    f"{name}={_text(value)}"
                    for name, value in {**entry, **entry["st_info"], **entry["st_other"]}.items()
                    if name not in ("st_info", "st_other", "st_name")
                )
        elif isinstance(section, DynamicSection):
            for tag in section.iter_tags():
                yield f"  {tag.entry.d_tag}={tag.entry.d_val:#x}"
        elif isinstance(section, RelocationSection):
            for relocation in section.iter_relocations():
                yield "  relocation " + " ".join(f"{k}={_text(v)}" for k, v in relocation.entry.items())
        elif section["sh_type"] not in ("SHT_NULL", "SHT_NOBITS"):
            data = section.data()
            yield f"  {data.hex(' ')}" if len(data) <= _SHORT else f"  SHA-256 {hashlib.sha256(data).hexdigest()}"


def _fields(title: str, *headers: Mapping[str, object]) -> str:
    fields = (f"{k}={_text(v)}" for header in headers for k, v in header.items() if k not in ("e_ident", "EI_MAG"))
    return f"{title}: {' '.join(fields)}"


def _text(value: object) -> str:
    return f"{value:#x}" if isinstance(value, int) else str(value)
