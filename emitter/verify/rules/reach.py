"""Addresses that instructions compute relative to themselves, decoded, and compared with what is mapped there.

A linker that does not check the range of such a relocation writes an instruction that reaches another place, without a
word: the distance is cut to the bits of the instruction, so that the address is wrong by a multiple of what these bits
hold. That needs an image larger than the reach; in smaller ones no distance is cut, and nothing is decoded.

Sources: RISC-V ISA Manual, chapter 2 (AUIPC, I and S immediates); Arm ARM, C6.2 (ADRP, ADD, LDR); Intel SDM, volume 2
(RIP-relative addressing).
"""

from __future__ import annotations

import struct

from emitter.records import TYPE_CHECKING
from emitter.verify.model import Found, rule
from emitter.verify.rules._elf import EM_AARCH64, EM_RISCV, EM_X86_64, SHF_EXECINSTR, SHT_PROGBITS, elf_of, loads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from emitter.verify.check import Check

_MAX_CODE = 64 << 20  # bytes of code that are decoded
_CHUNK = 1 << 20
_LOOK_AHEAD = 6  # instructions between the two of a pair


# A54, B16, B17
@rule(
    "elf-code-reach",
    "An instruction points away from the data that it means",
    why="the linker cut the distance to the bits of the instruction, silently: the code reads or writes elsewhere",
    fix="link with one that checks (GNU ld, lld), and move the large data: emitter --large-data, or its own library",
    kinds=("library", "executable"),
)
def code_reach(check: Check) -> Iterator[Found]:
    """Decode pairs that form an address, in images larger than their reach."""
    elf = elf_of(check)
    decoder = _DECODERS.get(elf.ehdr.e_machine)
    mapped = [(phdr.p_vaddr, phdr.p_vaddr + phdr.p_memsz) for _, phdr in loads(check)]
    if decoder is None or not mapped:
        return
    decode, reach = decoder
    if max(end for _, end in mapped) - min(start for start, _ in mapped) < reach:
        return

    def inside(address: int) -> bool:
        return any(start <= address < end for start, end in mapped)

    left = _MAX_CODE
    for _, shdr in elf.sections():
        if not shdr.sh_flags & SHF_EXECINSTR or shdr.sh_type != SHT_PROGBITS:
            continue
        size = min(shdr.sh_size, left)
        left -= size
        for offset in range(0, size, _CHUNK):
            # A pair that lies across the border of two chunks is seen whole in one of them.
            length = min(_CHUNK + 64, size - offset)
            code = elf.view.read(shdr.sh_offset + offset, length, "code")
            for place, address in decode(code, shdr.sh_addr + offset):
                if inside(address & _MASK):
                    continue
                meant = [address + sign * reach * 2 for sign in (1, -1) if inside(address + sign * reach * 2)]
                if meant:
                    yield Found(f"code at {place:#x}", _symbol_at(check, meant[0]), f"address {address & _MASK:#x}")


_MASK = (1 << 64) - 1


def _symbol_at(check: Check, address: int) -> str:
    for _, symbol in elf_of(check).all_symbols():
        if symbol.shndx and symbol.st_value <= address < symbol.st_value + max(symbol.st_size, 1):
            return f"{symbol.name or 'a symbol'} at {address:#x}"
    return f"something at {address:#x}"


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


def _riscv(code: bytes, base: int) -> Iterator[tuple[int, int]]:
    """Yield (place, address) of AUIPC and the instruction that adds to its register."""
    instructions: list[tuple[int, int]] = []
    position = 0
    while position + 2 <= len(code):
        (low,) = struct.unpack_from("<H", code, position)
        if low & 3 != 3:  # a compressed instruction
            position += 2
            continue
        if position + 4 > len(code):
            break
        instructions.append((position, struct.unpack_from("<I", code, position)[0]))
        position += 4
    for number, (place, word) in enumerate(instructions):
        if word & 0x7F != 0x17:
            continue
        register = word >> 7 & 31
        for _, other in instructions[number + 1 : number + 1 + _LOOK_AHEAD]:
            opcode, used = other & 0x7F, other >> 15 & 31
            if used == register and opcode in {0x03, 0x07, 0x13, 0x67, 0x23, 0x27}:
                if opcode in {0x23, 0x27}:
                    low = _signed(other >> 25 << 5 | other >> 7 & 31, 12)
                elif opcode == 0x13 and other >> 12 & 7:
                    break  # not ADDI
                else:
                    low = _signed(other >> 20, 12)
                yield base + place, base + place + _signed(word & 0xFFFFF000, 32) + low
                break
            if other >> 7 & 31 == register and opcode not in {0x23, 0x27, 0x63}:
                break  # the register has another value now


def _aarch64(code: bytes, base: int) -> Iterator[tuple[int, int]]:
    """Yield (place, address) of ADRP and the ADD or LDR that takes its register."""
    words = struct.unpack(f"<{len(code) // 4}I", code[: len(code) & -4])
    for number, word in enumerate(words):
        if word & 0x9F000000 != 0x90000000:
            continue
        register = word & 31
        place = base + number * 4
        page = (place & -4096) + _signed((word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3, 21) * 4096
        for other in words[number + 1 : number + 1 + _LOOK_AHEAD]:
            if other >> 5 & 31 == register and other & 0xFFC00000 == 0x91000000:  # ADD (immediate), 64 bits
                yield place, page + (other >> 10 & 0xFFF)
                break
            if other >> 5 & 31 == register and other & 0x3B000000 == 0x39000000:  # LDR and STR (unsigned offset)
                yield place, page + ((other >> 10 & 0xFFF) << (other >> 30))
                break
            if other & 31 == register:
                break


def _x86_64(code: bytes, base: int) -> Iterator[tuple[int, int]]:
    """Yield (place, address) of LEA and MOV with a 64-bit register and a RIP-relative operand."""
    candidates = sorted(_positions(code, b"\x8d") + _positions(code, b"\x8b"))
    for position in candidates:
        # REX.W before the opcode, ModRM with mod 0 and rm 5 behind it, then 32 bits of distance.
        if (
            position
            and code[position - 1] & 0xF8 == 0x48
            and position + 6 <= len(code)
            and code[position + 1] & 0xC7 == 5
        ):
            (distance,) = struct.unpack_from("<i", code, position + 2)
            yield base + position - 1, base + position + 6 + distance


def _positions(code: bytes, byte: bytes) -> list[int]:
    found = []
    position = code.find(byte)
    while position >= 0:
        found.append(position)
        position = code.find(byte, position + 1)
    return found


if TYPE_CHECKING:
    Decoder = Callable[[bytes, int], Iterator[tuple[int, int]]]

# The decoder of a machine, and half of what its instructions can tell apart: the farthest that they reach.
_DECODERS: dict[int, tuple[Decoder, int]] = {
    EM_RISCV: (_riscv, 1 << 31),
    EM_AARCH64: (_aarch64, 1 << 32),
    EM_X86_64: (_x86_64, 1 << 31),
}
