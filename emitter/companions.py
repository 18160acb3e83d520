"""The files that an output may have beside it: the map and the depfile."""

from __future__ import annotations

from emitter.dtypes import describe
from emitter.errors import OutputError, shown
from emitter.modules import in_order, payload_tensors
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emitter.layout import FilePlan
    from emitter.model import TensorSymbol
    from emitter.pack.plan import PackPlan
    from emitter.package import Package, Tensor
    from emitter.sidecar import Sidecar

__all__ = ["depfile_text", "map_text"]


def depfile_text(outputs: Sequence[str], inputs: Sequence[str]) -> str:
    """Return a rule in the syntax of make that ninja reads too: all `outputs` depend on all `inputs`.

    Each input is also a target without a rule of its own: a build goes on when an input has been removed. Raises
    OutputError for a name that the syntax cannot hold. Ninja has no way to read some other characters (quotes, `&`,
    `*`): with such a name it builds every time.
    """
    prerequisites = [_escape(path, _NOT_IN_NAMES) for path in inputs]
    targets = " ".join(_escape(path, _NOT_IN_NAMES + "%") for path in outputs)
    rule = " \\\n  ".join([f"{targets}:", *prerequisites])
    # A target with % would be a pattern.
    phony = "".join(f"\n{path}:\n" for path in prerequisites if "%" not in path)
    return f"{rule}\n{phony}"


# GNU make ends a rule, a target or a recipe at these, or takes the line for an assignment, and has no escape for them.
_NOT_IN_NAMES = "\t\n\r:;|="


def _escape(path: str, forbidden: str) -> str:
    if path.endswith("\\") or any(character in forbidden for character in path):
        raise OutputError(
            "a depfile cannot hold this name",
            where=shown(path),
            expected="none of : ; | =, tab, line break, and no backslash at the end",
            hint="rename the file",
        )
    # GNU make, "Rule Syntax": blanks and # take a backslash, and backslashes before them are doubled; $ is doubled.
    text = ""
    for character in path:
        if character in " #":
            backslashes = len(text) - len(text.rstrip("\\"))
            text += "\\" * backslashes + "\\" + character
        else:
            text += "$$" if character == "$" else character
    return text


def map_text(
    *,
    output: str,
    target: str,
    byte_order: str,
    format: str,  # noqa: A002 - the key in the file
    symbol: str | None,
    package: Package,
    pack: PackPlan | None,
    plan: FilePlan,
    sidecar: Sidecar | None,
    tensor_symbols: Sequence[TensorSymbol],
    crcs: Sequence[int],
) -> str:
    """Return the map as JSON, schema `emitter.map/1`: offsets, size, alignment and CRC-32C of each tensor and module.

    Offsets and sizes are in bytes; `file_offset` counts from the start of the output, or of the sidecar if it has one.
    """
    import json

    symbols = {one.tensor: one.name for one in tensor_symbols}
    library, library_pack = plan, pack
    if sidecar is not None:
        plan, pack = sidecar.plan, sidecar.pack  # which have the bytes
    # Another tool's style stores every tensor, in whatever order.
    numbers: dict[int, list[int]] = {}
    for number in range(len(plan.copies) - 1, -1, -1) if pack is None else ():
        numbers.setdefault(id(plan.copies[number].extent), []).append(number)

    def bytes_of(owner: Tensor) -> dict[str, object]:
        payload = numbers[id(owner.extent)].pop() if pack is None else pack.index_of[owner.name]
        return {
            "size": plan.copies[payload].size,
            "file_offset": plan.copies[payload].offset,
            "pack_offset": None if pack is None else pack.payloads[payload].offset,
            "alignment": None if pack is None else pack.payload_alignments[payload],
            "crc32c": f"0x{crcs[payload]:08x}",
        }

    tensors = [
        {
            "name": tensor.name,
            "symbol": symbols.get(tensor.name),
            "dtype": describe(tensor.dtype),
            "encoding": tensor.encoding,
            "shape": list(tensor.shape),
            **bytes_of(tensor),
        }
        for tensor in package.tensors
    ]
    modules = in_order(package.modules, (tensor.name for tensor in package.tensors))
    forms = iter(payload_tensors(modules))
    document = {
        "schema": "emitter.map/1",
        "output": output,
        "target": target,
        "format": format,
        "symbol": symbol,
        "file_size": library.size,
        "byte_order": byte_order,
        "pack": None
        if pack is None
        else {
            "file_offset": library.pack_offset,
            "size": library_pack.total_size if library_pack is not None else 0,
            "schema_hash": f"0x{pack.schema:016x}",
            "model_version": package.model_version,
        },
        "sidecar": None
        if sidecar is None
        else {"file": sidecar.name, "size": sidecar.plan.size, "pinned": sidecar.pinned},
        "tensors": tensors,
        "modules": [
            {
                "name": module.name,
                "alternatives": [
                    {"kind": one.kind, "schema_version": one.schema_version, **bytes_of(next(forms))}
                    for one in module.alternatives
                ],
            }
            for module in modules
        ],
    }
    return json.dumps(document, indent=1, ensure_ascii=True) + "\n"
