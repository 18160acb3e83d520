"""Finds the packs in a file by what the file says of itself; never by searching.

A format is one row of `_FORMATS`: its magic, and the function that finds the packs.
"""

from __future__ import annotations

from emitter.errors import FormatError, LoadError, shown
from emitter.loaders import _archive, _elf, _macho, _pe
from emitter.loaders._header import read_header
from emitter.pack import format as fmt
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

__all__ = ["Contents", "Place", "find"]


_Finder: TypeAlias = "Callable[[memoryview, str], Contents]"


class Place(NamedTuple):
    """A pack is `size` bytes from `offset` of the file. `member` is the archive member that holds it, or empty."""

    offset: int
    size: int
    member: str = ""


class Contents(NamedTuple):
    """What a file is, in words, and where its packs are."""

    kind: str
    places: list[Place]


def find(data: memoryview, where: str) -> Contents:
    """Find the packs in the file `data`, at least one.

    Raises FormatError for a file that breaks its format; LoadError for one that is of no known format, truncated, or
    without a pack.
    """
    finder = _finder(data)
    if finder is None:
        raise LoadError(
            "not a file that holds packs",
            where=where,
            expected="a pack, an ELF, Mach-O or PE file, a COFF object or an archive",
            actual=f"{len(data)} bytes that begin {bytes(data[:8]).hex(' ')}" if len(data) else "an empty file",
        )
    contents = finder(data, where)
    if not contents.places:
        raise LoadError(
            f"{contents.kind}: it holds no pack",
            where=where,
            hint="load what emitter wrote; a program linked from its objects names the pack if they have --retain",
        )
    return contents


def _pack(data: memoryview, where: str) -> Contents:
    # Bytes behind the pack do not belong to it: memory comes in pages.
    return Contents("pack", [Place(0, read_header(data, where).total_size)])


def _file(find_packs: Callable[[memoryview, str], tuple[str, list[tuple[int, int]]]]) -> _Finder:
    def finder(data: memoryview, where: str) -> Contents:
        kind, packs = find_packs(data, where)
        return Contents(kind, [Place(*pack) for pack in packs])

    return finder


def _universal_file(data: memoryview, where: str) -> Contents:
    """Find the packs of one slice: that of this host's CPU, which a program here would get, or else the first."""
    slices = _macho.slices(data, where)
    part = _macho.choose(slices)
    kind = f"universal file of {', '.join(one.cpu for one in slices)}"
    body = data[part.offset : part.offset + part.size]
    finder = _finder(body)
    if finder is None or finder is _universal_file:
        raise FormatError(
            f"the slice for {part.cpu} is no Mach-O file or archive",
            where=where,
            actual=bytes(body[:8]).hex(" "),
        )
    contents = finder(body, f"{where}: slice for {part.cpu}")
    places = [Place(part.offset + place.offset, place.size, place.member) for place in contents.places]
    return Contents(f"{kind}; loaded: {contents.kind}", places)


def _archive_file(data: memoryview, where: str) -> Contents:
    places = []
    kinds: dict[str, None] = {}
    for member in _archive.members(data, where):
        body = data[member.offset : member.offset + member.size]
        finder = _finder(body)
        if finder is None or finder in (_archive_file, _thin_archive, _universal_file):
            continue  # an archive may hold any file
        contents = finder(body, f"{where}: member {shown(member.name)}")
        kinds[contents.kind] = None
        places += [Place(member.offset + place.offset, place.size, member.name) for place in contents.places]
    return Contents(f"ar archive of {' and '.join(kinds) or 'other files'}", places)


def _thin_archive(_data: memoryview, where: str) -> Contents:
    raise LoadError("a thin archive holds only the names of its members", where=where, hint="load the members")


_FORMATS: tuple[tuple[bytes, _Finder], ...] = (
    (fmt.MAGIC, _pack),
    (_elf.MAGIC, _file(_elf.find_packs)),
    *((magic, _file(_macho.find_packs)) for magic in _macho.MAGICS),
    *((magic, _universal_file) for magic in _macho.FAT_MAGICS),
    (_pe.MAGIC, _file(_pe.find_in_image)),
    (_pe.ANONYMOUS_MAGIC, _file(_pe.find_in_anonymous)),
    *((machine.to_bytes(2, "little"), _file(_pe.find_in_object)) for machine in _pe.MACHINES),
    (_archive.MAGIC, _archive_file),
    (_archive.THIN_MAGIC, _thin_archive),
)


def _finder(data: memoryview) -> _Finder | None:
    for magic, finder in _FORMATS:
        if data[: len(magic)] == magic:
            return finder
    return None
