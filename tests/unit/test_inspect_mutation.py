"""Mutated ELF files, archives and packs give an error or a report; never a traceback, a hang, or much memory.

For more cases than the test runs:

    python -m tests.unit.test_inspect_mutation 100000 [SEED]
"""

from __future__ import annotations

import contextlib
import random
import resource
import sys
import time
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

import emitter
from emitter.errors import EmitterError
from emitter.inspect import recognise
from emitter.inspect.command import report_text
from emitter.inspect.elf import ElfFile
from emitter.inspect.view import View
from emitter.package import Package

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from emitter.inspect.report import Artefact

CASES = 3000
MEGABYTES = 500

TARGETS = ("x86_64-linux-gnu", "armv7-linux-gnueabihf", "riscv64-linux-gnu", "s390x-linux-gnu", "i686-linux-gnu")
VALUES = (
    b"\0", b"\xff", b"\x7f", b"\x80", bytes(4), b"\xff" * 4, b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\1\0\0\0",
    b"\0\0\0\1", bytes(8), b"\xff" * 8, b"\0\0\0\0\0\1\0\0", b"\0\0\1\0\0\0\0\0", b"\xff" * 7 + b"\x7f", b"\xff\xff",
    b"\xff\0", b"\0\xff",
)  # fmt: skip


def seeds(folder: Path) -> list[bytes]:
    """Return files of several CPUs, emitted here, and a library with versions, notes and relocations where gcc is."""
    package = Package(metadata={"k": "v"})
    package.add_raw("a", bytes(range(200)))
    package.add_raw("layer.b", bytes(70))
    found = []
    for target in TARGETS:
        for suffix in (".so", ".o", ".a"):
            path = folder / f"x{suffix}"
            emitter.emit(package, path, target=target, tensor_symbols=True)
            found.append(path.read_bytes())
    emitter.emit(package, folder / "x.pack")
    found.append((folder / "x.pack").read_bytes())
    # A program of the system, for what emitted files do not have: versions, an interpreter, many sections.
    programs = (Path(sys.executable).resolve(), Path("/bin/true"))
    return found + [path.read_bytes() for path in programs if path.exists() and path.stat().st_size < 100_000]


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Return the bytes with some of them overwritten, removed, repeated or cut off: half of the time near the start."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        at = rng.randrange(min(len(changed), rng.choice((64, 1024, len(changed)))) or 1)
        match rng.randrange(8):
            case 0:
                changed[at:at] = changed[at : at + rng.randrange(1, 64)]
            case 1:
                del changed[at : at + rng.randrange(1, 16)]
            case 2 if rng.random() < 0.3:
                del changed[at:]
            case 3:
                # A field takes the value of another one: what looks right, but leads elsewhere.
                other = rng.randrange(len(changed) or 1)
                size = rng.choice((4, 8))
                changed[at : at + size] = changed[other : other + size]
            case 4 if at < len(changed):
                changed[at] ^= 1 << rng.randrange(8)
            case _:
                value = rng.choice(VALUES)
                changed[at : at + len(value)] = value
    return bytes(changed)


def examine(data: bytes) -> None:
    """Read everything of a file. Only errors of this package may come out."""
    try:
        artefact = recognise(View.of_bytes(data, "mutated"))
    except EmitterError as error:
        assert str(error)
        return
    try:
        for line in report_text(artefact):
            assert line.isprintable()
        for member in artefact.objects():
            examine_records(member)
    except EmitterError as error:
        assert str(error)


def examine_records(member: Artefact) -> None:
    """Read what the report does not, of an ELF file."""
    elf = member.reader
    if not isinstance(elf, ElfFile):
        return
    parts: Sequence[Callable[[], object]] = (
        lambda: sum(1 for _ in elf.relocations()),
        elf.relr_count,
        lambda: elf.versions_defined,
        lambda: [elf.desc(note) for note in elf.notes()],
        lambda: [elf.section_label(number) for number in range(len(elf.shdrs))],
        lambda: (elf.rpath, elf.runpath, elf.address_to_offset(4096)),
    )
    for part in parts:
        with contextlib.suppress(EmitterError):
            part()


def run(cases: int, seed: int, folder: Path) -> float:
    """Examine that many mutated files; return the seconds that the slowest took."""
    rng = random.Random(seed)
    originals = seeds(folder)
    for data in originals:
        examine(data)
    slowest = 0.0
    for number in range(cases):
        data = mutate(rng.choice(originals), rng)
        start = time.monotonic()
        try:
            examine(data)
        except BaseException as error:
            (folder / "failing").write_bytes(data)
            msg = f"case {number} of seed {seed}, kept as {folder / 'failing'}"
            raise AssertionError(msg) from error
        slowest = max(slowest, time.monotonic() - start)
    return slowest


def test_mutated_files_give_errors_or_reports(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run(CASES, 20, tmp_path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEGABYTES << 10


if __name__ == "__main__":
    where = Path(mkdtemp())
    took = run(int(sys.argv[1]), int((sys.argv[2:] or ["1"])[0]), where)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    sys.stdout.write(f"slowest {took:.2f} s, {memory} MB, in {where}\n")
