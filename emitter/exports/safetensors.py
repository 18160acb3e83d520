"""Plans safetensors files.

Source: the format of safetensors 0.8: u64 little-endian length of the header, the header (a JSON object, padded with
spaces to 8 bytes), the bytes of the tensors, little-endian and row-major, without holes.
"""

from __future__ import annotations

from emitter.dtypes import row_of
from emitter.errors import LayoutError, shown
from emitter.layout import Copy, FilePlan, Piece, align_up
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from emitter.package import Package, Tensor

__all__ = ["plan_safetensors"]

_METADATA = "__metadata__"
_MODEL_VERSION = "model_version"


def plan_safetensors(package: Package) -> FilePlan:
    """Return the plan of a safetensors file that holds the package, tensors in its order.

    The package's metadata and its model version (under `model_version`) go into `__metadata__`. The format has no
    place for the alignment and the metadata of a tensor. Raises LayoutError for an element type, an encoding or a name
    that it does not have.
    """
    import json

    header: dict[str, object] = {}
    metadata = dict(package.metadata)
    if package.model_version:
        metadata.setdefault(_MODEL_VERSION, package.model_version)
    if metadata:
        header[_METADATA] = metadata
    copies = []
    position = 0
    for tensor in package.tensors:
        if tensor.name == _METADATA:
            raise _refusal(tensor, "the format gives the name a meaning of its own")
        header[tensor.name] = {
            "dtype": _dtype(tensor),
            "shape": list(tensor.shape),
            "data_offsets": [position, position + tensor.nbytes],
        }
        unit = tensor.swap_unit("little")
        copies.append(Copy(position, tensor.nbytes, tensor.extent, unit, tensor.shape, tensor.dtype.element_bits))
        position += tensor.nbytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text = text.ljust(align_up(len(text), 8))
    start = 8 + len(text)
    pieces = [Piece(0, len(text).to_bytes(8, "little") + text)]
    return FilePlan(start + position, pieces, [copy.moved(start) for copy in copies])


def _dtype(tensor: Tensor) -> str:
    row = row_of(tensor.dtype)
    if tensor.encoding:
        raise _refusal(tensor, f"safetensors has no encodings, such as {tensor.encoding}")
    if row is None or row.safetensors is None:
        raise _refusal(tensor, f"safetensors has no element type {tensor.dtype}")
    return row.safetensors


def _refusal(tensor: Tensor, what: str) -> LayoutError:
    return LayoutError(
        what, where=f"tensor {shown(tensor.name)}", hint="write a .pack or a directory, or choose tensors with --only"
    )
