"""The symbol indexes of archives: read, and compared with what the members define."""

from __future__ import annotations

from emitter.errors import EmitterError, FormatError, shown
from emitter.inspect.budget import NameBudget
from emitter.inspect.elf import StringTable
from emitter.inspect.report import Artefact
from emitter.inspect.view import MAX_STRING
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.inspect.archive import ArchiveFile, ArMember
    from emitter.inspect.view import View

__all__ = ["IndexEntry", "index_faults", "read_index"]

_MAX_ENTRIES = 1 << 22
_MAX_FAULTS = 64


class IndexEntry(NamedTuple):
    """A symbol, and where the header of the member that defines it stands in the archive."""

    name: str
    header_offset: int


def read_index(view: View, member: ArMember, *, second: bool) -> Iterator[IndexEntry]:
    """Yield the entries of one index. `second`: it is the second linker member of COFF."""
    body = view.window(member.offset, member.size, f"{view.where}: index {member.name}")
    if member.name.startswith("__.SYMDEF"):
        return _read_bsd(body, 8 if member.name.startswith("__.SYMDEF_64") else 4)
    if second:
        return _read_coff(body)
    return _read_gnu(body, 8 if member.ar_name == "/SYM64/" else 4)


def _bounded(view: View, count: int) -> int:
    if count > _MAX_ENTRIES:
        raise FormatError("too many symbols", where=view.where, expected=f"at most {_MAX_ENTRIES}", actual=count)
    return count


def _strings(view: View, offset: int, count: int) -> Iterator[str]:
    """Yield `count` strings that follow each other from `offset`."""
    left, found = b"", 0
    for chunk in view.chunks(offset, view.size - offset, "the names of the index"):
        *whole, left = (left + chunk).split(b"\0")
        for text in whole:
            if found == count:
                return
            found += 1
            yield text.decode("utf-8", "surrogateescape")
        if len(left) > MAX_STRING:
            break
    if found < count:
        raise FormatError("names of the index are missing", where=view.where, expected=count, actual=found)


def _read_gnu(view: View, word: int) -> Iterator[IndexEntry]:
    form = ">I" if word == 4 else ">Q"
    (count,) = view.unpack(form, 0, "the number of symbols")
    rows = view.table(form, word, word, _bounded(view, count), "the offsets of the index")
    for (offset,), name in zip(rows, _strings(view, word * (1 + count), count), strict=True):
        yield IndexEntry(name, offset)


def _read_coff(view: View) -> Iterator[IndexEntry]:
    (members,) = view.unpack("<I", 0, "the number of members")
    offsets = [row[0] for row in view.table("<I", 4, 4, _bounded(view, members), "the offsets of members")]
    at = 4 + 4 * members
    (count,) = view.unpack("<I", at, "the number of symbols")
    rows = view.table("<H", at + 4, 2, _bounded(view, count), "the members of symbols")
    for (number,), name in zip(rows, _strings(view, at + 4 + 2 * count, count), strict=True):
        if not 0 < number <= members:
            raise FormatError(
                f"the member of {shown(name)}", where=view.where, expected=f"1 to {members}", actual=number
            )
        yield IndexEntry(name, offsets[number - 1])


def _read_bsd(view: View, word: int) -> Iterator[IndexEntry]:
    """`ranlib` records: the byte order is the target's, so it is the one in which the sizes fit."""
    code = "I" if word == 4 else "Q"
    for order in ("<", ">"):
        (size,) = view.unpack(order + code, 0, "the size of the index")
        if size % (2 * word) == 0 and 2 * word + size <= view.size:
            break
    else:
        raise FormatError("the size of the index", where=view.where, expected=f"at most {view.size - 2 * word}")
    count = _bounded(view, size // (2 * word))
    (length,) = view.unpack(order + code, word + size, "the size of the index's names")
    strings = StringTable(view, 2 * word + size, length, "the names of the index")
    for strx, offset in view.table(order + 2 * code, word, 2 * word, count, "the index"):
        yield IndexEntry(strings.get(strx, "a name of the index"), offset)


def index_faults(archive: ArchiveFile) -> Iterator[FormatError]:
    """Yield where an index and the members differ: an offset that is no member's, a name too many or too few.

    A linker takes from an archive what the index names, and nothing else; of members that define one name it needs the
    first alone, and some archivers name no more. Members that cannot be read are left to their readers. At most
    64 differences of each index are told.
    """
    from emitter.inspect import recognise_member

    places = [member.header_offset for member in archive.headers() if not member.special]
    parent = Artefact(archive.view.where, archive.view, archive)
    for number, index in enumerate(archive.indexes):
        where = f"{archive.view.where}: index {index.name}"
        indexed: dict[int, set[str]] = {}
        take = NameBudget(archive.view, "the names of the index").take
        for entry in read_index(archive.view, index, second=index.ar_name == "/" and number > 0):
            indexed.setdefault(entry.header_offset, set()).add(take(entry.name))
        everywhere = set().union(*indexed.values())
        told = 0
        for offset in sorted(indexed.keys() - set(places)):
            told += 1
            if told > _MAX_FAULTS:
                return
            yield FormatError(
                f"{shown(min(indexed[offset]))} leads to no member", where=where, actual=f"offset {offset:#x}"
            )
        if archive.thin:
            continue
        offsets = iter(places)
        for member in archive.members():
            offset = next(offsets)
            defined = _defined(recognise_member(member, parent))
            if defined is None:
                continue
            named = indexed.get(offset, set())
            wrong = [(name, "defines") for name in sorted(defined - everywhere)]
            wrong += [(name, "does not define") for name in sorted(named - defined)]
            for name, word in wrong:
                told += 1
                if told > _MAX_FAULTS:
                    return
                expected = "in the index" if word == "defines" else "not in the index"
                yield FormatError(f"member {shown(member.name)} {word} {shown(name)}", where=where, expected=expected)


def _defined(artefact: Artefact) -> set[str] | None:
    """Return the names that a linker may take the member for; None for one that is no object, or broken."""
    if artefact.reader is None or artefact.container:
        return None
    try:
        report = artefact.reader.report()
        take = NameBudget(artefact.view, "the names of symbols").take
        return {
            take(symbol.name)
            for symbol in report.symbols()
            if symbol.binding != "local" and symbol.place != "undefined" and symbol.table == "symtab"
        }
    except EmitterError:
        return None
