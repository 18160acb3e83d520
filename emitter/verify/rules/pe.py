"""PE images and COFF objects for Windows."""

from __future__ import annotations

from typing import cast

from emitter.errors import shown
from emitter.inspect import pe_names as names
from emitter.records import TYPE_CHECKING
from emitter.verify.model import Found, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.inspect.coff import CoffFile
    from emitter.inspect.pe import PeFile
    from emitter.verify.check import Check

_BOTH = ("pe", "coff")
_PE = ("pe",)
_OBJECT = ("object",)
_LINKED = ("library", "executable")
_ARM64, _AMD64 = 0xAA64, 0x8664

_PROTECTIONS = {
    names.NX_COMPAT: "NX_COMPAT",
    names.DYNAMIC_BASE: "DYNAMIC_BASE",
    names.HIGH_ENTROPY_VA: "HIGH_ENTROPY_VA",
}
_MAX_SECTIONS = 65279
_ALIGN_RESERVED = 15
_ADDR32, _ADDR32NB = 2, 3


def pe_of(check: Check) -> PeFile:
    """Return the reader of a check whose format is PE."""
    return cast("PeFile", check.reader)


def coff_of(check: Check) -> CoffFile | None:
    """Return the reader of a COFF object, or None for a short import object."""
    return cast("CoffFile", check.reader) if hasattr(check.reader, "tables") else None


# A84
@rule(
    "pe-machine",
    "The file is for another machine",
    why='Windows says "not a valid Win32 application" (error 193), a linker "machine type conflicts"',
    fix="build it for the target: the tools of another architecture were used",
    formats=_BOTH,
    needs=("target",),
)
def machine(check: Check) -> Iterator[Found]:
    """Compare Machine with the target's."""
    wanted = check.target.coff if check.target is not None else None
    actual = check.report.identity.machine_code
    # An object of data alone may be for any machine, 0.
    if wanted is None or actual in (None, wanted.machine) or (not actual and check.kind == "object"):
        return
    expected = names.machine_of(wanted.machine)[0]
    yield Found("Machine", f"{wanted.machine:#x} ({expected})", f"{actual:#x} ({check.report.identity.machine})")


# A84
@rule(
    "pe-protections",
    "An image does not take part in the protections of Windows",
    severity="warning",
    why="its code and data lie at known addresses, and data may be executed; Windows on Arm does not load it at all",
    fix="link with /DYNAMICBASE /NXCOMPAT /HIGHENTROPYVA (GNU: --dynamicbase --nxcompat --high-entropy-va)",
    formats=_PE,
    kinds=_LINKED,
)
def protections(check: Check) -> Iterator[Found]:
    """Look at DllCharacteristics."""
    pe = pe_of(check)
    for bit, word in _PROTECTIONS.items():
        if bit == names.HIGH_ENTROPY_VA and not pe.is_64:
            continue
        if not pe.optional.DllCharacteristics & bit:
            needed = pe.header.Machine == _ARM64 and bit != names.HIGH_ENTROPY_VA
            yield Found("DllCharacteristics", word, f"{pe.optional.DllCharacteristics:#x}", "error" if needed else None)


@rule(
    "pe-relocations-stripped",
    "A DLL can only be loaded at one address",
    why="when that is taken, LoadLibrary fails with error 487",
    fix="link it without /FIXED (GNU: without --disable-reloc-section)",
    formats=_PE,
    kinds=("library",),
)
def relocations_stripped(check: Check) -> Iterator[Found]:
    """Look at IMAGE_FILE_RELOCS_STRIPPED."""
    if pe_of(check).header.Characteristics & names.IMAGE_FILE_RELOCS_STRIPPED:
        yield Found("Characteristics", "without RELOCS_STRIPPED", f"{pe_of(check).header.Characteristics:#x}")


@rule(
    "pe-section-writable-code",
    "A section is writable and executable",
    why="an attacker can write code; hardened systems (ACG, Arm64EC) refuse to map it",
    fix="keep code and writable data apart, and link without /SECTION:.text,RWE",
    formats=_PE,
    kinds=_LINKED,
)
def writable_code(check: Check) -> Iterator[Found]:
    """Look at the characteristics of every section."""
    both = names.IMAGE_SCN_MEM_WRITE | names.IMAGE_SCN_MEM_EXECUTE
    for one in pe_of(check).sections:
        if one.Characteristics & both == both:
            yield Found(f"section {shown(one.name)[1:-1]}", "not both W and X", f"{one.Characteristics:#x}")


# A87, B22
@rule(
    "pe-layout",
    "Sections do not lie inside of the file and the image",
    why="Windows refuses the image (error 193), or maps other bytes than were meant",
    fix="copy the file again; keep images below 2 GiB: offsets and addresses have 32 bits",
    formats=_PE,
    kinds=_LINKED,
)
def layout(check: Check) -> Iterator[Found]:
    """Compare file offsets with the file, and addresses with SizeOfImage."""
    pe = pe_of(check)
    size, unit = pe.optional.SizeOfImage, pe.optional.SectionAlignment
    if unit and unit & (unit - 1):
        yield Found("SectionAlignment", "a power of two", unit)
        return
    end_before = pe.optional.SizeOfHeaders
    for one in pe.sections:
        subject = f"section {shown(one.name)[1:-1]}"
        if one.file_size and one.PointerToRawData + one.file_size > check.view.size:
            end = f"{one.PointerToRawData + one.file_size:#x}"
            yield Found(subject, f"an end in the file of at most {check.view.size:#x}", end)
        last = one.VirtualAddress + max(one.VirtualSize, 1)
        if last > size:
            yield Found(subject, f"an end of at most SizeOfImage, {size:#x}", f"{last:#x}")
        if (unit and one.VirtualAddress % unit) or one.VirtualAddress < end_before:
            expected = f"a multiple of {unit}, from {end_before:#x} on"
            yield Found(subject, expected, f"VirtualAddress {one.VirtualAddress:#x}")
        end_before = max(end_before, one.VirtualAddress + one.VirtualSize)


# A85
@rule(
    "pe-section-count",
    "An object has more sections than linkers take",
    why="link.exe stops with C1128 or LNK1248; others read the wrong section",
    fix="compile with /bigobj, or without -ffunction-sections",
    formats=("coff",),
    kinds=_OBJECT,
)
def section_count(check: Check) -> Iterator[Found]:
    """Compare NumberOfSections with the limit of the ordinary form."""
    coff = coff_of(check)
    if coff is not None and not coff.header.bigobj and coff.header.NumberOfSections > _MAX_SECTIONS:
        yield Found("NumberOfSections", f"at most {_MAX_SECTIONS}", coff.header.NumberOfSections)


# A85
@rule(
    "pe-section-name",
    "A section of an image has a name in a string table, which images do not have",
    severity="info",
    why="Windows and its tools show a slash and a number instead; what looks for the name does not find it",
    fix="give sections of images at most 8 characters; strip removes those of debug information",
    formats=_PE,
    kinds=_LINKED,
)
def section_name(check: Check) -> Iterator[Found]:
    """Look for names that begin with a slash."""
    for one in pe_of(check).sections:
        if one.Name.startswith(b"/"):
            yield Found(f"section {shown(one.name)[1:-1]}", "8 characters", one.Name.rstrip(b"\0").decode("latin-1"))


# A86, B20
@rule(
    "pe-section-alignment",
    "A section asks for an alignment that COFF does not have",
    why="LLVM's tools end with an assertion, others place it wrongly",
    fix="ask for at most 8192 bytes",
    formats=("coff",),
    kinds=_OBJECT,
)
def section_alignment(check: Check) -> Iterator[Found]:
    """Look at the alignment in the characteristics of each section."""
    coff = coff_of(check)
    for one in coff.sections if coff is not None else ():
        code = (one.Characteristics & names.IMAGE_SCN_ALIGN_MASK) >> names.IMAGE_SCN_ALIGN_SHIFT
        if code == _ALIGN_RESERVED:
            yield Found(f"section {shown(one.name)[1:-1]}", "at most 8192 bytes (code 14)", f"code {code}")


# A88, B54
@rule(
    "pe-exports",
    "An export of a DLL leads nowhere",
    why="GetProcAddress gives NULL, or an address outside of the image",
    fix="export it again: __declspec(dllexport), or a .def file with DATA for data",
    formats=_PE,
    kinds=("library",),
)
def exports(check: Check) -> Iterator[Found]:
    """Compare each export with the sections, and the packs with the exports."""
    pe = pe_of(check)
    offered: set[int] = set()
    for one in pe.exports():
        offered.add(one.rva)
        if not one.forwarder and not any(
            section.VirtualAddress <= one.rva < section.VirtualAddress + max(section.VirtualSize, section.SizeOfRawData)
            for section in pe.sections
        ):
            name = shown(one.name)[1:-1] or f"ordinal {one.ordinal}"
            yield Found(f"export {name}", "an address in a section", f"{one.rva:#x}")
    for pack in check.report.packs:
        if all(pe.rva_to_offset(rva) != pack.offset for rva in offered):
            yield Found(f"pack at {pack.offset:#x}", "an export that leads to it", "none")


# A70, A89
@rule(
    "pe-time-stamp",
    "The file holds the time of its build",
    severity="warning",
    why="two builds of the same sources differ, so that caches miss and nobody can compare them",
    fix="link with /Brepro (GNU ld: --no-insert-timestamp), compile with -mno-incremental-linker-compatible",
    formats=_BOTH,
)
def time_stamp(check: Check) -> Iterator[Found]:
    """Look at TimeDateStamp, which may be a hash where the debug directory says so."""
    if check.format == "pe":
        pe = pe_of(check)
        stamp = pe.header.TimeDateStamp
        hashed = pe.reproducible
    else:
        coff = coff_of(check)
        stamp, hashed = (coff.header.TimeDateStamp, False) if coff is not None else (0, False)
    # All ones are what some tools write for "none".
    if stamp not in (0, 0xFFFFFFFF) and not hashed:
        yield Found("TimeDateStamp", "0, or a hash (IMAGE_DEBUG_TYPE_REPRO)", f"{stamp:#x}")


# A68, A89
@rule(
    "pe-pdb-path",
    "The file names the folder of its build",
    severity="warning",
    why="it tells of the build machine, and makes builds in two folders differ",
    fix="link with /PDBALTPATH:%_PDB%",
    formats=_PE,
)
def pdb_path(check: Check) -> Iterator[Found]:
    """Look at the path in the CodeView record."""
    record = pe_of(check).codeview
    if record is not None and ("\\" in record.path or "/" in record.path):
        yield Found("CodeView", "a file name", record.path)


# B23
@rule(
    "pe-address32",
    "An object for 64-bit Windows holds 32-bit addresses",
    severity="warning",
    why="images lie above 4 GiB: lld cuts the address without a word, link.exe refuses it (LNK2017)",
    fix="compile position-independent code, or store 64-bit addresses",
    formats=("coff",),
    kinds=_OBJECT,
)
def address32(check: Check) -> Iterator[Found]:
    """Look for IMAGE_REL_AMD64_ADDR32 in sections that are loaded."""
    coff = coff_of(check)
    if coff is None or coff.header.Machine != _AMD64:
        return
    for section in coff.sections:
        if section.Characteristics & (names.IMAGE_SCN_LNK_REMOVE | names.IMAGE_SCN_LNK_INFO):
            continue
        for one in coff.relocations(section):
            if one.Type == _ADDR32:
                yield Found(
                    f"section {shown(section.name)[1:-1]}", "64-bit addresses", f"ADDR32 at {one.VirtualAddress:#x}"
                )
                break
