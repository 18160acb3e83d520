"""Encoding of Mach-O: header, load commands, symbols, universal headers. Little-endian and 64 bits, as all targets are.

Source: <mach-o/loader.h>, <mach-o/nlist.h>, <mach-o/fat.h> of Apple's cctools and xnu; names are theirs.
"""

from __future__ import annotations

from struct import Struct

from emitter.errors import LayoutError, shown
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from emitter.targets._base import MachO, Target

MAX_SECTION_ALIGN = 15  # the exponent that Apple's linker accepts
NAME_SIZE = 16  # bytes of segname and sectname; a full name has no NUL

MH_MAGIC_64 = 0xFEEDFACF
MH_OBJECT, MH_DYLIB = 1, 6
MH_NOUNDEFS, MH_DYLDLINK, MH_TWOLEVEL = 0x1, 0x4, 0x80
MH_SUBSECTIONS_VIA_SYMBOLS, MH_NO_REEXPORTED_DYLIBS, MH_APP_EXTENSION_SAFE = 0x2000, 0x100000, 0x2000000

LC_SYMTAB, LC_DYSYMTAB, LC_LOAD_DYLIB, LC_ID_DYLIB, LC_SEGMENT_64 = 0x2, 0xB, 0xC, 0xD, 0x19
LC_UUID, LC_CODE_SIGNATURE, LC_DYLD_INFO_ONLY, LC_BUILD_VERSION = 0x1B, 0x1D, 0x80000022, 0x32

VM_PROT_READ, VM_PROT_WRITE, VM_PROT_EXECUTE = 1, 2, 4

N_EXT, N_ABS, N_SECT, N_PEXT = 0x01, 0x02, 0x0E, 0x10  # n_type
N_NO_DEAD_STRIP, N_ALT_ENTRY = 0x0020, 0x0200  # n_desc

FAT_MAGIC = 0xCAFEBABE

# The exponent of the largest page of Apple's CPUs. Segments of a file for any CPU, and slices of a universal one, begin
# at multiples of it, so that any files go together.
SEGMENT_ALIGN = 14

HEADER_SIZE, SECTION_SIZE, NLIST_SIZE = 32, 80, 16
FAT_HEADER_SIZE, FAT_ARCH_SIZE = 8, 20

_HEADER = Struct("<8I")
_SEGMENT = Struct("<2I16s4Q4I")
_SECTION = Struct("<16s16s2Q8I")
_SYMTAB = Struct("<6I")
_DYSYMTAB = Struct("<20I")
_BUILD_VERSION = Struct("<6I")
_UUID = Struct("<2I16s")
_DYLD_INFO = Struct("<12I")
_DYLIB = Struct("<6I")
_LINKEDIT_DATA = Struct("<4I")
_NLIST = Struct("<I2BHQ")


class Section(NamedTuple):
    """`section_64`, without what is zero in every file of ours; `align` is the exponent of two."""

    segname: str
    sectname: str
    addr: int
    size: int
    offset: int
    align: int


class Segment(NamedTuple):
    """`segment_command_64`; `prot` is both maxprot and initprot."""

    segname: str
    vmaddr: int
    vmsize: int
    fileoff: int
    filesize: int
    prot: int
    sections: Sequence[Section] = ()


class Nlist(NamedTuple):
    """`nlist_64`. `n_sect` counts from 1 over all sections, 0 for none (NO_SECT)."""

    n_strx: int
    n_type: int
    n_sect: int
    n_desc: int
    n_value: int


class StringTable:
    """The table that symbols take their names from; it begins with `start`, and offset 0 is no name."""

    def __init__(self, start: bytes) -> None:
        self._data = bytearray(start)

    def add(self, name: bytes) -> int:
        """Return the n_strx of a name."""
        offset = len(self._data)
        self._data += name + b"\0"
        return offset

    def data(self, alignment: int = 8) -> bytes:
        """Return the table, padded with zeros."""
        return bytes(self._data) + bytes(-len(self._data) % alignment)


def facts_of(target: Target) -> MachO:
    """Return the Mach-O facts of a target; raise LayoutError for one of another object format."""
    if target.macho is None:
        raise LayoutError(
            "not a target of Mach-O", where=f"target {target.name}", expected="macho", actual=target.object_format
        )
    return target.macho


def header(facts: MachO, filetype: int, flags: int, commands: Sequence[bytes]) -> bytes:
    """Return a `mach_header_64` and the load commands."""
    body = b"".join(commands)
    return (
        _HEADER.pack(MH_MAGIC_64, facts.cputype, facts.cpusubtype, filetype, len(commands), len(body), flags, 0) + body
    )


def segment(one: Segment) -> bytes:
    """Return an LC_SEGMENT_64 with its sections. Raises LayoutError for a name of more than 16 bytes."""
    rows = [section(row) for row in one.sections]
    cmdsize = segment_size(len(rows))
    place = (one.vmaddr, one.vmsize, one.fileoff, one.filesize)
    return b"".join([
        _SEGMENT.pack(LC_SEGMENT_64, cmdsize, _name(one.segname), *place, one.prot, one.prot, len(rows), 0), *rows,
    ])  # fmt: skip


def section(row: Section) -> bytes:
    """Return a `section_64`. Raises LayoutError for a name of more than 16 bytes."""
    return _SECTION.pack(_name(row.sectname), _name(row.segname), row.addr, row.size, row.offset, row.align, *(0,) * 6)


def segment_size(sections: int) -> int:
    """Return the bytes of an LC_SEGMENT_64 with that many sections."""
    return _SEGMENT.size + sections * SECTION_SIZE


def symtab(symoff: int, nsyms: int, stroff: int, strsize: int) -> bytes:
    """Return an LC_SYMTAB."""
    return _SYMTAB.pack(LC_SYMTAB, _SYMTAB.size, symoff, nsyms, stroff, strsize)


def dysymtab(nlocalsym: int, nextdefsym: int, nundefsym: int, *, indirect: tuple[int, int] = (0, 0)) -> bytes:
    """Return the LC_DYSYMTAB of a symbol table that holds local, defined and undefined symbols in this order.

    `indirect` are offset and number of the indirect symbols.
    """
    iundefsym = nlocalsym + nextdefsym
    groups = (0, nlocalsym, nlocalsym, nextdefsym, iundefsym, nundefsym)
    return _DYSYMTAB.pack(LC_DYSYMTAB, _DYSYMTAB.size, *groups, *(0,) * 6, *indirect, *(0,) * 4)


def build_version(facts: MachO) -> bytes:
    """Return an LC_BUILD_VERSION that names no tool."""
    versions = (packed_version(facts.minos), packed_version(facts.sdk))
    return _BUILD_VERSION.pack(LC_BUILD_VERSION, _BUILD_VERSION.size, facts.platform, *versions, 0)


def packed_version(text: str) -> int:
    """Return `major.minor.patch` as 16, 8 and 8 bits; what is left out is 0. Raises LayoutError if it does not fit."""
    parts = text.split(".")
    numbers = [int(part) if part.isdecimal() else -1 for part in parts] + [0] * (3 - len(parts))
    limits = (0xFFFF, 0xFF, 0xFF)
    if len(numbers) != 3 or not all(0 <= n <= limit for n, limit in zip(numbers, limits, strict=True)):
        raise LayoutError(
            "LC_BUILD_VERSION cannot hold the version",
            expected="up to three numbers, at most 65535.255.255",
            actual=shown(text),
            hint="correct the version in the target's name",
        )
    return numbers[0] << 16 | numbers[1] << 8 | numbers[2]


def uuid(value: bytes) -> bytes:
    """Return an LC_UUID; the 16 bytes stand at its end."""
    return _UUID.pack(LC_UUID, _UUID.size, value)


def dyld_info_only(export_off: int, export_size: int) -> bytes:
    """Return an LC_DYLD_INFO_ONLY of an image that exports, and has nothing to rebase or to bind."""
    return _DYLD_INFO.pack(LC_DYLD_INFO_ONLY, _DYLD_INFO.size, *(0,) * 8, export_off, export_size)


def dylib(cmd: int, path: bytes, current_version: str, compatibility_version: str) -> bytes:
    """Return an LC_ID_DYLIB or LC_LOAD_DYLIB. The time stamps are those that Apple's linker writes."""
    cmdsize = _DYLIB.size + len(path) + 1
    cmdsize += -cmdsize % 8
    stamp = 1 if cmd == LC_ID_DYLIB else 2
    versions = (packed_version(current_version), packed_version(compatibility_version))
    return _DYLIB.pack(cmd, cmdsize, _DYLIB.size, stamp, *versions) + path.ljust(cmdsize - _DYLIB.size, b"\0")


def code_signature(dataoff: int, datasize: int) -> bytes:
    """Return an LC_CODE_SIGNATURE."""
    return _LINKEDIT_DATA.pack(LC_CODE_SIGNATURE, _LINKEDIT_DATA.size, dataoff, datasize)


def nlist(rows: Iterable[Nlist]) -> bytes:
    """Return a symbol table."""
    return b"".join(_NLIST.pack(*row) for row in rows)


def fat_header(slices: Sequence[tuple[MachO, int, int]], align: int) -> bytes:
    """Return a `fat_header` with a `fat_arch` for each slice (facts, offset, size); these are big-endian."""
    rows = [Struct(">5I").pack(facts.cputype, facts.cpusubtype, at, size, align) for facts, at, size in slices]
    return Struct(">2I").pack(FAT_MAGIC, len(rows)) + b"".join(rows)


def _name(text: str) -> bytes:
    name = text.encode()
    if len(name) > NAME_SIZE:
        raise LayoutError(
            "the name of a segment or section is too long for Mach-O",
            where=shown(text),
            expected=f"at most {NAME_SIZE} bytes",
            actual=f"{len(name)} bytes",
            hint="choose a shorter one",
        )
    return name
