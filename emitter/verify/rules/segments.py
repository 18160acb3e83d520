"""How the loader maps a file: alignment against pages, order, protection."""

from __future__ import annotations

from emitter.records import TYPE_CHECKING
from emitter.verify.model import Found, rule
from emitter.verify.rules._elf import (
    PF_W,
    PF_X,
    PT_DYNAMIC,
    PT_GNU_PROPERTY,
    PT_GNU_RELRO,
    PT_LOAD,
    elf_of,
    find_section,
    hosted,
    loads,
    section_name,
    segment_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.verify.check import Check

_MIN_PAGE = 4096
_LINKED = ("library", "executable")


# A16, B35
@rule(
    "elf-load-congruent",
    "The file offset and the address of a segment do not fit the same page",
    why='mmap cannot map it: the loader says "ELF load command address/offset not page-aligned"',
    fix="link it again; if patchelf, strip or a packer wrote it, use a newer one",
    kinds=_LINKED,
)
def load_congruent(check: Check) -> Iterator[Found]:
    """Compare p_offset with p_vaddr modulo p_align, and modulo a page."""
    for number, phdr in loads(check):
        # Programs without a loader need no pages.
        page = phdr.p_align if phdr.p_align > 1 else _MIN_PAGE if hosted(check) else 1
        if page & (page - 1) == 0 and phdr.p_filesz and (phdr.p_offset - phdr.p_vaddr) % page:
            yield Found(
                segment_name(number, phdr),
                f"p_offset and p_vaddr equal modulo {page:#x}",
                f"p_offset {phdr.p_offset:#x}, p_vaddr {phdr.p_vaddr:#x}",
            )


# A17, B33
@rule(
    "elf-load-alignment",
    "A segment is aligned to less than the largest page of the platform",
    why="kernels with larger pages cannot map it: dlopen fails, or the program does not start",
    fix="link with -Wl,-z,max-page-size=N, N as expected; tools that add segments (patchelf --page-size N) need it too",
    kinds=_LINKED,
)
def load_alignment(check: Check) -> Iterator[Found]:
    """Compare p_align of every PT_LOAD with the page size."""
    if not hosted(check):
        return
    page = check.page_size or _MIN_PAGE
    for number, phdr in loads(check):
        if phdr.p_align < page:
            yield Found(segment_name(number, phdr), f"p_align of at least {page}", phdr.p_align)


# of our own: patchelf and its kind
@rule(
    "elf-load-alignment-mixed",
    "The segments of a file are aligned differently",
    severity="warning",
    why="a tool added a segment after the link, with a page size of its own; the smallest decides where it loads",
    fix="give the tool the page size of the link (patchelf --page-size), or do what it did when linking",
    kinds=_LINKED,
)
def load_alignment_mixed(check: Check) -> Iterator[Found]:
    """Compare p_align of the PT_LOAD segments with each other."""
    found = {phdr.p_align for _, phdr in loads(check)}
    if hosted(check) and len(found) > 1:
        yield Found("PT_LOAD", "one p_align", ", ".join(map(str, sorted(found))))


# A18, B29
@rule(
    "elf-alignment-power",
    "An alignment is no power of two",
    why="loaders refuse the file or compute wrong addresses from it",
    fix="write the file with a tool that keeps alignments",
)
def alignment_power(check: Check) -> Iterator[Found]:
    """Look at p_align and sh_addralign."""
    elf = elf_of(check)
    for number, phdr in enumerate(elf.phdrs):
        if phdr.p_align & (phdr.p_align - 1):
            yield Found(segment_name(number, phdr), "p_align a power of two", phdr.p_align)
    for number, shdr in elf.sections():
        if shdr.sh_addralign & (shdr.sh_addralign - 1):
            yield Found(section_name(check, number), "sh_addralign a power of two", shdr.sh_addralign)
        elif number and shdr.sh_flags & 2 and shdr.sh_addralign > 1 and shdr.sh_addr % shdr.sh_addralign:
            yield Found(section_name(check, number), f"an address aligned to {shdr.sh_addralign}", f"{shdr.sh_addr:#x}")


# A19, B34
@rule(
    "elf-relro",
    "The read-only relocated part does not end with a page, or lies outside of its segment",
    severity="warning",
    why="the loader protects whole pages: the last one stays writable, and Android's makes data beside it read-only",
    fix="link with a maximum and a common page size of the device (-z max-page-size, -z common-page-size)",
    kinds=_LINKED,
)
def relro(check: Check) -> Iterator[Found]:
    """Look at where PT_GNU_RELRO ends, and what follows it."""
    android = check.target is not None and check.target.version_kind == "android-api"
    page = check.page_size or _MIN_PAGE
    for number, phdr in elf_of(check).segments(PT_GNU_RELRO):
        if not phdr.p_memsz:
            continue
        end = phdr.p_vaddr + phdr.p_memsz
        around = [
            load
            for _, load in loads(check)
            if load.p_vaddr <= phdr.p_vaddr and end <= _page_end(load.p_vaddr + load.p_memsz, page)
        ]
        if not around:
            yield Found(segment_name(number, phdr), "inside of a PT_LOAD", f"{phdr.p_vaddr:#x} to {end:#x}", "error")
        elif end % page and end < around[0].p_vaddr + around[0].p_memsz:
            severity = "error" if android else None
            yield Found(segment_name(number, phdr), f"an end that is a multiple of {page:#x}", f"{end:#x}", severity)


def _page_end(address: int, page: int) -> int:
    return -(-address // page) * page


# A20
@rule(
    "elf-load-order",
    "Segments are not in the order of their addresses, or overlap",
    why="the loader reserves from the first to the last one: a segment outside of that is mapped over something else",
    fix="link the file again; a tool that edited it has broken its layout",
    kinds=_LINKED,
)
def load_order(check: Check) -> Iterator[Found]:
    """Compare each PT_LOAD with the one before."""
    before = None
    for number, phdr in loads(check):
        if before is not None:
            end = before.p_vaddr + before.p_memsz
            if phdr.p_vaddr < end:
                yield Found(segment_name(number, phdr), f"an address from {end:#x} on", f"{phdr.p_vaddr:#x}")
        if phdr.p_filesz > phdr.p_memsz:
            yield Found(segment_name(number, phdr), f"p_filesz of at most {phdr.p_memsz:#x}", f"{phdr.p_filesz:#x}")
        before = phdr
    bits = 64 if elf_of(check).is_64 else 32
    if before is not None and before.p_vaddr + before.p_memsz > 1 << bits:
        yield Found(f"segment ending at {before.p_vaddr + before.p_memsz:#x}", f"addresses of {bits} bits", "more")


# A21
@rule(
    "elf-segment-writable-code",
    "A segment is writable and executable",
    why="SELinux and Android refuse it (execmod), and an attacker can write code",
    fix="link without -N and -z nosectionheader tricks, and keep code out of writable sections",
    kinds=_LINKED,
)
def writable_code(check: Check) -> Iterator[Found]:
    """Look at p_flags of every PT_LOAD."""
    for number, phdr in elf_of(check).segments(PT_LOAD):
        if phdr.p_flags & PF_W and phdr.p_flags & PF_X:
            severity = None if hosted(check) and check.target is not None else "warning"
            yield Found(segment_name(number, phdr), "not both W and X", "RWX" if phdr.p_flags & 4 else "WX", severity)


# A25
@rule(
    "elf-dynamic-place",
    "PT_DYNAMIC and the section .dynamic are at different places",
    why="Android's loader refuses the file; tools that go by sections show something else than what is loaded",
    fix="link the file again; a tool moved one of the two",
    kinds=_LINKED,
)
def dynamic_place(check: Check) -> Iterator[Found]:
    """Compare offset and address of the two."""
    elf = elf_of(check)
    section = next((shdr for _, shdr in elf.sections(6)), None)
    for number, phdr in elf.segments(PT_DYNAMIC):
        if section is None:
            continue
        expected = (section.sh_offset, section.sh_addr, section.sh_size)
        actual = (phdr.p_offset, phdr.p_vaddr, phdr.p_filesz)
        if expected[:2] != actual[:2]:
            yield Found(
                segment_name(number, phdr), f"offset {expected[0]:#x}, address {expected[1]:#x}",
                f"offset {actual[0]:#x}, address {actual[1]:#x}",
            )  # fmt: skip
        elif expected[2] != actual[2]:
            yield Found(segment_name(number, phdr), f"{expected[2]:#x} bytes", f"{actual[2]:#x} bytes", "warning")


# A26
@rule(
    "elf-property-note",
    "The note of GNU properties cannot be found, or has the wrong alignment",
    why="the loader reads it through PT_GNU_PROPERTY in words of 8 bytes: otherwise branch protection is silently off",
    fix="link it again with a current linker; objcopy and patchelf of old lost the segment",
)
def property_note(check: Check) -> Iterator[Found]:
    """Look at the section .note.gnu.property, its segment, and their alignment."""
    elf = elf_of(check)
    section = find_section(check, ".note.gnu.property")
    word = elf.layouts.word_size
    segments = list(elf.segments(PT_GNU_PROPERTY))
    for number, phdr in segments:
        if phdr.p_align != word or phdr.p_offset % word:
            yield Found(
                segment_name(number, phdr), f"aligned to {word}", f"p_align {phdr.p_align} at {phdr.p_offset:#x}"
            )
    if section is None:
        return
    number, shdr = section
    if shdr.sh_addralign != word or shdr.sh_offset % word:
        actual = f"sh_addralign {shdr.sh_addralign} at offset {shdr.sh_offset:#x}"
        yield Found(section_name(check, number), f"aligned to {word}", actual)
    elif check.kind in _LINKED and not segments and hosted(check):
        yield Found(section_name(check, number), "a PT_GNU_PROPERTY segment for it", "none", "info")
    elif segments and (segments[0][1].p_offset, segments[0][1].p_filesz) != (shdr.sh_offset, shdr.sh_size):
        yield Found(
            section_name(check, number), "the place of PT_GNU_PROPERTY", f"offset {shdr.sh_offset:#x}", "warning"
        )
