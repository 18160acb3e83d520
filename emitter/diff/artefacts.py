"""Compares what two artefacts say of themselves: the reports of `emitter.inspect`, part by part.

Addresses and file offsets are left out: they move whenever anything else changes, and say nothing on their own.
"""

from __future__ import annotations

from collections import Counter

from emitter.diff.model import SECTIONS, Change
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from emitter.inspect.report import Artefact, PackEntry, Report, Section, Symbol

__all__ = ["compare_artefacts"]

# Fields of an identity that a change of anything else does not touch.
_IDENTITY = (
    "format", "kind", "machine", "byte_order", "pointer_width", "flags", "abi", "os", "os_version", "name", "version",
    "build_id", "interpreter",
)  # fmt: skip


def compare_artefacts(a: Artefact, b: Artefact) -> dict[str, list[Change]]:
    """Return what differs, by part (`SECTIONS`). Members of archives and slices are compared by name.

    Raises EmitterError for a file that cannot be read.
    """
    changes: dict[str, list[Change]] = {part: [] for part in SECTIONS}
    if a.container or b.container:
        if a.kind != b.kind:
            changes["identity"].append(Change("", "kind", a.kind, b.kind))
        _compare_members(a, b, changes)
    else:
        _compare_objects(a, b, "", changes)
    _add(changes["sizes"], "", "file", f"{a.view.size}", f"{b.view.size}")
    return changes


def _compare_members(a: Artefact, b: Artefact, changes: dict[str, list[Change]]) -> None:
    before, after = _members(a), _members(b)
    for label in [*before, *(label for label in after if label not in before)]:
        if label in before and label in after:
            _compare_objects(before[label], after[label], label, changes)
        else:
            side = before.get(label)
            text = (side or after[label]).kind
            changes["identity"].append(
                Change(label, "member", text if side is not None else None, None if side is not None else text)
            )


def _members(artefact: Artefact) -> dict[str, Artefact]:
    """Return the object files in `artefact`; a second one of a name gets its number."""
    found: dict[str, Artefact] = {}
    seen: Counter[str] = Counter()
    for member in artefact.objects():
        seen[member.name] += 1
        count = seen[member.name]
        found[member.name if count == 1 else f"{member.name} ({count})"] = member
    return found


def _compare_objects(a: Artefact, b: Artefact, member: str, changes: dict[str, list[Change]]) -> None:
    if a.error is not None or b.error is not None:
        raise a.error or b.error  # type: ignore[misc] # one of them is there
    if a.reader is None or b.reader is None:
        _add(changes["identity"], member, "kind", a.kind, b.kind)
        if a.view.size != b.view.size:
            _add(changes["sizes"], member, "size", f"{a.view.size}", f"{b.view.size}")
        return
    _compare_reports(a.reader.report(), b.reader.report(), member, changes)


def _compare_reports(a: Report, b: Report, member: str, changes: dict[str, list[Change]]) -> None:
    for fault in (*a.faults, *b.faults):
        raise fault.error
    for field in _IDENTITY:
        _add(changes["identity"], member, field, getattr(a.identity, field), getattr(b.identity, field))
    _compare(changes["dependencies"], member, _dependencies(a), _dependencies(b))
    _compare(
        changes["hardening"],
        member,
        {one.name: _word(one.value) for one in a.hardening},
        {one.name: _word(one.value) for one in b.hardening},
    )
    _compare(changes["sections"], member, _sections(a.sections), _sections(b.sections))
    _compare(changes["symbols"], member, _symbols(a.symbols()), _symbols(b.symbols()))
    before, after = _packs(a.packs), _packs(b.packs)
    _compare(changes["packs"], member, before[0], after[0])
    _compare(changes["metadata"], member, before[1], after[1])


def _dependencies(report: Report) -> dict[str, str]:
    return {one.name: " ".join([one.kind, *one.versions]) for one in report.dependencies}


def _sections(sections: Iterable[Section]) -> dict[str, str]:
    found: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for one in sections:
        name = f"{one.segment},{one.name}" if one.segment else one.name
        seen[name] += 1
        label = name if seen[name] == 1 else f"{name} ({seen[name]})"
        flags = " ".join(one.flags)
        found[label] = f"{one.type} {flags} size {one.size} align {one.alignment}".replace("  ", " ")
    return found


def _symbols(symbols: Iterable[Symbol]) -> dict[str, str]:
    """Return what others can see: global and weak symbols, defined or wanted."""
    found = {}
    for one in symbols:
        if one.binding == "local" or not one.name:
            continue
        size = "" if one.size is None else f"size {one.size}"
        facts = (one.place, one.type, one.binding, one.visibility, size, one.version)
        found[f"{one.name} ({one.table})"] = " ".join(word for word in facts if word)
    return found


def _packs(packs: Iterable[PackEntry]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the facts of each pack, and its metadata."""
    facts, metadata = {}, {}
    for number, one in enumerate(packs):
        label = one.symbol or f"pack {number}"
        facts[label] = (
            f"version {one.version[0]}.{one.version[1]}, {one.byte_order}-endian, {one.tensor_count} tensors, "
            f"alignment {one.alignment}, schema {one.schema_hash:#018x}"
        )
        for key, value in one.metadata.items():
            metadata[f"{label}: {key}"] = value
        if one.model_version:
            metadata[f"{label}: model version"] = one.model_version
    return facts, metadata


def _compare(changes: list[Change], member: str, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    labels = [*before, *(label for label in after if label not in before)]
    changes += (
        Change(member, label, before.get(label), after.get(label))
        for label in labels
        if before.get(label) != after.get(label)
    )


def _add(changes: list[Change], member: str, subject: str, before: object, after: object) -> None:
    if before != after:
        changes.append(Change(member, subject, _word(before), _word(after)))


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value in (None, "") else str(value)
