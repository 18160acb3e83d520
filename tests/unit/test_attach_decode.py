"""Instructions that reach an address are found: objdump says which do, and noise makes no decoder fall over."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess

import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given, settings
from hypothesis import strategies as st

from emitter.attach.decode import DATA_DECODERS, DECODERS

X86_64, AARCH64, RISCV = 62, 183, 243
SAMPLES = 40


def _libm() -> str:
    for tool in ("objdump", "gcc"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    return subprocess.run(
        ["gcc", "-print-file-name=libm.so.6"], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_objdump_agrees_on_a_whole_library() -> None:
    path = _libm()
    with open(path, "rb") as file:
        elf = ELFFile(file)
        if elf["e_machine"] != "EM_X86_64":
            pytest.skip("the host's library is for another CPU")
        text, rodata = elf.get_section_by_name(".text"), elf.get_section_by_name(".rodata")
        assert text is not None and rodata is not None
        code, address = text.data(), text["sh_addr"]
        start, end = rodata["sh_addr"], rodata["sh_addr"] + rodata["sh_size"]
    listing = subprocess.run(
        ["objdump", "-d", "-j", ".text", "--no-show-raw-insn", path], check=True, capture_output=True, text=True
    ).stdout
    reached = sorted({int(found, 16) for found in re.findall(r"\(%rip\).*# ([0-9a-f]+)", listing)})
    reached = [target for target in reached if start <= target < end]
    assert len(reached) > 10 * SAMPLES
    missed = [target for target in reached[:: len(reached) // SAMPLES] if not _hits(code, address, target, target + 1)]
    assert not missed
    gaps = [(low + 8, high) for low, high in itertools.pairwise(reached) if high - low > 128]
    false = [gap for gap in gaps[: SAMPLES // 2] if _hits(code, address, *gap)]
    assert not false


def _hits(code: bytes, address: int, low: int, high: int) -> list[int]:
    return list(DECODERS[X86_64](code, address, low, high, 0))


@pytest.mark.parametrize(
    ("machine", "code", "distance"),
    [
        (X86_64, "48 8d 05 00 01 00 00", 0x107),  # lea 0x100(%rip), %rax
        (X86_64, "80 3d 00 01 00 00 07", 0x107),  # cmpb $7, 0x100(%rip)
        (X86_64, "81 3d 00 01 00 00 07 00 00 00", 0x10A),  # cmpl $7, 0x100(%rip)
        (X86_64, "66 81 3d 00 01 00 00 07 00", 0x109),  # cmpw $7, 0x100(%rip)
        (X86_64, "f6 05 00 01 00 00 07", 0x107),  # testb $7, 0x100(%rip)
        (X86_64, "66 0f 70 05 00 01 00 00 1b", 0x109),  # pshufd $27, 0x100(%rip), %xmm0
        (X86_64, "66 0f 3a 0f 05 00 01 00 00 04", 0x10A),  # palignr $4, 0x100(%rip), %xmm0
        (X86_64, "66 0f 38 00 05 00 01 00 00", 0x109),  # pshufb 0x100(%rip), %xmm0
        (X86_64, "c5 fc 28 05 00 01 00 00", 0x108),  # vmovaps 0x100(%rip), %ymm0
        (X86_64, "c4 e3 7d 18 05 00 01 00 00 01", 0x10A),  # vinsertf128 $1, 0x100(%rip), %ymm0, %ymm0
        (X86_64, "62 f1 7c 48 28 05 00 01 00 00", 0x10A),  # vmovaps 0x100(%rip), %zmm0
        (AARCH64, "00 08 00 10", 0x100),  # adr x0, .+0x100
        (AARCH64, "00 08 00 58", 0x100),  # ldr x0, .+0x100
        (AARCH64, "00 00 00 90 00 00 04 91", 0x100),  # adrp x0, .; add x0, x0, #0x100
        (AARCH64, "01 00 00 90 1f 20 03 d5 20 80 40 f9", 0x100),  # adrp x1, .; nop; ldr x0, [x1, #0x100]
        (AARCH64, "01 00 00 90 20 40 c0 3d", 0x100),  # adrp x1, .; ldr q0, [x1, #0x100]
        (RISCV, "17 05 00 00 13 05 05 10", 0x100),  # auipc a0, 0; addi a0, a0, 0x100
        (RISCV, "17 05 00 00 01 00 03 25 05 10", 0x100),  # auipc a0, 0; c.nop; lw a0, 0x100(a0)
        (22, "c0 20 00 00 00 80", 0x100),  # larl %r2, .+0x100
    ],
)
@pytest.mark.parametrize("before", [b"", b"\0" * 4096], ids=["first", "later"])
def test_an_instruction_reaches_one_byte(machine: int, code: str, distance: int, before: bytes) -> None:
    data = before + bytes.fromhex(code)
    place = 0x10000
    target = place + len(before) + distance
    decode = DECODERS[machine]
    assert list(decode(data, place, target, target + 1, 0))
    assert not list(decode(data, place, target + 1, target + 64, 0))
    assert not list(decode(data, place, target - 63, target, 0))


@given(code=st.binary(max_size=200), offset=st.integers(-(1 << 33), 1 << 33), machine=st.sampled_from(sorted(DECODERS)))
@settings(max_examples=400, deadline=None)
def test_noise_is_read_to_its_end(code: bytes, offset: int, machine: int) -> None:
    address = 1 << 34
    for decoders in (DECODERS, DATA_DECODERS):
        if machine in decoders:
            for found in decoders[machine](code, address, address + offset, address + offset + 256, address - 4096):
                assert address <= found < address + len(code)
