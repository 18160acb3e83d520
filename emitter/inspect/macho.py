"""Reads thin Mach-O files: objects, dylibs, bundles, executables; both widths and byte orders.

The constructor reads the header and the list of load commands; all else is read when it is asked for, and raises
FormatError where it is broken. Offsets are relative to the Mach-O file, also within a universal file.

Source: <mach-o/loader.h>, <mach-o/nlist.h>, <mach-o/reloc.h>.
"""

from __future__ import annotations

import struct
from functools import cached_property

from emitter.errors import FormatError
from emitter.inspect import macho_names as names
from emitter.inspect.elf import StringTable
from emitter.inspect.macho_records import (
    BuildVersion,
    DyldInfo,
    Dylib,
    Dysymtab,
    LinkeditData,
    LoadCommand,
    MachHeader,
    MachSection,
    Nlist,
    Relocation,
    SegmentCommand,
    Symtab,
)
from emitter.inspect.report import Reader
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Literal

    from emitter.inspect.macho_trie import Export
    from emitter.inspect.report import Report
    from emitter.inspect.view import View

__all__ = ["MAGICS", "MachOFile"]

# First bytes of a file: (struct's byte order, whether it is the 64-bit class).
MAGICS: dict[bytes, tuple[str, bool]] = {
    b"\xce\xfa\xed\xfe": ("<", False),
    b"\xcf\xfa\xed\xfe": ("<", True),
    b"\xfe\xed\xfa\xce": (">", False),
    b"\xfe\xed\xfa\xcf": (">", True),
}

# By class: segment_command and section after their names; nlist; sizes of the header.
_SEGMENT = {False: "8I", True: "4Q4I"}
_SECTION = {False: "9I", True: "2Q8I"}
_NLIST = {False: "IBBHI", True: "IBBHQ"}
_HEADER_SIZE = {False: 28, True: 32}

_MAX_COMMANDS = 1 << 20  # bytes of load commands; the largest programs have some 20 KiB
_NO_SCATTERED = names.CPU_ARCH_ABI64 | names.CPU_ARCH_ABI64_32


class MachOFile(Reader):
    """A thin Mach-O file. Raises FormatError for a broken header or list of load commands."""

    def __init__(self, view: View) -> None:
        super().__init__(view)
        magic = view.read(0, 4, "the magic")
        if magic not in MAGICS:
            raise FormatError("not a Mach-O file", where=view.where, actual=magic.hex(" "))
        self.order, self.is_64 = MAGICS[magic]
        self.byte_order: Literal["little", "big"] = "little" if self.order == "<" else "big"
        self.pointer_width = 64 if self.is_64 else 32
        self.header_size = _HEADER_SIZE[self.is_64]
        view.check(0, self.header_size, "the Mach-O header")
        self.header = MachHeader(*view.unpack(self.order + "7I", 0, "the Mach-O header"))
        self.kind = f"Mach-O {names.FILE_TYPES.get(self.header.filetype, f'file of type {self.header.filetype}')}"
        if self.header.sizeofcmds > _MAX_COMMANDS:
            raise self._error("sizeofcmds is too large", f"at most {_MAX_COMMANDS}", self.header.sizeofcmds)
        self._commands = view.read(self.header_size, self.header.sizeofcmds, "the load commands")
        self.commands: tuple[LoadCommand, ...] = tuple(self._walk())

    def report(self, page_size: int = 0) -> Report:
        """Return the neutral report; `page_size` 0 is the largest that the CPU's systems use."""
        from emitter.inspect.macho_report import report

        return report(self, page_size)

    @property
    def machine(self) -> str:
        """The CPU as `lipo` names it."""
        return names.cpu_name(self.header.cputype, self.header.cpusubtype)

    def of(self, *cmds: int) -> list[LoadCommand]:
        """Return the load commands of the given kinds, in file order."""
        return [command for command in self.commands if command.cmd in cmds]

    @cached_property
    def segments(self) -> tuple[SegmentCommand, ...]:
        """The LC_SEGMENT or LC_SEGMENT_64 commands with their sections."""
        kind = names.LC_SEGMENT_64 if self.is_64 else names.LC_SEGMENT
        segments, number = [], 1
        for command in self.of(kind):
            segment = self._segment(command, number)
            number += segment.nsects
            segments.append(segment)
        return tuple(segments)

    @cached_property
    def sections(self) -> tuple[MachSection, ...]:
        """The sections of all segments: `n_sect` counts them from 1."""
        return tuple(section for segment in self.segments for section in segment.sections)

    def address_to_offset(self, address: int, size: int = 1) -> int | None:
        """Return the file offset of `size` bytes at an address, or None where no section or segment has them.

        Sections are asked first: in an object they alone say where their bytes are.
        """
        for section in self.sections:
            if section.addr <= address and address + size <= section.addr + section.file_size:
                return section.offset + address - section.addr
        for segment in self.segments:
            if segment.vmaddr <= address and address + size <= segment.vmaddr + segment.filesize:
                return segment.fileoff + address - segment.vmaddr
        return None

    @property
    def base_address(self) -> int:
        """The address of the header, which those of exports are relative to: that of the segment at offset 0."""
        return next((one.vmaddr for one in self.segments if not one.fileoff and one.filesize), 0)

    @cached_property
    def dylibs(self) -> tuple[Dylib, ...]:
        """LC_ID_DYLIB, LC_LOAD_DYLIB and its variants, in file order."""
        return tuple(
            Dylib(command.cmd, self._text(command, name), stamp, current, compatible)
            for command in self.of(*names.DYLIB_KINDS)
            for name, stamp, current, compatible in [self._fields(command, "4I")]
        )

    @property
    def install_name(self) -> str | None:
        """The name in LC_ID_DYLIB."""
        return next((dylib.name for dylib in self.dylibs if dylib.cmd == names.LC_ID_DYLIB), None)

    @cached_property
    def rpaths(self) -> tuple[str, ...]:
        """The paths of LC_RPATH."""
        return tuple(self._text(command, *self._fields(command, "I")) for command in self.of(names.LC_RPATH))

    @property
    def dylinker(self) -> str | None:
        """The path in LC_LOAD_DYLINKER."""
        return next((self._text(command, *self._fields(command, "I")) for command in self.of(0xE)), None)

    @cached_property
    def build_versions(self) -> tuple[BuildVersion, ...]:
        """LC_BUILD_VERSION and LC_VERSION_MIN_*, in file order."""
        found = []
        for command in self.of(names.LC_BUILD_VERSION, *names.VERSION_MIN_PLATFORMS):
            if command.cmd != names.LC_BUILD_VERSION:
                minos, sdk = self._fields(command, "2I")
                found.append(BuildVersion(command.cmd, names.VERSION_MIN_PLATFORMS[command.cmd], minos, sdk))
                continue
            platform, minos, sdk, ntools = self._fields(command, "4I")
            if 24 + 8 * ntools > command.cmdsize:
                raise self._error("ntools of LC_BUILD_VERSION", f"at most {(command.cmdsize - 24) // 8}", ntools)
            tools = self._fields(command, f"{2 * ntools}I", 24)
            found.append(
                BuildVersion(command.cmd, platform, minos, sdk, tuple(zip(tools[::2], tools[1::2], strict=True)))
            )
        return tuple(found)

    @property
    def uuid(self) -> bytes | None:
        """The 16 bytes of LC_UUID."""
        return next((bytes(self._fields(command, "16s")[0]) for command in self.of(names.LC_UUID)), None)

    @cached_property
    def symtab(self) -> Symtab | None:
        """LC_SYMTAB."""
        return next((Symtab(*self._fields(command, "4I")) for command in self.of(names.LC_SYMTAB)), None)

    @property
    def dysymtab(self) -> Dysymtab | None:
        """LC_DYSYMTAB."""
        return next((Dysymtab(*self._fields(command, "18I")) for command in self.of(names.LC_DYSYMTAB)), None)

    @property
    def dyld_info(self) -> DyldInfo | None:
        """LC_DYLD_INFO or LC_DYLD_INFO_ONLY."""
        commands = self.of(names.LC_DYLD_INFO, names.LC_DYLD_INFO_ONLY)
        return next((DyldInfo(command.cmd, *self._fields(command, "10I")) for command in commands), None)

    @cached_property
    def linkedit(self) -> tuple[LinkeditData, ...]:
        """The commands that name a range of the file: signature, export trie, chained fixups, function starts, ..."""
        return tuple(
            LinkeditData(command.cmd, *self._fields(command, "2I")) for command in self.of(*names.LINKEDIT_DATA)
        )

    @property
    def signature(self) -> LinkeditData | None:
        """LC_CODE_SIGNATURE; `emitter.inspect.macho_signature` reads and checks it."""
        return next((data for data in self.linkedit if data.cmd == names.LC_CODE_SIGNATURE), None)

    def symbols(self) -> Iterator[Nlist]:
        """Yield the symbol table, with the debugger's entries."""
        table = self.symtab
        if table is None:
            return
        strings = StringTable(self.view, table.stroff, table.strsize, "the string table")
        form = self.order + _NLIST[self.is_64]
        for row in self.view.table(form, table.symoff, struct.calcsize(form), table.nsyms, "the symbol table"):
            # String 0 is the empty one, whatever stands there.
            yield Nlist(strings.get(row[0], "a symbol's name") if row[0] else "", *row)

    def oso(self) -> Iterator[Nlist]:
        """Yield the N_OSO entries: `name` is the path of an object file, `n_value` the time it was written at."""
        return (symbol for symbol in self.symbols() if symbol.n_type == names.N_OSO)

    def interior_symbols(self, start: int, end: int) -> Iterator[Nlist]:
        """Yield the symbols within (start, end) at which a linker may cut, since they lack N_ALT_ENTRY.

        None without MH_SUBSECTIONS_VIA_SYMBOLS. `start` and `end` are addresses as in `n_value`.
        """
        if not self.header.flags & names.MH_SUBSECTIONS_VIA_SYMBOLS:
            return
        for symbol in self.symbols():
            inside = not symbol.stab and symbol.type == names.N_SECT and start < symbol.n_value < end
            if inside and not symbol.n_desc & names.N_ALT_ENTRY:
                yield symbol

    @property
    def export_trie(self) -> tuple[int, int] | None:
        """(offset, size) of the export trie, from LC_DYLD_EXPORTS_TRIE or LC_DYLD_INFO; None if there is none."""
        for data in self.linkedit:
            if data.cmd == names.LC_DYLD_EXPORTS_TRIE and data.datasize:
                return data.dataoff, data.datasize
        info = self.dyld_info
        return (info.export_off, info.export_size) if info is not None and info.export_size else None

    def exports(self) -> Iterator[Export]:
        """Yield the export trie's names, in its order."""
        from emitter.inspect.macho_trie import walk

        place = self.export_trie
        return walk(self.view, *place) if place else iter(())

    def relocations(self, section: MachSection) -> Iterator[Relocation]:
        """Yield the relocations of a section of an object file."""
        big = self.order == ">"
        scattered_too = not self.header.cputype & _NO_SCATTERED
        what = f"the relocations of {section.segname},{section.sectname}"
        for address, info in self.view.table(self.order + "2I", section.reloff, 8, section.nreloc, what):
            if scattered_too and address & 0x80000000:
                pcrel, length, kind = address >> 30 & 1, address >> 28 & 3, address >> 24 & 15
                yield Relocation(address & 0xFFFFFF, info, pcrel, length, 0, kind, scattered=True)
            elif big:
                yield Relocation(address, info >> 8, info >> 7 & 1, info >> 5 & 3, info >> 4 & 1, info & 15)
            else:
                yield Relocation(address, info & 0xFFFFFF, info >> 24 & 1, info >> 25 & 3, info >> 27 & 1, info >> 28)

    def ordinal_name(self, ordinal: int) -> str:
        """Return the library that a two-level ordinal (`n_desc >> 8`) names; empty for the special ones.

        Ordinals count the libraries of `dylibs` from 1, without LC_ID_DYLIB.
        """
        return self._libraries[ordinal - 1] if 0 < ordinal <= len(self._libraries) else ""

    @cached_property
    def _libraries(self) -> list[str]:
        return [dylib.name for dylib in self.dylibs if dylib.cmd != names.LC_ID_DYLIB]

    def _walk(self) -> Iterator[LoadCommand]:
        position, end = 0, len(self._commands)
        unit = 8 if self.is_64 else 4
        for number in range(self.header.ncmds):
            if position + 8 > end:
                raise self._error("ncmds and sizeofcmds differ", f"{self.header.ncmds} load commands", number)
            cmd, cmdsize = struct.unpack_from(self.order + "2I", self._commands, position)
            command = LoadCommand(cmd, cmdsize, self.header_size + position)
            if cmdsize < 8 or cmdsize % 4 or position + cmdsize > end:
                raise self._error(
                    f"cmdsize of load command {number} ({command.name}) at {command.offset:#x}",
                    f"a multiple of {unit} from 8 to {end - position}",
                    cmdsize,
                )
            yield command
            position += cmdsize

    def _segment(self, command: LoadCommand, number: int) -> SegmentCommand:
        form, section_form = _SEGMENT[self.is_64], self.order + "16s16s" + _SECTION[self.is_64]
        segname, *values = self._fields(command, "16s" + form)
        nsects = values[6]
        first = 8 + struct.calcsize("<16s" + form)
        size = struct.calcsize(section_form)
        if first + nsects * size > command.cmdsize:
            raise self._error(
                f"nsects of segment {_fixed(segname)!r}", f"at most {(command.cmdsize - first) // size}", nsects
            )
        start = command.offset - self.header_size + first
        sections = []
        for index in range(nsects):
            name, owner, *rest = struct.unpack_from(section_form, self._commands, start + index * size)
            sections.append(MachSection(number + index, _fixed(name), _fixed(owner), *rest))
        return SegmentCommand._make((_fixed(segname), *values, tuple(sections)))

    def _fields(self, command: LoadCommand, form: str, offset: int = 8) -> tuple[Any, ...]:
        """Return the fields of a command from `offset` on."""
        record = struct.Struct(self.order + form)
        if offset + record.size > command.cmdsize:
            raise self._error(
                f"cmdsize of {command.name} at {command.offset:#x}",
                f"at least {offset + record.size}",
                command.cmdsize,
            )
        return record.unpack_from(self._commands, command.offset - self.header_size + offset)

    def _text(self, command: LoadCommand, offset: int) -> str:
        """Return the string at `offset` of a command (`lc_str`)."""
        start = command.offset - self.header_size
        text, nul, _ = self._commands[start + offset : start + command.cmdsize].partition(b"\0")
        if offset < 8 or not nul:
            raise self._error(
                f"the string of {command.name} at {command.offset:#x}",
                f"a NUL-terminated string within {command.cmdsize} bytes",
                f"offset {offset}",
            )
        return text.decode("utf-8", "surrogateescape")

    def _error(self, what: str, expected: object, actual: object) -> FormatError:
        return FormatError(what, where=self.view.where, expected=expected, actual=actual)


def _fixed(name: bytes) -> str:
    """Return a name of 16 bytes, padded with NULs."""
    return name.partition(b"\0")[0].decode("utf-8", "surrogateescape")
