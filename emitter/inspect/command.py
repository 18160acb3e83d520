"""`emitter inspect`: what it takes, and what it prints."""

from __future__ import annotations

from emitter.errors import EmitterError, InputError, UsageError, printable, shown
from emitter.inspect import open_file
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator

    from emitter.inspect.report import Artefact, Report

__all__ = ["add_options", "report_text", "run"]

_DEFAULT_DEPTH = 2
_BUFFER = 64 << 10  # characters that are written at once

DONE, FAULTS = 0, 1


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add("file", metavar="FILE", help="object, library, executable, archive or pack, of any CPU; nothing of it is run")
    add("--all", action="store_true", help="show every row of sections and symbols")
    add("--member", metavar="NAME", help="of an archive: this member alone")
    add("--tensors", action="store_true", help="list the tensors of its packs")
    add("--tensor", metavar="NAME", help="show one tensor")
    add("--stats", action="store_true", help="with --tensor or --tensors: read the values and check the CRC-32C")
    add("--head", type=int, metavar="N", help="with --tensor or --tensors: the first N values")
    add("--hex", action="store_true", help="with --tensor or --tensors: the bytes of the first N (16) values")
    add("--sizes", action="store_true", help="show where the bytes go, by the parts of names")
    add("--depth", type=int, metavar="N", help=f"with --sizes: parts of names that count (default: {_DEFAULT_DEPTH})")
    add("--svg", metavar="OUT", help="draw the file to scale: segments, sections, tensors")
    add("--page-size", type=int, metavar="N", help="of the system that will load it (default: the machine's smallest)")


def run(options: argparse.Namespace, write: Callable[[str], None]) -> int:
    """Run the command; `write` takes text for standard output. Return 0, or 1 where parts of the file are broken.

    Raises UsageError for options that contradict each other, InputError for a file that holds nothing known.
    """
    _check(options)
    with open_file(options.file) as artefact:
        objects = _Objects(artefact, options.member, options.page_size or 0)
        if options.svg is not None:
            from emitter.inspect.svg import draw
            from emitter.output import write_if_changed

            picture = draw(artefact, objects.reports()).encode()
            write_if_changed(options.svg, picture)
            if options.json:
                _write_json({"schema": "emitter.svg/1", "path": options.svg, "size": len(picture)}, write)
            return objects.status
        if options.tensors or options.tensor is not None:
            return _tensors(artefact, objects, options, write)
        depth = (_DEFAULT_DEPTH if options.depth is None else options.depth) if options.sizes else None
        if options.json:
            from emitter.inspect.document import inspect_document

            _write_json(inspect_document(artefact, objects.all(), objects.faults, depth), write)
        else:
            _write_lines(_lines(objects, depth, options.all), write)
        return objects.status


def report_text(artefact: Artefact) -> Iterator[str]:
    """Yield the whole report of an artefact as printable lines: what the command prints with --all.

    Raises InputError where it holds nothing that is known.
    """
    return (printable(line) for line in _lines(_Objects(artefact, None, 0), None, True))


def _check(options: argparse.Namespace) -> None:
    of_tensors = options.tensors or options.tensor is not None
    for name, given in (("--stats", options.stats), ("--head", options.head is not None), ("--hex", options.hex)):
        if given and not of_tensors:
            raise UsageError(f"{name} is about tensors", hint="add --tensors, or --tensor NAME")
    if options.depth is not None and not options.sizes:
        raise UsageError("--depth is about sizes", hint="add --sizes")
    modes = [("--tensors or --tensor", of_tensors), ("--sizes", options.sizes), ("--svg", options.svg is not None)]
    given_modes = [name for name, given in modes if given]
    if len(given_modes) > 1:
        raise UsageError(f"{' and '.join(given_modes)} exclude each other", hint="run the command once for each")
    if options.tensors and options.tensor is not None:
        raise UsageError("--tensors and --tensor exclude each other", hint="leave one out")
    for name, value, least in (("--head", options.head, 0), ("--depth", options.depth, 1)):
        if value is not None and value < least:
            raise UsageError(f"{name} is too small", expected=f"at least {least}", actual=value)
    size = options.page_size
    if size is not None and (size < 1 or size & (size - 1)):
        raise UsageError("--page-size is not a power of two", actual=size)


class _Objects:
    """The object files of an artefact; `status` becomes 1 where one of them has a fault."""

    def __init__(self, artefact: Artefact, member: str | None, page_size: int) -> None:
        self.status = DONE
        self.faults: list[EmitterError] = []
        self._artefact = artefact
        self._member = member
        self._page_size = page_size
        if member is not None and not artefact.container:
            raise UsageError("--member is about containers", where=shown(artefact.name), actual=artefact.kind)
        self._check()

    def all(self) -> Iterator[tuple[Artefact, Report | None]]:
        """Yield every object file with its report; None for one that is not known, or whose header is broken.

        Where the container itself is broken they end, and the error goes to `faults`.
        """
        members = self._artefact.objects()
        while True:
            try:
                member = next(members, None)
            except EmitterError as error:
                self.add_fault(error)
                return
            if member is None:
                return
            if self._member is not None and member.name != self._member:
                continue
            if member.reader is None:
                self.status = FAULTS if member.error else self.status
                yield member, None
                continue
            report = _with_tvm(member, member.reader.report(self._page_size))
            if report.faults:
                self.status = FAULTS
            yield member, report

    def add_fault(self, error: EmitterError) -> None:
        """Take note of an error of no object file in particular."""
        self.status = FAULTS
        self.faults.append(error)

    def _check(self) -> None:
        # Before the first line is written: an empty result is an error, and a broken header of the only file too.
        for member in self._artefact.objects():
            if member.reader is not None and self._member in (None, member.name):
                return
        if self._member is not None:
            raise InputError(f"it has no object file {shown(self._member)}", where=self._artefact.where)
        raise InputError("it holds no object file", where=self._artefact.where, actual=self._artefact.kind)

    def reports(self) -> Iterator[tuple[Artefact, Report]]:
        """Yield the object files that are known, with their reports."""
        return ((member, report) for member, report in self.all() if report is not None)


def _with_tvm(artefact: Artefact, report: Report) -> Report:
    """Return the report with what TVM has put into the file; what is broken there becomes a fault."""
    from emitter.inspect.report import Fault
    from emitter.interop.tvm_read import find_libraries

    found = find_libraries(artefact.view, report)
    faults = [Fault("what TVM stored", library.error) for library in found if library.error is not None]
    return report._replace(tvm=found, faults=[*report.faults, *faults]) if found else report


def _lines(objects: _Objects, depth: int | None, everything: bool) -> Iterator[str]:
    from emitter.inspect.text import report_lines, size_lines

    for number, (member, report) in enumerate(objects.all()):
        if number:
            yield ""
        if report is None:
            yield f"{member.where}: {member.error or 'not an object file'}"
        elif depth is None:
            yield from report_lines(member, report, everything)
        else:
            yield from size_lines(member, report, depth)
    yield from (f"fault: {error}" for error in objects.faults)


def _tensors(artefact: Artefact, objects: _Objects, options: argparse.Namespace, write: Callable[[str], None]) -> int:
    from emitter.inspect import tensors
    from emitter.inspect.text import table_lines

    wanted = tensors.Wanted(options.tensor, options.stats, options.head, options.hex)

    def found() -> Iterator[tensors.Found]:
        faults: list[EmitterError] = []
        for item in tensors.find_tensors(objects.reports(), wanted, faults):
            error = tensors.damage(item)
            if error is not None:
                objects.add_fault(error)
            yield item
        for fault in faults:
            objects.add_fault(fault)

    def lines() -> Iterator[str]:
        if options.tensor is None and not (options.stats or options.hex or options.head is not None):
            yield from table_lines(tensors.table_rows(found()))
        else:
            for item in found():
                if options.tensor is not None or options.hex or options.head is not None:
                    yield from tensors.detail_lines(item)
                if item.stats is not None:
                    yield tensors.stats_line(item)
        yield from (f"fault: {error}" for error in objects.faults)

    if options.json:
        document: dict[str, object] = {
            "schema": "emitter.tensors/1",
            "path": artefact.name,
            "tensors": (tensors.tensor_json(item) for item in found()),
            "faults": (error.to_json() for error in objects.faults),
        }
        _write_json(document, write)
    else:
        _write_lines(lines(), write)
    return objects.status


def _write_lines(lines: Iterable[str], write: Callable[[str], None]) -> None:
    _write_buffered((f"{printable(line)}\n" for line in lines), write)


def _write_json(document: dict[str, object], write: Callable[[str], None]) -> None:
    from emitter.inspect.document import pieces

    _write_buffered(pieces(document), write)
    write("\n")


def _write_buffered(texts: Iterable[str], write: Callable[[str], None]) -> None:
    parts: list[str] = []
    size = 0
    for text in texts:
        parts.append(text)
        size += len(text)
        if size > _BUFFER:
            write("".join(parts))
            parts.clear()
            size = 0
    write("".join(parts))
