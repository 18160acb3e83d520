"""A bound on the names of one file: many entries may share one long string, or its ends, at no cost to the file."""

from __future__ import annotations

from emitter.errors import FormatError
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from emitter.inspect.view import View

__all__ = ["NameBudget"]

_LIMIT = 64 << 20  # characters; the largest programs have some 30 MB of names


class NameBudget:
    """Counts the names that a reader gives away, and raises FormatError where they are too much."""

    def __init__(self, view: View, what: str) -> None:
        self._where, self._what, self._left = view.where, what, _LIMIT

    def take(self, name: str) -> str:
        """Return `name` after counting it."""
        self._left -= len(name)
        if self._left < 0:
            raise FormatError(
                f"{self._what} are too long", where=self._where, expected=f"at most {_LIMIT} characters in all"
            )
        return name
