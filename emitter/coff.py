"""The encoding of COFF objects and PE images: their records and constants, little-endian.

Source: Microsoft's PE Format (learn.microsoft.com/windows/win32/debug/pe-format). The fields have its names, in lower
case with underscores.
"""

from __future__ import annotations

from struct import Struct, pack

from emitter.errors import LayoutError
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from emitter.targets._base import Coff, Target

__all__ = [
    "FILE_HEADER_SIZE",
    "IMAGE_SCN_CNT_INITIALIZED_DATA",
    "IMAGE_SCN_LNK_INFO",
    "IMAGE_SCN_LNK_REMOVE",
    "IMAGE_SCN_MEM_READ",
    "IMAGE_SCN_MEM_WRITE",
    "IMAGE_SYM_ABSOLUTE",
    "IMAGE_SYM_CLASS_EXTERNAL",
    "IMAGE_SYM_CLASS_SECTION",
    "IMAGE_SYM_CLASS_STATIC",
    "IMAGE_SYM_UNDEFINED",
    "MAX_ALIGNMENT",
    "MAX_SECTIONS",
    "SECTION_HEADER_SIZE",
    "SYMBOL_SIZE",
    "SectionHeader",
    "StringTable",
    "align_flag",
    "facts_of",
    "file_header",
    "relocation",
    "symbol",
]

IMAGE_SCN_CNT_INITIALIZED_DATA = 0x40
IMAGE_SCN_LNK_INFO = 0x200
IMAGE_SCN_LNK_REMOVE = 0x800
IMAGE_SCN_MEM_READ = 0x40000000
IMAGE_SCN_MEM_WRITE = 0x80000000

IMAGE_SYM_UNDEFINED = 0
IMAGE_SYM_ABSOLUTE = -1
IMAGE_SYM_CLASS_EXTERNAL = 2
IMAGE_SYM_CLASS_STATIC = 3
IMAGE_SYM_CLASS_SECTION = 104

MAX_ALIGNMENT = 8192  # IMAGE_SCN_ALIGN_8192BYTES
MAX_SECTIONS = 0xFEFF  # the numbers above are reserved

FILE_HEADER_SIZE = 20
SECTION_HEADER_SIZE = 40
SYMBOL_SIZE = 18

_SHORT_NAME = 8
_LONGEST_DECIMAL = 9_999_999  # a section name "/1234567" refers to the string table

_FILE_HEADER = Struct("<2H3I2H")
_SECTION_HEADER = Struct("<8s6I2HI")
_SYMBOL = Struct("<8sIhHBB")
_RELOCATION = Struct("<2IH")


class SectionHeader(NamedTuple):
    """A section header, in file order; `name` is encoded (`StringTable.section_name`)."""

    name: bytes
    virtual_size: int
    virtual_address: int
    size_of_raw_data: int
    pointer_to_raw_data: int
    characteristics: int
    pointer_to_relocations: int = 0
    number_of_relocations: int = 0

    def encode(self) -> bytes:
        """Return the 40 bytes of the header. There are no line numbers."""
        return _SECTION_HEADER.pack(
            self.name,
            self.virtual_size,
            self.virtual_address,
            self.size_of_raw_data,
            self.pointer_to_raw_data,
            self.pointer_to_relocations,
            0,
            self.number_of_relocations,
            0,
            self.characteristics,
        )


def facts_of(target: Target) -> Coff:
    """Return the COFF facts of a target; raise LayoutError for one of another object format."""
    if target.coff is None:
        raise LayoutError(
            "not a target of COFF and PE", where=f"target {target.name}", expected="coff", actual=target.object_format
        )
    return target.coff


def file_header(
    machine: int,
    number_of_sections: int,
    *,
    pointer_to_symbol_table: int = 0,
    number_of_symbols: int = 0,
    size_of_optional_header: int = 0,
    characteristics: int = 0,
) -> bytes:
    """Return the COFF file header. Its time stamp is 0: an output depends on nothing but what was asked for."""
    return _FILE_HEADER.pack(
        machine,
        number_of_sections,
        0,
        pointer_to_symbol_table,
        number_of_symbols,
        size_of_optional_header,
        characteristics,
    )


def symbol(name: bytes, value: int, section_number: int, storage_class: int) -> bytes:
    """Return a symbol without type and auxiliary records; `name` is encoded (`StringTable.symbol_name`)."""
    return _SYMBOL.pack(name, value, section_number, 0, storage_class, 0)


def relocation(virtual_address: int, symbol_table_index: int, type_: int) -> bytes:
    """Return a relocation of the field at `virtual_address` of its section."""
    return _RELOCATION.pack(virtual_address, symbol_table_index, type_)


def align_flag(alignment: int) -> int:
    """Return IMAGE_SCN_ALIGN_* of a power of two, 1 to `MAX_ALIGNMENT`."""
    return alignment.bit_length() << 20


class StringTable:
    """The string table of an object: its size, then NUL-terminated names that the records have no room for.

    `start` are names that stand in it already, behind the size.
    """

    def __init__(self, start: bytes = b"") -> None:
        self.size = 4 + len(start)
        self._parts = [start]
        self._known: dict[bytes, int] = {}

    def _add(self, text: bytes) -> int:
        offset = self._known.setdefault(text, self.size)
        if offset == self.size:
            self._parts.append(text + b"\0")
            self.size += len(text) + 1
        return offset

    def symbol_name(self, name: bytes) -> bytes:
        """Return the name field of a symbol: the name, or four zero bytes and its offset in the table."""
        return name if len(name) <= _SHORT_NAME else pack("<2I", 0, self._add(name))

    def section_name(self, name: bytes) -> bytes:
        """Return the name field of a section: the name, or `/` and its offset in the table, in decimal digits.

        The names of sections come before those of symbols: the field holds an offset of seven digits at most. Raises
        OverflowError beyond.
        """
        if len(name) <= _SHORT_NAME:
            return name
        offset = self._add(name)
        if offset > _LONGEST_DECIMAL:
            raise OverflowError(offset)
        return b"/%d" % offset

    def data(self) -> bytes:
        """Return the table."""
        return pack("<I", self.size) + b"".join(self._parts)
