"""x86-64 Linux with glibc: Debian, Ubuntu, RHEL and most servers."""

from emitter.targets._base import LargeData, Property, Target

TARGET = Target(
    name="x86_64-linux-gnu",
    description="x86-64 Linux, glibc",
    tier=1,
    psabi="https://gitlab.com/x86-psABIs/x86-64-ABI",
    llvm_triple="x86_64-unknown-linux-gnu",
    data_layout="e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128",
    e_machine=62,
    cpu="x86-64",
    max_page_size=4096,
    properties=(Property(pr_type=0xC0000002, value=0x3),),  # GNU_PROPERTY_X86_FEATURE_1_AND: IBT, SHSTK
    large_data=LargeData(section=".lrodata", sh_flags=0x10000000),  # SHF_X86_64_LARGE
    relocation_relative=(24,),  # R_X86_64_PC64
    gnu_triple="x86_64-linux-gnu",
    emulators=("qemu-x86_64",),
    version_kind="glibc",
    oldest_version="2.2.5",
)
