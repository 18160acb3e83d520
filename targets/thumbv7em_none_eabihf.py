"""Cortex-M4F and M7F without an operating system, hard float; the data joins programs for Cortex-M33F and M55 too."""

from emitter.targets._base import Attributes, Target

TARGET = Target(
    name="thumbv7em-none-eabihf",
    description="bare metal, Arm Cortex-M4F, M7F (ARMv7E-M, hard float)",
    tier=1,
    psabi="https://github.com/ARM-software/abi-aa/blob/main/aaelf32/aaelf32.rst",
    llvm_triple="thumbv7em-unknown-none-eabihf",
    data_layout="e-m:e-p:32:32-Fi8-i64:64-v128:64:128-a:0:32-n32-S64",
    pointer_width=32,
    e_machine=40,
    e_flags_object=0x05000000,  # EF_ARM_EABI_VER5
    e_flags_image=0x05000000,
    cpu="cortex-m4",
    max_page_size=4096,
    attributes=Attributes(
        section=".ARM.attributes",
        sh_type=0x70000003,  # SHT_ARM_ATTRIBUTES
        # No Tag_FP_arch: that of an FPU with double precision would make the claim of a program for one without.
        contents=(
            b"A\x19\0\0\0aeabi\0"  # format version; size and vendor of the only subsection
            b"\x01\x0f\0\0\0"  # Tag_File and its size
            b"\x06\x0d"  # Tag_CPU_arch: v7E-M
            b"\x07\x4d"  # Tag_CPU_arch_profile: Microcontroller
            b"\x18\x01"  # Tag_ABI_align_needed: 8-byte
            b"\x19\x01"  # Tag_ABI_align_preserved: 8-byte, except leaf SP; without it a program would lose its own
            b"\x1c\x01"  # Tag_ABI_VFP_args: VFP registers
        ),
        p_type=None,
    ),
    reach=1 << 32,  # an address is loaded whole
    relocation_relative=(3,),  # R_ARM_REL32
    relocation_section="rel",
    image_suffix=None,
    gnu_triple="arm-none-eabi",
    emulators=("qemu-system-arm",),
)
