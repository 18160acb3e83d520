"""macOS on Intel; the oldest release to run on is part of the name, as in x86_64-apple-macos10.15."""

from emitter.targets._base import MachO
from emitter.targets.arm64_apple_macos import TARGET as ARM64_APPLE_MACOS

TARGET = ARM64_APPLE_MACOS._replace(
    name="x86_64-apple-macos",
    description="macOS, Intel",
    psabi="https://gitlab.com/x86-psABIs/x86-64-ABI",
    llvm_triple="x86_64-apple-macosx11.0.0",
    data_layout="e-m:o-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128",
    macho=MachO(
        cputype=0x01000007,  # CPU_TYPE_X86_64
        cpusubtype=3,  # CPU_SUBTYPE_X86_64_ALL
        platform=1,  # PLATFORM_MACOS
        minos="11.0",
        sdk="11.0",
    ),
    cpu="x86-64",
    code_models=("small", "medium", "large"),
    max_page_size=4096,
    reach=1 << 31,
    oldest_version="10.14",
)
