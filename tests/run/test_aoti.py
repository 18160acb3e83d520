"""A program that finds its constants as AOTInductor's generated code does, linked with our object."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import emitter
from tests.c_tools import toolchain_of
from tests.elf_objects import run

if TYPE_CHECKING:
    from pathlib import Path

# The generated code knows the size and, by adding sizes rounded up to 64, the place of each constant.
CONSUMER = r"""
#include <stdint.h>
#include <stdio.h>
#include <string.h>

extern const uint8_t _binary_constants_bin_start[];
extern const uint8_t _binary_constants_bin_end[];

static const size_t sizes[] = {12, 8, 65, 4};

int main(void) {
    const uint8_t *place[4], *at = _binary_constants_bin_start;
    float weights[3], last;
    int64_t count;
    for (int i = 0; i < 4; i++) {
        place[i] = at;
        at += (sizes[i] + 63) / 64 * 64;
    }
    if (at != _binary_constants_bin_end) return 1;
    if ((uintptr_t)_binary_constants_bin_start % 64) return 2;
    memcpy(weights, place[0], sizeof weights);
    memcpy(&count, place[1], sizeof count);
    memcpy(&last, place[3], sizeof last);
    printf("%g %g %g %lld %d %g\n", weights[0], weights[1], weights[2], (long long)count, place[2][64], last);
    return 0;
}
"""


@pytest.mark.parametrize("target_name", ["x86_64-linux-gnu", "aarch64-linux-gnu", "s390x-linux-gnu"])
@pytest.mark.parametrize("flags", [["-static"], ["-fPIE", "-pie"]], ids=["static", "pie"])
def test_generated_code_finds_its_constants(tmp_path: Path, target_name: str, flags: list[str]) -> None:
    toolchain = toolchain_of(target_name)
    package = emitter.Package()
    package.add_tensor("weights", np.array([1.5, -2, 3], np.float32))
    package.add_tensor("count", np.array(1 << 40, np.int64))
    package.add_raw("bytes", bytes(range(65)))
    package.add_tensor("last", np.array(0.25, np.float32))
    emitter.emit(package, tmp_path / "constants.o", target=target_name, symbols="aoti")
    (tmp_path / "main.c").write_text(CONSUMER)
    # x86-64 data of the large model is out of reach for small code, unless it is told: AOTInductor's compiles so.
    model = ["-mcmodel=medium"] if target_name.startswith("x86_64") else []
    done = run(toolchain.c, *model, *flags, "main.c", "constants.o", "-o", "main", cwd=tmp_path)
    assert done.stderr == ""
    assert run(*toolchain.runner(), str(tmp_path / "main")).stdout == "1.5 -2 3 1099511627776 64 0.25\n"
