"""What is asked of a run of verification, and what came of it."""

from __future__ import annotations

from emitter.records import TYPE_CHECKING, NamedTuple
from emitter.verify.model import rank

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emitter.errors import EmitterError
    from emitter.verify.model import Finding

__all__ = ["Options", "Result", "Verified"]


class Options(NamedTuple):
    """What the caller asks for; what is None comes from the configuration, then from the profile.

    `target` is a target's name in any spelling, `page_size` and `max_size` are bytes, `against` paths of inputs whose
    tensors the artefacts must hold, `config` the path of a configuration (None: it is looked for; empty: none),
    `severities` what to make of single rules; `writes_baseline`: no finding is known; `second_parser`: ask pyelftools
    and lief too.
    """

    target: str | None = None
    profile: str | None = None
    page_size: int | None = None
    max_size: int | None = None
    against: tuple[str, ...] = ()
    config: str | None = None
    baseline: str | None = None
    writes_baseline: bool = False
    severities: Mapping[str, str] = {}
    second_parser: bool = False


class Verified(NamedTuple):
    """An artefact that was verified: where it is, what it is, and what for."""

    path: str
    member: str
    kind: str
    target: str
    identity_judged: bool
    profile: str

    @property
    def place(self) -> str:
        """The file: `path`, or `path!member`."""
        return f"{self.path}!{self.member}" if self.member else self.path


class Result:
    """What came of it. `findings` are those that count; `waived` and `known` (from the baseline) do not.

    `errors` are files that could not be verified at all; `passed_over` counts what is no artefact in directories and
    containers.
    """

    def __init__(self) -> None:
        self.files: list[Verified] = []
        self.findings: list[Finding] = []
        self.waived: list[tuple[Finding, str]] = []
        self.known: list[Finding] = []
        self.notes: list[str] = []
        self.errors: list[EmitterError] = []
        self.passed_over = 0
        self.fail_on = "error"

    def count(self, severity: str) -> int:
        """Return how many findings have a severity."""
        return sum(finding.severity == severity for finding in self.findings)

    @property
    def worst(self) -> list[Finding]:
        """The findings that fail: those at or above `fail_on`."""
        if self.fail_on == "never":
            return []
        return [finding for finding in self.findings if rank(finding.severity) >= rank(self.fail_on)]

    @property
    def status(self) -> int:
        """The exit status: 2 where something could not be verified, 1 for findings, else 0."""
        return 2 if self.errors else 1 if self.worst else 0

    def note(self, line: str) -> None:
        """Say something about the run, once."""
        if line not in self.notes:
            self.notes.append(line)

    def to_json(self) -> dict[str, object]:
        """Return the document of the schema `emitter.verify/1`."""
        return {
            "schema": "emitter.verify/1",
            "status": self.status,
            "files": [file._asdict() for file in self.files],
            "findings": [finding.to_json() for finding in self.findings],
            "waived": [{**finding.to_json(), "reason": reason} for finding, reason in self.waived],
            "known": [finding.to_json() for finding in self.known],
            "passed_over": self.passed_over,
            "notes": self.notes,
            "errors": [error.to_json() for error in self.errors],
        }
