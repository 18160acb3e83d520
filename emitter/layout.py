"""The plan of an output file: every offset and size, before a byte is written.

The writers of each format (`emitter.image`, `emitter.splice`) return a `FilePlan`; `emitter.driver` carries it out.
"""

from __future__ import annotations

from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emitter.package import Extent

__all__ = ["BUILD_ID_SIZE", "BULK_ALIGNMENTS", "Copy", "FilePlan", "Piece", "align_up", "bulk_alignment", "identifier"]

# File offsets at which copying is fast: (payload bytes from which it is worth the padding, alignment). An optimisation
# only: strip and `ld -r` move the payload, and no reader relies on it.
BULK_ALIGNMENTS = ((64 << 20, 2 << 20), (1 << 20, 64 << 10))

BUILD_ID_SIZE = 20


def align_up(value: int, alignment: int) -> int:
    """Return the smallest multiple of `alignment` (a power of two) that is not below `value`."""
    return (value + alignment - 1) & -alignment


def bulk_alignment(size: int) -> int:
    """Return the file alignment that is wanted for `size` bytes of payload; 1 for small ones."""
    for threshold, alignment in BULK_ALIGNMENTS:
        if size >= threshold:
            return alignment
    return 1


def identifier(text: str) -> str:
    """Return `text` as a C identifier: every other character becomes `_`, and a leading digit gets one before it."""
    name = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in text) or "_"
    return f"_{name}" if name[0].isdigit() else name


class Piece(NamedTuple):
    """Bytes at a file offset that are known when the file is planned."""

    offset: int
    data: bytes


class Copy(NamedTuple):
    """A payload on its way: `size` bytes at the file offset `offset`, made from an extent.

    `swap_unit` is the bytes that change places within each unit, 1 for none. `shape` and `item_bits` describe the
    elements for a transposition.
    """

    offset: int
    size: int
    extent: Extent
    swap_unit: int
    shape: tuple[int, ...]
    item_bits: int

    def moved(self, distance: int) -> Copy:
        """Return the same copy at a file offset that is `distance` bytes larger."""
        return Copy(self.offset + distance, *self[1:])


class FilePlan(NamedTuple):
    """All offsets of an output file.

    `pieces` are ascending; pieces, the index and the copies do not overlap; what none of them covers is zero.
    `pack_offset` is where the pack's index goes, when its checksums are known; None if the file holds no pack.
    `build_id_offset` is where the build id goes, inside one of the pieces; None if there is none. It is the first
    `BUILD_ID_SIZE` bytes of the SHA-256 of: the data of each piece, in order, with zero bytes in place of the build id;
    then the index with its checksums, where each payload is represented by its size and CRC-32C.
    """

    size: int
    pieces: Sequence[Piece]
    copies: Sequence[Copy]
    pack_offset: int | None = None
    build_id_offset: int | None = None
