"""Verifies: finds the artefacts that paths stand for, has each judged, and sorts what was found."""

from __future__ import annotations

import os

from emitter.errors import EmitterError, FormatError, InputError, UsageError
from emitter.records import TYPE_CHECKING
from emitter.verify.check import MemberFacts
from emitter.verify.containers import HEAD, Item, container_kind, items_of_container, walk
from emitter.verify.device import ELF_PROGRAMS, device_format
from emitter.verify.identify import is_container, linker_script, promises, recognised
from emitter.verify.judge import Judge
from emitter.verify.model import rank
from emitter.verify.result import Options, Result
from emitter.verify.settings import Settings, find_settings, read_settings
from emitter.verify.together import Together
from emitter.verify.unpack import Budget

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emitter.inspect.report import Artefact
    from emitter.inspect.view import View
    from emitter.verify.source import Sources

__all__ = ["verify_paths"]

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
    if not options.writes_baseline:
        # A path that the configuration names is relative to its folder.
        known = None if settings.baseline is None else os.path.join(settings.folder, settings.baseline)
        baseline.suppress(result, known if options.baseline is None else options.baseline)
    # The order of the files stays; within one, the worst comes first.
    place = {file.place: number for number, file in enumerate(result.files)}
    result.findings.sort(key=lambda finding: (place.get(finding.place, -1), -rank(finding.severity)))
    return result


class _Run:
    """One run over all paths."""

    def __init__(self, options: Options, settings: Settings) -> None:
        from emitter.verify.source import open_sources

        self.against = options.against
        self.sources: Sources | None = open_sources(options.against) if options.against else None
        self.judge = Judge(options, settings, self.sources)
        self.result = self.judge.result
        self.budget = Budget()
        self.together = Together()

    def path(self, path: str) -> None:
        """Verify what a path stands for. A file that cannot be read does not keep the others from being verified."""
        files, errors = len(self.result.files), len(self.result.errors)
        for name, named in walk(path, self.result.errors):
            self._try_file(name, named)
        if (files, errors) == (len(self.result.files), len(self.result.errors)):
            self.result.note(f"{path}: holds no artefact")

    def _try_file(self, path: str, named: bool) -> None:
        try:
            self._file(path, named)
        except UsageError:
            raise
        except EmitterError as error:
            self.result.errors.append(error)

    def _file(self, path: str, named: bool) -> None:
        from emitter.inspect.view import View

        try:
            view = View.open(path)
        except InputError as error:
            if named:
                raise
            if os.path.isfile(path) and not os.path.getsize(path) and promises(path):
                self.judge.promise_broken(path, "", "an empty file")
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
                self.judge.malformed(item.path, item.member, item.error)
            return
        head = view.read_up_to(0, HEAD)
        kind = container_kind(head)
        device = device_format(head, item.member or item.path)
        if kind is not None and (item.named or is_container(kind, item)):
            self._container(kind, item, view)
        elif device not in ELF_PROGRAMS and recognised(head, item.member or item.path, named=item.named):
            self._artefact(item, view)
        elif device is not None:
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
            self.judge.promise_broken(item.path, item.member, f"it begins with {head[:8].hex(' ')}")
        else:
            self.result.passed_over += 1

    def _container(self, kind: str, item: Item, view: View) -> None:
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
            self.judge.malformed(item.path, item.member, error)

    def _artefact(self, item: Item, view: View, device: str | None = None) -> None:
        from emitter.inspect import recognise
        from emitter.inspect.report import Artefact
        from emitter.verify.device import DeviceFile

        try:
            artefact = Artefact(view.where, view, DeviceFile(view, device)) if device else recognise(view)
        except EmitterError as error:
            self.judge.malformed(item.path, item.member, error)
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
                    self.judge.malformed(inner.path, inner.member, member.error)
                    facts.append(MemberFacts(member.name, "", None))
                elif member.reader is None:
                    self.result.passed_over += 1
                    facts.append(MemberFacts(member.name, "", None))
                elif member.container:
                    self._archive(inner, member)
                else:
                    facts.append(self._check(inner, member))
        except EmitterError as error:
            self.judge.malformed(item.path, item.member, error)
            return
        self.judge.ask(self.judge.new_check(item, artefact, facts))

    def _check(self, item: Item, artefact: Artefact) -> MemberFacts:
        check = self.judge.new_check(item, artefact, None)
        self.judge.ask(check)
        try:
            identity = check.report.identity
            self.together.add(check)
        except EmitterError:
            return MemberFacts(artefact.name, check.format, None)
        facts = (identity.machine, identity.machine_code, identity.pointer_width, identity.byte_order)
        return MemberFacts(artefact.name, check.format, facts)

    def finish(self) -> None:
        """Ask what only all artefacts together tell."""
        self.judge.finish()
        if self.sources is not None and not self.together.has_packs:
            self.result.errors.append(
                InputError(
                    "no artefact holds a pack to compare with --against",
                    where=", ".join(self.against[:3]),
                    hint="name files that emitter wrote",
                )
            )
        for found in self.together.findings(self.sources):
            finding = self.judge.finding(*found)
            if finding is not None:
                self.result.findings.append(finding)
