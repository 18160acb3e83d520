"""The tables of a pack's modules: rows whose strings are offsets in the pool, as in `emitter.pack.plan`."""

from __future__ import annotations

from emitter.pack import format as fmt
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from emitter.modules import Module
    from emitter.pack.format import Record

    Row = tuple[int, ...]

__all__ = ["module_tables"]


def module_tables(
    modules: Sequence[Module],
    payload_of: Mapping[str, int],
    tensor_number: Mapping[str, int],
    add_text: Callable[[str], tuple[int, int]],
    add_metadata: Callable[[Mapping[str, str]], tuple[int, int]],
) -> list[tuple[Record, list[Row]]]:
    """Return the rows of each table of modules; none for a package without modules.

    `modules` are in the pack's order. `payload_of` has the payload's number by the name that
    `emitter.modules.payload_tensors` gives it, `tensor_number` that of a tensor's record. `add_text` puts a string into
    the pool, and `add_metadata` pairs into the table of metadata; both return the two fields that refer to it.
    """
    if not modules:
        return []
    number_of = {id(module): number for number, module in enumerate(modules)}
    rows: dict[str, list[Row]] = {record.name: [] for record in fmt.MODULE_RECORDS}
    alternatives, conditions, imports = rows["alternative"], rows["condition"], rows["import"]
    functions, arguments = rows["function"], rows["argument"]
    for number, module in enumerate(modules):
        runs = (
            len(alternatives), len(module.alternatives),
            len(imports), len(module.imports),
            len(functions), len(module.functions),
        )  # fmt: skip
        rows["module"].append((*add_text(module.name), *runs, *add_metadata(module.metadata)))
        for choice, one in enumerate(module.alternatives):
            payload = payload_of[f"\0{number} {choice}"]
            alternatives.append(
                (*add_text(one.kind), one.schema_version, payload, len(conditions), len(one.conditions))
            )
            for condition in one.conditions:
                upper = add_text(condition.upper) if condition.upper else (0, 0)
                conditions.append((*add_text(condition.key), condition.comparison, *add_text(condition.value), *upper))
        imports += ((number_of[id(child)],) for child in module.imports)
        for name, tensors in sorted(module.functions.items(), key=lambda item: item[0].encode()):
            functions.append((*add_text(name), len(arguments), len(tensors)))
            arguments += ((tensor_number[tensor],) for tensor in tensors)
    return [(record, rows[record.name]) for record in fmt.MODULE_RECORDS]
