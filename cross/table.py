"""The compiler, the sysroot and the runner of each target: the only place that knows them.

Tests, benchmarks and `cross/setup` read this table. It speaks of Debian 12 on x86-64; the packages are its names.
"""

from __future__ import annotations

import platform
import shutil
import sys
from dataclasses import dataclass

__all__ = [
    "JUDGES",
    "SAME_AS",
    "TOOLCHAINS",
    "UNPACKAGED",
    "Toolchain",
    "find",
    "missing_tool",
    "packages",
    "skip_reason",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """How programs for a target are built and run."""

    name: str  # the target
    triple: str  # what the GNU tools' names begin with, and clang's --target
    c: str  # the GNU C compiler's command
    cxx: str = ""  # the GNU C++ compiler's command; empty where there is none
    clang: bool = True  # whether clang, given --target, finds the headers and the C library by itself
    sysroot: str = "/"  # what `qemu -L` gets
    qemu: str
    machine: str = ""  # `platform.machine()` of hosts that run the programs without an emulator
    page_sizes: tuple[int, ...] = ()  # bytes; sizes beside 4096 that the target's kernels have and `qemu -p` takes
    packages: tuple[str, ...]  # Debian's

    @property
    def native(self) -> bool:
        """Whether this host runs the programs itself."""
        return sys.platform == "linux" and platform.machine() == self.machine

    def tool(self, name: str) -> str:
        """Return the command of a GNU tool of this target: `readelf`, `strip`, `ld`."""
        return f"{self.triple}-{name}"

    def compilers(self) -> dict[str, list[str]]:
        """Return the C compilers' commands by name: `gcc`, and `clang` where it works."""
        return {"gcc": [self.c]} | ({"clang": ["clang", f"--target={self.triple}"]} if self.clang else {})

    def runner(self, page_size: int | None = None) -> list[str]:
        """Return what runs a program that follows it; with `page_size`, as on a kernel whose pages have that size."""
        if page_size is not None:
            return [self.qemu, "-p", str(page_size), "-L", self.sysroot]
        return [] if self.native else [self.qemu, "-L", self.sysroot]


def _debian(
    name: str, qemu: str, *, machine: str = "", triple: str | None = None, page_sizes: tuple[int, ...] = ()
) -> Toolchain:
    """Return the toolchain of Debian's cross packages for a triple, all of which follow one scheme."""
    triple = triple or name
    return Toolchain(
        name=name,
        triple=triple,
        c=f"{triple}-gcc",
        cxx=f"{triple}-g++",
        sysroot=f"/usr/{triple}",
        qemu=qemu,
        machine=machine,
        page_sizes=page_sizes,
        packages=(f"gcc-{triple}", f"g++-{triple}"),
    )


TOOLCHAINS: tuple[Toolchain, ...] = (
    Toolchain(
        name="x86_64-linux-gnu",
        triple="x86_64-linux-gnu",
        c="x86_64-linux-gnu-gcc",
        cxx="x86_64-linux-gnu-g++",
        qemu="qemu-x86_64",
        machine="x86_64",
        packages=("gcc", "g++", "libc6-dev"),
    ),
    Toolchain(
        name="x86_64-linux-musl",
        triple="x86_64-linux-gnu",  # the binary tools are glibc's
        c="musl-gcc",
        clang=False,
        qemu="qemu-x86_64",
        machine="x86_64",
        packages=("musl-tools",),
    ),
    _debian("aarch64-linux-gnu", "qemu-aarch64", machine="aarch64", page_sizes=(16384, 65536)),
    _debian("armv7-linux-gnueabihf", "qemu-arm", machine="armv7l", triple="arm-linux-gnueabihf"),
    _debian("riscv64-linux-gnu", "qemu-riscv64", machine="riscv64"),
    # No machine: an x86-64 kernel may be built without 32-bit programs, and the loader is not where they look for it.
    _debian("i686-linux-gnu", "qemu-i386"),
    _debian("s390x-linux-gnu", "qemu-s390x", machine="s390x"),
    _debian("powerpc64le-linux-gnu", "qemu-ppc64le", machine="ppc64le"),
)

# Targets whose programs are another target's.
SAME_AS = {"cuda-host": "x86_64-linux-gnu", "cuda-host-aarch64": "aarch64-linux-gnu"}

# Targets that Debian has no toolchain for.
UNPACKAGED = {
    "aarch64-linux-android": "the Android NDK is not in Debian",
    "aarch64-linux-musl": "Debian's musl-tools are for the host's own CPU",
    "loongarch64-linux-gnu": "Debian 12 has no C compiler for LoongArch",
}

# The tools that judge what was written, and that the benchmarks compare with: (command, Debian package).
JUDGES: tuple[tuple[str, str], ...] = (
    ("qemu-aarch64", "qemu-user"),
    ("clang", "clang"),
    ("ld.lld", "lld"),
    ("llvm-strip", "llvm"),
    ("mold", "mold"),
    ("ld", "binutils"),
    ("eu-elflint", "elfutils"),
    ("patchelf", "patchelf"),
    ("file", "file"),
    ("make", "make"),
    ("ninja", "ninja-build"),
    ("cmake", "cmake"),
    ("xxd", "xxd"),
)

PYTHON_PACKAGES = ("python3", "python3-venv")


def find(name: str) -> Toolchain | None:
    """Return the toolchain of the target with the canonical name `name`, or None."""
    name = SAME_AS.get(name, name)
    return next((toolchain for toolchain in TOOLCHAINS if toolchain.name == name), None)


def missing_tool(toolchain: Toolchain) -> str | None:
    """Return the first command that is not installed of those that build and run a C program, or None."""
    return next((tool for tool in (toolchain.c, *toolchain.runner()[:1]) if shutil.which(tool) is None), None)


def skip_reason(name: str) -> str | None:
    """Return why programs for a target cannot be built and run here, naming the missing tool; None if they can."""
    toolchain = find(name)
    if toolchain is None:
        return f"{name}: {UNPACKAGED.get(name, 'there is no such toolchain')}"
    tool = missing_tool(toolchain)
    return None if tool is None else f"{tool} is not installed"


def packages() -> list[str]:
    """Return every Debian package that tests and benchmarks need, sorted."""
    compilers = {package for toolchain in TOOLCHAINS for package in toolchain.packages}
    return sorted({*PYTHON_PACKAGES, *compilers, *(package for _, package in JUDGES)})


if __name__ == "__main__":
    print(*packages(), sep="\n")
