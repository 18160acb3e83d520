"""Programs for GPUs made by hand, of the formats that no compiler is needed for."""

from __future__ import annotations

import struct

__all__ = ["FIELDS", "PTX", "bundle", "cubin", "entry", "fatbin", "hsaco", "plan", "spirv"]

PTX = b".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry noop()\n{\n\tret;\n}\n"


def entry(
    kind: int,
    payload: bytes,
    arch: int = 80,
    *,
    flags: int = 0x11,
    options: bytes = b"",
    compressed: int = 0,
    unpacked: int = 0,
) -> bytes:
    """Return an entry of a fatbin."""
    payload += bytes(-len(payload) % 8)
    extra = struct.pack("<II", 72, len(options)) + options + bytes(-len(options) % 8) if options else b""
    header = struct.pack(
        "<HHIQIIHHIIIQQQ", kind, 0x101, 64 + len(extra), len(payload), compressed, 64 if options else 0, 8, 1, arch,
        0, 0, flags, 0, unpacked,
    )  # fmt: skip
    return header + extra + payload


def fatbin(*entries: bytes) -> bytes:
    """Return a fatbin."""
    data = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(data)) + data


def _elf(machine: int, osabi: int, abi: int, e_type: int, e_flags: int) -> bytes:
    names = b"\0.text\0.shstrtab\0"
    text = 64
    shstrtab = text + 16
    e_shoff = shstrtab + len(names) + -len(names) % 8
    sections = [
        (0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        (1, 1, 6, 0, text, 16, 0, 0, 16, 0),
        (7, 3, 0, 0, shstrtab, len(names), 0, 0, 1, 0),
    ]
    ident = b"\x7fELF\2\1\1" + bytes((osabi, abi)) + bytes(7)
    header = ident + struct.pack("<HHIQQQIHHHHHH", e_type, machine, 1, 0, 0, e_shoff, e_flags, 64, 56, 0, 64, 3, 2)
    body = header + b"\xaa" * 16 + names
    return body + bytes(e_shoff - len(body)) + b"".join(struct.pack("<IIQQQQIIQQ", *row) for row in sections)


def cubin(sm: int = 80, *, abi: int = 8, relocatable: bool = False) -> bytes:
    """Return a cubin without code that means anything."""
    flags = 0x6000004 | sm << 8 if abi >= 8 else sm << 16 | 0x500 | sm
    return _elf(190, 0x41 if abi >= 8 else 0x33, abi, 1 if relocatable else 2, flags)


def hsaco(machine: int = 0x3F) -> bytes:
    """Return a code object for an AMD GPU, gfx90a by default."""
    return _elf(224, 64, 4, 3, machine)


def bundle(*names: str) -> bytes:
    """Return an offload bundle with an empty program for the host and a code object for each name."""
    ids = [b"host-x86_64-unknown-linux--", *(f"hipv4-amdgcn-amd-amdhsa--{name}".encode() for name in names)]
    position = 32 + sum(24 + len(one) for one in ids)
    position += -position % 4096
    head, code = struct.pack("<24sQ", b"__CLANG_OFFLOAD_BUNDLE__", len(ids)), b""
    for number, one in enumerate(ids):
        data = hsaco() if number else b""
        head += struct.pack("<QQQ", position + len(code), len(data), len(one)) + one
        code += data + bytes(-len(data) % 4096)
    return head + bytes(position - len(head)) + code


def plan() -> bytes:
    """Return what begins as a TensorRT plan."""
    return b"ftrt" + struct.pack("<IQ", 1, 100) + bytes(range(100))


def spirv(order: str = "<") -> bytes:
    """Return a SPIR-V module: OpCapability Shader, OpMemoryModel Logical GLSL450."""
    return struct.pack(f"{order}10I", 0x07230203, 0x10500, 0, 5, 0, 2 << 16 | 17, 1, 3 << 16 | 14, 0, 1)


# Every field that a program's reader judges: format, its bytes, offset, bytes that break it.
_FATBIN = fatbin(entry(2, cubin(), options=b"-O3"), entry(1, PTX))
_SECOND = 16 + 80 + len(cubin())
FIELDS: tuple[tuple[str, bytes, int, bytes], ...] = (
    ("version", _FATBIN, 4, b"\2\0"),
    ("headerSize", _FATBIN, 6, b"\x18\0"),
    ("fatSize", _FATBIN, 8, b"\xff\xff\0\0"),
    ("fatSize", _FATBIN, 8, bytes(8)),
    ("fatSize", _FATBIN, 8, struct.pack("<Q", len(_FATBIN) - 24)),
    ("fatSize", _FATBIN, 8, b"\xff" * 8),
    ("kind", _FATBIN, 16, b"\x4d\0"),
    ("kind", _FATBIN, 16, b"\1\0"),
    ("version of an entry", _FATBIN, 18, b"\2\1"),
    ("header size of an entry", _FATBIN, 20, b"\x38\0\0\0"),
    ("header size of an entry", _FATBIN, 20, b"\x51\0\0\0"),
    ("header size of an entry", _FATBIN, 20, b"\xff" * 4),
    ("size of an entry", _FATBIN, 24, struct.pack("<Q", 1 << 63)),
    ("size of an entry", _FATBIN, 24, struct.pack("<Q", len(cubin()) + 8)),
    ("options", _FATBIN, 36, struct.pack("<I", 76)),
    ("options", _FATBIN, 36, struct.pack("<I", 16)),
    ("start of the options", _FATBIN, 80, struct.pack("<I", 200)),
    ("length of the options", _FATBIN, 84, struct.pack("<I", 200)),
    ("arch", _FATBIN, 44, bytes(4)),
    ("arch", _FATBIN, 44, struct.pack("<I", 90)),
    ("arch", _FATBIN, 44, b"\xff" * 4),
    ("name", _FATBIN, 48, struct.pack("<II", 64, 17)),
    ("compression without sizes", _FATBIN, 56, struct.pack("<Q", 0x2011)),
    ("compression", _FATBIN, 56, struct.pack("<Q", 0x8011)),
    ("name without an offset", _FATBIN, 52, struct.pack("<I", 4)),
    ("compressed size without compression", _FATBIN, 32, struct.pack("<I", 4)),
    ("unpacked size without compression", _FATBIN, 72, struct.pack("<I", 4)),
    ("magic of the cubin", _FATBIN, 96, b"X"),
    ("magic of the cubin", _FATBIN, 97, b"X"),
    ("e_machine of the cubin", _FATBIN, 96 + 18, b"\x3e\0"),
    ("sm of the cubin", _FATBIN, 96 + 49, b"\x5a"),
    ("e_shoff of the cubin", _FATBIN, 96 + 40, b"\xff\xff"),
    ("kind of the second", _FATBIN, _SECOND, b"\2\0"),
    ("arch of the second", _FATBIN, _SECOND + 28, struct.pack("<I", 70)),
    ("text of the second", _FATBIN, _SECOND + 64, b"\xef\xbb\xbf"),
    ("text of the second", _FATBIN, _SECOND + 64, b"#version"),
    ("EI_CLASS", cubin(), 4, b"\1"),
    ("EI_DATA", cubin(), 5, b"\2"),
    ("EI_VERSION", cubin(), 6, b"\0"),
    ("e_type", cubin(), 16, b"\3\0"),
    ("e_version", cubin(), 20, b"\2"),
    ("e_shoff", cubin(), 40, b"\xff" * 8),
    ("e_flags", cubin(), 48, bytes(4)),
    ("e_ehsize", cubin(), 52, b"\x34\0"),
    ("e_phentsize", cubin(), 54, b"\x20\0"),
    ("e_phnum", cubin(), 56, b"\xff\xff"),
    ("e_shentsize", cubin(), 58, b"\x28\0"),
    ("e_shnum", cubin(), 60, b"\xff\xff"),
    ("e_shnum", cubin(), 60, b"\0\0"),
    ("e_shstrndx", cubin(), 62, b"\3\0"),
    ("sh_size", cubin(), 104 + 64 + 32, b"\xff\xff"),
    ("EI_OSABI", hsaco(), 7, b"\0"),
    ("e_type", hsaco(), 16, b"\1\0"),
    ("e_flags", hsaco(), 48, bytes(4)),
    ("entries", bundle("gfx90a"), 24, bytes(8)),
    ("entries", bundle("gfx90a"), 24, b"\xff" * 8),
    ("entries", bundle("gfx90a"), 24, b"\1"),
    ("offset", bundle("gfx90a"), 32 + 51, b"\xff" * 8),
    ("size", bundle("gfx90a"), 32 + 51 + 8, bytes(8)),
    ("size", bundle("gfx90a"), 32 + 51 + 8, b"\xff" * 8),
    ("size of a name", bundle("gfx90a"), 32 + 16, b"\xff" * 8),
    ("size of a name", bundle("gfx90a"), 32 + 16, bytes(8)),
    ("name", bundle("gfx90a"), 32 + 24, b"\xff" * 4),
    ("code", bundle("gfx90a"), 4096 + 5, b"\2"),
    ("version of SPIR-V", spirv(), 4, b"\1"),
    ("version of SPIR-V", spirv(), 4, bytes(4)),
    ("bound", spirv(), 12, bytes(4)),
    ("schema", spirv(), 16, b"\1"),
    ("word count", spirv(), 22, b"\0\0"),
    ("word count", spirv(), 22, b"\x06\0"),
    ("engine", plan(), 4, bytes(112)),
    ("BOM", b"\xef\xbb\xbf" + PTX, 0, b""),
    ("UTF-16", PTX.decode().encode("utf-16"), 0, b""),
    ("NUL", PTX, 40, b"\0"),
    ("two NULs", PTX + b"\0\0", 0, b""),
    (".target", PTX, 13, b".targed"),
    (".version", PTX, 9, b"x"),
    (".address_size", PTX, 42, b"48"),
)
