"""Mach-O: objects, dylibs, bundles and programs for Apple's systems, and the universal files that hold several."""

from __future__ import annotations

from typing import cast

from emitter.errors import shown
from emitter.inspect import macho_names as names
from emitter.records import TYPE_CHECKING
from emitter.verify.model import Found, rule
from emitter.verify.rules._elf import file_name
from emitter.verify.rules.dependencies import BUILD_FOLDERS, version_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.inspect.macho import MachOFile
    from emitter.verify.check import Check

_MACHO = ("macho",)
_LINKED = ("library", "executable")
_PAGE = {names.CPU_ARCH_ABI64 | 12: 16384, names.CPU_ARCH_ABI64_32 | 12: 16384}  # arm64; all others have 4096
_WRITE, _EXECUTE = 2, 4
_MAX_ALIGN = 15
_ZEROFILL = (names.S_ZEROFILL, names.S_GB_ZEROFILL, names.S_THREAD_LOCAL_ZEROFILL)


def macho_of(check: Check) -> MachOFile:
    """Return the reader of a check whose format is Mach-O."""
    return cast("MachOFile", check.reader)


def is_arm64(check: Check) -> bool:
    """Return whether the file is for Apple silicon."""
    return macho_of(check).header.cputype in _PAGE


# A74
@rule(
    "macho-machine",
    "The file is for another CPU",
    why='dyld says "incompatible architecture", a linker ignores the file with a warning',
    fix="build it for the target: clang -arch, or --target of emitter",
    formats=_MACHO,
    needs=("target",),
)
def machine(check: Check) -> Iterator[Found]:
    """Compare cputype and cpusubtype with the target's."""
    wanted = check.target.macho if check.target is not None else None
    header = macho_of(check).header
    if wanted is None:
        return
    facts = [(one, sub & ~names.CPU_SUBTYPE_MASK) for one, sub in (
        (wanted.cputype, wanted.cpusubtype), (header.cputype, header.cpusubtype)
    )]  # fmt: skip
    # An object for the general subtype may be linked into one for a newer processor, and the other way round not.
    if facts[0] != facts[1]:
        yield Found("cputype", names.cpu_name(*facts[0]), macho_of(check).machine)


# A74
@rule(
    "macho-file-type",
    "The type in the header is not what the name promises",
    why="a linker refuses a library that is a bundle, and dlopen a file that is an object",
    fix="name the file for what it is, or link it with -dynamiclib",
    formats=_MACHO,
)
def file_type(check: Check) -> Iterator[Found]:
    """Compare filetype with the suffix."""
    name, actual = file_name(check), macho_of(check).header.filetype
    wanted = {".dylib": names.MH_DYLIB, ".o": names.MH_OBJECT}.get(name[name.rfind(".") :])
    if wanted is not None and actual not in (wanted, names.MH_DYLIB_STUB):
        yield Found("filetype", names.FILE_TYPES[wanted], names.FILE_TYPES.get(actual, f"{actual:#x}"))


@rule(
    "macho-universal",
    "A universal file holds two slices for one CPU",
    why="which of them is loaded differs from system to system",
    fix="make it again with lipo -create of one file for each CPU",
    formats=("archive",),
)
def universal(check: Check) -> Iterator[Found]:
    """Compare the slices of a universal file."""
    if "universal" not in check.reader.kind:
        return
    met: set[str] = set()
    for member in check.members:
        if member.name in met:
            yield Found(f"slice {member.name}", "once", "twice")
        met.add(member.name)


# A75, B26, B57
@rule(
    "macho-build-version",
    "The file does not say for which system and version it is, or says another one",
    why='linkers say "no platform load command found" (an error with -fatal_warnings); dyld refuses other platforms',
    fix="name the version in the target: arm64-apple-macos11.0 (clang -mmacosx-version-min)",
    formats=_MACHO,
    kinds=("object", "library", "executable"),
)
def build_version(check: Check) -> Iterator[Found]:
    """Compare LC_BUILD_VERSION (or LC_VERSION_MIN_*) with the target's platform and the oldest system."""
    versions = macho_of(check).build_versions
    if not versions:
        # Before 2018 there was none in objects, and systems on Intel still take them.
        severity = None if is_arm64(check) or check.judged else "warning"
        yield Found("LC_BUILD_VERSION", "there", "none", severity)
        return
    wanted = check.target.macho if check.target is not None and check.judged else None
    if wanted is not None and all(one.platform != wanted.platform for one in versions):
        actual = ", ".join(_platform(one.platform) for one in versions)
        yield Found("platform", _platform(wanted.platform), actual)
        return
    limit = check.profile.get("minimum-os") or check.version
    for one in versions:
        text = names.version_text(one.minos)
        if limit is not None and version_of(text) > version_of(limit):
            yield Found("minos", f"at most {limit}", text)


def _platform(number: int) -> str:
    return names.PLATFORMS.get(number, f"platform {number}")


# A76, B27
@rule(
    "macho-signature-missing",
    "A file for Apple silicon has no signature, or it is not the last thing in the file",
    why="the kernel kills the process (SIGKILL, Code Signature Invalid), dlopen refuses the library",
    fix="sign it last: codesign -s - FILE on a Mac, rcodesign anywhere; emitter signs what it writes",
    formats=_MACHO,
    kinds=_LINKED,
)
def signature_missing(check: Check) -> Iterator[Found]:
    """Look for LC_CODE_SIGNATURE, and where it ends."""
    macho = macho_of(check)
    signature = macho.signature
    if signature is None:
        if is_arm64(check):
            yield Found("LC_CODE_SIGNATURE", "there", "none")
        return
    linkedit = next((one for one in macho.segments if one.segname == "__LINKEDIT"), None)
    end = signature.dataoff + signature.datasize
    if linkedit is None or end != linkedit.fileoff + linkedit.filesize:
        expected = "no __LINKEDIT" if linkedit is None else f"{linkedit.fileoff + linkedit.filesize:#x}"
        yield Found("LC_CODE_SIGNATURE", f"an end at that of __LINKEDIT, {expected}", f"{end:#x}")


# A77, B27
@rule(
    "macho-signature",
    "The signature does not fit the bytes of the file",
    why="the file was edited after it was signed: the kernel kills the process when it touches the page",
    fix="sign it again, after the last tool that changes it (install_name_tool, strip, lief)",
    formats=_MACHO,
    kinds=_LINKED,
)
def signature(check: Check) -> Iterator[Found]:
    """Compute the hash of every page, and of every blob that the signature covers."""
    from emitter.inspect.macho_signature import read_signature, verify_signature

    macho = macho_of(check)
    if macho.signature is None:
        return
    found = read_signature(macho)
    for fault in verify_signature(macho):
        pages = f"pages {fault.first_page} to {fault.last_page}" if fault.first_page < fault.last_page else ""
        page = f"page {fault.first_page}" if fault.first_page >= 0 and not pages else pages
        yield Found(page or "signature", fault.expected, f"{fault.what}: {fault.actual}")
    if found is not None and all(one.hashType == 1 for one in found.directories):
        yield Found("CodeDirectory", "SHA-256", "SHA-1 alone", "warning")


# A78, B28
@rule(
    "macho-segments",
    "Segments do not begin at pages, or are not in the order that dyld asks for",
    why='dyld refuses the file: "segment not page-aligned", "__LINKEDIT must be last segment"',
    fix="link it again; a tool that added a segment did not move __LINKEDIT behind it",
    formats=_MACHO,
    kinds=_LINKED,
)
def segments(check: Check) -> Iterator[Found]:
    """Look at the place of every segment."""
    macho = macho_of(check)
    page = _PAGE.get(macho.header.cputype, 4096)
    last = max(macho.segments, key=lambda one: one.fileoff, default=None)
    for one in macho.segments:
        subject = f"segment {shown(one.segname)[1:-1]}"
        if one.vmaddr % page or (one.filesize and one.fileoff % page):
            actual = f"vmaddr {one.vmaddr:#x}, fileoff {one.fileoff:#x}"
            yield Found(subject, f"multiples of {page}", actual)
        if one.fileoff + one.filesize > check.view.size:
            end = f"{one.fileoff + one.filesize:#x}"
            yield Found(subject, f"an end of at most {check.view.size:#x}", end)
        if one.filesize > one.vmsize:
            yield Found(subject, f"filesize of at most {one.vmsize:#x}", f"{one.filesize:#x}")
        if one.segname == "__LINKEDIT" and last is not None and one.fileoff < last.fileoff:
            yield Found(subject, "the last in the file", f"{shown(last.segname)[1:-1]} is behind it")
        if one.segname == "__TEXT" and (one.fileoff or not one.filesize):
            yield Found(subject, "the start of the file, with the header", f"fileoff {one.fileoff:#x}")


@rule(
    "macho-segment-writable-code",
    "A segment is writable and executable",
    why="Apple silicon refuses to map it",
    fix="link it again without -segprot, and keep code out of __DATA",
    formats=_MACHO,
    kinds=_LINKED,
)
def writable_code(check: Check) -> Iterator[Found]:
    """Look at initprot of every segment."""
    for one in macho_of(check).segments:
        if one.initprot & _WRITE and one.initprot & _EXECUTE:
            yield Found(f"segment {shown(one.segname)[1:-1]}", "not both W and X", f"initprot {one.initprot:#x}")


# A80, B24
@rule(
    "macho-section-place",
    "The file offset of a section does not fit its address",
    why="offsets of sections have 32 bits: beyond 4 GiB they are cut, and tools and linkers read other bytes",
    fix="keep the file below 4 GiB: split the model, or put the payload into a file of its own",
    formats=_MACHO,
    kinds=("object", "library", "executable"),
)
def section_place(check: Check) -> Iterator[Found]:
    """Compare the offset of each section with that of its segment."""
    for segment in macho_of(check).segments:
        for section in segment.sections:
            if not section.size or section.type in _ZEROFILL:
                continue
            expected = segment.fileoff + section.addr - segment.vmaddr
            if expected != section.offset:
                subject = f"section {section.segname},{section.sectname}"
                yield Found(subject, f"offset {expected:#x}", f"{section.offset:#x}")
            elif section.offset + section.size > check.view.size:
                yield Found(
                    f"section {section.segname},{section.sectname}",
                    f"an end of at most {check.view.size:#x}",
                    f"{section.offset + section.size:#x}",
                )


# A81
@rule(
    "macho-install-name",
    "A library is named, or looked for, in a place that the device does not have",
    why='the program does not start: "Library not loaded"',
    fix="link with -install_name @rpath/NAME; change others with install_name_tool, and sign again",
    formats=_MACHO,
    kinds=_LINKED,
)
def install_name(check: Check) -> Iterator[Found]:
    """Look at LC_ID_DYLIB, LC_LOAD_DYLIB and LC_RPATH."""
    macho = macho_of(check)
    if macho.header.filetype == names.MH_DYLIB and macho.install_name is None:
        yield Found("LC_ID_DYLIB", "there", "none")
    for one in macho.dylibs:
        command = "LC_ID_DYLIB" if one.cmd == names.LC_ID_DYLIB else "LC_LOAD_DYLIB"
        if one.name.startswith(BUILD_FOLDERS):
            yield Found(command, "@rpath/NAME, or a path of the system", one.name)
        elif not one.name.startswith(("@", "/")):
            yield Found(command, "@rpath/NAME, or a path of the system", one.name, "warning")
    for path in macho.rpaths:
        if path.startswith(BUILD_FOLDERS):
            yield Found("LC_RPATH", "@loader_path or @executable_path", path)


# A83
@rule(
    "macho-section-alignment",
    "A section asks for more alignment than Mach-O knows",
    why="linkers refuse it, or place it wrongly",
    fix="ask for at most 32768 bytes",
    formats=_MACHO,
)
def section_alignment(check: Check) -> Iterator[Found]:
    """Look at the exponent of every section's alignment."""
    for one in macho_of(check).sections:
        if one.align > _MAX_ALIGN:
            yield Found(f"section {one.segname},{one.sectname}", f"2^{_MAX_ALIGN} at most", f"2^{one.align}")


# A72
@rule(
    "macho-uuid",
    "The file has no LC_UUID",
    why="nobody can tell which build is on a device; crash reports find no symbols, and newer systems refuse it",
    fix="link without -no_uuid",
    formats=_MACHO,
    kinds=_LINKED,
)
def uuid(check: Check) -> Iterator[Found]:
    """Look for LC_UUID with something in it."""
    found = macho_of(check).uuid
    if found is None:
        yield Found("LC_UUID", "there", "none", "warning")
    elif not any(found):
        yield Found("LC_UUID", "a hash of the content", "zeros", "warning")
