"""Mach-O files as text, in the names of <mach-o/loader.h>: what the golden dumps are compared with."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from tests.macho_files import MachO, bad_pages, parse, trie_exports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["dump"]

_COMMANDS: dict[int, tuple[str, tuple[str, ...]]] = {
    0x02: ("LC_SYMTAB", ("symoff", "nsyms", "stroff", "strsize")),
    0x0B: ("LC_DYSYMTAB", ("ilocalsym", "nlocalsym", "iextdefsym", "nextdefsym", "iundefsym", "nundefsym")),
    0x1D: ("LC_CODE_SIGNATURE", ("dataoff", "datasize")),
    0x32: ("LC_BUILD_VERSION", ("platform", "minos", "sdk", "ntools")),
}
_CODE_DIRECTORY = (
    "magic", "length", "version", "flags", "hashOffset", "identOffset", "nSpecialSlots", "nCodeSlots", "codeLimit",
    "hashSize", "hashType", "platform", "pageSize", "spare2", "scatterOffset", "teamOffset", "spare3", "codeLimit64",
    "execSegBase", "execSegLimit", "execSegFlags",
)  # fmt: skip
_HEXADECIMAL = {"magic", "version", "flags", "minos", "sdk"}


def dump(path: Path) -> str:
    """Return what a thin file says of itself; of hashes, how many there are and how many are wrong."""
    file = parse(path.read_bytes())
    return "\n".join([*_header(file), *_commands(file), *_symbols(file), *_signature(path, file)]) + "\n"


def _header(file: MachO) -> Iterator[str]:
    fields = ("magic", "cputype", "cpusubtype", "filetype", "ncmds", "sizeofcmds", "flags", "reserved")
    yield "mach_header_64"
    yield "  " + " ".join(f"{name}={value:#x}" for name, value in zip(fields, file.header, strict=True))
    yield f"  file size {len(file.data)}"


def _commands(file: MachO) -> Iterator[str]:
    segments = iter(file.segments)
    sections = iter(file.sections)
    for cmd, body in file.commands:
        if cmd == 0x19:
            name, vmaddr, vmsize, fileoff, filesize, maxprot, initprot, nsects, flags = next(segments)
            yield f"LC_SEGMENT_64 {name!r} cmdsize={len(body)}"
            vm, place = f"vm {vmaddr:#x}+{vmsize:#x}", f"file {fileoff:#x}+{filesize:#x}"
            yield f"  {vm} {place} prot {maxprot}/{initprot} flags={flags}"
            for _ in range(nsects):
                sectname, segname, addr, size, offset, align, *rest = next(sections)
                yield f"  {segname},{sectname} addr={addr:#x} size={size:#x} offset={offset:#x} align=2^{align} {rest}"
        elif cmd in {0x0C, 0x0D}:
            name, stamp, current, compatibility = struct.unpack_from("<4I", body, 8)
            path = body[name:].rstrip(b"\0").decode()
            what = "LC_LOAD_DYLIB" if cmd == 0x0C else "LC_ID_DYLIB"
            yield f"{what} {path} timestamp={stamp} current={current:#x} compatibility={compatibility:#x}"
        elif cmd == 0x1B:
            yield f"LC_UUID version={body[14] >> 4} variant={body[16] >> 6:#b}"
        elif cmd == 0x80000022:
            *others, offset, size = struct.unpack_from("<10I", body, 8)
            yield f"LC_DYLD_INFO_ONLY others={others} export_off={offset:#x} export_size={size}"
            for symbol, address in sorted(trie_exports(file.data[offset : offset + size]).items()):
                yield f"  {address:#x} {symbol}"
        else:
            what, fields = _COMMANDS[cmd]
            values = struct.unpack_from(f"<{(len(body) - 8) // 4}I", body, 8)
            shown = " ".join(_shown(field, value) for field, value in zip(fields, values, strict=False))
            yield f"{what} cmdsize={len(body)} {shown} others={sorted(set(values[len(fields) :]))}"


def _shown(field: str, value: int) -> str:
    return f"{field}={value:#x}" if field in _HEXADECIMAL else f"{field}={value}"


def _symbols(file: MachO) -> Iterator[str]:
    yield "nlist_64"
    for row in file.symbols().values():
        yield f"  {row.n_value:#x} n_type={row.n_type:#04x} n_sect={row.n_sect} n_desc={row.n_desc:#x} {row.name}"


def _signature(path: Path, file: MachO) -> Iterator[str]:
    if not any(cmd == 0x1D for cmd, _ in file.commands):
        return
    dataoff, datasize = file.command(0x1D, "2I")
    magic, length, count, kind, offset = struct.unpack_from(">5I", file.data, dataoff)
    yield f"CS_SuperBlob magic={magic:#x} length={length} count={count} index=({kind}, {offset})"
    values = struct.unpack_from(">9I4BI3I4Q", file.data, dataoff + offset)
    yield "CS_CodeDirectory"
    yield "  " + " ".join(_shown(field, value) for field, value in zip(_CODE_DIRECTORY, values, strict=True))
    identifier = file.data[dataoff + offset + values[5] : dataoff + offset + values[4]]
    pages, wrong = bad_pages(path)
    yield f"  identifier {identifier!r}; {pages} hashes, {len(wrong)} wrong; {datasize - length} bytes behind"
