"""Calling conventions and instruction sets: what e_flags, attributes and properties say, and whether they agree."""

from __future__ import annotations

from emitter.records import TYPE_CHECKING
from emitter.verify.model import Found, rule
from emitter.verify.rules._elf import (
    EM_386,
    EM_AARCH64,
    EM_ARM,
    EM_LOONGARCH,
    EM_PPC64,
    EM_RISCV,
    EM_X86_64,
    elf_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.inspect.elf_records import BuildAttribute
    from emitter.targets._base import Target
    from emitter.verify.check import Check

_RISCV_FLOAT = {0x0: "soft", 0x2: "single", 0x4: "double", 0x6: "quad"}
_RISCV_RVC, _RISCV_RVE, _RISCV_TSO = 0x1, 0x8, 0x10
_LOONGARCH_FLOAT = {1: "soft", 2: "single", 3: "double"}
_ARM_EABI, _ARM_SOFT, _ARM_HARD = 0xFF000000, 0x200, 0x400

# Build attributes of Arm (Addenda to the ABI, 3.3.5 and 3.3.6).
_CPU_ARCH = 6
_VFP_ARGS = {0: "base (soft) registers", 1: "VFP registers", 2: "a convention of its own", 3: "either"}
# What FP_arch contains: 2 is VFPv2, 3 and 4 VFPv3 with 32 and 16 registers, 5 and 6 those of VFPv4, 7 and 8 of Armv8.
_FP_CONTAINS = {
    0: {0}, 1: {0, 1}, 2: {0, 1, 2}, 3: {0, 1, 2, 3, 4}, 4: {0, 1, 2, 4}, 5: {0, 1, 2, 3, 4, 5, 6},
    6: {0, 1, 2, 4, 6}, 7: {0, 1, 2, 3, 4, 5, 6, 7, 8}, 8: {0, 1, 2, 4, 6, 8},
}  # fmt: skip

# The extensions that every system of a target has beside those that its data-only objects state, which are the lowest
# of the family: Linux distributions are built for rv64gc (RISC-V psABI; ratified names of the parts of A and C too).
_RV64GC = frozenset(
    "i m a f d c zicsr zifencei zmmul zaamo zalrsc zca zcd zicntr zihpm".split()  # noqa: SIM905 - it reads better
)


def target_fits(check: Check) -> bool:
    """Return whether the target is for the machine of the file: the rules here speak of one machine."""
    return check.target is not None and check.target.e_machine == elf_of(check).ehdr.e_machine


def attributes(check: Check) -> dict[str, BuildAttribute]:
    """Return the attributes of the whole file by name."""

    def find() -> dict[str, BuildAttribute]:
        return {one.name: one for one in elf_of(check).build_attributes if one.scope == "file" and one.name}

    return check.fact("attributes", find)


def number(check: Check, name: str) -> int:
    """Return an attribute that is a number; 0, the default of all, where there is none."""
    one = attributes(check).get(name)
    return one.value if one is not None and isinstance(one.value, int) else 0


# A5, B1
@rule(
    "elf-float-abi",
    "The calling convention in e_flags is not the target's",
    why="a linker refuses to mix it with the platform's libraries, or arguments are passed in the wrong registers",
    fix="build it with the target's ABI (-mabi=lp64d, -mfloat-abi=hard); generated objects need its features too",
    needs=("target",),
)
def float_abi(check: Check) -> Iterator[Found]:
    """Compare the float ABI in e_flags with the target's."""
    if check.target is None or not target_fits(check):
        return
    flags = elf_of(check).ehdr.e_flags
    wanted = check.target.e_flags_object if check.kind == "object" else check.target.e_flags_image
    machine = check.target.e_machine
    if machine == EM_RISCV:
        if flags & 0x6 != wanted & 0x6:
            yield Found("e_flags", f"float ABI {_RISCV_FLOAT[wanted & 6]}", f"float ABI {_RISCV_FLOAT[flags & 6]}")
        for bit, word in ((_RISCV_RVE, "RVE (16 registers)"), (_RISCV_TSO, "TSO memory model")):
            if (flags ^ wanted) & bit:
                yield Found("e_flags", f"{'' if wanted & bit else 'not '}{word}", f"{flags:#x}")
        # A C extension in code is a matter of what the processors have; objects of data never claim it.
        if flags & _RISCV_RVC and not check.target.e_flags_image & _RISCV_RVC and not _extension(check, "c"):
            yield Found("e_flags", "no compressed instructions", f"{flags:#x} (RVC)")
    elif machine == EM_ARM:
        if flags & _ARM_EABI != wanted & _ARM_EABI:
            yield Found("e_flags", f"EABI version {wanted >> 24}", f"EABI version {flags >> 24}")
        hard = _arm_hard(check.target)
        if flags & (_ARM_SOFT if hard else _ARM_HARD):
            yield Found("e_flags", "hard float" if hard else "soft float", f"{flags:#x}")
    elif machine == EM_LOONGARCH and flags & 7 != wanted & 7:
        names = _LOONGARCH_FLOAT
        yield Found("e_flags", f"float ABI {names.get(wanted & 7)}", f"float ABI {names.get(flags & 7, flags & 7)}")
    elif machine == EM_PPC64 and flags & 3 and flags & 3 != wanted & 3:
        yield Found("e_flags", f"ELFv{wanted & 3}", f"ELFv{flags & 3}")


# A7, B4
@rule(
    "elf-arm-float-arguments",
    "Code passes floating-point arguments in other registers than the target",
    why="calls between it and the platform's libraries exchange garbage; lld links the two without a word",
    fix="compile everything with the target's -mfloat-abi",
    needs=("target",),
)
def arm_float_arguments(check: Check) -> Iterator[Found]:
    """Compare Tag_ABI_VFP_args with the target's, where the code uses floating point at all."""
    if check.target is None or check.target.e_machine != EM_ARM or not target_fits(check):
        return
    hard = _arm_hard(check.target)
    actual = number(check, "Tag_ABI_VFP_args")
    # 0 of Tag_ABI_FP_number_model: no floating point, so that there are no arguments to pass.
    uses_float = number(check, "Tag_ABI_FP_number_model") or (actual == 1 and not hard)
    if uses_float and actual not in {int(hard), 3}:
        yield Found("Tag_ABI_VFP_args", _VFP_ARGS[int(hard)], _VFP_ARGS.get(actual, actual))


def extensions(check: Check) -> set[str]:
    """Return the extensions in Tag_RISCV_arch, lower case; empty where there is none."""
    one = attributes(check).get("Tag_RISCV_arch")
    return set() if one is None or not isinstance(one.value, str) else parse_isa(one.value)


def parse_isa(text: str) -> set[str]:
    """Return the extensions of an ISA string such as `rv64i2p1_m2p0_zicsr2p0` (RISC-V ISA Manual, naming chapter)."""
    import re

    found: set[str] = set()
    match = re.match(r"rv\d+", text.lower())
    rest = text.lower()[match.end() :] if match else text.lower()
    for part in rest.split("_"):
        if part[:1] in {"s", "x", "z"}:
            found.add(re.sub(r"\d+p\d+$", "", part))  # zicsr2p0, zve32f1p0
            continue
        for name in re.findall(r"([a-z])(?:\d+(?:p\d+)?)?", part):
            found |= set("imafd") | {"zicsr", "zifencei"} if name == "g" else {name}
    return found


def _extension(check: Check, name: str) -> bool:
    return name in (check.profile.get("isa-extensions") or ())


# A6, B2
@rule(
    "elf-flags-attributes",
    "e_flags and the build attributes contradict each other",
    why="linkers believe e_flags, the code follows the attributes: it links silently, and passes floats wrongly",
    fix="compile with an ABI and features that fit (lp64d needs +f,+d): the ABI name alone changes only the flags",
)
def flags_attributes(check: Check) -> Iterator[Found]:
    """Compare the float ABI in e_flags with the floating point that the attributes say the code has."""
    header = elf_of(check).ehdr
    if header.e_machine == EM_RISCV:
        have = extensions(check)
        if not have:
            return
        needed = {0x2: "f", 0x4: "d", 0x6: "q"}.get(header.e_flags & 0x6)
        if needed and needed not in have and not have & {"zfinx", "zdinx"}:
            yield Found(
                "e_flags",
                f"{needed.upper()} in Tag_RISCV_arch for float ABI {_RISCV_FLOAT[header.e_flags & 6]}",
                attributes(check)["Tag_RISCV_arch"].value,
            )
        if header.e_flags & _RISCV_RVE and "e" not in have:
            yield Found("e_flags", "E in Tag_RISCV_arch for RVE", attributes(check)["Tag_RISCV_arch"].value)
    elif header.e_machine == EM_ARM and "Tag_ABI_FP_number_model" in attributes(check):
        arguments = number(check, "Tag_ABI_VFP_args")
        if header.e_flags & _ARM_HARD and arguments == 0:
            yield Found("e_flags", "Tag_ABI_VFP_args: VFP registers, for hard float", _VFP_ARGS[0])
        if header.e_flags & _ARM_SOFT and arguments == 1:
            yield Found("e_flags", "Tag_ABI_VFP_args: base registers, for soft float", _VFP_ARGS[1])


# A8
@rule(
    "elf-isa-baseline",
    "The code was compiled for a processor that has more than the target's",
    severity="warning",
    why="the first instruction that the processor does not have ends the process (SIGILL, a fault on bare metal)",
    fix="compile for the target's baseline (-march); if the processors have more, a profile can say so: "
    "isa-extensions (RISC-V), or this rule as info in [rules] (Arm)",
    needs=("target",),
)
def isa_baseline(check: Check) -> Iterator[Found]:
    """Compare the build attributes with the target's baseline."""
    if check.target is None or not target_fits(check):
        return
    if check.target.e_machine == EM_RISCV:
        # What the target states for data is the lowest of the family; a system has more, which its profile can say.
        own = check.target.attributes
        stated = own.contents.partition(b"\x05rv")[2].partition(b"\0")[0].decode("ascii", "replace") if own else ""
        allowed = parse_isa(f"rv{stated}") | set(check.profile.get("isa-extensions") or ())
        if "linux" in check.target.llvm_triple:
            allowed |= _RV64GC
        more = sorted(extensions(check) - allowed)
        if more:
            yield Found("Tag_RISCV_arch", f"nothing but {' '.join(sorted(allowed))}", f"{' '.join(more)} as well")
    elif check.target.e_machine == EM_ARM:
        yield from _arm_baseline(check)


def _arm_baseline(check: Check) -> Iterator[Found]:
    own = _arm_numbers(check.target.attributes.contents) if check.target and check.target.attributes else {}
    if not own:
        return
    arch, limit = number(check, "Tag_CPU_arch"), own.get(_CPU_ARCH, 0)
    if arch > limit:
        yield Found("Tag_CPU_arch", f"at most {limit}", arch)
    fp, have = number(check, "Tag_FP_arch"), own.get(10, 0)
    if fp not in _FP_CONTAINS.get(have, {have}):
        yield Found("Tag_FP_arch", f"what {have} contains", fp)
    if number(check, "Tag_Advanced_SIMD_arch") > own.get(12, 0):
        yield Found("Tag_Advanced_SIMD_arch", own.get(12, 0), number(check, "Tag_Advanced_SIMD_arch"))


def _arm_hard(target: Target) -> bool:
    """Return whether a target passes floating-point arguments in registers of their own: Tag_ABI_VFP_args."""
    return bool(target.attributes and _arm_numbers(target.attributes.contents).get(28) == 1)


def _arm_numbers(contents: bytes) -> dict[int, int]:
    """Return the tags of a target's own `.ARM.attributes`, all of whose numbers are below 128."""
    start = contents.find(b"aeabi\0")
    body = contents[start + 6 + 5 :] if start >= 0 else b""
    return {body[at]: body[at + 1] for at in range(0, len(body) - 1, 2)}


_X86_ISA_1_NEEDED, _X86_ISA_1_USED = 0xC0008002, 0xC0010002


# A9
@rule(
    "elf-x86-isa-level",
    "The file needs a higher x86-64 level than the platform's processors have",
    why="glibc refuses it on older processors; where nothing asks, the process ends with SIGILL",
    fix="compile with -march=x86-64 or the level of the platform; say x86-isa-level in a profile",
    needs=("target",),
)
def x86_isa_level(check: Check) -> Iterator[Found]:
    """Compare GNU_PROPERTY_X86_ISA_1_NEEDED with the profile's level, 1 where it names none."""
    if not target_fits(check) or elf_of(check).ehdr.e_machine not in (EM_X86_64, EM_386):
        return
    limit = check.profile.get("x86-isa-level") or 1
    for one in elf_of(check).properties:
        if one.pr_type == _X86_ISA_1_NEEDED and isinstance(one.value, int) and one.value >> limit:
            yield Found("GNU_PROPERTY_X86_ISA_1_NEEDED", f"at most level {limit}", f"level {one.value.bit_length()}")


# A10
@rule(
    "elf-attributes",
    "The build attributes cannot be understood",
    why="a linker merges them wrongly or gives up; an ABI that nobody can read cannot be checked",
    fix="assemble the file again with a current toolchain",
)
def attributes_known(check: Check) -> Iterator[Found]:
    """Read every attribute; report those which must be understood, and are not known."""
    elf = elf_of(check)
    for one in elf.build_attributes:
        # Addenda to the Arm ABI, 3.2: tags below 64 (modulo 128) must be understood. 1 to 3 are scopes.
        if one.vendor == "aeabi" and elf.ehdr.e_machine == EM_ARM and not one.name and one.tag % 128 < 64:
            yield Found(f"tag {one.tag}", "a tag of the specification", one.value)
    isa = attributes(check).get("Tag_RISCV_arch")
    if isa is not None and not (
        isinstance(isa.value, str) and isa.value.lower().startswith("rv") and extensions(check)
    ):
        yield Found("Tag_RISCV_arch", "an ISA string such as rv64i2p1_m2p0", isa.value)


_PROPERTY_MACHINES = {0xC0000000: (EM_AARCH64,), 0xC0000001: (EM_AARCH64,)}
_X86_PROPERTIES = range(0xC0000002, 0xC0018000)


# of our own: property bits against the machine
@rule(
    "elf-property-machine",
    "A GNU property belongs to another machine",
    why="linkers warn and drop it, and with it whatever the other objects of the program had",
    fix="leave out the options of another machine (-fcf-protection on RISC-V, -mbranch-protection on x86)",
)
def property_machine(check: Check) -> Iterator[Found]:
    """Compare the processor-specific properties with the machine of the file."""
    machine = elf_of(check).ehdr.e_machine
    for one in elf_of(check).properties:
        if not 0xC0000000 <= one.pr_type <= 0xDFFFFFFF:
            continue
        machines = (EM_X86_64, EM_386) if one.pr_type in _X86_PROPERTIES else _PROPERTY_MACHINES.get(one.pr_type, ())
        if machine in (EM_X86_64, EM_386, EM_AARCH64) and machine not in machines:
            yield Found(f"property {one.pr_type:#x}", "one of the machine", one.value)
        elif machine not in (EM_X86_64, EM_386, EM_AARCH64):
            yield Found(f"property {one.pr_type:#x}", "none: this machine defines none", one.value)
