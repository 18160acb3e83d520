"""The check of code and a pack in one object finds whatever was planned, or written, otherwise than it should be."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

import pytest

from emitter.check import unlinked
from emitter.errors import OutputError
from emitter.link import join_coff, join_macho
from emitter.targets import load
from tests.joined_files import (
    COFF,
    COFF_SECTION,
    INDIRECT,
    INTEL,
    JUMPS,
    LC_DATA_IN_CODE,
    LC_DYSYMTAB,
    LC_SEGMENT_64,
    LC_SYMTAB,
    SECTION_64,
    UNUSUAL,
    WINDOWS,
    assembled,
    change_word,
    coff_section,
    emit_joined,
    load_command,
    section_64,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from emitter.jobs import Job
    from emitter.layout import FilePlan
    from emitter.model import ObjectModel
    from emitter.pack.plan import PackPlan
    from emitter.targets._base import Target

    Change = Callable[[bytearray], None]

# Each wants a symbol that no relocation names, and the descriptor.
MACHO_CODE = f"""{INDIRECT}{JUMPS}
.globl _known
_known: leaq _model_descriptor(%rip), %rax
 movq _model_size(%rip), %rax
.section __DATA,__nl_symbol_ptr,non_lazy_symbol_pointers
.indirect_symbol _elsewhere
.quad 0
"""
COFF_CODE = f"""{UNUSUAL.replace("model_t_v", "other")}
.text
 leaq model_descriptor(%rip), %rax
 leaq model_size(%rip), %rax
.weak perhaps
"""


def word(field: Callable[[bytearray], int], change: int | Callable[[int], int] = lambda value: value + 1) -> Change:
    """Return what changes the 32 bits at a place."""
    return lambda data: change_word(data, field(data), change)


def of_command(cmd: int, at: int) -> Callable[[bytearray], int]:
    return lambda data: load_command(data, cmd) + at


def behind(cmd: int, at: int, distance: int = 0) -> Callable[[bytearray], int]:
    """Return the place that a field of a load command leads to."""
    return lambda data: struct.unpack_from("<I", data, load_command(data, cmd) + at)[0] + distance


def of_section(name: str, field: str | int) -> Callable[[bytearray], int]:
    if name.startswith("__"):
        return lambda data: section_64(data, name) + (SECTION_64[field] if isinstance(field, str) else field)
    return lambda data: coff_section(data, name) + (COFF_SECTION[field] if isinstance(field, str) else field)


def in_section(name: str, field: str, distance: int = 0) -> Callable[[bytearray], int]:
    """Return the place that a field of a section's header leads to."""
    header = of_section(name, field)
    return lambda data: struct.unpack_from("<I", data, header(data))[0] + distance


def of_symbol(name: str, at: int) -> Callable[[bytearray], int]:
    """Return where a field of the first symbol of a name is."""

    def found(data: bytearray) -> int:
        if data[:4] == b"\xcf\xfa\xed\xfe":
            symoff, count, strings = struct.unpack_from("<3I", data, load_command(data, LC_SYMTAB) + 8)
            rows = range(symoff, symoff + 16 * count, 16)
            starts = {row: strings + struct.unpack_from("<I", data, row)[0] for row in rows}
        else:
            table, count = struct.unpack_from("<2I", data, COFF["PointerToSymbolTable"])
            rows, strings = range(table, table + 18 * count, 18), table + 18 * count
            starts = {row: strings + int.from_bytes(data[row + 4 : row + 8], "little") for row in rows}
            starts = {row: at if not any(data[row : row + 4]) else row for row, at in starts.items()}
        wanted = name.encode() + b"\0"
        return at + next(row for row, start in starts.items() if data[start:].startswith(wanted))

    return found


def content_of(name: str, distance: int = 0) -> Callable[[bytearray], int]:
    """Return the place that a symbol of the pack names."""

    def found(data: bytearray) -> int:
        if data[:4] == b"\xcf\xfa\xed\xfe":
            (value,) = struct.unpack_from("<Q", data, of_symbol(name, 8)(data))
            (addr, _, offset) = struct.unpack_from("<2QI", data, section_64(data, "__emitter") + SECTION_64["addr"])
            return int(value - addr + offset) + distance
        value, number = struct.unpack_from("<IH", data, of_symbol(name, 8)(data))
        (offset,) = struct.unpack_from("<I", data, 20 + 40 * (number - 1) + COFF_SECTION["PointerToRawData"])
        return int(value + offset) + distance

    return found


def name_of(name: str) -> Callable[[bytearray], int]:
    """Return where a name is in the file."""
    return lambda data: data.rindex(b"\0" + name.encode() + b"\0") + 1


HEADER = "section 1 of the code: header"
MACHO = {
    "sections": (word(of_command(LC_SEGMENT_64, 64), 1), "the object has the sections of the code and others"),
    "sectname": (word(of_section("__text", 4)), HEADER),
    "segname": (word(of_section("__text", 20)), HEADER),
    "size": (word(of_section("__text", "size"), 1), HEADER),
    "addr": (word(of_section("__text", "addr")), HEADER),
    "align": (word(of_section("__text", "align")), HEADER),
    "flags": (word(of_section("__text", "flags")), HEADER),
    "reserved1": (word(of_section("__la_symbol_ptr", 68)), "section 3 of the code: header"),
    "nreloc": (word(of_section("__text", "nreloc"), lambda count: count - 1), HEADER),
    "a relocation": (word(in_section("__text", "reloff", 4)), "section 1 of the code: relocations"),
    "bytes": (word(in_section("__data", "offset")), "section 5 of the code"),
    "a section of the pack": (word(of_section("__emitter", "size"), 1 << 20), "sections of the object"),
    "value of the pack": (word(of_symbol("_model", 8)), "model: offset in the pack"),
    "value of a tensor that the code wants": (word(of_symbol("_model_t_w", 8)), "model_t_w: offset in the pack"),
    "value of a tensor that is shown": (word(of_symbol("_model_t_v", 8)), "model_t_v: offset in the pack"),
    "name of a tensor that is shown": (word(name_of("_model_t_v")), "symbols of the object: .* expected _model_t_v"),
    "size of the pack": (word(of_symbol("_model_size", 8)), "content of model_size"),
    "place of the descriptor": (word(of_symbol("_model_descriptor", 8), lambda at: at - 16), "descriptor leads to"),
    "the word with the size": (word(content_of("_model_size")), "content of model_size"),
    "distance in the descriptor": (word(content_of("_model_descriptor")), "place that the descriptor leads to"),
    "size in the descriptor": (word(content_of("_model_descriptor", 8)), "size in the descriptor"),
    "a symbol that the code wants": (word(name_of("_elsewhere")), "symbols that the object wants"),
    "value of a symbol": (word(of_symbol("_known", 8)), "symbols of the code that are not what they were"),
    "n_desc of a symbol": (word(of_symbol("_known", 6)), "symbols of the code that are not what they were"),
    "name of a local symbol": (word(name_of("_local")), "symbols of the code that are not what they were"),
    "indirect symbols": (word(behind(LC_DYSYMTAB, 56)), "indirect symbols"),
    "datasize": (word(of_command(LC_DATA_IN_CODE, 12), 0), "load command"),
    "dataoff": (word(of_command(LC_DATA_IN_CODE, 8)), "range of load command 0x29: the bytes of the code"),
    "data in code": (word(behind(LC_DATA_IN_CODE, 8)), "range of load command 0x29: the bytes of the code"),
    "LC_BUILD_VERSION": (word(of_command(0x32, 12)), "LC_BUILD_VERSION"),
    "flags of the header": (word(lambda _: 24, 0x2000), "flags of the header"),
}
COFF_CHANGES = {
    "sections": (word(lambda _: 0, 0x18664), "the object has the sections of the code and others"),
    "Name": (word(of_section(".text", 0)), HEADER),
    "VirtualSize": (word(of_section(".text", 8)), HEADER),
    "VirtualAddress": (word(of_section(".text", 12)), HEADER),
    "SizeOfRawData": (word(of_section(".text", 16)), HEADER),
    "Characteristics": (word(of_section(".text", 36)), HEADER),
    "NumberOfRelocations": (word(of_section(".text", 32), lambda n: n - 1), "section 1 of the code: relocations"),
    "a relocation": (word(in_section(".text", "PointerToRelocations", 4)), "section 1 of the code: relocations"),
    "bytes": (word(in_section(".text", "PointerToRawData")), "section 1 of the code"),
    "a section of the pack": (word(of_section(".rdata", "SizeOfRawData"), 1 << 20), "sections of the object"),
    "value of the pack": (word(of_symbol("model", 8)), "model: offset in the pack"),
    "value of a tensor that the code wants": (word(of_symbol("model_t_w", 8)), "model_t_w: offset in the pack"),
    "value of a tensor that is shown": (word(of_symbol("model_t_v", 8)), "model_t_v: offset in the pack"),
    "size of the pack": (word(of_symbol("model_size", 8)), "content of model_size"),
    "place of the descriptor": (word(of_symbol("model_descriptor", 8), lambda at: at - 16), "descriptor leads to"),
    "the word with the size": (word(content_of("model_size")), "content of model_size"),
    "distance in the descriptor": (word(content_of("model_descriptor")), "place that the descriptor leads to"),
    "size in the descriptor": (word(content_of("model_descriptor", 8)), "size in the descriptor"),
    "a symbol that the code wants": (word(of_symbol("perhaps", 0)), "symbols that the object wants"),
    "value of a symbol": (word(of_symbol("weight", 8)), "symbols of the code that are not what they were"),
    "class of a symbol": (word(of_symbol("other", 16)), "symbols of the code that are not what they were"),
    "a record beside a symbol": (word(of_symbol("soft", 18 + 4)), "symbols of the code that are not what they were"),
}
EVERY = [(INTEL, name) for name in MACHO] + [(WINDOWS, name) for name in COFF_CHANGES]


def code_of(target: str) -> bytes:
    return assembled(target, COFF_CODE if target == WINDOWS else MACHO_CODE)


@pytest.mark.parametrize(("target", "name"), EVERY)
def test_what_is_planned_wrongly_is_found(
    target: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, words = (COFF_CHANGES if target == WINDOWS else MACHO)[name]
    _found(target, change, words, tmp_path, monkeypatch, tensor_symbols="is shown" in name)


def _found(
    target: str, change: Change, words: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *, tensor_symbols: bool
) -> None:
    """Check that a file whose plan has other bytes than the right one is refused with these words, and removed."""
    code = code_of(target)
    output = emit_joined(folder, target, code, tensor_symbols=tensor_symbols)
    right = output.read_bytes()
    output.unlink()
    wrong = bytearray(right)
    change(wrong)
    assert wrong != right and len(wrong) == len(right)
    join = join_coff if load(target).coff else join_macho
    plan_right = join.plan_joined

    def plan_wrong(target: Target, model: ObjectModel, code: bytes, where: str) -> FilePlan:
        plan: FilePlan = plan_right(target, model, code, where)
        pieces = [one._replace(data=bytes(wrong[one.offset : one.offset + len(one.data)])) for one in plan.pieces]
        assert pieces != plan.pieces
        return plan._replace(pieces=pieces)

    monkeypatch.setattr(join, "plan_joined", plan_wrong)
    with pytest.raises(OutputError, match=words):
        emit_joined(folder, target, code, tensor_symbols=tensor_symbols)
    assert not output.exists()


@pytest.mark.parametrize("target", [INTEL, WINDOWS])
@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("header", "bytes at 0x0: .* expected those that were planned"),
        ("index", "first byte of the pack's index that differs: .* found 9"),
        ("end", "size of the file"),
    ],
)
def test_what_is_written_wrongly_is_found(
    target: str, where: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = unlinked.check_unlinked

    def check(fd: int, job: Job, pack: PackPlan, crcs: Sequence[int]) -> None:
        at = {"header": 8, "index": (job.plan.pack_offset or 0) + 9, "end": job.plan.size}[where]
        os.pwrite(fd, b"\xff", at)
        right(fd, job, pack, crcs)

    monkeypatch.setattr(unlinked, "check_unlinked", check)
    with pytest.raises(OutputError, match=words):
        emit_joined(tmp_path, target, code_of(target))
    assert list(tmp_path.iterdir()) == []
