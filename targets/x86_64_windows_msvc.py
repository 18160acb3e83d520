"""64-bit Windows, for programs of Microsoft's tools and of clang-cl."""

from emitter.targets._base import Coff, Target

TARGET = Target(
    name="x86_64-windows-msvc",
    description="Windows, x86-64, MSVC",
    tier=1,
    psabi="https://learn.microsoft.com/windows/win32/debug/pe-format",
    llvm_triple="x86_64-pc-windows-msvc",
    data_layout="e-m:w-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128",
    object_format="coff",
    coff=Coff(
        machine=0x8664,  # IMAGE_FILE_MACHINE_AMD64
        magic=0x20B,  # PE32+
        # IMAGE_FILE_EXECUTABLE_IMAGE, _LARGE_ADDRESS_AWARE, _DLL. _RELOCS_STRIPPED would tie it to one address.
        characteristics=0x2022,
        dll_characteristics=0x160,  # HIGH_ENTROPY_VA, DYNAMIC_BASE, NX_COMPAT
        image_base=0x180000000,
        operating_system_version=(6, 0),
    ),
    cpu="x86-64",
    max_page_size=4096,
    max_image_size=(1 << 31) - 1,
    object_suffix=".obj",
    archive_suffix=".lib",
    image_suffix=".dll",
    implib_suffix=".dll.lib",
    library_prefix="",
    emulators=("wine64",),
)
