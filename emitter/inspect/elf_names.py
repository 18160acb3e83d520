"""The names of ELF's numbers.

Source: gABI, chapters 4 and 5, with its registry of e_machine; the psABI of each machine for `e_flags`; binutils'
`include/elf` for GNU's own.
"""

from __future__ import annotations

from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "FEATURES",
    "MACHINES",
    "OSABI",
    "PT",
    "SHF",
    "SHT",
    "STB",
    "STT",
    "STV",
    "abi_of",
    "flag_names",
    "machine_name",
    "number_name",
    "section_flags",
]

EM_386, EM_MIPS, EM_PPC, EM_PPC64, EM_ARM, EM_SPARCV9, EM_X86_64, EM_AARCH64, EM_RISCV, EM_LOONGARCH = (
    3, 8, 20, 21, 40, 43, 62, 183, 243, 258,
)  # fmt: skip

MACHINES: dict[int, str] = {
    0: "no machine", 2: "SPARC", 3: "Intel 80386", 4: "Motorola 68000", 6: "Intel 80486", 7: "Intel 80860", 8: "MIPS",
    15: "HP PA-RISC", 18: "SPARC v8+", 20: "PowerPC", 21: "64-bit PowerPC", 22: "IBM S/390", 23: "Cell SPU",
    36: "NEC V800", 40: "ARM", 41: "Alpha", 42: "SuperH", 43: "SPARC v9", 44: "TriCore", 45: "ARC", 46: "H8/300",
    50: "IA-64", 52: "ColdFire", 53: "68HC12", 62: "x86-64", 75: "VAX", 76: "CRIS", 83: "AVR", 87: "V850", 88: "M32R",
    89: "MN10300", 92: "OpenRISC", 93: "ARCompact", 94: "Xtensa", 95: "VideoCore", 99: "SNP1K", 105: "MSP430",
    106: "Blackfin", 113: "Nios II", 137: "VideoCore III", 140: "TI C6000", 164: "Hexagon", 167: "NDS32", 173: "RX",
    180: "Intel L1OM", 181: "Intel K1OM", 183: "AArch64", 187: "TILEPro", 188: "MicroBlaze (old)", 189: "MicroBlaze",
    190: "NVIDIA CUDA", 191: "TILE-Gx", 195: "ARCv2", 197: "RL78", 220: "Z80", 222: "AMD FT32", 224: "AMDGPU",
    243: "RISC-V", 244: "Lanai", 247: "BPF", 249: "NEC VE", 252: "C-SKY", 253: "ARCv3 64-bit", 258: "LoongArch",
    0x9026: "Alpha", 0xABC7: "Xtensa (old)",
}  # fmt: skip

OSABI: dict[int, str] = {
    0: "", 1: "HP-UX", 2: "NetBSD", 3: "Linux", 6: "Solaris", 7: "AIX", 8: "IRIX", 9: "FreeBSD", 10: "Tru64",
    12: "OpenBSD", 13: "OpenVMS", 17: "CloudABI", 51: "CUDA", 64: "AMD HSA", 65: "AMD PAL", 66: "AMD Mesa",
    97: "Arm EABI", 255: "standalone",
}  # fmt: skip

PT: dict[int, str] = {
    0: "PT_NULL", 1: "PT_LOAD", 2: "PT_DYNAMIC", 3: "PT_INTERP", 4: "PT_NOTE", 5: "PT_SHLIB", 6: "PT_PHDR", 7: "PT_TLS",
    0x6474E550: "PT_GNU_EH_FRAME", 0x6474E551: "PT_GNU_STACK", 0x6474E552: "PT_GNU_RELRO",
    0x6474E553: "PT_GNU_PROPERTY", 0x6474E554: "PT_GNU_SFRAME", 0x65A3DBE5: "PT_OPENBSD_MUTABLE",
    0x65A3DBE6: "PT_OPENBSD_RANDOMIZE", 0x65A3DBE7: "PT_OPENBSD_WXNEEDED",
}  # fmt: skip
_PT_OF_MACHINE: dict[tuple[int, int], str] = {
    (EM_ARM, 0x70000001): "PT_ARM_EXIDX", (EM_AARCH64, 0x70000002): "PT_AARCH64_MEMTAG_MTE",
    (EM_RISCV, 0x70000003): "PT_RISCV_ATTRIBUTES", (EM_MIPS, 0x70000000): "PT_MIPS_REGINFO",
    (EM_MIPS, 0x70000003): "PT_MIPS_ABIFLAGS",
}  # fmt: skip

SHT: dict[int, str] = {
    0: "NULL", 1: "PROGBITS", 2: "SYMTAB", 3: "STRTAB", 4: "RELA", 5: "HASH", 6: "DYNAMIC", 7: "NOTE", 8: "NOBITS",
    9: "REL", 10: "SHLIB", 11: "DYNSYM", 14: "INIT_ARRAY", 15: "FINI_ARRAY", 16: "PREINIT_ARRAY", 17: "GROUP",
    18: "SYMTAB_SHNDX", 19: "RELR",
    0x60000001: "ANDROID_REL", 0x60000002: "ANDROID_RELA", 0x6FFFFF00: "ANDROID_RELR", 0x6FFF4C00: "LLVM_ODRTAB",
    0x6FFF4C01: "LLVM_LINKER_OPTIONS", 0x6FFF4C03: "LLVM_ADDRSIG", 0x6FFF4C04: "LLVM_DEPENDENT_LIBRARIES",
    0x6FFF4C06: "LLVM_PART_EHDR", 0x6FFF4C0A: "LLVM_BB_ADDR_MAP", 0x6FFF4C0B: "LLVM_OFFLOADING", 0x6FFF4C0C: "LLVM_LTO",
    0x6FFFFFF5: "GNU_ATTRIBUTES", 0x6FFFFFF6: "GNU_HASH", 0x6FFFFFF7: "GNU_LIBLIST", 0x6FFFFFF8: "CHECKSUM",
    0x6FFFFFFD: "GNU_verdef", 0x6FFFFFFE: "GNU_verneed", 0x6FFFFFFF: "GNU_versym",
}  # fmt: skip
_SHT_OF_MACHINE: dict[tuple[int, int], str] = {
    (EM_ARM, 0x70000001): "ARM_EXIDX", (EM_ARM, 0x70000002): "ARM_PREEMPTMAP", (EM_ARM, 0x70000003): "ARM_ATTRIBUTES",
    (EM_X86_64, 0x70000001): "X86_64_UNWIND", (EM_AARCH64, 0x70000003): "AARCH64_ATTRIBUTES",
    (EM_RISCV, 0x70000003): "RISCV_ATTRIBUTES", (EM_MIPS, 0x70000006): "MIPS_REGINFO",
    (EM_MIPS, 0x7000000D): "MIPS_OPTIONS", (EM_MIPS, 0x7000001E): "MIPS_DWARF", (EM_MIPS, 0x7000002A): "MIPS_ABIFLAGS",
}  # fmt: skip

SHF: dict[int, str] = {
    0x1: "WRITE", 0x2: "ALLOC", 0x4: "EXECINSTR", 0x10: "MERGE", 0x20: "STRINGS", 0x40: "INFO_LINK", 0x80: "LINK_ORDER",
    0x100: "OS_NONCONFORMING", 0x200: "GROUP", 0x400: "TLS", 0x800: "COMPRESSED", 0x200000: "GNU_RETAIN",
}  # fmt: skip
_SHF_OF_MACHINE: dict[tuple[int, int], str] = {
    (EM_X86_64, 0x10000000): "X86_64_LARGE", (EM_ARM, 0x20000000): "ARM_PURECODE",
    (EM_AARCH64, 0x20000000): "AARCH64_PURECODE", (EM_MIPS, 0x10000000): "MIPS_GPREL",
}  # fmt: skip
_SHF_EXCLUDE = 0x80000000  # in a processor's range, and every processor's

STB: dict[int, str] = {0: "local", 1: "global", 2: "weak", 10: "unique"}
STT: dict[int, str] = {
    0: "", 1: "object", 2: "function", 3: "section", 4: "file", 5: "common", 6: "tls", 10: "indirect function",
}  # fmt: skip
STV: tuple[str, ...] = ("default", "internal", "hidden", "protected")

# (e_machine, pr_type): what the bits of the property promise.
FEATURES: dict[tuple[int, int], tuple[tuple[int, str], ...]] = {
    (EM_AARCH64, 0xC0000000): ((1, "bti"), (2, "pac"), (4, "gcs")),
    (EM_X86_64, 0xC0000002): ((1, "ibt"), (2, "shstk")),
    (EM_386, 0xC0000002): ((1, "ibt"), (2, "shstk")),
    (EM_RISCV, 0xC0000000): ((1, "zicfilp"), (2, "zicfiss")),
}

# e_machine: (mask, value, words), each where e_flags & mask == value.
_FLAGS: dict[int, tuple[tuple[int, int, str], ...]] = {
    EM_ARM: (
        *((0xFF000000, version << 24, f"EABI{version}") for version in range(1, 6)),
        (0x200, 0x200, "soft float"), (0x400, 0x400, "hard float"), (0x800000, 0x800000, "BE8"),
    ),
    EM_RISCV: (
        (0x1, 0x1, "RVC"), (0x6, 0x0, "soft float"), (0x6, 0x2, "single float"), (0x6, 0x4, "double float"),
        (0x6, 0x6, "quad float"), (0x8, 0x8, "RVE"), (0x10, 0x10, "TSO"),
    ),
    EM_LOONGARCH: (
        (0x7, 0x1, "soft float"), (0x7, 0x2, "single float"), (0x7, 0x3, "double float"), (0xC0, 0x40, "OBJABI v1"),
    ),
    EM_PPC64: ((0x3, 0x1, "ELFv1"), (0x3, 0x2, "ELFv2")),
    EM_MIPS: (
        (0x1, 0x1, "noreorder"), (0x2, 0x2, "pic"), (0x4, 0x4, "cpic"), (0x20, 0x20, "n32"), (0x200, 0x200, "fp64"),
        (0x400, 0x400, "nan2008"), (0xF000, 0x1000, "o32"), (0xF000, 0x2000, "o64"),
        *((0xF0000000, number << 28, name) for number, name in enumerate((
            "mips1", "mips2", "mips3", "mips4", "mips5", "mips32", "mips64", "mips32r2", "mips64r2", "mips32r6",
            "mips64r6",
        ))),
    ),
}  # fmt: skip


def machine_name(e_machine: int) -> str:
    """Return what `e_machine` stands for."""
    return MACHINES.get(e_machine, f"machine {e_machine}")


def number_name(names: Mapping[int, str], number: int, prefix: str = "") -> str:
    """Return the name of a number, or the number in hexadecimal."""
    return names.get(number, f"{prefix}{number:#x}")


def segment_type(p_type: int, e_machine: int) -> str:
    """Return the name of a segment's type."""
    return _PT_OF_MACHINE.get((e_machine, p_type)) or number_name(PT, p_type)


def section_type(sh_type: int, e_machine: int) -> str:
    """Return the name of a section's type, without SHT_."""
    return _SHT_OF_MACHINE.get((e_machine, sh_type)) or number_name(SHT, sh_type)


def section_flags(sh_flags: int, e_machine: int) -> tuple[str, ...]:
    """Return the names of a section's flags, without SHF_; what has none is given in hexadecimal."""
    names = []
    while sh_flags:
        bit = sh_flags & -sh_flags
        sh_flags ^= bit
        name = SHF.get(bit) or _SHF_OF_MACHINE.get((e_machine, bit)) or ("EXCLUDE" if bit == _SHF_EXCLUDE else None)
        names.append(name or f"{bit:#x}")
    return tuple(names)


def flag_names(e_flags: int, e_machine: int) -> tuple[str, ...]:
    """Return what is known of `e_flags`, in words."""
    return tuple(words for mask, value, words in _FLAGS.get(e_machine, ()) if e_flags & mask == value)


def abi_of(e_machine: int, e_flags: int, is_64: bool) -> str:
    """Return the name of the ABI that `e_flags` states, or an empty text."""
    names = flag_names(e_flags, e_machine)
    if e_machine in (EM_RISCV, EM_LOONGARCH):
        base = "lp64" if is_64 else "ilp32"
        letters = {"soft float": "", "single float": "f", "double float": "d", "quad float": "q"}
        if e_machine == EM_LOONGARCH:
            letters["soft float"] = "s"
        letter = next((letters[name] for name in names if name in letters), None)
        return "" if letter is None else base + letter + ("e" if "RVE" in names else "")
    if e_machine == EM_X86_64 and not is_64:
        return "x32"
    if e_machine == EM_AARCH64 and not is_64:
        return "ilp32"
    if e_machine == EM_MIPS:
        return "n64" if is_64 else next((name for name in names if name in ("n32", "o32", "o64")), "")
    known = ("hard float", "soft float") if e_machine == EM_ARM else ("ELFv1", "ELFv2")
    return next((name for name in names if name in known), "")
