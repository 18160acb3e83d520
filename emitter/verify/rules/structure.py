"""Whether a file can be read at all: what every other rule takes for granted."""

from __future__ import annotations

from emitter.records import TYPE_CHECKING
from emitter.verify.model import Found, rule
from emitter.verify.rules._elf import SHT_NOBITS, elf_of, file_name, section_name, segment_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.verify.check import Check


@rule(
    "file-malformed",
    "A file, a member or a part of one breaks its own format",
    why="a loader, a linker or a debugger on the device reads past it, refuses it, or does something else than meant",
    fix="make or copy the file again: it was truncated, edited or written wrongly",
    formats=("*", "archive"),
)
def malformed(check: Check) -> Iterator[Found]:
    """Report what the reader could not read; the engine adds what other rules stumble over."""
    if check.format == "archive":
        return
    for fault in check.report.faults:
        error = fault.error
        if fault.part == "segments":
            continue  # elf-segment-in-file says it of each
        actual = error.what if error.actual is None else f"{error.what} ({error.actual})"
        yield Found(fault.part, error.expected or "", actual, fix=error.hint)


@rule(
    "file-parsers-disagree",
    "Another parser reads the file differently",
    why="tools on the way to the device see another file than its loader does: strip, package tools, debuggers",
    fix="write the file with a tool that keeps to the format; if the file is right, report it to the parser's project",
    formats=("elf", "macho", "pe", "coff"),
    needs=("second-parser",),
)
def parsers_disagree(check: Check) -> Iterator[Found]:
    """Compare what pyelftools or lief read with what the reader of this package does."""
    from emitter.inspect.second_parser import compare

    if check.kind == "debug":
        return
    for one in compare(check.reader) or ():
        yield Found(one.subject, f"what this reader finds, {one.ours}", f"{one.parser}: {one.theirs}")


@rule(
    "file-no-artefact",
    "A file is called like a library or an object, and is none",
    why="a linker or a loader that looks for the name finds something that it cannot use",
    fix="make the file again, or give it another name",
    formats=(),
)
def no_artefact(check: Check) -> Iterator[Found]:
    """Report nothing: the engine meets such files before there is anything to check."""
    del check
    yield from ()


@rule(
    "file-size",
    "A file is larger than is allowed",
    why="it does not fit into the partition, the image or the download that it is meant for",
    fix="leave out what is not needed (strip, emitter extract --only), store smaller types, or raise the limit",
    formats=("*", "archive"),
    needs=("max-size",),
)
def size(check: Check) -> Iterator[Found]:
    """Compare the size of the file, or member, with the limit."""
    limit = check.max_size
    if limit is not None and check.view.size > limit:
        yield Found("", f"at most {limit} bytes", f"{check.view.size} bytes")


# A14
@rule(
    "elf-segment-in-file",
    "A segment ends past the end of the file",
    why="the loader maps pages that are not there, and the process dies of SIGBUS when it touches them, inside dlopen",
    fix="copy or download the file again: it is truncated",
    kinds=("library", "executable"),
)
def segment_in_file(check: Check) -> Iterator[Found]:
    """Compare the end of every segment with the file."""
    for number, phdr in enumerate(elf_of(check).phdrs):
        end = phdr.p_offset + phdr.p_filesz
        if phdr.p_filesz and end > check.view.size:
            yield Found(segment_name(number, phdr), f"an end of at most {check.view.size:#x}", f"{end:#x}")


# A15
@rule(
    "elf-section-in-file",
    "A section, or the table of sections, ends past the end of the file",
    why="Android's loader refuses the file; strip, gdb and package tools on others do",
    fix="copy the file again, or link it again: its tail is missing",
)
def section_in_file(check: Check) -> Iterator[Found]:
    """Compare the end of the section table, and of every section, with the file."""
    elf = elf_of(check)
    if check.kind == "debug":
        return
    for number, shdr in elf.sections():
        end = shdr.sh_offset + shdr.sh_size
        if number and shdr.sh_type not in (0, SHT_NOBITS) and end > check.view.size:
            yield Found(section_name(check, number), f"an end of at most {check.view.size:#x}", f"{end:#x}")
    if elf.shdrs and not 0 <= elf.shstrndx < len(elf.shdrs):
        yield Found("e_shstrndx", f"less than {len(elf.shdrs)}", elf.shstrndx)


# A27
@rule(
    "elf-header-counts",
    "The file header contradicts the tables that it leads to",
    why="readers disagree on how many sections or segments there are; some see none, and take the file for empty",
    fix="write the file with a tool that knows extended numbering (gABI, Sections)",
)
def header_counts(check: Check) -> Iterator[Found]:
    """Look at the entry sizes, and at extended numbering."""
    elf = elf_of(check)
    header = elf.ehdr
    sizes = (
        ("e_phentsize", header.e_phentsize, elf.phnum, 56, 32),
        ("e_shentsize", header.e_shentsize, elf.shnum, 64, 40),
    )
    for name, actual, count, wide, narrow in sizes:
        expected = wide if elf.is_64 else narrow
        if count and actual != expected:
            yield Found(name, expected, actual)
    if header.e_shoff and not elf.shnum:
        yield Found("e_shnum", "the number of sections, in the header or in section 0", 0)
    if header.e_type == 1 and not header.e_shoff:
        yield Found("e_shoff", "an object has sections", 0)
    if header.e_version != 1 or header.ei_version != 1:
        yield Found("e_version", 1, header.e_version)
    if header.e_type in (2, 3) and not elf.phnum:
        yield Found("e_phnum", "a linked file has segments", 0)


# A11
@rule(
    "elf-type",
    "The type in the header is not what the name promises",
    why="a linker refuses an object that is a program, and a loader a library that is an object",
    fix="name the file for what it is, or make the right one",
)
def elf_type(check: Check) -> Iterator[Found]:
    """Compare e_type with the suffix."""
    name = file_name(check)
    e_type = elf_of(check).ehdr.e_type
    words = {0: "ET_NONE", 1: "ET_REL", 2: "ET_EXEC", 3: "ET_DYN", 4: "ET_CORE"}
    if name.endswith(".o") and e_type != 1:
        yield Found("e_type", "ET_REL", words.get(e_type, f"{e_type:#x}"))
    stem, _, version = name.partition(".so")
    promised = bool(stem) and ".so" in name and (not version or version.lstrip(".").replace(".", "").isdigit())
    if promised and e_type != 3:
        yield Found("e_type", "ET_DYN", words.get(e_type, f"{e_type:#x}"))
