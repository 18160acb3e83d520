"""What the dynamic section asks of the loader: relocations, hash tables, code at load time, names."""

from __future__ import annotations

from emitter.records import TYPE_CHECKING
from emitter.verify.model import Found, rule
from emitter.verify.rules._elf import (
    EM_386,
    EM_AARCH64,
    EM_ARM,
    EM_PPC64,
    EM_RISCV,
    EM_X86_64,
    PF_W,
    PF_X,
    STT_FUNC,
    STT_GNU_IFUNC,
    elf_of,
    exported,
    file_name,
    loads,
    segment_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.verify.check import Check

_LINKED = ("library", "executable")
_DT_HASH, _DT_INIT, _DT_FINI, _DT_TEXTREL, _DT_FLAGS, _DT_GNU_HASH = 4, 12, 13, 22, 30, 0x6FFFFEF5
_DT_INIT_ARRAYSZ, _DT_FINI_ARRAYSZ, _DT_FLAGS_1, _DT_PREINIT_ARRAYSZ = 27, 28, 0x6FFFFFFB, 33
_DT_BIND_NOW = 24
_DF_TEXTREL, _DF_BIND_NOW, _DF_STATIC_TLS = 0x4, 0x8, 0x10
_DF_1_NOW, _DF_1_NODELETE = 0x1, 0x8

_SHF_WRITE, _SHT_REL_TYPES = 1, (4, 9)


# A29
@rule(
    "elf-soname",
    "A library does not state its own file name in DT_SONAME",
    why="programs record the path that the linker was given, and the loader loads the library twice under two names",
    fix="link with -Wl,-soname,NAME (emitter does so; --soname NAME)",
    kinds=("library",),
    needs=("soname",),
)
def soname(check: Check) -> Iterator[Found]:
    """Compare DT_SONAME with the file name: libx.so.1 is the name of libx.so.1.2.3 too."""
    stated, name = elf_of(check).soname, file_name(check)
    if stated is None:
        yield Found("DT_SONAME", name, "none")
    elif name != stated and not name.startswith(f"{stated}."):
        yield Found("DT_SONAME", name, stated, "warning")


@rule(
    "elf-soname-path",
    "DT_SONAME holds a path",
    why="programs that link the library look for it under that path on the device, and nowhere else",
    fix="link with -Wl,-soname,NAME without folders",
    kinds=("library",),
)
def soname_path(check: Check) -> Iterator[Found]:
    """Look for a slash, and for an empty name."""
    stated = elf_of(check).soname
    if stated is not None and ("/" in stated or not stated):
        yield Found("DT_SONAME", "a file name", stated or "an empty name")


# A36, B36
@rule(
    "elf-text-relocations",
    "The loader must write into code or read-only data",
    why="Android and SELinux refuse it; elsewhere those pages cannot be shared, and every process pays for them",
    fix="compile with -fPIC; put tables of pointers into .data.rel.ro, or store offsets",
    kinds=_LINKED,
)
def text_relocations(check: Check) -> Iterator[Found]:
    """Look for DT_TEXTREL and DF_TEXTREL."""
    elf = elf_of(check)
    if elf.dynamic_value(_DT_TEXTREL) is not None:
        yield Found("DT_TEXTREL", "none", "there")
    elif (elf.dynamic_value(_DT_FLAGS) or 0) & _DF_TEXTREL:
        yield Found("DT_FLAGS", "without DF_TEXTREL", f"{elf.dynamic_value(_DT_FLAGS):#x}")


# A37
@rule(
    "elf-hash-style",
    "A hash table is missing that loaders of the platform look symbols up in",
    why="musl before 1.1, Android before 6.0 and old tools know DT_HASH only; without any table dlsym finds nothing",
    fix="link with -Wl,--hash-style=both",
    kinds=("library",),
)
def hash_style(check: Check) -> Iterator[Found]:
    """Look for DT_HASH and DT_GNU_HASH, of which the profile and the Android API level may ask one."""
    elf = elf_of(check)
    have = {name for name, tag in (("sysv", _DT_HASH), ("gnu", _DT_GNU_HASH)) if elf.dynamic_value(tag) is not None}
    if not elf.dynamic:
        return
    if not have:
        yield Found("dynamic section", "DT_HASH or DT_GNU_HASH", "neither")
        return
    wanted = set(check.profile.get("hash-styles") or ())
    if check.target is not None and check.target.version_kind == "android-api" and check.version is not None:
        wanted |= {"sysv"} if int(check.version) < 23 else set()
    for name in sorted(wanted - have):
        yield Found("dynamic section", "DT_HASH" if name == "sysv" else "DT_GNU_HASH", "only the other one")


# A38
@rule(
    "elf-bind-now",
    "Symbols are bound when they are first used",
    why="the table of addresses stays writable: one overwritten entry diverts a call; a missing symbol shows late",
    fix="link with -Wl,-z,now",
    kinds=_LINKED,
    needs=("bind-now",),
)
def bind_now(check: Check) -> Iterator[Found]:
    """Look for DT_BIND_NOW, DF_BIND_NOW and DF_1_NOW, where there is something to bind."""
    elf = elf_of(check)
    now = (
        elf.dynamic_value(_DT_BIND_NOW) is not None
        or (elf.dynamic_value(_DT_FLAGS) or 0) & _DF_BIND_NOW
        or (elf.dynamic_value(_DT_FLAGS_1) or 0) & _DF_1_NOW
    )
    if elf.dynamic and not now:
        yield Found("DT_FLAGS", "DF_BIND_NOW", "none")


@rule(
    "elf-relro-missing",
    "There is no PT_GNU_RELRO",
    why="tables of addresses stay writable after the start, so that an attacker can divert calls",
    fix="link with -Wl,-z,relro",
    kinds=_LINKED,
    needs=("relro",),
)
def relro_missing(check: Check) -> Iterator[Found]:
    """Look for PT_GNU_RELRO where something is relocated."""
    elf = elf_of(check)
    if elf.dynamic and not any(True for _ in elf.segments(0x6474E552)):
        yield Found("PT_GNU_RELRO", "there", "none")


# A39
@rule(
    "elf-data-library-code",
    "A library of constants runs code when it is loaded",
    severity="warning",
    why='whoever loads "just weights" runs the constructors of whatever was linked in',
    fix="link without start files (-nostartfiles), or let emitter write the library itself",
    kinds=("library",),
    needs=("pack",),
)
def data_library_code(check: Check) -> Iterator[Found]:
    """Look for constructors in a library that holds a pack and offers no function."""
    elf = elf_of(check)
    if any(symbol.st_type in (STT_FUNC, STT_GNU_IFUNC) for symbol in exported(check)):
        return
    for name, tag in (
        ("DT_INIT", _DT_INIT), ("DT_FINI", _DT_FINI), ("DT_INIT_ARRAYSZ", _DT_INIT_ARRAYSZ),
        ("DT_FINI_ARRAYSZ", _DT_FINI_ARRAYSZ), ("DT_PREINIT_ARRAYSZ", _DT_PREINIT_ARRAYSZ),
    ):  # fmt: skip
        value = elf.dynamic_value(tag)
        if value:
            yield Found(name, "none", f"{value:#x}")


# A43
@rule(
    "elf-static-tls",
    "A library needs thread-local storage that must be there when the program starts",
    severity="warning",
    why='dlopen fails with "cannot allocate memory in static TLS block" where other libraries have used it up',
    fix="compile without -ftls-model=initial-exec, or link the library to the program",
    kinds=("library",),
)
def static_tls(check: Check) -> Iterator[Found]:
    """Look for DF_STATIC_TLS."""
    flags = elf_of(check).dynamic_value(_DT_FLAGS) or 0
    # The C library's own parts are always there when a program starts.
    if flags & _DF_STATIC_TLS and not file_name(check).startswith(("libc.so", "libc-", "ld-", "libpthread", "libm.so")):
        yield Found("DT_FLAGS", "without DF_STATIC_TLS", f"{flags:#x}")


_R_COPY = {EM_386: 5, EM_X86_64: 5, EM_ARM: 20, EM_AARCH64: 1024, EM_RISCV: 4, EM_PPC64: 19, 22: 9, 258: 4}
_NOTABLE_COPY, _PAYLOAD_COPY = 64 << 10, 1 << 20


# of our own: copies of payloads
@rule(
    "elf-copied-data",
    "A program copies large data out of a library when it starts",
    why="the constants take memory once more in every process, and the library's own code may read the other copy",
    fix="compile the program with -fPIC, or declare the symbol as emitter's header does (nodirect_extern_access)",
    kinds=("executable",),
)
def copied_data(check: Check) -> Iterator[Found]:
    """Look for copy relocations of symbols that are large."""
    from emitter.errors import shown

    elf = elf_of(check)
    copy = _R_COPY.get(elf.ehdr.e_machine)
    if copy is None or not elf.dynamic:
        return
    numbers = {
        reloc.r_sym
        for reloc in elf.relocations()
        if reloc.r_type == copy and (reloc.section < 0 or elf.shdrs[reloc.section].sh_flags & 2)
    }
    if not numbers:
        return
    for table in elf.symbol_tables:
        if table.name == "dynsym":
            for symbol in elf.symbols(table):
                if symbol.number in numbers and symbol.st_size >= _NOTABLE_COPY:
                    # Tables of programs may be copied by choice; what has a megabyte is a payload.
                    severity = None if symbol.st_size >= _PAYLOAD_COPY else "warning"
                    name = shown(symbol.name)[1:-1]
                    yield Found(f"symbol {name}", "no copy", f"{symbol.st_size} bytes are copied", severity)


# A21 and A36 together: what segments say against what relocations do
@rule(
    "elf-relocated-read-only",
    "A dynamic relocation writes into a segment that is not writable",
    why="the loader dies of SIGSEGV when it applies it, unless the file says DT_TEXTREL, which Android refuses",
    fix="compile with -fPIC and link again",
    kinds=_LINKED,
)
def relocated_read_only(check: Check) -> Iterator[Found]:
    """Compare the places of dynamic relocations with the segments around them."""
    elf = elf_of(check)
    # A static program relocates nothing, and one with DT_TEXTREL has a finding already.
    if not elf.dynamic or elf.dynamic_value(_DT_TEXTREL) is not None:
        return
    if (elf.dynamic_value(_DT_FLAGS) or 0) & _DF_TEXTREL:
        return
    read_only = [
        (number, phdr, phdr.p_vaddr, phdr.p_vaddr + phdr.p_memsz)
        for number, phdr in loads(check)
        if not phdr.p_flags & PF_W
    ]
    met: set[int] = set()
    for reloc in elf.relocations():
        if reloc.section > 0 and not elf.shdrs[reloc.section].sh_flags & 2:
            continue  # kept by --emit-relocs: already applied
        if not reloc.r_type:
            continue
        for number, phdr, start, end in read_only:
            if start <= reloc.r_offset < end and number not in met:
                met.add(number)
                where = "code" if phdr.p_flags & PF_X else "read-only data"
                yield Found(segment_name(number, phdr), "no relocations", f"one at {reloc.r_offset:#x}, in {where}")
