"""What a rule gets: one file with all that is known of it."""

from __future__ import annotations

from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    from emitter.inspect.report import Reader, Report
    from emitter.inspect.view import View
    from emitter.targets._base import Target
    from emitter.verify.containers import Container
    from emitter.verify.profile import Profile
    from emitter.verify.source import Sources

    _T = TypeVar("_T")

__all__ = ["Check", "MemberFacts"]


class MemberFacts:
    """What the rules about archives need of a member: its name, its format (empty: unknown), and its machine."""

    __slots__ = ("format", "identity", "name")

    def __init__(self, name: str, format: str, identity: tuple[object, ...] | None) -> None:  # noqa: A002 - the word
        self.name = name
        self.format = format
        self.identity = identity


class Check:
    """One file that is verified.

    `target` is the one that was named (`judged`), else that of the file's own machine, else None; `version` is the
    one in the target's name. `kind` is `object`, `library`, `executable`, `archive`, `debug`, `pack` or `other`.
    `page_size` is the largest page in bytes that the file must be loadable with, None where nothing is known.
    """

    def __init__(
        self,
        *,
        path: str,
        member: str,
        view: View,
        reader: Reader,
        format: str,  # noqa: A002 - the word of the report
        kind: str,
        profile: Profile,
        target: Target | None = None,
        judged: bool = False,
        version: str | None = None,
        page_size: int | None = None,
        max_size: int | None = None,
        containers: Sequence[Container] = (),
        sources: Sources | None = None,
        members: Sequence[MemberFacts] = (),
        second_parser: bool = False,
    ) -> None:
        self.path = path
        self.member = member
        self.view = view
        self.reader = reader
        self.format = format
        self.kind = kind
        self.profile = profile
        self.target = target
        self.judged = judged
        self.version = version
        self.page_size = page_size
        self.max_size = max_size
        self.containers = containers
        self.sources = sources
        self.members = members
        self.second_parser = second_parser
        self._facts: dict[str, object] = {}

    def knows(self, need: str) -> bool:
        """Return whether what a rule needs is there: `target`, `machine`, `container`, `against`, a profile's key."""
        if need == "target":
            return self.judged
        if need == "machine":
            return self.target is not None
        if need == "page-size":
            return self.page_size is not None
        if need == "max-size":
            return self.max_size is not None
        if need == "pack":
            return bool(self.report.packs)
        if need == "container":
            return bool(self.containers)
        if need == "second-parser" and self.second_parser:
            return True
        if need == "against":
            return self.sources is not None
        return self.profile.get(need) not in (None, False)

    def fact(self, name: str, find: Callable[[], _T]) -> _T:
        """Return what `find` finds, which is asked once for each file."""
        if name not in self._facts:
            self._facts[name] = find()
        return self._facts[name]  # type: ignore[return-value] # each name has one type

    @property
    def report(self) -> Report:
        """The neutral report of the file."""
        return self.fact("report", lambda: self.reader.report(self.page_size or 0))
