"""Verifies: finds the artefacts that paths stand for, asks each the rules that apply, and sorts what they found."""

from __future__ import annotations

import os

from emitter.errors import EmitterError, FormatError, InputError, LoadError, UsageError, shown
from emitter.records import TYPE_CHECKING
from emitter.verify.check import Check, MemberFacts
from emitter.verify.containers import HEAD, Budget, Item, container_kind, items_of_container, walk
from emitter.verify.device import device_format
from emitter.verify.identify import (
    guess_target,
    is_container,
    kind_of,
    linker_script,
    page_size_of,
    promises,
    recognised,
)
from emitter.verify.model import RULES, Finding, rank
from emitter.verify.profile import DEFAULT, load_profile
from emitter.verify.result import Options, Result, Verified
from emitter.verify.settings import Settings, find_settings, read_settings
from emitter.verify.together import Together

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emitter.inspect.report import Artefact, Fault
    from emitter.inspect.view import View
    from emitter.targets import Resolved
    from emitter.verify.model import Found, Rule
    from emitter.verify.profile import Profile
    from emitter.verify.source import Sources

__all__ = ["verify_paths"]

MALFORMED = "file-malformed"
MAX_FOUND = 20  # findings of one rule in one file that are told apart; one that is broken 10,000 times is broken once
_MAX_MEMBERS = 1_000_000


def verify_paths(paths: Sequence[str], options: Options = Options()) -> Result:  # noqa: B008 - it is immutable
    """Verify files, directories and containers.

    Raises UsageError for options or a configuration that make no sense, InputError where there is nothing to verify.
    What is wrong with a file is a finding; a named file that is no artefact is one of the result's `errors`.
    """
    import emitter.verify.rules  # noqa: F401 - it fills the table of rules
    from emitter.verify import baseline

    if not paths:
        raise UsageError("no file to verify", hint="name files, folders, wheels, packages or archives")
    if options.config is None:
        settings = find_settings()
    else:
        settings = read_settings(options.config) if options.config else Settings()
    run = _Run(options, settings)
    for path in paths:
        run.path(path)
    result = run.result
    if not result.files and not result.errors:
        raise InputError(
            "there is nothing to verify",
            where=", ".join(paths[:3]),
            actual=f"{result.passed_over} files that are no artefacts",
            hint="name objects, archives, libraries, programs or packs, or what holds them",
        )
    run.finish()
    baseline.waive(result, settings)
    baseline.suppress(result, options.baseline or run.from_folder(settings.baseline))
    # The order of the files stays; within one, the worst comes first.
    place = {file.place: number for number, file in enumerate(result.files)}
    result.findings.sort(key=lambda finding: (place.get(finding.place, -1), -rank(finding.severity)))
    return result


class _Run:
    """One run over all paths."""

    def __init__(self, options: Options, settings: Settings) -> None:
        from emitter.verify.source import open_sources

        self.options = options
        self.settings = settings
        self.result = Result()
        self.result.fail_on = settings.fail_on or "error"
        self.sources: Sources | None = open_sources(options.against) if options.against else None
        self.budget = Budget()
        self.together = Together()
        self._profiles: dict[str, Profile] = {}
        self._targets: dict[str, Resolved] = {}
        self._used: set[int] = set()
        self._named: Resolved | None = self._target(options.target) if options.target else None
        self._profile(options.profile or settings.profile or DEFAULT)  # so that a wrong one is refused at once

    def from_folder(self, path: str | None) -> str | None:
        """Return a path that the configuration names, which is relative to its folder."""
        return None if path is None else os.path.join(self.settings.folder, path)

    def path(self, path: str) -> None:
        """Verify what a path stands for."""
        try:
            for name, named in walk(path):
                self._file(name, named)
        except EmitterError as error:
            if isinstance(error, UsageError):
                raise
            self.result.errors.append(error)

    def _file(self, path: str, named: bool) -> None:
        from emitter.inspect.view import View

        try:
            view = View.open(path)
        except InputError as error:
            if named:
                raise
            if os.path.isfile(path) and not os.path.getsize(path) and promises(path):
                self._promise_broken(Item(path, "", None, named=False), "an empty file")
                return
            if os.path.isfile(path) and os.path.getsize(path):
                self.result.errors.append(error)  # it cannot be opened: that is not the same as "no artefact"
                return
            self.result.passed_over += 1
            return
        with view:
            self._item(Item(path, "", view, named))

    def _item(self, item: Item) -> None:
        view = item.view
        if view is None:
            if item.error is not None:
                self._malformed(item, item.error)
            return
        head = view.read_up_to(0, HEAD)
        kind = container_kind(head)
        if kind is not None and (item.named or is_container(kind, item)):
            self._container(kind, item, view)
        elif recognised(head, item.member or item.path, named=item.named):
            self._artefact(item, view)
        elif (device := device_format(head, item.member or item.path)) is not None:
            self._artefact(item, view, device)
        elif promises(item.member or item.path) and linker_script(view):
            self.result.passed_over += 1
        elif item.named:
            raise InputError(
                "not an object file",
                where=view.where,
                expected="an artefact, or a container of artefacts",
                actual=f"it begins with {head[:8].hex(' ')}",
            )
        elif promises(item.member or item.path):
            self._promise_broken(item, f"it begins with {head[:8].hex(' ')}")
        else:
            self.result.passed_over += 1

    def _container(self, kind: str, item: Item, view: View) -> None:
        verified = len(self.result.files)

        def wanted(head: bytes, name: str) -> bool:
            inner = container_kind(head)
            probe = Item(item.path, name, None, named=False)
            artefact = recognised(head, name) or device_format(head, name) is not None
            keep = artefact or (inner is not None and is_container(inner, probe)) or promises(name)
            self.result.passed_over += not keep
            return keep

        try:
            for member in items_of_container(kind, item, view, self.budget, wanted):
                self._item(member)
        except FormatError as error:
            self._malformed(item, error)
            return
        if item.named and len(self.result.files) == verified:
            self.result.note(f"{item.path}: holds no artefact")

    def _artefact(self, item: Item, view: View, device: str | None = None) -> None:
        from emitter.inspect import recognise
        from emitter.inspect.report import Artefact
        from emitter.verify.device import DeviceFile

        try:
            artefact = Artefact(view.where, view, DeviceFile(view, device)) if device else recognise(view)
        except EmitterError as error:
            self._malformed(item, error)
            return
        if artefact.container:
            self._archive(item, artefact)
        else:
            self._check(item, artefact)

    def _archive(self, item: Item, artefact: Artefact) -> None:
        """Verify every member of an archive or universal file, then the rules about the whole."""
        facts: list[MemberFacts] = []
        try:
            for number, member in enumerate(artefact.members()):
                if number > _MAX_MEMBERS:
                    raise FormatError("too many members", where=artefact.where, expected=f"at most {_MAX_MEMBERS}")
                name = f"{item.member}!{member.name}" if item.member else member.name
                inner = Item(item.path, name, member.view, False, item.containers)
                if member.error is not None and not isinstance(member.error, InputError):
                    self._malformed(inner, member.error)
                    facts.append(MemberFacts(member.name, "", None))
                elif member.reader is None:
                    self.result.passed_over += 1
                    facts.append(MemberFacts(member.name, "", None))
                elif member.container:
                    self._archive(inner, member)
                else:
                    facts.append(self._check(inner, member))
        except EmitterError as error:
            self._malformed(item, error)
            return
        check = self._new_check(item, artefact, facts)
        self._ask(check)

    def _check(self, item: Item, artefact: Artefact) -> MemberFacts:
        check = self._new_check(item, artefact, None)
        self._ask(check)
        try:
            identity = check.report.identity
            self.together.add(check)
        except EmitterError:
            return MemberFacts(artefact.name, check.format, None)
        facts = (identity.machine, identity.machine_code, identity.pointer_width, identity.byte_order)
        return MemberFacts(artefact.name, check.format, facts)

    def _new_check(self, item: Item, artefact: Artefact, members: Sequence[MemberFacts] | None) -> Check:
        """Return what rules get of an artefact; `members` are those of an archive, None for anything else."""
        reader = artefact.reader
        if reader is None:
            raise InputError("not an artefact", where=artefact.where)
        local = self.settings.of_path(item.path, item.member)
        profile = self._profile(self.options.profile or local.profile or DEFAULT)
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
        self.result.files.append(
            Verified(item.path, item.member, artefact.kind, target.name if target else "", check.judged, profile.name)
        )
        if not check.judged:
            self.result.note(
                "no target was named: each file was taken for what it says that it is (identity not judged)"
            )
        if target is None and found in {"elf", "macho", "pe", "coff"}:
            self.result.note(f"{artefact.where}: no target of this version describes its machine")
        return check

    def _ask(self, check: Check) -> None:
        """Ask every rule that applies."""
        broken: set[str] = set()
        for rule in RULES.values():
            severity = self._severity(rule, check)
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
                    self._malformed(Item(check.path, check.member, None, named=False), error)

    def _severity(self, rule: Rule, check: Check) -> str | None:
        """Return the severity that the caller or the profile gives a rule, or None for its own."""
        chosen = self.options.severities.get(rule.id) or check.profile.severity(rule.id)
        if chosen is None and rule.since > self.settings.edition:
            return "info"
        return chosen

    def _add(self, check: Check, rule: Rule, severity: str | None, found: Found) -> None:
        self.result.findings.append(
            Finding(
                rule.id,
                severity or found.severity or rule.severity,
                check.path,
                check.member,
                found.subject,
                _text(found.expected),
                _text(found.actual),
                rule.why,
                found.fix or rule.fix,
            )
        )

    def _malformed(self, item: Item, error: EmitterError) -> None:
        rule = RULES[MALFORMED]
        severity = self.options.severities.get(MALFORMED, rule.severity)
        if severity == "off":
            return
        where = (error.where or "").removeprefix(item.path).lstrip(":! ")
        actual = error.what if error.actual is None else f"{error.what} ({error.actual})"
        finding = Finding(
            rule.id, severity, item.path, item.member, where, error.expected or "", actual, rule.why,
            error.hint or rule.fix,
        )  # fmt: skip
        if finding not in self.result.findings:
            self.result.findings.append(finding)
        place = (item.path, item.member)
        if all((file.path, file.member) != place for file in self.result.files):
            self.result.files.append(Verified(*place, "unreadable", "", identity_judged=False, profile=""))

    def _promise_broken(self, item: Item, actual: str) -> None:
        rule = RULES["file-no-artefact"]
        severity = self.options.severities.get(rule.id, rule.severity)
        if severity != "off":
            finding = Finding(
                rule.id, severity, item.path, item.member, "", "an artefact", actual, rule.why, rule.fix,
            )  # fmt: skip
            self.result.findings.append(finding)
            self.result.files.append(Verified(item.path, item.member, "unreadable", "", False, ""))

    def finish(self) -> None:
        """Ask what only all artefacts together tell."""
        if self.sources is not None and not self.together.has_packs:
            self.result.errors.append(
                InputError(
                    "no artefact holds a pack to compare with --against",
                    where=", ".join(self.options.against[:3]),
                    hint="name files that emitter wrote",
                )
            )
        for name, finding in self.together.findings(self.sources):
            severity = self.options.severities.get(name, finding.severity)
            if severity != "off":
                self.result.findings.append(finding._replace(severity=severity))

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
    from emitter.verify.model import Found

    return Found("", "", f"more of the same, beyond the first {MAX_FOUND}")


def _text(value: object) -> str:
    return value if isinstance(value, str) else shown(value)
