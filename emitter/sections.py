"""Names of the sections that objects of each format have for a pack and its size, and what a user may call them."""

from __future__ import annotations

from emitter.errors import LayoutError, shown
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from emitter.targets._base import ObjectFormat, Target

__all__ = ["FATBIN_SECTION", "pack_section", "size_section"]

# Where cuobjdump, nvdisasm and the debuggers of CUDA look for fatbins: nothing but these and zeros may be in it.
FATBIN_SECTION = ".nv_fatbin"

# In Mach-O and COFF a section of its own name survives the link, and the pack is found by it in the program; in ELF a
# note finds it, and linkers join `.rodata.*`.
_PACK_SECTIONS: Mapping[ObjectFormat, str] = {
    "elf": ".rodata.{name}",
    "macho": "__TEXT,__emitter",
    "coff": ".emitter",
}
_SIZE_SECTIONS: Mapping[ObjectFormat, str] = {
    "elf": ".rodata.{name}_size",
    "macho": "__TEXT,__const",
    "coff": ".rdata",
}

_SECTION_STARTS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._")
_SECTION_CHARACTERS = _SECTION_STARTS.union("0123456789$-")

# Sections that linkers merge, discard, run, or lay out as something else; also as a prefix before a dot.
_OTHER_MEANINGS = (
    ".bss", ".sbss", ".lbss", ".tbss", ".tdata", ".data", ".sdata", ".ldata", ".text", ".init", ".fini", ".init_array",
    ".fini_array", ".preinit_array", ".ctors", ".dtors", ".note", ".eh_frame", ".eh_frame_hdr", ".gcc_except_table",
    ".debug", ".comment", ".rel", ".rela", ".got", ".plt", ".dynamic", ".dynsym", ".dynstr", ".hash", ".interp", ".gnu",
    ".symtab", ".symtab_shndx", ".strtab", ".shstrtab", ".group",
)  # fmt: skip

# COFF: what is before a `$` counts, linkers join what has it.
_COFF_OTHER_MEANINGS = (
    ".text", ".data", ".bss", ".idata", ".didat", ".edata", ".rsrc", ".reloc", ".pdata", ".xdata", ".sxdata", ".tls",
    ".CRT", ".ctors", ".dtors", ".drectve", ".debug", ".eh_frame", ".00cfg", ".gfids", ".giats", ".gljmp", ".gehcont",
    ".cormeta", ".voltbl", ".llvm", ".msvcjmc", ".fptable", ".buildid", ".stab", ".stabstr",
)  # fmt: skip

# Mach-O: a name of 16 bytes at most, in a segment that is mapped read-only.
_MACHO_NAME_SIZE = 16
_MACHO_SEGMENTS = ("__TEXT", "__DATA_CONST")
_MACHO_OTHER_MEANINGS = ("__text", "__stubs", "__stub_helper", "__cstring", "__unwind_info", "__eh_frame", "__got")


def pack_section(target: Target, name: str, *, section: str | None, large: bool) -> str:
    """Return the name of the section that holds the pack `name`: `section` if it is given.

    Raises LayoutError for a section name that linkers take for something else than read-only data.
    """
    if section is None:
        if large and target.large_data:
            return f"{target.large_data.section}.{name}"
        return _PACK_SECTIONS[target.object_format].format(name=name)
    _CHECKS[target.object_format](section)
    return section


def size_section(target: Target, name: str) -> str:
    """Return the name of the section that holds the size of the pack `name`: near code, apart from the payload."""
    return _SIZE_SECTIONS[target.object_format].format(name=name)


def _check_elf(section: str) -> None:
    _check_name(section)
    _check_meanings(section, _OTHER_MEANINGS, ".", "such as .rodata.weights")


def _check_coff(section: str) -> None:
    _check_name(section)
    _check_meanings(section, _COFF_OTHER_MEANINGS, "$", "such as .weights")


def _check_name(section: str) -> None:
    if section[:1] not in _SECTION_STARTS or not _SECTION_CHARACTERS.issuperset(section):
        raise LayoutError(
            "not a name for a section",
            where=f"--section {shown(section)}",
            expected="a letter, . or _, then ASCII letters, digits and . _ $ -",
            hint="a linker script must be able to name it",
        )


def _check_meanings(section: str, meanings: tuple[str, ...], separator: str, example: str) -> None:
    for meaning in meanings:
        if section == meaning or section.startswith(f"{meaning}{separator}"):
            raise LayoutError(
                f"linkers give {meaning} a meaning of its own",
                where=f"--section {shown(section)}",
                hint=f"choose another name, {example}",
            )


def _check_macho(section: str) -> None:
    segname, _, sectname = section.partition(",")
    names = (segname, sectname)
    if not all(0 < len(name) <= _MACHO_NAME_SIZE and _SECTION_CHARACTERS.issuperset(name) for name in names):
        raise LayoutError(
            "not a name for a section",
            where=f"--section {shown(section)}",
            expected=f"SEGMENT,SECTION of ASCII letters, digits and . _ $ -, each at most {_MACHO_NAME_SIZE} bytes",
            hint="such as __TEXT,__weights",
        )
    # In the section of the size the pack would stand behind it, where no loader looks.
    taken = sectname in _MACHO_OTHER_MEANINGS or section == _SIZE_SECTIONS["macho"]
    if taken or segname not in _MACHO_SEGMENTS:
        raise LayoutError(
            "linkers give the section a meaning of its own, or map it writable",
            where=f"--section {shown(section)}",
            expected=f"a name of your own in {' or '.join(_MACHO_SEGMENTS)}",
            hint="such as __TEXT,__weights",
        )


_CHECKS: Mapping[ObjectFormat, Callable[[str], None]] = {
    "elf": _check_elf,
    "macho": _check_macho,
    "coff": _check_coff,
}
