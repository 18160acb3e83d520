"""Mach-O files for tests: made by the emitter, read by a parser of the tests' own and by tools that others wrote."""

from __future__ import annotations

import hashlib
import shutil
import struct
import subprocess
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

import emitter
from emitter.package import Package
from emitter.targets import load, names

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = [
    "TARGET_NAMES",
    "MachO",
    "Row",
    "bad_pages",
    "command",
    "emit",
    "fat_slices",
    "package_of",
    "parse",
    "run",
    "trie_exports",
]

TARGET_NAMES = [name for name in names() if load(name).object_format == "macho"]
_NEWEST, _OLDEST = 30, 13  # versions that Debian's commands of LLVM may end in


@cache
def _find(name: str) -> str | None:
    """Return the command, under its own name or with the version that Debian puts behind it, or None."""
    candidates = [name, *(f"{name}-{version}" for version in range(_NEWEST, _OLDEST, -1))]
    return next((path for one in candidates if (path := shutil.which(one))), None)


def command(name: str) -> str:
    """Return the path of a command of LLVM; skip the test by its name where it is not installed."""
    path = _find(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def run(name: str, *arguments: str | Path, quiet: bool = True) -> str:
    """Run a command of LLVM and return its output; fail the test if it fails, or if it complains though `quiet`."""
    argv = [command(name), *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, errors="replace")
    if done.returncode or (quiet and done.stderr):
        pytest.fail(f"{' '.join(argv)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def package_of(payloads: Mapping[str, bytes | Path]) -> Package:
    """Return a package of raw tensors."""
    package = Package()
    for name, data in payloads.items():
        package.add_raw(name, data)
    return package


def emit(path: Path, payloads: Mapping[str, bytes | Path], *targets: str, **options: Any) -> emitter.Artefact:
    """Write `payloads` to `path` with the emitter itself, its check included."""
    (artefact,) = emitter.emit(package_of(payloads), path, target=targets, **options)
    return artefact


@dataclass(frozen=True)
class Row:
    """A symbol: its nlist_64, with the name."""

    name: str
    n_type: int
    n_sect: int
    n_desc: int
    n_value: int


@dataclass
class MachO:
    """What a thin file says of itself. Commands are (cmd, bytes); sections are rows of `section_64`, by name."""

    data: bytes
    header: tuple[int, ...]
    commands: list[tuple[int, bytes]] = field(default_factory=list)
    segments: list[tuple[Any, ...]] = field(default_factory=list)
    sections: list[tuple[Any, ...]] = field(default_factory=list)

    def command(self, cmd: int, code: str = "") -> Any:
        """Return the numbers of the one command of a kind, or its bytes."""
        (body,) = [body for kind, body in self.commands if kind == cmd]
        return struct.unpack_from("<" + code, body, 8) if code else body

    def section(self, name: str) -> tuple[Any, ...]:
        """Return the section `SEGMENT,SECTION`: (sectname, segname, addr, size, offset, align, ...)."""
        (row,) = [row for row in self.sections if f"{row[1]},{row[0]}" == name]
        return row

    def content(self, name: str) -> bytes:
        """Return the bytes of a section."""
        row = self.section(name)
        return self.data[row[4] : row[4] + row[3]]

    def symbols(self) -> dict[str, Row]:
        """Return the symbol table, in its order."""
        symoff, nsyms, stroff, strsize = self.command(0x2, "4I")
        strings = self.data[stroff : stroff + strsize]
        rows = {}
        for number in range(nsyms):
            n_strx, *rest = struct.unpack_from("<I2BHQ", self.data, symoff + 16 * number)
            name = strings[n_strx : strings.index(b"\0", n_strx)].decode()
            rows[name] = Row(name, *rest)
        return rows

    def at(self, name: str, size: int) -> bytes:
        """Return `size` bytes at a symbol."""
        row = self.symbols()[name]
        _, _, addr, _, offset, *_ = self.sections[row.n_sect - 1]
        start = offset + row.n_value - addr
        return self.data[start : start + size]


def parse(data: bytes) -> MachO:
    """Parse a thin 64-bit little-endian file."""
    header = struct.unpack_from("<8I", data)
    assert header[0] == 0xFEEDFACF
    file = MachO(data, header)
    at = 32
    for _ in range(header[4]):
        cmd, cmdsize = struct.unpack_from("<2I", data, at)
        body = data[at : at + cmdsize]
        file.commands.append((cmd, body))
        if cmd == 0x19:
            segname, *numbers = struct.unpack_from("<16s4Q4I", body, 8)
            file.segments.append((segname.rstrip(b"\0").decode(), *numbers))
            for start in range(72, cmdsize, 80):
                sectname, owner, *rest = struct.unpack_from("<16s16s2Q8I", body, start)
                names_ = (one.rstrip(b"\0").decode() for one in (sectname, owner))
                file.sections.append((*names_, *rest))
        at += cmdsize
    assert at == 32 + header[5]
    return file


def fat_slices(data: bytes) -> list[tuple[int, bytes]]:
    """Return (cputype, bytes) of each slice of a universal file."""
    magic, count = struct.unpack_from(">2I", data)
    assert magic == 0xCAFEBABE
    rows = [struct.unpack_from(">5I", data, 8 + 20 * number) for number in range(count)]
    return [(row[0], data[row[2] : row[2] + row[3]]) for row in rows]


def trie_exports(trie: bytes) -> dict[str, int]:
    """Return the names and addresses of an export trie, by a walk over all of it."""
    found: dict[str, int] = {}
    seen = set()
    waiting = [(0, "")]
    while waiting:
        at, name = waiting.pop()
        assert at not in seen, "two edges lead to one node"
        seen.add(at)
        size, at = _uleb(trie, at)
        if size:
            flags, value = _uleb(trie, at)
            found[name], end = _uleb(trie, value)
            assert (flags, end) == (0, at + size)
        at += size
        first_bytes = set()
        children, at = trie[at], at + 1
        for _ in range(children):
            end = trie.index(b"\0", at)
            edge = trie[at:end].decode()
            assert edge and edge[0] not in first_bytes, "dyld walks one edge and never goes back"
            first_bytes.add(edge[0])
            child, at = _uleb(trie, end + 1)
            waiting.append((child, name + edge))
        assert size or children or not name, "a node that leads nowhere"
    return found


def _uleb(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def bad_pages(path: Path, start: int = 0) -> tuple[int, list[int]]:
    """Hash every page of a signed file again; return how many there are, and the numbers of those that are wrong.

    Pages have 4 KiB, or the 16 KiB of Apple silicon. `start` is the file offset of a slice.
    """
    with path.open("rb") as file:
        file.seek(start)
        head = file.read(32)
        commands = head + file.read(struct.unpack_from("<8I", head)[5])
        at = 32
        while struct.unpack_from("<I", commands, at)[0] != 0x1D:
            at += struct.unpack_from("<2I", commands, at)[1]
        dataoff, datasize = struct.unpack_from("<2I", commands, at + 8)
        file.seek(start + dataoff)
        blob = file.read(datasize)
        magic, length, count = struct.unpack_from(">3I", blob)
        assert (magic, length <= datasize) == (0xFADE0CC0, True)
        index = dict(struct.unpack_from(">2I", blob, 12 + 8 * number) for number in range(count))
        directory = blob[index[0] :]
        fields = struct.unpack_from(">9I4B", directory)
        hash_offset, slots, limit = fields[4], fields[7], fields[8]
        cputype = struct.unpack_from("<I", head, 4)[0]
        shifts = {0x01000007: (12,), 0x0100000C: (12, 14)}[cputype]
        assert (fields[0], limit, fields[9:11]) == (0xFADE0C02, dataoff, (32, 2)) and fields[12] in shifts
        size = 1 << fields[12]
        assert slots == -(-limit // size)
        wrong = []
        file.seek(start)
        for page in range(slots):
            data = file.read(min(size, limit - page * size))
            slot = hash_offset + 32 * page
            if hashlib.sha256(data).digest() != directory[slot : slot + 32]:
                wrong.append(page)
        return slots, wrong
