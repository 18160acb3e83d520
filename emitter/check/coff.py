"""The check of COFF objects after writing.

Source: Microsoft's PE Format, "COFF File Header" to "COFF String Table".
"""

from __future__ import annotations

import struct

from emitter.check.pack import check_pack_within, open_output
from emitter.check.readback import Reader, difference, expect, require, text
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from emitter.layout import FilePlan
    from emitter.pack.plan import PackPlan
    from emitter.targets._base import Target

__all__ = ["Section", "check_object", "read_sections"]

_READ_ONLY = 0x40000040  # IMAGE_SCN_CNT_INITIALIZED_DATA, IMAGE_SCN_MEM_READ
_ALIGNMENT = 0x00F00000  # IMAGE_SCN_ALIGN_*
_EXTERNAL = 2  # IMAGE_SYM_CLASS_EXTERNAL


class Section(NamedTuple):
    """What a section header says, without relocations and line numbers, of which there are none."""

    name: bytes
    virtual_size: int
    virtual_address: int
    raw_size: int
    raw_offset: int
    characteristics: int


class _Symbol(NamedTuple):
    value: int
    section: int
    type: int
    storage_class: int
    auxiliary: int


def check_object(
    fd: int,
    target: Target,
    plan: FilePlan,
    pack: PackPlan | None,
    symbol: str | None,
    *,
    member: tuple[int, int] | None = None,
) -> bool:
    """Check a COFF object, or `member` (offset, size in bytes) of an archive; return whether it holds the pack."""
    reader = open_output(fd, target, plan, member)
    facts = target.coff
    require("the target is one of COFF", facts is not None)
    machine, count, stamp, at_symbols, symbol_count, optional, characteristics = reader.unpack("2H3I2H", 0, "header")
    expect("Machine", hex(machine), hex(facts.machine if facts else 0))
    expect("TimeDateStamp", stamp, 0)
    expect("SizeOfOptionalHeader", optional, 0)
    expect("Characteristics", characteristics, 0)
    sections = read_sections(reader, 20, count)
    symbols = _read_symbols(reader, at_symbols, symbol_count)
    for name, entries in symbols.items():
        for entry in entries:
            require(
                f"SectionNumber of {text(name)} is -1 or a section", entry.section in {0xFFFF, *range(1, count + 1)}
            )
            expect(f"NumberOfAuxSymbols of {text(name)}", entry.auxiliary, 0)
    at = check_pack_within(reader, plan, pack)
    if pack is None or symbol is None or at is None:
        return at is not None
    holders = [number for number, section in enumerate(sections, 1) if section.raw_offset == at and section.raw_size]
    expect("number of sections that begin with the pack", len(holders), 1)
    holder = sections[holders[0] - 1]
    expect("SizeOfRawData of the pack's section", holder.raw_size, pack.total_size)
    expect("Characteristics of the pack's section", hex(holder.characteristics & ~_ALIGNMENT), hex(_READ_ONLY))
    expect("alignment of the pack's section", 1 << (holder.characteristics >> 20 & 15) >> 1, pack.alignment)
    expect(f"(SectionNumber, Value) of {symbol}", _one(symbols, target, symbol), (holders[0], 0))
    number, value = _one(symbols, target, f"{symbol}_size")
    section = sections[number - 1]
    require(f"{symbol}_size lies in its section", value + reader.word <= section.raw_size)
    size = reader.unpack(reader.word_code, section.raw_offset + value, f"{symbol}_size")
    expect(f"content of {symbol}_size", size, (pack.total_size,))
    return True


def read_sections(reader: Reader, offset: int, count: int) -> list[Section]:
    """Return the section headers at `offset`; their bytes lie in the file, and nothing in them is relocated."""
    data = reader.read(offset, 40 * count, "section headers")
    sections = []
    for row in struct.iter_unpack("<8s6I2HI", data):
        name, virtual_size, address, raw_size, raw_offset, relocations, lines, *counts, characteristics = row
        name = name.rstrip(b"\0")
        reader.bound(raw_offset, raw_size, f"section {text(name)}")
        expect(f"relocations and line numbers of {text(name)}", (relocations, lines, *counts), (0, 0, 0, 0))
        sections.append(Section(name, virtual_size, address, raw_size, raw_offset, characteristics))
    return sections


def _read_symbols(reader: Reader, offset: int, count: int) -> dict[bytes, list[_Symbol]]:
    """Return the symbols by their names."""
    table = reader.read(offset, 18 * count, "symbol table")
    at_strings = offset + 18 * count
    (size,) = reader.unpack("I", at_strings, "string table")
    expect("end of the string table", at_strings + size, reader.size)
    strings = reader.read(at_strings, size, "string table")
    symbols: dict[bytes, list[_Symbol]] = {}
    for number, (short, *fields) in enumerate(struct.iter_unpack("<8sI2H2B", table)):
        name = short.rstrip(b"\0")
        if short[:4] == bytes(4):
            start = int.from_bytes(short[4:], "little")
            end = strings.find(b"\0", start)
            if not 4 <= start < end:
                raise difference(f"name of symbol {number}", "a string of the string table", start)
            name = strings[start:end]
        symbols.setdefault(name, []).append(_Symbol(*fields))
    return symbols


def _one(symbols: dict[bytes, list[_Symbol]], target: Target, name: str) -> tuple[int, int]:
    """Return (section number, value) of a symbol that must be there once, defined, external and without a type."""
    found = symbols.get((target.symbol_prefix + name).encode(), [])
    require(f"symbol {name} is there, once", len(found) == 1)
    expect(f"(Type, StorageClass) of {name}", (found[0].type, found[0].storage_class), (0, _EXTERNAL))
    require(f"symbol {name} is defined", 0 < found[0].section < 0xFFFF)
    return found[0].section, found[0].value
