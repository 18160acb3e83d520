"""Findings that do not count: those that waivers mean, and those of the baseline, which were there at the beginning.

A finding is known by rule, path, member and subject; what exactly was found may change. Paths are as they were given.
"""

from __future__ import annotations

import os

from emitter.errors import UsageError
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from emitter.verify.model import Finding
    from emitter.verify.result import Result
    from emitter.verify.settings import Settings

__all__ = ["SCHEMA", "suppress", "waive", "write"]

SCHEMA = "emitter.baseline/1"

_KEY = ("rule", "path", "member", "subject")
_MAX_BASELINE = 64 << 20


def _key(finding: Finding) -> tuple[str, ...]:
    return finding.rule, _normal(finding.path), finding.member, finding.subject


def _normal(path: str) -> str:
    return os.path.normpath(path).replace(os.sep, "/")


def waive(result: Result, settings: Settings) -> None:
    """Take out what waivers mean, and say which of them are of no use any more."""
    import datetime

    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    used: set[int] = set()
    kept = []
    for finding in result.findings:
        for number, waiver in enumerate(settings.waivers):
            if settings.waives(waiver, finding):
                used.add(number)
                if waiver.expires is None or waiver.expires >= today:
                    result.waived.append((finding, waiver.reason))
                    break
                result.note(
                    f"the waiver of {waiver.rule} for {waiver.path} expired on {waiver.expires} ({waiver.reason})"
                )
        else:
            kept.append(finding)
    result.findings = kept
    for number, waiver in enumerate(settings.waivers):
        if number not in used:
            result.note(f"the waiver of {waiver.rule} for {waiver.path} is not used ({waiver.reason})")


def suppress(result: Result, path: str | None) -> None:
    """Move the findings that the baseline at `path` knows from `findings` to `known`; None is no baseline."""
    if path is None:
        return
    known = _read(path)
    kept = []
    met = set()
    for finding in result.findings:
        if _key(finding) in known:
            met.add(_key(finding))
            result.known.append(finding)
        else:
            kept.append(finding)
    result.findings = kept
    gone = len(known) - len(met)
    if gone:
        noun = "finding of the baseline is" if gone == 1 else "findings of the baseline are"
        result.note(f"{gone} {noun} gone: --write-baseline takes them out")


def _read(path: str) -> set[tuple[str, ...]]:
    import json

    try:
        with open(path, encoding="utf-8") as file:
            document = json.loads(file.read(_MAX_BASELINE))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(
            f"cannot read the baseline: {getattr(error, 'strerror', None) or error}", where=path or "''"
        ) from error
    rows = document.get("findings") if isinstance(document, dict) and document.get("schema") == SCHEMA else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UsageError("not a baseline", where=path, expected=f"a document of the schema {SCHEMA}")
    return {tuple(str(row.get(key, "")) for key in _KEY) for row in rows}


def write(result: Result, path: str) -> None:
    """Write every finding of a result as the baseline at `path`, sorted."""
    import json

    from emitter.output import write_if_changed

    rows = sorted({_key(finding) for finding in result.findings})
    document = {"schema": SCHEMA, "findings": [dict(zip(_KEY, row, strict=True)) for row in rows]}
    write_if_changed(path, (json.dumps(document, indent=1) + "\n").encode())
