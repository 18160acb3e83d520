"""The symbol styles: objects that stand in for those of `ld -r -b binary`, incbin.h and `xxd -i`.

docs/symbols.md says what the original tools make, `STYLES` is its table. A program that was written for the original
links with ours, unchanged. What a style cannot express is refused.
"""

from __future__ import annotations

import os
import string
from struct import pack

from emitter.errors import LayoutError, shown
from emitter.layout import Copy, align_up, identifier
from emitter.model import ObjectModel, Section, Symbol, TensorSymbol
from emitter.pack.plan import DEFAULT_ALIGNMENT
from emitter.records import TYPE_CHECKING, NamedTuple
from emitter.symbols import check_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Literal

    from emitter.model import Visibility
    from emitter.options import Style
    from emitter.package import Tensor
    from emitter.targets._base import Target

__all__ = ["STYLES", "data_symbols", "style_model", "style_name"]

_ALPHANUMERIC = frozenset((string.ascii_letters + string.digits).encode())
_U32_MAX = 0xFFFFFFFF


class SymbolRow(NamedTuple):
    """One symbol of a style, for a blob called N of n bytes, aligned to a.

    `place` is where it points: "data" to the blob, "end" behind it, "size" to a 32-bit number n behind that, "absolute"
    nowhere, its value being n. `sized` says whether st_size is that of the thing (else 0).
    """

    name: str  # a format: {} is N
    place: Literal["data", "end", "size", "absolute"]
    type: Literal["object", "notype"]
    sized: bool


class StyleRow(NamedTuple):
    """What one tool makes of a blob."""

    tool: str
    section: str
    kind: Literal["rodata", "data"]
    alignment: int  # the least that the original gives on any target we have; ours is at least this
    digit_prefix: str  # put before a name that begins with a digit
    end_byte: bytes  # what the original has behind the blob
    size_alignment: int | None  # of the 32-bit size; None: as the blob
    symbols: tuple[SymbolRow, ...]

    @property
    def has_size_word(self) -> bool:
        """Whether the size is stored as a 32-bit number."""
        return any(row.place == "size" for row in self.symbols)


STYLES: dict[Style, StyleRow] = {
    "ld": StyleRow(
        tool="ld -r -b binary",
        section=".data",
        kind="data",
        alignment=1,
        digit_prefix="",
        end_byte=b"",
        size_alignment=1,
        symbols=(
            SymbolRow("_binary_{}_start", "data", "notype", False),
            SymbolRow("_binary_{}_end", "end", "notype", False),
            SymbolRow("_binary_{}_size", "absolute", "notype", False),
        ),
    ),
    "incbin": StyleRow(
        tool="incbin.h",
        section=".rodata",
        kind="rodata",
        alignment=16,
        digit_prefix="",
        end_byte=b"\1",
        size_alignment=None,
        symbols=(
            SymbolRow("g{}Data", "data", "object", False),
            SymbolRow("g{}End", "end", "object", False),
            SymbolRow("g{}Size", "size", "object", False),
        ),
    ),
    "xxd": StyleRow(
        tool="xxd -i",
        section=".data",
        kind="data",
        alignment=1,
        digit_prefix="__",
        end_byte=b"",
        size_alignment=4,
        symbols=(
            SymbolRow("{}", "data", "object", True),
            SymbolRow("{}_len", "size", "object", True),
        ),
    ),
}

# A name that the linkers of Windows give a meaning, for one that they give none.
_COFF_SECTIONS = {".rodata": ".rdata"}


def style_name(style: Style, path: str) -> str:
    """Return what the style's tool makes of `path`, as typed: every byte but ASCII letters and digits becomes `_`.

    incbin.h takes a name and no path, so a name is made of it as elsewhere: `emitter.layout.identifier`.
    """
    if style == "incbin":
        return identifier(path)
    name = bytes(byte if byte in _ALPHANUMERIC else 0x5F for byte in os.fsencode(path)).decode()
    return STYLES[style].digit_prefix + name if name[:1].isdigit() else name


def data_symbols(style: Style, tensors: Iterable[Tensor]) -> list[TensorSymbol]:
    """Return the symbol at the first byte of each tensor, which is the only thing in its section."""
    first = next(row.name for row in STYLES[style].symbols if row.place == "data")
    return [
        TensorSymbol(first.format(style_name(style, tensor.name)), tensor.name, 0, tensor.nbytes) for tensor in tensors
    ]


def style_model(
    target: Target,
    style: Style,
    tensors: Sequence[Tensor],
    *,
    alignment: int = DEFAULT_ALIGNMENT,
    visibility: Visibility = "default",
) -> ObjectModel:
    """Return an object with the symbols of `style` for each tensor.

    They are made of its name: the path as typed, or the name given to it. Each blob has a section of its own, so that
    --gc-sections takes them one by one; all have the name that the original uses. `alignment` is in bytes. Raises
    LayoutError for colliding names, and for sizes that the style's types cannot hold.
    """
    row = STYLES[style]
    sections: list[Section] = []
    symbols: list[Symbol] = []
    sources: list[tuple[str, str]] = []
    order = "<" if target.byte_order == "little" else ">"
    for tensor in tensors:
        size = tensor.nbytes
        limit = _U32_MAX if row.has_size_word else (1 << target.pointer_width) - 1
        if size > limit:
            raise LayoutError(
                f"too large for the symbols of {row.tool}",
                where=f"tensor {shown(tensor.name)}",
                expected=f"at most {limit} bytes",
                actual=size,
                hint="leave out --symbols, or use --symbols ld on a 64-bit target" if row.has_size_word else "split it",
            )
        aligned = max(tensor.alignment or alignment, row.alignment)
        at_word = align_up(size + len(row.end_byte), row.size_alignment or aligned)
        word = pack(f"{order}I", size) if row.has_size_word else b""
        swap_unit = tensor.swap_unit(target.byte_order)
        tail = (row.end_byte.ljust(at_word - size, b"\0") if row.has_size_word else row.end_byte) + word
        name = style_name(style, tensor.name)
        for symbol in row.symbols:
            value, extent = {
                "data": (0, size),
                "end": (size, len(row.end_byte)),
                "size": (at_word, len(word)),
                "absolute": (size, 0),
            }[symbol.place]
            final = symbol.name.format(name)
            if style == "ld" and target.object_format == "coff":
                final = final.removeprefix(target.symbol_prefix)  # the original has no `_` more, where C puts one
            sources.append((final, shown(tensor.name)))
            symbols.append(
                Symbol(
                    name=final,
                    section=None if symbol.place == "absolute" else len(sections),
                    value=value,
                    size=extent if symbol.sized else 0,
                    type=symbol.type,
                    visibility=visibility,
                )
            )
        sections.append(
            Section(
                name=_COFF_SECTIONS.get(row.section, row.section) if target.object_format == "coff" else row.section,
                kind=row.kind,
                size=size + len(tail),
                alignment=aligned,
                copies=(Copy(0, size, tensor.extent, swap_unit, tensor.shape, tensor.dtype.element_bits),),
                tail=tail,
            )
        )
    check_names(sources)
    return ObjectModel(sections=sections, symbols=symbols)
