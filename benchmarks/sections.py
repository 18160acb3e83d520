"""The parts of the benchmark: what is measured, and what it aims at."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks import inputs, peers
from benchmarks.measure import Command, Row, best_of, compare, run_once

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["QUICK", "SECTIONS", "Aim", "Bench", "Section"]

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MB = 1000 * 1000
GIB = 1 << 30


@dataclass(slots=True)
class Aim:
    """Something to be reached: the figure found, in words and as a truth value."""

    text: str
    found: str
    reached: bool


@dataclass(slots=True)
class Section:
    """A part of the table: rows of one input, with what they aim at; `notes` are lines of text."""

    title: str
    rows: list[Row] = field(default_factory=list)
    aims: list[Aim] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def row(self, name: str) -> Row | None:
        """Return the measured row with that name, or None."""
        return next((row for row in self.rows if row.name == name and not row.failure), None)

    def aim(self, text: str, value: float | None, limit: float, unit: str, scale: float = 1) -> None:
        """State that `value` should be at most `limit`; it is shown times `scale`, as so many of `unit`."""
        if value is None:
            self.aims.append(Aim(text, "not measured", reached=False))
        else:
            self.aims.append(Aim(text, f"{value * scale:.4g} {unit}", value <= limit))


class Bench:
    """The environment, the folder, and how often to run."""

    def __init__(self, folder: str, rounds: int) -> None:
        self.folder = folder
        self.rounds = rounds
        self.venv = os.path.join(folder, "venv")
        self.python = os.path.join(self.venv, "bin", "python")
        self.emitter = os.path.join(self.venv, "bin", "emitter")
        self.start_up = 0.0  # seconds of an emission of 4 KB

    def path(self, name: str) -> str:
        """Return a path in the folder."""
        return os.path.join(self.folder, name)

    def install(self) -> None:
        """Install emitter from a copy of the tree, since building it leaves files behind."""
        if os.path.exists(self.emitter):
            return
        source = self.path("source")
        ignored = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__", "tests")
        shutil.copytree(ROOT, source, ignore=ignored)
        subprocess.run([sys.executable, "-m", "venv", self.venv], check=True)
        subprocess.run(
            [self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", source], check=True
        )

    def emit(
        self,
        name: str,
        source: str,
        output: str,
        *options: str,
        replaces: bool = False,
        target: str = "x86_64-linux-gnu",
    ) -> Command:
        """Return the emitter's command for a row; `source` is an argument as the user types it."""
        destination = self.path(output)
        argv = (self.emitter, "--target", target, *options, source, "-o", destination)
        return Command(name=name, argv=argv, outputs=(destination,), replaces=replaces)

    def cp(self, source: str, *, replaces: bool = False) -> Command:
        """Return the baseline: a copy of the same bytes."""
        destination = self.path("cp.out")
        return Command(name="cp", argv=("cp", source, destination), outputs=(destination,), replaces=replaces)


SUFFIXES = ("so", "o", "pack")


def small(bench: Bench) -> Section:
    """4 KB: what starting costs."""
    path = inputs.raw(bench.folder, "small.bin", 4096)
    section = Section("4 KB, raw; pairs with bare Python (python -c pass)")
    bare = Command(name="python -c pass", argv=(bench.python, "-c", "pass"))
    mine = [bench.emit(f"emitter .{suffix}", f"w=raw:{path}", f"small.{suffix}") for suffix in SUFFIXES]
    section.rows = compare([bare, *mine], bare, max(bench.rounds, 15))
    section.rows += compare(
        [*peers.commands((*peers.OBJECTS, *peers.LIBRARIES, *peers.TEXT), path, bench.folder, ".out")],
        bare,
        bench.rounds,
    )
    for suffix in ("so", "o"):
        row = section.row(f"emitter .{suffix}")
        section.aim(f".{suffix}: at most 45 ms more than bare Python", row.extra if row else None, 0.045, "ms", 1000)
    measured = section.row("emitter .so")
    bench.start_up = measured.wall if measured else 0.0
    return section


def resnet18(bench: Bench) -> Section:
    """46.8 MB, with every peer."""
    path, raw = inputs.resnet18(bench.folder)
    section = Section("46.8 MB (ResNet-18's tensors); pairs with cp")
    mine = [bench.emit(f"emitter .{suffix} from safetensors", path, f"r18.{suffix}") for suffix in SUFFIXES]
    mine += [bench.emit(f"emitter .{suffix} from raw", f"w=raw:{raw}", f"r18r.{suffix}") for suffix in SUFFIXES]
    objects = peers.commands(peers.OBJECTS, raw, bench.path("objects"), ".o")
    libraries = peers.commands(peers.LIBRARIES, raw, bench.path("libraries"), ".so")
    section.rows = compare([bench.cp(raw), *mine, *objects, *libraries], bench.cp(raw), bench.rounds)
    replacing = [
        bench.emit(f"emitter .{suffix}, replacing a file", path, f"old.{suffix}", replaces=True)
        for suffix in ("so", "o")
    ]
    section.rows += compare(replacing, bench.cp(raw, replaces=True), bench.rounds)
    for suffix in SUFFIXES:
        row = section.row(f"emitter .{suffix} from safetensors")
        section.aim(f".{suffix} from safetensors: at most cp + 0.08 s", row.extra if row else None, 0.08, "s more")
        section.aim(
            f".{suffix} from safetensors: at most 40 MB of memory", row.peak if row else None, 40 * MB, "MB", 1 / MB
        )
    for suffix, peer, words in (
        ("so", "as .incbin + mold", "ahead of gas + mold"),
        ("o", "as .incbin", "level with gas or better"),
    ):
        row, other = section.row(f"emitter .{suffix} from raw"), section.row(peer)
        # "Level": within the noise of one run, which the spread of cp itself shows to be a tenth.
        limit = 1.0 if suffix == "so" else 1.1
        ratio = row.wall / other.wall if row and other else None
        section.aim(f".{suffix} from raw: {words}", ratio, limit, f"x the time of `{peer}`")
    return section


def gibibyte(bench: Bench) -> Section:
    """1 GiB, with the peers that can."""
    path = inputs.safetensors(bench.folder, "g1.safetensors", GIB)
    raw = inputs.raw(bench.folder, "g1.bin", GIB)
    if not bench.start_up:
        small(bench)  # asked for alone, this section has still to know what starting costs
    inputs.touch_free_memory()
    section = Section("1 GiB; pairs with cp")
    mine = [bench.emit(f"emitter .{suffix} from safetensors", path, f"g1.{suffix}") for suffix in SUFFIXES]
    mine += [bench.emit(f"emitter .{suffix} from raw", f"w=raw:{raw}", f"g1r.{suffix}") for suffix in SUFFIXES]
    section.rows = compare([bench.cp(raw), *mine], bench.cp(raw), bench.rounds)
    others = peers.commands(peers.OBJECTS, raw, bench.path("objects"), ".o")
    others += peers.commands(peers.LIBRARIES, raw, bench.path("libraries"), ".so")
    section.rows += compare(others, bench.cp(raw), min(bench.rounds, 3))
    for origin, limit in (("safetensors", 1.15), ("raw", 1.0)):
        for suffix in SUFFIXES:
            row = section.row(f"emitter .{suffix} from {origin}")
            ratio = row.ratio_beyond(bench.start_up) if row else None
            section.aim(f".{suffix} from {origin}: at most {limit} x cp beyond start-up", ratio, limit, "x cp")
            section.aim(
                f".{suffix} from {origin}: at most 40 MB of memory", row.peak if row else None, 40 * MB, "MB", 1 / MB
            )
    for name in (path, raw):
        os.unlink(name)
    return section


def signed(bench: Bench) -> Section:
    """46.8 MB and 1 GiB as Mach-O libraries, of which every page is hashed for the signature."""
    section = Section("46.8 MB and 1 GiB to .dylib; pairs with cp of the same")
    if not bench.start_up:
        small(bench)
    resnet, resnet_raw = inputs.resnet18(bench.folder)
    big = inputs.safetensors(bench.folder, "g1.safetensors", GIB)
    big_raw = inputs.raw(bench.folder, "g1.bin", GIB)
    inputs.touch_free_memory()
    for title, path, raw in (("46.8 MB", resnet, resnet_raw), ("1 GiB", big, big_raw)):
        mine = [
            bench.emit(f"emitter .dylib, {title} from {origin}, {words}", source, "hashed.dylib", target=target)
            for target, words in (("arm64-apple-macos", "arm64"), ("x86_64-apple-macos", "x86-64"))
            for origin, source in (("safetensors", path), ("raw", f"w=raw:{raw}"))
        ]
        section.rows += compare(mine, bench.cp(raw), bench.rounds)
        for command in mine:
            row = section.row(command.name)
            ratio = row.ratio_beyond(bench.start_up) if row else None
            section.aim(f"{command.name}: at most 3 x cp beyond start-up", ratio, 3.0, "x cp")
            if title == "46.8 MB":
                section.aim(f"{command.name}: at most cp + 0.08 s", row.extra if row else None, 0.08, "s more")
            section.aim(f"{command.name}: at most 40 MB of memory", row.peak if row else None, 40 * MB, "MB", 1 / MB)
    for name in (big, big_raw):
        os.unlink(name)
    return section


def windows(bench: Bench) -> Section:
    """4 KB, 46.8 MB and 1 GiB as DLLs and objects of Windows."""
    section = Section("46.8 MB and 1 GiB to .dll and .obj; pairs with cp of the same")
    path = inputs.raw(bench.folder, "small.bin", 4096)
    target = "x86_64-windows-msvc"
    suffixes = ("dll", "obj")
    bare = Command(name="python -c pass", argv=(bench.python, "-c", "pass"))
    mine = [
        bench.emit(f"emitter .{suffix}, 4 KB", f"w=raw:{path}", f"small.{suffix}", target=target) for suffix in suffixes
    ]
    section.rows = compare(mine, bare, max(bench.rounds, 15))
    for suffix in suffixes:
        row = section.row(f"emitter .{suffix}, 4 KB")
        section.aim(f".{suffix}: at most 45 ms more than bare Python", row.extra if row else None, 0.045, "ms", 1000)
        bench.start_up = bench.start_up or (row.wall if row else 0.0)
    resnet, resnet_raw = inputs.resnet18(bench.folder)
    big = inputs.safetensors(bench.folder, "g1.safetensors", GIB)
    big_raw = inputs.raw(bench.folder, "g1.bin", GIB)
    inputs.touch_free_memory()
    for title, source, raw in (("46.8 MB", resnet, resnet_raw), ("1 GiB", big, big_raw)):
        mine = [
            bench.emit(f"emitter .{suffix}, {title} from {origin}", argument, f"w.{suffix}", target=target)
            for suffix in suffixes
            for origin, argument in (("safetensors", source), ("raw", f"w=raw:{raw}"))
        ]
        # Those of Linux beside them: what differs is the format.
        others = [
            bench.emit(f"emitter .{suffix}, {title} from raw", f"w=raw:{raw}", f"l.{suffix}") for suffix in ("so", "o")
        ]
        section.rows += compare([*mine, *others], bench.cp(raw), bench.rounds)
        for command in mine:
            row = section.row(command.name)
            if title == "1 GiB":
                limit = 1.15 if "safetensors" in command.name else 1.0
                ratio = row.ratio_beyond(bench.start_up) if row else None
                section.aim(f"{command.name}: at most {limit} x cp beyond start-up", ratio, limit, "x cp")
            section.aim(f"{command.name}: at most 40 MB of memory", row.peak if row else None, 40 * MB, "MB", 1 / MB)
    for name in (big, big_raw):
        os.unlink(name)
    return section


def holes(bench: Bench) -> Section:
    """8 GiB, nearly all of it a hole."""
    path = inputs.sparse(bench.folder, 8 * GIB)
    section = Section("8 GiB with a hole, raw; pairs with cp")
    mine = [bench.emit(f"emitter .{suffix}", f"w=raw:{path}", f"sparse.{suffix}") for suffix in SUFFIXES]
    section.rows = compare(mine, bench.cp(path), bench.rounds)
    for suffix in SUFFIXES:
        row = section.row(f"emitter .{suffix}")
        section.aim(f".{suffix}: at most 40 MB of memory", row.peak if row else None, 40 * MB, "MB", 1 / MB)
        command = bench.emit("", f"w=raw:{path}", f"sparse.{suffix}")
        allocated = None
        with contextlib.suppress(RuntimeError):
            run_once(command.argv)
            allocated = os.stat(command.outputs[0]).st_blocks * 512
            os.unlink(command.outputs[0])
        section.aim(f".{suffix}: the hole stays a hole (at most 16 MB on disk)", allocated, 16 * MB, "MB", 1 / MB)
    os.unlink(path)
    return section


def many_blobs(bench: Bench) -> Section:
    """2,000 raw files of 20 KB in one call."""
    files = inputs.blobs(bench.folder, 2000, 20 * 1024)
    arguments = bench.path("blobs.args")
    with open(arguments, "w", encoding="utf-8") as file:
        file.writelines(f"{os.path.basename(path)[:-4]}=raw:{path}\n" for path in files)
    section = Section("2,000 raw files of 20 KB, in one call; pairs with cp of all files")
    os.makedirs(bench.path("copies"), exist_ok=True)
    copies = [os.path.join(bench.path("copies"), os.path.basename(path)) for path in files]
    cp = Command(name="cp", argv=("cp", *files, bench.path("copies")), outputs=copies)
    mine = [
        bench.emit(f"emitter .{suffix}", f"@{arguments}", f"blobs.{suffix}", "--tensor-symbols")
        for suffix in ("o", "a", "so")
    ]
    source = bench.path("blobs.s")
    with open(source, "w", encoding="utf-8") as file:
        file.write('.section .rodata,"a",@progbits\n')
        file.writelines(f'.globl b{n}\n.p2align 6\nb{n}:\n.incbin "{path}"\n' for n, path in enumerate(files))
    others = []
    if shutil.which("as"):
        others.append(
            Command(name="as .incbin", argv=("as", source, "-o", bench.path("as.o")), outputs=(bench.path("as.o"),))
        )
    if shutil.which("ld"):
        argv = ("ld", "-r", "-b", "binary", *files, "-o", bench.path("ld.o"))
        others.append(Command(name="ld -r -b binary", argv=argv, outputs=(bench.path("ld.o"),)))
    section.rows = compare([*mine, *others], cp, bench.rounds)
    for suffix in ("o", "a"):
        row = section.row(f"emitter .{suffix}")
        section.aim(f".{suffix}: at most 1 s", row.wall if row else None, 1.0, "s")
    return section


_OPEN_ALL = """
import sys, time, numpy
try:
    import ml_dtypes
except ImportError:
    pass
import emitter
emitter.load
start = time.perf_counter()
with emitter.load(sys.argv[1]) as library:
    view = library[sys.argv[2]]
    first = view.reshape(-1)[0]
    elapsed = time.perf_counter() - start
    del view
print(elapsed)
"""


def many_tensors(bench: Bench) -> Section:
    """100,000 tensors of 64 bytes: emission, opening in Python, lookup in C."""
    path = inputs.many_tensors(bench.folder, 100_000)
    section = Section("100,000 tensors of 64 bytes; pairs with cp")
    section.rows = compare(
        [bench.emit(f"emitter .{suffix}", path, f"many.{suffix}") for suffix in ("so", "o")],
        bench.cp(path),
        bench.rounds,
    )
    row = section.row("emitter .so")
    section.aim(".so: at most 3 s", row.wall if row else None, 3.0, "s")
    section.aim(".so: at most 400 MB of memory", row.peak if row else None, 400 * MB, "MB", 1 / MB)
    library = bench.path("libmany.so")
    run_once(bench.emit("", path, "libmany.so").argv)
    seconds = best_of([bench.python, "-I", "-c", _OPEN_ALL, library, "block.9999.weight.9"], bench.rounds)
    section.aim("open in Python and take one view: under 0.2 s beyond imports", seconds, 0.2, "ms", 1000)
    program = _lookup_program(bench)
    lookup = best_of([program, library, "lookup"], bench.rounds) if program else None
    section.aim("lookup by name in C: under 1 microsecond", lookup, 1e-6, "ns", 1e9)
    return section


def opening(bench: Bench) -> Section:
    """Open a library and take one view."""
    path = bench.path("resnet18.safetensors")
    if not os.path.exists(path):
        path, _ = inputs.resnet18(bench.folder)
    library = bench.path("libresnet18.so")
    run_once(bench.emit("", path, "libresnet18.so").argv)
    section = Section("Open the 46.8 MB library and take one view")
    program = _lookup_program(bench)
    seconds = best_of([program, library, "open"], max(bench.rounds, 15)) if program else None
    section.aim("in C (dlopen, find, view): under 0.3 ms", seconds, 0.3e-3, "ms", 1000)
    seconds = best_of([bench.python, "-I", "-c", _OPEN_ALL, library, "conv1.weight"], max(bench.rounds, 15))
    section.aim("in Python (emitter.load): under 2 ms beyond imports", seconds, 2e-3, "ms", 1000)
    return section


def _lookup_program(bench: Bench) -> str | None:
    """Return the C program that measures inside a process, compiled; None without a compiler."""
    if shutil.which("gcc") is None:
        return None
    program = bench.path("lookup")
    if not os.path.exists(program):
        include = subprocess.run(
            [bench.emitter, "--include-dir"], check=True, capture_output=True, text=True
        ).stdout.strip()
        source = os.path.join(ROOT, "benchmarks", "lookup.c")
        subprocess.run(["gcc", "-O2", f"-I{include}", source, "-o", program, "-ldl"], check=True)
    return program


SECTIONS: tuple[Callable[[Bench], Section], ...] = (
    small,
    resnet18,
    gibibyte,
    signed,
    windows,
    holes,
    many_blobs,
    many_tensors,
    opening,
)
QUICK: tuple[Callable[[Bench], Section], ...] = (small, resnet18, many_tensors, opening)
