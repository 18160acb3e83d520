"""Thousands of mutated Mach-O, PE and COFF files and archives: a report or one of our errors, at a bounded price.

`EMITTER_MUTATIONS` in the environment is the number of cases of each file; a case is named by its seed, and the
files are the same each time (but for the GUID of a PDB), so that what a message names can be tried again alone.
"""

from __future__ import annotations

import os
import random
import struct
import time
from typing import TYPE_CHECKING, Any

import pytest

from emitter.errors import EmitterError
from emitter.inspect import recognise
from emitter.inspect.macho import MachOFile
from emitter.inspect.macho_signature import verify_signature
from emitter.inspect.pe import PeFile
from emitter.inspect.report import Artefact
from emitter.inspect.view import View
from tests.foreign_files import MACHO_SOURCE, PE_SOURCE, archive, compile_c, dylib, pe_dll, run_tool, universal
from tests.support import traced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CASES = int(os.environ.get("EMITTER_MUTATIONS", "1000"))
_SLOW = 5.0  # seconds: what is slower counts as a hang; the slowest takes some hundredths of one
_MEMORY = 64 << 20  # bytes that one file of some KiB may cost
_EDGES = (
    0,
    1,
    2,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
)


def _macho_object(folder: str) -> str:
    return compile_c(folder, "armv7-apple-ios9", MACHO_SOURCE, "x.o")


def _coff_object(folder: str) -> str:
    return compile_c(folder, "x86_64-windows-msvc", PE_SOURCE, "x.obj")


def _universal(folder: str) -> str:
    objects = [compile_c(folder, f"{arch}-apple-macos11", "int x = 1;", f"{arch}.o") for arch in ("arm64", "x86_64")]
    return universal(folder, objects)


def _archive(form: str, triple: str) -> Callable[[str], str]:
    def make(folder: str) -> str:
        names = ("a.o", "a_member_with_a_long_name.o")
        objects = [compile_c(folder, triple, f"int x{len(name)} = 1;", name) for name in names]
        return archive(os.path.join(folder, "x.a"), objects, form)

    return make


def _import_library(folder: str) -> str:
    definition, path = os.path.join(folder, "x.def"), os.path.join(folder, "x.lib")
    with open(definition, "w", encoding="utf-8") as file:
        file.write("LIBRARY outer.dll\nEXPORTS\ntable DATA\ntwice\n")
    run_tool("llvm-dlltool", "-m", "i386:x86-64", "-d", definition, "-l", path)
    return path


MAKERS: dict[str, Callable[[str], str]] = {
    "dylib": lambda folder: dylib(folder, debug=False),
    "macho object": _macho_object,
    "universal": _universal,
    "dll": lambda folder: pe_dll(folder, "/Brepro", "/pdbaltpath:outer.pdb"),
    "coff object": _coff_object,
    "import library": _import_library,
    "gnu archive": _archive("gnu", "x86_64-linux-gnu"),
    "darwin archive": _archive("darwin", "arm64-apple-macos11"),
}


def mutate(rng: random.Random, data: bytes) -> bytes:
    """Return `data` with a few changes: flipped bits, numbers at the edges, cuts, copies and insertions."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        if not out:
            break
        # Most of what a reader trusts is at the start.
        at = rng.randrange(min(len(out), 2048) if rng.random() < 0.6 else len(out))
        kind = rng.randrange(8)
        if kind == 0:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            out[at] = rng.randrange(256)
        elif kind in (2, 3):
            width = rng.choice((1, 2, 4, 4, 8))
            value = rng.choice((*_EDGES, len(out), len(out) - 1, at, rng.randrange(len(out)), rng.getrandbits(64)))
            at -= at % width if rng.random() < 0.8 else 0
            number = (value & ((1 << 8 * width) - 1)).to_bytes(width, rng.choice(("little", "big")))
            out[at : at + width] = number
        elif kind == 4:
            del out[at:]
        elif kind == 5:
            del out[at : at + rng.randrange(64)]
        elif kind == 6:
            out[at:at] = bytes(rng.randrange(64))
        else:
            start, size = rng.randrange(len(out)), rng.randrange(128)
            out[at : at + size] = out[start : start + size]
    return bytes(out)


def _drain(make: Callable[[], Iterable[Any]]) -> None:
    try:
        for _ in make():
            pass
    except EmitterError:
        pass


def exercise(artefact: Artefact) -> None:
    """Read everything that is in a file."""
    reader: Any = artefact.reader
    if reader is None:
        return
    if artefact.container:
        for name in ("headers", "index", "index_faults", "faults"):
            _drain(getattr(reader, name, tuple))
        try:
            for member in artefact.members():
                exercise(member)
        except EmitterError:
            pass
        return
    report = reader.report()
    _drain(report.symbols)
    if report.identity.format == "elf":  # a member of an archive, which has tests of its own
        return
    for name in ("symbols", "exports", "oso", "base_relocations"):
        _drain(getattr(reader, name, tuple))
    if isinstance(reader, MachOFile):
        _drain(lambda: reader.interior_symbols(0, 1 << 63))
        _drain(lambda: verify_signature(reader))
    if isinstance(reader, PeFile):
        _drain(lambda: [symbol for dll in reader.imports for symbol in reader.imported_symbols(dll)])
        for parts in (lambda: [reader.codeview], lambda: [reader.load_config], lambda: [reader.tls]):
            _drain(parts)
        _drain(lambda: reader.certificates)
    elif hasattr(reader, "relocations"):
        _drain(lambda: [one for section in reader.sections for one in reader.relocations(section)])


def _try(data: bytes, where: str) -> None:
    try:
        artefact = recognise(View.of_bytes(data, where))
    except EmitterError as error:
        assert str(error)
        return
    exercise(artefact)


@pytest.mark.parametrize("name", MAKERS)
def test_mutated_files_give_a_report_or_our_errors(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    with open(MAKERS[name](str(tmp_path_factory.mktemp("mutated"))), "rb") as file:
        data = file.read()
    _try(data, name)
    for number in range(CASES):
        case = f"{name}, case {number}"
        mutated = mutate(random.Random(case), data)
        start = time.monotonic()
        with traced() as peak:
            try:
                _try(mutated, case)
            except Exception as error:
                error.args = (*error.args, case)
                raise
            assert peak() < _MEMORY, f"{case} takes {peak()} bytes"
        assert time.monotonic() - start < _SLOW, f"{case} takes too long"


def test_one_import_table_shared_by_thousands_of_descriptors_is_bounded(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with open(pe_dll(str(tmp_path_factory.mktemp("shared"))), "rb") as file:
        data = bytearray(file.read())
    pe = PeFile(View.of_bytes(bytes(data), "x"))
    # A section of its own: 4000 descriptors that share one lookup table of 60000 imports by ordinal.
    first, count, entries = 0x100000, 4000, 60000
    lookup = first + 20 * (count + 1)
    body = struct.pack("<5I", lookup, 0, 0, first - 8, lookup) * count
    body += bytes(20) + struct.pack("<Q", 1 << 63 | 7) * entries + bytes(8)
    header = pe.e_lfanew + 24 + pe.header.SizeOfOptionalHeader + 40 * (len(pe.sections) - 1)
    data += bytes(-len(data) % 512)
    start = len(data)
    struct.pack_into("<4I", data, header + 8, len(body) + 8, first - 8, len(body) + 8, start)
    struct.pack_into("<2I", data, pe.e_lfanew + 24 + 112 + 8, first, len(body))
    hostile = PeFile(View.of_bytes(bytes(data) + b"a.dll\0\0\0" + body, "x"))
    assert len(hostile.imports) >= count
    with pytest.raises(EmitterError, match="too many imports"):
        for _ in hostile.report().symbols():
            pass


_LONG = b"x" * 60000 + b"\0"


def _sections_with_one_name() -> Iterable[Any]:
    count = 60000
    header = struct.pack("<2H3I2H", 0x8664, count, 0, 20 + 40 * count, 0, 0, 0)
    strings = struct.pack("<I", 4 + len(_LONG)) + _LONG
    reader: Any = recognise(View.of_bytes(header + b"/4".ljust(40, b"\0") * count + strings, "x.obj")).reader
    return reader.sections  # type: ignore[no-any-return] # sections of whatever reader takes the file


def _index_of_the_ends_of_one_name() -> Iterable[Any]:
    count = 60000
    ranlib = b"".join(struct.pack("<2I", number, 8) for number in range(count))
    body = struct.pack("<I", len(ranlib)) + ranlib + struct.pack("<I", len(_LONG)) + _LONG
    header = b"__.SYMDEF       0           0     0     0       " + str(len(body)).encode().ljust(10) + b"`\n"
    reader: Any = recognise(View.of_bytes(b"!<arch>\n" + header + body, "x.a")).reader
    return reader.index_faults()  # type: ignore[no-any-return] # as above


def _members_with_the_ends_of_one_name() -> Iterable[Any]:
    table = b"//".ljust(48) + str(len(_LONG) - 1).encode().ljust(10) + b"`\n" + _LONG[:-2] + b"\n"
    members = b"".join(f"/{n}".encode().ljust(48) + b"0".ljust(10) + b"`\n" for n in range(50000))
    return list(recognise(View.of_bytes(b"!<arch>\n" + table + members, "x.a")).members())


HOSTILE = {
    "sections": (_sections_with_one_name, "the names of sections are too long"),
    "index": (_index_of_the_ends_of_one_name, "the names of the index are too long"),
    "members": (_members_with_the_ends_of_one_name, "the names of members are too long"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_many_entries_that_share_one_long_name_are_bounded(name: str) -> None:
    make, message = HOSTILE[name]
    with traced() as peak:
        with pytest.raises(EmitterError, match=message):
            for _ in make():
                pass
        assert peak() < 200 << 20
