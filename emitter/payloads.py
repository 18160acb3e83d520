"""A stable binary form for what authors of external code generators keep as dataclasses: CBOR, from their types.

CBOR is RFC 8949, written in its deterministic encoding (section 4.2.1) by the package cbor2, which `pip install cbor2`,
or the extra `payloads`, brings. A dataclass is a map from the names of its fields to their values. A reader skips
fields that it does not know, and gives missing ones their defaults: within one schema version a field with a default
can be added, or one taken away. Whatever else changes is a new version, with a step that leads to it from the old one
(`emitter.loaders.module_upgrade`). docs/external-codegen.md has an example of all of it.

The types of fields, and what they are in CBOR:

    bool                        true, false
    int                         an integer, -2^63 to 2^64 - 1
    float                       a floating-point number; an int is taken for one when it is written
    str, TensorRef              a text string
    bytes                       a byte string
    list[T], tuple[T, ...]      an array
    dict[str, T]                a map
    T | None                    null, or as T
    a dataclass                 a map; fields with init=False are left out
"""

from __future__ import annotations

import dataclasses
import io
import types
import typing

from emitter.errors import FormatError, UsageError, shown

if typing.TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, NoReturn

    T = typing.TypeVar("T")
    Convert = Callable[[Any], Any]

__all__ = ["MAX_DEPTH", "MAX_SIZE", "TensorRef", "decode", "encode", "tensor_names"]

MAX_DEPTH = 64  # arrays, maps and dataclasses within one another
MAX_SIZE = 16 << 20  # bytes of a payload: what is larger is a constant, and belongs in a tensor

_INTEGERS = range(-(1 << 63), 1 << 64)


@dataclasses.dataclass(frozen=True)
class TensorRef:
    """A tensor of the package, by name: a payload refers to constants, and does not hold them."""

    name: str


def encode(value: object) -> bytes:
    """Return the bytes of a dataclass: the same for equal values, on every machine.

    Raises UsageError for a value that is not of its field's type, a type that has no form here, and for more than
    MAX_SIZE bytes or MAX_DEPTH levels.
    """
    cbor2 = _cbor2()
    where = type(value).__name__
    codec = _dataclass_codec(type(value))
    try:
        data: bytes = cbor2.dumps(codec.write(value), canonical=True)
        if len(data) <= MAX_SIZE:
            cbor2.loads(data, max_depth=MAX_DEPTH)
    except _MismatchError as mismatch:
        mismatch.raise_as(UsageError, where)
    except (cbor2.CBORError, RecursionError) as error:
        raise UsageError("the value is nested too deeply", where=where, expected=f"{MAX_DEPTH} levels") from error
    if len(data) > MAX_SIZE:
        raise UsageError(
            "the payload is too long",
            where=where,
            expected=f"at most {MAX_SIZE} bytes",
            actual=len(data),
            hint="put constants into tensors of the package, and refer to them by TensorRef",
        )
    return data


def decode(kind: type[T], data: bytes | bytearray | memoryview) -> T:
    """Return the dataclass `kind` that `data` holds.

    Raises FormatError for bytes that hold none: no CBOR, a value that is not of its field's type, a missing field that
    has no default, a tag, an indefinite length, a key that stands twice, a ValueError from `__post_init__`, bytes that
    are left over, more than MAX_SIZE bytes or MAX_DEPTH levels. Raises UsageError for a type that has no form here, and
    for what is no bytes.
    """
    cbor2 = _cbor2()
    codec = _dataclass_codec(kind)
    where = kind.__name__
    try:
        size = memoryview(data).nbytes
    except TypeError as error:
        raise UsageError("this is not a payload", where=where, expected="bytes", actual=type(data).__name__) from error
    if size > MAX_SIZE:
        raise FormatError("the payload is too long", where=where, expected=f"at most {MAX_SIZE} bytes", actual=size)
    stream = io.BytesIO(data)
    try:
        tree = cbor2.CBORDecoder(
            stream,
            semantic_decoders=_NoTags(),
            max_depth=MAX_DEPTH,
            allow_indefinite=False,
            allow_duplicate_keys=False,
        ).decode()
    except (cbor2.CBORError, ValueError, TypeError, ArithmeticError, RecursionError) as error:
        raise FormatError(f"the payload is not CBOR of this form: {error.__cause__ or error}", where=where) from error
    if stream.read(1):
        raise FormatError("bytes are left over behind the payload", where=where, expected=f"{size} bytes in all")
    try:
        return typing.cast("T", codec.read(tree))
    except _MismatchError as mismatch:
        mismatch.raise_as(FormatError, where)


def tensor_names(value: object) -> list[str]:
    """Return the names of the tensors that a dataclass refers to, each once: what a function of its module takes.

    They come in the order of the fields, and in a dict in the order of its items. Raises UsageError as `encode` does.
    """
    encode(value)
    found: dict[str, None] = {}
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, TensorRef):
            found[one.name] = None
        elif dataclasses.is_dataclass(one):
            waiting += reversed([getattr(one, field.name) for field in dataclasses.fields(one) if field.init])
        elif isinstance(one, (list, tuple, dict)):
            waiting += reversed(list(one.values() if isinstance(one, dict) else one))
    return list(found)


class _MismatchError(Exception):
    """A value that is not of its type; `path` leads to it, from the inside outwards."""

    def __init__(self, expected: str, value: object, what: str = "the value is of another type") -> None:
        super().__init__(expected)
        self.what = what
        self.expected = expected
        self.actual = shown(value)
        self.path: list[str] = []

    def raise_as(self, error: type[FormatError | UsageError], where: str) -> NoReturn:
        where += "".join(reversed(self.path))
        raise error(self.what, where=where, expected=self.expected, actual=self.actual) from self


class _Codec:
    """How values of one type become what cbor2 writes (`write`), and back (`read`); both raise _MismatchError."""

    __slots__ = ("read", "write")

    def __init__(self, write: Convert, read: Convert) -> None:
        self.write = write
        self.read = read


class _NoTags(dict):  # type: ignore[type-arg]  # of a tag's number, to what refuses it
    """Decoders of tags by number, for cbor2: each is refused, for a tag may ask for much memory, or for code."""

    def __missing__(self, number: int) -> Convert:
        def refuse(*_: object) -> NoReturn:
            raise ValueError(f"tag {number} is not one of a payload")

        return refuse


def _cbor2() -> Any:
    try:
        import cbor2
    except ImportError as error:
        raise UsageError("payloads from dataclasses need the package cbor2", hint="pip install cbor2") from error
    return cbor2


def _exactly(kind: type, expected: str, *, fits: Callable[[Any], bool] = lambda _: True) -> Convert:
    def check(value: object) -> object:
        if type(value) is not kind or not fits(value):
            raise _MismatchError(expected, value)
        return value

    return check


def _is_utf8(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _write_float(value: object) -> float:
    if type(value) is int and abs(value) <= 1 << 53:  # each of these is a float exactly
        return float(value)
    if type(value) is not float:
        raise _MismatchError("a float", value)
    return value


def _write_reference(value: object) -> object:
    if not isinstance(value, TensorRef) or type(value.name) is not str or not value.name or not _is_utf8(value.name):
        raise _MismatchError("a TensorRef with the name of a tensor", value)
    return value.name


def _read_reference(value: object) -> TensorRef:
    if type(value) is not str or not value:
        raise _MismatchError("the name of a tensor", value)
    return TensorRef(value)


_INT = _exactly(int, "an integer, -2^63 to 2^64 - 1", fits=_INTEGERS.__contains__)
_TEXT = _exactly(str, "text (UTF-8)", fits=_is_utf8)
_BOOL = _exactly(bool, "true or false")
_BYTES = _exactly(bytes, "bytes")
_SCALARS: Mapping[object, _Codec] = {
    bool: _Codec(_BOOL, _BOOL),
    int: _Codec(_INT, _INT),
    float: _Codec(_write_float, _exactly(float, "a floating-point number")),
    str: _Codec(_TEXT, _TEXT),
    bytes: _Codec(_BYTES, _BYTES),
    TensorRef: _Codec(_write_reference, _read_reference),
}


def _array(item: Convert, given: tuple[type, ...], made: type) -> Convert:
    def convert(value: Any) -> object:
        if type(value) not in given:
            raise _MismatchError("a list", value)
        done = []
        try:
            for element in value:
                done.append(item(element))  # noqa: PERF401 - how far it came is where the fault is
        except _MismatchError as mismatch:
            mismatch.path.append(f"[{len(done)}]")
            raise
        return made(done)

    return convert


def _map(item: Convert) -> Convert:
    def convert(value: object) -> object:
        if type(value) is not dict:
            raise _MismatchError("a dict with keys of text", value)
        done, key = {}, ""
        try:
            for key, element in value.items():
                done[_TEXT(key)] = item(element)
        except _MismatchError as mismatch:
            mismatch.path.append(f"[{shown(key)}]")
            raise
        return done

    return convert


def _optional(item: Convert) -> Convert:
    return lambda value: None if value is None else item(value)


def _codec(hint: object, where: str) -> _Codec:
    """Return the codec of an annotation; raise UsageError for one that has no form."""
    scalar = _SCALARS.get(hint) if isinstance(hint, type) else None
    if scalar is not None:
        return scalar
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType) and len(arguments) == 2 and type(None) in arguments:
        inner = _codec(next(one for one in arguments if one is not type(None)), where)
        return _Codec(_optional(inner.write), _optional(inner.read))
    if (origin is list and len(arguments) == 1) or (origin is tuple and arguments[1:] == (...,)):
        inner = _codec(arguments[0], where)
        return _Codec(_array(inner.write, (list, tuple), list), _array(inner.read, (list,), origin))
    if origin is dict and arguments[0] is str:
        inner = _codec(arguments[1], where)
        return _Codec(_map(inner.write), _map(inner.read))
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        # Looked up when it is used: a dataclass may hold others of its own type.
        return _Codec(
            lambda value: _dataclass_codec(hint).write(value),
            lambda value: _dataclass_codec(hint).read(value),
        )
    raise UsageError(
        "values of this type have no form in a payload",
        where=where,
        expected="bool, int, float, str, bytes, TensorRef, list[T], tuple[T, ...], dict[str, T], T | None, a dataclass",
        actual=getattr(hint, "__name__", None) if isinstance(hint, type) else shown(str(hint)),
    )


_CODECS: dict[type, _Codec] = {}


def _dataclass_codec(kind: type) -> _Codec:
    """Return the codec of a dataclass; raise UsageError if it is none, or a field has no form."""
    codec = _CODECS.get(kind) if isinstance(kind, type) else None
    if codec is None:
        codec = _CODECS[kind] = _make_codec(kind)
    return codec


def _make_codec(kind: type) -> _Codec:
    name = getattr(kind, "__name__", "?")
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise UsageError("a payload is a dataclass", actual=name)
    try:
        hints = typing.get_type_hints(kind)
    except (NameError, TypeError) as error:
        hint = "define what it refers to where the module's names are"
        raise UsageError(f"the types of its fields cannot be found: {error}", where=name, hint=hint) from error
    for field, annotation in hints.items():
        if isinstance(annotation, dataclasses.InitVar):
            raise UsageError("what is no field of the dataclass has no form in a payload", where=f"{name}.{field}")
    fields = {one.name: _codec(hints[one.name], f"{name}.{one.name}") for one in dataclasses.fields(kind) if one.init}
    required = {
        one.name
        for one in dataclasses.fields(kind)
        if one.init and one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
    }

    def write(value: object) -> object:
        if type(value) is not kind:
            raise _MismatchError(f"a {name}", value)
        done, field = {}, ""
        try:
            for field, codec in fields.items():
                done[field] = codec.write(getattr(value, field))
        except _MismatchError as mismatch:
            mismatch.path.append(f".{field}")
            raise
        return done

    def read(value: object) -> object:
        if type(value) is not dict:
            raise _MismatchError(f"a map: a {name}", value)
        missing = required - value.keys()
        if missing:
            raise _MismatchError(", ".join(sorted(required)), sorted(value.keys() & required), "fields are missing")
        done, field = {}, ""
        try:
            for field, codec in fields.items():
                if field in value:
                    done[field] = codec.read(value[field])
        except _MismatchError as mismatch:
            mismatch.path.append(f".{field}")
            raise
        try:
            return kind(**done)
        except ValueError as error:  # of __post_init__
            raise _MismatchError(f"a {name}", str(error), "the values do not belong together") from error

    return _Codec(write, read)
