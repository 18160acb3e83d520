"""Reads any artefact (objects, archives, libraries, executables, packs) into one neutral report; runs nothing of it.

A file is recognised by its first bytes, through one table. What is not recognised is an error, never an empty report.
"""

from __future__ import annotations

from emitter.errors import EmitterError, InputError
from emitter.inspect.report import Artefact, Member, Reader
from emitter.inspect.view import View
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import os

__all__ = ["READERS", "Row", "open_file", "recognise", "recognise_member"]

_MAX_NESTING = 4  # archive in universal file in archive ...
_LONGEST_MAGIC = 16


class Row(NamedTuple):
    """A format: `magic` at the start of a file, and the class that reads it, imported when one is met."""

    magic: bytes
    module: str
    name: str


# The first row that fits is taken.
READERS: tuple[Row, ...] = (
    Row(b"\x7fELF", "elf", "ElfFile"),
    Row(b"\x89EMT\r\n\x1a\n", "pack", "PackFile"),
    Row(b"\xcf\xfa\xed\xfe", "macho", "MachOFile"),
    Row(b"\xce\xfa\xed\xfe", "macho", "MachOFile"),
    Row(b"\xfe\xed\xfa\xcf", "macho", "MachOFile"),
    Row(b"\xfe\xed\xfa\xce", "macho", "MachOFile"),
    Row(b"\xca\xfe\xba\xbe", "universal", "UniversalFile"),
    Row(b"\xca\xfe\xba\xbf", "universal", "UniversalFile"),
    Row(b"!<arch>\n", "archive", "ArchiveFile"),
    Row(b"!<thin>\n", "archive", "ArchiveFile"),
    Row(b"MZ", "pe", "PeFile"),
    Row(b"\0\0\xff\xff", "coff", "BigObjFile"),
    Row(b"\0\0\xff\xff", "coff", "ImportObject"),
    # Objects of COFF begin with their machine.
    Row(b"\x64\x86", "coff", "CoffFile"),
    Row(b"\x64\xaa", "coff", "CoffFile"),
    Row(b"\x4c\x01", "coff", "CoffFile"),
    Row(b"\xc4\x01", "coff", "CoffFile"),
    Row(b"\x41\xa6", "coff", "CoffFile"),
    Row(b"\x4e\xa6", "coff", "CoffFile"),
    Row(b"\x64\x50", "coff", "CoffFile"),
    Row(b"\x64\x62", "coff", "CoffFile"),
)


def open_file(path: str | os.PathLike[str]) -> Artefact:
    """Open and recognise a file; close it through the artefact, which is a context manager.

    Raises InputError for what cannot be opened, is empty, or is no known format; FormatError for a broken header.
    """
    view = View.open(path)
    try:
        return recognise(view)
    except BaseException:
        view.close()
        raise


def recognise(view: View) -> Artefact:
    """Return the artefact in `view`. Raises InputError for one of no known format, FormatError for a broken header."""
    reader = _reader(view)
    if reader is None:
        raise InputError(
            "not an object file, an archive or a pack",
            where=view.where,
            actual=f"it begins with {view.read_up_to(0, 8).hex(' ') or 'nothing'}",
            hint="name an ELF, Mach-O, PE or COFF file, an ar archive, or a pack",
        )
    return Artefact(view.where, view, reader)


def recognise_member(member: Member, parent: Artefact) -> Artefact:
    """Return a member of `parent`; one that is not known, or broken, says so in `reader` and `error`."""
    depth, above = 1, parent.parent
    while above is not None:
        depth, above = depth + 1, above.parent
    try:
        if depth > _MAX_NESTING:
            raise InputError(
                "containers are nested too deeply", where=member.view.where, expected=f"at most {_MAX_NESTING} levels"
            )
        return Artefact(member.name, member.view, _reader(member.view), parent)
    except EmitterError as error:
        return Artefact(member.name, member.view, None, parent, error)


def _reader(view: View) -> Reader | None:
    from importlib import import_module

    start = view.read_up_to(0, _LONGEST_MAGIC)
    for row in READERS:
        if start.startswith(row.magic):
            reader: type[Reader] = getattr(import_module(f"emitter.inspect.{row.module}"), row.name)
            if reader.fits(view):
                return reader(view)
    return None
