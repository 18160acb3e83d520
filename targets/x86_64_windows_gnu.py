"""64-bit Windows, for programs of MinGW-w64: GCC, and clang with its libraries."""

from emitter.targets.x86_64_windows_msvc import TARGET as X86_64_WINDOWS_MSVC

TARGET = X86_64_WINDOWS_MSVC._replace(
    name="x86_64-windows-gnu",
    description="Windows, x86-64, MinGW-w64",
    llvm_triple="x86_64-w64-windows-gnu",
    object_suffix=".o",
    archive_suffix=".a",
    implib_suffix=".dll.a",
    library_prefix="lib",
    gnu_triple="x86_64-w64-mingw32",
    other_suffixes=((".obj", "object"), (".lib", "archive")),
)
