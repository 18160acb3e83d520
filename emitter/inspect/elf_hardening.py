"""The protections that an ELF file has, or lacks."""

from __future__ import annotations

from emitter.inspect import elf_names as names
from emitter.inspect.elf import ET_DYN, ET_EXEC, ET_REL, PT_LOAD
from emitter.inspect.report import Fault, Hardening, collect_faults
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from emitter.inspect.elf import ElfFile

__all__ = ["read_hardening"]

_PT_GNU_STACK, _PT_GNU_RELRO = 0x6474E551, 0x6474E552
_PF_X, _PF_W = 1, 2
_SHF_WRITE, _SHF_EXECINSTR = 1, 4
_DT_TEXTREL, _DT_BIND_NOW, _DT_FLAGS, _DT_FLAGS_1 = 22, 24, 30, 0x6FFFFFFB
_DF_TEXTREL, _DF_BIND_NOW, _DF_1_NOW, _DF_1_PIE = 0x4, 0x8, 0x1, 0x08000000


def read_hardening(elf: ElfFile, faults: list[Fault]) -> list[Hardening]:
    """Return what is known of each protection; what cannot be read becomes a fault, and its line is left out."""
    found: list[Hardening] = []
    with collect_faults(faults, "hardening"):
        found.append(Hardening("nx_stack", _nx_stack(elf)))
        found.append(Hardening("writable_and_executable", _writable_and_executable(elf)))
    if elf.ehdr.e_type in (ET_EXEC, ET_DYN):
        with collect_faults(faults, "hardening"):
            flags, flags_1 = elf.dynamic_value(_DT_FLAGS) or 0, elf.dynamic_value(_DT_FLAGS_1) or 0
            now = bool(flags & _DF_BIND_NOW or flags_1 & _DF_1_NOW or elf.dynamic_values(_DT_BIND_NOW))
            relro = any(True for _ in elf.segments(_PT_GNU_RELRO))
            found.append(Hardening("relro", ("full" if now else "partial") if relro else False))
            found.append(Hardening("bind_now", now))
            executable = elf.ehdr.e_type == ET_EXEC or bool(flags_1 & _DF_1_PIE)
            found.append(Hardening("pie", elf.ehdr.e_type == ET_DYN if executable else None))
            textrel = bool(flags & _DF_TEXTREL or elf.dynamic_values(_DT_TEXTREL))
            found.append(Hardening("text_relocations", textrel))
    with collect_faults(faults, "properties"):
        values = {entry.pr_type: entry.value for entry in elf.properties}
        for (machine, pr_type), bits in names.FEATURES.items():
            if machine == elf.ehdr.e_machine:
                value = values.get(pr_type, 0)
                found += [Hardening(name, bool(isinstance(value, int) and value & bit)) for bit, name in bits]
    return found


def _nx_stack(elf: ElfFile) -> bool | str:
    """Return True, False, or "missing" where nothing is said: the system then takes the stack for executable."""
    if elf.ehdr.e_type == ET_REL:
        note = elf.section(".note.GNU-stack")
        return "missing" if note is None else not note[1].sh_flags & _SHF_EXECINSTR
    for _, phdr in elf.segments(_PT_GNU_STACK):
        return not phdr.p_flags & _PF_X
    return "missing"


def _writable_and_executable(elf: ElfFile) -> bool:
    if elf.ehdr.e_type == ET_REL:
        both = _SHF_WRITE | _SHF_EXECINSTR
        return any(shdr.sh_flags & both == both for shdr in elf.shdrs)
    return any(phdr.p_flags & _PF_W and phdr.p_flags & _PF_X for _, phdr in elf.segments(PT_LOAD))
