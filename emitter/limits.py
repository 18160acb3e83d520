"""What each format can hold, and what reaches it: facts, one row each; and what to do about a package beyond them.

Writers take their bounds from here, the planner compares sizes with them before anything is laid out, and
`emitter plan` prints them.
"""

from __future__ import annotations

from emitter.errors import LayoutError
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from emitter.options import Format
    from emitter.targets._base import ObjectFormat, Target

__all__ = [
    "COFF_MAX_FILE_SIZE",
    "ELF32_MAX_FILE_SIZE",
    "FORMAT_LIMITS",
    "LINKER_NAMES",
    "MACHO_MAX_FILE_SIZE",
    "MAX_MEMBER_SIZE",
    "MEASURED_LINKS",
    "PE_MAX_IMAGE_SIZE",
    "FormatLimit",
    "Limit",
    "Linker",
    "as_hint",
    "beyond",
    "exceeded",
    "limits_of",
    "linkers",
    "proposals",
    "sidecar_exceeded",
    "sidecar_limit",
    "too_large",
    "works_of",
]

# Bytes, the largest that is allowed.
ELF32_MAX_FILE_SIZE = (1 << 32) - 1  # Elf32_Off, Elf32_Word: gABI, chapter 4
MACHO_MAX_FILE_SIZE = (1 << 32) - 1  # offset of section_64, symoff, dataoff, codeLimit; fat_arch for the whole file
COFF_MAX_FILE_SIZE = (1 << 32) - 1  # PointerToRawData, SizeOfRawData; offsets in the linker member of an archive
PE_MAX_IMAGE_SIZE = (1 << 31) - 1  # SizeOfImage, as Microsoft documents it: at most 2 GiB
MAX_MEMBER_SIZE = 9_999_999_999  # ar_size: ten decimal digits


class Limit(NamedTuple):
    """The most bytes that something of an output may have, and why."""

    size: int
    what: str


class FormatLimit(NamedTuple):
    """A limit of an object format: for which outputs, and for which width of pointers (None: all)."""

    object_format: ObjectFormat
    formats: tuple[Format, ...]
    pointer_width: int | None
    limit: Limit


FORMAT_LIMITS = (
    FormatLimit(
        "elf", ("object", "archive", "library"), 32, Limit(ELF32_MAX_FILE_SIZE, "ELF files of the 32-bit class")
    ),
    FormatLimit("elf", ("archive",), None, Limit(MAX_MEMBER_SIZE, "a member of an archive")),
    FormatLimit(
        "macho", ("object", "archive", "library"), None, Limit(MACHO_MAX_FILE_SIZE, "Mach-O files: 32-bit offsets")
    ),
    FormatLimit(
        "coff", ("object", "archive"), None, Limit(COFF_MAX_FILE_SIZE, "COFF objects and archives: 32-bit offsets")
    ),
    FormatLimit("coff", ("library",), None, Limit(PE_MAX_IMAGE_SIZE, "PE images: 2 GiB, as Microsoft documents it")),
)


class Linker(NamedTuple):
    """What a linker makes of an object whose payload is beyond the reach of code."""

    name: str
    links: bool
    says: str


_REFUSED = "refuses: relocations out of range"
_NO_SCRIPT = "cannot: it reads no SECTIONS in a fragment"
_UNCHECKED = "links without checking distances: do not use it"
_NO_RELAX = "version 14 cannot link Debian's start-up files (R_RISCV_ALIGN)"
_NO_CPU = "version 14 does not know the CPU"

LINKER_NAMES = ("GNU ld", "lld", "mold")
_LINKS = "links"
_REFUSE = (_REFUSED, _REFUSED, _REFUSED)

# What was measured, by e_machine, as the psABIs number it: where the payload stands -> what each of LINKER_NAMES says.
# docs/large-data.md says with what, and tests/run/test_large_data.py does it again.
MEASURED_LINKS: Mapping[int, Mapping[str, tuple[str, str, str]]] = {
    62: {  # EM_X86_64
        "plain": _REFUSE,
        "large": (_LINKS, f"{_REFUSED}; version 18 and later link", _REFUSED),
        "script": (_LINKS, _LINKS, _NO_SCRIPT),
    },
    183: {"plain": _REFUSE, "script": (_LINKS, _LINKS, _NO_SCRIPT)},  # EM_AARCH64
    243: {"plain": (_REFUSED, _NO_RELAX, _UNCHECKED), "script": (_LINKS, _NO_RELAX, _NO_SCRIPT)},  # EM_RISCV
    22: {"plain": (_REFUSED, _NO_CPU, _REFUSED), "script": (_LINKS, _NO_CPU, _NO_SCRIPT)},  # EM_S390
    21: {"plain": (_REFUSED, _REFUSED, _UNCHECKED), "script": (_LINKS, _UNCHECKED, _NO_SCRIPT)},  # EM_PPC64
}


def linkers(target: Target, size: int, *, large: bool, script: bool) -> tuple[Linker, ...] | None:
    """Return what linkers make of an object of `target` with `size` bytes of payload; None if nothing was measured.

    Within the reach of code the answer is empty: all link it.
    """
    if size <= target.reach:
        return ()
    if target.object_format != "elf" or target.pointer_width != 64:
        return None
    measured = MEASURED_LINKS.get(target.e_machine, {})
    results = measured.get("script" if script else "large" if large else "plain")
    if results is None:
        return None
    return tuple(Linker(name, says == _LINKS, says) for name, says in zip(LINKER_NAMES, results, strict=True))


def limits_of(target: Target, format_: Format) -> list[Limit]:
    """Return the limits of an output, the tightest first; a 64-bit address space is none."""
    limits = [
        row.limit
        for row in FORMAT_LIMITS
        if row.object_format == target.object_format
        and format_ in row.formats
        and row.pointer_width in {None, target.pointer_width}
    ]
    if format_ == "library" and target.max_image_size is not None and target.pointer_width == 32:
        limits.append(Limit(target.max_image_size, "one piece of a 32-bit address space"))
    if target.pointer_width == 32:
        limits.append(Limit((1 << 32) - 1, "a 32-bit address space"))
    return sorted(limits)


def exceeded(target: Target, format_: Format, size: int) -> Limit | None:
    """Return the limit that `size` bytes exceed, or None."""
    return next((limit for limit in limits_of(target, format_) if size > limit.size), None)


def too_large(what: str, target: Target, size: int, limit: Limit, hint: str | None = None) -> LayoutError:
    """Return the error for `what`, a format or "sidecar", of `size` bytes or more."""
    return LayoutError(
        f"the {what} is too large",
        where=f"target {target.name}",
        expected=f"at most {limit.size} bytes ({limit.what})",
        actual=size,
        hint=hint or "split the package",
    )


def sidecar_limit(target: Target) -> Limit | None:
    """Return the limit of a sidecar, None if there is none: the file is mapped in one piece, as a library is."""
    if target.pointer_width == 64:
        return None
    return Limit(target.max_image_size or (1 << 32) - 1, "one piece of a 32-bit address space")


def sidecar_exceeded(target: Target, size: int) -> Limit | None:
    """Return the limit that a sidecar of `size` bytes exceeds, or None."""
    limit = sidecar_limit(target)
    return limit if limit is not None and size > limit.size else None


def beyond(error: LayoutError, target: Target, format_: Format) -> bool:
    """Whether `error` is a writer's, for a file that is larger than its format holds."""
    found = int(error.actual) if error.actual is not None and error.actual.isdecimal() else 0
    return exceeded(target, format_, found) is not None


def as_hint(works: Sequence[str]) -> str:
    """Return proposals as the hint of an error; `works_of` gives them back."""
    return _OR.join(works)


def works_of(hint: str | None) -> list[str]:
    """Return the proposals in a hint; any other hint is one."""
    return hint.split(_OR) if hint else []


def proposals(target: Target, format_: Format, size: int, largest: int, *, sidecar: bool = False) -> list[str]:
    """Return what works for `size` bytes of pack that an output of `format_` cannot hold, best first.

    `largest` is the size of the largest tensor; `sidecar` says that it is the sidecar which is too large.
    """
    found = []
    if not sidecar and target.image_suffix is not None and sidecar_exceeded(target, size) is None:
        what = "--sidecar" if format_ == "library" else f"a {target.image_suffix} with --sidecar"
        found.append(f"{what}: the library holds the index, a .pack beside it the bytes")
    others: Sequence[tuple[Format, str | None]] = (
        ("library", target.image_suffix),
        ("archive", target.archive_suffix),
        ("object", target.object_suffix),
        ("pack", ".pack"),
    )
    # A program of Windows is an image as a DLL is: what an archive holds and no image does cannot be linked.
    unlinkable = target.object_format == "coff" and exceeded(target, "library", size + _OVERHEAD) is not None
    for other, suffix in others:
        if unlinkable and other in {"archive", "object"}:
            continue
        if other != format_ and suffix is not None and exceeded(target, other, size + _OVERHEAD) is None:
            found.append(f"{suffix}: {_ARTICLE[other]} holds it")
            break
    limits = [sidecar_limit(target)] if sidecar else limits_of(target, format_)
    limit = limits[0] if limits else None
    if limit is not None and largest <= (room := limit.size - _OVERHEAD):
        found.append(f"{_PLURAL[format_]} for parts of the model: {max(2, -(-size // room))} or more")
    return found or [f"nothing holds the largest tensor, {largest} bytes, on this target: cut it into several"]


_OR = "; or "
_OVERHEAD = 64 << 20  # more than what stands around the bytes in any format, signatures included
_ARTICLE: Mapping[Format, str] = {
    "library": "a library",
    "archive": "an archive",
    "object": "an object",
    "pack": "a pack",
}
_PLURAL: Mapping[Format, str] = {"library": "libraries", "archive": "archives", "object": "objects", "pack": "packs"}
