"""64-bit Arm Linux with musl: Alpine, static binaries."""

from emitter.targets.aarch64_linux_gnu import TARGET as AARCH64_LINUX_GNU

TARGET = AARCH64_LINUX_GNU._replace(
    name="aarch64-linux-musl",
    description="64-bit Arm Linux, musl",
    tier=2,
    llvm_triple="aarch64-unknown-linux-musl",
    version_kind="musl",
    oldest_version=None,
)
