"""Plans .npy files.

Source: numpy/lib/_format_impl.py: magic, version 1.0, u16 little-endian length of the header, the header (a Python
dictionary as text, padded with spaces and a line feed to 64 bytes), the elements.
"""

from __future__ import annotations

from emitter.dtypes import BOOL, COMPLEX, FLOAT, INT, UINT, row_of
from emitter.layout import Copy, FilePlan, Piece, align_up
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from emitter.package import Tensor

__all__ = ["plan_npy"]

_MAGIC = b"\x93NUMPY\x01\x00"
_KINDS = {INT: "i", UINT: "u", FLOAT: "f", COMPLEX: "c", BOOL: "b"}
_MAX_NDIM = 32  # of numpy 1; numpy 2 has 64


def plan_npy(tensor: Tensor) -> FilePlan | None:
    """Return the plan of a .npy file, little-endian and row-major; None for what numpy itself cannot express."""
    row = row_of(tensor.dtype)
    if row is None or not row.in_numpy or tensor.encoding or len(tensor.shape) > _MAX_NDIM:
        return None
    size = tensor.dtype.bits // 8
    descr = f"{'|' if size == 1 else '<'}{_KINDS[tensor.dtype.code]}{size}"
    shape = f"({', '.join(map(str, tensor.shape))}{',' if len(tensor.shape) == 1 else ''})"
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    start = align_up(len(_MAGIC) + 2 + len(text) + 1, 64)
    text = text.ljust(start - len(_MAGIC) - 2 - 1) + b"\n"
    unit = tensor.swap_unit("little")
    copy = Copy(start, tensor.nbytes, tensor.extent, unit, tensor.shape, tensor.dtype.element_bits)
    return FilePlan(start + tensor.nbytes, [Piece(0, _MAGIC + len(text).to_bytes(2, "little") + text)], [copy])
