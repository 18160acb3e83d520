"""What packages promise of the libraries in them: APK and AAR by folder and storage, wheels by their tags."""

from __future__ import annotations

import re
from itertools import pairwise

from emitter.records import TYPE_CHECKING
from emitter.verify.model import Found, rule
from emitter.verify.rules._elf import EM_386, EM_AARCH64, EM_ARM, EM_RISCV, EM_X86_64, elf_of
from emitter.verify.rules.dependencies import version_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.verify.check import Check
    from emitter.verify.containers import Container

_APK_PAGE = 16384

# The folders of the Android ABIs: (e_machine, 64-bit).
_ANDROID = {
    "arm64-v8a": (EM_AARCH64, True),
    "armeabi-v7a": (EM_ARM, False),
    "armeabi": (EM_ARM, False),
    "x86": (EM_386, False),
    "x86_64": (EM_X86_64, True),
    "riscv64": (EM_RISCV, True),
}


def _container(check: Check, *kinds: str) -> Container | None:
    return next((one for one in check.containers if one.kind in kinds), None)


def _android_abi(container: Container) -> str | None:
    parts = container.member.split("/")
    for folder, abi in pairwise(parts):
        if folder in {"lib", "jni"}:
            return abi
    return None


@rule(
    "android-abi-folder",
    "A library lies in the folder of another ABI",
    why="Android installs the folder of the device's ABI: the library is not there, or is for another CPU",
    fix="put it into lib/ABI (jni/ABI in an AAR) of its own CPU",
    kinds=("library",),
    needs=("container",),
)
def android_abi_folder(check: Check) -> Iterator[Found]:
    """Compare the folder with the machine."""
    container = _container(check, "apk", "aar")
    abi = _android_abi(container) if container else None
    if abi is None:
        return
    elf = elf_of(check)
    actual = (elf.ehdr.e_machine, elf.is_64)
    if abi not in _ANDROID:
        yield Found(f"folder {abi}", f"one of {', '.join(sorted(_ANDROID))}", abi)
    elif _ANDROID[abi] != actual:
        own = next((name for name, facts in _ANDROID.items() if facts == actual), f"machine {elf.ehdr.e_machine}")
        yield Found(f"folder {abi}", own, abi)


# A96
@rule(
    "apk-library-stored",
    "A library is compressed in the APK",
    severity="warning",
    why="it must be unpacked when the app is installed, which takes its space twice; without that it cannot be loaded",
    fix="store it (zip -0; android:extractNativeLibs=false does so), aligned by zipalign -P 16",
    kinds=("library",),
    needs=("container",),
)
def apk_library_stored(check: Check) -> Iterator[Found]:
    """Look at how the member is stored."""
    container = _container(check, "apk")
    if container is not None and _android_abi(container) is not None and not container.stored:
        yield Found("", "stored", "compressed")


# A96
@rule(
    "apk-library-aligned",
    "A stored library does not begin at a page of the APK",
    why="Android maps it out of the APK: dlopen fails on devices with pages of 16 KiB",
    fix="zipalign -P 16 4 IN.apk OUT.apk, before signing",
    kinds=("library",),
    needs=("container",),
)
def apk_library_aligned(check: Check) -> Iterator[Found]:
    """Compare the place of the member's bytes with the largest page, where the ABI has 64 bits."""
    container = _container(check, "apk")
    if container is None or not container.stored or _android_abi(container) is None:
        return
    page = _APK_PAGE if elf_of(check).is_64 else 4096
    if container.data_offset % page:
        yield Found("", f"a multiple of {page}", f"offset {container.data_offset:#x}")


_WHEEL_MACHINES = {
    "x86_64": ("elf", EM_X86_64, True), "i686": ("elf", EM_386, False), "aarch64": ("elf", EM_AARCH64, True),
    "armv7l": ("elf", EM_ARM, False), "armv6l": ("elf", EM_ARM, False), "ppc64le": ("elf", 21, True),
    "s390x": ("elf", 22, True), "riscv64": ("elf", EM_RISCV, True), "loongarch64": ("elf", 258, True),
}  # fmt: skip
_FORMATS = {"macosx": "macho", "ios": "macho", "win32": "pe", "win_amd64": "pe", "win_arm64": "pe"}


def wheel_platforms(name: str) -> list[str]:
    """Return the platform tags in the name of a wheel (PEP 427), or none for another name."""
    parts = name.removesuffix(".whl").split("-")
    return parts[-1].split(".") if name.endswith(".whl") and len(parts) in (5, 6) else []


@rule(
    "wheel-platform",
    "A library in a wheel is not for the platform of its tag",
    why="pip installs the wheel where the tag says, and the import fails there",
    fix="build the wheel on its platform, or give it the right tag (wheel tags, auditwheel repair)",
    formats=("elf", "macho", "pe"),
    kinds=("library", "executable"),
    needs=("container",),
)
def wheel_platform(check: Check) -> Iterator[Found]:
    """Compare format and machine with the tags."""
    container = _container(check, "wheel")
    platforms = wheel_platforms(container.name) if container else []
    if not platforms:
        return
    if platforms == ["any"]:
        yield Found("platform tag", "a platform", "any: such a wheel holds no binary")
        return
    if any(_fits(check, platform) for platform in platforms):
        return
    machine = check.report.identity.machine
    yield Found("platform tag", f"one for {check.format} and {machine}", ", ".join(platforms))


def _fits(check: Check, platform: str) -> bool:
    for prefix, form in _FORMATS.items():
        if platform.startswith(prefix):
            return check.format == form
    if check.format != "elf":
        return not platform.startswith(("linux", "manylinux", "musllinux", "android"))
    elf = elf_of(check)
    for suffix, (_, machine, wide) in _WHEEL_MACHINES.items():
        if platform.endswith(f"_{suffix}"):
            return (machine, wide) == (elf.ehdr.e_machine, elf.is_64)
    return True  # a platform that is not known here


_LEGACY = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}


@rule(
    "wheel-glibc",
    "A library in a wheel needs a newer glibc than its tag promises",
    why='pip installs the wheel on older systems, where the import fails: "version GLIBC_2.34 not found"',
    fix="build in the container of the tag (quay.io/pypa/manylinux...), or let auditwheel choose the tag",
    kinds=("library", "executable"),
    needs=("container",),
)
def wheel_glibc(check: Check) -> Iterator[Found]:
    """Compare the versions of GLIBC symbols with the oldest that the tags promise."""
    container = _container(check, "wheel")
    promised = []
    for platform in wheel_platforms(container.name) if container else []:
        match = re.match(r"manylinux_(\d+)_(\d+)_", platform)
        if match:
            promised.append(f"{match[1]}.{match[2]}")
        elif platform.partition("_")[0] in _LEGACY:
            promised.append(_LEGACY[platform.partition("_")[0]])
    if not promised:
        return
    limit = min(promised, key=version_of)
    for need in elf_of(check).versions_needed:
        for one in need.versions:
            family, _, version = one.name.partition("_")
            if family == "GLIBC" and version[:1].isdigit() and version_of(version) > version_of(limit):
                yield Found(need.file, f"at most GLIBC_{limit}", one.name)


@rule(
    "wheel-musl",
    "A library in a wheel needs another C library than its tag says",
    why="the loader of the platform does not have that library: the import fails",
    fix="build in the container of the tag: musllinux for musl, manylinux for glibc",
    kinds=("library", "executable"),
    needs=("container",),
)
def wheel_musl(check: Check) -> Iterator[Found]:
    """Compare the C library among DT_NEEDED with the tags."""
    container = _container(check, "wheel")
    platforms = wheel_platforms(container.name) if container else []
    needed = elf_of(check).needed
    glibc = "libc.so.6" in needed
    musl = any(name.startswith("libc.musl-") for name in needed)
    if glibc and platforms and all(one.startswith("musllinux") for one in platforms):
        yield Found("DT_NEEDED", "libc.musl-*", "libc.so.6")
    if musl and platforms and all(one.startswith("manylinux") for one in platforms):
        yield Found("DT_NEEDED", "libc.so.6", "libc.musl-*")
