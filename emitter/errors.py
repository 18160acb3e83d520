"""The one tree of errors.

Every message says what is wrong, where, what was expected, what was found, and what to do about it.
"""

from __future__ import annotations

__all__ = [
    "EmitterError",
    "FormatError",
    "InputError",
    "LayoutError",
    "LoadError",
    "OutputError",
    "TargetError",
    "UsageError",
]


class EmitterError(Exception):
    """Base of every error that this package raises on purpose.

    `what` is one clause; `where` names a file, a tensor or a field (with a byte offset where there is one); `expected`
    and `actual` are values as the user would write them; `hint` says what to do.
    """

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        expected: object = None,
        actual: object = None,
        hint: str | None = None,
    ) -> None:
        self.what = what
        self.where = where
        self.expected = None if expected is None else str(expected)
        self.actual = None if actual is None else str(actual)
        self.hint = hint
        super().__init__(what)

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        if self.expected is not None and self.actual is not None:
            text += f": expected {self.expected}, found {self.actual}"
        elif self.expected is not None:
            text += f": expected {self.expected}"
        elif self.actual is not None:
            text += f": found {self.actual}"
        return f"{text}; {self.hint}" if self.hint else text

    def to_json(self) -> dict[str, str | None]:
        """Return the parts under the keys of the `emitter.error/1` schema."""
        return {
            "kind": type(self).__name__,
            "what": self.what,
            "where": self.where,
            "expected": self.expected,
            "actual": self.actual,
            "hint": self.hint,
        }


class UsageError(EmitterError):
    """Options that contradict each other or that make no sense."""


class InputError(EmitterError):
    """An input file or array that is malformed, unsupported, or changed while it was read."""


class TargetError(EmitterError):
    """A target name that is unknown or ambiguous, or a target that cannot do what was asked."""


class LayoutError(EmitterError):
    """Something that the output format cannot hold: a size, an alignment, a name, a colliding symbol."""


class FormatError(EmitterError):
    """An object, library or pack whose bytes break its own format."""


class LoadError(EmitterError):
    """A library or pack that a loader refuses, or a tensor that it does not hold."""


class OutputError(EmitterError):
    """An output that cannot be written, or that differs from its plan."""
