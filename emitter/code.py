"""Code beside constants: LLVM IR and objects as inputs of a package, recognised by content.

Nothing here knows LLVM: `emitter.compile` compiles what this module names, and `emitter.link` links it.
"""

from __future__ import annotations

import os

from emitter.errors import InputError, UsageError, shown
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Literal, TypeAlias

    from emitter.package import Source

__all__ = ["CodeInput", "CodeKind", "code_input", "code_kind", "producer", "read_source"]

CodeKind: TypeAlias = 'Literal["ir", "bitcode", "object", "archive"]'

# LLVM, "Bitcode File Format": the magic of a bitcode file, and of the wrapper that Apple's tools put around one.
_WRAPPER = b"\xde\xc0\x17\x0b"
_BITCODE = (b"BC\xc0\xde", _WRAPPER)
_ARCHIVE = b"!<arch>\n"
_BIGOBJ = b"\0\0\xff\xff"  # ANON_OBJECT_HEADER_BIGOBJ, whose class stands behind
_BIGOBJ_CLASS = bytes.fromhex("c7a1bad1eebaa94baf20faf66aa4dcb8")

_ET_REL = 1
_MH_OBJECT = 1
_MACHO = {b"\xcf\xfa\xed\xfe": "little", b"\xce\xfa\xed\xfe": "little"}
# Machines of COFF objects, which have no magic: x64, Arm64, i386.
_COFF = (b"\x64\x86", b"\x64\xaa", b"\x4c\x01")

# What a line of LLVM's textual IR begins with.
_IR_WORDS = (
    b"; ModuleID", b"source_filename", b"target triple", b"target datalayout", b"define ", b"declare ", b"module asm",
    b"attributes #", b"@", b"%", b"!", b"$",
)  # fmt: skip

_MAX_IR = 1 << 30

_CHAR6 = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"
# What LLVM begins every file with: the magic, and ENTER_SUBBLOCK (1, in 2 bits) of IDENTIFICATION_BLOCK_ID (13, vbr8),
# in which abbreviation ids have 5 bits (vbr4). A word follows, and an abbreviation of 27 bits for what made the file.
_IDENTIFICATION = (b"BC\xc0\xde" + (1 | 13 << 2 | 5 << 10).to_bytes(4, "little"), 32 + 32 + 32 + 27)
_UNABBREV_RECORD, _STRING_ABBREV = 3, 4
_PRODUCER = 100  # characters of one


class CodeInput(NamedTuple):
    """A module of LLVM IR, an object or an archive of objects; `path` is its name for messages."""

    path: str
    kind: CodeKind
    source: Source


def code_kind(head: bytes, suffix: str = "") -> CodeKind | None:
    """Return what code a file holds that begins with `head` (some 512 bytes) and is called `suffix`; None for none.

    Executables and shared libraries are no code that a library is made of.
    """
    if head.startswith(_BITCODE):
        return "bitcode"
    if head.startswith(_ARCHIVE):
        return "archive"
    if head.startswith(b"\x7fELF") and len(head) > 18:
        order: Literal["little", "big"] = "big" if head[5] == 2 else "little"
        return "object" if int.from_bytes(head[16:18], order) == _ET_REL else None
    if head[:4] in _MACHO:
        return "object" if int.from_bytes(head[12:16], "little") == _MH_OBJECT else None
    # An object has no optional header; its fourth byte on are two plain numbers, which text does not have.
    if head.startswith(_BIGOBJ) and head[12:28] == _BIGOBJ_CLASS:
        return "object"
    if head.startswith(_COFF) and len(head) >= 20 and head[16:18] == b"\0\0":
        return "object"
    return "ir" if _is_ir(head, suffix) else None


def _is_ir(head: bytes, suffix: str) -> bool:
    if b"\0" in head or not head.strip():
        return False
    if suffix.lower() == ".ll":
        return True
    lines = [line for line in map(bytes.strip, head.split(b"\n")[:-1] or [head]) if line]
    words = [line for line in lines if not line.startswith(b";") or line.startswith(b"; ModuleID")]
    return bool(words) and words[0].startswith(_IR_WORDS) and b" = " in head.replace(b"source_filename", b"s = ")


def code_input(code: object) -> CodeInput:
    """Return the code of a path, of the text of IR (a str with a line break), or of the bytes of any kind of input.

    Raises InputError for what is no code, UsageError for an object of another type.
    """
    from emitter.package import OPEN_FLAGS, BufferSource, FileSource

    if isinstance(code, (bytes, bytearray)) or (isinstance(code, str) and "\n" in code):
        data = code.encode() if isinstance(code, str) else bytes(code)
        kind = "ir" if isinstance(code, str) else code_kind(data[:512])
        if kind is None:
            raise _no_code("the code", data[:8])
        return CodeInput("the code", kind, BufferSource("the code", memoryview(data)))
    if not isinstance(code, (str, os.PathLike)):
        raise UsageError(
            "this is no code", expected="a path, the text of LLVM IR, or bytes", actual=type(code).__name__
        )
    name = os.fsdecode(code)
    source = FileSource.of(name)
    try:
        fd = os.open(name, OPEN_FLAGS)
        try:
            head = os.read(fd, 512)
        finally:
            os.close(fd)
    except OSError as error:
        raise InputError(f"cannot read: {error.strerror or error}", where=name) from error
    kind = code_kind(head, os.path.splitext(name)[1])
    if kind is None:
        raise _no_code(name, head[:8])
    return CodeInput(name, kind, source)


def producer(bitcode: bytes) -> str:
    """Return what made a bitcode file, such as "LLVM14.0.6"; empty where it does not say.

    LLVM, "Bitcode File Format": the first record of IDENTIFICATION_BLOCK is a string, of char6 where they suffice, else
    ("LLVM17.0.6-rust-1.74.0-stable") not abbreviated: the record's code (1), its length and its characters in vbr6.
    """
    if bitcode.startswith(_WRAPPER):
        bitcode = bitcode[int.from_bytes(bitcode[8:12], "little") :]
    start, at = _IDENTIFICATION
    if not bitcode.startswith(start):
        return ""
    bits = int.from_bytes(bitcode[: at // 8 + 2 * _PRODUCER], "little") >> at

    def take(width: int) -> int:
        nonlocal bits
        value = bits & (1 << width) - 1
        bits >>= width
        return value

    def take_vbr6() -> int:
        chunk = take(6)
        return chunk & 31 | take_vbr6() << 5 if chunk & 32 else chunk

    form = take(5)
    if form == _STRING_ABBREV:
        return "".join(_CHAR6[take(6)] for _ in range(min(take_vbr6(), _PRODUCER)))
    if form == _UNABBREV_RECORD and take_vbr6() == 1:
        return "".join(chr(take_vbr6() & 127) for _ in range(min(take_vbr6(), _PRODUCER)))
    return ""


def read_source(code: CodeInput) -> bytes:
    """Return all bytes of a code input; raise InputError if it is too large, or has changed since it was first seen."""
    from emitter.package import BufferSource

    source = code.source
    if source.size > _MAX_IR:
        raise InputError(
            "too large for code", where=code.path, expected=f"at most {_MAX_IR} bytes", actual=f"{source.size} bytes"
        )
    if isinstance(source, BufferSource):
        return bytes(source.data)
    with source.open() as fd:
        blocks = []
        try:
            while block := os.read(fd, 1 << 20):
                blocks.append(block)
        except OSError as error:
            raise InputError(f"cannot read: {error.strerror or error}", where=code.path) from error
        return b"".join(blocks)


def _no_code(where: str, head: bytes) -> InputError:
    return InputError(
        "this is no code",
        where=where,
        expected="LLVM IR as text (.ll) or bitcode (.bc), a relocatable object, or an archive of such",
        actual=f"it begins with {shown(head)}",
    )
