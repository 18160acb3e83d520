"""The smallest package with code that uses its tensor, for tests of code as an input."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emitter import Package

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["IR", "package", "package_of_four"]

# `net` is the name of the output in these tests, `w` the tensor.
IR = """\
@net_t_w = external constant [12 x float]
define float @at(i64 %i) {
  %p = getelementptr float, ptr @net_t_w, i64 %i
  %v = load float, ptr %p
  ret float %v
}
"""


def package(*code: str | bytes | Path) -> Package:
    """Return a package of 12 floats, called w, and code."""
    made = Package()
    made.add_tensor("w", np.arange(12, dtype=np.float32))
    for one in code:
        made.add_code(one)
    return made


def package_of_four(*code: str | bytes | Path) -> Package:
    """Return a package of the floats 2, 3, 5, 7, called w, and code."""
    made = Package()
    made.add_tensor("w", np.array([2, 3, 5, 7], np.float32))
    for one in code:
        made.add_code(one)
    return made
