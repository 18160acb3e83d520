"""Named tuples of our own behave as those of `typing`."""

from __future__ import annotations

import copy
import pickle
import typing

import pytest

from emitter.records import NamedTuple


class Ours(NamedTuple):
    """Three fields, one with a default."""

    first: int
    second: str
    third: tuple[int, ...] = (7,)

    @property
    def doubled(self) -> int:
        """Twice the first."""
        return 2 * self.first

    @classmethod
    def of(cls, value: int) -> Ours:
        return cls(value, "of")


class Theirs(typing.NamedTuple):
    """Three fields, one with a default."""

    first: int
    second: str
    third: tuple[int, ...] = (7,)

    @property
    def doubled(self) -> int:
        """Twice the first."""
        return 2 * self.first


CALLS: list[tuple[tuple[typing.Any, ...], dict[str, typing.Any]]] = [
    ((1, "x"), {}),
    ((1, "x", (2,)), {}),
    ((1,), {"second": "x"}),
    ((), {"third": (), "second": "x", "first": 1}),
]


@pytest.mark.parametrize(("values", "named"), CALLS)
def test_instances_are_the_same(values: tuple[typing.Any, ...], named: dict[str, typing.Any]) -> None:
    ours, theirs = Ours(*values, **named), Theirs(*values, **named)
    assert tuple(ours) == tuple(theirs)
    assert repr(ours).replace("Ours", "Theirs") == repr(theirs)
    assert ours._asdict() == theirs._asdict()
    assert tuple(ours._replace(first=9)) == tuple(theirs._replace(first=9))
    assert (ours.first, ours.second, ours.third, ours.doubled) == (
        theirs.first,
        theirs.second,
        theirs.third,
        theirs.doubled,
    )
    assert hash(ours) == hash(theirs)
    assert isinstance(ours, tuple)
    assert pickle.loads(pickle.dumps(ours)) == ours  # noqa: S301 - our own bytes
    assert type(copy.copy(ours)) is Ours


def test_classes_are_the_same() -> None:
    assert Ours._fields == Theirs._fields
    assert Ours._field_defaults == Theirs._field_defaults
    assert Ours.__match_args__ == Theirs.__match_args__
    assert Ours.__doc__ == Theirs.__doc__
    assert Ours._make([1, "x", ()]) == Ours(1, "x", ())
    assert Ours.of(3) == (3, "of", (7,))
    assert not hasattr(Ours(1, "x"), "__dict__")


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ((), {}),
        ((1,), {}),
        ((1, "x", (), 4), {}),
        ((1, "x"), {"first": 2}),
        ((1, "x"), {"fourth": 2}),
        ((), {"first": 1}),
    ],
)
def test_what_they_refuse_is_refused(values: tuple[typing.Any, ...], named: dict[str, typing.Any]) -> None:
    for record in (Ours, Theirs):
        with pytest.raises(TypeError):
            record(*values, **named)
    with pytest.raises((TypeError, ValueError)):
        Ours(1, "x")._replace(fourth=1)  # type: ignore[call-arg] # on purpose


def test_fields_cannot_be_set() -> None:
    with pytest.raises(AttributeError):
        Ours(1, "x").first = 2  # type: ignore[misc] # on purpose


def test_a_default_before_a_field_without_one_is_refused() -> None:
    with pytest.raises(TypeError, match="without a default"):

        class Wrong(NamedTuple):
            first: int = 0
            second: str  # type: ignore[misc] # on purpose
