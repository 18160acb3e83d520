"""What goes into the file of an object or an archive, gathered while its layout is fixed."""

from __future__ import annotations

from emitter.errors import LayoutError
from emitter.layout import Piece
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from emitter.layout import Copy, FilePlan
    from emitter.model import Section

__all__ = ["Contents"]


class Contents:
    """Pieces, copies and the place of the pack, as a `FilePlan` has them."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.copies: list[Copy] = []
        self.pack_offset: int | None = None

    def add_section(self, section: Section, offset: int) -> None:
        """Take in what a section holds, which begins at the file offset `offset`."""
        if section.data:
            self.pieces.append(Piece(offset, section.data))
        self.pieces += (Piece(offset + piece.offset, piece.data) for piece in section.pieces)
        if section.tail:
            self.pieces.append(Piece(offset + section.size - len(section.tail), section.tail))
        self.copies += (copy.moved(offset) for copy in section.copies)
        if section.holds_pack:
            self.pack_offset = offset

    def add_member(self, plan: FilePlan, offset: int) -> None:
        """Take in a member of an archive, which begins at the offset `offset`; raise LayoutError for a second pack."""
        self.pieces += (Piece(offset + piece.offset, piece.data) for piece in plan.pieces)
        self.copies += (copy.moved(offset) for copy in plan.copies)
        if plan.pack_offset is None:
            return
        if self.pack_offset is not None:
            raise LayoutError(
                "an archive holds one pack", actual="two members with a pack each", hint="write two archives"
            )
        self.pack_offset = offset + plan.pack_offset
