"""The encoding of ELF: constants, records, string and hash tables, notes.

Source: System V gABI, chapters 4 and 5 (https://gabi.xinuos.com), and the GNU extensions of glibc's `elf.h`. Names are
the specification's. Whoever writes ELF (`emitter.image.elf`, `emitter.splice.elf`) packs its records here;
`emitter.check` reads them back without this module.
"""

from __future__ import annotations

from operator import itemgetter
from struct import Struct, pack

from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from emitter.package import ByteOrder

# e_ident
ELFMAG = b"\x7fELF"
ELFCLASS32, ELFCLASS64 = 1, 2
ELFDATA2LSB, ELFDATA2MSB = 1, 2
EV_CURRENT = 1

ET_REL, ET_DYN = 1, 3

PT_LOAD, PT_DYNAMIC, PT_NOTE = 1, 2, 4
PT_GNU_STACK, PT_GNU_RELRO, PT_GNU_PROPERTY = 0x6474E551, 0x6474E552, 0x6474E553
PF_X, PF_W, PF_R = 1, 2, 4

SHT_NULL, SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_HASH, SHT_DYNAMIC, SHT_NOTE, SHT_NOBITS = range(9)
SHT_REL = 9
SHT_DYNSYM, SHT_SYMTAB_SHNDX, SHT_GNU_HASH = 11, 18, 0x6FFFFFF6
SHF_WRITE, SHF_ALLOC, SHF_INFO_LINK, SHF_EXCLUDE = 0x1, 0x2, 0x40, 0x80000000
SHN_UNDEF, SHN_LORESERVE, SHN_ABS, SHN_XINDEX = 0, 0xFF00, 0xFFF1, 0xFFFF

STB_LOCAL, STB_GLOBAL = 0, 1
STT_NOTYPE, STT_OBJECT, STT_SECTION = 0, 1, 3
STV_DEFAULT, STV_HIDDEN, STV_PROTECTED = 0, 2, 3

DT_NULL, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT, DT_SONAME = 0, 4, 5, 6, 10, 11, 14
DT_FLAGS, DT_GNU_HASH, DT_FLAGS_1 = 30, 0x6FFFFEF5, 0x6FFFFFFB
DF_BIND_NOW, DF_1_NOW = 0x8, 0x1

NT_GNU_BUILD_ID, NT_GNU_PROPERTY_TYPE_0 = 3, 5
NT_EMITTER_PACK = 1  # with the owner `emitter`
EMITTER_OWNER = b"emitter\0"


class Ehdr(NamedTuple):
    """The file header, without what follows from the class, and without the fields that never differ."""

    e_type: int
    e_machine: int
    e_flags: int = 0
    e_phoff: int = 0
    e_phnum: int = 0
    e_shoff: int = 0
    e_shnum: int = 0
    e_shstrndx: int = 0
    ei_osabi: int = 0


class Phdr(NamedTuple):
    """A program header."""

    p_type: int
    p_flags: int
    p_offset: int
    p_vaddr: int
    p_paddr: int
    p_filesz: int
    p_memsz: int
    p_align: int


class Shdr(NamedTuple):
    """A section header."""

    sh_name: int
    sh_type: int
    sh_flags: int
    sh_addr: int
    sh_offset: int
    sh_size: int
    sh_link: int = 0
    sh_info: int = 0
    sh_addralign: int = 1
    sh_entsize: int = 0


class Sym(NamedTuple):
    """A symbol table entry."""

    st_name: int
    st_info: int
    st_other: int
    st_shndx: int
    st_value: int
    st_size: int


# The fields above are in the order of the 64-bit class. In the 32-bit class two records have another order:
_PHDR32_ORDER = itemgetter(0, 2, 3, 4, 5, 6, 1, 7)  # p_flags stands before p_align
_SYM32_ORDER = itemgetter(0, 4, 5, 1, 2, 3)  # st_value and st_size stand after st_name


class Encoding:
    """The records of one class (`pointer_width` 32 or 64 bits) in one byte order."""

    def __init__(self, pointer_width: int, byte_order: ByteOrder) -> None:
        self.pointer_width = pointer_width
        self.byte_order = byte_order
        self.order = "<" if byte_order == "little" else ">"
        self.is_64 = pointer_width == 64
        self.word_size = pointer_width // 8
        self.word_code = "Q" if self.is_64 else "I"  # an address, an offset, or a size
        word = self.word_code
        self._ehdr = Struct(f"{self.order}4s5B7xHHI3{word}I6H")
        self._phdr = Struct(self.order + ("2I6Q" if self.is_64 else "8I"))
        self._shdr = Struct(f"{self.order}2I4{word}2I2{word}")
        self._sym = Struct(self.order + ("IBBHQQ" if self.is_64 else "IIIBBH"))
        self._dyn = Struct(f"{self.order}2{word}")
        self._rela = Struct(f"{self.order}2{word}{word.lower()}")
        self._rel = Struct(f"{self.order}2{word}")
        self.ehdr_size, self.phdr_size, self.shdr_size = self._ehdr.size, self._phdr.size, self._shdr.size
        self.sym_size, self.dyn_size = self._sym.size, self._dyn.size
        self.rela_size, self.rel_size = self._rela.size, self._rel.size

    def ehdr(self, header: Ehdr) -> bytes:
        """Pack the file header. A file without program headers says 0 for their size, as compilers write it."""
        ei_class = ELFCLASS64 if self.is_64 else ELFCLASS32
        ei_data = ELFDATA2LSB if self.byte_order == "little" else ELFDATA2MSB
        return self._ehdr.pack(
            ELFMAG, ei_class, ei_data, EV_CURRENT, header.ei_osabi, 0,
            header.e_type, header.e_machine, EV_CURRENT, 0, header.e_phoff, header.e_shoff, header.e_flags,
            self.ehdr_size, self.phdr_size if header.e_phnum else 0, header.e_phnum,
            self.shdr_size, header.e_shnum, header.e_shstrndx,
        )  # fmt: skip

    def phdr(self, header: Phdr) -> bytes:
        """Pack a program header."""
        return self._phdr.pack(*(header if self.is_64 else _PHDR32_ORDER(header)))

    def shdr(self, header: Shdr) -> bytes:
        """Pack a section header."""
        return self._shdr.pack(*header)

    def sym(self, symbol: Sym) -> bytes:
        """Pack a symbol."""
        return self._sym.pack(*(symbol if self.is_64 else _SYM32_ORDER(symbol)))

    def dyn(self, d_tag: int, d_val: int) -> bytes:
        """Pack an entry of the dynamic section."""
        return self._dyn.pack(d_tag, d_val)

    def rela(self, r_offset: int, symbol: int, r_type: int, r_addend: int) -> bytes:
        """Pack a relocation with addend."""
        return self._rela.pack(r_offset, self._r_info(symbol, r_type), r_addend)

    def rel(self, r_offset: int, symbol: int, r_type: int) -> bytes:
        """Pack a relocation whose addend is in the field it changes."""
        return self._rel.pack(r_offset, self._r_info(symbol, r_type))

    def _r_info(self, symbol: int, r_type: int) -> int:
        return symbol << 32 | r_type if self.is_64 else symbol << 8 | r_type

    def words(self, *values: int) -> bytes:
        """Pack numbers of pointer width."""
        return pack(f"{self.order}{len(values)}{self.word_code}", *values)

    def u32(self, *values: int) -> bytes:
        """Pack 32-bit numbers."""
        return pack(f"{self.order}{len(values)}I", *values)

    def note(self, owner: bytes, n_type: int, desc: bytes, alignment: int = 4) -> bytes:
        """Pack a note. `owner` ends with its NUL; name and descriptor are padded to the section's `alignment`."""
        name = _pad(self.u32(len(owner), len(desc), n_type) + owner, alignment)
        return name + _pad(desc, alignment)

    def properties(self, properties: Iterable[tuple[int, int]]) -> bytes:
        """Pack the NT_GNU_PROPERTY_TYPE_0 note of 4-byte properties (pr_type, value), aligned to the word size."""
        desc = b"".join(_pad(self.u32(pr_type, 4, value), self.word_size) for pr_type, value in sorted(properties))
        return self.note(b"GNU\0", NT_GNU_PROPERTY_TYPE_0, desc, self.word_size)

    def pack_note(self, offset: int, size: int, version_major: int, version_minor: int) -> bytes:
        """Pack the note that finds a pack. Its alignment is 4 in both classes.

        The descriptor: the pack's place relative to the descriptor's first byte (signed) and the pack's size, both of
        pointer width; the pack's version, major << 16 | minor, and zero, both 32 bits. In an object a relocation writes
        the place. With the alignment 8 that the 64-bit class allows, readers disagree where a descriptor begins, and a
        linker that merges the note with a 4-aligned build id would spoil both.
        """
        mask = (1 << self.pointer_width) - 1
        desc = self.words(offset & mask, size) + self.u32(version_major << 16 | version_minor, 0)
        return self.note(EMITTER_OWNER, NT_EMITTER_PACK, desc)

    def sysv_hash(self, names: Sequence[bytes], word_size: int) -> bytes:
        """Return the DT_HASH table of symbols 1 to len(names). Words are 4 bytes, 8 on s390x and Alpha."""
        count = len(names)
        nbucket = bucket_count(count)
        bucket = [0] * nbucket
        chain = [0] * (count + 1)
        for index, name in enumerate(names, 1):
            slot = elf_hash(name) % nbucket
            chain[index] = bucket[slot]
            bucket[slot] = index
        values = (nbucket, count + 1, *bucket, *chain)
        return pack(f"{self.order}{len(values)}{'I' if word_size == 4 else 'Q'}", *values)

    def gnu_hash(self, names: Sequence[bytes]) -> tuple[list[int], bytes]:
        """Return (order, DT_GNU_HASH table) of symbols 1 to len(names), where symbol 1 + i must be names[order[i]]."""
        count = len(names)
        nbuckets = bucket_count(count)
        hashes = [gnu_hash(name) for name in names]
        order = sorted(range(count), key=[value % nbuckets for value in hashes].__getitem__)
        # A Bloom filter of at least 12 bits a symbol, two of them set: 1 in 40 of the names that are not there passes.
        width = self.pointer_width
        bloom_size = 1 << (max(count * 12 - 1, 0) // width).bit_length()
        bloom = [0] * bloom_size
        buckets = [0] * nbuckets
        chain = [0] * count
        for position, number in enumerate(order):
            value = hashes[number]
            bloom[value // width % bloom_size] |= 1 << value % width | 1 << (value >> _BLOOM_SHIFT) % width
            slot = value % nbuckets
            if not buckets[slot]:
                buckets[slot] = position + 1
                if position:
                    chain[position - 1] |= 1  # the end of the bucket before
            chain[position] = value & ~1
        if count:
            chain[-1] |= 1
        header = self.u32(nbuckets, 1, bloom_size, _BLOOM_SHIFT)
        return order, header + self.words(*bloom) + self.u32(*buckets, *chain)


_BLOOM_SHIFT = 26

# Where the descriptor of `Encoding.pack_note` begins: after the note's header and the owner.
PACK_NOTE_DESC = 12 + len(EMITTER_OWNER)


class StringTable:
    """A string table under construction: a NUL, then NUL-terminated strings; equal ones are stored once."""

    def __init__(self) -> None:
        self.size = 1
        self._parts = [b""]
        self._known = {b"": 0}

    def add(self, text: bytes) -> int:
        """Return the offset of `text` in the table."""
        offset = self._known.setdefault(text, self.size)
        if offset == self.size:
            self._parts.append(text)
            self.size += len(text) + 1
        return offset

    def data(self) -> bytes:
        """Return the table."""
        return b"\0".join(self._parts) + b"\0"


def bucket_count(symbols: int) -> int:
    """Return a number of hash buckets: odd, near one for two symbols, so that chains stay short."""
    return symbols // 2 | 1


def elf_hash(name: bytes) -> int:
    """Return the hash of gABI, chapter 5, Hash Table."""
    value = 0
    for byte in name:
        value = (value << 4) + byte
        value = (value ^ (value >> 24 & 0xF0)) & 0x0FFFFFFF
    return value


def gnu_hash(name: bytes) -> int:
    """Return the hash of DT_GNU_HASH: 33 * h + c, from 5381, modulo 2^32."""
    value = 5381
    for byte in name:
        value = value * 33 + byte & 0xFFFFFFFF
    return value


def st_info(binding: int, symbol_type: int) -> int:
    """Return `st_info`: ELF32_ST_INFO and ELF64_ST_INFO are the same."""
    return binding << 4 | symbol_type


def _pad(data: bytes, alignment: int) -> bytes:
    return data + bytes(-len(data) % alignment)
