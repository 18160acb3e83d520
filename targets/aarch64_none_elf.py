"""64-bit Arm without an operating system: firmware, boot loaders, kernels, real-time systems."""

from emitter.targets.aarch64_linux_gnu import TARGET as AARCH64_LINUX_GNU

TARGET = AARCH64_LINUX_GNU._replace(
    name="aarch64-none-elf",
    description="bare metal, 64-bit Arm",
    llvm_triple="aarch64-unknown-none-elf",
    image_suffix=None,
    gnu_triple="aarch64-linux-gnu",
    emulators=("qemu-system-aarch64",),
    version_kind=None,
    oldest_version=None,
)
