"""String tables: NUL-terminated names, one after the other (ELF, the same in Mach-O, COFF and archives)."""

from __future__ import annotations

from emitter.inspect.view import MAX_READ, MAX_STRING
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from emitter.inspect.view import View

__all__ = ["StringTable"]


class StringTable:
    """The strings of a table: of a small one from memory, of a large one each from the file."""

    def __init__(self, view: View, offset: int, size: int, what: str) -> None:
        view.check(offset, size, what)
        self._view, self._offset, self._size, self._what = view, offset, size, what
        self._data = view.read(offset, size, what) if size <= MAX_READ else b""

    def get(self, offset: int, what: str) -> str:
        """Return the string at `offset` of the table; raise FormatError, naming `what`, where there is none."""
        if offset < len(self._data):
            end = self._data.find(b"\0", offset, offset + MAX_STRING)
            if end >= 0:
                return self._data[offset:end].decode("utf-8", "surrogateescape")
        if not offset and not self._size:
            return ""
        return self._view.string(self._offset + offset, self._offset + self._size, what)
