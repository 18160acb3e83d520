"""The compiler, the sysroot and the runner of each target: the only place that knows them.

Tests, benchmarks and `cross/setup` read this table. It speaks of Debian 12 on x86-64; the packages are its names.
"""

from __future__ import annotations

import atexit
import functools
import os
import platform
import shutil
import sys
import tempfile
from dataclasses import dataclass

__all__ = [
    "BOARDS",
    "JUDGES",
    "SAME_AS",
    "TOOLCHAINS",
    "UNPACKAGED",
    "Board",
    "Toolchain",
    "find",
    "find_board",
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
    gcc: str = ""  # GCC's folder, for a clang that would take the files of another GCC for the CPU
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
        clang = ["clang", f"--target={self.triple}"]
        if os.path.isdir(self.gcc):
            clang.append(f"--gcc-toolchain={_gcc_toolchain(self.gcc)}")
        return {"gcc": [self.c]} | ({"clang": clang} if self.clang else {})

    def runner(self, page_size: int | None = None) -> list[str]:
        """Return what runs a program that follows it; with `page_size`, as on a kernel whose pages have that size."""
        if page_size is not None:
            return [self.qemu, "-p", str(page_size), "-L", self.sysroot]
        return [] if self.native else [self.qemu, "-L", self.sysroot]


@functools.cache
def _gcc_toolchain(gcc: str) -> str:
    """Return a folder for clang's `--gcc-toolchain` that holds one GCC's files alone; it goes when Python ends.

    clang 14 takes the files of the highest version for the CPU, be it for no operating system.
    """
    folder = tempfile.mkdtemp(prefix="gcc-toolchain-")
    atexit.register(shutil.rmtree, folder)
    os.makedirs(os.path.join(folder, "lib", "gcc"))
    os.symlink(gcc, os.path.join(folder, "lib", "gcc", os.path.basename(gcc)))
    return folder


def _debian(
    name: str,
    qemu: str,
    *,
    machine: str = "",
    triple: str | None = None,
    page_sizes: tuple[int, ...] = (),
    gcc: str = "",
) -> Toolchain:
    """Return the toolchain of Debian's cross packages for a triple, all of which follow one scheme."""
    triple = triple or name
    return Toolchain(
        name=name,
        triple=triple,
        c=f"{triple}-gcc",
        cxx=f"{triple}-g++",
        gcc=gcc,
        sysroot=f"/usr/{triple}",
        qemu=qemu,
        machine=machine,
        page_sizes=page_sizes,
        packages=(f"gcc-{triple}", f"g++-{triple}"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A machine without an operating system that QEMU emulates, and how programs for it are built.

    Programs begin with picolibc's start-up code, are placed by its linker script, and print through the emulator
    (semihosting). Memory is (address, bytes): `flash` and `ram` are what that script is told of, `weights` is apart
    from them, and at `pack` there is room for a pack that no program was linked with.
    """

    name: str  # the target
    c: str  # the GNU C compiler's command
    flags: tuple[str, ...]  # of the CPU and its ABI
    variants: tuple[str, ...] = ()  # other CPUs whose programs the target's objects may join
    specs: str = "picolibc.specs"
    qemu: tuple[str, ...]  # the emulator's command and what it shall be
    flash: tuple[int, int]
    ram: tuple[int, int]
    weights: tuple[int, int]
    pack: int
    packages: tuple[str, ...]  # Debian's

    def tool(self, name: str) -> str:
        """Return the command of a GNU tool of this target: `readelf`, `nm`."""
        return f"{self.c.removesuffix('gcc')}{name}"

    def compiler(self) -> list[str]:
        """Return the command that compiles and links a program."""
        memory = {
            "__flash": self.flash[0], "__flash_size": self.flash[1], "__ram": self.ram[0], "__ram_size": self.ram[1],
        }  # fmt: skip
        symbols = [f"-Wl,--defsym={name}={value:#x}" for name, value in memory.items()]
        return [self.c, f"--specs={self.specs}", "--oslib=semihost", "--crt0=hosted", *self.flags, *symbols]

    def runner(self, pack: str | None = None) -> list[str]:
        """Return what runs a program that follows it; with `pack`, the board's memory holds that file."""
        printing = ["-chardev", "stdio,id=out", "-semihosting-config", "enable=on,target=native,chardev=out"]
        loader = ["-device", f"loader,file={pack},addr={self.pack:#x},force-raw=on"] if pack else []
        quiet = ["-nographic", "-monitor", "none", "-serial", "none"]
        return [*self.qemu, *quiet, *printing, *loader, "-kernel"]


_ARM_PACKAGES = ("gcc-arm-none-eabi", "picolibc-arm-none-eabi", "qemu-system-arm")
_RISCV_PACKAGES = ("gcc-riscv64-unknown-elf", "picolibc-riscv64-unknown-elf", "qemu-system-misc")


def _riscv(name: str, qemu: str, march: str, mabi: str, *, variants: tuple[str, ...]) -> Board:
    return Board(
        name=name,
        c="riscv64-unknown-elf-gcc",
        flags=(f"-march={march}", f"-mabi={mabi}", "-mcmodel=medany"),
        variants=variants,
        qemu=(qemu, "-M", "virt", "-bios", "none"),
        flash=(0x80000000, 0x200000),
        ram=(0x80200000, 0x200000),
        weights=(0x80400000, 0x200000),
        pack=0x80600000,
        packages=_RISCV_PACKAGES,
    )


BOARDS: tuple[Board, ...] = (
    Board(
        name="thumbv7em-none-eabihf",
        c="arm-none-eabi-gcc",
        flags=("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"),
        variants=(
            "-mcpu=cortex-m7 -mthumb -mfloat-abi=hard -mfpu=fpv5-d16",
            "-mcpu=cortex-m33 -mthumb -mfloat-abi=hard -mfpu=fpv5-sp-d16",
            "-mcpu=cortex-m55 -mthumb -mfloat-abi=hard -mfpu=auto",
        ),
        qemu=("qemu-system-arm", "-M", "mps2-an386"),
        flash=(0, 0x200000),
        ram=(0x20000000, 0x100000),
        weights=(0x200000, 0x200000),
        pack=0x21000000,
        packages=_ARM_PACKAGES,
    ),
    Board(
        name="thumbv6m-none-eabi",
        c="arm-none-eabi-gcc",
        flags=("-mcpu=cortex-m0", "-mthumb"),
        variants=(
            "-mcpu=cortex-m0plus -mthumb",
            "-mcpu=cortex-m3 -mthumb",
            "-mcpu=cortex-m23 -mthumb",
            "-mcpu=cortex-m4 -mthumb -mfloat-abi=soft",
            "-mcpu=cortex-m33+nodsp -mthumb -mfloat-abi=soft",
        ),
        qemu=("qemu-system-arm", "-M", "microbit"),
        flash=(0, 0x28000),
        ram=(0x20000000, 0x4000),
        weights=(0x28000, 0x10000),
        pack=0x38000,
        packages=_ARM_PACKAGES,
    ),
    Board(
        name="aarch64-none-elf",
        # Debian has no compiler of this name; without start files and C library, that of Linux is the same.
        c="aarch64-linux-gnu-gcc",
        flags=("-fno-pie", "-no-pie", "-static"),
        specs="/usr/lib/picolibc/aarch64-linux-gnu/picolibc.specs",
        qemu=("qemu-system-aarch64", "-M", "virt", "-cpu", "cortex-a53", "-nodefaults"),
        flash=(0x40400000, 0x200000),
        ram=(0x40600000, 0x200000),
        weights=(0x40800000, 0x200000),
        pack=0x40A00000,
        packages=("gcc-aarch64-linux-gnu", "picolibc-aarch64-linux-gnu", "qemu-system-arm"),
    ),
    _riscv(
        "riscv32imac-none-elf",
        "qemu-system-riscv32",
        "rv32imac",
        "ilp32",
        variants=("-march=rv32i -mabi=ilp32", "-march=rv32imafdc -mabi=ilp32"),
    ),
    _riscv(
        "riscv64gc-none-elf",
        "qemu-system-riscv64",
        "rv64imafdc",
        "lp64d",
        variants=("-march=rv64imafd -mabi=lp64d", "-march=rv64gc_zba_zbb -mabi=lp64d"),
    ),
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
    _debian("riscv64-linux-gnu", "qemu-riscv64", machine="riscv64", gcc="/usr/lib/gcc-cross/riscv64-linux-gnu"),
    # No machine: an x86-64 kernel may be built without 32-bit programs, and the loader is not where they look for it.
    _debian("i686-linux-gnu", "qemu-i386"),
    _debian("s390x-linux-gnu", "qemu-s390x", machine="s390x"),
    _debian("powerpc64le-linux-gnu", "qemu-ppc64le", machine="ppc64le"),
)

# Targets whose programs are another target's.
SAME_AS = {"cuda-host": "x86_64-linux-gnu", "cuda-host-aarch64": "aarch64-linux-gnu"}

_NDK = "the Android NDK is not in Debian"

# Targets that Debian has no toolchain for.
UNPACKAGED = {
    "aarch64-linux-android": _NDK,
    "x86_64-linux-android": _NDK,
    "armv7-linux-androideabi": _NDK,
    "riscv64-linux-android": _NDK,
    "aarch64-linux-musl": "Debian's musl-tools are for the host's own CPU",
    "loongarch64-linux-gnu": "Debian 12 has no C compiler for LoongArch",
}

# The tools that judge what was written, and that the benchmarks compare with: (command, Debian package).
JUDGES: tuple[tuple[str, str], ...] = (
    ("qemu-aarch64", "qemu-user"),
    ("clang", "clang"),
    ("ld.lld", "lld"),
    ("lld-link", "lld"),
    ("llvm-strip", "llvm"),
    ("ld64.lld-14", "lld"),  # Debian has these two under versioned names alone
    ("llvm-install-name-tool-14", "llvm"),
    ("x86_64-w64-mingw32-gcc", "gcc-mingw-w64-x86-64"),
    ("x86_64-w64-mingw32-g++", "g++-mingw-w64-x86-64"),
    ("i686-w64-mingw32-gcc", "gcc-mingw-w64-i686"),
    ("wine64", "wine64"),  # in /usr/lib/wine, not on the path
    ("openssl", "openssl"),
    ("osslsigncode", "osslsigncode"),
    ("mold", "mold"),
    ("ld", "binutils"),
    ("eu-elflint", "elfutils"),
    ("scanelf", "pax-utils"),
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


def find_board(name: str) -> Board | None:
    """Return the board of the bare-metal target with the canonical name `name`, or None."""
    return next((board for board in BOARDS if board.name == name), None)


def missing_tool(toolchain: Toolchain) -> str | None:
    """Return the first command that is not installed of those that build and run a C program, or None."""
    return next((tool for tool in (toolchain.c, *toolchain.runner()[:1]) if shutil.which(tool) is None), None)


def skip_reason(name: str) -> str | None:
    """Return why programs for a target cannot be built and run on a host, naming the missing tool; None if they can."""
    toolchain = find(name)
    if toolchain is None:
        return f"{name}: {UNPACKAGED.get(name, 'its programs are not run by a host')}"
    tool = missing_tool(toolchain)
    return None if tool is None else f"{tool} is not installed"


def packages() -> list[str]:
    """Return every Debian package that tests and benchmarks need, sorted."""
    compilers = {package for toolchain in TOOLCHAINS for package in toolchain.packages}
    compilers |= {package for board in BOARDS for package in board.packages}
    return sorted({*PYTHON_PACKAGES, *compilers, *(package for _, package in JUDGES)})


if __name__ == "__main__":
    print(*packages(), sep="\n")
