"""Finds the packs in a file by what the file says of itself; never by searching.

A format is one row of `_FORMATS`: its magic, and the function that finds the packs.
"""

from __future__ import annotations

from emitter.errors import LoadError, shown
from emitter.loaders import _archive, _elf
from emitter.loaders._header import read_header
from emitter.pack import format as fmt
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Contents", "Place", "find"]


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
            expected="a pack, an ELF file or an archive",
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


def _elf_file(data: memoryview, where: str) -> Contents:
    kind, packs = _elf.find_packs(data, where)
    return Contents(kind, [Place(*pack) for pack in packs])


def _archive_file(data: memoryview, where: str) -> Contents:
    places = []
    kinds: dict[str, None] = {}
    for member in _archive.members(data, where):
        body = data[member.offset : member.offset + member.size]
        finder = _finder(body)
        if finder is None or finder in (_archive_file, _thin_archive):
            continue  # an archive may hold any file
        contents = finder(body, f"{where}: member {shown(member.name)}")
        kinds[contents.kind] = None
        places += [Place(member.offset + place.offset, place.size, member.name) for place in contents.places]
    return Contents(f"ar archive of {' and '.join(kinds) or 'other files'}", places)


def _thin_archive(_data: memoryview, where: str) -> Contents:
    raise LoadError("a thin archive holds only the names of its members", where=where, hint="load the members")


_FORMATS: tuple[tuple[bytes, Callable[[memoryview, str], Contents]], ...] = (
    (fmt.MAGIC, _pack),
    (_elf.MAGIC, _elf_file),
    (_archive.MAGIC, _archive_file),
    (_archive.THIN_MAGIC, _thin_archive),
)


def _finder(data: memoryview) -> Callable[[memoryview, str], Contents] | None:
    for magic, finder in _FORMATS:
        if data[: len(magic)] == magic:
            return finder
    return None
