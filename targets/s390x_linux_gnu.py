"""IBM Z Linux (64-bit, big-endian) with glibc."""

from emitter.targets._base import Target

TARGET = Target(
    name="s390x-linux-gnu",
    description="IBM Z Linux (big-endian), glibc",
    tier=1,
    psabi="https://github.com/IBM/s390x-abi",
    llvm_triple="s390x-unknown-linux-gnu",
    data_layout="E-m:e-i1:8:16-i8:8:16-i64:64-f128:64-v128:64-a:8:16-n32:64",
    byte_order="big",
    e_machine=22,
    cpu="z10",
    max_page_size=4096,
    hash_word_size=8,  # the words of DT_HASH are 64-bit; glibc crashes on others
    reach=1 << 32,  # LARL
    relocation_relative=(23,),  # R_390_PC64
    gnu_triple="s390x-linux-gnu",
    lld_since=18,
    emulators=("qemu-s390x",),
    version_kind="glibc",
    oldest_version="2.2",
)
