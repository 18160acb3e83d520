"""64-bit Arm Android (ABI arm64-v8a); the API level is part of the name, as in aarch64-linux-android24."""

from emitter.targets.aarch64_linux_gnu import TARGET as AARCH64_LINUX_GNU

TARGET = AARCH64_LINUX_GNU._replace(
    name="aarch64-linux-android",
    description="64-bit Arm Android, arm64-v8a",
    tier=2,
    llvm_triple="aarch64-unknown-linux-android",
    emulators=(),
    version_kind="android-api",
    oldest_version="21",
)
