"""The iOS simulator on Apple silicon; a version stands before the last word, as in arm64-apple-ios16.0-simulator."""

from emitter.targets._base import MachO
from emitter.targets.arm64_apple_macos import TARGET as ARM64_APPLE_MACOS

TARGET = ARM64_APPLE_MACOS._replace(
    name="arm64-apple-ios-simulator",
    description="iOS simulator, Apple silicon",
    llvm_triple="arm64-apple-ios15.0.0-simulator",
    macho=MachO(
        cputype=0x0100000C,  # CPU_TYPE_ARM64
        cpusubtype=0,  # CPU_SUBTYPE_ARM64_ALL
        platform=7,  # PLATFORM_IOSSIMULATOR
        minos="15.0",
        sdk="15.0",
    ),
    oldest_version="14.0",
)
