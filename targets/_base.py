"""What a target is: one literal of facts, no behaviour.

Each file beside this one holds one `TARGET`; the name of the file is the name of the target with `-` written as `_`.
A target that differs from another in few fields is a `_replace` of its literal.
"""

from __future__ import annotations

from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Literal, TypeAlias

__all__ = ["Attributes", "CodeModel", "Coff", "LargeData", "MachO", "ObjectFormat", "Property", "Target"]

CodeModel: TypeAlias = 'Literal["small", "medium", "large"]'
ObjectFormat: TypeAlias = 'Literal["elf", "macho", "coff"]'


class Attributes(NamedTuple):
    """The section of build attributes that objects and images of a CPU carry: the ABI and the lowest ISA of the family.

    `p_type` is the program header that images have for it (PT_RISCV_ATTRIBUTES), None where the psABI defines none.
    """

    section: str
    sh_type: int
    contents: bytes
    p_type: int | None


class Property(NamedTuple):
    """A GNU property of 4 bytes in `.note.gnu.property`: features that this data does not stand in the way of."""

    pr_type: int
    value: int


class LargeData(NamedTuple):
    """Where data goes that is out of reach for the small code model: section name and its extra `sh_flags`."""

    section: str
    sh_flags: int


class MachO(NamedTuple):
    """What Mach-O files of a platform say of themselves: <mach-o/loader.h>, <mach/machine.h>.

    `platform`, `minos` and `sdk` go into LC_BUILD_VERSION; the versions are `major.minor[.patch]`. A version in the
    name of a target takes the place of `minos`, and of `sdk` if that is older.
    """

    cputype: int
    cpusubtype: int
    platform: int
    minos: str
    sdk: str


class Coff(NamedTuple):
    """What COFF objects and PE images of a platform say of themselves: Microsoft's PE Format, by its field names.

    `magic` is 0x20B (PE32+) or 0x10B (PE32). `operating_system_version` is also the subsystem's, as (major, minor).
    """

    machine: int
    magic: int
    characteristics: int
    dll_characteristics: int
    image_base: int
    operating_system_version: tuple[int, int]


class Target(NamedTuple):
    """A platform that artefacts are made for. Sizes in bytes, widths in bits; ELF numbers by their specification names.

    `max_page_size` is the largest page of the systems that load its files; segments of ELF are aligned to it.

    The fields of ELF (`e_machine` to `hash_word_size`) mean something where `object_format` is "elf"; `macho` and
    `coff` are there where it is that.

    `reach` is the distance that code of the default code model spans between itself and data: an object whose payload
    exceeds it cannot be linked in the ordinary way. `max_image_size` is what fits the address space of a process with
    32-bit pointers. `relocation_relative` are the relocation types that write "symbol minus place" into a field of
    pointer width at the place: one type, or an (add, subtract) pair. `relocation_section` is where the psABI has the
    addends of relocations in objects: in SHT_RELA, or in the fields themselves with SHT_REL.
    """

    name: str
    description: str
    tier: Literal[1, 2, 3]
    psabi: str
    llvm_triple: str
    data_layout: str
    max_page_size: int
    cpu: str  # passed to LLVM, as the features and models below
    object_format: ObjectFormat = "elf"
    e_machine: int = 0
    relocation_relative: tuple[int, ...] = ()
    relocation_section: Literal["rela", "rel"] = "rela"
    byte_order: Literal["little", "big"] = "little"
    pointer_width: Literal[32, 64] = 64
    e_flags_object: int = 0
    e_flags_image: int = 0
    ei_osabi: int = 0
    # These are passed to LLVM, always: its own defaults differ from what the platform links with.
    features: str = ""
    code_features: str = ""  # what code is compiled for, where the platform has more than data may claim
    abi_name: str = ""
    relocation_model: Literal["pic"] = "pic"
    code_model: CodeModel = "small"
    # What LLVM implements for this CPU. Others end the process (SIGABRT), so they are refused before LLVM is entered.
    code_models: tuple[CodeModel, ...] = ("small", "medium", "large")
    hash_word_size: Literal[4, 8] = 4
    properties: tuple[Property, ...] = ()
    attributes: Attributes | None = None
    large_data: LargeData | None = None
    macho: MachO | None = None
    coff: Coff | None = None
    reach: int = 1 << 31
    max_image_size: int | None = None
    symbol_prefix: str = ""
    object_suffix: str = ".o"
    archive_suffix: str = ".a"
    image_suffix: str | None = ".so"  # None where nothing loads a shared library
    implib_suffix: str | None = None  # of a library that stands for another file in a link
    library_prefix: str = "lib"
    # Suffixes that other toolchains of the platform use, by what they stand for.
    other_suffixes: tuple[tuple[str, Literal["object", "archive", "library"]], ...] = ()
    gnu_triple: str = ""  # what the names of the GNU tools for it begin with, "" where there are none
    lld_since: int = 14  # the first version of LLD that links for it
    # Names of the emulators that run programs of this target on another host; empty where none is known.
    emulators: tuple[str, ...] = ()
    # The versions that a name may carry: "glibc" (aarch64-linux-gnu.2.31), "musl" (musllinux_1_2_x86_64), "android-api"
    # (aarch64-linux-android24), "os" (arm64-apple-macos13.0), or None. `oldest_version` is the first that knows the
    # CPU, None where that is unknown.
    version_kind: Literal["glibc", "musl", "android-api", "os"] | None = None
    oldest_version: str | None = None
    device_code: bool = False  # carries programs for a GPU beside the constants
