"""iOS and iPadOS devices; the oldest release to run on is part of the name, as in arm64-apple-ios16.0."""

from emitter.targets._base import MachO
from emitter.targets.arm64_apple_macos import TARGET as ARM64_APPLE_MACOS

TARGET = ARM64_APPLE_MACOS._replace(
    name="arm64-apple-ios",
    description="iOS, iPadOS devices",
    llvm_triple="arm64-apple-ios15.0.0",
    macho=MachO(
        cputype=0x0100000C,  # CPU_TYPE_ARM64
        cpusubtype=0,  # CPU_SUBTYPE_ARM64_ALL
        platform=2,  # PLATFORM_IOS
        minos="15.0",
        sdk="15.0",
    ),
    oldest_version="12.0",
)
