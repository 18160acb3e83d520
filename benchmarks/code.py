"""Code beside constants: a small network as LLVM IR, and 46.8 MB or 1 GiB of weights, into one library."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from benchmarks import inputs
from benchmarks.measure import Command, compare, run_once
from benchmarks.sections import GIB, MB, ROOT, Bench, Section

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["code"]

_SOURCE = os.path.join(ROOT, "benchmarks", "network.c")
# How many floats the network's own tensors have. No two sizes are equal: inputs.raw would make equal bytes.
_COUNTS = {"conv1.weight": 36, "conv1.bias": 4, "conv2.weight": 216, "conv2.bias": 6, "dense.weight": 480,
           "dense.bias": 5}  # fmt: skip
_WAYS = ("symbols", "descriptor")


def code(bench: Bench) -> Section:
    """Both ways to reach the weights, at 46.8 MB and at 1 GiB, beside clang with ld.lld and TVM's export."""
    section = Section("A small network with 46.8 MB and 1 GiB of weights to .so; pairs with cp of the weights")
    if shutil.which("clang") is None:
        section.notes.append("not measured: clang is not installed, which makes the IR of the network")
    else:
        _measure(bench, section)
    section.notes.append(_tvm(bench.rounds))
    return section


def _measure(bench: Bench, section: Section) -> None:
    os.environ["EMITTER_CACHE_DIR"] = bench.path("code-cache")
    os.makedirs(bench.path("code"), exist_ok=True)
    own = {name: inputs.raw(bench.path("code"), f"{name}.bin", 4 * count) for name, count in _COUNTS.items()}
    _, small = inputs.resnet18(bench.folder)
    big = inputs.raw(bench.folder, "g1.bin", GIB)
    inputs.touch_free_memory()
    for title, path in (("46.8 MB", small), ("1 GiB", big)):
        tensors = {**own, "payload": path}
        commands = []
        for way in _WAYS:
            ir = _compile_ir(bench, tensors, way)
            commands.append(_emit(bench, f"emitter, {title}, {way}", tensors, ir))
            if path == small:
                commands.append(_emit(bench, f"emitter, {title}, {way}, no cache", tensors, ir, "--no-cache"))
        if shutil.which("ld.lld"):
            commands.append(_clang_and_lld(bench, f"clang + ld.lld, {title}", tensors))
        section.rows += compare(commands, bench.cp(path), bench.rounds)
    for way in _WAYS:
        row = section.row(f"emitter, 46.8 MB, {way}")
        section.aim(f"46.8 MB, {way}: at most 0.6 s", row.wall if row else None, 0.6, "s")
    for way, limit in (("symbols", 3.0), ("descriptor", 1.3)):
        row = section.row(f"emitter, 1 GiB, {way}")
        section.aim(f"1 GiB, {way}: at most {limit} x cp", row.ratio if row else None, limit, "x cp")
    row = section.row("emitter, 1 GiB, descriptor")
    section.aim("1 GiB, descriptor: at most 250 MB of memory", row.peak if row else None, 250 * MB, "MB", 1 / MB)
    os.unlink(big)


def _emit(bench: Bench, name: str, tensors: Mapping[str, str], ir: str, *options: str) -> Command:
    return bench.emit(name, ir, "libnet.so", "--name", "net", "-l", "m", *options, *_sources(tensors))


def _sources(tensors: Mapping[str, str]) -> list[str]:
    return [f"{tensor}=raw:{path}" for tensor, path in tensors.items()]


def _compile_ir(bench: Bench, tensors: Mapping[str, str], way: str) -> str:
    """Compile the network to bitcode, which names its tensors as symbols or knows where they are in the pack."""
    output = bench.path(f"code/{way}.bc")
    flags = ["-O1", "-emit-llvm"]
    if way == "descriptor":
        flags += ["-DWAY_B", f"-I{bench.path('code')}", *_offsets(bench, tensors)]
    subprocess.run(_clang(tensors, output, *flags), check=True)
    return output


def _clang(tensors: Mapping[str, str], output: str, *flags: str) -> list[str]:
    count = os.path.getsize(tensors["payload"]) // 4
    common = ("--target=x86_64-linux-gnu", "-ffreestanding", "-fPIC", f"-DCOUNT={count}")
    return ["clang", *common, *flags, "-c", _SOURCE, "-o", output]


def _offsets(bench: Bench, tensors: Mapping[str, str]) -> Sequence[str]:
    """Write the header of the descriptor; return macros that say at which offset of the pack the tensors are."""
    program = "from emitter.attach.stub import descriptor_header; print(descriptor_header('net'))"
    with open(bench.path("code/net_descriptor.h"), "w", encoding="utf-8") as header:
        subprocess.run([bench.python, "-I", "-c", program], check=True, stdout=header)
    pack, described = bench.path("code/offsets.pack"), bench.path("code/offsets.json")
    run_once([bench.emitter, "--target", "x86_64-linux-gnu", *_sources(tensors), "-o", pack, "--map", described])
    os.unlink(pack)
    with open(described, encoding="utf-8") as file:
        known = json.load(file)["tensors"]
    return [f"-DAT_{one['name'].upper().replace('.', '_')}={one['pack_offset']}" for one in known]


def _clang_and_lld(bench: Bench, name: str, tensors: Mapping[str, str]) -> Command:
    """Return the command that makes the same of the source, with the same tensors by .incbin."""
    weights, temporary, output = (bench.path(f"code/{one}") for one in ("weights.h", "network.o", "peer.so"))
    with open(weights, "w", encoding="utf-8") as file:
        file.write('__asm__(".section .rodata");\n')
        for tensor, path in tensors.items():
            symbol = f"net_t_{tensor.replace('.', '_')}"
            file.write(
                f'__asm__(".globl {symbol}\\n.hidden {symbol}\\n.p2align 6\\n{symbol}: .incbin \\"{path}\\"");\n'
            )
        file.write('__asm__(".text");\n')
    found = subprocess.run(["clang", "-print-file-name=libm.so.6"], check=True, capture_output=True, text=True)
    compiler = _clang(tensors, temporary, "-O2", "-include", weights)
    linker = ["ld.lld", "-shared", temporary, found.stdout.strip(), "-o", output]
    shell = f"{shlex.join(compiler)} && {shlex.join(linker)}"
    return Command(name=name, argv=("sh", "-c", shell), outputs=(temporary, output))


def _tvm(rounds: int) -> str:
    """Return a line of what tvm_export.py finds: within one process, since importing TVM takes longer than all else."""
    program = os.path.join(ROOT, "benchmarks", "tvm_export.py")
    argv = [sys.executable, program, "--json", "--rounds", str(rounds)]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    if done.returncode:
        *_, last = ["", *done.stderr.strip().splitlines()]
        return f"TVM's export_library: not measured, this Python needs object-emitter[tvm]: {last}"
    seconds = {line["name"]: line["export_s"] for line in json.loads(done.stdout)["lines"]}
    return (
        f"TVM's export_library of 46.8 MB and a function that does nothing: {seconds['TVM, LLVM']:.3f} s, packed by "
        f"emitter {seconds['emitter, safetensors']:.3f} s; one call, without starting, importing and compiling"
    )
