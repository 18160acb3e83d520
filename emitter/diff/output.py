"""Prints a difference as text, Markdown (for a pull request) or JSON."""

from __future__ import annotations

from emitter.errors import shown
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from emitter.diff.model import Change, Difference, TensorChange

__all__ = ["FORMATS", "to_json", "to_markdown", "to_text"]

_SIGNS = {"added": "+", "removed": "-", "changed": "~"}
_MANY = 200  # rows of one part that a person reads


def to_json(difference: Difference) -> dict[str, object]:
    """Return the document of the schema `emitter.diff/1`. An infinite difference is the text "Infinity"."""
    return {
        "schema": "emitter.diff/1",
        "a": difference.a,
        "b": difference.b,
        "equal": difference.empty,
        **{part: [_change(change) for change in changes] for part, changes in difference.sections.items()},
        "tensors": [_tensor(change) for change in difference.tensors],
        "same_tensors": difference.same_tensors,
    }


def _change(change: Change) -> dict[str, object]:
    return {
        "member": change.member,
        "subject": change.subject,
        "change": change.kind,
        "before": change.before,
        "after": change.after,
    }


def _tensor(change: TensorChange) -> dict[str, object]:
    largest = change.largest_difference
    return {
        "name": change.name,
        "change": change.kind,
        "before": change.before,
        "after": change.after,
        "elements": change.elements,
        "different": change.different,
        "unit": change.unit,
        "largest_difference": "Infinity" if largest == float("inf") else largest,
    }


def to_text(difference: Difference) -> str:
    """Return lines for a terminal."""
    if difference.empty:
        return f"{shown(difference.a)} and {shown(difference.b)} are equal; tensors: {difference.same_tensors}\n"
    lines = [f"--- {_plain(difference.a)}", f"+++ {_plain(difference.b)}"]
    for part, changes in difference.sections.items():
        if changes:
            lines.append(f"{part}:")
            lines += _limited(changes, lambda change: f"  {_SIGNS[change.kind]} {_subject(change)}: {_values(change)}")
    if difference.tensors:
        lines.append(f"tensors (equal: {difference.same_tensors}):")
        lines += _limited(difference.tensors, lambda change: f"  {_SIGNS[change.kind]} {_tensor_text(change)}")
    return "\n".join(lines) + "\n"


def to_markdown(difference: Difference) -> str:
    """Return a section of GitHub-flavoured Markdown with a table for each part."""
    title = f"### {_code(difference.a)} → {_code(difference.b)}\n"
    if difference.empty:
        return f"{title}\nNo difference; equal tensors: {difference.same_tensors}.\n"
    lines = [title]
    for part, changes in difference.sections.items():
        if changes:
            lines += [f"| {part} | before | after |", "|---|---|---|"]
            lines += _limited(changes, _row)
            lines.append("")
    if difference.tensors:
        lines += ["| tensor | before | after | different | largest difference |", "|---|---|---|---:|---:|"]
        lines += _limited(difference.tensors, _tensor_row)
        lines.append("")
    lines.append(f"Equal tensors: {difference.same_tensors}.")
    return "\n".join(lines) + "\n"


FORMATS: dict[str, Callable[[Difference], str]] = {"text": to_text, "markdown": to_markdown}


def _limited(changes: Iterable[object], line: Callable[..., str]) -> Iterator[str]:
    more = 0
    for number, change in enumerate(changes):
        if number < _MANY:
            yield line(change)
        else:
            more += 1
    if more:
        yield f"  ... and {more} more: --json has all"


def _subject(change: Change) -> str:
    return _plain(f"{change.member}: {change.subject}" if change.member else change.subject)


def _values(change: Change) -> str:
    """Return what is there in one file alone, or the words that differ."""
    if change.before is None or change.after is None:
        return _plain(change.before or change.after or "")
    before, after = change.before.split(" "), change.after.split(" ")
    if len(before) == len(after):
        words = [
            f"{before[at - 1]} {old} -> {new}" if at and old.isdecimal() else f"{old} -> {new}"
            for at, (old, new) in enumerate(zip(before, after, strict=True))
            if old != new
        ]
    else:
        words = [f"-{word}" for word in before if word not in after] + [
            f"+{word}" for word in after if word not in before
        ]
    return _plain(", ".join(words))


def _tensor_text(change: TensorChange) -> str:
    name = _plain(change.name)
    if change.before != change.after:
        sides = [side for side in (change.before, change.after) if side is not None]
        return f"{name}: {' -> '.join(sides)}"
    return (
        f"{name}: {change.before}, {change.different} of {change.elements} {change.unit} differ{_largest(change, ', ')}"
    )


def _largest(change: TensorChange, before: str = "") -> str:
    largest = change.largest_difference
    return "" if largest is None else f"{before}{'by at most ' if before else ''}{largest:.6g}"


def _row(change: Change) -> str:
    return f"| {_code(_subject(change))} | {_cell(change.before)} | {_cell(change.after)} |"


def _tensor_row(change: TensorChange) -> str:
    count = f"{change.different} of {change.elements} {change.unit}" if change.before == change.after else ""
    name = _code(_plain(change.name))
    return f"| {name} | {_cell(change.before)} | {_cell(change.after)} | {count} | {_largest(change)} |"


def _plain(text: str) -> str:
    """Return a name that somebody else chose as one line of printable text."""
    return text if text.isprintable() else shown(text)


def _code(text: str) -> str:
    """Return text as Markdown's code within a table's cell, whatever is in it."""
    plain = _plain(text).replace("|", "\\|").replace("`", "'")
    return f"`{plain}`" if plain else ""


def _cell(text: str | None) -> str:
    return "" if text is None else _code(text)
