"""Finds packs in PE images and COFF objects: read-only sections that begin with one.

Source: Microsoft's PE Format (field names are its own); /bigobj objects: ANON_OBJECT_HEADER_BIGOBJ of <winnt.h>.
"""

from __future__ import annotations

from emitter.errors import FormatError
from emitter.loaders._binary import Binary
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ANONYMOUS_MAGIC", "MACHINES", "MAGIC", "find_in_anonymous", "find_in_image", "find_in_object"]

MAGIC = b"MZ"
ANONYMOUS_MAGIC = b"\0\0\xff\xff"  # IMAGE_FILE_MACHINE_UNKNOWN, then what no object has as its number of sections

# COFF objects have no magic: they begin with their machine.
MACHINES = {
    0x14C: "Intel 80386", 0x1C4: "ARM", 0x5064: "64-bit RISC-V", 0x6264: "64-bit LoongArch", 0x8664: "x86-64",
    0xA641: "AArch64 (ARM64EC)", 0xA64E: "AArch64 (ARM64X)", 0xAA64: "AArch64",
}  # fmt: skip

_BIGOBJ_CLASS = bytes.fromhex("c7a1bad1eebaa94baf20faf66aa4dcb8")

_E_LFANEW = 0x3C
_FILE_HEADER = "HHIIIHH"
_FILE_HEADER_SIZE = 20
_IMAGE_FILE_DLL = 0x2000
_OPTIONAL_MAGICS = {0x10B: "PE32", 0x20B: "PE32+"}

_SECTION = "8x6I4xI"
_SECTION_SIZE = 40
_IMAGE_SCN_CNT_INITIALIZED_DATA = 0x40
_IMAGE_SCN_MEM_READ = 0x40000000
_IMAGE_SCN_MEM_WRITE = 0x80000000


def find_in_image(data: memoryview, where: str) -> tuple[str, list[tuple[int, int]]]:
    """Return what the PE image is, and (offset, size) in bytes of each pack in it, ascending.

    Raises FormatError for a file that breaks its format, LoadError for one that is truncated.
    """
    image = _Coff(data, where, "<")
    (start,) = image.unpack("I", _E_LFANEW, "the DOS header")
    image.check_range(start, 4, "the PE header")
    if bytes(data[start : start + 4]) != b"PE\0\0":
        return "program of DOS", []
    machine, count, _, _, _, optional_size, characteristics = image.unpack(_FILE_HEADER, start + 4, "the PE header")
    optional = start + 4 + _FILE_HEADER_SIZE
    magic = image.unpack("H", optional, "the optional header")[0] if optional_size >= 2 else None
    if magic not in _OPTIONAL_MAGICS:
        raise FormatError(
            "the magic of the optional header is unknown",
            where=where,
            expected="0x10b (PE32) or 0x20b (PE32+)",
            actual=magic if magic is None else f"{magic:#x}",
        )
    kind = "DLL" if characteristics & _IMAGE_FILE_DLL else "executable"
    packs = image.packs(optional + optional_size, count, in_image=True)
    return f"{_OPTIONAL_MAGICS[magic]} {kind} for {_machine(machine)}", sorted(set(packs))


def find_in_object(data: memoryview, where: str) -> tuple[str, list[tuple[int, int]]]:
    """Return what the COFF object is, and (offset, size) in bytes of each pack in it, ascending.

    Raises FormatError for a file that is none, LoadError for one that is truncated.
    """
    file = _Coff(data, where, "<")
    machine, count, _, _, _, optional_size, _ = file.unpack(_FILE_HEADER, 0, "the COFF header")
    if optional_size:
        raise FormatError(
            "a COFF object has no optional header", where=where, expected="SizeOfOptionalHeader 0", actual=optional_size
        )
    packs = file.packs(_FILE_HEADER_SIZE, count, in_image=False)
    return f"COFF object for {_machine(machine)}", sorted(set(packs))


def find_in_anonymous(data: memoryview, where: str) -> tuple[str, list[tuple[int, int]]]:
    """Do as `find_in_object` for objects of /bigobj; other files of the magic hold no packs: imports of a DLL."""
    file = _Coff(data, where, "<")
    version, machine, _ = file.unpack("HHI", 4, "the object's header")
    if version >= 2:
        file.check_range(0, 56, "the object's header")
    if version < 2 or data[12:28] != _BIGOBJ_CLASS:
        return f"COFF import or intermediate code for {_machine(machine)}", []
    count, _, _ = file.unpack("III", 44, "the object's header")
    return f"COFF object for {_machine(machine)}", sorted(set(file.packs(56, count, in_image=False)))


class _Coff(Binary):
    def packs(self, table: int, count: int, *, in_image: bool) -> Iterator[tuple[int, int]]:
        for number, row in enumerate(self.table(_SECTION, table, _SECTION_SIZE, count, "the section table"), 1):
            virtual_size, _, size, offset, _, _, characteristics = row
            if not characteristics & _IMAGE_SCN_CNT_INITIALIZED_DATA or not offset:
                continue
            # The loader refuses an image that lacks a section, and maps what a section has beyond its raw data as zero.
            self.check_range(offset, size, f"section {number}")
            if characteristics & (_IMAGE_SCN_MEM_READ | _IMAGE_SCN_MEM_WRITE) == _IMAGE_SCN_MEM_READ:
                used = min(size, virtual_size) if in_image and virtual_size else size
                yield from self.packs_of_section(offset, used, f"section {number}")


def _machine(machine: int) -> str:
    return MACHINES.get(machine, f"machine {machine:#x}")
