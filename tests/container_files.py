"""Mach-O, PE, COFF and universal files that hold packs, made by hand from the specifications, for tests of readers."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emitter.package import ByteOrder

__all__ = ["ARM64", "X86_64", "bigobj", "coff_object", "macho", "pe", "universal"]

X86_64, ARM64 = 0x01000007, 0x0100000C

_START = 0x1000  # file offset of the section


def macho(
    contents: bytes, *, wide: bool = True, order: ByteOrder = "little", filetype: int = 6, cputype: int = X86_64
) -> bytes:
    """Return a Mach-O file of two segments, the second of which has one section with `contents`."""
    mark = "<" if order == "little" else ">"
    text = _segment(mark, wide, b"__TEXT", 0, _START, [])
    data = _segment(mark, wide, b"__EMITTER", _START, len(contents), [(b"__emitter", _START, len(contents))])
    uuid = struct.pack(mark + "II16s", 0x1B, 24, b"0123456789abcdef")
    commands = text + uuid + data
    header = struct.pack(
        mark + ("8I" if wide else "7I"),
        *(0xFEEDFACF if wide else 0xFEEDFACE, cputype, 3, filetype, 3, len(commands), 0x85),
        *([0] if wide else []),
    )
    head = header + commands
    return head + bytes(_START - len(head)) + contents


def _segment(
    mark: str, wide: bool, name: bytes, offset: int, size: int, sections: Sequence[tuple[bytes, int, int]]
) -> bytes:
    tail = b"".join(
        struct.pack(
            mark + ("16s16sQQ8I" if wide else "16s16sII7I"),
            *(section, name, at, length, at, 12, 0, 0, 0, 0, 0),
            *([0] if wide else []),
        )
        for section, at, length in sections
    )
    form = mark + ("II16sQQQQ4I" if wide else "II16sIIII4I")
    cmdsize = struct.calcsize(form) + len(tail)
    return (
        struct.pack(form, 0x19 if wide else 1, cmdsize, name, offset, size, offset, size, 1, 1, len(sections), 0) + tail
    )


def universal(slices: Sequence[tuple[int, bytes]], *, wide: bool = False) -> bytes:
    """Return a universal file of (cputype, file) pairs, each at a multiple of 2^14."""
    head = struct.pack(">II", 0xCAFEBABF if wide else 0xCAFEBABE, len(slices))
    body = b""
    for cputype, part in slices:
        offset = 0x4000 + len(body)
        fields = (cputype, 3, offset, len(part), 14)
        head += struct.pack(">2I2Q2I", *fields, 0) if wide else struct.pack(">5I", *fields)
        body += part + bytes(-len(part) % 0x4000)
    return head + bytes(0x4000 - len(head)) + body


def pe(
    contents: bytes, *, wide: bool = True, machine: int = 0x8664, characteristics: int = 0x2022, flags: int = 0x40000040
) -> bytes:
    """Return a PE image of one section `.emitter` with the Characteristics `flags`."""
    optional = 240 if wide else 224
    raw = -(-len(contents) // 512) * 512
    head = b"MZ" + bytes(0x3A) + struct.pack("<I", 0x80) + bytes(0x40) + b"PE\0\0"
    head += struct.pack("<HHIIIHH", machine, 1, 0, 0, 0, optional, characteristics)
    head += struct.pack("<H", 0x20B if wide else 0x10B) + bytes(optional - 2)
    head += struct.pack("<8s6IHHI", b".emitter", len(contents), 0x1000, raw, _START, 0, 0, 0, 0, flags)
    return head + bytes(_START - len(head)) + contents + bytes(raw - len(contents))


def coff_object(contents: bytes, *, machine: int = 0x8664, flags: int = 0x40700040) -> bytes:
    """Return a COFF object of two sections, the second of which holds `contents`."""
    head = struct.pack("<HHIIIHH", machine, 2, 0, 0, 0, 0, 0) + _coff_sections(contents, flags, 20 + 80)
    return head + contents


def bigobj(contents: bytes, *, machine: int = 0x8664, flags: int = 0x40700040, version: int = 2) -> bytes:
    """Return the same in the form for more than 65,279 sections."""
    class_id = bytes.fromhex("c7a1bad1eebaa94baf20faf66aa4dcb8")
    head = struct.pack("<HHHHI16s4I3I", 0, 0xFFFF, version, machine, 0, class_id, 0, 0, 0, 0, 2, 0, 0)
    return head + _coff_sections(contents, flags, len(head) + 80) + contents


def _coff_sections(contents: bytes, flags: int, offset: int) -> bytes:
    form = "<8s6IHHI"
    bss = struct.pack(form, b".bss", 0, 0, 1 << 20, 0, 0, 0, 0, 0, 0xC0300080)
    return bss + struct.pack(form, b".emitter", 0, 0, len(contents), offset, 0, 0, 0, 0, flags)
