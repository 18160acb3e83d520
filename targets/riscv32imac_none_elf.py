"""32-bit RISC-V (soft-float ABI) without an operating system; the data joins programs of RV32I with any extensions."""

from emitter.targets._base import Attributes, Target

TARGET = Target(
    name="riscv32imac-none-elf",
    description="bare metal, 32-bit RISC-V (RV32IMAC and less, ilp32)",
    tier=1,
    psabi="https://github.com/riscv-non-isa/riscv-elf-psabi-doc",
    llvm_triple="riscv32-unknown-none-elf",
    data_layout="e-m:e-p:32:32-i64:64-n32-S128",
    pointer_width=32,
    e_machine=243,
    e_flags_image=0x1,  # EF_RISCV_RVC: what the linker writes for a program of rv32imac
    cpu="generic-rv32",  # the base ISA, nothing else
    code_features="+m,+a,+c",
    abi_name="ilp32",
    code_model="medium",  # psABI: medany
    max_page_size=4096,
    attributes=Attributes(
        section=".riscv.attributes",
        sh_type=0x70000003,  # SHT_RISCV_ATTRIBUTES
        contents=(
            b"A\x1b\0\0\0riscv\0"  # format version; size and vendor of the only subsection
            b"\x01\x11\0\0\0"  # Tag_File and its size
            b"\x04\x10"  # Tag_RISCV_stack_align: 16
            b"\x05rv32i2p0\0"  # Tag_RISCV_arch: the oldest version, as in the literal of riscv64
        ),
        p_type=0x70000003,  # PT_RISCV_ATTRIBUTES
    ),
    reach=1 << 32,  # the address space
    relocation_relative=(35, 39),  # R_RISCV_ADD32, R_RISCV_SUB32
    image_suffix=None,
    gnu_triple="riscv64-unknown-elf",
    emulators=("qemu-system-riscv32",),
)
