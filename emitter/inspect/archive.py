"""Reads ar archives: GNU, BSD, COFF and thin ones, with their symbol indexes.

A member has a header of 60 ASCII bytes, begins at an even offset, and is padded with a newline. Long names stand in a
member of their own (`//`, named `/OFFSET`), or before the member's bytes (`#1/LENGTH`). The index of symbols is a
member too: `/` (32-bit big-endian words; a second one of COFF is little-endian and sorted), `/SYM64/`, or one of the
variants of `__.SYMDEF`.

Source: the manual of `ar`; binutils for the GNU forms; <mach-o/ranlib.h>; Microsoft, "PE Format": Archive (Library)
File Format.
"""

from __future__ import annotations

from functools import cached_property

from emitter.errors import FormatError, shown
from emitter.inspect.budget import NameBudget
from emitter.inspect.report import Member, Reader
from emitter.inspect.view import MAX_STRING
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.inspect.archive_index import IndexEntry
    from emitter.inspect.view import View

__all__ = ["ArMember", "ArchiveFile"]

MAGIC, THIN_MAGIC = b"!<arch>\n", b"!<thin>\n"

_HEADER_SIZE = 60
_BSD_INDEXES = ("__.SYMDEF", "__.SYMDEF SORTED", "__.SYMDEF_64", "__.SYMDEF_64 SORTED")
# ARM64EC's libraries have these beside the other two.
_GNU_SPECIAL = ("/", "//", "/SYM64/", "/<HYBRIDMAP>/", "/<ECSYMBOLS>/", "/<XFGHASHMAP>/")


class ArMember(NamedTuple):
    """A member: `size` bytes from `offset` of the archive; `header_offset` is what an index gives.

    `ar_date`, `ar_uid`, `ar_gid` and `ar_mode` are the texts of the header without their padding, `ar_name` that of the
    name's field. `special`: an index or the table of names.
    """

    name: str
    header_offset: int
    offset: int
    size: int
    ar_name: str
    ar_date: str
    ar_uid: str
    ar_gid: str
    ar_mode: str
    special: bool


class ArchiveFile(Reader):
    """An archive. Making one reads the magic; raises FormatError where it is another.

    `variant` is `gnu`, `bsd` or `coff`, after the index and the long names; `gnu` where nothing tells.
    """

    container = True

    def __init__(self, view: View) -> None:
        super().__init__(view)
        magic = view.read(0, len(MAGIC), "the magic")
        if magic not in (MAGIC, THIN_MAGIC):
            raise FormatError("not an archive", where=view.where, actual=magic.hex(" "))
        self.thin = magic == THIN_MAGIC
        self.kind = "thin archive" if self.thin else "archive"

    def headers(self) -> Iterator[ArMember]:
        """Yield every member, special ones too, in file order; those of a thin archive lie outside of it."""
        position, names = len(MAGIC), b""
        take = NameBudget(self.view, "the names of members").take
        while position < self.view.size:
            if position == self.view.size - 1 and self.view.read(position, 1, "padding") == b"\n":
                return
            member, follows = self._header(position, names)
            if member.ar_name == "//":
                names = self.view.read(member.offset, member.size, "the table of long names")
            take(member.name)
            yield member
            position = follows

    def members(self) -> Iterator[Member]:
        """Yield the members that are files. Raises FormatError for a thin archive, which holds none."""
        for member in self.headers():
            if member.special:
                continue
            where = f"{self.view.where}: member {shown(member.name)[1:-1]}"
            if self.thin:
                raise FormatError(
                    "a thin archive holds only the names of its members",
                    where=where,
                    hint="name the member itself, or make the archive without --thin",
                )
            yield Member(member.name, self.view.window(member.offset, member.size, where))

    @cached_property
    def indexes(self) -> tuple[ArMember, ...]:
        """The members that are indexes of symbols; they stand before all files, so that no more is read."""
        found = []
        for member in self.headers():
            if not member.special:
                break
            if member.ar_name in ("/", "/SYM64/") or member.name in _BSD_INDEXES:
                found.append(member)
        return tuple(found)

    @property
    def variant(self) -> str:
        """`bsd`, `coff` or `gnu`."""
        first = next((member.ar_name for member in self.headers()), "")
        if first.startswith(("#1/", "__.SYMDEF")):
            return "bsd"
        return "coff" if [member.ar_name for member in self.indexes].count("/") > 1 else "gnu"

    def index(self) -> Iterator[IndexEntry]:
        """Yield what the indexes say: a symbol, and the header of the member that defines it."""
        from emitter.inspect.archive_index import read_index

        for number, member in enumerate(self.indexes):
            yield from read_index(self.view, member, second=member.ar_name == "/" and number > 0)

    def index_faults(self) -> Iterator[FormatError]:
        """Yield where the index and the members differ. Reads the symbol tables of all members."""
        from emitter.inspect.archive_index import index_faults

        return index_faults(self)

    def _header(self, position: int, names: bytes) -> tuple[ArMember, int]:
        """Return the member whose header is at `position`, and where the next header is."""
        where = f"{self.view.where}: member header at {position:#x}"
        header = self.view.read(position, _HEADER_SIZE, "a member header")
        if header[58:] != b"`\n":
            raise FormatError(
                "not a member header", where=where, expected="60 0a at its end", actual=header[58:].hex(" ")
            )
        fields = [header[start:end].rstrip(b" ") for start, end in _FIELDS]
        ar_name, date, uid, gid, mode = (field.decode("utf-8", "surrogateescape") for field in fields[:5])
        size = _number(fields[5], "ar_size", where)
        offset = position + _HEADER_SIZE
        held = 0 if self.thin and ar_name not in _GNU_SPECIAL else size
        self.view.check(offset, held, f"the member at {position:#x}")
        follows = offset + held + (held & 1)
        name = ar_name
        if ar_name.startswith("#1/"):
            length = _number(fields[0][3:], "the length of the name", where)
            if length > min(size, MAX_STRING):
                most = min(size, MAX_STRING)
                raise FormatError("the name is too long", where=where, expected=f"at most {most}", actual=length)
            name = self.view.read(offset, length, "a name").rstrip(b"\0").decode("utf-8", "surrogateescape")
            offset, size = offset + length, size - length
        elif ar_name[:1] == "/" and ar_name[1:].isdigit():
            name = _long_name(names, _number(fields[0][1:], "the offset of the name", where), where)
        elif ar_name not in _GNU_SPECIAL:
            name = ar_name.removesuffix("/")
        special = ar_name in _GNU_SPECIAL or name in _BSD_INDEXES
        return ArMember(name, position, offset, size, ar_name, date, uid, gid, mode, special), follows


# ar_name, ar_date, ar_uid, ar_gid, ar_mode, ar_size
_FIELDS = ((0, 16), (16, 28), (28, 34), (34, 40), (40, 48), (48, 58))


def _number(field: bytes, what: str, where: str) -> int:
    if not field.isdigit():
        raise FormatError(f"{what} is not a decimal number", where=where, actual=repr(field))
    return int(field)


def _long_name(names: bytes, start: int, where: str) -> str:
    """Return the name at `start` of the table: up to `/` and a newline (GNU), or to NUL (COFF)."""
    limit = start + MAX_STRING
    ends = [end for end in (names.find(b"\n", start, limit), names.find(b"\0", start, limit)) if end >= 0]
    if start >= len(names) or not ends:
        raise FormatError(
            "the name is not in the table of names", where=where, expected=f"below {len(names)}", actual=start
        )
    return names[start : min(ends)].removesuffix(b"/").decode("utf-8", "surrogateescape")
