"""32-bit x86 Linux with glibc: Debian i386."""

from emitter.targets._base import Property, Target

TARGET = Target(
    name="i686-linux-gnu",
    description="32-bit x86 Linux, glibc",
    tier=1,
    psabi="https://gitlab.com/x86-psABIs/i386-ABI",
    llvm_triple="i686-unknown-linux-gnu",
    data_layout="e-m:e-p:32:32-p270:32:32-p271:32:32-p272:64:64-i128:128-f64:32:64-f80:32-n8:16:32-S128",
    pointer_width=32,
    e_machine=3,
    cpu="i686",
    max_page_size=4096,
    properties=(Property(pr_type=0xC0000002, value=0x3),),  # GNU_PROPERTY_X86_FEATURE_1_AND: IBT, SHSTK
    max_image_size=1 << 30,
    relocation_relative=(2,),  # R_386_PC32
    relocation_section="rel",
    gnu_triple="i686-linux-gnu",
    emulators=("qemu-i386",),
    version_kind="glibc",
    oldest_version="2.0",
)
