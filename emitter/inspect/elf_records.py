"""The records of ELF as they stand in a file, and what is read from them.

Source: System V gABI, chapters 4 and 5 (https://gabi.xinuos.com); the GNU symbol versioning of the Linux Standard Base,
chapter 10.7. Field names are the specifications'. Written apart from `emitter.elf`, with which the writers pack.
"""

from __future__ import annotations

from emitter.records import NamedTuple

__all__ = [
    "BuildAttribute",
    "Dyn",
    "Ehdr",
    "Layouts",
    "Note",
    "Phdr",
    "Property",
    "Reloc",
    "Shdr",
    "Sym",
    "SymbolTable",
    "Verdef",
    "Vernaux",
    "Verneed",
]


class Ehdr(NamedTuple):
    """The file header, with the numbers that it states itself: 0, 0xffff where extended numbering applies."""

    ei_class: int
    ei_data: int
    ei_version: int
    ei_osabi: int
    ei_abiversion: int
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
    """A section header."""

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


class Dyn(NamedTuple):
    """An entry of the dynamic section."""

    d_tag: int
    d_val: int


class Sym(NamedTuple):
    """A symbol. `shndx` is `st_shndx`, or the number from SHT_SYMTAB_SHNDX where that is SHN_XINDEX.

    `version` is the name of its version, or empty; `hidden_version` tells name@VERSION from the default name@@VERSION.
    """

    number: int
    name: str
    st_info: int
    st_other: int
    st_shndx: int
    st_value: int
    st_size: int
    shndx: int
    version: str = ""
    hidden_version: bool = False

    @property
    def st_bind(self) -> int:
        """STB_..."""
        return self.st_info >> 4

    @property
    def st_type(self) -> int:
        """STT_..."""
        return self.st_info & 15

    @property
    def st_visibility(self) -> int:
        """STV_..."""
        return self.st_other & 3


class SymbolTable(NamedTuple):
    """Where a symbol table lies. `section` is its section, or None where the dynamic section alone leads to it."""

    name: str  # symtab, dynsym
    section: int | None
    offset: int
    records: int  # with the empty one at number 0
    entry_size: int
    strings: int  # offset of its string table
    strings_size: int
    xindex: int | None  # offset of its SHT_SYMTAB_SHNDX table
    first_global: int  # sh_info; 0 where there is no section


class Vernaux(NamedTuple):
    """A version that is needed of a library: `vna_other` is its number in the version symbol table."""

    vna_hash: int
    vna_flags: int
    vna_other: int
    name: str


class Verneed(NamedTuple):
    """A library of which versions are needed."""

    vn_version: int
    vn_cnt: int
    file: str
    versions: tuple[Vernaux, ...]


class Verdef(NamedTuple):
    """A version that is defined: `names` is its own, then its parents'."""

    vd_version: int
    vd_flags: int
    vd_ndx: int
    vd_hash: int
    names: tuple[str, ...]


class Note(NamedTuple):
    """A note. `owner` is without its NUL; the descriptor is read with `ElfFile.desc`."""

    owner: str
    n_type: int
    desc_offset: int
    desc_size: int
    alignment: int
    source: str  # "segment 3", "section 5"


class Property(NamedTuple):
    """A property of an NT_GNU_PROPERTY_TYPE_0 note: `value` is the number, or the bytes where it is not 4 or 8 long."""

    pr_type: int
    value: int | bytes


class BuildAttribute(NamedTuple):
    """A build attribute. `scope` is file, section or symbol; `value` a number, or text for tags that have one.

    `name` is the specification's (`Tag_ABI_VFP_args`), or empty for one not known here.
    """

    vendor: str
    scope: str
    tag: int
    name: str
    value: int | str


class Reloc(NamedTuple):
    """A relocation. `section` is the section it stands in, or the tag of the dynamic section that leads to it, negated.

    `r_addend` is None for SHT_REL: the addend is in the field itself.
    """

    section: int
    r_offset: int
    r_type: int
    r_sym: int
    r_addend: int | None


class Layouts:
    """`struct` formats of the records of one class and byte order, in the order of the file."""

    def __init__(self, ei_class: int, ei_data: int) -> None:
        self.is_64 = ei_class == 2
        self.order = "<" if ei_data == 1 else ">"
        word = "Q" if self.is_64 else "I"
        self.word_size = 8 if self.is_64 else 4
        self.word = self.order + word
        self.ehdr = f"{self.order}HHI3{word}I6H"
        self.phdr = self.order + ("2I6Q" if self.is_64 else "8I")
        self.shdr = f"{self.order}2I4{word}2I2{word}"
        self.sym = self.order + ("IBBHQQ" if self.is_64 else "IIIBBH")
        self.dyn = f"{self.order}2{word}"
        self.rel = f"{self.order}2{word}"
        self.rela = f"{self.order}2{word}{word.lower()}"
