"""Static constructors and destructors in ELF objects, which LLVM puts into sections that most linkers no longer know.

LLVM's default is `.ctors`, `.dtors`: GNU ld turns them into the arrays that loaders call, LLD and mold leave them out,
without a word. llvmlite has no switch for it, so the lists become the arrays' entries here, when all else is done.
Source: LLVM Language Reference, "The 'llvm.global_ctors' Global Variable"; System V gABI, "Initialization and
Termination Functions"; clang orders by `.init_array.NNNNN`, and has no suffix for priority 65535.
"""

from __future__ import annotations

import re

__all__ = ["as_arrays", "names"]

_LIST = re.compile(
    r"^@llvm\.global_(ctors|dtors) = appending global \[\d+ x \{ i32, ptr, ptr \}\] \[(.*)\].*\n", re.MULTILINE
)
_ROW = re.compile(
    r'\{ i32, ptr, ptr \} \{ i32 (\d+), ptr (@(?:"[^"]*"|[\w.$-]+)|null), ptr (@("[^"]*"|[\w.$-]+)|null) \}'
)
_SECTIONS = {"ctors": ".init_array", "dtors": ".fini_array"}
_LAST = 65535


def names(text: str) -> list[str]:
    """Return the functions that a module wants called when it is loaded or unloaded, as the IR names them."""
    return [row[1] for kind in _LIST.findall(text) for row in _ROW.findall(kind[1]) if row[1] != "null"]


def as_arrays(text: str) -> str:
    """Return the module with entries of `.init_array` and `.fini_array` in place of the lists."""
    comdats = set(re.findall(r'^\$("[^"]*"|[\w.$-]+) = comdat', text, re.MULTILINE))

    def entries(found: re.Match[str]) -> str:
        section = _SECTIONS[found.group(1)]
        lines = []
        for number, (priority, function, _, key) in enumerate(_ROW.findall(found.group(2))):
            if function == "null":
                continue
            place = section if int(priority) == _LAST else f"{section}.{int(priority):05d}"
            group = f", comdat(${key})" if key in comdats else ""
            lines.append(f'@".emitter{section}.{number}" = internal global ptr {function}, section "{place}"{group}\n')
        return "".join(lines)

    return _LIST.sub(entries, text)
