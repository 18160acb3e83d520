"""64-bit Arm Windows, for programs of Microsoft's tools and of clang-cl."""

from emitter.targets._base import Coff
from emitter.targets.x86_64_windows_msvc import TARGET as X86_64_WINDOWS_MSVC

TARGET = X86_64_WINDOWS_MSVC._replace(
    name="aarch64-windows-msvc",
    description="Windows, 64-bit Arm, MSVC",
    tier=2,
    llvm_triple="aarch64-pc-windows-msvc",
    data_layout="e-m:w-p270:32:32-p271:32:32-p272:64:64-p:64:64-i32:32-i64:64-i128:128-n32:64-S128-Fn32",
    coff=Coff(
        machine=0xAA64,  # IMAGE_FILE_MACHINE_ARM64
        magic=0x20B,  # PE32+
        characteristics=0x2022,  # IMAGE_FILE_EXECUTABLE_IMAGE, _LARGE_ADDRESS_AWARE, _DLL
        dll_characteristics=0x160,  # HIGH_ENTROPY_VA, DYNAMIC_BASE, NX_COMPAT
        image_base=0x180000000,
        operating_system_version=(6, 2),
    ),
    cpu="generic",
    code_models=("small", "large"),
    reach=1 << 32,
    emulators=(),
)
