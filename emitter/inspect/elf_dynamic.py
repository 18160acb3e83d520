"""What the dynamic section of an ELF file leads to: its symbol table and the versions of symbols.

Source: gABI, chapter 5 (Dynamic Section, Hash Table); the Linux Standard Base, chapter 10.7 (symbol versioning); for
DT_GNU_HASH, which no standard describes, binutils' and glibc's use of it.
"""

from __future__ import annotations

from emitter.errors import FormatError
from emitter.inspect.elf_records import Dyn, SymbolTable, Verdef, Vernaux, Verneed
from emitter.inspect.strings import StringTable
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.inspect.elf import ElfFile

__all__ = ["dynamic_symbol_table", "read_dynamic", "read_verdef", "read_verneed", "version_names"]

_PT_DYNAMIC, _SHT_DYNAMIC, _DT_NULL = 2, 6, 0
_DT_HASH, _DT_SYMTAB, _DT_SYMENT, _DT_GNU_HASH, _DT_STRTAB, _DT_STRSZ = 4, 6, 11, 0x6FFFFEF5, 5, 10
_DT_VERSYM, _DT_VERDEF, _DT_VERDEFNUM, _DT_VERNEED, _DT_VERNEEDNUM = (
    0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF,
)  # fmt: skip
_SHT_GNU_VERDEF, _SHT_GNU_VERNEED, _SHT_GNU_VERSYM = 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
# Machines whose DT_HASH has 64-bit words in the 64-bit class: s390x, and Alpha under its unofficial number.
_WIDE_HASH = (22, 0x9026)

_MAX_DYNAMIC = 1 << 16
_MAX_HASHED = 1 << 22  # buckets, and symbols of one
_MAX_VERSIONS = 1 << 16  # a version's number has 15 bits
_VERSION_MASK = 0x7FFF
_HIDDEN = 0x8000


def read_dynamic(elf: ElfFile) -> list[Dyn]:
    """Return the entries before DT_NULL of PT_DYNAMIC, else of the SHT_DYNAMIC section; empty without both."""
    places = [(phdr.p_offset, phdr.p_filesz) for _, phdr in elf.segments(_PT_DYNAMIC)]
    places += [(shdr.sh_offset, shdr.sh_size) for _, shdr in elf.sections(_SHT_DYNAMIC)]
    if not places:
        return []
    offset, size = places[0]
    entry_size = 2 * elf.layouts.word_size
    entries: list[Dyn] = []
    for row in elf.view.table(elf.layouts.dyn, offset, entry_size, size // entry_size, "the dynamic section"):
        if row[0] == _DT_NULL:
            break
        entries.append(Dyn(*row))
        if len(entries) > _MAX_DYNAMIC:
            raise FormatError(
                "the dynamic section has no end", where=elf.view.where, expected=f"at most {_MAX_DYNAMIC} entries"
            )
    return entries


def dynamic_symbol_table(elf: ElfFile) -> SymbolTable | None:
    """Return the symbol table that DT_SYMTAB leads to, or None. Its length is that of its hash table."""
    address, strings, strings_size = map(elf.dynamic_value, (_DT_SYMTAB, _DT_STRTAB, _DT_STRSZ))
    if address is None or strings is None or strings_size is None:
        return None
    expected = 24 if elf.is_64 else 16
    entry_size = elf.dynamic_value(_DT_SYMENT)
    if entry_size not in (None, expected):
        raise FormatError("DT_SYMENT is wrong", where=elf.view.where, expected=expected, actual=entry_size)
    count = _hash_count(elf)
    offset = elf.offset_of(address, "DT_SYMTAB")
    elf.view.check(offset, count * expected, "the dynamic symbol table")
    strings_offset = elf.offset_of(strings, "DT_STRTAB")
    return SymbolTable("dynsym", None, offset, count, expected, strings_offset, strings_size, None, 0)


def _hash_count(elf: ElfFile) -> int:
    """Return the number of symbols, number 0 with them, that the hash tables say."""
    address = elf.dynamic_value(_DT_HASH)
    if address is not None:
        offset = elf.offset_of(address, "DT_HASH")
        wide = elf.is_64 and elf.ehdr.e_machine in _WIDE_HASH
        nbucket, nchain = elf.view.unpack(elf.layouts.order + ("2Q" if wide else "2I"), offset, "DT_HASH")
        elf.view.check(offset, (2 + nbucket + nchain) * (8 if wide else 4), "DT_HASH")
        return int(nchain)
    address = elf.dynamic_value(_DT_GNU_HASH)
    return 0 if address is None else _gnu_hash_count(elf, elf.offset_of(address, "DT_GNU_HASH"))


def _gnu_hash_count(elf: ElfFile, offset: int) -> int:
    # The table does not say how many symbols there are: the last chain, that of the highest bucket, ends with the last.
    order, view = elf.layouts.order, elf.view
    nbuckets, symndx, bloom_size, _ = view.unpack(f"{order}4I", offset, "DT_GNU_HASH")
    if nbuckets > _MAX_HASHED:
        raise FormatError(
            "DT_GNU_HASH has too many buckets", where=view.where, expected=f"at most {_MAX_HASHED}", actual=nbuckets
        )
    buckets = offset + 16 + bloom_size * elf.layouts.word_size
    last = max((row[0] for row in view.table(f"{order}I", buckets, 4, nbuckets, "DT_GNU_HASH")), default=0)
    if last < symndx:
        return int(symndx)
    chains = buckets + nbuckets * 4
    start = chains + (last - symndx) * 4
    count = min(max((view.size - start) // 4, 0), _MAX_HASHED)
    for number, (value,) in enumerate(view.table(f"{order}I", start, 4, count, "DT_GNU_HASH"), last):
        if value & 1:
            return number + 1
    raise FormatError("the last chain of DT_GNU_HASH has no end", where=view.where)


def version_names(elf: ElfFile, count: int) -> Iterator[tuple[str, bool]] | None:
    """Return an iterator of (version, whether it is hidden) of each dynamic symbol, or None without versions."""
    found = _table(elf, _SHT_GNU_VERSYM, _DT_VERSYM, None)
    if found is None:
        return None
    names = {0: "", 1: ""}
    names |= {
        version.vna_other & _VERSION_MASK: version.name for need in elf.versions_needed for version in need.versions
    }
    names |= {
        definition.vd_ndx & _VERSION_MASK: definition.names[0]
        for definition in elf.versions_defined
        if definition.names and not definition.vd_flags & 1  # VER_FLG_BASE names the library itself
    }
    rows = elf.view.table(elf.layouts.order + "H", found[0], 2, count, "the version symbol table")
    return ((names.get(row[0] & _VERSION_MASK, ""), bool(row[0] & _HIDDEN)) for row in rows)


def _table(elf: ElfFile, sh_type: int, d_tag: int, d_count: int | None) -> tuple[int, int, int, StringTable] | None:
    """Return (offset, end, number of records, strings) of a version table, by its section or its dynamic entry."""
    for number, shdr in elf.sections(sh_type):
        label = elf.section_label(number)
        elf.view.check(shdr.sh_offset, shdr.sh_size, label)
        if shdr.sh_link >= len(elf.shdrs):
            raise FormatError(f"sh_link of {label} is not a section", where=elf.view.where, actual=shdr.sh_link)
        link = elf.shdrs[shdr.sh_link]
        # The version symbol table is linked to the symbol table, whose strings are not needed here.
        strings = (0, 0) if d_count is None else (link.sh_offset, link.sh_size)
        table = StringTable(elf.view, *strings, f"the string table of {label}")
        return shdr.sh_offset, shdr.sh_offset + shdr.sh_size, shdr.sh_info, table
    address = elf.dynamic_value(d_tag)
    names = elf.dynamic_strings
    if address is None or names is None:
        return None
    records = 0 if d_count is None else elf.dynamic_value(d_count) or 0
    return elf.offset_of(address, "a version table"), elf.view.size, records, names


def read_verneed(elf: ElfFile) -> list[Verneed]:
    """Return the records of SHT_GNU_verneed. Raises FormatError for a chain that leaves its table."""
    found = _table(elf, _SHT_GNU_VERNEED, _DT_VERNEED, _DT_VERNEEDNUM)
    if found is None:
        return []
    offset, end, count, strings = found
    chain = _Chain(elf, end, "a version needed")
    needs = []
    for record in chain.records("2H3I", offset, count, 4):
        position, (vn_version, vn_cnt, vn_file, vn_aux, _) = record
        versions = tuple(
            Vernaux(vna_hash, vna_flags, vna_other, strings.get(vna_name, "the name of a version"))
            for _, (vna_hash, vna_flags, vna_other, vna_name, _) in chain.records("I2H2I", position + vn_aux, vn_cnt, 4)
        )
        needs.append(Verneed(vn_version, vn_cnt, strings.get(vn_file, "vn_file"), versions))
    return needs


def read_verdef(elf: ElfFile) -> list[Verdef]:
    """Return the records of SHT_GNU_verdef. Raises FormatError for a chain that leaves its table."""
    found = _table(elf, _SHT_GNU_VERDEF, _DT_VERDEF, _DT_VERDEFNUM)
    if found is None:
        return []
    offset, end, count, strings = found
    chain = _Chain(elf, end, "a version defined")
    definitions = []
    for position, row in chain.records("4H3I", offset, count, 6):
        vd_version, vd_flags, vd_ndx, vd_cnt, vd_hash, vd_aux, _ = row
        names = tuple(
            strings.get(vda_name, "the name of a version")
            for _, (vda_name, _) in chain.records("2I", position + vd_aux, vd_cnt, 1)
        )
        definitions.append(Verdef(vd_version, vd_flags, vd_ndx, vd_hash, names))
    return definitions


class _Chain:
    """Follows records that say how far the next one is, in one table; all chains of it share one bound."""

    def __init__(self, elf: ElfFile, end: int, what: str) -> None:
        self._elf, self._end, self._what = elf, end, what
        self._left = _MAX_VERSIONS

    def records(self, form: str, offset: int, count: int, next_field: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield (offset, fields) of up to `count` records."""
        view = self._elf.view
        for _ in range(count):
            self._left -= 1
            if self._left < 0:
                raise FormatError(f"too many records of {self._what}", where=view.where, expected=_MAX_VERSIONS)
            row = view.unpack(self._elf.layouts.order + form, offset, self._what)
            if offset >= self._end:
                raise FormatError(
                    f"{self._what} is outside of its table",
                    where=view.where,
                    expected=f"an offset below {self._end:#x}",
                    actual=f"{offset:#x}",
                )
            yield offset, row
            if not row[next_field]:
                return
            offset += row[next_field]
