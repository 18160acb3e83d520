"""Finds instructions that compute an address within a range from their own: the forms that compilers write.

Not a disassembler: each function looks at the few encodings that the psABI has for position-independent access to data.
`code` is a section at `address`; the result are the addresses of instructions that reach [low, high). Constants that
look like such an instruction are a few in 10^10 bytes of code. Sources: the manuals and the psABI of each CPU.
"""

from __future__ import annotations

import re
from struct import Struct, unpack_from

from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeAlias

    # code, its address, the range, the address of the GOT or TOC
    Decoder: TypeAlias = Callable[[bytes, int, int, int, int], Iterator[int]]

__all__ = ["DATA_DECODERS", "DECODERS"]

_WINDOW = 64  # instructions within which the second of a pair follows the first

_LE32 = Struct("<i")
_BE32 = Struct(">i")
_ULE32 = Struct("<I")


def _x86_64(code: bytes, address: int, low: int, high: int, base: int) -> Iterator[int]:  # noqa: ARG001 - one shape for all
    """ModRM with mod 00 and r/m 101: a signed 32-bit distance from the end of the instruction."""
    # The last byte of the distance has few values; most candidates fall to it without a look.
    first, last = low - address - len(code) - 8 >> 24, high - address >> 24
    if last - first > 255:
        tops = b"."
    else:
        tops = b"[" + b"".join(re.escape(bytes((top & 0xFF,))) for top in range(first, last + 1)) + b"]"
    pattern = re.compile(rb"(?=[\x05\x0d\x15\x1d\x25\x2d\x35\x3d]..." + tops + rb")", re.DOTALL)
    for match in pattern.finditer(code):
        at = match.start()
        end = address + at + 5 + _x86_immediate(code, at)
        if low <= end + _LE32.unpack_from(code, at + 1)[0] < high and _x86_reads(code, at):
            yield address + at


# Opcodes of one byte that read memory, or take its address: arithmetic, tests and moves into a register, x87.
_READS = frozenset(
    {0x63, 0x69, 0x6B, 0x84, 0x85, 0x8A, 0x8B, *range(0xD8, 0xE0)}
    | {high | low for high in range(0, 0x40, 8) for low in (2, 3)}
    | {0x38, 0x39}
)  # fmt: skip
# Of others, which ones by the digit in the ModRM byte: comparisons, tests and divisions, calls and pushes.
_READS_BY_REG = {0x80: {7}, 0x81: {7}, 0x83: {7}, 0xF6: {0, 1, 4, 5, 6, 7}, 0xF7: {0, 1, 4, 5, 6, 7}, 0xFF: {2, 4, 6}}
# Behind 0F: what stores, sets, or has no such operand.
_STORES_0F = frozenset({0x11, 0x13, 0x17, 0x29, 0x2B, 0x7F, 0xD6, 0xE7, *range(0x90, 0xA0), *range(0x80, 0x90)})


def _x86_reads(code: bytes, at: int) -> bool:
    """Whether the opcode of an instruction that reads stands before the ModRM byte at `at`, not part of a constant."""
    if at < 1:
        return False
    opcode = code[at - 1]
    before = code[max(at - 6, 0) : at - 1].rjust(5, b"\0")
    if before[-1] == 0x0F:
        return opcode not in _STORES_0F
    if before[-2] == 0x0F and before[-1] in (0x38, 0x3A):
        return True
    if before[-2] == 0xC5 or before[-3] == 0xC4 or before[-4] == 0x62:  # VEX, EVEX
        return True
    if opcode == 0x8D:  # LEA of an address is of 64 bits: with REX.W
        return before[-1] & 0xF8 == 0x48
    return opcode in _READS or code[at] >> 3 & 7 in _READS_BY_REG.get(opcode, ())


# Opcodes before the ModRM byte whose instruction ends with an immediate of 1 byte; those of one byte and those behind
# 0F do not contradict each other where both have ModRM. Then those of 4 bytes (2 behind the prefix 66).
_IMM8 = frozenset((0x6B, 0x70, 0x71, 0x72, 0x73, 0x80, 0x82, 0x83, 0xC0, 0xC1, 0xC2, 0xC4, 0xC5, 0xC6))
_IMM8_0F = frozenset((0x70, 0x71, 0x72, 0x73, 0xA4, 0xAC, 0xBA, 0xC2, 0xC4, 0xC5, 0xC6))
_IMM32 = frozenset((0x69, 0x81, 0xC7))


def _x86_immediate(code: bytes, at: int) -> int:
    """Return the bytes behind the distance of the instruction whose ModRM byte is at `at`."""
    if at < 1:
        return 0
    opcode = code[at - 1]
    before = code[max(at - 6, 0) : at - 1].rjust(5, b"\0")
    if before[-1] == 0x0F:
        return 1 if opcode in _IMM8_0F else 0
    if before[-2:] in (b"\x0f\x38", b"\x0f\x3a"):
        return 1 if before[-1] == 0x3A else 0
    # Opcode map 3 behind a VEX (C4) or EVEX (62) prefix.
    if (before[-3] == 0xC4 and before[-2] & 31 == 3) or (before[-4] == 0x62 and before[-3] & 7 == 3):
        return 1
    short = 2 if 0x66 in before[-2:] else 4
    if opcode in (0xF6, 0xF7):
        return 0 if code[at] >> 3 & 6 else 1 if opcode == 0xF6 else short
    return short if opcode in _IMM32 else 1 if opcode in _IMM8 else 0


def _i686(code: bytes, address: int, low: int, high: int, base: int) -> Iterator[int]:
    """ModRM with mod 10: a 32-bit distance from the GOT, whose address is in a register."""
    for upper in range(low - base >> 8, (high - 1 - base >> 8) + 1):
        pattern = (upper & 0xFFFFFF).to_bytes(3, "little")
        at = code.find(pattern, 2) - 1
        while at > 0:
            # Behind the ModRM byte, or behind the SIB byte that follows it.
            near = 0x80 <= code[at - 1] < 0xC0 or (at > 1 and code[at - 2] & 0xC7 == 0x84)
            if near and low - base <= upper << 8 | code[at] < high - base:
                yield address + at
            at = code.find(pattern, at + 2) - 1


_AARCH64 = re.compile(rb"(?=...[\x10\x30\x50\x70\x90\xb0\xd0\xf0\x18\x58\x98\x1c\x5c\x9c])", re.DOTALL)


def _aarch64(code: bytes, address: int, low: int, high: int, base: int) -> Iterator[int]:  # noqa: ARG001 - one shape for all
    """ADRP with the ADD or load that has the rest of the address; ADR; a load from a literal's place."""
    for match in _AARCH64.finditer(code):
        at = match.start()
        if at % 4:
            continue
        word = _ULE32.unpack_from(code, at)[0]
        place = address + at
        if word & 0x3B000000 == 0x18000000:  # LDR (literal): imm19
            if low <= place + _signed(word >> 5 & 0x7FFFF, 19) * 4 < high:
                yield place
            continue
        imm = _signed((word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3, 21)
        if not word >> 31:  # ADR
            if low <= place + imm < high:
                yield place
        elif _pairs_aarch64(code, at, word & 31, low - (place & -4096) - (imm << 12), high - low):
            yield place


def _pairs_aarch64(code: bytes, at: int, register: int, rest: int, size: int) -> bool:
    """Whether an instruction behind the ADRP at `at` adds `rest`, or up to `size` more, to its register."""
    if not -size < rest < 4096:
        return False
    for word in _words(code, at + 4, _WINDOW):
        if word & 0x9F00001F == 0x90000000 | register:  # ADRP of the same register
            return False
        if word >> 5 & 31 != register:
            continue
        imm = word >> 10 & 0xFFF
        if word & 0xFFC00000 == 0x91000000 and rest <= imm < rest + size:  # ADD (immediate)
            return True
        if word & 0x3B000000 == 0x39000000:  # load or store, unsigned offset
            scale = 4 if word >> 26 & 1 and word >> 23 & 1 and not word >> 30 else word >> 30
            if rest <= imm << scale < rest + size:
                return True
    return False


_RISCV = re.compile(rb"(?=[\x17\x97]...)", re.DOTALL)
_RISCV_I = frozenset((0x13, 0x03, 0x07))  # OP-IMM, LOAD, LOAD-FP: a 12-bit immediate above rs1
_RISCV_S = frozenset((0x23, 0x27))  # STORE, STORE-FP
# LOAD, OP-IMM, AUIPC, OP-IMM-32, AMO, OP, LUI, OP-32, JALR, JAL, SYSTEM: they write the register in bits 7 to 11.
_RISCV_WRITES = frozenset((0x03, 0x13, 0x17, 0x1B, 0x2F, 0x33, 0x37, 0x3B, 0x67, 0x6F, 0x73))


def _riscv(code: bytes, address: int, low: int, high: int, base: int) -> Iterator[int]:  # noqa: ARG001 - one shape for all
    """AUIPC, with the ADDI, load or store that has the rest of the distance."""
    for match in _RISCV.finditer(code):
        at = match.start()
        if at % 2:
            continue
        word = _ULE32.unpack_from(code, at)[0]
        register = word >> 7 & 31
        rest = low - (address + at) - _signed(word >> 12, 20) * 4096
        if not low - high - 2048 < rest < 2048 or not register:
            continue
        position, seen = at + 4, 0
        while position + 4 <= len(code) and seen < _WINDOW:
            word = _ULE32.unpack_from(code, position)[0]
            position += 4 if word & 3 == 3 else 2
            seen += 1
            opcode = word & 0x7F
            if word & 3 == 3 and word >> 15 & 31 == register:
                imm = None
                if opcode in _RISCV_S:
                    imm = _signed(word >> 25 << 5 | word >> 7 & 31, 12)
                elif opcode in _RISCV_I and not (opcode == 0x13 and word >> 12 & 7):
                    imm = _signed(word >> 20, 12)
                if imm is not None and rest <= imm < rest + high - low:
                    yield address + at
                    break
            if opcode in _RISCV_WRITES and word >> 7 & 31 == register:
                break  # it holds something else from here on


_S390X = re.compile(rb"(?=[\xc0\xc4\xc6].....)", re.DOTALL)


def _s390x(code: bytes, address: int, low: int, high: int, base: int) -> Iterator[int]:  # noqa: ARG001 - one shape for all
    """LARL, and the loads and comparisons relative long (RIL): a distance in halfwords."""
    for match in _S390X.finditer(code):
        at = match.start()
        is_long = not at % 2 and (code[at] != 0xC0 or not code[at + 1] & 15)
        if is_long and low <= address + at + 2 * _BE32.unpack_from(code, at + 2)[0] < high:
            yield address + at


def _s390x_data(code: bytes, address: int, low: int, high: int, base: int) -> Iterator[int]:
    """Find 64-bit distances from the GOT, which code loads and adds (R_390_GOTOFF64)."""
    for upper in range(low - base >> 8, (high - 1 - base >> 8) + 1):
        pattern = (upper & 0xFFFFFFFFFFFFFF).to_bytes(7, "big")
        at = code.find(pattern)
        while 0 <= at < len(code) - 7:
            if low - base <= upper << 8 | code[at + 7] < high - base:
                yield address + at
            at = code.find(pattern, at + 1)


_ARM = re.compile(rb"(?=..[\x1f\x9f].)|(?=.[\x48-\x4f])|(?=[\x5f\xdf]\xf8..)", re.DOTALL)


def _arm(code: bytes, address: int, low: int, high: int, base: int) -> Iterator[int]:  # noqa: ARG001 - one shape for all
    """LDR of a literal, then the ADD or load that adds it to PC, which is 8 bytes ahead, or 4 in Thumb."""
    for match in _ARM.finditer(code):
        at = match.start()
        for literal, register, thumb in _arm_literals(code, at, address):
            start = literal - address
            if not 0 <= start <= len(code) - 4:
                continue
            user = _adds_pc_thumb(code, at, register) if thumb else _adds_pc_arm(code, at, register)
            ahead = 4 if thumb else 8
            if user and low <= address + user + ahead + _LE32.unpack_from(code, start)[0] < high:
                yield address + at


def _arm_literals(code: bytes, at: int, address: int) -> Iterator[tuple[int, int, bool]]:
    """Yield (address of the literal, register, whether it is Thumb) if LDR (literal) is at `at`: there are three."""
    word = int.from_bytes(code[at : at + 4], "little")
    if not at % 4 and word & 0x0F7F0000 == 0x051F0000:
        imm = word & 0xFFF
        yield address + at + 8 + (imm if word >> 23 & 1 else -imm), word >> 12 & 15, False
    here = (address + at + 4) & -4
    if not at % 2 and word & 0xF800 == 0x4800:
        yield here + (word & 0xFF) * 4, word >> 8 & 7, True
    elif not at % 2 and word & 0xFF7F == 0xF85F:
        imm = word >> 16 & 0xFFF
        yield here + (imm if word >> 7 & 1 else -imm), word >> 28, True


def _adds_pc_arm(code: bytes, at: int, register: int) -> int:
    """Return where the first ADD Rd, PC, register or LDR Rd, [PC, register] behind `at` is; 0 if there is none near."""
    for index, word in enumerate(_words(code, at + 4, _WINDOW), 1):
        adds = word & 0x0FFF0FF0 == 0x008F0000 or word & 0x0F3F0FF0 == 0x071F0000
        if adds and word & 15 == register:
            return at + 4 * index
    return 0


def _adds_pc_thumb(code: bytes, at: int, register: int) -> int:
    """Return where the first ADD register, PC behind `at` is; 0 if there is none near."""
    for place in range(at + 2, min(at + 4 * _WINDOW, len(code) - 1), 2):
        word = int.from_bytes(code[place : place + 2], "little")
        if word & 0xFF78 == 0x4478 and (word & 7 | word >> 4 & 8) == register:
            return place
    return 0


def _ppc64(code: bytes, address: int, low: int, high: int, base: int) -> Iterator[int]:
    """ADDIS from the TOC pointer (r2), with the instruction that has the rest; or that alone."""
    rows = _words(code, 0, len(code) // 4)
    for index, word in enumerate(rows):
        if word & 0xFC1F0000 == 0x3C020000:  # addis rT, r2, hi
            register, high_part = word >> 21 & 31, _signed(word & 0xFFFF, 16) << 16
            for other in rows[index + 1 : index + 1 + _WINDOW]:
                if other >> 16 & 31 == register and low <= base + high_part + _d_form(other) < high:
                    yield address + 4 * index
                    break
        elif word >> 16 & 31 == 2 and low <= base + _d_form(word) < high:
            yield address + 4 * index


_NOWHERE = 1 << 63


def _d_form(word: int) -> int:
    """Return the displacement of a D or DS form instruction (addi, loads, stores), else one that leads nowhere."""
    opcode = word >> 26
    if opcode == 14 or 32 <= opcode < 56:
        return _signed(word & 0xFFFF, 16)
    return _signed(word & 0xFFFC, 16) if opcode in (57, 58, 61, 62) else _NOWHERE


def _words(code: bytes, start: int, count: int) -> tuple[int, ...]:
    """Return up to `count` little-endian words from `start`, as many as there are."""
    count = min(count, max(len(code) - start, 0) // 4)
    return unpack_from(f"<{count}I", code, start)


def _signed(value: int, bits: int) -> int:
    return value - (value >> bits - 1 << bits)


# By e_machine.
DECODERS: Mapping[int, Decoder] = {
    62: _x86_64, 3: _i686, 183: _aarch64, 243: _riscv, 22: _s390x, 40: _arm, 21: _ppc64,
}  # fmt: skip
# The same for sections that hold no code.
DATA_DECODERS: Mapping[int, Decoder] = {22: _s390x_data}
