"""What rules are made of: a rule is one function with a header that says what it is about, and finds what breaks it."""

from __future__ import annotations

from emitter.errors import UsageError, shown
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TypeAlias

    from emitter.verify.check import Check

__all__ = [
    "EDITION",
    "RULES",
    "SEVERITIES",
    "Finding",
    "Found",
    "Rule",
    "Severity",
    "find_rule",
    "nearest",
    "rank",
    "rule",
]

Severity: TypeAlias = str  # one of SEVERITIES; profiles, configurations and options name them too

SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error")

# The newest edition of the rules. A rule is of the edition that it came with; whoever names an edition in the
# configuration gets what newer rules find as information only.
EDITION = 1


class Found(NamedTuple):
    """What a rule saw: `subject` is the section, segment, symbol or member that it is about, empty for the file.

    `severity` and `fix` are those of the rule where they are None.
    """

    subject: str
    expected: object
    actual: object
    severity: Severity | None = None
    fix: str | None = None


class Finding(NamedTuple):
    """A rule that a file breaks. `path` is as it was given; `member` is the path inside a container, or empty."""

    rule: str
    severity: Severity
    path: str
    member: str
    subject: str
    expected: str
    actual: str
    why: str
    fix: str

    @property
    def place(self) -> str:
        """The file: `path`, or `path!member`."""
        return f"{self.path}!{self.member}" if self.member else self.path

    def to_json(self) -> dict[str, str]:
        """Return the parts under the keys of the schema `emitter.verify/1`."""
        return dict(zip(self._fields, self, strict=True))


class Rule(NamedTuple):
    """The header of a rule, and the function that looks for what breaks it.

    `formats` are those of `emitter.inspect` (`elf`, `macho`, `pe`, `coff`, ...); `kinds` the kinds of artefact, all
    where it is empty. `needs` are what must be known for the rule to be asked: `target` (one was named), `machine` (one
    was named, or the file's own is known) and the keys of a profile. `since` is the edition that the rule came with.
    """

    id: str
    title: str
    severity: Severity
    why: str
    fix: str
    formats: tuple[str, ...]
    kinds: tuple[str, ...]
    needs: tuple[str, ...]
    since: int
    check: Callable[[Check], Iterable[Found]]

    def to_json(self) -> dict[str, object]:
        """Return the header under the keys of the schema `emitter.rules/1`."""
        return {
            "id": self.id,
            "title": self.title,
            "severity": self.severity,
            "why": self.why,
            "fix": self.fix,
            "formats": list(self.formats),
            "kinds": list(self.kinds),
            "needs": list(self.needs),
            "since": self.since,
        }


RULES: dict[str, Rule] = {}  # filled by importing emitter.verify.rules


def rule(
    name: str,
    title: str,
    *,
    severity: Severity = "error",
    why: str,
    fix: str,
    formats: tuple[str, ...] = ("elf",),
    kinds: tuple[str, ...] = (),
    needs: tuple[str, ...] = (),
    since: int = 1,
) -> Callable[[Callable[[Check], Iterator[Found]]], Callable[[Check], Iterator[Found]]]:
    """Enter the function below into the table of rules."""

    def enter(check: Callable[[Check], Iterator[Found]]) -> Callable[[Check], Iterator[Found]]:
        if name in RULES:
            msg = f"two rules are called {name}"
            raise ValueError(msg)
        RULES[name] = Rule(name, title, severity, why, fix, formats, kinds, needs, since, check)
        return check

    return enter


def rank(severity: str) -> int:
    """Return the place of a severity, the worst highest."""
    return SEVERITIES.index(severity)


def find_rule(name: str) -> Rule:
    """Return the rule called `name`; raise UsageError, with the nearest names, if there is none."""
    if name not in RULES:
        raise UsageError("no such rule", where=shown(name), hint=nearest(name, RULES, "emitter rules lists them"))
    return RULES[name]


def nearest(name: str, names: Iterable[str], otherwise: str | None = None) -> str | None:
    """Return a hint that names the nearest of `names`, or `otherwise` where none is near."""
    from difflib import get_close_matches

    near = get_close_matches(name, list(names), n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else otherwise
