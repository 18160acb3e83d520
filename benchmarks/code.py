"""Code beside constants: a kernel as LLVM IR and 46.8 MB or 1 GiB of weights into one library, with a warm cache."""

from __future__ import annotations

import os

from benchmarks import inputs
from benchmarks.measure import Command, compare
from benchmarks.peers import Peer, commands
from benchmarks.sections import MB, Bench, Section

__all__ = ["code"]

_GIB = 1 << 30

# A dot product with all of the weights; `{weights}` is how it comes to them.
_KERNEL = """\
{declaration}

define float @dot(ptr %x, i64 %n) {{
entry:
{weights}
  br label %loop

loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %sum = phi float [ 0.0, %entry ], [ %more, %loop ]
  %a = getelementptr float, ptr %x, i64 %i
  %b = getelementptr float, ptr %w, i64 %i
  %p = load float, ptr %a
  %q = load float, ptr %b
  %product = fmul float %p, %q
  %more = fadd float %sum, %product
  %next = add i64 %i, 1
  %done = icmp eq i64 %next, %n
  br i1 %done, label %end, label %loop

end:
  ret float %more
}}
"""
_WAYS = {
    "symbols": ("@net_t_w = external constant [{size} x i8]", "  %w = getelementptr i8, ptr @net_t_w, i64 0"),
    "descriptor": (
        "@net_descriptor = external hidden global {{ i64, i64 }}, align 16",
        "  %d = load volatile i64, ptr @net_descriptor\n  %w = getelementptr i8, ptr @net_descriptor, i64 %d",
    ),
}

_C = """\
float dot(const float *x, long n)
{{ float s = 0; for (long i = 0; i < n; i++) s += x[i] * model[i]; return s; }}
"""
_PEER = Peer(
    "clang + ld.lld",
    ("clang", "ld.lld"),
    "clang -O2 -fPIC -c {source} -o {temporary} && ld.lld -shared {temporary} -o {output}",
    'extern const float model[];\n__asm__(".section .rodata\\n.globl model\\n.hidden model\\n.p2align 6\\n'
    'model: .incbin \\"{input}\\"\\n.text\\n");\n' + _C,
    ".c",
)


def code(bench: Bench) -> Section:
    """Both ways to reach the weights, at 46.8 MB and at 1 GiB, beside clang and ld.lld."""
    section = Section(
        "A kernel with 46.8 MB and 1 GiB of weights to .so, code compiled before; pairs with cp of the same"
    )
    os.environ["EMITTER_CACHE_DIR"] = bench.path("code-cache")
    os.makedirs(bench.path("code-peers"), exist_ok=True)
    _, small = inputs.resnet18(bench.folder)
    big = inputs.raw(bench.folder, "g1.bin", _GIB)
    inputs.touch_free_memory()
    for title, path in (("46.8 MB", small), ("1 GiB", big)):
        mine = [_command(bench, f"emitter, {title}, {way}", way, path) for way in _WAYS]
        others = commands((_PEER,), path, bench.path("code-peers"), ".so")
        others = [Command(name=f"{one.name}, {title}", argv=one.argv, outputs=one.outputs) for one in others]
        section.rows += compare([*mine, *others], bench.cp(path), bench.rounds)
    for way in _WAYS:
        row = section.row(f"emitter, 46.8 MB, {way}")
        section.aim(f"46.8 MB, {way}: at most 0.6 s", row.wall if row else None, 0.6, "s")
    for way, limit in (("symbols", 3.0), ("descriptor", 1.3)):
        row = section.row(f"emitter, 1 GiB, {way}")
        section.aim(f"1 GiB, {way}: at most {limit} x cp", row.ratio if row else None, limit, "x cp")
    row = section.row("emitter, 1 GiB, descriptor")
    section.aim("1 GiB, descriptor: at most 250 MB of memory", row.peak if row else None, 250 * MB, "MB", 1 / MB)
    os.unlink(big)
    return section


def _command(bench: Bench, name: str, way: str, path: str) -> Command:
    declaration, weights = _WAYS[way]
    kernel = bench.path(f"{way}-{os.path.basename(path)}.ll")
    with open(kernel, "w", encoding="utf-8") as file:
        size = os.path.getsize(path)
        file.write(_KERNEL.format(declaration=declaration.format(size=size), weights=weights))
    return bench.emit(name, f"w=raw:{path}", "libnet.so", "--name", "net", kernel)
