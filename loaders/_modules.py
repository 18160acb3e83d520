"""The modules of a pack: their records, and which alternative fits a place.

Source: docs/pack-format.md, Modules. Bytes and tensors are views of the pack's own. `emitter.loaders._registry` builds
what runtimes make of them.
"""

from __future__ import annotations

import struct

from emitter.errors import FormatError, LoadError, shown
from emitter.loaders._tensor import Tensor, check_crc
from emitter.pack import format as fmt
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from emitter.loaders._pack import Index

__all__ = ["Alternative", "Condition", "Module", "find_function", "modules_of"]

_STRUCTS = {
    (record, order): struct.Struct(order + record.struct_format) for record in fmt.MODULE_RECORDS for order in "<>"
}
_MAX_SHOWN = 8  # rejected alternatives that a message lists


class Condition(NamedTuple):
    """What the place of loading must say of `key`: docs/pack-format.md, Conditions."""

    key: str
    comparison: int
    value: str
    upper: str

    def holds(self, place: Mapping[str, str]) -> bool:
        """Whether it holds where `place` gives the values of keys."""
        found = place.get(self.key)
        if found is None:
            return False
        if self.comparison == fmt.EQUAL:
            return found == self.value
        if not fmt.is_version(found) or fmt.version_key(found) < fmt.version_key(self.value):
            return False
        return self.comparison == fmt.AT_LEAST or fmt.version_key(found) < fmt.version_key(self.upper)

    @property
    def requirement(self) -> str:
        """What is required of the key, as a package takes it: `== 87`, `>= 10.3, < 11`."""
        sign = "==" if self.comparison == fmt.EQUAL else ">="
        return f"{sign} {self.value}" + (f", < {self.upper}" if self.comparison == fmt.WITHIN else "")

    def __str__(self) -> str:
        return f"{self.key} {self.requirement}"


class Alternative:
    """One form of a module: its `kind`, the `schema_version` of its bytes, and the `conditions` that must all hold.

    `number` counts the alternatives of the module from 0, in the order in which they are tried. `size` and `alignment`
    are bytes, `crc32c` is the checksum that was written with them, and `file_offset` is where they begin in the file
    that holds them.
    """

    __slots__ = (
        "_open",
        "_payload",
        "_where",
        "alignment",
        "conditions",
        "crc32c",
        "file_offset",
        "kind",
        "number",
        "schema_version",
        "size",
    )  # fmt: skip

    def __init__(self, open_index: Callable[[], Index], record: int, number: int, file_offset: int, where: str) -> None:
        index = open_index()
        kind_offset, kind_length, version, payload, first, count = _row(index, fmt.ALTERNATIVE, record, where)
        self._open = open_index
        self._where = where
        self._payload = index.payload(payload, where)
        self.number: int = number
        self.kind: str = index.string("a module's kind", kind_offset, kind_length)
        self.schema_version: int = version
        self.conditions: tuple[Condition, ...] = tuple(_conditions(index, first, count, where))
        self.size: int = self._payload.size
        self.alignment: int = self._payload.alignment
        self.crc32c: int = self._payload.crc32c
        self.file_offset: int = file_offset + self._payload.offset

    def __repr__(self) -> str:
        return (
            f"<emitter alternative {self.number}: {shown(self.kind)} version {self.schema_version}, {self.size} bytes>"
        )

    def bytes(self) -> memoryview:
        """Return the bytes as they lie in the file: a read-only view without a copy. Raises LoadError if closed."""
        return self._open().payload_bytes(self._payload)

    def check(self) -> None:
        """Read the bytes and raise FormatError if they are not those that were written (CRC-32C)."""
        check_crc(self.bytes(), self.crc32c, self._where)

    def rejection(self, place: Mapping[str, str]) -> str | None:
        """Return why it does not fit `place`, which gives the values of keys; None if it fits."""
        for condition in self.conditions:
            if not condition.holds(place):
                found = place.get(condition.key)
                return f"wants {condition}, here {condition.key} is {'not known' if found is None else shown(found)}"
        return None


class Module:
    """What a pack says of one module: `name`, `alternatives`, `imports` (modules), `functions` and `metadata`.

    `number` is that of its record: 0 is the root, and imports have greater ones.
    """

    __slots__ = ("_file_offset", "_open", "_record", "_where", "number")

    def __init__(self, open_index: Callable[[], Index], number: int, file_offset: int) -> None:
        index = open_index()
        self._open = open_index
        self._file_offset = file_offset
        self._where = f"{index.where}: module {number}"
        self._record = _row(index, fmt.MODULE, number, self._where)
        self.number: int = number

    def __repr__(self) -> str:
        return f"<emitter module {shown(self.name)}: {' or '.join(one.kind for one in self.alternatives)}>"

    @property
    def name(self) -> str:
        """The name, unique in the pack."""
        return self._open().string("a module's name", *self._record[0:2])

    @property
    def alternatives(self) -> tuple[Alternative, ...]:
        """Its forms, in the order in which they are tried."""
        first, count = self._record[2:4]
        _check_run(self._open(), fmt.ALTERNATIVE, first, count, self._where)
        return tuple(
            Alternative(self._open, first + number, number, self._file_offset, f"{self._where}, alternative {number}")
            for number in range(count)
        )

    @property
    def imports(self) -> tuple[Module, ...]:
        """The modules that it imports, in order."""
        index = self._open()
        first, count = self._record[4:6]
        _check_run(index, fmt.IMPORT, first, count, self._where)
        numbers = [_row(index, fmt.IMPORT, record, self._where)[0] for record in range(first, first + count)]
        for number in numbers:
            if number <= self.number:  # so there is no cycle
                raise FormatError(
                    "an import is not of a later module",
                    where=self._where,
                    expected=f"above {self.number}",
                    actual=number,
                )
        return tuple(Module(self._open, number, self._file_offset) for number in numbers)

    @property
    def functions(self) -> dict[str, tuple[Tensor, ...]]:
        """The tensors that each function takes, in order, by the function's name."""
        index = self._open()
        first, count = self._record[6:8]
        _check_run(index, fmt.FUNCTION, first, count, self._where)
        return dict(
            _function(index, self._open, record, self._file_offset, self._where)
            for record in range(first, first + count)
        )

    @property
    def metadata(self) -> dict[str, str]:
        """The module's keys and values."""
        return self._open().metadata(self._record[8], self._record[9], self._where)

    def select(self, place: Mapping[str, str]) -> Alternative:
        """Return the first alternative whose conditions hold where `place` gives the values of keys.

        Raises LoadError, saying of each why not, if there is none.
        """
        rejections = []
        for one in self.alternatives:
            reason = one.rejection(place)
            if reason is None:
                return one
            rejections.append(f"{one.number} ({one.kind}): {reason}")
        more = len(rejections) - _MAX_SHOWN
        raise LoadError(
            f"no alternative of module {shown(self.name)} fits here",
            where=self._where,
            actual="; ".join(rejections[:_MAX_SHOWN]) + (f"; and {more} more" if more > 0 else ""),
            hint="emit one for this device, or a fallback without conditions",
        )


def modules_of(open_index: Callable[[], Index], file_offset: int) -> Iterator[Module]:
    """Yield the modules of a pack: the root first, each before what it imports."""
    for number in range(open_index().tables[fmt.MODULE.kind].records):
        yield Module(open_index, number, file_offset)


def find_function(modules: Iterator[Module], name: str) -> Module | None:
    """Return the module that lists the function `name`, or None."""
    return next((module for module in modules if name in module.functions), None)


def _function(
    index: Index, open_index: Callable[[], Index], record: int, file_offset: int, where: str
) -> tuple[str, tuple[Tensor, ...]]:
    name_offset, name_length, first, count = _row(index, fmt.FUNCTION, record, where)
    name = index.string("a function's name", name_offset, name_length)
    _check_run(index, fmt.ARGUMENT, first, count, where)
    numbers = [_row(index, fmt.ARGUMENT, number, where)[0] for number in range(first, first + count)]
    for number in numbers:
        if number >= len(index):
            raise FormatError(
                f"function {shown(name)} takes a tensor that is not there",
                where=where,
                expected=f"below {len(index)}",
                actual=number,
            )
    return name, tuple(Tensor(open_index, number, file_offset) for number in numbers)


def _conditions(index: Index, first: int, count: int, where: str) -> Iterator[Condition]:
    _check_run(index, fmt.CONDITION, first, count, where)
    for record in range(first, first + count):
        key, key_length, comparison, *rest = _row(index, fmt.CONDITION, record, where)
        texts = [index.string("a condition's key", key, key_length), index.string("its value", *rest[0:2])]
        texts.append(index.string("its upper version", *rest[2:4]) if comparison == fmt.WITHIN else "")
        versions = {fmt.EQUAL: [], fmt.AT_LEAST: texts[1:2], fmt.WITHIN: texts[1:3]}.get(comparison)
        if versions is None or not all(map(fmt.is_version, versions)):
            raise FormatError(
                f"the condition of {shown(texts[0])} cannot be read",
                where=where,
                expected="comparison 1, 2 or 3, and versions where it compares them",
                actual=f"{comparison} with {shown(texts[1])} and {shown(texts[2])}",
            )
        yield Condition(texts[0], comparison, texts[1], texts[2])


def _row(index: Index, record: fmt.Record, number: int, where: str) -> tuple[int, ...]:
    """Return the fields of a record; raise FormatError if there is no such record."""
    table = index.tables[record.kind]
    _check_run(index, record, number, 1, where)
    return _STRUCTS[record, index.order].unpack_from(index.data, table.offset + number * table.record_size)


def _check_run(index: Index, record: fmt.Record, first: int, count: int, where: str) -> None:
    records = index.tables[record.kind].records
    if first + count > records:
        raise FormatError(
            f"records of the table {record.name} are not there",
            where=where,
            expected=f"below {records}",
            actual=f"{count} from {first}",
        )
