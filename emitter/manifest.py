"""Manifests: a package described by a TOML or JSON document, for compilers that are not written in Python.

docs/manifest.schema.json is the JSON Schema of the document; this module says what is wrong with one in words. All of
it is checked before anything of it reaches the package.
"""

from __future__ import annotations

import os
from contextlib import contextmanager

from emitter.dtypes import UINT, DType, parse
from emitter.errors import InputError, UsageError, shown
from emitter.inputs import RAW, read_input
from emitter.package import Extent, FileSource, Package, Tensor
from emitter.records import TYPE_CHECKING, NamedTuple
from emitter.values import parse_toml, payload_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    Table = Mapping[str, Any]

__all__ = ["MAX_SIZE", "SCHEMA", "read_manifest"]

SCHEMA = "emitter.manifest/1"
MAX_SIZE = 256 << 20  # bytes of a document


class _Key(NamedTuple):
    """What a key of a table may hold: a type as JSON has it, and whether it must be there."""

    kind: str
    required: bool = False


_TEXTS = _Key("texts by key")
_ALTERNATIVE = {
    "kind": _Key("text", required=True),
    "file": _Key("text"),
    "text": _Key("text"),
    "schema_version": _Key("integer"),
    "requires": _TEXTS,
    "alignment": _Key("integer"),
}
_KEYS: Mapping[str, Mapping[str, _Key]] = {
    "manifest": {
        "schema": _Key("text", required=True),
        "metadata": _TEXTS,
        "model_version": _Key("text"),
        "tensors": _Key("list of tables"),
        "modules": _Key("list of tables"),
    },
    "tensor": {
        "name": _Key("text"),
        "prefix": _Key("text"),
        "file": _Key("text"),
        "raw": _Key("text"),
        "dtype": _Key("text"),
        "shape": _Key("list of integers"),
        "encoding": _Key("integer"),
        "alignment": _Key("integer"),
        "metadata": _TEXTS,
    },
    "module": {
        "name": _Key("text", required=True),
        "imports": _Key("list of texts"),
        "functions": _Key("lists of texts by text"),
        "metadata": _TEXTS,
        "alternatives": _Key("list of tables"),
        **{name: key._replace(required=False) for name, key in _ALTERNATIVE.items()},
    },
    "alternative": _ALTERNATIVE,
}


def read_manifest(package: Package, path: str, text: bytes | None = None) -> None:
    """Add what the manifest at `path` describes to `package`.

    Paths in it are relative to its folder. With `text` that is its content, `path` its name in messages, and paths are
    relative to the current folder. JSON begins with a brace; anything else is TOML. Raises InputError or UsageError,
    and then `package` is as it was.
    """
    where = path
    if text is None:
        source = FileSource.of(path)
        with source.open() as fd:
            from emitter.inputs._common import pread

            text = pread(fd, min(source.size, MAX_SIZE + 1), 0, path)
        package_files = [source]
        folder = os.path.dirname(path)
    else:
        package_files = []
        folder = ""
    if len(text) > MAX_SIZE:
        raise InputError("the manifest is too long", where=path, expected=f"at most {MAX_SIZE} bytes")
    document = _parse(text, where)
    _check_table(document, "manifest", where)
    if document["schema"] != SCHEMA:
        actual = shown(document["schema"])
        raise InputError("the manifest is of another schema", where=where, expected=SCHEMA, actual=actual)
    described = Package(metadata=document.get("metadata"), model_version=document.get("model_version", ""))
    for source in package_files:
        described.note_file(source)
    for number, table in enumerate(document.get("tensors", ())):
        place = f"{where}: tensors[{number}]"
        with _at(place):
            _add_tensors(described, table, place, folder)
    _add_modules(described, document.get("modules", ()), where, folder)
    package.absorb(described)


def _parse(text: bytes, where: str) -> dict[str, Any]:
    try:
        decoded = text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError("the manifest is not UTF-8", where=f"{where}: byte {error.start}") from error
    if decoded.lstrip().startswith("{"):
        import json

        try:
            document = json.loads(decoded, object_pairs_hook=_unique)
        except ValueError as error:
            raise InputError(f"the manifest is not JSON: {error}", where=where) from error
        except RecursionError as error:
            raise InputError("the manifest is nested too deeply", where=where) from error
        return document  # type: ignore[no-any-return] # it began with a brace
    try:
        return parse_toml(decoded)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the manifest is neither JSON nor TOML: {error}", where=where) from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {shown(key)} stands twice in one object")
        found[key] = value
    return found


def _check_table(table: object, kind: str, where: str) -> None:
    """Raise InputError for a key that is unknown, missing, or of another type."""
    keys = _KEYS[kind]
    if not isinstance(table, dict):
        raise InputError(f"a {kind} is a table", where=where, expected=", ".join(keys), actual=shown(table))
    for name, value in table.items():
        key = keys.get(name)
        if key is None:
            from difflib import get_close_matches

            near = get_close_matches(name, keys, n=1)
            hint = f"did you mean {near[0]}?" if near else None
            raise InputError(f"a {kind} has no key {shown(name)}", where=where, expected=", ".join(keys), hint=hint)
        if not _TYPES[key.kind](value):
            raise InputError(
                f"the value of {name} is of another type", where=where, expected=key.kind, actual=_given(value)
            )
    for name, key in keys.items():
        if key.required and name not in table:
            raise InputError(f"a {kind} needs the key {name}", where=where, expected=key.kind)


def _given(value: object) -> str:
    """Return what a message shows of a value of another type: in a table the first that is no text."""
    if isinstance(value, dict):
        return next(
            (f"{shown(key)}: {shown(item)}" for key, item in value.items() if not isinstance(item, str)), "a table"
        )
    return shown(value)


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "integer": lambda value: type(value) is int,
    "texts by key": lambda value: isinstance(value, dict) and all(isinstance(item, str) for item in value.values()),
    "list of tables": lambda value: isinstance(value, list) and all(isinstance(item, dict) for item in value),
    "list of integers": lambda value: isinstance(value, list) and all(type(item) is int for item in value),
    "list of texts": _is_texts,
    "lists of texts by text": lambda value: isinstance(value, dict) and all(map(_is_texts, value.values())),
}


def _add_tensors(package: Package, table: Table, where: str, folder: str) -> None:
    _check_table(table, "tensor", where)
    if ("file" in table) == ("raw" in table):
        raise InputError("a tensor has one of the keys file and raw", where=where, actual=", ".join(table))
    if "raw" in table:
        _add_raw(package, table, where, folder)
        return
    argument = os.path.join(folder, table["file"])
    if argument.startswith(RAW):
        argument = os.path.join(os.curdir, argument)
    if "name" in table and "prefix" in table:
        raise InputError("a tensor has one of the keys name and prefix", where=where)
    tensors = list(read_input(argument, package, prefix=table.get("name", table.get("prefix", "")), keep_metadata=True))
    single = {"name", "dtype", "shape", "encoding", "alignment", "metadata"} & table.keys()
    if single and len(tensors) != 1:
        raise InputError(
            f"{', '.join(sorted(single))} belong to one tensor", where=where, actual=f"{len(tensors)} in {argument}"
        )
    for tensor in tensors:
        found = {"dtype": str(tensor.dtype), "shape": list(tensor.shape), "encoding": tensor.encoding}
        for name, value in found.items():
            if table.get(name, value) != value:
                raise InputError(
                    f"{name} is not the file's", where=where, expected=shown(table[name]), actual=shown(value)
                )
        package.add(
            tensor._replace(
                name=table.get("name", tensor.name),
                alignment=table.get("alignment", tensor.alignment),
                metadata=table.get("metadata", tensor.metadata),
            )
        )


def _add_raw(package: Package, table: Table, where: str, folder: str) -> None:
    if "name" not in table or "prefix" in table:
        raise InputError("bytes as they are (raw) have a name, and no prefix", where=where, actual=", ".join(table))
    source = FileSource.of(os.path.join(folder, table["raw"]))
    dtype = parse(table["dtype"]) if "dtype" in table else DType(UINT, 8)
    if dtype is None:
        raise InputError(
            "there is no such element type", where=where, expected="such as float32", actual=shown(table["dtype"])
        )
    encoding = table.get("encoding", 0)
    if "dtype" in table and "shape" not in table:
        raise InputError("bytes with a dtype have a shape", where=where)
    shape = tuple(table.get("shape", (source.size,)))
    size = payload_bytes(dtype, shape, where)
    if not encoding and size != source.size:
        expected = f"{size} bytes for {dtype} {shown(shape)}"
        raise InputError("the size contradicts dtype and shape", where=where, expected=expected, actual=source.size)
    package.add(
        Tensor(
            table["name"],
            dtype,
            shape,
            Extent(source, 0, source.size),
            table.get("alignment"),
            encoding,
            table.get("metadata", {}),
        )
    )


def _add_modules(package: Package, tables: list[Table], where: str, folder: str) -> None:
    """Add the modules in an order in which each follows what it imports."""
    places: dict[str, str] = {}
    by_name: dict[str, Table] = {}
    for number, table in enumerate(tables):
        place = f"{where}: modules[{number}]"
        _check_table(table, "module", place)
        name = table["name"]
        if name in by_name:
            raise InputError(f"two modules are called {shown(name)}", where=place, hint="rename one of them")
        by_name[name], places[name] = table, place
    for name, table in by_name.items():
        for child in table.get("imports", ()):
            if child not in by_name:
                expected = ", ".join(map(shown, by_name))
                raise InputError(
                    "an import is not a module of the manifest",
                    where=places[name],
                    expected=expected,
                    actual=shown(child),
                )
    for name in _children_first(by_name, places):
        _add_module(package, by_name[name], places[name], folder)


def _children_first(by_name: Mapping[str, Table], places: Mapping[str, str]) -> list[str]:
    order: dict[str, None] = {}
    for start in by_name:
        path = {start: iter(by_name[start].get("imports", ()))}
        while path:
            name = next(reversed(path))
            child = next(path[name], None)
            if child is None:
                order[name] = None
                del path[name]
            elif child in path:
                cycle = [*list(path)[list(path).index(child) :], child]
                raise InputError(
                    "modules import one another in a circle", where=places[name], actual=" -> ".join(map(shown, cycle))
                )
            elif child not in order:
                path[child] = iter(by_name[child].get("imports", ()))
    return list(order)


def _add_module(package: Package, table: Table, where: str, folder: str) -> None:
    single = {name: table[name] for name in _ALTERNATIVE if name in table}
    alternatives = table.get("alternatives", [single])
    if ("alternatives" in table) == bool(single) or not alternatives:
        raise InputError(
            "a module has alternatives, or itself their keys",
            where=where,
            expected=f"alternatives, or {', '.join(_ALTERNATIVE)}",
            actual=", ".join(table),
        )
    for number, one in enumerate(alternatives):
        place = f"{where}: alternatives[{number}]" if "alternatives" in table else where
        _check_table(one, "alternative", place)
        if ("file" in one) == ("text" in one):
            raise InputError("an alternative has one of the keys file and text", where=place, actual=", ".join(one))
        if "file" in one:
            source = FileSource.of(os.path.join(folder, one["file"]))
            payload: bytes | Extent = Extent(source, 0, source.size)
        else:
            payload = one["text"].encode()
        options = {
            "schema_version": one.get("schema_version", 1),
            "requires": one.get("requires"),
            "alignment": one.get("alignment"),
        }
        with _at(place):
            if number:
                package.add_alternative(table["name"], one["kind"], payload, **options)
            else:
                package.add_module(
                    table["name"],
                    one["kind"],
                    payload,
                    imports=table.get("imports", ()),
                    functions=table.get("functions"),
                    metadata=table.get("metadata"),
                    **options,
                )


@contextmanager
def _at(place: str) -> Iterator[None]:
    """Turn what the Python API says of its arguments into an error of the manifest at `place`."""
    try:
        yield
    except UsageError as error:
        where = f"{place}: {error.where}" if error.where else place
        raise InputError(
            error.what, where=where, expected=error.expected, actual=error.actual, hint=error.hint
        ) from error
