"""Cubins: machine code of NVIDIA's GPUs, an ELF file of machine EM_CUDA (190).

Sources: System V gABI, chapter 4, for the headers. Where `e_flags` has the sm number is not documented: it was read
from cubins that ptxas of CUDA 12 and 13 made.
"""

from __future__ import annotations

from emitter.device.image import CUDA, RELOCATABLE, Program, broken, cuda_image
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from emitter.inspect.view import View

__all__ = ["EM_CUDA", "CubinHeader", "check_tables", "read", "read_header", "sm_number"]

EM_CUDA = 190
_ELFMAG = b"\x7fELF"
_ET_REL, _ET_EXEC = 1, 2
_EHDR_SIZE, _SHDR_SIZE, _PHDR_SIZE = 64, 64, 56
_SHT_NULL, _SHT_NOBITS = 0, 8
_NEW_ABI = 8  # EI_ABIVERSION from which e_flags has the sm number in bits 8 to 15


class CubinHeader(NamedTuple):
    """What the file header says: the sm number, and whether the code has to be linked before it runs."""

    sm: int
    relocatable: bool


def check_tables(view: View, e_machine: int, *, base: int = 0, types: tuple[int, ...]) -> tuple[int, int]:
    """Check the headers of a 64-bit little-endian ELF file in which a GPU's code is; return e_type and e_flags.

    `base` is where the file begins in what messages speak of. Raises FormatError, with the offset, for tables or
    sections that the file does not hold.
    """
    where = view.where
    ident = view.read_up_to(0, _EHDR_SIZE)
    if len(ident) < _EHDR_SIZE:
        raise broken("the ELF file is truncated", where, base + len(ident), f"{_EHDR_SIZE} bytes", len(ident))
    if ident[:4] != _ELFMAG:
        raise broken("the magic is wrong", where, base, _ELFMAG.hex(" "), ident[:4].hex(" "))
    for at, expected, what in (
        (4, 2, "EI_CLASS (64-bit)"),
        (5, 1, "EI_DATA (little-endian)"),
        (6, 1, "EI_VERSION"),
    ):
        if ident[at] != expected:
            raise broken(f"{what} is wrong", where, base + at, expected, ident[at])
    (
        e_type,
        machine,
        e_version,
        _,
        e_phoff,
        e_shoff,
        e_flags,
        e_ehsize,
        e_phentsize,
        e_phnum,
        e_shentsize,
        e_shnum,
        e_shstrndx,
    ) = view.unpack("<HHIQQQIHHHHHH", 16, "the ELF header")
    for at, name, value, allowed in (
        (16, "e_type", e_type, types),
        (18, "e_machine", machine, (e_machine,)),
        (20, "e_version", e_version, (1,)),
        (52, "e_ehsize", e_ehsize, (_EHDR_SIZE,)),
        (54, "e_phentsize", e_phentsize, (_PHDR_SIZE,) if e_phnum else (0, _PHDR_SIZE)),
        (58, "e_shentsize", e_shentsize, (_SHDR_SIZE,) if e_shnum else (0, _SHDR_SIZE)),
    ):
        if value not in allowed:
            raise broken(f"{name} is wrong", where, base + at, " or ".join(map(str, allowed)), value)
    if not e_shnum and not e_phnum:
        raise broken("the ELF file holds nothing", where, base + 56, "sections or segments", "none")
    for at, name, offset, count, size in (
        (32, "the program headers", e_phoff, e_phnum, _PHDR_SIZE),
        (40, "the section headers", e_shoff, e_shnum, _SHDR_SIZE),
    ):
        if count and offset + count * size > view.size:
            raise broken(
                f"{name} are not in the file",
                where,
                base + at,
                f"an end of at most {view.size:#x}",
                f"{offset + count * size:#x}",
            )
    if e_shnum and e_shstrndx >= e_shnum:
        raise broken("e_shstrndx is wrong", where, base + 62, f"below {e_shnum}", e_shstrndx)
    if e_shnum:
        for number, row in enumerate(view.table("<II4QIIQQ", e_shoff, _SHDR_SIZE, e_shnum, "the section headers")):
            sh_type, sh_offset, sh_size = row[1], row[4], row[5]
            if sh_type not in {_SHT_NULL, _SHT_NOBITS} and sh_offset + sh_size > view.size:
                at = base + e_shoff + number * _SHDR_SIZE + 24
                raise broken(
                    f"section {number} is not in the file",
                    where,
                    at,
                    f"an end of at most {view.size:#x}",
                    f"{sh_offset + sh_size:#x}",
                )
    if e_phnum:
        for number, row in enumerate(view.table("<II6Q", e_phoff, _PHDR_SIZE, e_phnum, "the program headers")):
            if row[2] + row[5] > view.size:
                at = base + e_phoff + number * _PHDR_SIZE + 8
                raise broken(
                    f"segment {number} is not in the file",
                    where,
                    at,
                    f"an end of at most {view.size:#x}",
                    f"{row[2] + row[5]:#x}",
                )
    return e_type, e_flags


def sm_number(abi_version: int, e_flags: int) -> int:
    """Return the sm number in e_flags: bits 0 to 7, or 8 to 15 from EI_ABIVERSION 8 on (CUDA 12.8)."""
    return (e_flags >> 8 if abi_version >= _NEW_ABI else e_flags) & 0xFF


def read_header(view: View, *, base: int = 0) -> CubinHeader:
    """Return what a cubin's header says; raise FormatError for a file that is damaged. `base` as in `check_tables`."""
    e_type, e_flags = check_tables(view, EM_CUDA, base=base, types=(_ET_REL, _ET_EXEC))
    abi_version = view.read(8, 1, "EI_ABIVERSION")[0]
    sm = sm_number(abi_version, e_flags)
    if not sm:
        raise broken("e_flags has no sm number", view.where, base + 48, "an sm number", f"e_flags {e_flags:#x}")
    return CubinHeader(sm, e_type == _ET_REL)


def read(view: View) -> Program:
    """Return what a cubin holds; raise FormatError, with the offset, for one that the driver would not take."""
    header = read_header(view)
    return Program("cubin", RELOCATABLE if header.relocatable else CUDA, view.size, 64, (cuda_image(header.sm),))
