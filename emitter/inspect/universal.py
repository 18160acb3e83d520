"""Reads universal ("fat") files: Mach-O files or archives for several CPUs, one behind the other.

The header is big-endian, whatever the slices are. Java class files begin with the same four bytes; there a version
follows, which has been 45 or more since Java 1.0.2, where a universal file has its number of slices.

Source: <mach-o/fat.h>.
"""

from __future__ import annotations

from emitter.errors import FormatError
from emitter.inspect.macho_names import cpu_name
from emitter.inspect.report import Member, Reader
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.inspect.view import View

__all__ = ["FatArch", "UniversalFile"]

FAT_MAGIC, FAT_MAGIC_64 = b"\xca\xfe\xba\xbe", b"\xca\xfe\xba\xbf"

_FIRST_JAVA_VERSION = 45
_ROWS = {FAT_MAGIC: (">5I", 20), FAT_MAGIC_64: (">2I2Q2I", 32)}
_MAX_ALIGN = 15  # the exponent; what dyld and lipo take


class FatArch(NamedTuple):
    """`fat_arch` or `fat_arch_64`; `align` is the exponent of two."""

    cputype: int
    cpusubtype: int
    offset: int
    size: int
    align: int

    @property
    def machine(self) -> str:
        """The CPU as `lipo` names it."""
        return cpu_name(self.cputype, self.cpusubtype)


class UniversalFile(Reader):
    """A universal file. Raises FormatError for a header that is cut off or has no slices."""

    kind = "universal Mach-O file"
    container = True

    @classmethod
    def fits(cls, view: View) -> bool:
        """Return whether this is no Java class file."""
        start = view.read_up_to(0, 8)
        return start[:4] != FAT_MAGIC or int.from_bytes(start[4:], "big") < _FIRST_JAVA_VERSION

    def __init__(self, view: View) -> None:
        super().__init__(view)
        magic, count = view.unpack(">4sI", 0, "the universal header")
        if magic not in _ROWS or not self.fits(view):
            raise FormatError("not a universal file", where=view.where, actual=magic.hex(" "))
        form, size = _ROWS[magic]
        self.is_64 = magic == FAT_MAGIC_64
        if not 0 < count < _FIRST_JAVA_VERSION:
            raise FormatError("nfat_arch", where=view.where, expected=f"1 to {_FIRST_JAVA_VERSION - 1}", actual=count)
        self.slices = tuple(FatArch(*row[:5]) for row in view.table(form, 8, size, count, "the table of slices"))
        self.header_size = 8 + count * size

    def faults(self) -> Iterator[FormatError]:
        """Yield what is wrong with the table: slices that overlap, are not aligned, or are for one CPU."""
        yield from self._overlaps()
        seen = set()
        for one in self.slices:
            where = f"{self.view.where}: slice {one.machine}"
            if one.align > _MAX_ALIGN:
                yield FormatError("align is too large", where=where, expected=f"at most {_MAX_ALIGN}", actual=one.align)
            elif one.offset % (1 << one.align):
                yield FormatError(
                    "offset is not aligned",
                    where=where,
                    expected=f"a multiple of {1 << one.align}",
                    actual=f"{one.offset:#x}",
                )
            if one.machine in seen:
                yield FormatError("two slices are for one CPU", where=self.view.where, actual=one.machine)
            seen.add(one.machine)

    def members(self) -> Iterator[Member]:
        """Yield the slices, named after their CPUs.

        Raises FormatError for one that the file does not hold, and for slices that overlap each other or the header: a
        file nested in itself would never end.
        """
        for fault in self._overlaps():
            raise fault
        for one in self.slices:
            where = f"{self.view.where}: slice {one.machine}"
            yield Member(one.machine, self.view.window(one.offset, one.size, where))

    def _overlaps(self) -> Iterator[FormatError]:
        end, before = self.header_size, "the header"
        for one in sorted(self.slices, key=lambda one: one.offset):
            if one.offset < end:
                yield FormatError(
                    f"overlaps {before}",
                    where=f"{self.view.where}: slice {one.machine}",
                    expected=f"an offset from {end:#x}",
                    actual=f"{one.offset:#x}",
                )
            end, before = max(end, one.offset + one.size), f"slice {one.machine}"
