"""What a file needs, looked for in a sysroot: libraries, and the symbols that they must offer."""

from __future__ import annotations

import os

from emitter.errors import EmitterError, shown
from emitter.records import TYPE_CHECKING
from emitter.verify.model import Found, rule
from emitter.verify.rules._elf import SHN_UNDEF, STB_LOCAL, STB_WEAK, elf_of
from emitter.verify.rules.dependencies import run_paths

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.inspect.elf import ElfFile
    from emitter.verify.check import Check

_LINKED = ("library", "executable")
_FOLDERS = ("lib", "usr/lib", "lib64", "usr/lib64", "usr/local/lib", "system/lib64", "system/lib", "vendor/lib64")
_MAX_LIBRARIES = 1000  # that one file draws in


class _Library:
    """A library of the sysroot, as far as it matters here."""

    def __init__(self, path: str, elf: ElfFile) -> None:
        self.path = path
        self.machine = (elf.ehdr.e_machine, elf.is_64, elf.byte_order)
        self.needed = elf.needed
        self.offers = {
            symbol.name
            for table in elf.symbol_tables
            if table.name == "dynsym"
            for symbol in elf.symbols(table)
            if symbol.st_shndx != SHN_UNDEF and symbol.st_bind != STB_LOCAL
        }


_OPENED: dict[tuple[str, int, int], _Library | None] = {}


def _opened(path: str) -> _Library | None:
    """Return the library at a path, or None for what is none; each is read once while it stays as it is."""
    from emitter.inspect import open_file
    from emitter.inspect.elf import ElfFile

    status = os.stat(path)
    key = (path, status.st_size, status.st_mtime_ns)
    if key not in _OPENED:
        _OPENED[key] = None
        try:
            with open_file(path) as artefact:
                if isinstance(artefact.reader, ElfFile):
                    _OPENED[key] = _Library(path, artefact.reader)
        except EmitterError:
            pass  # a linker script, or broken: the next folder may have it
    return _OPENED[key]


def _folders(check: Check) -> list[str]:
    """Return where the loader would look: beside the file where $ORIGIN says so, then the folders of the sysroot."""
    root = check.profile.get("sysroot")
    origin = os.path.dirname(os.path.abspath(check.path))
    found = []
    for _, path in run_paths(check):
        if not check.member:
            found.append(path.replace("${ORIGIN}", "$ORIGIN").replace("$ORIGIN", origin))
    for folder in _FOLDERS:
        whole = os.path.join(root, folder)
        try:
            below = sorted(entry.path for entry in os.scandir(whole) if entry.is_dir() and "-" in entry.name)
        except OSError:
            continue
        found += [whole, *below]
    return found


def _find(check: Check, name: str) -> _Library | None:
    elf = elf_of(check)
    machine = (elf.ehdr.e_machine, elf.is_64, elf.byte_order)
    for folder in check.fact("sysroot folders", lambda: _folders(check)):
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            library = _opened(path)
            if library is not None and library.machine == machine:
                return library
    return None


def _closure(check: Check) -> tuple[list[_Library], list[tuple[str, str]]]:
    """Return every library that the file draws in, and (who needs it, name) of those that are not there."""

    def find() -> tuple[list[_Library], list[tuple[str, str]]]:
        found: dict[str, _Library] = {}
        missing = []
        waiting = [("", name) for name in elf_of(check).needed]
        met: set[str] = set()
        while waiting and len(met) < _MAX_LIBRARIES:
            by, name = waiting.pop(0)
            if name in met:
                continue
            met.add(name)
            library = _find(check, name)
            if library is None:
                missing.append((by, name))
            else:
                found[name] = library
                waiting += [(name, other) for other in library.needed]
        return list(found.values()), missing

    return check.fact("sysroot closure", find)


def _undefined(check: Check) -> dict[str, bool]:
    """Return the names of undefined symbols, and whether they may stay so (weak)."""
    elf = elf_of(check)
    return {
        symbol.name: symbol.st_bind == STB_WEAK
        for table in elf.symbol_tables
        if table.name == "dynsym"
        for symbol in elf.symbols(table)
        if symbol.st_shndx == SHN_UNDEF and symbol.name
    }


# A31
@rule(
    "elf-needed-missing",
    "A needed library is not in the sysroot",
    why='the program does not start, dlopen fails: "cannot open shared object file"',
    fix="add the package to the image, link it statically, or ship it beside the file with $ORIGIN",
    kinds=_LINKED,
    needs=("sysroot",),
)
def needed_missing(check: Check) -> Iterator[Found]:
    """Look for every library that the file draws in."""
    for by, name in _closure(check)[1]:
        yield Found("DT_NEEDED", "in the sysroot", f"{name}{f', which {by} needs' if by else ''}")


# A32
@rule(
    "elf-needed-unused",
    "A library is needed of which nothing is used",
    severity="info",
    why="it is loaded at every start, and drags a package into the image",
    fix="link with -Wl,--as-needed",
    kinds=_LINKED,
    needs=("sysroot",),
)
def needed_unused(check: Check) -> Iterator[Found]:
    """Compare what each library offers with the undefined symbols."""
    wanted = set(_undefined(check))
    for name in elf_of(check).needed:
        library = _find(check, name)
        if library is not None and not wanted & library.offers:
            yield Found("DT_NEEDED", "used", shown(name)[1:-1])


# A41
@rule(
    "elf-undefined-symbol",
    "A symbol is defined in none of the libraries that the file needs",
    why='the first call of it ends the program, or dlopen fails at once: "undefined symbol"',
    fix="link the library that has it, with -Wl,-z,defs to see it when linking",
    kinds=_LINKED,
    needs=("sysroot",),
)
def undefined_symbol(check: Check) -> Iterator[Found]:
    """Look for every undefined symbol that is not weak, unless a library is missing anyway."""
    libraries, missing = _closure(check)
    if missing or not elf_of(check).dynamic:
        return
    offers = set().union(*(library.offers for library in libraries))
    # A plug-in may take symbols of the program that loads it.
    severity = None if check.kind == "executable" else "warning"
    for name, weak in _undefined(check).items():
        if not weak and name not in offers:
            yield Found(f"symbol {shown(name)[1:-1]}", "in a library that is needed", "in none", severity)
