"""The check of what a linker made: the pack in it byte for byte, and that it exports and wants what was planned."""

from __future__ import annotations

import os
from contextlib import suppress

from emitter.check.readback import difference, expect
from emitter.checksum import crc32c, crc32c_joined
from emitter.errors import EmitterError, InputError, OutputError
from emitter.reading import pread
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emitter.inspect.report import Artefact, Report
    from emitter.inspect.view import View
    from emitter.jobs import Job
    from emitter.layout import FilePlan
    from emitter.pack.plan import PackPlan

__all__ = ["check_index_at", "check_library", "check_linked", "symbol_offset"]

_WORTH_A_THREAD = 16 << 20  # bytes to be summed
_OF_LINKERS = {"_mh_dylib_header", "__dso_handle"}  # what zig's linker for Apple defines, and exports
_BUILD_ID_DESC = 16  # behind the note's head, and its owner "GNU"


def check_linked(path: str, job: Job, pack: PackPlan, crcs: Sequence[int]) -> tuple[int, int | None]:
    """Return the file offset of the pack in a linked library, or in an object that was joined with code.

    The second is the file offset of the build id, None where there is none.
    Its index and the CRC-32C of each payload are compared with what was written. Raises OutputError for a difference.
    """
    with _open(path) as artefact:
        report = _report(artefact, ())
        if job.format == "library":
            _check_report(report, job)
            _expect("packs in the library", len(report.packs), 1)
            offset = report.packs[0].offset
        else:
            offset = symbol_offset(report, job.resolved.target.symbol_prefix + (job.symbol or ""))
        view = artefact.view
        index = view.read(offset, pack.index_size, "the index")
        _expect("first byte of the pack's index that differs", _differs_at(index, pack.render_index(crcs)), None)
        for number, (payload, crc) in enumerate(zip(pack.payloads, crcs, strict=True)):
            found = _crc32c(view, offset + payload.offset, payload.size)
            if found != crc:
                raise _made_otherwise(
                    f"CRC-32C of payload {number} in what was linked", f"{crc:#010x}", f"{found:#010x}"
                )
        notes = (one.offset + _BUILD_ID_DESC for one in report.sections if one.name == ".note.gnu.build-id")
        return offset, next(notes, None)


def _crc32c(view: View, start: int, size: int) -> int:
    """Return the CRC-32C of `size` bytes; two threads take it of many: reading and summing need no interpreter."""
    if size < _WORTH_A_THREAD:
        return _crc32c_of(view, start, size)
    from threading import Thread

    half = size // 2
    first: list[int] = []
    thread = Thread(target=lambda: first.append(_crc32c_of(view, start, half)))
    thread.start()
    second = _crc32c_of(view, start + half, size - half)
    thread.join()
    # The thread has failed as this one would have; what it met is met again.
    return crc32c_joined(first[0] if first else _crc32c_of(view, start, half), second, size - half)


def _crc32c_of(view: View, start: int, size: int) -> int:
    crc = 0
    for block in view.chunks(start, size, "a payload"):
        crc = crc32c(block, crc)
    return crc


def check_library(path: str, job: Job) -> None:
    """Check what a library exports and wants that a pack will be attached to. Raises OutputError for a difference."""
    with _open(path) as artefact:
        # Until the pack is attached, its note leads nowhere; and mold joins notes of two alignments.
        _check_report(_report(artefact, ("packs", "notes")), job)


def _open(path: str) -> Artefact:
    from emitter.inspect import open_file

    try:
        return open_file(path)
    except EmitterError as error:
        raise _made_otherwise("the linker's output", "a library or an object", error) from error


def _report(artefact: Artefact, but: Sequence[str]) -> Report:
    if artefact.reader is None:
        raise _made_otherwise("the linker's output", "a library or an object", "a file of no known format")
    report = artefact.reader.report()
    for fault in report.faults:
        if fault.part in but:
            continue
        raise _made_otherwise(f"{fault.part} of the linker's output", "what can be read", fault.error)
    return report


def symbol_offset(report: Report, name: str) -> int:
    """Return the file offset of what a symbol of an object names. Raises OutputError if there is no such symbol."""
    sections = {section.number: section for section in report.sections}
    for symbol in report.symbols():
        if symbol.name == name and symbol.binding != "local" and symbol.section in sections:
            section = sections[symbol.section]
            # In an object that linkers join, sections have no address.
            return section.offset + symbol.value - section.address
    raise difference("symbols of the object", name, "no such symbol")


def _check_report(report: Report, job: Job) -> None:
    code, target = job.code, job.resolved.target
    if code is None:
        return
    tables = ("dynsym", "exports", "imports")
    prefix = "" if target.coff else target.symbol_prefix  # the tables of PE have names as C has them
    exported, wanted = set(), set()
    for symbol in report.symbols():
        if symbol.table in tables and symbol.name and symbol.binding != "local":
            name = symbol.name.removeprefix(prefix)
            if symbol.place == "undefined":
                if symbol.binding != "weak":
                    wanted.add(name)
            else:
                exported.add(name)
    if code.version_script is None:
        own = {*code.functions, *code.data}
        _expect("exports of the library", sorted(exported - (_OF_LINKERS - own)), sorted(own))
    given = {name for names in code.wants.libraries.values() for name in names} | {*code.wants.allowed}
    given |= _of_libraries(code.wants.paths, target.symbol_prefix)
    nobody = sorted(wanted - given - {"dyld_stub_binder"})
    if nobody:
        raise InputError(
            "undefined symbols",
            where="what was linked",
            actual=", ".join(nobody[:12]),
            hint="give the code that defines them, -l for a library that does, or --allow-undefined NAME",
        )
    for one in report.hardening:
        if one.name in {"nx", "executable stack", "no executable stack"} and one.value is False:
            raise _made_otherwise(f"hardening: {one.name}", True, one.value)


def _of_libraries(paths: Sequence[str], prefix: str) -> set[str]:
    """Return what the shared libraries and import libraries that were linked define; a text is no library of ours."""
    from emitter.inspect import open_file

    names = set()
    for path in paths:
        with suppress(EmitterError), open_file(path) as artefact:
            readers = [artefact.reader, *(one.reader for one in artefact.objects())] if artefact.reader else []
            for reader in filter(None, readers):
                for symbol in reader.report().symbols() if not reader.container else ():
                    if symbol.place == "defined":
                        names.add(symbol.name.removeprefix(prefix))
    return names


def check_index_at(fd: int, plan: FilePlan, pack: PackPlan, crcs: Sequence[int]) -> None:
    """Check the index of a pack that was written where the plan has it, in an archive or an object with code."""
    offset = plan.pack_offset or 0
    index = pread(fd, pack.index_size, offset)
    expect("first byte of the pack's index that differs", _differs_at(index, pack.render_index(crcs)), None)
    expect("size of the file", os.fstat(fd).st_size, plan.size)


def _differs_at(one: bytes, other: bytes) -> int | None:
    """Return the offset of the first byte that differs, the shorter length if there is none; None for equal ones."""
    if one == other:
        return None
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (byte, expected) in pairs if byte != expected), min(len(one), len(other)))


def _expect(field: str, actual: object, expected: object) -> None:
    if actual != expected:
        raise _made_otherwise(field, expected, actual)


def _made_otherwise(field: str, expected: object, actual: object) -> OutputError:
    return OutputError(
        "the linker has made something else than was asked for",
        where=field,
        expected=expected,
        actual=actual,
        hint="name another --linker (-v says which it was); the code may bring what it exports with it",
    )
