"""The file as a picture to scale: segments, sections, tensors and modules over the offsets that they take."""

from __future__ import annotations

from emitter.errors import printable
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from emitter.inspect.report import Artefact, Report

__all__ = ["draw"]

_WIDTH = 1200.0  # of the file, in units of the picture
_LEFT, _TOP, _ROW, _GAP = 110.0, 40.0, 26.0, 8.0
_CHARACTER = 6.5  # width of one
_LANES = 6  # of one part: what overlaps more deeply is drawn over what is there
_NARROW = 0.5  # a box below this width is drawn with its neighbours, as one

# The rows, from above. Other segments are those that are read, or say something of what is loaded.
_COLOURS = {
    "segments": "#7aa6da",
    "other segments": "#c3d5ea",
    "sections": "#a5c77f",
    "packs": "#d9b36c",
    "tensors": "#d98c7a",
    "modules": "#b08cc9",
}


class _Box(NamedTuple):
    start: int
    end: int
    name: str
    items: int = 1


def draw(artefact: Artefact, objects: Iterable[tuple[Artefact, Report]]) -> str:
    """Return an SVG 1.1 document: the same text for the same file. Raises FormatError where a pack is broken."""
    parts: dict[str, list[_Box]] = {part: [] for part in _COLOURS}
    for member, report in objects:
        base = member.view.base
        prefix = f"{member.name}: " if member.parent is not None else ""
        for entry in report.segments:
            part = parts["segments" if entry.loaded else "other segments"]
            _add(part, base + entry.offset, entry.file_size, f"{prefix}{entry.name} {entry.protection}")
        for section in report.sections:
            _add(parts["sections"], base + section.offset, section.file_size, f"{prefix}{section.name}")
        for pack in report.packs:
            _add(parts["packs"], base + pack.offset, pack.size, f"{prefix}{pack.symbol or 'pack'}")
            for tensor in () if pack.sidecar else pack.tensors():
                _add(parts["tensors"], base + tensor.offset, tensor.nbytes, f"{prefix}{tensor.name}")
            for module in () if pack.sidecar else pack.modules:
                for one in module.alternatives:
                    _add(parts["modules"], base + one.offset, one.size, f"{prefix}{module.name}: {one.kind}")
    size = artefact.view.size
    body: list[str] = []
    y = _TOP
    for label, boxes in parts.items():
        lanes = _lanes(sorted(box for box in boxes if box.start < size), size) if size else []
        if lanes:
            body.append(f'<text x="4" y="{_text(y + _ROW * 0.7)}">{label}</text>')
        for lane in lanes:
            body += [_rectangle(box, size, y, _COLOURS[label]) for box in lane]
            y += _ROW + 2
        y += _GAP if lanes else 0
    width, height = _LEFT + _WIDTH + 20, y + 10
    title = _escape(f"{artefact.name.rpartition('/')[2]}: {artefact.kind}, {size} bytes")
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_text(width)}" height="{_text(height)}" '
        f'viewBox="0 0 {_text(width)} {_text(height)}" font-family="sans-serif" font-size="11">'
    )
    return "\n".join([
        '<?xml version="1.0" encoding="UTF-8"?>',
        opening,
        f"<title>{title}</title>",
        f'<rect width="100%" height="100%" fill="#ffffff"/><text x="4" y="16">{title}</text>',
        *_scale(size, y),
        *body,
        "</svg>\n",
    ])  # fmt: skip


def _add(boxes: list[_Box], start: int, size: int, name: str) -> None:
    if size > 0:
        boxes.append(_Box(start, start + size, name))


def _lanes(boxes: list[_Box], size: int) -> list[list[_Box]]:
    """Return the boxes (sorted) in lanes without overlap; narrow neighbours become one box that says how many."""
    lanes: list[list[_Box]] = []
    for box in boxes:
        for lane in lanes:
            last = lane[-1]
            if (box.end - last.start) * _WIDTH < _NARROW * size:
                lane[-1] = _Box(last.start, max(box.end, last.end), last.name, last.items + 1)
                break
            if box.start >= last.end:
                lane.append(box)
                break
        else:
            if len(lanes) < _LANES:
                lanes.append([box])
            else:
                lanes[-1].append(box)
    return lanes


def _rectangle(box: _Box, size: int, y: float, colour: str) -> str:
    x = _LEFT + box.start / size * _WIDTH
    width = max((min(box.end, size) - box.start) / size * _WIDTH, 0.2)
    more = f" and {box.items - 1} more" if box.items > 1 else ""
    tip = _escape(f"{box.name}{more}: {box.start:#x}-{box.end:#x}, {box.end - box.start} bytes")
    room = int((width - 4) / _CHARACTER)
    label = ""
    if room >= 3:
        name = box.name if len(box.name) <= room else box.name[: room - 1] + "…"
        label = f'<text x="{_text(x + 2)}" y="{_text(y + _ROW * 0.7)}">{_escape(name)}</text>'
    return (
        f'<g><title>{tip}</title><rect x="{_text(x)}" y="{_text(y)}" width="{_text(width)}" height="{_text(_ROW)}" '
        f'fill="{colour}" stroke="#444444" stroke-width="0.2"/>{label}</g>'
    )


def _scale(size: int, bottom: float) -> Iterator[str]:
    """Yield lines at eighths of the file, with their offsets."""
    for number in range(9):
        x = _text(_LEFT + number / 8 * _WIDTH)
        yield f'<line x1="{x}" y1="30" x2="{x}" y2="{_text(bottom)}" stroke="#dddddd"/>'
        anchor = "end" if number == 8 else "start"
        yield f'<text x="{x}" y="28" fill="#666666" text-anchor="{anchor}">{size * number // 8:#x}</text>'


def _text(value: float) -> str:
    return f"{value:.2f}"


def _escape(text: str) -> str:
    escaped = printable(text[:500])
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        escaped = escaped.replace(character, entity)
    return escaped
