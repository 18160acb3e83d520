"""Profiles: what a platform asks of its artefacts, as data.

A profile is a table of keys (`KEYS`). Those of this package are the files in `profiles/`; users write their own in the
configuration (`[profiles.NAME]`) or in a TOML file, and `extends` names the profile whose keys they take over.
"""

from __future__ import annotations

import os

from emitter.errors import UsageError, shown
from emitter.records import TYPE_CHECKING, NamedTuple
from emitter.verify.model import RULES, SEVERITIES, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

__all__ = ["DEFAULT", "KEYS", "Key", "Profile", "load_profile", "read_toml", "shipped"]

DEFAULT = "generic-linux"

_FOLDER = os.path.join(os.path.dirname(__file__), "profiles")
_MAX_EXTENDS = 10
_MAX_TOML = 16 << 20


class Key(NamedTuple):
    """A key of a profile: the type of its value, what it means, and what the value, or each in a list, can be."""

    type: type
    meaning: str
    choices: tuple[object, ...] = ()


KEYS: dict[str, Key] = {
    "description": Key(str, "one line about the platform"),
    "extends": Key(str, "name or path of the profile whose keys are taken over; tables are merged"),
    "target": Key(str, "the target, where the command and the configuration name none"),
    "formats": Key(list, "formats of artefacts that the platform loads", ("elf", "macho", "pe", "coff")),
    "page-size": Key(int, "largest page of the platform's 64-bit kernels, in bytes"),
    "page-size-32": Key(int, "largest page that its 32-bit programs meet, in bytes"),
    "symbol-versions": Key(dict, "newest version of each family of versioned symbols that the platform has"),
    "libraries": Key(list, "patterns of all the libraries that an artefact may need"),
    "sysroot": Key(
        str, "folder with the platform's files (from the current one), where needed libraries and symbols must be"
    ),
    "hash-styles": Key(list, "hash tables that a library must have", ("sysv", "gnu")),
    "soname": Key(bool, "whether a library must state DT_SONAME, its own file name"),
    "build-id": Key(bool, "whether a linked file must have a build id"),
    "relro": Key(bool, "whether a linked file must have a read-only relocated part"),
    "bind-now": Key(bool, "whether a linked file must bind all symbols at start"),
    "stripped": Key(bool, "whether debug information is refused"),
    "properties": Key(bool, "whether the branch protection of the target must be stated (BTI, IBT)"),
    "position-independent": Key(bool, "whether programs must be position-independent"),
    "time64": Key(bool, "whether 32-bit times and file offsets are refused"),
    "no-run-path": Key(bool, "whether paths in DT_RPATH and DT_RUNPATH are refused, but those from $ORIGIN"),
    "x86-isa-level": Key(int, "highest x86-64 level (1 to 4) of the platform's processors", (1, 2, 3, 4)),
    "isa-extensions": Key(list, "extensions that the processors have beside the target's own (RISC-V names)"),
    "cuda-architectures": Key(list, "sm numbers of the platform's GPUs"),
    "minimum-os": Key(str, "oldest version of the system that must load the file"),
    "max-size": Key(int, "largest artefact, in bytes"),
    "reproducible": Key(bool, "whether what differs from build to build is refused"),
    "second-parser": Key(bool, "whether pyelftools and lief read small files too, and must agree (slow)"),
    "rules": Key(dict, "severity of single rules: off, info, warning or error"),
}


class Profile:
    """A profile with everything that it extends. `get` gives the value of a key, or None."""

    def __init__(self, name: str, values: Mapping[str, Any]) -> None:
        self.name = name
        self.values = dict(values)

    def get(self, key: str) -> Any:
        """Return the value of a key of `KEYS`, or None."""
        if key not in KEYS:
            raise KeyError(key)
        return self.values.get(key)

    def severity(self, rule: str) -> str | None:
        """Return what the profile makes of a rule: a severity, `off`, or None."""
        value = self.values.get("rules", {}).get(rule)
        return None if value is None else str(value)


def shipped() -> list[str]:
    """Return the names of the profiles of this package, sorted."""
    return sorted(name[:-5] for name in os.listdir(_FOLDER) if name.endswith(".toml"))


def load_profile(name: str, own: Mapping[str, object] | None = None, where: str = "") -> Profile:
    """Return the profile `name`: one of `own` (of the configuration), of this package, or the path of a TOML file.

    Raises UsageError for one that is not there, has keys or values that profiles do not have, or extends itself.
    """
    values: dict[str, Any] = {}
    seen: list[str] = []
    chain: list[Mapping[str, Any]] = []
    wanted: str | None = name
    while wanted is not None:
        if len(seen) == _MAX_EXTENDS or wanted in seen:
            raise UsageError("profiles extend one another in a circle", where=" -> ".join([*seen, wanted]))
        seen.append(wanted)
        table, place = _table(wanted, own or {}, where)
        check_profile(table, place)
        chain.append(table)
        wanted = table.get("extends")
    for table in reversed(chain):
        for key, value in table.items():
            values[key] = {**values.get(key, {}), **value} if isinstance(value, dict) else value
    return Profile(name, values)


def _table(name: str, own: Mapping[str, object], where: str) -> tuple[Mapping[str, Any], str]:
    if name in own:
        table = own[name]
        place = f"{where}: profiles.{name}" if where else name
        if not isinstance(table, dict):
            raise UsageError("a profile is not a table", where=place, actual=shown(table))
        return table, place
    if name in shipped():
        path = os.path.join(_FOLDER, f"{name}.toml")
    elif name.endswith(".toml"):
        path = name
    else:
        names = [*own, *shipped()]
        hint = nearest(name, names) or f"there are {', '.join(names)}, and paths that end in .toml"
        raise UsageError("no such profile", where=shown(name), hint=hint)
    return read_toml(path), path


def check_profile(table: Mapping[str, Any], where: str) -> None:
    """Raise UsageError for a key that profiles do not have, or a value of another type."""
    for key, value in table.items():
        if key not in KEYS:
            raise UsageError(f"profiles have no key {shown(key)}", where=where, hint=nearest(key, KEYS, _all(KEYS)))
        wanted = KEYS[key]
        if type(value) is not wanted.type:
            raise UsageError(
                f"{key} is of another type", where=where, expected=_TYPE_NAMES[wanted.type], actual=shown(value)
            )
        if isinstance(value, list):
            _check_list(key, wanted, value, where)
        elif wanted.choices and value not in wanted.choices:
            raise UsageError(f"{key} is out of range", where=where, expected=_either(wanted), actual=shown(value))
        if wanted.type is int and isinstance(value, int) and value < 1:
            raise UsageError(f"{key} is out of range", where=where, expected="at least 1", actual=value)
    for page in ("page-size", "page-size-32"):
        if page in table and table[page] & (table[page] - 1):
            raise UsageError(f"{page} is not a power of two", where=where, actual=table[page])
    for rule, severity in table.get("rules", {}).items():
        if rule not in RULES:
            raise UsageError("no such rule", where=f"{where}: {shown(rule)}", hint=nearest(rule, RULES))
        if severity not in (*SEVERITIES, "off"):
            expected = f"off, {', '.join(SEVERITIES)}"
            raise UsageError(f"not a severity of {rule}", where=where, expected=expected, actual=shown(severity))
    for family, version in table.get("symbol-versions", {}).items():
        _check_version(version, f"a version of {shown(family)}", where)
    if "minimum-os" in table:
        _check_version(table["minimum-os"], "a version of a system", where)


def _check_list(key: str, wanted: Key, value: list[object], where: str) -> None:
    kind = int if key == "cuda-architectures" else str
    for item in value:
        if type(item) is not kind or (wanted.choices and item not in wanted.choices):
            expected = _either(wanted) if wanted.choices else _TYPE_NAMES[kind]
            raise UsageError(f"{key} holds something else", where=where, expected=expected, actual=shown(item))


def _either(key: Key) -> str:
    return " or ".join(map(str, key.choices))


def _check_version(version: object, what: str, where: str) -> None:
    parts = version.split(".") if isinstance(version, str) else [""]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise UsageError(f"not {what}", where=where, expected='such as "2.17"', actual=shown(version))


_TYPE_NAMES: dict[type, str] = {
    str: "text",
    list: "a list",
    int: "a whole number",
    dict: "a table",
    bool: "true or false",
}


def _all(names: Mapping[str, object]) -> str:
    return f"the keys are {', '.join(names)}"


def read_toml(path: str) -> dict[str, Any]:
    """Return the content of a TOML file; raise UsageError if it cannot be read."""
    from emitter.values import parse_toml

    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_TOML + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read: {getattr(error, 'strerror', None) or error}", where=path or "''") from error
    if len(data) > _MAX_TOML:
        raise UsageError("the file is too long", where=path, expected=f"at most {_MAX_TOML} bytes")
    try:
        return parse_toml(data.decode())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"not TOML: {error}", where=path) from error
