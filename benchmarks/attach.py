"""The line for attached payloads: 1 GiB joins a library that GNU ld linked from code, beside a copy of the bytes."""

from __future__ import annotations

import os
import shutil
import subprocess

from benchmarks import inputs
from benchmarks.measure import Command, compare
from benchmarks.sections import GIB, MB, Bench, Section

__all__ = ["attached"]

_KERNELS = '#include "model.h"\nunsigned first(void) { return *(const unsigned char *)model_base(); }\n'

# What stands in place of the payload, and the header through which code finds it.
_PREPARE = """
import sys
from emitter import targets
from emitter.attach.stub import descriptor_header, stub_model
from emitter.output import DATA_MODE, open_output
from emitter.transfer import write_plan
from emitter.writers import plan_linkable
target = targets.load("x86_64-linux-gnu")
plan = plan_linkable(target, "object", "stub.o", stub_model(target, "model"))
with open_output(sys.argv[1], plan.size, DATA_MODE) as out:
    write_plan(out.fd, plan, None)
    out.commit()
open(sys.argv[2], "w").write(descriptor_header("model"))
"""

_ATTACH = """
import sys
from emitter import Package, targets
from emitter.attach.file import attach
from emitter.pack.plan import plan_pack
target = targets.load("x86_64-linux-gnu")
package = Package()
if sys.argv[2].endswith(".safetensors"):
    package.add_input(sys.argv[2])
else:
    from pathlib import Path
    package.add_raw("w", Path(sys.argv[2]))
attach(sys.argv[1], sys.argv[3], target, plan_pack(package, target.byte_order), name="model")
"""


def attached(bench: Bench) -> Section:
    """1 GiB attached to a linked library."""
    section = Section("1 GiB attached to a linked library; pairs with cp")
    if shutil.which("gcc") is None:
        return section
    stub, header, library = (bench.path(name) for name in ("stub.o", "model.h", "kernels.so"))
    subprocess.run([bench.python, "-I", "-c", _PREPARE, stub, header], check=True)
    with open(bench.path("kernels.c"), "w", encoding="utf-8") as file:
        file.write(_KERNELS)
    subprocess.run(["gcc", "-O2", "-fPIC", "-shared", file.name, stub, "-o", library], check=True)
    raw = inputs.raw(bench.folder, "g1.bin", GIB)
    path = inputs.safetensors(bench.folder, "g1.safetensors", GIB)
    inputs.touch_free_memory()
    output = bench.path("attached.so")
    mine = [
        Command(
            name=f"attach {origin}",
            argv=(bench.python, "-I", "-c", _ATTACH, library, source, output),
            outputs=(output,),
        )
        for origin, source in (("safetensors", path), ("raw", raw))
    ]
    section.rows = compare([bench.cp(raw), *mine], bench.cp(raw), bench.rounds)
    for origin in ("safetensors", "raw"):
        row = section.row(f"attach {origin}")
        section.aim(f"{origin}: at most 1.3 x cp", row.ratio if row else None, 1.3, "x cp")
        section.aim(f"{origin}: at most 250 MB of memory", row.peak if row else None, 250 * MB, "MB", 1 / MB)
    for name in (path, raw):
        os.unlink(name)
    return section
