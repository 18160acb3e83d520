"""64-bit RISC-V (double-float ABI) without an operating system."""

from emitter.targets.riscv64_linux_gnu import TARGET as RISCV64_LINUX_GNU

TARGET = RISCV64_LINUX_GNU._replace(
    name="riscv64gc-none-elf",
    description="bare metal, 64-bit RISC-V (RV64GC, lp64d)",
    llvm_triple="riscv64-unknown-none-elf",
    image_suffix=None,
    gnu_triple="riscv64-unknown-elf",
    emulators=("qemu-system-riscv64",),
    version_kind=None,
    oldest_version=None,
)
