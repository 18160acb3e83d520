"""Cortex-M0, M0+ and M1 without an operating system; the data joins every soft-float program for a Cortex-M."""

from emitter.targets._base import Attributes
from emitter.targets.thumbv7em_none_eabihf import TARGET as THUMBV7EM_NONE_EABIHF

TARGET = THUMBV7EM_NONE_EABIHF._replace(
    name="thumbv6m-none-eabi",
    description="bare metal, Arm Cortex-M0, M0+, M1 (ARMv6-M), and soft-float M3, M4, M7",
    llvm_triple="thumbv6m-unknown-none-eabi",
    cpu="cortex-m0",
    attributes=Attributes(
        section=".ARM.attributes",
        sh_type=0x70000003,  # SHT_ARM_ATTRIBUTES
        # No Tag_CPU_unaligned_access: these CPUs fault on one.
        contents=(
            b"A\x17\0\0\0aeabi\0"  # format version; size and vendor of the only subsection
            b"\x01\x0d\0\0\0"  # Tag_File and its size
            b"\x06\x0b"  # Tag_CPU_arch: v6-M
            b"\x07\x4d"  # Tag_CPU_arch_profile: Microcontroller
            b"\x18\x01"  # Tag_ABI_align_needed: 8-byte
            b"\x19\x01"  # Tag_ABI_align_preserved: 8-byte, except leaf SP
        ),
        p_type=None,
    ),
)
