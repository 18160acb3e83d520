"""The plan of an output file: every offset and size, before a byte is written.

The writers of each format (`emitter.image`, `emitter.splice`) return a `FilePlan`; `emitter.driver` carries it out.
"""

from __future__ import annotations

from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emitter.package import Extent
    from emitter.targets._base import Target

__all__ = [
    "BUILD_ID_SIZE",
    "BULK_ALIGNMENTS",
    "HASH_SIZE",
    "UUID_SIZE",
    "Copy",
    "FilePlan",
    "PageHashes",
    "Piece",
    "Slice",
    "align_up",
    "bulk_alignment",
    "identifier",
]

# File offsets at which copying is fast: (payload bytes from which it is worth the padding, alignment). An optimisation
# only: strip and `ld -r` move the payload, and no reader relies on it.
BULK_ALIGNMENTS = ((64 << 20, 2 << 20), (1 << 20, 64 << 10))

BUILD_ID_SIZE = 20
UUID_SIZE = 16

HASH_SIZE = 32  # bytes of a SHA-256


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


class PageHashes(NamedTuple):
    """A table of the SHA-256 of every page of a range, and an identity made of it: what a Mach-O signature holds.

    The pages, of `page` bytes, begin at `start` and cover `size` bytes, the last as far as it goes; the table stands at
    `table`, outside the range. The UUID at `uuid`, inside the range and zero at first, is made of the table of that
    time; then the pages that hold it are hashed again. All are file offsets.
    """

    start: int
    size: int
    page: int
    table: int
    uuid: int

    def moved(self, distance: int) -> PageHashes:
        """Return the same at file offsets that are `distance` bytes larger."""
        return PageHashes(self.start + distance, self.size, self.page, self.table + distance, self.uuid + distance)


class Slice(NamedTuple):
    """One of the files in a universal file: its file offset, its target, and its plan, relative to its own start."""

    offset: int
    target: Target
    plan: FilePlan


class FilePlan(NamedTuple):
    """All offsets of an output file.

    `pieces` are ascending; pieces, the index and the copies do not overlap; what none of them covers is zero.
    `pack_offset` is where the pack's index goes, when its checksums are known; None if the file holds no pack.
    `build_id_offset` is where the build id goes, inside one of the pieces; None if there is none. It is the first
    `BUILD_ID_SIZE` bytes of the SHA-256 of: the data of each piece, in order, with zero bytes in place of the build id;
    then the index with its checksums, where each payload is represented by its size and CRC-32C.
    `page_hashes` are written last. A universal file has `slices`, ascending; pieces, copies and page hashes are those
    of all of them, the copies slice by slice, each with the whole payload; `pack_offset` is that of the first.
    `compiled` says that LLVM made the object in it, with code and relocations: its bytes are what can be checked.
    """

    size: int
    pieces: Sequence[Piece]
    copies: Sequence[Copy]
    pack_offset: int | None = None
    build_id_offset: int | None = None
    page_hashes: Sequence[PageHashes] = ()
    slices: Sequence[Slice] = ()
    compiled: bool = False

    @property
    def pack_offsets(self) -> list[int]:
        """The file offset of the pack in each slice, or of the only one; empty if the file holds none."""
        parts = [(one.offset, one.plan) for one in self.slices] or [(0, self)]
        return [at + plan.pack_offset for at, plan in parts if plan.pack_offset is not None]
