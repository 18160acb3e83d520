"""What only several artefacts together tell: asked when all of a run have been seen."""

from __future__ import annotations

import os

from emitter.records import TYPE_CHECKING
from emitter.verify.model import Found, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.inspect.report import PackEntry
    from emitter.verify.check import Check
    from emitter.verify.source import Sources

__all__ = ["Together"]


# A52, B13
@rule(
    "pack-symbol-clash",
    "Two libraries of one folder offer their packs by the same symbol",
    why="loaded into one process, the name means the first of them: the second model may read the weights of the first",
    fix="name the symbols apart (emitter: --name), and look packs up by library: dlsym(handle, ...)",
    formats=(),
)
def symbol_clash(check: Check) -> Iterator[Found]:
    """Find nothing in one file: `Together` compares all."""
    del check
    yield from ()


# --against
@rule(
    "pack-source-missing",
    "A tensor of the source is in none of the artefacts",
    why="the program that asks for it on the device fails, or runs without it",
    fix="emit the files again from the whole source, or name only what was emitted",
    formats=(),
)
def source_missing(check: Check) -> Iterator[Found]:
    """Find nothing in one file: `Together` looks at all."""
    del check
    yield from ()


class Together:
    """Collects facts of each artefact, and finds what they break together."""

    def __init__(self) -> None:
        # (folder or container, machine, symbol) -> (path, member, whether others can take its place)
        self._symbols: dict[tuple[str, int, str], tuple[str, str, bool]] = {}
        self._clashes: list[tuple[str, str, Found]] = []
        self._with_packs: list[tuple[str, str]] = []

    def add(self, check: Check) -> None:
        """Take in an artefact."""
        packs = check.report.packs
        if not packs:
            return
        self._with_packs.append((check.path, check.member))
        if check.format == "elf" and check.kind == "library":
            for pack in packs:
                self._add_symbols(check, pack)

    def _add_symbols(self, check: Check, pack: PackEntry) -> None:
        from emitter.verify.rules._elf import STV_PROTECTED, elf_of, exported

        elf = elf_of(check)
        # Members of one container lie side by side in its folders.
        name = check.member or check.path
        folder = f"{check.path}!{os.path.dirname(name)}" if check.member else os.path.dirname(os.path.abspath(name))
        for symbol in exported(check):
            # Every library has its own `emitter_pack`, which is asked of a handle.
            if symbol.name == "emitter_pack":
                continue
            offset = elf.address_to_offset(symbol.st_value, 1)
            if offset is None or not pack.offset <= offset < pack.offset + pack.size:
                continue
            key = (folder, elf.ehdr.e_machine, symbol.name)
            mine = (check.path, check.member, symbol.st_visibility != STV_PROTECTED)
            other = self._symbols.setdefault(key, mine)
            if other[:2] != mine[:2]:
                where = other[1] or other[0]
                # A protected symbol keeps its own library's meaning; only dlsym(RTLD_DEFAULT) meets the other.
                severity = None if mine[2] or other[2] else "warning"
                found = Found(f"symbol {symbol.name}", "a name of its own", f"{where} offers it too", severity)
                self._clashes.append((check.path, check.member, found))

    def findings(self, sources: Sources | None) -> Iterator[tuple[str, str, str, Found]]:
        """Yield (rule, path, member, what was found); `sources` are those of `--against`."""
        for path, member, found in self._clashes:
            yield "pack-symbol-clash", path, member, found
        if sources is not None and self._with_packs:
            path, member = self._with_packs[0]
            for name in sources.tensors:
                if name not in sources.met:
                    yield (
                        "pack-source-missing",
                        path,
                        member,
                        Found(f"tensor {name}", "in one of the artefacts", "in none"),
                    )

    @property
    def has_packs(self) -> bool:
        """Whether any artefact held a pack."""
        return bool(self._with_packs)
