"""64-bit x86 Android (ABI x86_64); the API level is part of the name, as in x86_64-linux-android24."""

from emitter.targets.x86_64_linux_gnu import TARGET as X86_64_LINUX_GNU

TARGET = X86_64_LINUX_GNU._replace(
    name="x86_64-linux-android",
    description="64-bit x86 Android, x86_64",
    tier=2,
    llvm_triple="x86_64-unknown-linux-android",
    max_page_size=16384,  # what Android asks of every 64-bit library since 15: an emulator may use pages of that size
    emulators=(),
    version_kind="android-api",
    oldest_version="21",
)
