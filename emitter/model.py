"""The content of an object file, before any format: sections, symbols, and references between sections.

`emitter.symbols` and `emitter.styles` build it; `emitter.splice` lays it out on the stub of a target.
"""

from __future__ import annotations

from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal, TypeAlias

    from emitter.layout import Copy, Piece

__all__ = ["ObjectModel", "Reference", "Section", "Symbol", "TensorSymbol", "Visibility", "Window"]

Visibility: TypeAlias = 'Literal["default", "protected", "hidden"]'


class TensorSymbol(NamedTuple):
    """The symbol `name` for the tensor `tensor`: `size` bytes at `offset` in the pack."""

    name: str
    tensor: str
    offset: int
    size: int


class Section(NamedTuple):
    """An allocated section of `size` bytes.

    Its content is `data`; or else zeros with `copies` and `pieces` (offsets relative to the section; pieces ascend) put
    over them, and `tail` at the very end. With `holds_pack` the copies are a pack's payloads, and its index goes to the
    start of the section. `bulk_offset` is the offset in the section that wants a fast file offset
    (`layout.bulk_alignment`). `large` asks for the target's large-data flags.
    """

    name: str
    kind: Literal["rodata", "data", "note", "directives"]  # directives are COFF's, for the linker
    size: int
    alignment: int
    data: bytes | None = None
    copies: tuple[Copy, ...] = ()
    pieces: tuple[Piece, ...] = ()
    tail: bytes = b""
    holds_pack: bool = False
    bulk_offset: int = 0
    large: bool = False


class Symbol(NamedTuple):
    """A global symbol `value` bytes into section number `section`, or the absolute number `value` if that is None.

    With `retain` linkers keep what it names though nothing refers to it, where the format can say so.
    """

    name: str
    section: int | None
    value: int
    size: int
    type: Literal["object", "notype"] = "object"
    visibility: Visibility = "default"
    retain: bool = False


class Reference(NamedTuple):
    """A field of pointer width at `offset` of section `section`.

    It holds the start of section `to` minus the address of the field itself, and is zero in the section's data: with
    SHT_REL an addend would stand there.
    """

    section: int
    offset: int
    to: int


class Window(NamedTuple):
    """Another name for `size` bytes from `offset` of section number `section`, for tools that look for that name.

    It is a section of its own, which linkers leave out (SHF_EXCLUDE), over bytes that the file holds once.
    """

    name: str
    section: int
    offset: int
    size: int
    alignment: int


class ObjectModel(NamedTuple):
    """Everything that an object file holds beside what its stub says about the target."""

    sections: Sequence[Section]
    symbols: Sequence[Symbol]
    references: Sequence[Reference] = ()
    windows: Sequence[Window] = ()
