"""The check of Mach-O objects and shared libraries after writing.

Source: <mach-o/loader.h>, <mach-o/nlist.h>; for images what dyld demands of them, of whatever SDK.
"""

from __future__ import annotations

from emitter.check.macho_readback import (
    LC_BUILD_VERSION,
    LC_CODE_SIGNATURE,
    LC_DYLD_INFO_ONLY,
    LC_DYSYMTAB,
    LC_ID_DYLIB,
    LC_LOAD_DYLIB,
    LC_SYMTAB,
    LC_UUID,
    MachO,
    Trie,
    check_signature,
    read_macho,
    read_symbols,
)
from emitter.check.pack import check_pack_at, check_pack_within, open_output
from emitter.check.readback import difference, expect, require, text
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from emitter.check.macho_readback import Section, Symbol
    from emitter.check.readback import Reader
    from emitter.layout import FilePlan
    from emitter.pack.plan import PackPlan
    from emitter.targets._base import Target

__all__ = ["check_image", "check_object"]

_MAX_LOOKUPS = 1000  # names that are looked up in the trie
_MAX_WALK = 64 << 10  # bytes of a trie that is walked to every end
_PAGE = 16384

_OBJECT_FLAGS = 0x2000  # MH_SUBSECTIONS_VIA_SYMBOLS
# MH_NOUNDEFS, MH_DYLDLINK, MH_TWOLEVEL, MH_NO_REEXPORTED_DYLIBS, MH_APP_EXTENSION_SAFE
_IMAGE_FLAGS = 0x2100085
_IMAGE_SEGMENTS = [(b"__TEXT", 5, 5), (b"__EMITTER", 1, 1), (b"__LINKEDIT", 1, 1)]  # (name, maxprot, initprot)
_IMAGE_COMMANDS = {
    LC_SYMTAB: "LC_SYMTAB",
    LC_DYSYMTAB: "LC_DYSYMTAB",
    LC_LOAD_DYLIB: "LC_LOAD_DYLIB",
    LC_ID_DYLIB: "LC_ID_DYLIB",
    LC_UUID: "LC_UUID",
    LC_BUILD_VERSION: "LC_BUILD_VERSION",
    LC_DYLD_INFO_ONLY: "LC_DYLD_INFO_ONLY",
    LC_CODE_SIGNATURE: "LC_CODE_SIGNATURE",
}


def check_image(
    fd: int,
    target: Target,
    plan: FilePlan,
    pack: PackPlan | None,
    symbol: str | None,
    *,
    member: tuple[int, int] | None = None,
) -> None:
    """Check a Mach-O shared library, or `member` (offset, size in bytes) of a universal file that is one."""
    reader = open_output(fd, target, plan, member)
    file = read_macho(reader, target, filetype=6, flags=_IMAGE_FLAGS)
    _check_segments(reader, file)
    for command, name in _IMAGE_COMMANDS.items():
        expect(f"number of {name}", len(file.commands.get(command, [])), 1)
    info = reader.unpack("12I", file.commands[LC_DYLD_INFO_ONLY][0], "LC_DYLD_INFO_ONLY")
    expect("what is to be rebased and bound", info[2:10], (0,) * 8)
    require("LC_UUID is written", any(reader.read(file.commands[LC_UUID][0] + 8, 16, "LC_UUID")))
    trie = Trie(reader, *info[10:])
    at = _check_exports(reader, file, trie)
    if pack is not None and symbol is not None and plan.pack_offset is not None:
        check_pack_at(reader, plan, pack)
        pack_at = plan.pack_offset - reader.base
        holder = _pack_section(file, pack_at, pack)
        expect("size of the pack's section", holder.size, pack.total_size)
        prefix = target.symbol_prefix
        for name in (symbol, "emitter_pack"):
            expect(f"address of {name}", at.get((prefix + name).encode()), pack_at)
        size_at = at.get(f"{prefix}{symbol}_size".encode(), reader.size)  # where there is none, nothing can be read
        expect(f"content of {symbol}_size", reader.unpack("Q", size_at, "size"), (pack.total_size,))
        for name_bytes, address in at.items():
            inside = pack_at <= address <= pack_at + pack.total_size or address == size_at
            require(f"symbol {text(name_bytes)} lies in the pack", inside)
    check_signature(reader, file, target.max_page_size)


def _check_exports(reader: Reader, file: MachO, trie: Trie) -> dict[bytes, int]:
    """Return the addresses of the symbols; the trie must give the same, all of it or a bounded number of lookups."""
    symbols = read_symbols(reader, file)
    for name, row in symbols:
        expect(f"n_type of {text(name)}", row.n_type, 0x0F)  # N_SECT | N_EXT
    addresses = {name: row.n_value for name, row in symbols}
    if trie.size <= _MAX_WALK:
        expect("what the export trie leads to", trie.exports(), addresses)
    for number in range(0, len(symbols), 1 + len(symbols) // _MAX_LOOKUPS):
        name, row = symbols[number]
        expect(f"address of {text(name)} in the export trie", trie.find(name), row.n_value)
    return addresses


def check_object(
    fd: int,
    target: Target,
    plan: FilePlan,
    pack: PackPlan | None,
    symbol: str | None,
    *,
    member: tuple[int, int] | None = None,
) -> bool:
    """Check a Mach-O object, or `member` (offset, size in bytes) of another file; return whether it holds the pack."""
    reader = open_output(fd, target, plan, member)
    file = read_macho(reader, target, filetype=1, flags=_OBJECT_FLAGS)
    symbols = read_symbols(reader, file)
    _check_atoms(file, symbols)
    at = check_pack_within(reader, plan, pack)
    if pack is None or symbol is None or at is None:
        return at is not None
    found = dict(symbols)
    rows = []
    for name in (symbol, f"{symbol}_size"):
        row = found.get((target.symbol_prefix + name).encode())
        if row is None:
            raise difference(f"symbol {name}", "in the symbol table", "none")
        expect(f"n_type of {name}", row.n_type & 0xEF, 0x0F)  # but for N_PEXT
        expect(f"N_ALT_ENTRY of {name}", row.n_desc & 0x200, 0)
        rows.append((row, file.sections[row.n_sect - 1]))
    (row, section), (size_row, size_section) = rows
    expect(f"place of {symbol}", section.offset + row.n_value - section.addr, at)
    require("the pack lies in its section", at + pack.total_size <= section.offset + section.size)
    size_at = size_section.offset + size_row.n_value - size_section.addr
    expect(f"content of {symbol}_size", reader.unpack("Q", size_at, "size"), (pack.total_size,))
    return True


def _check_segments(reader: Reader, file: MachO) -> None:
    """Compare the segments with what dyld maps: in order, without a gap, pages of their own, to the end of the file."""
    segments = file.segments
    expect("segments", [(one.segname, one.maxprot, one.initprot) for one in segments], _IMAGE_SEGMENTS)
    end = 0
    for one in segments:
        name = text(one.segname)
        expect(f"(vmaddr, fileoff) of {name}", (one.vmaddr, one.fileoff), (end, end))
        expect(f"fileoff of {name} modulo the page", one.fileoff % _PAGE, 0)
        expect(f"vmsize of {name}", one.vmsize, -(-one.filesize // _PAGE) * _PAGE)
        end += one.filesize
    expect("end of __LINKEDIT", end, reader.size)
    for row in file.sections:
        expect(f"addr of {text(row.sectname)}", row.addr, row.offset)
    slack = min(row.offset for row in file.sections) - file.commands_end if file.sections else 0
    require("there is room behind the load commands", slack >= 64)


def _pack_section(file: MachO, at: int, pack: PackPlan) -> Section:
    holders = [row for row in file.sections if row.offset == at and row.size]
    expect("number of sections that begin with the pack", len(holders), 1)
    require("the section's alignment is the pack's or more", 1 << holders[0].align >= pack.alignment)
    return holders[0]


def _check_atoms(file: MachO, symbols: list[tuple[bytes, Symbol]]) -> None:
    """Compare sections with their symbols: each begins with an atom, and every symbol lies in the section it names."""
    starts = set()
    for name, row in symbols:
        if row.n_type & 0x0E == 0x02:  # N_ABS
            continue
        if not 0 < row.n_sect <= len(file.sections):
            raise difference(f"n_sect of {text(name)}", f"1 to {len(file.sections)}", row.n_sect)
        section = file.sections[row.n_sect - 1]
        inside = section.addr <= row.n_value < section.addr + section.size
        require(f"symbol {text(name)} lies in its section", inside)
        if not row.n_desc & 0x200:  # N_ALT_ENTRY
            starts.add((row.n_sect, row.n_value))
    for number, section in enumerate(file.sections, 1):
        require(f"an atom begins section {text(section.sectname)}", (number, section.addr) in starts)
