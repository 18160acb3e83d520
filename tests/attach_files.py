"""Libraries for tests of attached payloads: C that reads one, linked by each linker with what stands in its place."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from emitter import Package, targets
from emitter.attach.stub import descriptor_header, stub_model
from emitter.writers import plan_linkable
from tests.support import write_plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cross.table import Toolchain
    from emitter.model import TensorSymbol

__all__ = [
    "KERNELS",
    "LINKERS",
    "USE",
    "ZIG_TRIPLES",
    "compile_kernels",
    "hash_of",
    "link",
    "linker",
    "package_of",
    "write_stub",
]

# The library: every way to the payload that has to work, and nothing of a C library.
KERNELS = r"""
#include "model.h"
#define EXPORT __attribute__((visibility("default")))
extern const unsigned char model[];
extern const uintptr_t model_size;
static const unsigned char *const volatile pointers[2] = {model, model};
static int state = 1;
EXPORT int *writable(void) { return &state; }

static uint64_t hash(const unsigned char *bytes, uint64_t size)
{
    uint64_t value = 0, i;
    for (i = 0; i < size; i++)
        value = value * 31 + bytes[i];
    return value;
}
EXPORT uint64_t by_descriptor(void) { return hash((const unsigned char *)model_base(), model_bytes()); }
EXPORT uint64_t by_symbol(void) { return hash(model, model_size); }
EXPORT uint64_t by_pointer(void) { return hash(pointers[1], model_size); }
EXPORT unsigned at(uint64_t offset) { return ((const unsigned char *)model_base())[offset]; }
EXPORT uint64_t bytes(void) { return model_bytes(); }
"""

# The program: loads a library, and prints what each way gives; with offsets, the bytes there.
USE = r"""
#include <dlfcn.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    static const char *const ways[] = {"by_descriptor", "by_symbol", "by_pointer"};
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    const unsigned char *model;
    const uintptr_t *size;
    uint64_t value = 0, i;
    int way;
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    if (argc > 2) {
        unsigned (*at)(uint64_t) = (unsigned (*)(uint64_t))(uintptr_t)dlsym(library, "at");
        uint64_t (*bytes)(void) = (uint64_t (*)(void))(uintptr_t)dlsym(library, "bytes");
        printf("%" PRIu64, bytes());
        for (way = 2; way < argc; way++)
            printf(" %02x", at(strtoull(argv[way], NULL, 0)));
        printf("\n");
        return 0;
    }
    for (way = 0; way < 3; way++) {
        uint64_t (*call)(void) = (uint64_t (*)(void))(uintptr_t)dlsym(library, ways[way]);
        printf("%016" PRIx64 " ", call());
    }
    model = (const unsigned char *)dlsym(library, "model");
    size = (const uintptr_t *)dlsym(library, "model_size");
    for (i = 0; i < *size; i++)
        value = value * 31 + model[i];
    printf("%016" PRIx64 " %d\n", value, dlsym(library, "emitter_pack") == model);
    return 0;
}
"""

LINKERS = ("bfd", "lld", "mold", "zig")
ZIG_TRIPLES = {
    "x86_64-linux-gnu": "x86_64-linux-gnu",
    "aarch64-linux-gnu": "aarch64-linux-gnu",
    "riscv64-linux-gnu": "riscv64-linux-gnu",
}
# Linkers that do not know a CPU.
_UNKNOWN = {("lld", "s390x-linux-gnu"): "lld 14 does not link for s390x"}


def linker(name: str, toolchain: Toolchain) -> list[str]:
    """Return the command of a linker for a target; skip where it is not installed, or does not know the CPU."""
    if name == "zig":
        pytest.importorskip("ziglang", reason="ziglang is not installed")
        if toolchain.name not in ZIG_TRIPLES:
            pytest.skip(f"zig is tried on {', '.join(ZIG_TRIPLES)}")
        return [sys.executable, "-m", "ziglang", "cc", "-target", ZIG_TRIPLES[toolchain.name], "-nostdlib"]
    if (name, toolchain.name) in _UNKNOWN:
        pytest.skip(_UNKNOWN[name, toolchain.name])
    command = {"bfd": toolchain.tool("ld"), "lld": "ld.lld", "mold": "mold"}[name]
    if shutil.which(command) is None:
        pytest.skip(f"{command} is not installed")
    return [command]


def package_of(tensors: Mapping[str, bytes]) -> Package:
    """Return a package of raw tensors."""
    package = Package()
    for name, data in tensors.items():
        package.add_raw(name, data)
    return package


def hash_of(data: bytes) -> int:
    """Return what the library's `hash` makes of the bytes."""
    value = 0
    for byte in data:
        value = (value * 31 + byte) & 0xFFFFFFFFFFFFFFFF
    return value


def write_stub(path: Path, target: str, name: str = "model", symbols: Sequence[TensorSymbol] = ()) -> Path:
    """Write the object that stands for the payload, and the header beside it."""
    found = targets.load(target)
    write_plan(plan_linkable(found, "object", str(path), stub_model(found, name, symbols)), None, path)
    (path.parent / f"{name}.h").write_text(descriptor_header(name))
    return path


def compile_kernels(folder: Path, compiler: Sequence[str], source: str = KERNELS, *flags: str) -> Path:
    """Compile the library's code; its header must be in the folder."""
    (folder / "kernels.c").write_text(source)
    output = folder / "kernels.o"
    command = [*compiler, "-O2", "-fPIC", "-Wall", "-Wextra", "-Werror", *flags, "-c", "kernels.c", "-o", str(output)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return output


def link(command: Sequence[str], output: Path, *inputs: str | Path, env: Mapping[str, str] | None = None) -> Path:
    """Link a shared library from objects, and options among them."""
    prefix = "-Wl," if "-nostdlib" in command else ""
    flags = ["-shared", f"{prefix}--build-id=sha1", f"{prefix}--hash-style=both"]
    argv = [*command, *flags, "-o", str(output), *map(str, inputs)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    return output
