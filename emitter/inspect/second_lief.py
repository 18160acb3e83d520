"""What lief finds in Mach-O, PE and COFF files, beside what the readers of this package find."""

from __future__ import annotations

import io

import lief

from emitter.inspect.coff import CoffFile
from emitter.inspect.macho import MachOFile
from emitter.inspect.pe import PeFile
from emitter.inspect.second_parser import MAX_RECORDS
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from emitter.inspect.coff_records import SectionHeader
    from emitter.inspect.report import Reader
    from emitter.inspect.second_parser import Facts, Groups

__all__ = ["groups"]


def groups(reader: Reader) -> tuple[Groups, Groups] | None:
    """Return the facts of both parsers by group; None for a file that is not compared."""
    lief.logging.disable()
    data = io.BytesIO(reader.view.buffer())
    if isinstance(reader, MachOFile):
        return _macho(reader, data)
    if isinstance(reader, PeFile):
        return _pe(reader, data)
    # lief reads the object files of the first kind alone, not /bigobj.
    return _coff(reader, data) if isinstance(reader, CoffFile) and not reader.header.bigobj else None


class _Parsed:
    """What lief makes of a file, parsed when it is first asked for."""

    def __init__(self, module: Any, data: io.BytesIO) -> None:
        self._module, self._data = module, data
        self._binary: Any = None

    def get(self) -> Any:
        if self._binary is None:
            self._binary = self._module.parse(self._data)
            if self._binary is None:
                msg = "lief does not read the file"
                raise ValueError(msg)
        return self._binary


def _macho(reader: MachOFile, data: io.BytesIO) -> tuple[Groups, Groups] | None:
    if reader.symtab is not None and reader.symtab.nsyms > MAX_RECORDS:
        return None
    parsed = _Parsed(lief.MachO, data)

    def binary() -> Any:
        return parsed.get().at(0)

    ours: Groups = {
        "load commands": lambda: ((f"command {n}", one.cmd) for n, one in enumerate(reader.commands)),
        "segments": lambda: (
            (f"segment {n}", (s.segname, s.vmaddr, s.vmsize, s.fileoff, s.filesize, s.maxprot, s.initprot))
            for n, s in enumerate(reader.segments)
        ),
        "sections": lambda: (
            (f"section {n}", (s.segname, s.sectname, s.addr, s.size, s.offset, s.align))
            for n, s in enumerate(reader.sections)
        ),
        "libraries": lambda: ((f"library {n}", one.name) for n, one in enumerate(reader.dylibs)),
        "symbols": lambda: ((f"symbol {n}", (s.name, s.n_value)) for n, s in enumerate(reader.symbols())),
    }
    return ours, {
        "load commands": lambda: ((f"command {n}", _number(one.command)) for n, one in enumerate(binary().commands)),
        "segments": lambda: (
            (
                f"segment {n}",
                (
                    s.name,
                    s.virtual_address,
                    s.virtual_size,
                    s.file_offset,
                    s.file_size,
                    s.max_protection,
                    s.init_protection,
                ),
            )
            for n, s in enumerate(binary().segments)
        ),
        "sections": lambda: (
            (f"section {n}", (s.segment_name, s.name, s.virtual_address, s.size, s.offset, s.alignment))
            for n, s in enumerate(binary().sections)
        ),
        "libraries": lambda: ((f"library {n}", one.name) for n, one in enumerate(binary().libraries)),
        "symbols": lambda: (
            (f"symbol {n}", (s.name, s.value))
            for n, s in enumerate(s for s in binary().symbols if s.origin == lief.MachO.Symbol.ORIGIN.SYMTAB)
        ),
    }


def _section(one: SectionHeader) -> tuple[object, ...]:
    return (one.VirtualAddress, one.VirtualSize, one.PointerToRawData, one.SizeOfRawData, one.Characteristics)


def _lief_section(one: Any) -> tuple[object, ...]:
    numbers = (one.virtual_address, one.virtual_size, one.pointerto_raw_data, one.sizeof_raw_data)
    return (*numbers, _number(one.characteristics))


def _pe(reader: PeFile, data: io.BytesIO) -> tuple[Groups, Groups]:
    parsed = _Parsed(lief.PE, data)
    ours: Groups = {
        "sections": lambda: ((f"section {s.number}", _section(s)) for s in reader.sections),
        "imports": lambda: (
            (f"import {n}", dll.name) for n, dll in enumerate(d for d in reader.imports if not d.delay)
        ),
        "exports": lambda: _by_ordinal((export.ordinal, export.name or "", export.rva) for export in reader.exports()),
    }
    return ours, {
        "sections": lambda: ((f"section {n}", _lief_section(s)) for n, s in enumerate(parsed.get().sections, 1)),
        "imports": lambda: ((f"import {n}", dll.name) for n, dll in enumerate(parsed.get().imports)),
        "exports": lambda: _by_ordinal(
            (entry.ordinal, entry.name, 0 if entry.is_forwarded else entry.address)
            for entry in (parsed.get().get_export().entries if parsed.get().has_exports else ())
        ),
    }


def _coff(reader: CoffFile, data: io.BytesIO) -> tuple[Groups, Groups] | None:
    if reader.header.NumberOfSymbols > MAX_RECORDS:
        return None
    parsed = _Parsed(lief.COFF, data)
    ours: Groups = {
        "sections": lambda: ((f"section {s.number}", (s.name, *_section(s))) for s in reader.sections),
        "symbols": lambda: (
            (f"symbol {n}", (s.name, s.Value, s.SectionNumber)) for n, s in enumerate(reader.symbols())
        ),
    }
    return ours, {
        "sections": lambda: (
            (f"section {n}", (str(s.coff_string) if s.coff_string else s.name, *_lief_section(s)))
            for n, s in enumerate(parsed.get().sections, 1)
        ),
        "symbols": lambda: (
            (f"symbol {n}", (s.name, s.value, s.section_idx)) for n, s in enumerate(parsed.get().symbols)
        ),
    }


def _by_ordinal(exports: Any) -> Facts:
    """Yield exports in the order of their ordinals: tables of names have another order."""
    return ((f"export {number}", export) for number, export in enumerate(sorted(exports)))


def _number(value: Any) -> int:
    return int(getattr(value, "value", value))
