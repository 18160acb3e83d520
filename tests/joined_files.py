"""Objects with what few compilers write, for tests of code and a pack in one object: assembled, patched, planned."""

from __future__ import annotations

import struct
import subprocess
from typing import TYPE_CHECKING, Any

import emitter
from emitter import Package
from emitter.link import join_coff, join_macho
from emitter.pack.plan import plan_pack
from emitter.symbols import pack_model, tensor_symbols
from emitter.targets import load
from tests.macho_files import command

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from emitter.layout import FilePlan

__all__ = [
    "ARM",
    "COFF",
    "COFF_SECTION",
    "HINTS",
    "INDIRECT",
    "INTEL",
    "JUMPS",
    "LC_DATA_IN_CODE",
    "LC_DYSYMTAB",
    "LC_LINKER_OPTION",
    "LC_SEGMENT_64",
    "LC_SYMTAB",
    "MANY",
    "SECTION_64",
    "UNUSUAL",
    "WINDOWS",
    "assembled",
    "change_word",
    "coff_section",
    "command_field",
    "emit_joined",
    "joined_plan",
    "load_command",
    "patch",
    "section_64",
    "section_field",
    "strings_at",
    "strings_of_size",
]

INTEL, ARM, WINDOWS = "x86_64-apple-macos", "arm64-apple-macos", "x86_64-windows-msvc"

# Sources in assembly language.
INDIRECT = """
.globl _weight
_weight: callq _outside
 movq _model_t_w@GOTPCREL(%rip), %rax
.section __TEXT,__stubs,symbol_stubs,pure_instructions,6
.indirect_symbol _outside
 jmpq *_lazy(%rip)
.section __DATA,__la_symbol_ptr,lazy_symbol_pointers
_lazy: .indirect_symbol _outside
 .quad 0
.indirect_symbol _weight
 .quad 0
.section __DATA,__nl_symbol_ptr,non_lazy_symbol_pointers
.indirect_symbol _model_t_w
 .quad 0
.indirect_symbol _local
 .quad 0
.data
_local: .quad 5
"""
JUMPS = """
 nop
.data_region jt32
 .long 1, 2, 3
.end_data_region
 movq _model_t_w@GOTPCREL(%rip), %rax
"""
HINTS = """
L1: adrp x0, _model_t_w@GOTPAGE
L2: ldr x0, [x0, _model_t_w@GOTPAGEOFF]
L3: ldr w0, [x0]
.loh AdrpLdrGotLdr L1, L2, L3
"""
UNUSUAL = """
.globl weight
weight: leaq model_t_w(%rip), %rax
 callq outside
model_t_v: retq
.weak soft
soft: retq
.comm shared, 16
.section .rdata$x,"dr",discard,pick
.globl pick
pick: .quad 5
.section .xdata$y,"dr",associative,pick
.quad 6
"""
MANY = ".data\n.rept 65536\n.long outside\n.endr"

# Offsets of fields, as the formats' own headers have them: <mach-o/loader.h>, "PE Format".
COFF = {"NumberOfSections": 2, "PointerToSymbolTable": 8, "NumberOfSymbols": 12, "Characteristics": 18}
SECTION_64 = {"addr": 32, "size": 40, "offset": 48, "align": 52, "reloff": 56, "nreloc": 60, "flags": 64}
COFF_SECTION = {"SizeOfRawData": 16, "PointerToRawData": 20, "PointerToRelocations": 24, "NumberOfLinenumbers": 32}
LC_SEGMENT_64, LC_SYMTAB, LC_DYSYMTAB, LC_LINKER_OPTION, LC_DATA_IN_CODE = 0x19, 0x2, 0xB, 0x2D, 0x29
_SEGMENT_SIZE, _SECTION_SIZE = 72, 80


def assembled(target: str, source: str) -> bytes:
    """Return the object that llvm-mc makes of `source`; skip the test where there is no llvm-mc."""
    facts = load(target)
    if facts.macho:
        source += "\n.build_version macos, 11, 0\n"
    argv = [command("llvm-mc"), "-filetype=obj", f"-triple={facts.llvm_triple}"]
    done = subprocess.run(argv, input=source.encode(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def _package() -> Package:
    made = Package()
    made.add_raw("w", bytes(range(20)))
    made.add_raw("v", b"another")
    return made


def emit_joined(folder: Path, target: str, code: bytes, **options: Any) -> Path:
    """Write an object of `code` and of a pack called `model`, with the tensors `v` and `w`."""
    output = folder / f"model{load(target).object_suffix}"
    package = _package()
    package.add_code(code)
    emitter.emit(package, output, target=target, name="model", **options)
    return output


def joined_plan(target: str, code: bytes) -> FilePlan:
    """Return the plan of that object; nothing else looks at `code` before."""
    facts, made = load(target), _package()
    pack = plan_pack(made, "little")
    model = pack_model(facts, pack, name="model", tensor_symbols=tensor_symbols(made.tensors, pack, "model_t_"))
    join = join_coff if facts.coff else join_macho
    plan: FilePlan = join.plan_joined(facts, model, code, "code.o")
    return plan


def patch(data: bytearray, at: int, form: str, *values: int | bytes) -> None:
    """Put values at an offset, little-endian."""
    struct.pack_into("<" + form, data, at, *values)


def load_command(data: bytes | bytearray, cmd: int) -> int:
    """Return the offset of the first load command of a kind."""
    at, end = 32, 32 + struct.unpack_from("<I", data, 20)[0]
    while at < end:
        kind, size = struct.unpack_from("<2I", data, at)
        if kind == cmd:
            return at
        at += size
    raise LookupError(hex(cmd))


def section_64(data: bytes | bytearray, name: str) -> int:
    """Return the offset of the header of a Mach-O section, which `sectname` names."""
    first = load_command(data, LC_SEGMENT_64) + _SEGMENT_SIZE
    return next(at for at in range(first, len(data), _SECTION_SIZE) if _name(data[at : at + 16]) == name)


def coff_section(data: bytes | bytearray, name: str) -> int:
    """Return the offset of the header of a COFF section with a short name."""
    return next(at for at in range(20, len(data), 40) if _name(data[at : at + 8]) == name)


def _name(field: bytes | bytearray) -> str:
    return bytes(field).partition(b"\0")[0].decode(errors="replace")


def command_field(cmd: int, at: int, change: int | Callable[[int], int]) -> Callable[[bytearray], None]:
    """Return what changes a field of 32 bits of a load command."""

    def changed(data: bytearray) -> None:
        change_word(data, load_command(data, cmd) + at, change)

    return changed


def section_field(name: str, field: str, change: int | Callable[[int], int]) -> Callable[[bytearray], None]:
    """Return what changes a field of 32 bits of a section's header, of Mach-O if its name is one."""

    def changed(data: bytearray) -> None:
        if name.startswith("__"):
            change_word(data, section_64(data, name) + SECTION_64[field], change)
        else:
            change_word(data, coff_section(data, name) + COFF_SECTION[field], change)

    return changed


def change_word(data: bytearray, at: int, change: int | Callable[[int], int]) -> None:
    """Put a number at an offset, or what a function makes of the one that is there."""
    (value,) = struct.unpack_from("<I", data, at)
    patch(data, at, "I", change if isinstance(change, int) else change(value))


def strings_of_size(change: int | Callable[[int], int]) -> Callable[[bytearray], None]:
    """Return what changes the size in the string table of a COFF object."""

    def changed(data: bytearray) -> None:
        change_word(data, strings_at(data), change)

    return changed


def strings_at(data: bytes | bytearray) -> int:
    """Return the offset of the string table of a COFF object."""
    table, count = struct.unpack_from("<2I", data, COFF["PointerToSymbolTable"])
    return int(table + 18 * count)
