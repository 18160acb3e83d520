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
    "MACHO_MAX_FILE_SIZE",
    "MAX_MEMBER_SIZE",
    "PE_MAX_IMAGE_SIZE",
    "Limit",
    "Linker",
    "exceeded",
    "limits_of",
    "linkers",
    "proposals",
    "sidecar_exceeded",
    "sidecar_limit",
    "too_large",
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


class _Row(NamedTuple):
    object_format: ObjectFormat
    formats: tuple[Format, ...]
    pointer_width: int | None  # None: all
    limit: Limit


_ROWS = (
    _Row("elf", ("object", "archive", "library"), 32, Limit(ELF32_MAX_FILE_SIZE, "ELF files of the 32-bit class")),
    _Row("elf", ("archive",), None, Limit(MAX_MEMBER_SIZE, "a member of an archive")),
    _Row("macho", ("object", "archive", "library"), None, Limit(MACHO_MAX_FILE_SIZE, "Mach-O files: 32-bit offsets")),
    _Row("coff", ("object", "archive"), None, Limit(COFF_MAX_FILE_SIZE, "COFF objects and archives: 32-bit offsets")),
    _Row("coff", ("library",), None, Limit(PE_MAX_IMAGE_SIZE, "PE images: 2 GiB, as Microsoft documents it")),
)


class Linker(NamedTuple):
    """What a linker makes of an object whose payload is beyond the reach of code."""

    name: str
    links: bool
    says: str


# Where the payload stands -> what was measured: docs/large-data.md says with what. By e_machine, as the psABIs number.
_REFUSED = "refuses: relocations out of range"
_NO_SCRIPT = "cannot: it reads no SECTIONS in a fragment"
_MEASURED: Mapping[int, Mapping[str, tuple[Linker, ...]]] = {
    62: {  # EM_X86_64
        "plain": (
            Linker("GNU ld", False, _REFUSED),
            Linker("lld", False, _REFUSED),
            Linker("mold", False, _REFUSED),
        ),
        "large": (
            Linker("GNU ld", True, "links"),
            Linker("lld", False, f"{_REFUSED}; version 18 and later link"),
            Linker("mold", False, _REFUSED),
        ),
        "script": (
            Linker("GNU ld", True, "links"),
            Linker("lld", True, "links"),
            Linker("mold", False, _NO_SCRIPT),
        ),
    },
    183: {  # EM_AARCH64
        "plain": (
            Linker("GNU ld", False, _REFUSED),
            Linker("lld", False, _REFUSED),
            Linker("mold", False, _REFUSED),
        ),
        "script": (
            Linker("GNU ld", True, "links"),
            Linker("lld", True, "links"),
            Linker("mold", False, _NO_SCRIPT),
        ),
    },
    243: {  # EM_RISCV
        "plain": (
            Linker("GNU ld", False, _REFUSED),
            Linker("lld", False, "version 14 cannot link Debian's start-up files (R_RISCV_ALIGN)"),
            Linker("mold", False, "links without checking distances: do not use it"),
        ),
        "script": (
            Linker("GNU ld", True, "links"),
            Linker("lld", False, "version 14 cannot link Debian's start-up files (R_RISCV_ALIGN)"),
            Linker("mold", False, _NO_SCRIPT),
        ),
    },
}


def linkers(target: Target, size: int, *, large: bool, script: bool) -> tuple[Linker, ...] | None:
    """Return what linkers make of an object of `target` with `size` bytes of payload; None if nothing was measured.

    Within the reach of code the answer is empty: all link it.
    """
    if size <= target.reach:
        return ()
    if target.object_format != "elf" or target.pointer_width != 64:
        return None
    measured = _MEASURED.get(target.e_machine, {})
    return measured.get("script" if script else "large" if large else "plain")


def limits_of(target: Target, format_: Format) -> list[Limit]:
    """Return the limits of an output, the tightest first; a 64-bit address space is none."""
    limits = [
        row.limit
        for row in _ROWS
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
    for other, suffix in others:
        if other != format_ and suffix is not None and exceeded(target, other, size + _OVERHEAD) is None:
            found.append(f"{suffix}: {_ARTICLE[other]} holds it")
            break
    limit = sidecar_exceeded(target, size) if sidecar else exceeded(target, format_, size)
    if limit is not None and largest <= (room := limit.size - _OVERHEAD):
        found.append(f"{_PLURAL[format_]} for parts of the model: {max(2, -(-size // room))} or more")
    return found or [f"nothing holds the largest tensor, {largest} bytes, on this target: cut it into several"]


_OVERHEAD = 64 << 20  # more than what stands around the bytes in any format, signatures included
_ARTICLE: Mapping[Format, str] = {
    "library": "a library",
    "archive": "an archive",
    "object": "an object",
    "pack": "a pack",
}
_PLURAL: Mapping[Format, str] = {"library": "libraries", "archive": "archives", "object": "objects", "pack": "packs"}
