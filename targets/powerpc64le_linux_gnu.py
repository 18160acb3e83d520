"""64-bit POWER Linux (little-endian, ELFv2) with glibc: Debian ppc64el."""

from emitter.targets._base import Target

TARGET = Target(
    name="powerpc64le-linux-gnu",
    description="64-bit POWER Linux (little-endian, ELFv2), glibc",
    tier=1,
    psabi="https://openpowerfoundation.org/specifications/64bitelfabi/",
    llvm_triple="powerpc64le-unknown-linux-gnu",
    data_layout="e-m:e-Fn32-i64:64-i128:128-n32:64-S128-v256:256:256-v512:512:512",
    e_machine=21,
    e_flags_object=0x2,  # EF_PPC64_ABI: 2
    e_flags_image=0x2,
    cpu="ppc64le",
    abi_name="elfv2",
    code_model="medium",
    max_page_size=65536,
    relocation_relative=(44,),  # R_PPC64_REL64
    gnu_triple="powerpc64le-linux-gnu",
    emulators=("qemu-ppc64le",),
    version_kind="glibc",
    oldest_version="2.17",
)
