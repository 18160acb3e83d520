"""Reads the modules of a pack: every rule of their tables is checked, and they become modules of the package.

Source: docs/pack-format.md; the records are those of `emitter.pack.format`.
"""

from __future__ import annotations

from emitter.errors import InputError, shown
from emitter.modules import Alternative, Condition, ModuleFacts
from emitter.pack import format as fmt
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from emitter.inputs._pack_index import Index
    from emitter.package import Extent

__all__ = ["read_modules"]

_COMPARISONS = (fmt.EQUAL, fmt.AT_LEAST, fmt.WITHIN)


def read_modules(
    index: Index,
    payloads: Sequence[tuple[Extent, int]],
    tensor_names: Sequence[str],
    text: Callable[[int, int, str], str],
    metadata: Callable[[int, int, str], dict[str, str]],
) -> list[ModuleFacts]:
    """Return the modules of a pack in its order: the root first, each before what it imports.

    `payloads` are (extent, alignment) by number, `tensor_names` those of the tensor records; `text` and `metadata` read
    a string and a run of pairs. Raises InputError for tables that break the format in any way.
    """
    return _Modules(index, payloads, tensor_names, text, metadata).read()


class _Modules:
    def __init__(
        self,
        index: Index,
        payloads: Sequence[tuple[Extent, int]],
        tensor_names: Sequence[str],
        text: Callable[[int, int, str], str],
        metadata: Callable[[int, int, str], dict[str, str]],
    ) -> None:
        self.path = index.path
        self.payloads = payloads
        self.tensor_names = tensor_names
        self.text = text
        self.metadata = metadata
        self.rows = {record.name: list(index.records(record)) for record in fmt.MODULE_RECORDS}
        self.used = dict.fromkeys(self.rows, 0)
        self.functions: set[str] = set()

    def read(self) -> list[ModuleFacts]:
        modules = []
        names: set[str] = set()
        imported = {0}
        for number, row in enumerate(self.rows["module"]):
            where = f"{self.path}: module {number}"
            name_offset, name_length, *runs = row
            name = self.name(name_offset, name_length, where)
            if name in names:
                raise InputError("two modules have one name", where=where, actual=shown(name))
            names.add(name)
            if number not in imported:
                raise InputError("no module imports it, and it is not the first", where=where)
            if not runs[1]:
                raise InputError("the module has no alternatives", where=where)
            alternatives = [self.alternative(one, where) for one in self.run("alternative", runs[0], runs[1], where)]
            imports = [target for (target,) in self.run("import", runs[2], runs[3], where)]
            if any(not number < target < len(self.rows["module"]) for target in imports):
                expected = f"{number + 1} to {len(self.rows['module']) - 1}"
                raise InputError("an import is not of a later module", where=where, expected=expected, actual=imports)
            if len(set(imports)) != len(imports):
                raise InputError("a module is imported twice", where=where, actual=imports)
            imported.update(imports)
            functions = self.function_names(runs[4], runs[5], where)
            modules.append(ModuleFacts(name, alternatives, imports, functions, self.metadata(runs[6], runs[7], where)))
        for table, rows in self.rows.items():
            if table != "module" and self.used[table] != len(rows):
                raise InputError(
                    "records belong to nobody",
                    where=f"{self.path}: table of {table}",
                    expected=self.used[table],
                    actual=len(rows),
                )
        return modules

    def run(self, table: str, first: int, count: int, where: str) -> list[tuple[int, ...]]:
        """Return the records of one owner, which follow those of the owner before it."""
        rows = self.rows[table]
        if first != self.used[table] or count > len(rows) - first:
            raise InputError(
                f"the run of records in the table of {table} is wrong",
                where=where,
                expected=f"from {self.used[table]}, at most {len(rows) - self.used[table]}",
                actual=f"{count} from {first}",
            )
        self.used[table] += count
        return rows[first : first + count]

    def alternative(self, row: tuple[int, ...], where: str) -> Alternative:
        kind_offset, kind_length, schema_version, payload, first, count = row
        if payload >= len(self.payloads):
            expected = f"below {len(self.payloads)}"
            raise InputError("the payload's number is wrong", where=where, expected=expected, actual=payload)
        extent, alignment = self.payloads[payload]
        extent = extent._replace(label=extent.label or where.removeprefix(f"{self.path}: "))
        kind = self.name(kind_offset, kind_length, where)
        conditions: list[Condition] = []
        for one in self.run("condition", first, count, where):
            condition = self.condition(one, where)
            if conditions and condition.key.encode() <= conditions[-1].key.encode():
                raise InputError("conditions are not unique and sorted", where=where, actual=shown(condition.key))
            conditions.append(condition)
        return Alternative(kind, schema_version, extent, tuple(conditions), alignment)

    def condition(self, row: tuple[int, ...], where: str) -> Condition:
        key_offset, key_length, comparison, value_offset, value_length, upper_offset, upper_length = row
        key = self.name(key_offset, key_length, where)
        value = self.name(value_offset, value_length, where)
        upper = self.name(upper_offset, upper_length, where) if comparison == fmt.WITHIN else ""
        versions = {fmt.EQUAL: (), fmt.AT_LEAST: (value,), fmt.WITHIN: (value, upper)}.get(comparison)
        if (
            versions is None
            or not all(map(fmt.is_version, versions))
            or (comparison != fmt.WITHIN and (upper_offset or upper_length))
        ):
            raise InputError(
                f"the condition of {shown(key)} cannot be read",
                where=where,
                expected=f"a comparison of {_COMPARISONS}, with versions where it compares them",
                actual=f"{comparison} with {shown(value)} and {shown(upper)}",
            )
        return Condition(key, comparison, value, upper)

    def function_names(self, first: int, count: int, where: str) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        previous = b""
        for name_offset, name_length, argument_first, argument_count in self.run("function", first, count, where):
            name = self.name(name_offset, name_length, where)
            if name.encode() <= previous or name in self.functions:
                raise InputError("functions are not unique and sorted", where=where, actual=shown(name))
            previous = name.encode()
            self.functions.add(name)
            arguments = self.run("argument", argument_first, argument_count, where)
            if any(tensor >= len(self.tensor_names) for (tensor,) in arguments):
                what = f"function {shown(name)} takes a tensor that is not there"
                raise InputError(what, where=where, expected=f"numbers below {len(self.tensor_names)}")
            found[name] = tuple(self.tensor_names[tensor] for (tensor,) in arguments)
        return found

    def name(self, offset: int, length: int, where: str) -> str:
        if not 0 < length <= fmt.MAX_NAME_BYTES:
            expected = f"1 to {fmt.MAX_NAME_BYTES}"
            raise InputError("the length of a name is wrong", where=where, expected=expected, actual=length)
        return self.text(offset, length, where)
