"""32-bit Windows, for programs of MinGW-w64."""

from emitter.targets._base import Coff
from emitter.targets.x86_64_windows_gnu import TARGET as X86_64_WINDOWS_GNU

TARGET = X86_64_WINDOWS_GNU._replace(
    name="i686-windows-gnu",
    description="Windows, 32-bit x86, MinGW-w64",
    tier=2,
    llvm_triple="i686-w64-windows-gnu",
    data_layout="e-m:x-p:32:32-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:32-n8:16:32-a:0:32-S32",
    pointer_width=32,
    coff=Coff(
        machine=0x14C,  # IMAGE_FILE_MACHINE_I386
        magic=0x10B,  # PE32
        characteristics=0x2102,  # IMAGE_FILE_EXECUTABLE_IMAGE, _32BIT_MACHINE, _DLL
        dll_characteristics=0x140,  # DYNAMIC_BASE, NX_COMPAT
        image_base=0x10000000,
        operating_system_version=(6, 0),
    ),
    cpu="i686",
    max_image_size=1 << 30,
    symbol_prefix="_",
    gnu_triple="i686-w64-mingw32",
    emulators=(),
)
