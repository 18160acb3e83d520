"""The check of outputs with code that no linker made: the code is what it was, and it leads to the pack.

Read through `emitter.inspect`, which shares nothing with the writer.
"""

from __future__ import annotations

import os

from emitter.check.linked import check_index_at, symbol_offset
from emitter.check.pieces import check_pieces
from emitter.check.readback import difference, expect, require
from emitter.inspect.coff import CoffFile
from emitter.inspect.macho import MachOFile
from emitter.inspect.view import View
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emitter.inspect.report import Report
    from emitter.jobs import Job
    from emitter.link.plan import Code
    from emitter.pack.plan import PackPlan

__all__ = ["check_unlinked"]


class _Part(NamedTuple):
    """A section: its place in the file, all that its header says but for places, its relocations with their symbols."""

    offset: int
    size: int
    header: tuple[object, ...]
    relocations: list[tuple[object, ...]]


def check_unlinked(fd: int, job: Job, pack: PackPlan, crcs: Sequence[int]) -> None:
    """Check an output with code that no linker made, an archive or an object. Raises OutputError for a difference."""
    check_pieces(fd, job.plan)
    check_index_at(fd, job.plan, pack, crcs)
    if job.format == "object" and job.code is not None:
        _check_object(fd, job, job.code, pack)


def _check_object(fd: int, job: Job, code: Code, pack: PackPlan) -> None:
    """Check a written object. Raises OutputError that names the first difference.

    The sections of the code have their headers and bytes, their relocations name the same symbols, and symbols are what
    they were, but for those that the pack defines; these are where they are to be, and its size and descriptor right;
    nothing is wanted but what the code wanted.
    """
    (made,) = code.objects
    with View.of_bytes(made.data, made.path) as old, View.of_descriptor(os.dup(fd), job.path) as new:
        target = job.resolved.target
        before, after = (CoffFile(old), CoffFile(new)) if target.coff else (MachOFile(old), MachOFile(new))
        parts = list(zip(_parts(before), _parts(after), strict=False))
        require("the object has the sections of the code and others", len(before.sections) == len(parts))
        for number, (one, other) in enumerate(parts, 1):
            _compare(number, old, one, new, other)
        report = after.report()
        if report.faults:
            raise difference(f"{report.faults[0].part} of the object", "what can be read", report.faults[0].error)
        places = {job.symbol or "": 0}
        places |= {one.name: one.offset for one in (*job.tensor_symbols, *code.wants.tensors)}
        for name, offset in places.items():
            found = symbol_offset(report, target.symbol_prefix + name) - (job.plan.pack_offset or 0)
            expect(f"{name}: offset in the pack", found, offset)
        _check_words(new, report, job, pack)
        (_, wanted_before), (defined, wanted) = _names(before.report()), _names(report)
        own = defined & wanted_before
        expect("symbols that the object wants", sorted(wanted), sorted(wanted_before - own))
        lost = _symbols(before, own) - _symbols(after, own)
        expect("symbols of the code that are not what they were", sorted(map(str, lost)), [])
        if isinstance(before, MachOFile) and isinstance(after, MachOFile):
            _compare_linkedit(before, after)


def _check_words(view: View, report: Report, job: Job, pack: PackPlan) -> None:
    """Check the word that holds the size of the pack, and the descriptor if the code wants one."""
    target, symbol = job.resolved.target, job.symbol or ""
    size_at = symbol_offset(report, f"{target.symbol_prefix}{symbol}_size")
    word = view.read(size_at, target.pointer_width // 8, "the size of the pack")
    expect(f"content of {symbol}_size", int.from_bytes(word, "little"), pack.total_size)
    if job.code is not None and job.code.wants.descriptor:
        at = symbol_offset(report, f"{target.symbol_prefix}{symbol}_descriptor")
        # In the pack's own section, whose bytes a linker keeps together.
        distance, size = view.unpack("<qQ", at, "the descriptor")
        expect("place that the descriptor leads to", at + distance, job.plan.pack_offset)
        expect("size in the descriptor", size, pack.total_size)


def _parts(file: CoffFile | MachOFile) -> list[_Part]:
    if isinstance(file, CoffFile):
        names = {symbol.number: symbol.name for symbol in file.symbols()}
        return [
            _Part(
                one.PointerToRawData,
                one.file_size,
                (one.name, one.VirtualSize, one.VirtualAddress, one.SizeOfRawData, one.Characteristics),
                [(row.VirtualAddress, names.get(row.SymbolTableIndex), row.Type) for row in file.relocations(one)],
            )
            for one in file.sections
        ]
    names = dict(enumerate(symbol.name for symbol in file.symbols()))
    return [
        _Part(
            one.offset,
            one.file_size,
            one._replace(offset=0, reloff=0),
            [(*row._replace(r_symbolnum=0), names.get(row.r_symbolnum) if row.r_extern else row.r_symbolnum)
             for row in file.relocations(one)],
        )
        for one in file.sections
    ]  # fmt: skip


def _compare(number: int, old: View, one: _Part, new: View, other: _Part) -> None:
    what = f"section {number} of the code"
    expect(f"{what}: header", other.header, one.header)
    expect(f"{what}: relocations", other.relocations, one.relocations)
    pairs = zip(old.chunks(one.offset, one.size, what), new.chunks(other.offset, other.size, what), strict=True)
    if any(expected != actual for expected, actual in pairs):
        raise difference(what, "its bytes", "others")


def _symbols(file: CoffFile | MachOFile, but: set[str]) -> set[tuple[object, ...]]:
    """Return all that the symbols say, but for those called as in `but`: of COFF with their numbers, which stay."""
    if isinstance(file, CoffFile):
        return {tuple(one) for one in file.symbols() if one.name not in but}
    return {tuple(one._replace(n_strx=0)) for one in file.symbols() if one.name not in but}


def _compare_linkedit(before: MachOFile, after: MachOFile) -> None:
    """Compare the ranges of the file that load commands name, and the indirect symbols."""
    for one, other in zip(before.linkedit, after.linkedit, strict=True):
        expect("load command", (other.cmd, other.datasize), (one.cmd, one.datasize))
        what = f"range of load command {one.cmd:#x}"
        pair = (before.view.read(one.dataoff, one.datasize, what), after.view.read(other.dataoff, one.datasize, what))
        require(f"{what}: the bytes of the code", pair[0] == pair[1])
    expect("indirect symbols", _indirect(after), _indirect(before))
    expect("LC_BUILD_VERSION", after.build_versions, before.build_versions)
    expect("flags of the header", hex(after.header.flags), hex(before.header.flags))


def _indirect(file: MachOFile) -> list[object]:
    table = file.dysymtab
    if table is None:
        return []
    names = dict(enumerate(symbol.name for symbol in file.symbols()))
    rows = file.view.table("<I", table.indirectsymoff, 4, table.nindirectsyms, "the indirect symbols")
    return [names.get(number, number) for (number,) in rows]


def _names(report: Report) -> tuple[set[str], set[str]]:
    """Return the global names that an object defines, and those that it wants."""
    symbols = [one for one in report.symbols() if one.name and one.binding != "local"]
    wanted = {one.name for one in symbols if one.place == "undefined"}
    return {one.name for one in symbols} - wanted, wanted
