"""32-bit Arm Android (ABI armeabi-v7a); the API level is part of the name, as in armv7a-linux-androideabi21."""

from emitter.targets._base import Attributes
from emitter.targets.armv7_linux_gnueabihf import TARGET as ARMV7_LINUX_GNUEABIHF

TARGET = ARMV7_LINUX_GNUEABIHF._replace(
    name="armv7-linux-androideabi",
    description="32-bit Arm Android (ARMv7-A, arguments in integer registers), armeabi-v7a",
    tier=2,
    llvm_triple="armv7-unknown-linux-androideabi",
    e_flags_image=0x05000200,  # EF_ARM_EABI_VER5, EF_ARM_ABI_FLOAT_SOFT: what the NDK's linker, lld, writes
    attributes=Attributes(
        section=".ARM.attributes",
        sh_type=0x70000003,  # SHT_ARM_ATTRIBUTES
        # Neither Tag_FP_arch nor Tag_ABI_VFP_args: programs use VFP, and pass nothing in its registers.
        contents=(
            b"A\x17\0\0\0aeabi\0"  # format version; size and vendor of the only subsection
            b"\x01\x0d\0\0\0"  # Tag_File and its size
            b"\x06\x0a"  # Tag_CPU_arch: v7
            b"\x07\x41"  # Tag_CPU_arch_profile: Application
            b"\x18\x01"  # Tag_ABI_align_needed: 8-byte
            b"\x19\x01"  # Tag_ABI_align_preserved: 8-byte, except leaf SP
        ),
        p_type=None,
    ),
    emulators=(),
    version_kind="android-api",
    oldest_version=None,
)
