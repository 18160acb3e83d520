"""Numbers of PE and COFF and their names.

Source: Microsoft, "PE Format" (learn.microsoft.com/windows/win32/debug/pe-format), and <winnt.h>.
"""

from __future__ import annotations

__all__ = ["MACHINES", "machine_of", "relocation_name", "system_name"]

# Machine: (name, bits of a pointer). All are little-endian.
MACHINES: dict[int, tuple[str, int]] = {
    0x14C: ("i386", 32), 0x8664: ("x86-64", 64), 0x1C0: ("ARM", 32), 0x1C2: ("Thumb", 32), 0x1C4: ("ARM Thumb-2", 32),
    0xAA64: ("AArch64", 64), 0xA641: ("ARM64EC", 64), 0xA64E: ("ARM64X", 64), 0x200: ("IA-64", 64),
    0xEBC: ("EFI byte code", 64), 0x5032: ("RISC-V 32", 32), 0x5064: ("RISC-V 64", 64), 0x6232: ("LoongArch32", 32),
    0x6264: ("LoongArch64", 64), 0x166: ("MIPS", 32), 0x1F0: ("PowerPC", 32),
}  # fmt: skip

IMAGE_FILE_RELOCS_STRIPPED, IMAGE_FILE_EXECUTABLE_IMAGE, IMAGE_FILE_DLL = 0x1, 0x2, 0x2000
CHARACTERISTICS = {
    0x1: "RELOCS_STRIPPED", 0x2: "EXECUTABLE_IMAGE", 0x4: "LINE_NUMS_STRIPPED", 0x8: "LOCAL_SYMS_STRIPPED",
    0x10: "AGGRESSIVE_WS_TRIM", 0x20: "LARGE_ADDRESS_AWARE", 0x80: "BYTES_REVERSED_LO", 0x100: "32BIT_MACHINE",
    0x200: "DEBUG_STRIPPED", 0x400: "REMOVABLE_RUN_FROM_SWAP", 0x800: "NET_RUN_FROM_SWAP", 0x1000: "SYSTEM",
    0x2000: "DLL", 0x4000: "UP_SYSTEM_ONLY", 0x8000: "BYTES_REVERSED_HI",
}  # fmt: skip

HIGH_ENTROPY_VA, DYNAMIC_BASE, FORCE_INTEGRITY, NX_COMPAT, NO_SEH, APPCONTAINER, GUARD_CF = (
    0x20, 0x40, 0x80, 0x100, 0x400, 0x1000, 0x4000,
)  # fmt: skip

IMAGE_SCN_CNT_CODE, IMAGE_SCN_CNT_INITIALIZED_DATA, IMAGE_SCN_CNT_UNINITIALIZED_DATA = 0x20, 0x40, 0x80
IMAGE_SCN_LNK_INFO, IMAGE_SCN_LNK_REMOVE, IMAGE_SCN_LNK_COMDAT = 0x200, 0x800, 0x1000
IMAGE_SCN_LNK_NRELOC_OVFL = 0x01000000
IMAGE_SCN_MEM_EXECUTE, IMAGE_SCN_MEM_READ, IMAGE_SCN_MEM_WRITE = 0x20000000, 0x40000000, 0x80000000
IMAGE_SCN_ALIGN_MASK, IMAGE_SCN_ALIGN_SHIFT = 0x00F00000, 20
SECTION_TYPES = {
    IMAGE_SCN_CNT_CODE: "code", IMAGE_SCN_CNT_INITIALIZED_DATA: "initialized data",
    IMAGE_SCN_CNT_UNINITIALIZED_DATA: "uninitialized data", IMAGE_SCN_LNK_INFO: "information",
    IMAGE_SCN_LNK_REMOVE: "removed",
}  # fmt: skip
SECTION_FLAGS = {
    0x8: "NO_PAD", 0x200: "LNK_INFO", 0x800: "LNK_REMOVE", 0x1000: "LNK_COMDAT", 0x8000: "GPREL",
    IMAGE_SCN_LNK_NRELOC_OVFL: "LNK_NRELOC_OVFL", 0x02000000: "MEM_DISCARDABLE", 0x04000000: "MEM_NOT_CACHED",
    0x08000000: "MEM_NOT_PAGED", 0x10000000: "MEM_SHARED", IMAGE_SCN_MEM_EXECUTE: "MEM_EXECUTE",
    IMAGE_SCN_MEM_READ: "MEM_READ", IMAGE_SCN_MEM_WRITE: "MEM_WRITE",
}  # fmt: skip

IMAGE_SYM_UNDEFINED, IMAGE_SYM_ABSOLUTE, IMAGE_SYM_DEBUG = 0, -1, -2
MAX_SECTION_NUMBER = 0xFEFF  # IMAGE_SYM_SECTION_MAX, but in /bigobj
IMAGE_SYM_CLASS_EXTERNAL, IMAGE_SYM_CLASS_STATIC, IMAGE_SYM_CLASS_LABEL = 2, 3, 6
IMAGE_SYM_CLASS_FUNCTION, IMAGE_SYM_CLASS_FILE = 101, 103
IMAGE_SYM_CLASS_SECTION, IMAGE_SYM_CLASS_WEAK_EXTERNAL = 104, 105

DIRECTORIES = (
    "EXPORT", "IMPORT", "RESOURCE", "EXCEPTION", "SECURITY", "BASERELOC", "DEBUG", "ARCHITECTURE", "GLOBALPTR", "TLS",
    "LOAD_CONFIG", "BOUND_IMPORT", "IAT", "DELAY_IMPORT", "COM_DESCRIPTOR", "RESERVED",
)  # fmt: skip

_EFI = (10, 11, 12, 13)

IMAGE_DEBUG_TYPE_CODEVIEW, IMAGE_DEBUG_TYPE_REPRO = 2, 16

_RELOCATIONS = {
    0x8664: (
        "ABSOLUTE", "ADDR64", "ADDR32", "ADDR32NB", "REL32", "REL32_1", "REL32_2", "REL32_3", "REL32_4", "REL32_5",
        "SECTION", "SECREL", "SECREL7", "TOKEN", "SREL32", "PAIR", "SSPAN32",
    ),
    0xAA64: (
        "ABSOLUTE", "ADDR32", "ADDR32NB", "BRANCH26", "PAGEBASE_REL21", "REL21", "PAGEOFFSET_12A", "PAGEOFFSET_12L",
        "SECREL", "SECREL_LOW12A", "SECREL_HIGH12A", "SECREL_LOW12L", "TOKEN", "SECTION", "ADDR64", "BRANCH19",
        "BRANCH14", "REL32",
    ),
    0x1C4: (
        "ABSOLUTE", "ADDR32", "ADDR32NB", "BRANCH24", "BRANCH11", "", "", "", "", "", "REL32", "", "", "", "SECTION",
        "SECREL", "MOV32A", "MOV32T", "BRANCH20T", "", "BRANCH24T", "BLX23T",
    ),
    0x14C: (
        "ABSOLUTE", "DIR16", "REL16", "", "", "", "DIR32", "DIR32NB", "", "SEG12", "SECTION", "SECREL", "TOKEN",
        "SECREL7", "", "", "", "", "", "", "REL32",
    ),
}  # fmt: skip
_RELOCATIONS[0xA641] = _RELOCATIONS[0xAA64]
_PREFIXES = {0x8664: "AMD64", 0xAA64: "ARM64", 0xA641: "ARM64", 0x1C4: "ARM", 0x14C: "I386"}


def machine_of(code: int) -> tuple[str, int | None]:
    """Return the name of a machine and the bits of its pointers."""
    return MACHINES.get(code, (f"machine {code:#x}", None))


def relocation_name(machine: int, kind: int) -> str:
    """Return the name of a relocation's type: `IMAGE_REL_AMD64_REL32`; its number where it has none."""
    table = _RELOCATIONS.get(machine, ())
    name = table[kind] if kind < len(table) else ""
    return f"IMAGE_REL_{_PREFIXES[machine]}_{name}" if name else f"{kind:#x}"


def system_name(subsystem: int) -> str:
    """Return what an image of a subsystem runs on."""
    return "EFI" if subsystem in _EFI else "Windows"
