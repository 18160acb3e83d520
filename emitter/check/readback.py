"""A small, bounded reader of ELF for the check after writing.

Written apart from `emitter.elf`, with which the writers pack their records: what one gets wrong, the other finds. Every
offset that a file states is compared with the size of the file before it is used.

Source: System V gABI, chapters 4 and 5.
"""

from __future__ import annotations

import os
import struct

from emitter.errors import OutputError
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emitter.package import ByteOrder
    from emitter.targets._base import Target

__all__ = [
    "DT_GNU_HASH",
    "DT_HASH",
    "DT_STRSZ",
    "DT_STRTAB",
    "DT_SYMENT",
    "DT_SYMTAB",
    "Reader",
    "Segments",
    "SymbolTable",
    "difference",
    "expect",
    "read_header",
    "read_sections",
    "require",
    "text",
]

DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT, DT_GNU_HASH = 4, 5, 6, 10, 11, 0x6FFFFEF5

_MAX_READ = 1 << 31  # bytes; far above any table that can be planned


class Header(NamedTuple):
    """The file header after `e_ident`, in file order."""

    e_type: int
    e_machine: int
    e_version: int
    e_entry: int
    e_phoff: int
    e_shoff: int
    e_flags: int
    e_ehsize: int
    e_phentsize: int
    e_phnum: int
    e_shentsize: int
    e_shnum: int
    e_shstrndx: int


class Phdr(NamedTuple):
    """A program header, in the order of the 64-bit class."""

    p_type: int
    p_flags: int
    p_offset: int
    p_vaddr: int
    p_paddr: int
    p_filesz: int
    p_memsz: int
    p_align: int


class Shdr(NamedTuple):
    """A section header, in file order."""

    sh_name: int
    sh_type: int
    sh_flags: int
    sh_addr: int
    sh_offset: int
    sh_size: int
    sh_link: int
    sh_info: int
    sh_addralign: int
    sh_entsize: int


class Sym(NamedTuple):
    """A symbol, in the order of the 64-bit class."""

    st_name: int
    st_info: int
    st_other: int
    st_shndx: int
    st_value: int
    st_size: int


class Reader:
    """A window of `size` bytes on an open file, from `base`. Offsets are relative to the window."""

    def __init__(self, fd: int, base: int, size: int, target: Target) -> None:
        self.base = base
        self.size = size
        self.byte_order: ByteOrder = target.byte_order
        self.order = "<" if target.byte_order == "little" else ">"
        self.is_64 = target.pointer_width == 64
        self.word = 8 if self.is_64 else 4
        self.word_code = "Q" if self.is_64 else "I"
        self._fd = fd

    def bound(self, offset: int, length: int, what: str) -> None:
        """Check that `length` bytes at `offset` are in the window."""
        if offset + length > self.size:
            raise difference(f"end of {what}", f"at most {self.size}", offset + length)

    def read(self, offset: int, length: int, what: str) -> bytes:
        """Return `length` bytes at `offset`."""
        self.bound(offset, length, what)
        if length > _MAX_READ:
            raise difference(f"size of {what}", f"at most {_MAX_READ}", length)
        os.lseek(self._fd, self.base + offset, os.SEEK_SET)
        data = b""
        while len(data) < length:
            more = os.read(self._fd, length - len(data))
            if not more:
                raise difference(f"bytes of {what}", length, len(data))
            data += more
        return data

    def unpack(self, code: str, offset: int, what: str) -> tuple[int, ...]:
        """Return the numbers of the `struct` format `code` at `offset`."""
        layout = struct.Struct(self.order + code)
        return layout.unpack(self.read(offset, layout.size, what))

    def phdrs(self, offset: int, count: int) -> list[Phdr]:
        """Return the program headers at `offset`."""
        data = self.read(offset, count * (56 if self.is_64 else 32), "program headers")
        if self.is_64:
            return [Phdr(*row) for row in struct.iter_unpack(self.order + "2I6Q", data)]
        rows = struct.iter_unpack(self.order + "8I", data)
        return [
            Phdr(p_type, p_flags, p_offset, p_vaddr, p_paddr, p_filesz, p_memsz, p_align)
            for p_type, p_offset, p_vaddr, p_paddr, p_filesz, p_memsz, p_flags, p_align in rows
        ]

    def syms(self, offset: int, size: int, what: str) -> list[Sym]:
        """Return the symbols of the `size` bytes at `offset`."""
        require(f"{what} holds whole symbols", size % (24 if self.is_64 else 16) == 0)
        data = self.read(offset, size, what)
        if self.is_64:
            return [Sym(*row) for row in struct.iter_unpack(self.order + "I2BH2Q", data)]
        rows = struct.iter_unpack(self.order + "3I2BH", data)
        return [Sym(name, info, other, shndx, value, size) for name, value, size, info, other, shndx in rows]


class Segments:
    """The program headers, judged as a loader does; addresses become file offsets here."""

    def __init__(self, reader: Reader, target: Target, header: Header) -> None:
        expect("e_phentsize", header.e_phentsize, 56 if reader.is_64 else 32)
        self.phdrs = reader.phdrs(header.e_phoff, header.e_phnum)
        self.loads = self.of(1)  # PT_LOAD
        page = target.max_page_size
        end = 0
        for number, load in enumerate(self.loads):
            reader.bound(load.p_offset, load.p_filesz, f"PT_LOAD {number}")
            expect(f"p_align of PT_LOAD {number}", load.p_align, page)
            expect(f"p_vaddr of PT_LOAD {number} modulo p_align", load.p_vaddr % page, load.p_offset % page)
            require(f"p_memsz of PT_LOAD {number} is not below p_filesz", load.p_memsz >= load.p_filesz)
            require(f"PT_LOAD {number} shares no page with the one before", load.p_vaddr // page * page >= end)
            expect(f"PF_X of PT_LOAD {number}", load.p_flags & 1, 0)
            end = load.p_vaddr + load.p_memsz
        require("the first PT_LOAD holds the file header", bool(self.loads) and self.loads[0].p_offset == 0)
        expect("p_flags of PT_GNU_STACK", [stack.p_flags for stack in self.of(0x6474E551)], [6])  # PF_R | PF_W
        for relro in self.of(0x6474E552):  # PT_GNU_RELRO
            end = relro.p_vaddr + relro.p_memsz
            expect("end of PT_GNU_RELRO modulo the page", end % page, 0)
            holders = [
                load for load in self.loads if load.p_vaddr <= relro.p_vaddr and end <= load.p_vaddr + load.p_memsz
            ]
            expect("p_flags of the PT_LOAD that holds PT_GNU_RELRO", [load.p_flags for load in holders], [6])

    def of(self, p_type: int) -> list[Phdr]:
        """Return the program headers of one type."""
        return [phdr for phdr in self.phdrs if phdr.p_type == p_type]

    def offset(self, address: int, length: int, what: str) -> int:
        """Return the file offset of `length` bytes at `address`, which one PT_LOAD must hold."""
        for load in self.loads:
            if load.p_vaddr <= address and address + length <= load.p_vaddr + load.p_filesz:
                return load.p_offset + address - load.p_vaddr
        raise difference(f"address of {what}", "within a PT_LOAD", hex(address))


class SymbolTable:
    """The exported symbols, found as loaders find them: through DT_HASH and through DT_GNU_HASH."""

    def __init__(self, reader: Reader, segments: Segments, dynamic: Mapping[int, int], hash_word: int) -> None:
        code = "I" if hash_word == 4 else "Q"
        at = segments.offset(dynamic[DT_HASH], 2 * hash_word, "DT_HASH")
        self._nbucket, self.count = reader.unpack(f"2{code}", at, "DT_HASH")
        require("DT_HASH has buckets and symbols", self._nbucket > 0 and self.count > 0)
        length = 2 + self._nbucket + self.count
        segments.offset(dynamic[DT_HASH], length * hash_word, "DT_HASH")
        self._hash = reader.unpack(f"{length}{code}", at, "DT_HASH")

        size = self.count * dynamic[DT_SYMENT]
        expect("DT_SYMENT", dynamic[DT_SYMENT], 24 if reader.is_64 else 16)
        self._syms = reader.syms(segments.offset(dynamic[DT_SYMTAB], size, "DT_SYMTAB"), size, "DT_SYMTAB")
        size = dynamic[DT_STRSZ]
        self._strings = reader.read(segments.offset(dynamic[DT_STRTAB], size, "DT_STRTAB"), size, "DT_STRTAB")

        at = segments.offset(dynamic[DT_GNU_HASH], 16, "DT_GNU_HASH")
        self._nbuckets, self._symoffset, bloom, self._shift = reader.unpack("4I", at, "DT_GNU_HASH")
        require("DT_GNU_HASH has buckets and a filter", self._nbuckets > 0 and bloom > 0)
        require("DT_GNU_HASH begins within DT_SYMTAB", 0 < self._symoffset <= self.count)
        length = self._nbuckets + self.count - self._symoffset
        segments.offset(dynamic[DT_GNU_HASH], 16 + bloom * reader.word + 4 * length, "DT_GNU_HASH")
        self._bloom = reader.unpack(f"{bloom}{reader.word_code}", at + 16, "DT_GNU_HASH")
        self._gnu = reader.unpack(f"{length}I", at + 16 + bloom * reader.word, "DT_GNU_HASH")
        self._width = reader.word * 8

    def sym(self, number: int) -> Sym:
        """Return symbol `number`."""
        return self._syms[number]

    def name(self, number: int) -> bytes:
        """Return the name of symbol `number`."""
        start = self._syms[number].st_name
        end = self._strings.find(b"\0", start)
        if not 0 < start < end:
            raise difference(f"st_name of symbol {number}", "a string of DT_STRTAB", start)
        return self._strings[start:end]

    def find(self, name: bytes) -> int:
        """Return the number of the symbol `name`; both tables must lead to it."""
        number = self._find_gnu(name)
        expect(f"symbol {text(name)} found through DT_HASH", self._find_sysv(name), number)
        return number

    def _find_sysv(self, name: bytes) -> int:
        value = 0
        for byte in name:
            value = (value * 16 + byte) & 0xFFFFFFFF
            high = value & 0xF0000000
            value = (value ^ high >> 24) & ~high
        number = self._hash[2 + value % self._nbucket]
        for _ in range(self.count):  # a chain that runs in a circle ends, too
            if not 0 < number < self.count:
                break
            if self.name(number) == name:
                return number
            number = self._hash[2 + self._nbucket + number]
        raise difference("DT_HASH", f"an entry for {text(name)}", "none")

    def _find_gnu(self, name: bytes) -> int:
        value = 5381
        for byte in name:
            value = ((value << 5) + value + byte) & 0xFFFFFFFF
        filter_word = self._bloom[(value // self._width) & (len(self._bloom) - 1)]
        mask = 1 << (value % self._width) | 1 << ((value >> self._shift) % self._width)
        number = self._gnu[value % self._nbuckets] if filter_word & mask == mask else 0
        while self._symoffset <= number < self.count:
            chain = self._gnu[self._nbuckets + number - self._symoffset]
            if chain | 1 == value | 1 and self.name(number) == name:
                return number
            if chain & 1:
                break
            number += 1
        raise difference("DT_GNU_HASH", f"an entry for {text(name)}", "none")


def read_header(reader: Reader, target: Target, *, e_type: int, e_flags: int) -> Header:
    """Check the file header against the target; return it."""
    ident = reader.read(0, 16, "e_ident")
    expect("e_ident[EI_MAG0..3]", ident[:4], b"\x7fELF")
    expect("e_ident[EI_CLASS]", ident[4], 2 if reader.is_64 else 1)
    expect("e_ident[EI_DATA]", ident[5], 1 if target.byte_order == "little" else 2)
    expect("e_ident[EI_VERSION]", ident[6], 1)
    header = Header(*reader.unpack("2HI3QI6H" if reader.is_64 else "2H5I6H", 16, "file header"))
    expect("e_type", header.e_type, e_type)
    expect("e_machine", header.e_machine, target.e_machine)
    expect("e_version", header.e_version, 1)
    expect("e_flags", hex(header.e_flags), hex(e_flags))
    expect("e_ehsize", header.e_ehsize, 64 if reader.is_64 else 52)
    expect("e_shentsize", header.e_shentsize, 64 if reader.is_64 else 40)
    return header


def read_sections(reader: Reader, header: Header) -> list[tuple[bytes, Shdr]]:
    """Check that every section lies in the file; return (name, header) of each."""
    code = "2I4Q2I2Q" if reader.is_64 else "10I"
    # Extended numbering: what the 16-bit fields cannot hold is in the first section header.
    first = Shdr(*reader.unpack(code, header.e_shoff, "section headers"))
    count = header.e_shnum or first.sh_size
    shstrndx = first.sh_link if header.e_shstrndx == 0xFFFF else header.e_shstrndx
    data = reader.read(header.e_shoff, count * header.e_shentsize, "section headers")
    rows = [Shdr(*row) for row in struct.iter_unpack(reader.order + code, data)]
    if not 0 < shstrndx < count:
        raise difference("e_shstrndx", f"1 to {count - 1}", shstrndx)
    strings = reader.read(rows[shstrndx].sh_offset, rows[shstrndx].sh_size, "section names")
    sections = []
    for number, row in enumerate(rows):
        end = strings.find(b"\0", row.sh_name)
        if end < 0:
            raise difference(f"sh_name of section {number}", f"below {len(strings)}", row.sh_name)
        name = strings[row.sh_name : end]
        if row.sh_type not in {0, 8}:  # SHT_NULL, SHT_NOBITS
            reader.bound(row.sh_offset, row.sh_size, f"section {name.decode(errors='replace')}")
        if row.sh_link >= count and number:
            raise difference(f"sh_link of section {number}", f"below {count}", row.sh_link)
        sections.append((name, row))
    return sections


def expect(field: str, actual: object, expected: object) -> None:
    """Raise OutputError unless the field is as expected."""
    if actual != expected:
        raise difference(field, expected, actual)


def require(condition: str, holds: bool) -> None:
    """Raise OutputError unless the condition, said in words, holds."""
    if not holds:
        raise difference(condition, "true", "false")


def text(name: bytes) -> str:
    """Return a name as messages show it."""
    return name.decode(errors="replace")


def difference(field: str, expected: object, actual: object) -> OutputError:
    """Return the error of a file that differs from its plan in `field`."""
    return OutputError(
        "the file is not what was to be written",
        where=field,
        expected=expected,
        actual=actual,
        hint="another program may have changed it, or the disk is failing; if it happens again, report it",
    )
