"""Finds what would read the placeholder in a linked library, where the payload ought to be read.

Once a linker has resolved a reference to the placeholder, nothing says so any more but the address: in a relocation
that adds the load address to it, or in the instructions themselves. What refers to the symbol by name, through the GOT
or from data, is found by the loader, in the symbol table, and reads the payload.
"""

from __future__ import annotations

from struct import Struct

from emitter import elf
from emitter.attach.decode import DATA_DECODERS, DECODERS
from emitter.attach.stub import PLACEHOLDER, PLACEHOLDER_AT
from emitter.errors import UsageError
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from emitter.attach.library import Library, Stub

__all__ = ["check_references"]

_DT_PLTRELSZ, _DT_RELA, _DT_RELASZ, _DT_REL, _DT_RELSZ, _DT_PLTREL, _DT_JMPREL = 2, 7, 8, 17, 18, 20, 23
_DT_RELRSZ, _DT_RELR = 35, 36
_PACKED = {0x6000000F: "DT_ANDROID_REL", 0x60000011: "DT_ANDROID_RELA", 0x6FFFE000: "DT_ANDROID_RELR"}
_SHF_EXECINSTR = 4
_DT_PLTGOT = 3
_GOT_NAMES = (b".got", b".got.plt")
_GOT_BASES = {3: 0, 22: 0, 21: 0x8000}  # e_machine -> from the section to what code adds offsets to

# e_machine -> the relocations that write a symbol's bytes, and load address plus addend.
_COPY = {62: 5, 183: 1024, 243: 4, 40: 20, 3: 5, 22: 9, 21: 19}
_RELATIVE = {62: 8, 183: 1027, 243: 3, 40: 23, 3: 8, 22: 12, 21: 22}

_MARGIN = 8  # bytes

_HINT = (
    "read the payload through its descriptor; or declare its symbol with default visibility, and link without "
    "-Bsymbolic and link-time optimisation (docs/attach.md)"
)


def check_references(library: Library, stub: Stub, names: Collection[bytes]) -> None:
    """Raise UsageError if a relocation or an instruction of `library` would read the placeholder.

    `names` are the symbols whose values will be the payload's. Raises FormatError for relocations that are damaged, and
    UsageError for such as cannot be read (packed for Android).
    """
    first = stub.placeholder + PLACEHOLDER_AT  # where the symbols stand
    # A little less than the section: of an instruction that reads what is beside it, the end may be misjudged.
    low, high = stub.placeholder + _MARGIN, stub.placeholder + len(PLACEHOLDER) - _MARGIN
    symbols = _dynamic_symbols(library)
    for name, sym in symbols:
        inside = low <= sym.st_value < high and sym.st_shndx != elf.SHN_UNDEF
        if inside and name not in names and sym.st_info & 15 == elf.STT_OBJECT:
            raise _refused(library, f"symbol {name.decode(errors='replace')}", "stands for the placeholder")
    for d_tag, tag_name in _PACKED.items():
        if library.value(d_tag):
            raise UsageError(
                "the relocations are packed",
                where=library.where,
                actual=tag_name,
                hint="link without --pack-dyn-relocs=android",
            )
    copy = _COPY[library.target.e_machine]
    relative = _RELATIVE[library.target.e_machine]
    for r_offset, symbol, r_type, addend in _relocations(library):
        if symbol >= len(symbols):
            raise library.broken("relocations", f"symbol {symbol} of {len(symbols)}")
        name, sym = symbols[symbol]
        ours = name in names and sym.st_value == first
        if ours and r_type != copy:
            continue
        value = addend if r_type == relative or not symbol else sym.st_value + addend
        if low <= value < high and (r_type == relative or sym.st_shndx or not symbol):
            raise _refused(library, f"the relocation at {r_offset:#x}", f"points to the placeholder at {low:#x}")
    for place in _relr_places(library):
        if low <= library.word(place, "relocations") < high:
            raise _refused(library, f"the relocation at {place:#x}", f"points to the placeholder at {low:#x}")
    for number, row in enumerate(library.shdrs):
        if row.sh_type == elf.SHT_PROGBITS and row.sh_flags & elf.SHF_ALLOC:
            decoders = DECODERS if row.sh_flags & _SHF_EXECINSTR else DATA_DECODERS
            decode = decoders.get(library.target.e_machine)
            for base in _bases(library) if decode else ():
                for address in decode(library.section_data(number), row.sh_addr, low, high, base) if decode else ():
                    where = f"{library.section_name(number).decode(errors='replace')}, address {address:#x}"
                    raise _refused(library, where, f"reads the placeholder at {low:#x}")


def _refused(library: Library, what: str, actual: str) -> UsageError:
    return UsageError(
        "a reference would read the placeholder, not the payload",
        where=f"{library.where}: {what}",
        actual=actual,
        hint=_HINT,
    )


def _dynamic_symbols(library: Library) -> list[tuple[bytes, elf.Sym]]:
    for number, row in enumerate(library.shdrs):
        if row.sh_type == elf.SHT_DYNSYM:
            return library.syms(number)
    raise library.broken("dynamic symbols", "no SHT_DYNSYM")


def _bases(library: Library) -> list[int]:
    """Return the addresses that code may add offsets to where it is not its own: of the GOT, of PowerPC's TOC.

    Linkers begin the GOT in either section, and say it in DT_PLTGOT only if there is a PLT.
    """
    if library.target.e_machine not in _GOT_BASES:
        return [0]
    found = {library.value(_DT_PLTGOT)}
    found |= {row.sh_addr for number, row in enumerate(library.shdrs) if library.section_name(number) in _GOT_NAMES}
    return [base + _GOT_BASES[library.target.e_machine] for base in sorted(found - {0})]


def _relocations(library: Library) -> Iterator[tuple[int, int, int, int]]:
    """Yield (r_offset, symbol number, type, addend) of each dynamic relocation, of both kinds."""
    pltrel = library.value(_DT_PLTREL)
    tables = (
        (_DT_RELA, library.value(_DT_RELA), library.value(_DT_RELASZ)),
        (_DT_REL, library.value(_DT_REL), library.value(_DT_RELSZ)),
        (pltrel, library.value(_DT_JMPREL), library.value(_DT_PLTRELSZ)),
    )
    word = library.encoding.word_code
    shift, mask = (32, 0xFFFFFFFF) if library.encoding.is_64 else (8, 0xFF)
    for kind, address, size in tables:
        if not address or not size:
            continue
        is_rela = kind == _DT_RELA
        layout = Struct(f"{library.order}2{word}{word.lower() if is_rela else ''}")
        start = library.offset(address, size, "relocations")
        for row in layout.iter_unpack(library.bytes_at(start, size - size % layout.size, "relocations")):
            r_offset, r_info = row[0], row[1]
            # A relocation without addend has it in the field, which is behind the file's bytes for none that has one.
            addend = row[2] if is_rela else _in_place(library, r_offset)
            yield r_offset, r_info >> shift, r_info & mask, addend


def _in_place(library: Library, address: int) -> int:
    for load in library.loads:
        if load.p_vaddr + load.p_filesz <= address < load.p_vaddr + load.p_memsz:
            return 0
    return library.word(address, "relocations")


def _relr_places(library: Library) -> Iterator[int]:
    """Yield the addresses that DT_RELR relocates: an address, then bitmaps of the words that follow it."""
    size = library.value(_DT_RELRSZ)
    if not library.value(_DT_RELR) or not size:
        return
    word = library.encoding.word_size
    start = library.offset(library.value(_DT_RELR), size, "relocations")
    layout = Struct(library.order + library.encoding.word_code)
    place = 0
    for (entry,) in layout.iter_unpack(library.bytes_at(start, size - size % word, "relocations")):
        if not entry & 1:
            yield entry
            place = entry + word
            continue
        for bit in range(1, word * 8):
            if entry >> bit & 1:
                yield place + (bit - 1) * word
        place += (word * 8 - 1) * word
