"""The configuration: `emitter-verify.toml`, or `[tool.emitter.verify]` of a pyproject.toml.

Both are looked for in the current directory and those above it; the first that is found counts. Patterns are those of
`fnmatch`, whose `*` crosses slashes; they are compared with the path as it was given and with the path from the folder
of the configuration, both with and without the member of a container (`dist/x.whl!lib/y.so`).
"""

from __future__ import annotations

import os

from emitter.errors import UsageError, shown
from emitter.records import TYPE_CHECKING, NamedTuple
from emitter.verify.model import EDITION, RULES, nearest
from emitter.verify.profile import read_toml

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from emitter.verify.model import Finding

__all__ = ["FILE_NAME", "PathSettings", "Settings", "Waiver", "find_settings", "parse_size", "read_settings"]

FILE_NAME = "emitter-verify.toml"
FAIL_ON = ("error", "warning", "never")

_SUFFIXES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


class PathSettings(NamedTuple):
    """`[[path]]`: what files that match are verified against."""

    match: str
    target: str | None = None
    profile: str | None = None
    page_size: int | None = None
    max_size: int | None = None


class Waiver(NamedTuple):
    """`[[waiver]]`: findings that are known and accepted, for a reason, until the day after `expires` (ISO date)."""

    rule: str
    path: str
    subject: str
    reason: str
    expires: str | None = None


class Settings(NamedTuple):
    """A configuration. `folder` is where it lies, empty where there is none; `path` is its file."""

    path: str = ""
    folder: str = ""
    edition: int = EDITION
    target: str | None = None
    profile: str | None = None
    page_size: int | None = None
    max_size: int | None = None
    fail_on: str | None = None
    baseline: str | None = None
    paths: tuple[PathSettings, ...] = ()
    waivers: tuple[Waiver, ...] = ()
    profiles: Mapping[str, Any] = {}

    def matches(self, pattern: str, path: str, member: str) -> bool:
        """Return whether a pattern of this configuration means the file."""
        from fnmatch import fnmatchcase

        names = {os.path.normpath(path).replace(os.sep, "/")}
        if self.folder:
            names.add(os.path.relpath(path, self.folder).replace(os.sep, "/"))
        if member:
            names |= {f"{name}!{member}" for name in names}
        return any(fnmatchcase(name, pattern) for name in names)

    def of_path(self, path: str, member: str) -> PathSettings:
        """Return what holds for a file: the first `[[path]]` that matches it (or `match` is empty), else the top's."""
        found = next((one for one in self.paths if self.matches(one.match, path, member)), PathSettings(""))
        return PathSettings(
            found.match,
            found.target or self.target,
            found.profile or self.profile,
            found.page_size or self.page_size,
            found.max_size or self.max_size,
        )

    def waives(self, waiver: Waiver, finding: Finding) -> bool:
        """Return whether a waiver means a finding, whatever its date."""
        from fnmatch import fnmatchcase

        return (
            waiver.rule == finding.rule
            and self.matches(waiver.path, finding.path, finding.member)
            and fnmatchcase(finding.subject, waiver.subject)
        )


def find_settings(start: str = ".") -> Settings:
    """Return the nearest configuration of `start` and the folders above it, or one that says nothing."""
    try:
        folder = os.path.abspath(start)
    except OSError:
        return Settings()
    while True:
        path = os.path.join(folder, FILE_NAME)
        if os.path.isfile(path):
            return read_settings(path)
        path = os.path.join(folder, "pyproject.toml")
        if os.path.isfile(path) and _mentions(path):
            table = _tool_table(read_toml(path), path)
            if table is not None:
                return _parse(table, path)
        above = os.path.dirname(folder)
        if above == folder:
            return Settings()
        folder = above


def _mentions(path: str) -> bool:
    """Return whether a pyproject.toml has a table for us: most have not, and parsing them takes longer than looking."""
    try:
        with open(path, "rb") as file:
            return b"emitter" in file.read(1 << 20)
    except OSError:
        return False


def read_settings(path: str) -> Settings:
    """Return the configuration in a file; raise UsageError for what it may not say."""
    document = read_toml(path)
    if os.path.basename(path) == "pyproject.toml":
        table = _tool_table(document, path)
        if table is None:
            raise UsageError("it has no table [tool.emitter.verify]", where=path)
        return _parse(table, path)
    return _parse(document, path)


def _tool_table(document: Mapping[str, Any], path: str) -> Mapping[str, Any] | None:
    table: Any = document
    for name in ("tool", "emitter", "verify"):
        if not isinstance(table, dict):
            raise UsageError("not a table", where=f"{path}: tool.emitter.verify")
        if name not in table:
            return None
        table = table[name]
    if not isinstance(table, dict):
        raise UsageError("not a table", where=f"{path}: tool.emitter.verify")
    return table


_TOP = {
    "edition": int,
    "target": str,
    "profile": str,
    "page-size": int,
    "max-size": (int, str),
    "fail-on": str,
    "baseline": str,
    "path": list,
    "waiver": list,
    "profiles": dict,
}
_PATH = {"match": str, "target": str, "profile": str, "page-size": int, "max-size": (int, str)}
_WAIVER = {"rule": str, "path": str, "subject": str, "reason": str, "expires": object}


def _parse(table: Mapping[str, Any], path: str) -> Settings:
    values = _keys(table, _TOP, path)
    edition = values.get("edition", EDITION)
    if not 1 <= edition <= EDITION:
        raise UsageError(
            "no such edition of the rules",
            where=f"{path}: edition",
            expected=f"1 to {EDITION}",
            actual=edition,
            hint="a newer one needs a newer emitter",
        )
    if values.get("fail_on", "error") not in FAIL_ON:
        raise UsageError(
            "not a severity", where=f"{path}: fail-on", expected=", ".join(FAIL_ON), actual=shown(values["fail_on"])
        )
    paths = []
    for number, row in enumerate(values.pop("path", [])):
        place = f"{path}: path[{number}]"
        fields = _keys(row, _PATH, place)
        if "match" not in fields:
            raise UsageError("match is missing", where=place, hint='such as match = "lib/arm64-v8a/*"')
        paths.append(PathSettings(**fields))
    waivers = [_waiver(row, f"{path}: waiver[{number}]") for number, row in enumerate(values.pop("waiver", []))]
    return Settings(
        path=path,
        folder=os.path.dirname(os.path.abspath(path)),
        paths=tuple(paths),
        waivers=tuple(waivers),
        **values,
    )


def _waiver(row: object, place: str) -> Waiver:
    fields = _keys(row, _WAIVER, place)
    for key in ("rule", "path", "reason"):
        if not str(fields.get(key, "")).strip():
            raise UsageError(f"{key} is missing", where=place, hint="a waiver names rule, path and reason")
    if fields["rule"] not in RULES:
        hint = nearest(fields["rule"], RULES, "emitter rules lists them")
        raise UsageError("no such rule", where=f"{place}: {shown(fields['rule'])}", hint=hint)
    expires = fields.get("expires")
    if expires is not None:
        import datetime

        try:
            date = expires if type(expires) is datetime.date else datetime.date.fromisoformat(expires)
        except (TypeError, ValueError):
            date = None
        # Python 3.11 and later take other spellings too.
        if date is None or str(expires) != date.isoformat():
            raise UsageError("not a date", where=f"{place}: expires", expected="YYYY-MM-DD", actual=shown(expires))
        expires = date.isoformat()
    return Waiver(fields["rule"], fields["path"], fields.get("subject", "*"), fields["reason"], expires)


def _keys(row: object, known: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return the values of a table under the names of fields; raise UsageError for what is not `known`."""
    if not isinstance(row, dict):
        raise UsageError("not a table", where=place, actual=shown(row))
    values = {}
    for key, value in row.items():
        if key not in known:
            hint = nearest(key, known, f"the keys are {', '.join(known)}")
            raise UsageError(f"there is no key {shown(key)}", where=place, hint=hint)
        wanted = known[key]
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise UsageError("a value of another type", where=f"{place}: {key}", actual=shown(value))
        if key == "max-size":
            value = parse_size(value, f"{place}: {key}")  # noqa: PLW2901 - the same value, in bytes
        if key == "page-size":
            check_page_size(value, f"{place}: {key}")
        values[key.replace("-", "_")] = value
    return values


def check_page_size(value: int, where: str) -> int:
    """Return a page size; raise UsageError if no system has it."""
    if not 4096 <= value <= 1 << 30 or value & (value - 1):
        raise UsageError("not a page size", where=where, expected="a power of two, at least 4096", actual=value)
    return value


def parse_size(value: int | str, where: str) -> int:
    """Return a size in bytes: a number, or text such as `100K`, `64MiB` or `2G` (powers of 1024)."""
    text = str(value).strip().lower().removesuffix("ib").removesuffix("b")
    digits = text.rstrip("kmgt")
    unit = _SUFFIXES.get(text[len(digits) :])
    if unit is None or not digits.isascii() or not digits.isdigit() or len(digits) > 18 or not int(digits):
        raise UsageError("not a size", where=where, expected="such as 1000000, 64MiB or 2G", actual=shown(value))
    return int(digits) * unit
