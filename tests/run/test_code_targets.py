"""Code for every target: an archive, and a library where there is one, which `emitter verify` finds nothing in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from emitter import emit, load, targets
from emitter.link.find import linkers
from emitter.verify import assert_ok
from tests.code_packages import package

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("llvmlite", reason="llvmlite is not installed")

IR = """\
@net_t_w = external constant [12 x float]
@net_descriptor = external hidden global { i64, i64 }, align 16

define float @by_symbol(i32 %i) {
  %p = getelementptr float, ptr @net_t_w, i32 %i
  %v = load float, ptr %p
  %e = fmul float %v, 3.0
  ret float %e
}

define i64 @by_descriptor() {
  %offset = load volatile i64, ptr @net_descriptor
  ret i64 %offset
}
"""


@pytest.mark.usefixtures("code_cache")
@pytest.mark.parametrize("name", sorted(targets.names()))
def test_code_for_every_target(name: str, tmp_path: Path) -> None:
    target = targets.load(name)
    made = package(IR)
    header = tmp_path / "net.h"
    outputs = [tmp_path / f"net{target.archive_suffix}"]
    found = list(linkers(target))
    if target.image_suffix is not None and found:
        outputs.append(tmp_path / f"net{target.image_suffix}")
    for output in outputs:
        emit(made, output, target=name, name="net", header=header)
        with load(output) as library:
            assert library["w"].astype(np.float32).tolist() == list(range(12))
    assert "net_API float by_symbol(int32_t);" in header.read_text()
    assert_ok(*outputs, target=name)
    if target.image_suffix is not None and not found:
        pytest.skip("no linker is installed")
