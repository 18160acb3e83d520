"""The tree of errors and their messages."""

from __future__ import annotations

import pytest

from emitter import errors
from emitter.errors import EmitterError, UsageError, shown


@pytest.mark.parametrize(
    "name", [name for name in errors.__all__ if name not in ("EmitterError", "printable", "shown")]
)
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
        (EmitterError("cannot open", where=""), "'': cannot open"),
    ],
)
def test_a_message_has_its_parts(error: EmitterError, text: str) -> None:
    assert str(error) == text


def test_the_parts_are_the_json() -> None:
    error = errors.InputError("broken", where="a", expected=1, actual=2, hint="mend it")
    assert error.to_json() == {
        "kind": "InputError", "what": "broken", "where": "a", "expected": "1", "actual": "2", "hint": "mend it",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("w", "'w'"),
        ("", "''"),
        ("a\n\x1b", "'a\\n\\x1b'"),
        ("x" * 120, repr("x" * 120)),
        ("x" * 70000, f"{'x' * 120!r}... (70000 in all)"),
        (b"x" * 121, f"{b'x' * 120!r}... (121 in all)"),
        (1 << 300, "an integer of 301 bits"),
        (None, "None"),
        ([1, "a", None], "[1, 'a', None]"),
        ([0] * 65, "a list of 65"),
        (["x" * 120] * 64, f"[{', '.join([repr('x' * 120)] * 64)[:480]}...]"),
        ({"a": 1}, "an object"),
        (object(), "a object"),
    ],
)
def test_a_foreign_value_is_shown_on_one_short_line(value: object, text: str) -> None:
    assert shown(value) == text


def test_a_name_that_is_not_utf8_can_be_printed() -> None:
    error = EmitterError("broken", where="a\udcff")
    assert str(error) == "a\\udcff: broken"
    str(error).encode()


def test_a_part_of_any_length_makes_a_message_that_can_be_read() -> None:
    longest_path = "/" + "d" * 4094
    assert longest_path in str(UsageError("cannot open", where=longest_path))
    for part in ("where", "expected", "actual", "hint"):
        assert len(str(UsageError("what", **{part: "x" * 60_000 + "end"}))) < 600
        assert "end (60003 characters in all)" in str(UsageError("what", **{part: "x" * 60_000 + "end"}))
    assert len(str(UsageError("x" * 60_000))) < 600
    assert UsageError("what", where="x" * 60_000).to_json()["where"] == "x" * 60_000
