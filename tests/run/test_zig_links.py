"""Targets that Debian has no toolchain for: zig links them, and qemu runs what needs no loader.

The programs are without a C library, so that zig has nothing to build first.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from elftools.elf.elffile import ELFFile

from tests.c_tools import need
from tests.run.device import INCLUDE, emit

if TYPE_CHECKING:
    from pathlib import Path

    from tests.run.device import Model

# The target, zig's name for it, the CPU that its emulator has, and the emulator.
CASES = (
    ("aarch64-linux-musl", "aarch64-linux-musl", "generic", "qemu-aarch64"),
    ("loongarch64-linux-gnu", "loongarch64-linux-gnu", "generic_la64+d", "qemu-loongarch64"),
)

PROGRAM = r"""
#include "first.h"
#include "emitter.h"

static void leave(long status)
{
#if defined(__aarch64__)
    register long number __asm__("x8") = 93, first __asm__("x0") = status;
    __asm__ volatile("svc 0" : : "r"(number), "r"(first));
#elif defined(__loongarch64)
    register long number __asm__("a7") = 93, first __asm__("a0") = status;
    __asm__ volatile("syscall 0" : : "r"(number), "r"(first));
#endif
    __builtin_unreachable();
}

void _start(void)
{
    emitter_reader reader;
    emitter_tensor tensor;
    uint32_t i;
    if (emitter_open_expect(&reader, first_data(), first_data_size(), first_SCHEMA) || emitter_validate(&reader))
        leave(100);
    for (i = 0; i < emitter_count(&reader); i++)
        if (emitter_at(&reader, i, &tensor) || emitter_check_tensor(&tensor))
            leave(101);
    leave((long)emitter_count(&reader));
}
"""


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    pytest.importorskip("ziglang", reason="ziglang is not installed")
    folder = str(tmp_path_factory.mktemp("zig"))
    return {"ZIG_GLOBAL_CACHE_DIR": folder, "ZIG_LOCAL_CACHE_DIR": folder}


@pytest.mark.parametrize("form", ["first.o", "libfirst.a", "libfirst.so"])
@pytest.mark.parametrize(("target", "triple", "cpu", "emulator"), CASES, ids=[case[0] for case in CASES])
def test_zig_links_all_three(
    target: str, triple: str, cpu: str, emulator: str, form: str, model: Model, cache: dict[str, str], tmp_path: Path
) -> None:
    """The program checks every CRC-32C, and its status is the number of tensors."""
    emit("--target", target, model.path, "-o", tmp_path / form, "--name", "first", "--header", tmp_path / "first.h")
    (tmp_path / "main.c").write_text(PROGRAM)
    flags = ["-nostdlib", "-ffreestanding", "-fno-sanitize=all", "-O1", f"-mcpu={cpu}", f"-I{INCLUDE}", "-I."]
    flags += ["-fPIC"] if form.endswith(".so") else ["-static"]
    argv = [sys.executable, "-m", "ziglang", "cc", "-target", triple, *flags, "main.c", form, "-o", "main"]
    done = subprocess.run(argv, env=cache, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if form.endswith(".so"):  # to run it would take the target's loader
        with (tmp_path / "main").open("rb") as file:
            dynamic: Any = ELFFile(file).get_section_by_name(".dynamic")
            assert [tag.needed for tag in dynamic.iter_tags() if tag.entry.d_tag == "DT_NEEDED"] == ["libfirst.so"]
        return
    need(emulator)
    ran = subprocess.run([emulator, tmp_path / "main"], capture_output=True, text=True, check=False, timeout=60)
    assert (ran.returncode, ran.stderr) == (len(model.tensors), "")
