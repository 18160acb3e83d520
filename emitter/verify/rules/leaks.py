"""What a file tells of the machine that built it, and what differs from build to build."""

from __future__ import annotations

import re

from emitter.errors import shown
from emitter.records import TYPE_CHECKING
from emitter.verify.model import Found, rule
from emitter.verify.rules._elf import STT_FILE, elf_of, section_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.inspect.elf_records import Shdr
    from emitter.verify.check import Check

# Folders of people and of build machines. Those that programs name for good reasons (/usr, /etc) are not among them.
_FOLDERS = (
    rb"/(?:home|root|Users|build|builds|builddir|buildd|workspace|github|__w|tmp|var/tmp|var/lib/jenkins)"
    rb"|[A-Za-z]:[\\/](?:Users|build|builds|a|work|workspace)"
)
# In sections of debug information every path counts, elsewhere only those of sources (__FILE__, assert).
_DEBUG_PATH = re.compile(rb"(?<![\x21-\x7e])(?:" + _FOLDERS + rb")[\\/][\x20-\x7e]{1,400}")
_SOURCE_PATH = re.compile(
    rb"(?<![\x21-\x7e])(?:"
    + _FOLDERS
    + rb")[\\/][\x20-\x7e]{1,400}?"
    + rb"\.(?:c|cc|cpp|cxx|cu|h|hh|hpp|inc|s|S|rs|go|f90|m|mm|swift|zig|ll|py|o|a)(?![\x21-\x7e])"
)
_DEBUG = (".debug_str", ".debug_line", ".debug_line_str", ".debug_info", ".stabstr", ".debug_macro")
_TEXT = (".rodata", ".data", ".strtab", ".dynstr", ".comment", ".GCC.command.line", ".note.gnu.gold-version")
_MAX_SCANNED = 64 << 20  # bytes of one section that are looked at
_OVERLAP = 512
_SHF_COMPRESSED = 0x800


def _wanted(name: str, names: tuple[str, ...]) -> bool:
    return any(name == one or name.startswith(f"{one}.") for one in names)


def _contents(check: Check, shdr: Shdr) -> Iterator[bytes]:
    """Yield a section in pieces that overlap; one that is compressed as it was before, up to a limit."""
    elf = elf_of(check)
    size = min(shdr.sh_size, _MAX_SCANNED)
    if not shdr.sh_flags & _SHF_COMPRESSED:
        packs = [(pack.offset, pack.offset + pack.size) for pack in check.report.packs]
        for offset in range(0, size, 1 << 20):
            start = shdr.sh_offset + offset
            # Weights are no text, and of any size.
            if not any(low <= start < high for low, high in packs):
                yield elf.view.read(start, min((1 << 20) + _OVERLAP, size - offset), "a section")
        return
    import zlib

    header = 24 if elf.is_64 else 12
    (ch_type,) = elf.view.unpack(elf.layouts.order + "I", shdr.sh_offset, "a compressed section")
    if ch_type != 1:
        return  # zstd, which not every Python can read
    data = elf.view.read(shdr.sh_offset, min(shdr.sh_size, 8 << 20), "a compressed section")
    try:
        yield zlib.decompressobj().decompress(data[header:], _MAX_SCANNED)
    except zlib.error:
        return


# A67
@rule(
    "build-path",
    "A path of the build machine is in the file",
    severity="warning",
    why="it tells the names of people and projects, and makes builds in two folders differ",
    fix="compile with -ffile-prefix-map=$PWD=. (or -fdebug-prefix-map), or strip the debug information",
)
def build_path(check: Check) -> Iterator[Found]:
    """Look through sections of debug information, constants and names."""
    elf = elf_of(check)
    for number, shdr in elf.sections():
        name = section_names(check)[number]
        debug = _wanted(name, _DEBUG)
        if shdr.sh_type == 8 or not (debug or _wanted(name, _TEXT)):
            continue
        pattern = _DEBUG_PATH if debug else _SOURCE_PATH
        for data in _contents(check, shdr):
            match = pattern.search(data)
            if match:
                yield Found(name, "no path of a build", match[0].decode("utf-8", "replace"))
                break


_TEMPORARY = re.compile(r"(?:^|/)(?:cc[A-Za-z0-9]{6}|tmp[A-Za-z0-9_]{6,}|[0-9a-f]{32,})\.\w{1,3}$")


# A68, B49
@rule(
    "elf-file-symbol",
    "A symbol names a temporary or absolute source file",
    severity="warning",
    why="the name is another one in each build, so that no two builds are equal, and tells of the build machine",
    fix="give the compiler a fixed, relative name (-ffile-prefix-map), or strip the symbols",
)
def file_symbol(check: Check) -> Iterator[Found]:
    """Look at the names of STT_FILE symbols."""
    elf = elf_of(check)
    for table in elf.symbol_tables:
        if table.name != "symtab":
            continue
        for symbol in elf.symbols(table):
            if symbol.st_type != STT_FILE:
                if table.first_global and symbol.number >= table.first_global:
                    break  # they are local, and locals come first
                continue
            if symbol.name.startswith("/") or _TEMPORARY.search(symbol.name):
                yield Found("STT_FILE", "a relative name that stays", shown(symbol.name))
