"""Finds a linker for a target: the one that is named, else LLD, else the target's GNU ld, else that of ziglang."""

from __future__ import annotations

import os
import re

from emitter.errors import TargetError, UsageError, shown
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Literal, TypeAlias

    from emitter.targets._base import ObjectFormat, Target

__all__ = ["Flavour", "Linker", "find_linker", "linkers"]

# How a linker is spoken to: as GNU ld for ELF or PE (LLD and mold understand most of it), as Apple's, as Microsoft's,
# as zig's compiler, behind which its own linker for Apple's systems is.
Flavour: TypeAlias = 'Literal["gnu", "lld", "mold", "ld64", "link", "zig"]'

_LLD_VERSIONS = range(30, 13, -1)  # Debian and Ubuntu put the version behind the name


class Linker(NamedTuple):
    """A linker and how it is spoken to; `name` is for messages."""

    flavour: Flavour
    command: tuple[str, ...]
    name: str


# What each object format is linked with: the name of LLD, and how it is spoken to; the same of the linker in ziglang.
_LLD: Mapping[ObjectFormat, tuple[str, Flavour]] = {
    "elf": ("ld.lld", "lld"),
    "macho": ("ld64.lld", "ld64"),
    "coff": ("lld-link", "link"),
}
_ZIG: Mapping[ObjectFormat, tuple[str, Flavour]] = {**_LLD, "macho": ("cc", "zig")}
_TAKES: Mapping[ObjectFormat, tuple[Flavour, ...]] = {
    "elf": ("lld", "gnu", "mold"),
    "macho": ("ld64",),
    "coff": ("link", "gnu"),
}
# The flavour of a command by its name, the first that fits.
_NAMES: tuple[tuple[str, Flavour], ...] = (
    (r"ld64(\.lld)?([-.]\d+)?", "ld64"),
    (r"lld-link([-.]\d+)?", "link"),
    (r"(ld\.)?lld([-.]\d+)?", "lld"),
    (r"(ld\.)?mold", "mold"),
    (r"(.*-)?ld(\.bfd|\.gold)?", "gnu"),
)


def find_linker(target: Target, named: str | None, say: Callable[[str], None]) -> Linker:
    """Return the linker `named`, or the first that is found; say which, and why not those before it.

    Raises UsageError for a name that is no linker of the target's format, TargetError where there is none at hand.
    """
    if named is not None:
        linker = _named(target, named)
        say(f"linker: {linker.name}, as asked for")
        return linker
    passed: list[str] = []
    for linker in linkers(target, passed.append):
        say(f"linker: {linker.name}" + (f" ({'; '.join(passed)})" if passed else ""))
        return linker
    lld, _ = _LLD[target.object_format]
    packages = ["pip install ziglang", f"{lld} (package lld of Debian, Fedora and Homebrew)"]
    if target.gnu_triple:
        packages.append(f"{target.gnu_triple}-ld (package binutils-{target.gnu_triple.replace('_', '-')} of Debian)")
    raise TargetError(
        "there is no linker for this target",
        where=target.name,
        expected=" or ".join(packages),
        actual="; ".join(passed),
        hint="install one, or name one with --linker; an archive needs none",
    )


def linkers(target: Target, passed: Callable[[str], None] = lambda _reason: None) -> Iterator[Linker]:
    """Yield the linkers for a target that are at hand, the best first; `passed` is told why others are not."""
    from shutil import which

    lld, flavour = _LLD[target.object_format]
    found = next(filter(None, (which(name) for name in (lld, *(f"{lld}-{n}" for n in _LLD_VERSIONS)))), None)
    if found is None:
        passed(f"no {lld} on the path")
    elif (version := _lld_version(found, target)) < target.lld_since:
        passed(f"{found} is LLD {version}, which does not link for {target.name}")
    else:
        yield Linker(flavour, (found,), found)
    if "gnu" in _TAKES[target.object_format]:
        names = [f"{target.gnu_triple}-ld"] if target.gnu_triple else []
        found = next(filter(None, map(which, names)), None)
        if found is None:
            passed(f"no {names[0]} on the path" if names else "no GNU ld for this target")
        else:
            yield Linker("gnu", (found,), found)
    zig = _zig()
    if zig is not None:
        yield _of_zig(zig, target, "ziglang")
    else:
        passed("no Python package ziglang")


def _of_zig(zig: str, target: Target, where: str) -> Linker:
    name, flavour = _ZIG[target.object_format]
    return Linker(flavour, (zig, name), f"{name} of {where}")


def _named(target: Target, named: str) -> Linker:
    from shutil import which

    if named in {"zig", "ziglang"}:
        zig = _zig() or which("zig")
        if zig is None:
            raise UsageError(
                "the Python package ziglang is not installed", where=f"--linker {named}", hint="pip install ziglang"
            )
        return _of_zig(zig, target, zig)
    path = which(named)
    if path is None:
        raise UsageError("no such program", where=f"--linker {shown(named)}", hint="name one on PATH, or its path")
    base = os.path.basename(path).removesuffix(".exe")
    said = next((flavour for pattern, flavour in _NAMES if re.fullmatch(pattern, base)), None)
    if said not in _TAKES[target.object_format]:
        raise UsageError(
            "not a linker for this target",
            where=f"--linker {named}",
            expected=f"{_LLD[target.object_format][0]}{', GNU ld' if 'gnu' in _TAKES[target.object_format] else ''}"
            f"{', mold' if target.object_format == 'elf' else ''} or zig",
            actual=f"a program called {base}",
        )
    if said == "lld" and (version := _lld_version(path, target)) < target.lld_since:
        raise TargetError(
            f"this LLD does not link for {target.name}",
            where=path,
            expected=f"LLD {target.lld_since} or later",
            actual=f"LLD {version}",
        )
    return Linker(said, (path,), path)


def _lld_version(command: str, target: Target) -> int:
    """Return the major version of an LLD; it is only asked where that decides."""
    from subprocess import TimeoutExpired

    from emitter.processes import run

    if target.lld_since <= 14:
        return target.lld_since
    try:
        done = run([command, "--version"], seconds=60)
    except (OSError, TimeoutExpired):
        return 0
    found = re.search(rb"LLD (\d{1,9})", done.stdout)
    return int(found.group(1)) if found else 0


def _zig() -> str | None:
    """Return the command in the Python package ziglang, or None."""
    from importlib.util import find_spec

    spec = find_spec("ziglang")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for name in ("zig", "zig.exe"):
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                return path
    return None
