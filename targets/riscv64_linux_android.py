"""64-bit RISC-V Android (ABI riscv64); the API level is part of the name, as in riscv64-linux-android35."""

from emitter.targets.riscv64_linux_gnu import TARGET as RISCV64_LINUX_GNU

TARGET = RISCV64_LINUX_GNU._replace(
    name="riscv64-linux-android",
    description="64-bit RISC-V Android, riscv64",
    tier=2,
    llvm_triple="riscv64-unknown-linux-android",
    max_page_size=16384,  # what Android asks of every 64-bit library since 15
    emulators=(),
    version_kind="android-api",
    oldest_version="35",
)
