"""Static archives: what their members are, their index, and what differs from build to build."""

from __future__ import annotations

import re
from typing import cast

from emitter.errors import shown
from emitter.records import TYPE_CHECKING
from emitter.verify.model import Found, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.inspect.archive import ArchiveFile
    from emitter.verify.check import Check

_ARCHIVE = ("archive",)


def archive_of(check: Check) -> ArchiveFile | None:
    """Return the reader of an ar archive, or None for a universal file."""
    return cast("ArchiveFile", check.reader) if "archive" in check.reader.kind else None


# A13
@rule(
    "archive-mixed",
    "The members of an archive are for different machines",
    why="the link takes what it can and leaves out the rest: symbols are missing, or a member of another CPU is linked",
    fix="make the archive again in an empty folder; ar adds to one that is there",
    formats=_ARCHIVE,
)
def archive_mixed(check: Check) -> Iterator[Found]:
    """Compare each member with the target, or with the machine that most members are for."""
    if archive_of(check) is None:
        return
    known = [member for member in check.members if member.identity is not None]
    kinds = [member.identity for member in known]
    if len(set(kinds)) < 2:
        return
    usual = max(set(kinds), key=lambda one: (kinds.count(one), -kinds.index(one)))
    for member in known:
        if member.identity != usual:
            yield Found(f"member {shown(member.name)[1:-1]}", _words(usual), _words(member.identity))


def _words(identity: tuple[object, ...] | None) -> str:
    machine, _, width, order = identity or ("nothing", None, None, "")
    return f"{machine}, {width} bits, {order}-endian"


@rule(
    "archive-empty",
    "An archive holds no object",
    severity="warning",
    why="whoever links it gets nothing, and learns it from undefined symbols later",
    fix="look at how it is made: the list of objects was empty",
    formats=_ARCHIVE,
)
def archive_empty(check: Check) -> Iterator[Found]:
    """Look for members that are objects."""
    if archive_of(check) is not None and not any(member.format for member in check.members):
        # glibc and musl ship such archives for libraries that became part of libc.
        yield Found("", "an object", f"{len(check.members)} members, none of them an object", "info")


# of our own: members that no linker takes
@rule(
    "archive-member",
    "A member of an archive is no object",
    severity="info",
    why="linkers skip it, or stop at it",
    fix="take it out (ar d), if it is not a compiler's own note",
    formats=_ARCHIVE,
)
def archive_member(check: Check) -> Iterator[Found]:
    """Report members that are nothing known."""
    if any(member.format for member in check.members):
        for member in check.members:
            if not member.format:
                yield Found(f"member {shown(member.name)[1:-1]}", "an object", "something else")


@rule(
    "archive-index",
    "The index of an archive does not fit its members",
    why="the linker looks symbols up in it: it takes the wrong member, or none",
    fix="make the index again: ranlib",
    formats=_ARCHIVE,
)
def archive_index(check: Check) -> Iterator[Found]:
    """Compare the index with the symbols of the members."""
    archive = archive_of(check)
    if archive is None or archive.thin:
        return
    if not archive.indexes:
        if any(member.format for member in check.members):
            yield Found("index", "there", "none: GNU ld refuses the archive", "warning")
        return
    for error in archive.index_faults():
        yield Found("index", error.expected or "", f"{error.what}: {error.actual}" if error.actual else error.what)


_LARGE = 1 << 32


# A97, B25
@rule(
    "archive-large",
    "An archive is larger than its index can say",
    why="offsets from 4 GiB on are cut: linkers take the wrong member",
    fix="make it with an ar that writes /SYM64/ (binutils, llvm-ar, emitter); for COFF there is none: split it",
    formats=_ARCHIVE,
)
def archive_large(check: Check) -> Iterator[Found]:
    """Look for a member that begins beyond 4 GiB, and an index of 32 bits."""
    archive = archive_of(check)
    if archive is None or check.view.size <= _LARGE:
        return
    narrow = [index.name for index in archive.indexes if index.ar_name == "/"]
    last = max((member.header_offset for member in archive.headers()), default=0)
    if narrow and last >= _LARGE:
        yield Found(f"index {narrow[0]}", "/SYM64/", f"a member at {last:#x}")


_TEMPORARY = re.compile(r"^(?:cc[A-Za-z0-9]{6}|tmp[A-Za-z0-9_]{6,}|[0-9a-f]{32,})\.\w{1,3}$")


# A69
@rule(
    "archive-reproducible",
    "An archive holds times, owners or temporary names",
    severity="info",
    why="two builds of the same sources differ, so that caches miss and nobody can compare them",
    fix="make it with ar rcsD (or ZERO_AR_DATE=1), of members with fixed names",
    formats=_ARCHIVE,
)
def archive_reproducible(check: Check) -> Iterator[Found]:
    """Look at the headers of the members."""
    archive = archive_of(check)
    if archive is None:
        return
    for member in archive.headers():
        subject = f"member {shown(member.name)[1:-1]}"
        fields = {"time": member.ar_date, "owner": member.ar_uid, "group": member.ar_gid}
        told = [f"{word} {value}" for word, value in fields.items() if value.strip("0 ")]
        if told:
            yield Found(subject, "0", ", ".join(told))
        if _TEMPORARY.match(member.name):
            yield Found(subject, "a name that stays", member.name)
