"""Judges: decides what a file is measured against, asks each rule that applies, and keeps what they found."""

from __future__ import annotations

import os

from emitter.errors import EmitterError, FormatError, InputError, LoadError, UsageError, shown
from emitter.records import TYPE_CHECKING
from emitter.verify.check import Check
from emitter.verify.identify import guess_target, kind_of, page_size_of
from emitter.verify.model import RULES, Finding, Found
from emitter.verify.profile import DEFAULT, load_profile
from emitter.verify.result import Result, Verified

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emitter.inspect.report import Artefact, Fault
    from emitter.targets import Resolved
    from emitter.verify.check import MemberFacts
    from emitter.verify.containers import Item
    from emitter.verify.model import Rule
    from emitter.verify.profile import Profile
    from emitter.verify.result import Options
    from emitter.verify.settings import Settings
    from emitter.verify.source import Sources

__all__ = ["Judge"]

MAX_FOUND = 20  # findings of one rule in one file that are told apart; one that is broken 10,000 times is broken once
_MALFORMED = "file-malformed"
_NO_ARTEFACT = "file-no-artefact"


class Judge:
    """What files are measured against, and the `result` that grows with each."""

    def __init__(self, options: Options, settings: Settings, sources: Sources | None) -> None:
        self.options = options
        self.settings = settings
        self.sources = sources
        self.result = Result()
        self.result.fail_on = settings.fail_on or "error"
        self._profiles: dict[str, Profile] = {}
        self._targets: dict[str, Resolved] = {}
        self._met: set[str] = set()
        self._unknown: list[str] = []
        self._places: set[tuple[str, str]] = set()
        self._unreadable: set[Finding] = set()
        self._named: Resolved | None = None if options.target is None else self._target(options.target)
        # So that what is wrong is refused at once, and not when the first file meets it.
        self._profile(self._chosen(settings.profile))
        for name in (*settings.profiles, *(row.profile for row in settings.paths)):
            if name is not None:
                self._profile(name)
        for target in (settings.target, *(row.target for row in settings.paths)):
            if target is not None:
                self._target(target)

    def new_check(self, item: Item, artefact: Artefact, members: Sequence[MemberFacts] | None) -> Check:
        """Return what rules get of an artefact; `members` are those of an archive, None for anything else."""
        reader = artefact.reader
        if reader is None:
            raise InputError("not an artefact", where=artefact.where)
        local = self.settings.of_path(item.path, item.member)
        self._met.add(local.match)
        profile = self._profile_of(item.path, item.member)
        sysroot = profile.get("sysroot")
        if sysroot is not None and not os.path.isdir(sysroot):
            raise UsageError("the sysroot is no folder", where=f"profile {profile.name}", actual=shown(sysroot))
        name = local.target or profile.get("target")
        resolved = self._named or (self._target(name) if name else None)
        found, kind = kind_of(reader) if members is None else ("archive", "archive")
        target = resolved.target if resolved else guess_target(reader)
        page_size = self.options.page_size or local.page_size or page_size_of(profile, target, reader)
        check = Check(
            path=item.path,
            member=item.member,
            view=artefact.view,
            reader=reader,
            format=found,
            kind=kind,
            profile=profile,
            target=target,
            judged=resolved is not None,
            version=resolved.version if resolved else None,
            page_size=page_size,
            max_size=self.options.max_size or local.max_size or profile.get("max-size"),
            containers=item.containers,
            sources=self.sources,
            members=members or (),
            second_parser=self.options.second_parser,
        )
        self._places.add((item.path, item.member))
        self.result.files.append(
            Verified(item.path, item.member, artefact.kind, target.name if target else "", check.judged, profile.name)
        )
        if not check.judged:
            self.result.note(
                "no target was named: each file was taken for what it says that it is (identity not judged)"
            )
        if target is None and found in {"elf", "macho", "pe", "coff"}:
            self._unknown.append(artefact.where)
        return check

    def finish(self) -> None:
        """Say of which files less is known than of others, and which parts of the configuration meant none."""
        if self._unknown:
            others = len(self._unknown) - 1
            files = self._unknown[0] + (f" and {others} other{'s' if others > 1 else ''}" if others else "")
            self.result.note(f"{files}: no target of this version describes the machine")
        for row in self.settings.paths:
            if row.match not in self._met:
                self.result.note(f"[[path]] match = {shown(row.match)} of the configuration means no file")

    def ask(self, check: Check) -> None:
        """Ask every rule that applies."""
        broken: set[str] = set()
        for rule in RULES.values():
            severity = self._severity(rule, check.profile)
            if severity == "off" or not _applies(rule, check):
                continue
            try:
                for number, found in enumerate(rule.check(check)):
                    if number == MAX_FOUND:
                        self._add(check, rule, severity, _more())
                        break
                    self._add(check, rule, severity, found)
            except (FormatError, LoadError) as error:
                # Several rules look at one part, which the report has noticed too: it is broken once.
                broken = broken or {str(fault.error) for fault in _faults(check)}
                if str(error) not in broken:
                    broken.add(str(error))
                    self.malformed(check.path, check.member, error)

    def _severity(self, rule: Rule, profile: Profile) -> str | None:
        """Return the severity that the caller or the profile gives a rule, or None for its own."""
        chosen = self.options.severities.get(rule.id) or profile.severity(rule.id)
        if chosen is None and rule.since > self.settings.edition:
            return "info"
        return chosen

    def _add(self, check: Check, rule: Rule, severity: str | None, found: Found) -> None:
        self.result.findings.append(finding_of(rule, severity, check.path, check.member, found))

    def malformed(self, path: str, member: str, error: EmitterError) -> None:
        """Add what broke its format."""
        where = (error.where or "").removeprefix(path).lstrip(":! ")
        actual = error.what if error.actual is None else f"{error.what} ({error.actual})"
        self._add_unreadable(_MALFORMED, path, member, Found(where, error.expected or "", actual, fix=error.hint))

    def promise_broken(self, path: str, member: str, actual: str) -> None:
        """Add a file that is called like an artefact, and is none."""
        self._add_unreadable(_NO_ARTEFACT, path, member, Found("", "an artefact", actual))

    def _add_unreadable(self, name: str, path: str, member: str, found: Found) -> None:
        """Add a file that no rule can be asked about. It counts as a file even where its rule is off."""
        if (path, member) not in self._places:
            self._places.add((path, member))
            self.result.files.append(Verified(path, member, "unreadable", "", identity_judged=False, profile=""))
        finding = self.finding(name, path, member, found)
        if finding is not None and finding not in self._unreadable:
            self._unreadable.add(finding)
            self.result.findings.append(finding)

    def finding(self, name: str, path: str, member: str, found: Found) -> Finding | None:
        """Return what a rule found that no file is asked about alone; None where it is off."""
        severity = self._severity(RULES[name], self._profile_of(path, member))
        return None if severity == "off" else finding_of(RULES[name], severity, path, member, found)

    def _profile_of(self, path: str, member: str) -> Profile:
        return self._profile(self._chosen(self.settings.of_path(path, member).profile))

    def _chosen(self, configured: str | None) -> str:
        # An empty name is a mistake, an unset variable of a script: it is refused as any other that there is not.
        names = (self.options.profile, configured, DEFAULT)
        return next(name for name in names if name is not None)

    def _profile(self, name: str) -> Profile:
        if name not in self._profiles:
            self._profiles[name] = load_profile(name, self.settings.profiles, self.settings.path)
        return self._profiles[name]

    def _target(self, name: str) -> Resolved:
        from emitter.targets import resolve

        if name not in self._targets:
            self._targets[name] = resolve(name)
        return self._targets[name]


def _applies(rule: Rule, check: Check) -> bool:
    if check.format not in rule.formats and not ("*" in rule.formats and check.format != "archive"):
        return False
    if rule.kinds and check.kind not in rule.kinds:
        return False
    return all(map(check.knows, rule.needs))


def _faults(check: Check) -> Sequence[Fault]:
    if check.reader.container:
        return ()
    try:
        return check.report.faults
    except EmitterError:
        return ()


def _more() -> Found:
    return Found("", "", f"more of the same, beyond the first {MAX_FOUND}")


def finding_of(rule: Rule, severity: str | None, path: str, member: str, found: Found) -> Finding:
    """Return what a rule found as a finding; `severity` None is what was found, or the rule, says."""
    return Finding(
        rule.id,
        severity or found.severity or rule.severity,
        path,
        member,
        found.subject,
        _text(found.expected),
        _text(found.actual),
        rule.why,
        found.fix or rule.fix,
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else shown(value)
