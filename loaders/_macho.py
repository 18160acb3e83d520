"""Finds packs in Mach-O files: sections that begin with one, which survive strip and the linker.

Source: <mach-o/loader.h>, <mach-o/fat.h>, <mach/machine.h> (field names are their own).
"""

from __future__ import annotations

import struct

from emitter.errors import FormatError, LoadError
from emitter.loaders._binary import Binary
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["FAT_MAGICS", "MAGICS", "Slice", "choose", "find_packs", "slices"]

# First bytes: (struct's byte order, whether it is the 64-bit class).
MAGICS = {
    b"\xce\xfa\xed\xfe": ("<", False),
    b"\xcf\xfa\xed\xfe": ("<", True),
    b"\xfe\xed\xfa\xce": (">", False),
    b"\xfe\xed\xfa\xcf": (">", True),
}
# A fat_arch or fat_arch_64 as struct has it, always big-endian.
FAT_MAGICS = {b"\xca\xfe\xba\xbe": "5I", b"\xca\xfe\xba\xbf": "2I2Q2I"}
# A class file of Java has the same magic; where this count would be, it has its version, which is 45 or more.
_MAX_SLICES = 44

_CPUS = {
    7: "Intel 80386", 12: "ARM", 18: "PowerPC", 0x01000007: "x86-64", 0x0100000C: "AArch64",
    0x01000012: "64-bit PowerPC", 0x0200000C: "AArch64 with 32-bit pointers",
}  # fmt: skip
_FILE_TYPES = {
    1: "relocatable object", 2: "executable", 4: "core file", 6: "dynamic library", 8: "bundle",
    10: "debugging companion", 11: "kernel extension",
}  # fmt: skip
# `platform.machine()` of Linux, macOS and Windows.
_HOSTS = {
    "x86_64": 0x01000007, "amd64": 0x01000007, "arm64": 0x0100000C, "aarch64": 0x0100000C, "i386": 7, "i686": 7,
    "armv7l": 12, "ppc64": 0x01000012,
}  # fmt: skip

_LC_SEGMENT, _LC_SEGMENT_64 = 0x1, 0x19
_SECTION_TYPE = 0xFF
_S_REGULAR = 0

# By class: segment_command and section without their names and the first two words.
_SEGMENT = {False: "16x8I", True: "16x4Q4I"}
_SECTION = {False: "32x9I", True: "32x2Q8I"}
_HEADER_SIZE = {False: 28, True: 32}


class Slice(NamedTuple):
    """A file within a universal file: `size` bytes from `offset`."""

    cputype: int
    offset: int
    size: int

    @property
    def cpu(self) -> str:
        """The name of the CPU that it is for."""
        return _cpu(self.cputype)


def slices(data: memoryview, where: str) -> list[Slice]:
    """Return the slices of a universal file, at least one.

    Raises FormatError for one that breaks its format, LoadError for one that is truncated or a class file of Java.
    """
    universal = Binary(data, where, ">")
    (count,) = universal.unpack("I", 4, "nfat_arch")
    if count > _MAX_SLICES:
        raise LoadError(
            "not a file that holds packs",
            where=where,
            expected=f"a universal file of at most {_MAX_SLICES} slices",
            actual=f"a Java class file, or {count} slices",
        )
    if not count:
        raise FormatError("the universal file has no slice", where=where)
    form = FAT_MAGICS[bytes(data[:4])]
    found = []
    for cputype, _, offset, size, *_ in universal.table(form, 8, struct.calcsize(">" + form), count, "fat_arch"):
        part = Slice(cputype, offset, size)
        universal.check_range(offset, size, f"the slice for {part.cpu}")
        found.append(part)
    return found


def choose(found: list[Slice]) -> Slice:
    """Return the slice for the CPU of this host; the first if there is none."""
    import platform

    own = _HOSTS.get(platform.machine().lower())
    return next((part for part in found if part.cputype == own), found[0])


def find_packs(data: memoryview, where: str) -> tuple[str, list[tuple[int, int]]]:
    """Return what the thin file is, and (offset, size) in bytes of each pack in it, ascending.

    Raises FormatError for a file that breaks its format, LoadError for one that is truncated.
    """
    order, is_64 = MAGICS[bytes(data[:4])]
    file = _MachO(data, where, order)
    file.check_range(0, _HEADER_SIZE[is_64], "the Mach-O header")
    _, cputype, _, filetype, ncmds, sizeofcmds, _ = file.unpack("7I", 0, "the Mach-O header")
    kind = f"Mach-O {_FILE_TYPES.get(filetype, f'file of type {filetype}')} for {_cpu(cputype)}"
    file.check_range(_HEADER_SIZE[is_64], sizeofcmds, "the load commands")
    return kind, sorted(set(file.packs(is_64, ncmds, sizeofcmds)))


class _MachO(Binary):
    def packs(self, is_64: bool, ncmds: int, sizeofcmds: int) -> Iterator[tuple[int, int]]:
        position = _HEADER_SIZE[is_64]
        end = position + sizeofcmds
        for number in range(ncmds):
            if position + 8 > end:
                raise self.broken(number, "does not fit into sizeofcmds", f"an end of at most {end:#x}", "a later one")
            cmd, cmdsize = self.unpack("2I", position, "a load command")
            if cmdsize < 8 or position + cmdsize > end:
                raise self.broken(number, "has a wrong cmdsize", f"8 to {end - position}", cmdsize)
            if cmd == (_LC_SEGMENT_64 if is_64 else _LC_SEGMENT):
                yield from self.packs_of_segment(is_64, number, position + 8, cmdsize - 8)
            position += cmdsize

    def packs_of_segment(self, is_64: bool, number: int, position: int, size: int) -> Iterator[tuple[int, int]]:
        segment, section = (struct.calcsize("=" + form[is_64]) for form in (_SEGMENT, _SECTION))
        if size < segment:
            raise self.broken(number, "is too short for a segment", segment + 8, size + 8)
        _, _, fileoff, filesize, _, _, nsects, _ = self.unpack(_SEGMENT[is_64], position, "a segment")
        if nsects * section > size - segment:
            raise self.broken(number, "is too short for its sections", f"at most {(size - segment) // section}", nsects)
        # The system kills a process that reads mapped pages past the end of a truncated file. So do we refuse it.
        self.check_range(fileoff, filesize, f"the segment of load command {number}")
        for row in self.table(_SECTION[is_64], position + segment, section, nsects, "the sections"):
            _, length, offset, _, _, _, flags, *_ = row
            if flags & _SECTION_TYPE == _S_REGULAR and length:
                what = f"a section of load command {number}"
                self.check_range(offset, length, what)
                yield from self.packs_of_section(offset, length, what)

    def broken(self, number: int, what: str, expected: object, actual: object) -> FormatError:
        """Return the error of a load command that breaks the format."""
        return FormatError(f"load command {number} {what}", where=self.where, expected=expected, actual=actual)


def _cpu(cputype: int) -> str:
    return _CPUS.get(cputype, f"cputype {cputype:#x}")
