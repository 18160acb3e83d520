"""TensorRT plans: serialised engines. Their format is NVIDIA's own; only the magic is known."""

from __future__ import annotations

from emitter.device.image import TENSORRT, Image, Program, broken
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from emitter.inspect.view import View

__all__ = ["read"]

_LEAST = 32  # bytes; magic, version and size come before anything else


def read(view: View) -> Program:
    """Return the plan; raise FormatError for a file that ends before an engine can begin.

    A plan is for one GPU and one version of TensorRT. The bytes do not say which in a documented way: the package does,
    with `requires`.
    """
    if view.size < _LEAST:
        raise broken("the plan is truncated", view.where, view.size, f"at least {_LEAST} bytes", view.size)
    if not any(any(chunk) for chunk in view.chunks(4, min(view.size - 4, 4096), "the plan")):
        raise broken("the plan is empty", view.where, 4, "an engine", "zeros")
    return Program("TensorRT plan", TENSORRT, view.size, 256, (Image("", {}),))
