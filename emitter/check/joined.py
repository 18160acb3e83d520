"""The check of an object in which code and a pack were joined: the code is what it was, and it leads to the pack.

Read through `emitter.inspect`, which shares nothing with the writer.
"""

from __future__ import annotations

import os

from emitter.check.linked import check_pack_at, symbol_offset
from emitter.check.readback import difference, expect
from emitter.inspect.coff import CoffFile
from emitter.inspect.macho import MachOFile
from emitter.inspect.view import View
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emitter.inspect.report import Report
    from emitter.jobs import Job
    from emitter.pack.plan import PackPlan

__all__ = ["check_joined"]


class _Part(NamedTuple):
    """A section: its place in the file, and its relocations, each with the name of its symbol."""

    offset: int
    size: int
    relocations: list[tuple[object, ...]]


def check_joined(fd: int, job: Job, pack: PackPlan, crcs: Sequence[int]) -> None:
    """Check the written object `fd`. Raises OutputError that names the first difference.

    The sections of the code have their bytes, and their relocations name the same symbols; the names of the pack are
    where they are to be, and its size and descriptor right; nothing of the code is gone, and nothing is wanted but what
    it wanted.
    """
    if job.code is None:
        return
    check_pack_at(fd, job.plan, pack, crcs)
    (code,) = job.code.objects
    with View.of_bytes(code.data, code.path) as old, View.of_descriptor(os.dup(fd), job.path) as new:
        target = job.resolved.target
        before, after = (CoffFile(old), CoffFile(new)) if target.coff else (MachOFile(old), MachOFile(new))
        for number, (one, other) in enumerate(zip(_parts(before), _parts(after), strict=False), 1):
            _compare(number, old, one, new, other)
        report = after.report()
        if report.faults:
            raise difference(f"{report.faults[0].part} of the object", "what can be read", report.faults[0].error)
        places = {job.symbol or "": 0}
        places |= {one.name: one.offset for one in (*job.tensor_symbols, *job.code.wants.tensors)}
        for name, offset in places.items():
            found = symbol_offset(report, target.symbol_prefix + name) - (job.plan.pack_offset or 0)
            expect(f"{name}: offset in the pack", found, offset)
        _check_words(new, report, job, pack)
        (defined_before, wanted_before), (defined, wanted) = _names(before.report()), _names(report)
        expect("symbols that the object wants", sorted(wanted), sorted(wanted_before - defined))
        expect("symbols of the code that are gone", sorted(defined_before - defined), [])


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
                [(row.VirtualAddress, names.get(row.SymbolTableIndex), row.Type) for row in file.relocations(one)],
            )
            for one in file.sections
        ]
    names = dict(enumerate(symbol.name for symbol in file.symbols()))
    return [
        _Part(
            one.offset,
            one.file_size,
            [(*row._replace(r_symbolnum=0), names.get(row.r_symbolnum) if row.r_extern else row.r_symbolnum)
             for row in file.relocations(one)],
        )
        for one in file.sections
    ]  # fmt: skip


def _compare(number: int, old: View, one: _Part, new: View, other: _Part) -> None:
    what = f"section {number} of the code"
    expect(f"{what}: size", other.size, one.size)
    expect(f"{what}: relocations", other.relocations, one.relocations)
    pairs = zip(old.chunks(one.offset, one.size, what), new.chunks(other.offset, other.size, what), strict=True)
    if any(expected != actual for expected, actual in pairs):
        raise difference(what, "its bytes", "others")


def _names(report: Report) -> tuple[set[str], set[str]]:
    """Return the global names that an object defines, and those that it wants."""
    symbols = [one for one in report.symbols() if one.name and one.binding != "local"]
    wanted = {one.name for one in symbols if one.place == "undefined"}
    return {one.name for one in symbols} - wanted, wanted
