"""What a file is: its format and kind, the target that it says it is for, and the pages that it must load with."""

from __future__ import annotations

from functools import cache

from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from emitter.inspect.report import Reader
    from emitter.inspect.view import View
    from emitter.targets._base import Target
    from emitter.verify.containers import Item
    from emitter.verify.profile import Profile

__all__ = [
    "elf_kind",
    "guess_target",
    "is_container",
    "kind_of",
    "linker_script",
    "page_size_of",
    "promises",
    "recognised",
]

# Names that promise an artefact.
_PROMISES = (".so", ".o", ".a", ".dylib", ".dll")
_COMPRESSED_TAR = (".tgz", ".txz", ".tbz", ".tbz2", ".tzst")

_SHT_NOBITS, _SHT_DYNAMIC = 8, 6
_DT_FLAGS_1, _DF_1_PIE = 0x6FFFFFFB, 0x08000000
_PT_INTERP, _PT_DYNAMIC = 3, 2
# What the readers call the kinds of Mach-O, PE and COFF files.
_WORDS = (("library", "library"), ("bundle", "library"), ("executable", "executable"), ("object", "object"))
_FAMILIES = {"macho": "macho", "coff": "coff", "pe": "coff"}
_KINDS = {1: "object", 2: "executable", 4: "other"}

# COFF objects have no magic, only a machine: they are taken for what they are where the name says so too.
_COFF_MACHINES = (b"\x4c\x01", b"\x64\x86", b"\x64\xaa", b"\xc4\x01", b"\x41\xa6", b"\x4e\xa6")


def recognised(head: bytes, name: str, *, named: bool = False) -> bool:
    """Return whether a file begins like an artefact that `emitter.inspect` reads.

    What begins with the two bytes of COFF's machine alone is taken for an object if it is called like one, or `named`.
    """
    from emitter.inspect import READERS
    from emitter.inspect.universal import FAT_MAGIC, UniversalFile
    from emitter.inspect.view import View

    if head.startswith(FAT_MAGIC):
        return UniversalFile.fits(View.of_bytes(head, name))  # the others are class files of Java
    short = head[:2] in _COFF_MACHINES and (named or name.endswith((".obj", ".o")))
    return short or any(head.startswith(row.magic) for row in READERS if row.module != "coff" or len(row.magic) > 2)


def elf_kind(elf: object) -> str:
    """Return the kind of an ELF file: `object`, `library`, `executable`, `debug` or `other`.

    A file of debug information alone has headers of what it was taken from, and none of the bytes.
    """
    from emitter.inspect.elf import ElfFile

    if not isinstance(elf, ElfFile):
        return "other"
    if elf.ehdr.e_type == 1:
        return "object"
    if elf.ehdr.e_type not in (2, 3):
        return "other"
    allocated = [shdr for _, shdr in elf.sections() if shdr.sh_flags & 2 and shdr.sh_type not in (0, 7)]
    if allocated and all(shdr.sh_type == _SHT_NOBITS for shdr in allocated):
        return "debug"
    if elf.ehdr.e_type == 2:
        return "executable"
    if any(True for _ in elf.segments(_PT_INTERP)) and elf.soname is None:
        return "executable"
    return "executable" if (elf.dynamic_value(_DT_FLAGS_1) or 0) & _DF_1_PIE else "library"


def kind_of(reader: Reader) -> tuple[str, str]:
    """Return (format, kind) of what a reader reads, from its header alone."""
    from emitter.errors import EmitterError
    from emitter.inspect.elf import ElfFile

    if isinstance(reader, ElfFile):
        try:
            return "elf", elf_kind(reader)
        except EmitterError:
            return "elf", _KINDS.get(reader.ehdr.e_type, "library")
    # A module of `emitter.inspect` reads the format that it is called after; readers of our own say it.
    form: str = getattr(reader, "format", "") or type(reader).__module__.rpartition(".")[2]
    if form == "pack":
        return "pack", "pack"
    return form, next((kind for word, kind in _WORDS if word in reader.kind), "other")


@cache
def _all_targets() -> tuple[Target, ...]:
    from emitter.targets import describe_all

    return tuple(describe_all())


def guess_target(reader: Reader) -> Target | None:
    """Return the first target whose machine, class and byte order are those of the file, or None."""
    from emitter.inspect.elf import ElfFile

    if reader.container:
        return None
    if not isinstance(reader, ElfFile):
        return _other_target(reader)
    width = 64 if reader.is_64 else 32
    facts = (reader.ehdr.e_machine, width, reader.byte_order)
    fitting = [
        target
        for target in _all_targets()
        if target.object_format == "elf" and (target.e_machine, target.pointer_width, target.byte_order) == facts
    ]
    # The general platforms first: of those for one machine, the one with the largest pages asks the most.
    fitting.sort(key=lambda target: ("-linux-gnu" not in target.name, -target.max_page_size))
    return fitting[0] if fitting else None


def _other_target(reader: Reader) -> Target | None:
    header = getattr(reader, "header", None)
    form = _FAMILIES.get(kind_of(reader)[0])
    for target in _all_targets():
        if target.object_format == form and (
            (target.macho and target.macho.cputype == getattr(header, "cputype", None))
            or (target.coff and target.coff.machine == getattr(header, "Machine", None))
        ):
            return target
    return None


def page_size_of(profile: Profile, target: Target | None, reader: Reader) -> int | None:
    """Return the largest page that a file must be loadable with, in bytes: the profile's, else the target's."""
    width = 64 if getattr(reader, "is_64", True) else 32
    chosen = profile.get("page-size" if width == 64 else "page-size-32")
    if chosen is not None:
        return int(chosen)
    return target.max_page_size if target else None


def promises(name: str) -> bool:
    """Return whether a file is called like a library or an object; `libc.so.6-gdb.py` is called like neither."""
    base = name.rpartition("/")[2]
    version = base.partition(".so.")[2].replace(".", "")
    return base.endswith(_PROMISES) or (version.isascii() and version.isdigit())


def is_container(kind: str, item: Item) -> bool:
    """Return whether a file that was not named is unpacked: compressed files only if they are called tar archives."""
    if kind in {"zip", "deb", "tar"}:
        return True
    name = (item.member or item.path).lower()
    return f".tar.{kind}" in name or name.endswith(_COMPRESSED_TAR)


def linker_script(view: View) -> bool:
    """Return whether a file called lib*.so or lib*.a is a script for a linker, as libc.so often is."""
    head = view.read_up_to(0, 4096)
    return b"\0" not in head and any(word in head for word in (b"INPUT", b"GROUP", b"OUTPUT_FORMAT", b"AS_NEEDED"))
