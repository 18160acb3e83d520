"""Named tuples that cost next to nothing to define.

Most of what a small job costs is starting. `typing` takes 4 ms to import, and each named tuple 0.2 ms, since its
`__new__` is compiled from text; this package defines forty. To a type checker `NamedTuple` here is `typing.NamedTuple`.
At run time it is made of properties alone: 0.03 ms a class, and instances as fast.
"""

from __future__ import annotations

from operator import itemgetter

__all__ = ["TYPE_CHECKING", "NamedTuple"]

# Type checkers take a variable of this name for true, wherever it comes from.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import NamedTuple
else:

    class _RecordType(type):
        """Makes a subclass of tuple of each class whose annotations are fields."""

        def __new__(mcs, name, bases, namespace):
            fields = tuple(namespace.get("__annotations__", ()))
            defaults = {field: namespace.pop(field) for field in fields if field in namespace}
            if any(field not in defaults for field in fields[len(fields) - len(defaults) :]):
                msg = f"{name}: a field without a default follows one with a default"
                raise TypeError(msg)
            namespace |= {field: property(itemgetter(number)) for number, field in enumerate(fields)}
            namespace |= {"__slots__": (), "__match_args__": fields, "_fields": fields, "_field_defaults": defaults}
            return super().__new__(mcs, name, (_Record,) if bases else (tuple,), namespace)

    class _Record(metaclass=_RecordType):
        def __new__(cls, *values, **named):
            fields = cls._fields
            if len(values) != len(fields) or named:
                given = dict(zip(fields, values))  # noqa: B905 - too many values are refused below
                if len(values) > len(fields) or given.keys() & named.keys() or named.keys() - set(fields):
                    msg = f"{cls.__name__} takes {', '.join(fields)}; found {len(values)} values and {', '.join(named)}"
                    raise TypeError(msg)
                given = {**cls._field_defaults, **given, **named}
                missing = [field for field in fields if field not in given]
                if missing:
                    msg = f"{cls.__name__} lacks {', '.join(missing)}"
                    raise TypeError(msg)
                values = [given[field] for field in fields]
            return tuple.__new__(cls, values)

        @classmethod
        def _make(cls, values):
            return cls(*values)

        def _replace(self, **named):
            return type(self)(**{**self._asdict(), **named})

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self):
            return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self._asdict().items())})"

        def __getnewargs__(self):
            return tuple(self)

    class NamedTuple(metaclass=_RecordType):
        """A tuple whose elements have names: the annotations of the class, in order, with their defaults."""
