"""Kernels and variables of CUDA programs: the names by which a host program asks the CUDA runtime for them.

Sources: System V gABI, chapter 4 (symbol table); the names of sections are those that ptxas writes: `.nv.constant3` for
`__constant__`, `.nv.global` and `.nv.global.init` for `__device__` variables. PTX ISA, sections 5.1 (state spaces), 5.2
(types) and 10.1 (`.entry`). LZ4 block format description for programs that are compressed with it.
"""

from __future__ import annotations

import re

from emitter.device.fatbin import CUBIN, PTX, read_fatbin
from emitter.errors import InputError
from emitter.inspect.view import View
from emitter.layout import identifier
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.device.fatbin import FatbinEntry

__all__ = ["Names", "Variable", "names_of_fatbin"]

_MAX_PROGRAM = 256 << 20  # bytes of a program whose names are read
_STT_OBJECT, _STT_FUNC, _STB_GLOBAL = 1, 2, 1
_SIZES = {"b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "b32": 4, "u32": 4, "s32": 4, "f32": 4,
          "f16x2": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8, "b128": 16}  # fmt: skip
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY = re.compile(r"\.entry\s+([\w$%]+)")
_VARIABLE = re.compile(
    r"^\s*(?:\.(?:visible|weak|common)\s+)*\.(global|const)\s+((?:\.\w+\s+(?:\d+\s+)?)*?)\.(\w+)\s+([\w$%]+)\s*((?:\[\d+\]\s*)*)[=;]",
    re.MULTILINE,
)


class Variable(NamedTuple):
    """A variable of a program: its size in bytes, and whether it is `__constant__`."""

    name: str
    size: int
    constant: bool


class Names(NamedTuple):
    """What a program offers, in its own order."""

    kernels: tuple[str, ...]
    variables: tuple[Variable, ...]


def names_of_fatbin(view: View) -> Names:
    """Return what the programs of a fatbin offer together; raise InputError where none of them can be read.

    Names that are no C identifiers are the compiler's own, and left out.
    """
    kernels: dict[str, None] = {}
    variables: dict[str, Variable] = {}
    unread = []
    entries = read_fatbin(view, padded=True)
    for entry in sorted(entries, key=lambda entry: entry.kind != CUBIN):
        program = _program(view, entry)
        if program is None:
            unread.append(f"entry at {entry.offset:#x}: {entry.compression or f'kind {entry.kind}'}")
            continue
        found = _names_of_cubin(program) if entry.kind == CUBIN else _names_of_ptx(program)
        kernels.update(dict.fromkeys(name for name in found.kernels if identifier(name) == name))
        for variable in found.variables:
            if identifier(variable.name) == variable.name:
                variables.setdefault(variable.name, variable)
    if not kernels and not variables:
        raise InputError(
            "no kernel or variable can be read from the fatbin",
            where=view.where,
            expected="a program that is not compressed with zstd",
            actual="; ".join(unread[:8]) or "programs without kernels",
            hint="compile with -Xfatbin --compress=false, or with machine code beside PTX",
        )
    return Names(tuple(kernels), tuple(variables.values()))


def _program(view: View, entry: FatbinEntry) -> View | None:
    """Return the bytes of a program, None for those that are not to be read here."""
    if entry.kind not in (CUBIN, PTX) or entry.compression == "zstd" or entry.unpacked > _MAX_PROGRAM:
        return None
    where = f"{view.where}: entry at {entry.offset:#x}"
    stored = view.window(entry.payload, entry.stored, where)
    if not entry.compression:
        return stored
    packed = b"".join(stored.chunks(0, stored.size, where))
    return View.of_bytes(_unpack_lz4(packed, entry.unpacked, where), where)


def _unpack_lz4(data: bytes, size: int, where: str) -> bytes:
    """Return the `size` bytes of an LZ4 block; raise InputError for one that is damaged."""
    out = bytearray()
    position = 0

    def length(start: int) -> int:
        nonlocal position
        total = start
        while start == 15:
            total += data[position]
            position += 1
            if data[position - 1] != 255:
                break
        return total

    try:
        while position < len(data):
            token = data[position]
            position += 1
            literals = length(token >> 4)
            out += data[position : position + literals]
            position += literals
            if position >= len(data):
                break
            distance = data[position] | data[position + 1] << 8
            position += 2
            count = length(token & 15) + 4
            start = len(out) - distance
            if not distance or start < 0 or len(out) + count > size:
                break  # the size tells
            for _ in range(0, count, distance):
                out += out[start : start + distance]
            del out[start + distance + count :]
    except IndexError:
        out.clear()
    if len(out) != size:
        raise InputError("the LZ4 data is damaged", where=where, expected=f"{size} bytes", actual=len(out))
    return bytes(out)


def _names_of_cubin(view: View) -> Names:
    from emitter.inspect.elf import ElfFile

    elf = ElfFile(view)
    kernels, variables = [], []
    for _, symbol in elf.all_symbols():
        if (
            symbol.st_type == _STT_FUNC
            and symbol.st_bind == _STB_GLOBAL
            and _section(elf, symbol.shndx) == f".text.{symbol.name}"
        ):
            kernels.append(symbol.name)
        elif symbol.st_type == _STT_OBJECT and symbol.st_size:
            section = _section(elf, symbol.shndx)
            if section == ".nv.constant3" or section.startswith(".nv.global"):
                variables.append(Variable(symbol.name, symbol.st_size, section == ".nv.constant3"))
    return Names(tuple(kernels), tuple(variables))


def _section(elf: object, number: int) -> str:
    from emitter.inspect.elf import ElfFile

    if isinstance(elf, ElfFile) and 0 < number < len(elf.shdrs):
        return elf.section_name(number)
    return ""


def _names_of_ptx(view: View) -> Names:
    text = b"".join(view.chunks(0, view.size, "PTX")).decode("latin-1")
    text = _COMMENT.sub(" ", text)
    return Names(tuple(_ENTRY.findall(text)), tuple(_ptx_variables(text)))


def _ptx_variables(text: str) -> Iterator[Variable]:
    for space, modifiers, kind, name, dimensions in _VARIABLE.findall(text):
        count = 2 if ".v2" in modifiers else 4 if ".v4" in modifiers else 1
        for extent in re.findall(r"\d+", dimensions):
            count *= int(extent)
        if kind in _SIZES:
            yield Variable(name, _SIZES[kind] * count, space == "const")
