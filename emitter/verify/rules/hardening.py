"""Protections of code: position independence, branch protection, and bytes that no processor runs."""

from __future__ import annotations

from emitter.records import TYPE_CHECKING
from emitter.verify.model import Found, rule
from emitter.verify.rules._elf import (
    EM_386,
    EM_AARCH64,
    EM_X86_64,
    STT_FUNC,
    elf_of,
    exported,
    has_code,
    hosted,
    section_names,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.verify.check import Check
    from emitter.verify.model import Severity

_LINKED = ("library", "executable")
_AARCH64_FEATURE_1, _X86_FEATURE_1 = 0xC0000000, 0xC0000002
_NAMES = {
    _AARCH64_FEATURE_1: {1: "BTI", 2: "PAC", 4: "GCS"},
    _X86_FEATURE_1: {1: "IBT", 2: "SHSTK"},
}

# What functions begin with that were compiled for branch protection.
_LANDING = {
    EM_AARCH64: (
        (b"\x5f\x24\x03\xd5", 1),
        (b"\x9f\x24\x03\xd5", 1),
        (b"\xdf\x24\x03\xd5", 1),
        (b"\x3f\x23\x03\xd5", 2),
    ),
    EM_X86_64: ((b"\xf3\x0f\x1e\xfa", 1),),
    EM_386: ((b"\xf3\x0f\x1e\xfb", 1),),
}
_SAMPLES = 200  # functions that are looked at


def feature_bits(check: Check) -> tuple[int, int]:
    """Return (the property's type, its bits) for the branch protection of the file's machine; (0, 0) for others."""
    machine = elf_of(check).ehdr.e_machine
    pr_type = {EM_AARCH64: _AARCH64_FEATURE_1, EM_X86_64: _X86_FEATURE_1, EM_386: _X86_FEATURE_1}.get(machine, 0)
    bits = [one.value for one in elf_of(check).properties if one.pr_type == pr_type and isinstance(one.value, int)]
    return pr_type, (bits[0] if pr_type and bits else 0)


def _words(pr_type: int, bits: int) -> str:
    return ", ".join(name for bit, name in _NAMES[pr_type].items() if bits & bit) or "none"


# A64, B51
@rule(
    "elf-branch-protection-lost",
    "Code was compiled for branch protection, and the file does not say so",
    severity="warning",
    why="one object without the property switched the protection off for the whole file, without a word",
    fix="link with -z force-bti or -z cet-report=error to find the object; data need the property too",
    kinds=_LINKED,
)
def branch_protection_lost(check: Check) -> Iterator[Found]:
    """Look at the first instruction of functions in files without the property."""
    elf = elf_of(check)
    landings = _LANDING.get(elf.ehdr.e_machine)
    pr_type, bits = feature_bits(check)
    if landings is None:
        return
    met = dict.fromkeys({bit for _, bit in landings}, 0)
    looked = 0
    for symbol in exported(check):
        if symbol.st_type != STT_FUNC or not symbol.st_value or looked == _SAMPLES:
            continue
        offset = elf.address_to_offset(symbol.st_value, 8)
        if offset is None:
            continue
        looked += 1
        start = elf.view.read(offset, 4, "a function")
        for code, bit in landings:
            met[bit] += start == code
    # Assembler files may hold a landing pad by habit: most functions of a compiled file do.
    lost = sum(bit for bit, count in met.items() if count * 2 > looked and not bits & bit)
    if looked and lost:
        yield Found(f"property {pr_type:#x}", _words(pr_type, bits | lost), _words(pr_type, bits))


# A64: of objects of data
@rule(
    "elf-data-properties",
    "Data do not state the branch protection that they do not stand in the way of",
    severity="warning",
    why="one such object switches BTI, PAC or the shadow stack off for the whole library that links it",
    fix="add .note.gnu.property to it (emitter's objects have it), or link with -z force-bti",
    kinds=("object", "library"),
    needs=("machine",),
)
def data_properties(check: Check) -> Iterator[Found]:
    """Compare the properties of files without code with those of the target."""
    if check.target is None or has_code(check) or not exported(check) or not hosted(check):
        return
    for wanted in check.target.properties:
        pr_type, bits = feature_bits(check)
        if wanted.pr_type == pr_type and wanted.value & ~bits:
            # A platform that nobody named may have no use for it.
            severity: Severity | None = None if check.judged else "info"
            yield Found(f"property {pr_type:#x}", _words(pr_type, wanted.value), _words(pr_type, bits), severity)


# A64: by profile
@rule(
    "elf-branch-protection",
    "The file does not state the branch protection that the platform asks for",
    why="the loader switches the protection off for it, or refuses it",
    fix="compile everything with -mbranch-protection=standard or -fcf-protection=full",
    kinds=_LINKED,
    needs=("properties", "machine"),
)
def branch_protection(check: Check) -> Iterator[Found]:
    """Compare the properties with those of the target, GCS apart, which few systems have."""
    if check.target is None:
        return
    for wanted in check.target.properties:
        pr_type, bits = feature_bits(check)
        asked = wanted.value & (3 if pr_type == _AARCH64_FEATURE_1 else wanted.value)
        if wanted.pr_type == pr_type and asked & ~bits:
            yield Found(f"property {pr_type:#x}", _words(pr_type, asked), _words(pr_type, bits))


# A57
@rule(
    "elf-position-independent",
    "A program is not position-independent",
    why="it is loaded at one known address, which makes attacks simpler",
    fix="compile and link with -fPIE -pie",
    kinds=("executable",),
    needs=("position-independent",),
)
def position_independent(check: Check) -> Iterator[Found]:
    """Look for ET_EXEC."""
    if elf_of(check).ehdr.e_type == 2 and hosted(check):
        yield Found("e_type", "ET_DYN", "ET_EXEC")


# A65
@rule(
    "elf-intermediate-code",
    "An object holds a compiler's intermediate code instead of instructions",
    severity="warning",
    why="only the very compiler that wrote it can link it; another version or another linker sees an empty object",
    fix="compile with -ffat-lto-objects or without -flto what is shipped as object or archive",
    kinds=("object",),
)
def intermediate_code(check: Check) -> Iterator[Found]:
    """Look for GCC's and LLVM's sections, in objects without instructions."""
    elf = elf_of(check)
    if has_code(check):
        return
    for number, _ in elf.sections():
        name = section_names(check)[number]
        if name.startswith((".gnu.lto_", ".llvm.lto", ".llvmbc")):
            yield Found(name, "instructions", "intermediate code alone")
            return


# A73
@rule(
    "elf-debug-information",
    "The file holds debug information",
    severity="warning",
    why="it takes most of the space on the device, and tells everybody the names and places of the source",
    fix="strip it (strip -g), and keep the symbols in a file of their own",
    kinds=_LINKED,
    needs=("stripped",),
)
def debug_information(check: Check) -> Iterator[Found]:
    """Look for sections of DWARF."""
    elf = elf_of(check)
    names = section_names(check)
    found = [name for name in names if name.startswith((".debug_", ".zdebug_", ".stab"))]
    if found:
        size = sum(shdr.sh_size for (_, shdr), name in zip(elf.sections(), names, strict=True) if name in found)
        yield Found(found[0], "no debug information", f"{len(found)} sections, {size} bytes")


# A72
@rule(
    "elf-build-id",
    "The file has no build id",
    why="nobody can tell which build is on a device, and debuggers do not find its symbols",
    fix="link with -Wl,--build-id=sha1",
    kinds=_LINKED,
    needs=("build-id",),
)
def build_id(check: Check) -> Iterator[Found]:
    """Look for NT_GNU_BUILD_ID with something in it."""
    elf = elf_of(check)
    for note in elf.notes():
        if note.n_type == 3 and note.owner == "GNU" and note.desc_size:
            if not any(elf.desc(note)):
                yield Found("NT_GNU_BUILD_ID", "a hash", "zeros")
            return
    yield Found("NT_GNU_BUILD_ID", "there", "none")
