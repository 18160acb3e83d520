"""The lines for `emitter verify`: a library of 1 GiB, without its payload and with it."""

from __future__ import annotations

import os

from benchmarks import inputs
from benchmarks.measure import Command, compare, run_once
from benchmarks.sections import GIB, MB, Bench, Section

__all__ = ["verified"]


def verified(bench: Bench) -> Section:
    """1 GiB verified."""
    raw = inputs.raw(bench.folder, "g1.bin", GIB)
    library = bench.path("libg1.so")
    run_once(bench.emit("", f"w=raw:{raw}", "libg1.so").argv)
    os.unlink(raw)
    section = Section("Verify a library of 1 GiB; pairs with reading it (cksum)")
    argv = (bench.emitter, "verify", library, "--target", "x86_64-linux-gnu", "--config", os.devnull)
    commands = [
        Command(name="without payload checks", argv=(*argv, "--rule", "pack-checksum=off")),
        Command(name="with them", argv=argv),
    ]
    section.rows = compare(commands, Command(name="cksum", argv=("cksum", library)), bench.rounds)
    headers, whole = (section.row(command.name) for command in commands)
    section.aim("without payload checks: at most 0.35 s", headers.wall if headers else None, 0.35, "s")
    section.aim("with them: at most 1.5 x cksum", whole.ratio if whole else None, 1.5, "x cksum")
    for row in (headers, whole):
        section.aim("at most 100 MB of memory", row.peak if row else None, 100 * MB, "MB", 1 / MB)
    os.unlink(library)
    return section
