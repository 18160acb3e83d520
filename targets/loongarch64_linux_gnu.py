"""64-bit LoongArch Linux (double-float ABI) with glibc."""

from emitter.targets._base import Target

TARGET = Target(
    name="loongarch64-linux-gnu",
    description="64-bit LoongArch Linux (lp64d), glibc",
    tier=2,
    psabi="https://github.com/loongson/la-abi-specs",
    llvm_triple="loongarch64-unknown-linux-gnu",
    data_layout="e-m:e-p:64:64-i64:64-i128:128-n32:64-S128",
    e_machine=258,
    e_flags_object=0x43,  # EF_LOONGARCH_ABI_DOUBLE_FLOAT, EF_LOONGARCH_OBJABI_V1
    e_flags_image=0x43,
    cpu="generic-la64",
    features="+f,+d",
    abi_name="lp64d",
    code_model="medium",
    max_page_size=65536,
    # R_LARCH_ADD64, R_LARCH_SUB64: every linker knows the pair, R_LARCH_64_PCREL only those from 2023 on.
    relocation_relative=(51, 56),
    gnu_triple="loongarch64-linux-gnu",
    lld_since=17,
    emulators=("qemu-loongarch64",),
    version_kind="glibc",
    oldest_version="2.36",
)
