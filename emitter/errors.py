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
    "printable",
    "shown",
]

_SHOWN = 120  # characters of a foreign value in a message
_SHOWN_ITEMS = 64
_SHOWN_PART = 4200  # characters of a part of a message: the longest path (PATH_MAX, 4096), and what is said of it


def printable(text: str) -> str:
    """Return `text` without control characters: a name from a hostile file must not drive the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii") for c in text)


def shown(value: object) -> str:
    """Return a value that somebody else chose as a message shows it: short, on one line, whatever it is."""
    if isinstance(value, (str, bytes)):
        return repr(value) if len(value) <= _SHOWN else f"{value[:_SHOWN]!r}... ({len(value)} in all)"
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"  # Python refuses to print long ones
    if value is None or isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        if len(value) <= _SHOWN_ITEMS and all(item is None or isinstance(item, (int, str, float)) for item in value):
            text = ", ".join(shown(item) for item in value)
            return f"[{text}]" if len(text) <= 4 * _SHOWN else f"[{text[: 4 * _SHOWN]}...]"
        return f"a list of {len(value)}"
    return "an object" if isinstance(value, dict) else f"a {type(value).__name__}"


def _clipped(text: str | None) -> str | None:
    """Return a part of a message without its middle, where it is longer than any that helps: an argument, a name."""
    if text is None or len(text) <= _SHOWN_PART:
        return text
    return f"{text[:_SHOWN]} ... {text[-_SHOWN:]} ({len(text)} characters in all)"


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
        # An empty path or name is shown too: '' says what is wrong with it.
        what, where, expected, actual, hint = map(
            _clipped, (self.what, self.where, self.expected, self.actual, self.hint)
        )
        text = what or ""
        text = text if where is None else f"{where or repr('')}: {text}"
        if expected is not None and actual is not None:
            text += f": expected {expected}, found {actual}"
        elif expected is not None:
            text += f": expected {expected}"
        elif actual is not None:
            text += f": found {actual}"
        text = f"{text}; {hint}" if hint else text
        # Names that are not UTF-8 hold surrogates, which cannot be printed.
        return text.encode(errors="backslashreplace").decode()

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
