"""Every rule of docs/pack-format.md that the tables of modules can break."""

from __future__ import annotations

import struct

from emitter.errors import FormatError, shown
from emitter.loaders._modules import modules_of
from emitter.pack import format as fmt
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from emitter.loaders._modules import Alternative, Module
    from emitter.loaders._pack import Index

    CheckString = Callable[[str, str, tuple[int, int]], bytes]  # (where, what, (offset, length)) -> bytes
    CheckMetadata = Callable[[str, int, int, int], int]  # (where, first, count, expected) -> the record behind

__all__ = ["check_runs", "validate_modules"]

# The fields of a record that begin a run in another table, and that table; the field behind each is its length.
_RUNS: dict[fmt.Record, tuple[tuple[int, fmt.Record], ...]] = {
    fmt.MODULE: ((2, fmt.ALTERNATIVE), (4, fmt.IMPORT), (6, fmt.FUNCTION)),
    fmt.ALTERNATIVE: ((4, fmt.CONDITION),),
    fmt.FUNCTION: ((2, fmt.ARGUMENT),),
}


def check_runs(index: Index) -> None:
    """Raise FormatError unless each record has one owner: the runs of each table follow each other to its end.

    Whoever reads all modules after it does so in time that is linear in the tables. Metadata runs have one sum.
    """
    used = dict.fromkeys(fmt.MODULE_RECORDS, 0)
    metadata = 0
    for owner, runs in _RUNS.items():
        for number in range(index.tables[owner.kind].records):
            row = _row(index, owner, number)
            metadata += row[9] if owner is fmt.MODULE else 0
            for at, record in runs:
                where = f"{index.where}: {owner.name} {number}"
                if row[at] != used[record]:
                    raise FormatError(
                        f"a run of the table {record.name} is not behind the owner before",
                        where=where,
                        expected=used[record],
                        actual=row[at],
                    )
                used[record] += row[at + 1]
                if used[record] > index.tables[record.kind].records:
                    raise FormatError(f"a run of the table {record.name} leaves it", where=where, actual=row[at + 1])
    for record, count in used.items():
        records = index.tables[record.kind].records
        if record is not fmt.MODULE and records != count:
            where = f"{index.where}: table {record.kind} ({record.name})"
            raise FormatError("records belong to nobody", where=where, expected=count, actual=records)
    if metadata > index.tables[fmt.METADATA.kind].records:
        raise FormatError("runs of metadata overlap", where=index.where, actual=f"{metadata} records of modules")


def validate_modules(
    index: Index, check_string: CheckString, check_metadata: CheckMetadata, metadata_end: int
) -> bytes:
    """Raise FormatError for the first rule that is broken; return what the schema hash hashes of modules.

    The two functions check a string of at least one byte, and an owner's metadata; that of tensors ends with record
    `metadata_end`.
    """
    return _Validation(index, check_string, check_metadata).run(metadata_end)


class _Validation:
    def __init__(self, index: Index, check_string: CheckString, check_metadata: CheckMetadata) -> None:
        self.index = index
        self.check_string = check_string
        self.check_metadata = check_metadata
        self.names: set[bytes] = set()
        self.functions: set[bytes] = set()

    def run(self, metadata_end: int) -> bytes:
        check_runs(self.index)
        count = self.index.tables[fmt.MODULE.kind].records
        hashed = [struct.pack("<Q", count)]
        imported = {0}
        for module in modules_of(lambda: self.index, 0):
            where = f"{self.index.where}: module {module.number}"
            row = self.row(fmt.MODULE, module.number)
            name = self.name(row[0:2], "the name", where)
            self.once(name, self.names, "two modules have one name", where)
            if module.number not in imported:
                raise FormatError("no module imports it, and it is not the first", where=where)
            if not row[3]:
                raise FormatError("the module has no alternatives", where=where)
            imports = [child.number for child in module.imports]
            if len(set(imports)) != len(imports) or any(number >= count for number in imports):
                expected = f"different modules below {count}"
                raise FormatError("the imports are wrong", where=where, expected=expected, actual=shown(imports))
            for number in range(row[4], row[4] + row[5]):
                self.reserved(fmt.IMPORT, number, where)
            imported.update(imports)
            hashed += [_text(name), struct.pack("<I", row[3])]
            hashed += (self.alternative(one, row[2] + one.number, where) for one in module.alternatives)
            hashed.append(struct.pack(f"<I{len(imports)}I", len(imports), *imports))
            hashed.append(self.function_run(module, row[6], row[7], where))
            metadata_end = self.check_metadata(where, row[8], row[9], metadata_end)
        return b"".join(hashed)

    def alternative(self, one: Alternative, record: int, where: str) -> bytes:
        row = self.row(fmt.ALTERNATIVE, record)
        kind = self.name(row[0:2], "the kind", where)
        previous = b""
        for number in range(row[4], row[4] + row[5]):
            condition = self.row(fmt.CONDITION, number)
            key = self.name(condition[0:2], "a condition's key", where)
            if key <= previous:
                raise FormatError("conditions are not unique and sorted", where=where, actual=shown(key))
            previous = key
            self.name(condition[3:5], "a condition's value", where)
            if condition[2] == fmt.WITHIN:
                self.name(condition[5:7], "a condition's upper version", where)
            elif any(condition[5:7]):
                raise FormatError("a condition has an upper version that it does not compare", where=where)
            self.reserved(fmt.CONDITION, number, where)
        return _text(kind) + struct.pack("<I", one.schema_version)

    def function_run(self, module: Module, first: int, count: int, where: str) -> bytes:
        hashed = [struct.pack("<I", count)]
        previous = b""
        functions = module.functions
        for number in range(first, first + count):
            row = self.row(fmt.FUNCTION, number)
            name = self.name(row[0:2], "a function's name", where)
            if name <= previous:
                raise FormatError("functions are not unique and sorted", where=where, actual=shown(name))
            previous = name
            self.once(name, self.functions, "two modules have one function", where)
            for argument in range(row[2], row[2] + row[3]):
                self.reserved(fmt.ARGUMENT, argument, where)
            tensors = functions[name.decode()]
            hashed += [_text(name), struct.pack("<I", len(tensors)), *(_text(one.name.encode()) for one in tensors)]
        return b"".join(hashed)

    def row(self, record: fmt.Record, number: int) -> tuple[int, ...]:
        return _row(self.index, record, number)

    def name(self, place: tuple[int, ...], what: str, where: str) -> bytes:
        return self.check_string(where, what, (place[0], place[1]))

    def once(self, name: bytes, seen: set[bytes], what: str, where: str) -> None:
        if name in seen:
            raise FormatError(what, where=where, actual=shown(name))
        seen.add(name)

    def reserved(self, record: fmt.Record, number: int, where: str) -> None:
        table = self.index.tables[record.kind]
        at = table.offset + number * table.record_size + record.offset("reserved")
        if any(self.index.data[at : at + 4]):
            raise FormatError("reserved bytes are not zero", where=f"{where}: offset {at}")


def _row(index: Index, record: fmt.Record, number: int) -> tuple[int, ...]:
    table = index.tables[record.kind]
    return struct.unpack_from(index.order + record.struct_format, index.data, table.offset + number * table.record_size)


def _text(text: bytes) -> bytes:
    return struct.pack("<I", len(text)) + text
