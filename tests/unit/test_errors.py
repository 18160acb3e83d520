"""The tree of errors and their messages."""

from __future__ import annotations

import pytest

from emitter import errors
from emitter.errors import EmitterError


@pytest.mark.parametrize("name", [name for name in errors.__all__ if name != "EmitterError"])
def test_every_error_is_in_the_tree(name: str) -> None:
    assert issubclass(getattr(errors, name), EmitterError)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (EmitterError("broken"), "broken"),
        (EmitterError("broken", where="a.so"), "a.so: broken"),
        (EmitterError("broken", expected=1, actual=2), "broken: expected 1, found 2"),
        (EmitterError("broken", expected=1), "broken: expected 1"),
        (EmitterError("broken", actual=0, hint="mend it"), "broken: found 0; mend it"),
    ],
)
def test_a_message_has_its_parts(error: EmitterError, text: str) -> None:
    assert str(error) == text


def test_the_parts_are_the_json() -> None:
    error = errors.InputError("broken", where="a", expected=1, actual=2, hint="mend it")
    assert error.to_json() == {
        "kind": "InputError", "what": "broken", "where": "a", "expected": "1", "actual": "2", "hint": "mend it",
    }  # fmt: skip
