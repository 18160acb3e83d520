"""32-bit Arm Linux, hard float, with glibc: Debian armhf, Raspberry Pi 2 and later, most Cortex-A boards."""

from emitter.targets._base import Attributes, Target

TARGET = Target(
    name="armv7-linux-gnueabihf",
    description="32-bit Arm Linux (ARMv7-A, hard float), glibc",
    tier=1,
    psabi="https://github.com/ARM-software/abi-aa/blob/main/aaelf32/aaelf32.rst",
    llvm_triple="armv7-unknown-linux-gnueabihf",
    data_layout="e-m:e-p:32:32-Fi8-i64:64-v128:64:128-a:0:32-n32-S64",
    pointer_width=32,
    e_machine=40,
    e_flags_object=0x05000000,  # EF_ARM_EABI_VER5
    e_flags_image=0x05000400,  # the same with EF_ARM_ABI_FLOAT_HARD, which objects state in their attributes
    cpu="generic",
    features="+vfp3d16,-d32,-neon",  # the baseline of the distributions; LLVM's own has NEON and 32 registers
    max_page_size=65536,  # a 32-bit program may run on a 64-bit kernel with 64 KiB pages
    attributes=Attributes(
        section=".ARM.attributes",
        sh_type=0x70000003,  # SHT_ARM_ATTRIBUTES
        contents=(
            b"A\x1b\0\0\0aeabi\0"  # format version; size and vendor of the only subsection
            b"\x01\x11\0\0\0"  # Tag_File and its size
            b"\x06\x0a"  # Tag_CPU_arch: v7
            b"\x07\x41"  # Tag_CPU_arch_profile: Application
            b"\x0a\x04"  # Tag_FP_arch: VFPv3-D16
            b"\x18\x01"  # Tag_ABI_align_needed: 8-byte
            b"\x19\x01"  # Tag_ABI_align_preserved: 8-byte, except leaf SP; without it a program would lose its own
            b"\x1c\x01"  # Tag_ABI_VFP_args: VFP registers
        ),
        p_type=None,
    ),
    max_image_size=1 << 30,
    relocation_relative=(3,),  # R_ARM_REL32
    relocation_section="rel",
    gnu_triple="arm-linux-gnueabihf",
    emulators=("qemu-arm",),
    version_kind="glibc",
    oldest_version="2.4",
)
