"""64-bit Arm Linux with glibc: Debian arm64, Raspberry Pi OS, Graviton, most 64-bit boards."""

from emitter.targets._base import Property, Target

TARGET = Target(
    name="aarch64-linux-gnu",
    description="64-bit Arm Linux, glibc",
    tier=1,
    psabi="https://github.com/ARM-software/abi-aa/blob/main/aaelf64/aaelf64.rst",
    llvm_triple="aarch64-unknown-linux-gnu",
    data_layout="e-m:e-p270:32:32-p271:32:32-p272:64:64-i8:8:32-i16:16:32-i64:64-i128:128-n32:64-S128-Fn32",
    e_machine=183,
    cpu="generic",
    code_models=("small", "large"),
    max_page_size=65536,  # kernels with pages of 4, 16 and 64 KiB exist
    # GNU_PROPERTY_AARCH64_FEATURE_1_AND: BTI, PAC, GCS. A loader that enforces GCS aborts on a library without it.
    properties=(Property(pr_type=0xC0000000, value=0x7),),
    reach=1 << 32,  # ADRP
    relocation_relative=(260,),  # R_AARCH64_PREL64
    gnu_triple="aarch64-linux-gnu",
    emulators=("qemu-aarch64",),
    version_kind="glibc",
    oldest_version="2.17",
)
