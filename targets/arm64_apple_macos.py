"""macOS on Apple silicon; the oldest release to run on is part of the name, as in arm64-apple-macos13.0."""

from emitter.targets._base import MachO, Target

TARGET = Target(
    name="arm64-apple-macos",
    description="macOS, Apple silicon",
    tier=2,
    psabi="https://developer.apple.com/documentation/xcode/writing-arm64-code-for-apple-platforms",
    llvm_triple="arm64-apple-macosx11.0.0",
    data_layout="e-m:o-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-n32:64-S128-Fn32",
    object_format="macho",
    macho=MachO(
        cputype=0x0100000C,  # CPU_TYPE_ARM64
        cpusubtype=0,  # CPU_SUBTYPE_ARM64_ALL
        platform=1,  # PLATFORM_MACOS
        minos="11.0",
        # dyld applies the rules of the SDK that is named here; files keep those of every later one as well.
        sdk="11.0",
    ),
    cpu="generic",
    code_models=("small", "large"),
    max_page_size=16384,
    reach=1 << 32,
    symbol_prefix="_",
    image_suffix=".dylib",
    version_kind="os",
    oldest_version="11.0",
)
