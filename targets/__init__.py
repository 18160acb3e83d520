"""The targets, and the names that people type for them.

One file beside this one is one target; nothing is registered. Only the file of the target that is asked for is
imported.
"""

from __future__ import annotations

import os
from importlib import import_module

from emitter.errors import TargetError, shown
from emitter.records import TYPE_CHECKING, NamedTuple
from emitter.targets import _names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.targets._base import MachO, Target

__all__ = ["Resolved", "describe_all", "load", "names", "resolve", "stub"]

_MAX_DIGITS = 9

STUBS = os.path.join(os.path.dirname(__file__), "stubs")


class Resolved(NamedTuple):
    """A target, the name that was typed for it, and the version that the name carried.

    `version` is of the kind that `target.version_kind` says: a C library's (`2.31`), an Android API level (`24`), or a
    system's (`13.0`), which is then `target.macho.minos`, too.
    """

    target: Target
    typed: str
    version: str | None

    @property
    def triple(self) -> str:
        """The LLVM triple, with the API level where the system has one."""
        return self.target.llvm_triple + (self.version or "" if self.target.version_kind == "android-api" else "")


def names() -> list[str]:
    """Return the canonical names of all targets, sorted. Nothing is imported for it."""
    return _names.canonical_names()


def load(name: str) -> Target:
    """Return the target of a canonical name; raise TargetError if there is none."""
    if name not in names():
        raise _names.unknown(name)
    module = import_module(f"emitter.targets.{name.replace('-', '_')}")
    target: Target = module.TARGET
    return target


def resolve(name: str) -> Resolved:
    """Return the target of a name in any spelling of `emitter.targets._names`.

    Raises TargetError if the name is unknown (with the nearest ones), ambiguous (with the choices), of a system that
    this version does not support, or carries a version that the target never had.
    """
    canonical, version = _names.parse(name)
    target = load(canonical)
    if version is not None:
        _check_version(target, name, version)
        if target.macho is not None:
            target = _with_minos(target, target.macho, name, version)
    return Resolved(target, name.strip(), version)


def describe_all() -> Iterator[Target]:
    """Yield every target, in the order of their names."""
    return map(load, names())


def stub(target: Target) -> bytes:
    """Return the stub of a target: an ELF object without data and symbols, see `emitter.llvm.emit_stub`.

    Shipped for the targets of this package; for another literal, or a changed one, LLVM makes it on the spot.
    """
    if target.name in names() and load(target.name) == target:
        try:
            with open(os.path.join(STUBS, f"{target.name}.o"), "rb") as file:
                return file.read()
        except FileNotFoundError:
            pass  # a target that was just added
    from emitter.llvm import emit_stub

    return emit_stub(target)


def _check_version(target: Target, typed: str, version: str) -> None:
    if max(map(len, version.split("."))) > _MAX_DIGITS:
        raise TargetError("not a version", where=f"target {target.name!r}", actual=f"a number of {len(version)} digits")
    if target.version_kind is None:
        raise TargetError(
            "this target has no versions", where=f"target {shown(typed)}", actual=version, hint=f"write {target.name}"
        )
    oldest = target.oldest_version
    if oldest is not None and _as_numbers(version) < _as_numbers(oldest):
        raise TargetError(
            f"the {target.version_kind} version is older than the first that this target is for",
            where=f"target {shown(typed)}",
            expected=f"{oldest} or later",
            actual=version,
        )


def _with_minos(target: Target, macho: MachO, typed: str, version: str) -> Target:
    """Return `target` for systems from `version` on, of which LC_BUILD_VERSION holds 16, 8 and 8 bits."""
    numbers = (*_as_numbers(version), 0)
    if len(numbers) > 4 or numbers[0] >= 1 << 16 or max(numbers[1:]) >= 1 << 8:
        raise TargetError(
            "the version does not fit LC_BUILD_VERSION",
            where=f"target {shown(typed)}",
            expected="at most 65535.255.255",
            actual=version,
        )
    major, minor, patch, *_ = (*numbers, 0, 0)
    minos = f"{major}.{minor}.{patch}" if patch else f"{major}.{minor}"
    sdk = max(minos, macho.sdk, key=_as_numbers)
    return target._replace(
        llvm_triple=target.llvm_triple.replace(f"{macho.minos}.0", f"{major}.{minor}.{patch}"),
        macho=macho._replace(minos=minos, sdk=sdk),
    )


def _as_numbers(version: str) -> tuple[int, ...]:
    """Return what orders versions: their numbers, without the zeros at the end, for 11 is 11.0."""
    numbers = list(map(int, version.split(".")))
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)
