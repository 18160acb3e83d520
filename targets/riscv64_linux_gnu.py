"""64-bit RISC-V Linux (double-float ABI) with glibc: Debian riscv64, Ubuntu, Fedora."""

from emitter.targets._base import Attributes, Target

TARGET = Target(
    name="riscv64-linux-gnu",
    description="64-bit RISC-V Linux (lp64d), glibc",
    tier=1,
    psabi="https://github.com/riscv-non-isa/riscv-elf-psabi-doc",
    llvm_triple="riscv64-unknown-linux-gnu",
    data_layout="e-m:e-p:64:64-i64:64-i128:128-n32:64-S128",
    e_machine=243,
    e_flags_object=0x4,  # EF_RISCV_FLOAT_ABI_DOUBLE; EF_RISCV_RVC would make a program without compressed code claim it
    e_flags_image=0x5,  # what the platform's linker writes for rv64gc
    cpu="generic-rv64",
    features="+f,+d",  # the base ISA and what the ABI passes arguments in, nothing else
    code_features="+m,+a,+f,+d,+c",  # RV64GC, which every distribution is built for
    abi_name="lp64d",
    code_model="medium",  # psABI: medany
    max_page_size=4096,
    attributes=Attributes(
        section=".riscv.attributes",
        sh_type=0x70000003,  # SHT_RISCV_ATTRIBUTES
        contents=(
            b"A\x25\0\0\0riscv\0"  # format version; size and vendor of the only subsection
            b"\x01\x1b\0\0\0"  # Tag_File and its size
            b"\x04\x10"  # Tag_RISCV_stack_align: 16
            # Tag_RISCV_arch. Linkers give a program the newest version of each extension, so these are the oldest ones,
            # of the ISA specification 2.2, where Zicsr was part of I.
            b"\x05rv64i2p0_f2p0_d2p0\0"
        ),
        p_type=0x70000003,  # PT_RISCV_ATTRIBUTES
    ),
    relocation_relative=(36, 40),  # R_RISCV_ADD64, R_RISCV_SUB64
    gnu_triple="riscv64-linux-gnu",
    emulators=("qemu-riscv64",),
    version_kind="glibc",
    oldest_version="2.27",
)
