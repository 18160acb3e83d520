"""Whether a file is for the target: its format, machine, class, byte order, and what it says of the system."""

from __future__ import annotations

from emitter.records import TYPE_CHECKING
from emitter.verify.model import Found, rule
from emitter.verify.rules._elf import elf_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.verify.check import Check

_LINKED = {"elf": "elf", "macho": "macho", "coff": "coff", "pe": "coff"}
_WORDS = {"elf": "ELF", "macho": "Mach-O", "coff": "COFF or PE"}


@rule(
    "artefact-format",
    "The file has another format than the target's",
    why="the device's loader does not know the format at all",
    fix="build the file for the target, or name the target that it is for",
    formats=("*",),
    needs=("target",),
)
def artefact_format(check: Check) -> Iterator[Found]:
    """Compare the format with the target's."""
    found = _LINKED.get(check.format)
    if check.target is not None and found is not None and found != check.target.object_format:
        yield Found("", _WORDS[check.target.object_format], _WORDS[found])


@rule(
    "profile-format",
    "The platform does not load files of this format",
    why="the device's loader does not know the format at all",
    fix="build the file for the platform, or choose the profile that it is for",
    formats=("*",),
    needs=("formats",),
)
def profile_format(check: Check) -> Iterator[Found]:
    """Compare the format with those of the profile."""
    allowed = check.profile.get("formats")
    if check.format in _LINKED and check.format not in allowed:
        yield Found("", " or ".join(allowed), check.format)


def _elf_target(check: Check) -> bool:
    return check.target is not None and check.target.object_format == "elf"


# A1
@rule(
    "elf-machine",
    "The file is for another machine",
    why='the loader skips it and says "No such file", although it is there; a linker refuses it',
    fix="build it for the target: the host's compiler was used, or a file of another build was taken",
    needs=("target",),
)
def machine(check: Check) -> Iterator[Found]:
    """Compare e_machine with the target's."""
    actual = elf_of(check).ehdr.e_machine
    # A program for a GPU is carried by the host's package, and loaded by the driver.
    if check.target is None or not _elf_target(check) or actual in (_EM_CUDA, _EM_AMDGPU):
        return
    if actual != check.target.e_machine:
        words = check.report.identity.machine
        yield Found("e_machine", f"{check.target.e_machine} ({check.target.name})", f"{actual} ({words})")


_EM_CUDA, _EM_AMDGPU = 190, 224


# A2
@rule(
    "elf-class",
    "The file has another word size than the target",
    why="no loader or linker of the target takes it",
    fix="build it for the target: -m32, -mabi or a generated header chose the wrong class",
    needs=("target",),
)
def elf_class(check: Check) -> Iterator[Found]:
    """Compare EI_CLASS with the target's pointer width."""
    elf = elf_of(check)
    if check.target is None or not _elf_target(check) or elf.ehdr.e_machine != check.target.e_machine:
        return
    width = 64 if elf.is_64 else 32
    if width != check.target.pointer_width:
        yield Found("EI_CLASS", f"ELFCLASS{check.target.pointer_width}", f"ELFCLASS{width}")


# A3
@rule(
    "elf-byte-order",
    "The file has another byte order than the target",
    why="no loader of the target takes it, and its numbers would be read backwards",
    fix="build it for the target: -mbig-endian, or a generated header chose the wrong order",
    needs=("target",),
)
def byte_order(check: Check) -> Iterator[Found]:
    """Compare EI_DATA with the target's byte order."""
    elf = elf_of(check)
    if check.target is None or not _elf_target(check) or elf.ehdr.e_machine != check.target.e_machine:
        return
    if elf.byte_order != check.target.byte_order:
        yield Found("EI_DATA", check.target.byte_order, elf.byte_order)


_ELFOSABI_NONE, _ELFOSABI_GNU = 0, 3


# A4
@rule(
    "elf-osabi",
    "The file asks for the rules of another system",
    why="loaders refuse an EI_OSABI or an ABI version that they do not know",
    fix="build it for the target; IFUNC and SHF_GNU_RETAIN make GNU tools write ELFOSABI_GNU",
    needs=("target",),
)
def osabi(check: Check) -> Iterator[Found]:
    """Compare EI_OSABI with what loaders of the target take."""
    header = elf_of(check).ehdr
    if check.target is None or not _elf_target(check) or header.e_machine != check.target.e_machine:
        return
    allowed = {_ELFOSABI_NONE, check.target.ei_osabi}
    if header.ei_osabi == _ELFOSABI_GNU and check.target.version_kind != "glibc":
        yield Found("EI_OSABI", "0", "3 (GNU)", severity="warning")
    elif header.ei_osabi not in allowed | {_ELFOSABI_GNU}:
        yield Found("EI_OSABI", " or ".join(map(str, sorted(allowed))), header.ei_osabi)
