"""Reads a library that a linker has just made: headers, segments, sections, and the stub of the payload in it.

Nothing in it is trusted: each offset is compared with the size of the file before it is used. Source: System V gABI,
chapters 4 and 5.
"""

from __future__ import annotations

from struct import Struct

from emitter import elf
from emitter.attach.stub import DESCRIPTOR_SIZE, NT_EMITTER_ATTACH, PLACEHOLDER, SPARE_DESC, SPARE_FIELDS, magic
from emitter.errors import FormatError, UsageError
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from emitter.elf import Phdr, Sym
    from emitter.targets._base import Target

__all__ = ["Library", "Stub"]

_EHDR_IDENT = 16
_PN_XNUM = 0xFFFF
_MAX_ALIGNMENT = 1 << 30  # of a segment; far above any page
_DF_1_PIE = 0x08000000
_PT_INTERP = 3
_DT_FLAGS_1 = elf.DT_FLAGS_1


class Stub(NamedTuple):
    """Addresses of what was linked in place of the payload. `section` is the number of the spare note's section."""

    section: int
    descriptor: int
    placeholder: int
    size: int
    pack_note: int


class Library:
    """A shared library for `target`, whole in memory; `where` names it in messages.

    Raises FormatError for a file that breaks its format or has no section headers, UsageError for one that is not a
    shared library for the target.
    """

    def __init__(self, data: bytes, target: Target, where: str) -> None:
        self.data = data
        self.where = where
        self.target = target
        self.encoding = elf.Encoding(target.pointer_width, target.byte_order)
        self.order = self.encoding.order
        is_64 = self.encoding.is_64
        word = self.encoding.word_code
        ehdr = Struct(f"{self.order}HHI3{word}I6H")
        if len(data) < _EHDR_IDENT + ehdr.size or data[:4] != elf.ELFMAG:
            raise self.refused("not an ELF file", "a shared library", f"{len(data)} bytes")
        (
            e_type, e_machine, _, _, self.e_phoff, self.e_shoff, _, _, e_phentsize, e_phnum, e_shentsize, e_shnum,
            self.e_shstrndx,
        ) = ehdr.unpack_from(data, _EHDR_IDENT)  # fmt: skip
        ei_class = elf.ELFCLASS64 if is_64 else elf.ELFCLASS32
        ei_data = elf.ELFDATA2LSB if target.byte_order == "little" else elf.ELFDATA2MSB
        for field, expected, actual in (
            ("EI_CLASS", ei_class, data[4]),
            ("EI_DATA", ei_data, data[5]),
            ("e_machine", target.e_machine, e_machine),
            ("e_type", elf.ET_DYN, e_type),
        ):
            if expected != actual:
                raise self.refused(f"{field} is not that of a shared library for {target.name}", expected, actual)
        if e_phentsize != self.encoding.phdr_size or not 0 < e_phnum < _PN_XNUM:
            raise self.broken("program headers", f"e_phentsize {e_phentsize}, e_phnum {e_phnum}")
        if not self.e_shoff or e_shentsize != self.encoding.shdr_size or not 0 < self.e_shstrndx < e_shnum:
            raise self.broken("section headers", f"e_shoff {self.e_shoff:#x}, e_shnum {e_shnum}")
        self.e_phnum, self.e_shnum = e_phnum, e_shnum
        self.phdrs = self._phdrs()
        self.shdrs = [elf.Shdr(*row) for row in self._rows(f"2I4{word}2I2{word}", self.e_shoff, e_shnum)]
        self._names = self.section_data(self.e_shstrndx)
        self.loads = [phdr for phdr in self.phdrs if phdr.p_type == elf.PT_LOAD]
        self._check_ranges()
        self.dynamic = self._dynamic()
        program = any(phdr.p_type == _PT_INTERP for phdr in self.phdrs)
        if program or self.value(_DT_FLAGS_1) & _DF_1_PIE:
            raise self.refused("a program, not a library", "a file linked with -shared", "PT_INTERP or DF_1_PIE")

    def refused(self, what: str, expected: object = None, actual: object = None) -> UsageError:
        """Return the error for a file that is not what a payload can be attached to."""
        return UsageError(
            what, where=self.where, expected=expected, actual=actual, hint="link a shared library for this target"
        )

    def broken(self, what: str, actual: object) -> FormatError:
        """Return the error for a file that breaks its format, or that was edited after linking."""
        return FormatError(
            f"{what} are missing or damaged",
            where=self.where,
            actual=actual,
            hint="attach to the file as the linker wrote it, before strip and patchelf",
        )

    def bytes_at(self, offset: int, length: int, what: str) -> bytes:
        """Return `length` bytes at a file offset; raise FormatError if they are not there."""
        self._bound(offset, length, what)
        return self.data[offset : offset + length]

    def _bound(self, offset: int, length: int, what: str) -> None:
        if offset + length > len(self.data):
            raise self.broken(what, f"an end of {offset + length:#x} in {len(self.data):#x} bytes")

    def section_name(self, number: int) -> bytes:
        """Return the name of a section."""
        start = self.shdrs[number].sh_name
        end = self._names.find(b"\0", start)
        if end < 0:
            raise self.broken("section names", f"sh_name {start} of section {number}")
        return self._names[start:end]

    @property
    def section_names(self) -> bytes:
        """The table of section names."""
        return self._names

    def section_data(self, number: int) -> bytes:
        """Return the contents of a section that has some in the file."""
        row = self.shdrs[number]
        return self.bytes_at(row.sh_offset, row.sh_size, f"the bytes of section {number}")

    def offset(self, address: int, length: int, what: str) -> int:
        """Return the file offset of `length` bytes at `address`, within what one PT_LOAD maps from the file."""
        for load in self.loads:
            if load.p_vaddr <= address and address + length <= load.p_vaddr + load.p_filesz:
                return load.p_offset + address - load.p_vaddr
        raise self.broken(what, f"address {address:#x} is in no PT_LOAD")

    def word(self, address: int, what: str, *, signed: bool = False) -> int:
        """Return the number of pointer width at an address."""
        size = self.encoding.word_size
        start = self.offset(address, size, what)
        return int.from_bytes(self.data[start : start + size], self.target.byte_order, signed=signed)

    def value(self, d_tag: int) -> int:
        """Return the value of the first entry `d_tag` of the dynamic section, 0 if there is none."""
        return self.dynamic.get(d_tag, 0)

    def syms(self, number: int) -> list[tuple[bytes, Sym]]:
        """Return (name, symbol) of each symbol in the symbol table that is section `number`."""
        row = self.shdrs[number]
        if row.sh_entsize != self.encoding.sym_size or not 0 < row.sh_link < self.e_shnum:
            raise self.broken("symbol tables", f"sh_entsize {row.sh_entsize}, sh_link {row.sh_link}")
        strings = self.section_data(row.sh_link)
        found = []
        for sym in self._symbols(row.sh_offset, row.sh_size // row.sh_entsize):
            end = strings.find(b"\0", sym.st_name)
            if end < 0:
                raise self.broken("names of symbols", f"st_name {sym.st_name}")
            found.append((strings[sym.st_name : end], sym))
        return found

    def find_stub(self) -> Stub:
        """Return where the stub of the payload is, by the words that the linker resolved; nothing is searched for."""
        word = self.encoding.word_size
        owner = self.encoding.note(elf.EMITTER_OWNER, NT_EMITTER_ATTACH, b"", 4)[8:]  # n_type, owner
        for number, row in enumerate(self.shdrs):
            if row.sh_type != elf.SHT_NOTE or row.sh_size < SPARE_DESC + len(SPARE_FIELDS) * word:
                continue
            head = self.bytes_at(row.sh_offset, SPARE_DESC, "notes")
            if head[8 : 8 + len(owner)] != owner:
                continue
            if row.sh_size >= 2 * (SPARE_DESC + len(SPARE_FIELDS) * word):
                raise self.refused("two payloads cannot be attached to one library", "one stub", "two of them")
            at = [row.sh_addr + SPARE_DESC + index * word for index in range(len(SPARE_FIELDS))]
            mask = (1 << self.target.pointer_width) - 1
            places = [address + self.word(address, "notes", signed=True) & mask for address in at]
            stub = Stub(number, *places)
            self._check_stub(stub)
            return stub
        raise UsageError(
            "nothing was linked that a payload could take the place of",
            where=self.where,
            expected=f"a note of the owner emitter, type {NT_EMITTER_ATTACH}",
            hint="link the object that emitter makes for this",
        )

    def _check_stub(self, stub: Stub) -> None:
        start = self.offset(stub.descriptor, DESCRIPTOR_SIZE, "words of the note")
        found = self.data[start : start + DESCRIPTOR_SIZE]
        if found != magic(self.target):
            raise UsageError(
                "the descriptor is not as it was linked",
                where=f"{self.where}: address {stub.descriptor:#x}",
                expected=magic(self.target).hex(),
                actual=found.hex(),
                hint="a payload is attached once: link the library again",
            )
        start = self.offset(stub.placeholder, len(PLACEHOLDER), "words of the note")
        if self.data[start : start + len(PLACEHOLDER)] != PLACEHOLDER:
            raise self.broken("words of the note", f"no placeholder at {stub.placeholder:#x}")
        note = self.encoding.pack_note(0, 0, 0, 0)
        start = self.offset(stub.pack_note, len(note), "words of the note")
        if self.data[start : start + len(note)] != note:
            raise self.broken("words of the note", f"no note for the pack at {stub.pack_note:#x}")
        self.offset(stub.size, self.encoding.word_size, "words of the note")

    def _rows(self, code: str, offset: int, count: int) -> list[tuple[int, ...]]:
        layout = Struct(self.order + code)
        return list(layout.iter_unpack(self.bytes_at(offset, layout.size * count, "tables")))

    def _phdrs(self) -> list[Phdr]:
        if self.encoding.is_64:
            return [elf.Phdr(*row) for row in self._rows("2I6Q", self.e_phoff, self.e_phnum)]
        rows = self._rows("8I", self.e_phoff, self.e_phnum)
        return [
            elf.Phdr(p_type, p_flags, p_offset, p_vaddr, p_paddr, p_filesz, p_memsz, p_align)
            for p_type, p_offset, p_vaddr, p_paddr, p_filesz, p_memsz, p_flags, p_align in rows
        ]

    def _symbols(self, offset: int, count: int) -> list[Sym]:
        if self.encoding.is_64:
            return [elf.Sym(*row) for row in self._rows("IBBHQQ", offset, count)]
        rows = self._rows("IIIBBH", offset, count)
        return [elf.Sym(row[0], row[3], row[4], row[5], row[1], row[2]) for row in rows]

    def _check_ranges(self) -> None:
        for phdr in self.phdrs:
            self._bound(phdr.p_offset, phdr.p_filesz, "the bytes of a segment")
        for number, row in enumerate(self.shdrs):
            if row.sh_type not in (elf.SHT_NULL, elf.SHT_NOBITS):
                self._bound(row.sh_offset, row.sh_size, f"the bytes of section {number}")
        ends = [load.p_vaddr + load.p_memsz for load in self.loads]
        starts = [load.p_vaddr for load in self.loads]
        if not self.loads or starts != sorted(starts) or any(a > b for a, b in zip(ends, starts[1:], strict=False)):
            raise self.broken("PT_LOAD segments", f"addresses {', '.join(map(hex, starts))}")
        for load in self.loads:
            aligned = not load.p_align & load.p_align - 1 and load.p_align <= _MAX_ALIGNMENT
            if (
                not aligned
                or load.p_memsz < load.p_filesz
                or load.p_vaddr + load.p_memsz >> self.target.pointer_width - 1
            ):
                raise self.broken(
                    "PT_LOAD segments",
                    f"p_vaddr {load.p_vaddr:#x}, p_memsz {load.p_memsz:#x}, p_align {load.p_align:#x}",
                )

    def _dynamic(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for phdr in self.phdrs:
            if phdr.p_type == elf.PT_DYNAMIC:
                count = phdr.p_filesz // self.encoding.dyn_size
                for d_tag, d_val in self._rows(f"2{self.encoding.word_code}", phdr.p_offset, count):
                    if d_tag == elf.DT_NULL:
                        break
                    found.setdefault(d_tag, d_val)
        if elf.DT_SYMTAB not in found:
            raise self.refused("no dynamic section", "a file linked with -shared", "none that loaders read")
        return found
