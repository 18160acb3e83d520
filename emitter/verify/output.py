"""The four forms of a result: text for people, JSON, JUnit XML, and annotations for GitHub."""

from __future__ import annotations

from emitter.errors import printable
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from emitter.verify.model import Finding, Rule
    from emitter.verify.result import Result

__all__ = ["FORMATS", "rules_json", "rules_text"]

_COLOURS = {"error": "\x1b[1;31m", "warning": "\x1b[1;33m", "info": "\x1b[36m"}
_RESET = "\x1b[0m"


def _found(finding: Finding) -> str:
    """Return what was expected and found, as one clause."""
    parts = [("expected", finding.expected), ("found", finding.actual)]
    return ", ".join(f"{word} {value}" for word, value in parts if value)


def text(result: Result, *, colour: bool = False) -> str:
    """Return the findings grouped by file, each with its reason and its cure, and a line that counts."""
    lines: list[str] = []
    place = None
    for finding in result.findings:
        if finding.place != place:
            place = finding.place
            lines.append(printable(place))
        tag = f"{finding.severity}[{finding.rule}]"
        tag = f"{_COLOURS[finding.severity]}{tag}{_RESET}" if colour else tag
        subject = f"{finding.subject}: " if finding.subject else ""
        lines.append(f"  {tag} {printable(subject + _found(finding))}")
        lines += [f"    why: {printable(finding.why)}", f"    fix: {printable(finding.fix)}"]
    lines += [f"note: {printable(note)}" for note in result.notes]
    lines += [f"error: {printable(str(error))}" for error in result.errors]
    return "\n".join([*lines, _summary(result)]) + "\n"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _summary(result: Result) -> str:
    counts = ", ".join(
        _count(result.count(severity), noun)
        for severity, noun in (("error", "error"), ("warning", "warning"), ("info", "remark"))
        if result.count(severity) or severity == "error"
    )
    line = f"{_count(len(result.files), 'artefact')} verified: {counts}"
    if result.errors:
        line += f"; {len(result.errors)} could not be verified"
    if result.waived:
        line += f"; {len(result.waived)} waived"
    if result.known:
        line += f"; {len(result.known)} known from the baseline"
    if result.passed_over:
        line += f"; {_count(result.passed_over, 'other file')} passed over"
    return line


def json(result: Result, *, colour: bool = False) -> str:
    """Return the document of the schema `emitter.verify/1`."""
    del colour
    from json import dumps

    return dumps(result.to_json(), indent=1) + "\n"


def junit(result: Result, *, colour: bool = False) -> str:
    """Return JUnit XML: a suite for each artefact, in which each finding is a test.

    Findings at or above the severity that fails are failures; others are tests that pass and say something.
    """
    del colour
    by_place: dict[str, list[Finding]] = {file.place: [] for file in result.files}
    for finding in result.findings:
        by_place.setdefault(finding.place, []).append(finding)
    failing = set(result.worst)
    suites = [_suite(place, findings, failing) for place, findings in by_place.items()]
    if result.errors:
        cases = [
            f'  <testcase classname="emitter.verify" name="{_xml(error.where or "emitter")}">'
            f'<error message="{_xml(str(error))}"/></testcase>'
            for error in result.errors
        ]
        head = f' <testsuite name="emitter" tests="{len(cases)}" failures="0" errors="{len(cases)}">'
        suites.append("\n".join([head, *cases, " </testsuite>"]))
    tests = sum(suite.count("<testcase") for suite in suites)
    failures = sum(finding in failing for finding in result.findings)
    head = f'<testsuites name="emitter verify" tests="{tests}" failures="{failures}" errors="{len(result.errors)}">'
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', head, *suites, "</testsuites>"]) + "\n"


def _suite(place: str, findings: list[Finding], failing: set[Finding]) -> str:
    cases = []
    for finding in findings:
        name = f"{finding.rule}: {finding.subject}" if finding.subject else finding.rule
        body = f"{_found(finding)}\nwhy: {finding.why}\nfix: {finding.fix}"
        if finding in failing:
            said = f'<failure type="{finding.rule}" message="{_xml(_found(finding))}">{_xml(body)}</failure>'
        else:
            said = f"<system-out>{_xml(f'{finding.severity}: {body}')}</system-out>"
        cases.append(f'  <testcase classname="{_xml(place)}" name="{_xml(name)}">{said}</testcase>')
    if not cases:
        cases.append(f'  <testcase classname="{_xml(place)}" name="emitter verify"/>')
    failures = sum(finding in failing for finding in findings)
    head = f' <testsuite name="{_xml(place)}" tests="{len(cases)}" failures="{failures}" errors="0">'
    return "\n".join([head, *cases, " </testsuite>"])


def _xml(value: str) -> str:
    """Escape a text for XML, in which most control characters cannot be written at all."""
    shown = "\n".join(printable(line) for line in value.split("\n"))
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("\n", "&#10;")):
        shown = shown.replace(character, entity)
    return shown


_GITHUB = {"error": "error", "warning": "warning", "info": "notice"}


def github(result: Result, *, colour: bool = False) -> str:
    """Return workflow commands, which GitHub shows beside the files, and the line that counts."""
    del colour
    lines = []
    for finding in result.findings:
        subject = f"{finding.subject}: " if finding.subject else ""
        message = f"{finding.place}: {subject}{_found(finding)}\n{finding.why}\n{finding.fix}"
        place = f"file={_property(finding.path)},title={_property(finding.rule)}"
        lines.append(f"::{_GITHUB[finding.severity]} {place}::{_data(message)}")
    lines += [f"::notice title=emitter::{_data(note)}" for note in result.notes]
    lines += [f"::error title=emitter::{_data(str(error))}" for error in result.errors]
    return "\n".join([*lines, _summary(result)]) + "\n"


def _data(value: str) -> str:
    shown = "\n".join(printable(line) for line in value.split("\n"))
    return shown.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _data(value).replace(":", "%3A").replace(",", "%2C")


FORMATS: dict[str, Callable[..., str]] = {"text": text, "json": json, "junit": junit, "github": github}


def rules_text(rules: Iterable[Rule], *, full: bool) -> str:
    """Return the table of rules, or, with `full`, all that each says of itself."""
    rules = list(rules)
    if full:
        return "\n".join(_explained(rule) for rule in rules)
    width = max(len(rule.id) for rule in rules)
    return "\n".join(f"{rule.id:<{width}}  {rule.severity:<7}  {rule.title}" for rule in rules) + "\n"


def _explained(rule: Rule) -> str:
    needs = f"\n  asked when known: {', '.join(rule.needs)}" if rule.needs else ""
    kinds = f" ({', '.join(rule.kinds)})" if rule.kinds else ""
    formats = "every format" if rule.formats == ("*",) else ", ".join(rule.formats)
    return (
        f"{rule.id}\n  {rule.title}\n  severity: {rule.severity}\n  applies to: {formats}{kinds}{needs}"
        f"\n  since edition: {rule.since}\n  why: {rule.why}\n  fix: {rule.fix}\n"
    )


def rules_json(rules: Iterable[Rule]) -> dict[str, object]:
    """Return the document of the schema `emitter.rules/1`."""
    return {"schema": "emitter.rules/1", "rules": [rule.to_json() for rule in rules]}
