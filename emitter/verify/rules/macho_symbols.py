"""Symbols of Mach-O files: what dlsym finds, where the linker may cut, and what the debugger is told."""

from __future__ import annotations

from emitter.errors import shown
from emitter.inspect import macho_names as names
from emitter.records import TYPE_CHECKING
from emitter.verify.model import Found, rule
from emitter.verify.rules.dependencies import BUILD_FOLDERS
from emitter.verify.rules.macho import is_arm64, macho_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.verify.check import Check

_MACHO = ("macho",)
_LINKED = ("library", "executable")
_MAX_COMPARED = 200_000


# A82, B11
@rule(
    "macho-exports",
    "A symbol of a library cannot be found by dlsym",
    why="dyld looks symbols up in the export trie alone, under their C name with an underscore",
    fix="export it (-exported_symbol _NAME); strip -x and other tools must write the trie again",
    formats=_MACHO,
    kinds=("library",),
)
def exports(check: Check) -> Iterator[Found]:
    """Compare the external symbols with the export trie, and look at the names of packs."""
    from itertools import islice

    macho = macho_of(check)
    if macho.dyld_info is None and macho.export_trie is None and not is_arm64(check):
        return  # a file of the time before tries (Mac OS X 10.6), whose symbol table dyld searches
    offered = {one.name for one in islice(macho.exports(), _MAX_COMPARED)}
    if len(offered) == _MAX_COMPARED:
        return
    for symbol in islice(macho.symbols(), _MAX_COMPARED):
        external = symbol.n_type & 0x11 == 0x01 and symbol.type == names.N_SECT and not symbol.stab
        if external and symbol.name not in offered:
            yield Found(f"symbol {shown(symbol.name)[1:-1]}", "in the export trie", "missing")
    for pack in check.report.packs:
        if pack.symbol and not pack.symbol.startswith("_"):
            yield Found(f"symbol {pack.symbol}", f"_{pack.symbol}, as C compilers name it", pack.symbol, "warning")


# of our own: interior symbols
@rule(
    "macho-interior-symbol",
    "A symbol inside of a pack lets the linker cut the pack to pieces",
    why="with -dead_strip only the pieces that somebody names are kept, without a word",
    fix="mark it as an alternative entry (.alt_entry; N_ALT_ENTRY in n_desc), as emitter does",
    formats=_MACHO,
    kinds=("object",),
    needs=("pack",),
)
def interior_symbol(check: Check) -> Iterator[Found]:
    """Look for symbols inside of packs without N_ALT_ENTRY."""
    macho = macho_of(check)
    for pack in check.report.packs:
        for section in macho.sections:
            if section.offset <= pack.offset < section.offset + section.size:
                start = section.addr + pack.offset - section.offset
                for symbol in macho.interior_symbols(start, start + pack.size):
                    yield Found(f"symbol {shown(symbol.name)[1:-1]}", "N_ALT_ENTRY", f"n_desc {symbol.n_desc:#x}")


# A68
@rule(
    "macho-debug-map",
    "The file names the objects that it was linked from, with their times",
    severity="warning",
    why="it tells of the build machine, and differs from build to build",
    fix="strip it (strip -S), or link with -oso_prefix and ZERO_AR_DATE=1",
    formats=_MACHO,
    kinds=_LINKED,
)
def debug_map(check: Check) -> Iterator[Found]:
    """Look for N_OSO entries."""
    for one in macho_of(check).oso():
        if one.n_value or one.name.startswith(BUILD_FOLDERS):
            yield Found("N_OSO", "a relative path, time 0", f"{shown(one.name)}, time {one.n_value}")
            return
