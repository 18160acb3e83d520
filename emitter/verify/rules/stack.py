"""Whether a file asks for a stack that can be executed."""

from __future__ import annotations

from emitter.records import TYPE_CHECKING
from emitter.verify.model import Found, rule
from emitter.verify.rules._elf import (
    EM_LOONGARCH,
    EM_PPC64,
    EM_RISCV,
    PF_X,
    PT_GNU_STACK,
    SHF_EXECINSTR,
    elf_of,
    find_section,
    hosted,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.verify.check import Check
    from emitter.verify.model import Severity

_WHY = "glibc 2.41 refuses to load it, older ones make the stack of the whole process executable, SELinux refuses both"

# The ABIs of these machines have stacks without execution, and their compilers write no note: PowerPC 64, MIPS,
# PA-RISC, SPARC, Alpha, IA-64.
_NO_NOTE = frozenset({EM_PPC64, 8, 15, 2, 18, 43, 50, 0x9026})

# Linkers give programs of these machines a stack without execution, whatever the objects say.
_NEVER_EXECUTABLE = frozenset({EM_RISCV, EM_LOONGARCH})

# On these, MIPS and PA-RISC, delay slots and trampolines are executed on the stack: every linker asks for it.
_RUNS_ON_STACK = frozenset({8, 15})


# A22, B5
@rule(
    "elf-gnu-stack",
    "A linked file has no PT_GNU_STACK",
    why=_WHY,
    fix="link it again with -Wl,-z,noexecstack, or find the tool that took the header out",
    kinds=("library", "executable"),
)
def gnu_stack(check: Check) -> Iterator[Found]:
    """Look for PT_GNU_STACK."""
    elf = elf_of(check)
    if not hosted(check) or any(True for _ in elf.segments(PT_GNU_STACK)):
        return
    severity = "warning" if elf.ehdr.e_machine in _NO_NOTE or check.target is None else None
    yield Found("PT_GNU_STACK", "there, without PF_X", "none: the stack is executable by default", severity)


# A23
@rule(
    "elf-gnu-stack-executable",
    "A file asks for an executable stack",
    why=_WHY,
    fix="add .note.GNU-stack to assembler files, or link with -Wl,-z,noexecstack if no code runs on the stack",
    kinds=("library", "executable"),
)
def gnu_stack_executable(check: Check) -> Iterator[Found]:
    """Look at the flags of PT_GNU_STACK."""
    elf = elf_of(check)
    if elf.ehdr.e_machine in _RUNS_ON_STACK:
        return
    for _, phdr in elf.segments(PT_GNU_STACK):
        if phdr.p_flags & PF_X and hosted(check):
            yield Found("PT_GNU_STACK", "RW", "RWE")


# A24, B6
@rule(
    "elf-object-gnu-stack",
    "An object has no section .note.GNU-stack, or asks for an executable stack in it",
    why="one such object gives whatever links it an executable stack; lld and mold say nothing",
    fix='add .section .note.GNU-stack,"",@progbits to the assembler file, or let emitter make the object',
    kinds=("object",),
)
def object_gnu_stack(check: Check) -> Iterator[Found]:
    """Look for .note.GNU-stack and its flags."""
    elf = elf_of(check)
    if not hosted(check):
        return
    found = find_section(check, ".note.GNU-stack")
    if found is None:
        if elf.ehdr.e_machine not in _NO_NOTE and elf.shdrs:
            # A relocatable kernel module is loaded by the kernel, which has no stack to ask for.
            module = find_section(check, ".gnu.linkonce.this_module") is not None
            # Without a target nobody knows whether it is for a system that has stacks to protect.
            mild = elf.ehdr.e_machine in _NEVER_EXECUTABLE or not check.judged
            severity: Severity | None = "info" if module else "warning" if mild else None
            yield Found(".note.GNU-stack", "there, without SHF_EXECINSTR", "none", severity)
    elif found[1].sh_flags & SHF_EXECINSTR and elf.ehdr.e_machine not in _RUNS_ON_STACK:
        yield Found(".note.GNU-stack", "without SHF_EXECINSTR", "with it: an executable stack is asked for")
