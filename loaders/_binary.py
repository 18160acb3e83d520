"""What the readers of object files and images share: records at offsets, and packs at the start of a section."""

from __future__ import annotations

import struct

from emitter.errors import FormatError, LoadError
from emitter.loaders._header import read_header
from emitter.pack import format as fmt
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Binary"]

_LARGEST_GAP = fmt.MAX_ALIGNMENT  # bytes between two packs of one section


class Binary:
    """A file whose numbers have one byte order: `order` is struct's `<` or `>`."""

    def __init__(self, data: memoryview, where: str, order: str) -> None:
        self.data, self.where, self.order = data, where, order

    def truncated(self, what: str, expected: int) -> LoadError:
        """Return the error of a file that ends before `expected` bytes, in the midst of `what`."""
        return LoadError(
            f"the file is truncated: {what} ends behind it",
            where=self.where,
            expected=f"at least {expected} bytes",
            actual=len(self.data),
            hint="copy or emit the file again",
        )

    def check_range(self, offset: int, size: int, what: str) -> None:
        """Raise LoadError if `size` bytes from `offset` are not all in the file."""
        if offset + size > len(self.data):
            raise self.truncated(what, offset + size)

    def unpack(self, form: str, offset: int, what: str) -> tuple[int, ...]:
        """Return the fields of the record `form` (struct's, without byte order) at `offset`."""
        record = struct.Struct(self.order + form)
        self.check_range(offset, record.size, what)
        return record.unpack_from(self.data, offset)

    def table(self, form: str, offset: int, entry_size: int, count: int, what: str) -> Iterator[tuple[int, ...]]:
        """Yield the fields of each record of a table, `entry_size` bytes apart."""
        record = struct.Struct(self.order + form)
        if count and entry_size < record.size:
            raise FormatError(
                f"the entry size of {what} is wrong", where=self.where, expected=record.size, actual=entry_size
            )
        end = offset + count * entry_size
        self.check_range(offset, count * entry_size, what)
        return (record.unpack_from(self.data, position) for position in range(offset, end, entry_size or 1))

    def packs_of_section(self, offset: int, size: int, what: str) -> Iterator[tuple[int, int]]:
        """Yield (offset, size) of each pack in a section that begins with one.

        Linkers join sections of one name: behind a pack and the zeros that align, there may be the next.
        """
        end = offset + size
        while self.data[offset : min(offset + len(fmt.MAGIC), end)] == fmt.MAGIC:
            total_size = read_header(self.data[offset:end], f"{self.where}: {what}").total_size
            yield offset, total_size
            offset += total_size
            gap = bytes(self.data[offset : min(offset + _LARGEST_GAP, end)])
            offset += len(gap) - len(gap.lstrip(b"\0"))
