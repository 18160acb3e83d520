"""The structures of Mach-O as records, with their `struct` formats (without byte order) for both widths.

Source: <mach-o/loader.h>, <mach-o/nlist.h>, <mach-o/reloc.h>.
"""

from __future__ import annotations

from emitter.inspect.macho_names import DYLIB_KINDS, LOAD_COMMANDS, N_STAB, N_TYPE, SECTION_TYPE, ZEROFILL
from emitter.records import NamedTuple

__all__ = [
    "BuildVersion",
    "DyldInfo",
    "Dylib",
    "Dysymtab",
    "LinkeditData",
    "LoadCommand",
    "MachHeader",
    "MachSection",
    "Nlist",
    "Relocation",
    "SegmentCommand",
    "Symtab",
]


class MachHeader(NamedTuple):
    """`mach_header` or `mach_header_64`."""

    magic: int
    cputype: int
    cpusubtype: int
    filetype: int
    ncmds: int
    sizeofcmds: int
    flags: int


class LoadCommand(NamedTuple):
    """A load command: `offset` is where it begins in the file."""

    cmd: int
    cmdsize: int
    offset: int

    @property
    def name(self) -> str:
        """Its name: `LC_UUID`."""
        return LOAD_COMMANDS.get(self.cmd, f"load command {self.cmd:#x}")


class MachSection(NamedTuple):
    """`section` or `section_64`. `align` is the exponent of two; `number` counts from 1 over all segments."""

    number: int
    sectname: str
    segname: str
    addr: int
    size: int
    offset: int
    align: int
    reloff: int
    nreloc: int
    flags: int
    reserved1: int
    reserved2: int
    reserved3: int = 0

    @property
    def type(self) -> int:
        """The S_ type, without the attributes."""
        return self.flags & SECTION_TYPE

    @property
    def file_size(self) -> int:
        """How many bytes it has in the file: none, if it is filled with zeros."""
        return 0 if self.type in ZEROFILL else self.size


class SegmentCommand(NamedTuple):
    """`segment_command` or `segment_command_64`; `sections` in file order."""

    segname: str
    vmaddr: int
    vmsize: int
    fileoff: int
    filesize: int
    maxprot: int
    initprot: int
    nsects: int
    flags: int
    sections: tuple[MachSection, ...]


class Dylib(NamedTuple):
    """`dylib_command`: LC_ID_DYLIB, LC_LOAD_DYLIB and its variants. Versions are packed as xxxx.yy.zz."""

    cmd: int
    name: str
    timestamp: int
    current_version: int
    compatibility_version: int

    @property
    def kind(self) -> str:
        """`id`, `load`, `weak`, `reexport`, `lazy` or `upward`."""
        return DYLIB_KINDS[self.cmd]


class BuildVersion(NamedTuple):
    """LC_BUILD_VERSION, or LC_VERSION_MIN_* with the platform that it is for; `tools` as (tool, version)."""

    cmd: int
    platform: int
    minos: int
    sdk: int
    tools: tuple[tuple[int, int], ...] = ()


class Symtab(NamedTuple):
    """`symtab_command`."""

    symoff: int
    nsyms: int
    stroff: int
    strsize: int


class Dysymtab(NamedTuple):
    """`dysymtab_command`."""

    ilocalsym: int
    nlocalsym: int
    iextdefsym: int
    nextdefsym: int
    iundefsym: int
    nundefsym: int
    tocoff: int
    ntoc: int
    modtaboff: int
    nmodtab: int
    extrefsymoff: int
    nextrefsyms: int
    indirectsymoff: int
    nindirectsyms: int
    extreloff: int
    nextrel: int
    locreloff: int
    nlocrel: int


class DyldInfo(NamedTuple):
    """`dyld_info_command`."""

    cmd: int
    rebase_off: int
    rebase_size: int
    bind_off: int
    bind_size: int
    weak_bind_off: int
    weak_bind_size: int
    lazy_bind_off: int
    lazy_bind_size: int
    export_off: int
    export_size: int


class LinkeditData(NamedTuple):
    """`linkedit_data_command`: LC_CODE_SIGNATURE, LC_DYLD_EXPORTS_TRIE, LC_DYLD_CHAINED_FIXUPS, ..."""

    cmd: int
    dataoff: int
    datasize: int


class Nlist(NamedTuple):
    """`nlist` or `nlist_64` with its name."""

    name: str
    n_strx: int
    n_type: int
    n_sect: int
    n_desc: int
    n_value: int

    @property
    def stab(self) -> bool:
        """Whether it is a debugger's entry."""
        return bool(self.n_type & N_STAB)

    @property
    def type(self) -> int:
        """N_UNDF, N_ABS, N_SECT, N_PBUD or N_INDR."""
        return self.n_type & N_TYPE


class Relocation(NamedTuple):
    """`relocation_info`, or `scattered_relocation_info` (then `r_symbolnum` is r_value)."""

    r_address: int
    r_symbolnum: int
    r_pcrel: int
    r_length: int
    r_extern: int
    r_type: int
    scattered: bool = False
