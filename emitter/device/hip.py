"""AMD code objects (.hsaco): ELF files of machine EM_AMDGPU (224).

Source: User Guide for AMDGPU Backend of LLVM, Code Object: EI_OSABI, and the processors in `e_flags`. The table was
compared with what LLVM 22 writes for each processor.
"""

from __future__ import annotations

from emitter.device.cubin import check_tables
from emitter.device.image import HIP, Image, Program, broken
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from emitter.inspect.view import View

__all__ = ["MACHINES", "read"]

EM_AMDGPU = 224
_ELFOSABI_AMDGPU_HSA = 64
_ET_REL, _ET_DYN = 1, 3

MACHINES = {  # EF_AMDGPU_MACH: bits 0 to 7 of e_flags
    0x20: "gfx600", 0x21: "gfx601", 0x22: "gfx700", 0x23: "gfx701", 0x24: "gfx702", 0x25: "gfx703", 0x26: "gfx704",
    0x28: "gfx801", 0x29: "gfx802", 0x2A: "gfx803", 0x2B: "gfx810", 0x2C: "gfx900", 0x2D: "gfx902", 0x2E: "gfx904",
    0x2F: "gfx906", 0x30: "gfx908", 0x31: "gfx909", 0x32: "gfx90c", 0x33: "gfx1010", 0x34: "gfx1011", 0x35: "gfx1012",
    0x36: "gfx1030", 0x37: "gfx1031", 0x38: "gfx1032", 0x39: "gfx1033", 0x3A: "gfx602", 0x3B: "gfx705", 0x3C: "gfx805",
    0x3D: "gfx1035", 0x3E: "gfx1034", 0x3F: "gfx90a", 0x41: "gfx1100", 0x42: "gfx1013", 0x43: "gfx1150",
    0x44: "gfx1103", 0x45: "gfx1036", 0x46: "gfx1101", 0x47: "gfx1102", 0x48: "gfx1200", 0x49: "gfx1250",
    0x4A: "gfx1151", 0x4C: "gfx942", 0x4E: "gfx1201", 0x4F: "gfx950", 0x51: "gfx9-generic", 0x52: "gfx10-1-generic",
    0x53: "gfx10-3-generic", 0x54: "gfx11-generic", 0x55: "gfx1152", 0x58: "gfx1153", 0x59: "gfx12-generic",
    0x5A: "gfx1251", 0x5F: "gfx9-4-generic",
}  # fmt: skip


def read(view: View) -> Program:
    """Return what a code object is for; raise FormatError, with the offset, for one that HIP would not load."""
    _, e_flags = check_tables(view, EM_AMDGPU, types=(_ET_DYN,))
    ident = view.read(0, 16, "e_ident")
    if ident[7] != _ELFOSABI_AMDGPU_HSA:
        raise broken("EI_OSABI is wrong", view.where, 7, f"{_ELFOSABI_AMDGPU_HSA} (AMDGPU_HSA)", ident[7])
    machine = e_flags & 0xFF
    if not machine:
        raise broken("e_flags has no processor", view.where, 48, "EF_AMDGPU_MACH", f"e_flags {e_flags:#x}")
    name = MACHINES.get(machine, f"mach-{machine:#x}")
    # Generic ones run on a family; which that is, the runtime knows.
    requires = {} if name.endswith("generic") or machine not in MACHINES else {"gfx": f"== {name}"}
    return Program("hsaco", HIP, view.size, 4096, (Image(name, requires),))
