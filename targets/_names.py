"""The names that people type for targets: parsed, so that spellings need not be listed one by one.

Read, in any case: canonical names; LLVM, GNU, Debian, Rust, Zig, Yocto, RPM and Nix triples (the vendor says nothing
about Linux); `uname -m`; Debian's architectures; Android's ABIs; vcpkg's triplets; `linux/arm64` of Docker and Go;
Python's platform tags; `linux-arm64` of .NET, Node and conda; `native`. The version of a C library or an API level may
be part of a name: `aarch64-linux-gnu.2.31`, `aarch64-linux-android24`, `manylinux_2_17_aarch64`.

The parser knows CPUs and C libraries, not targets: whether a pair exists is asked of the folder, so a new target needs
a line here only if its CPU is new.
"""

from __future__ import annotations

import os

from emitter.errors import TargetError, shown
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import re

__all__ = ["SPELLINGS", "canonical_names", "parse", "unknown"]

# Regular expressions are kept as text, and `re` is imported by who uses it: a canonical name needs neither.

# CPU, as the targets call it: how it is spelled, in full.
_CPUS = {
    "x86_64": r"x86_64([-_]?v[1-4])?|x64|amd64|intel64|core2-64|corei7-64|skylake-64",
    "aarch64": r"aarch64|arm64|arm64[-_]v8a?|armv[89](-\d)?a(-\w+)*|neoverse-?\w+"
    r"|cortexa(3[45]|5[357]|65|7[235678]|510|520|7[12]\d)(-\w+)*",
    # `arm` alone is too little to go by, see _AMBIGUOUS. The tunes of Yocto that end in hf, with their FPUs after it.
    "armv7": r"arm|armhf|armv7|armv7-?a|armv7[lr]|armv7h(l|nl|f)?|armv8l|thumbv7(a|neon)?"
    r"|(armv7[avet2]*|cortexa(5|7|8|9|1[257]))t?2?hf(-\w+)*",
    "riscv64": r"riscv64(g|gc|imafdc|a2[23]\w*)?|rv64gc",
    "i686": r"i[3-6]86|x86|x86_32|ia32|386|core2-32|corei7-32",
    "s390x": r"s390x",
    "powerpc64le": r"powerpc64le|ppc64le|ppc64el|powerpc64el",
    "loongarch64": r"loongarch64|loong64",
}
# A spelling of these says hard float, whatever the rest of the triple says: Yocto and Fedora write gnueabi after it.
_HARD_FLOAT = r"armhf|armv7h\w*|(armv7|cortexa)[^-]*hf(-.*)?"

_OTHER_CPUS = (
    r"aarch64_be|arm64_32|arm64e\w*|armv[3-6]\w*|armeb\w*|armel|armv[67]e?-?m|armv8[-_.]?[mr]\w*|thumb\w*|cortex-?[mr]\w+"
    r"|mips\w*|sparc\w*|riscv32\w*|rv32\w*|powerpc|powerpc64|ppc|ppc64|s390|loongarch32|loong32|wasm\w*|nvptx\w*|amdgcn"
    r"|hexagon|xtensa|avr|msp430|m68k|alpha|hppa|ia64|sh4|csky|arc|bpf\w*"
)

_OTHER_SYSTEMS = (  # how a component of a name begins, and what to call it
    (r"apple|darwin|mac|osx|ios|iphone|tvos|watchos|visionos|xros", "Apple's systems are"),
    (r"win|mingw|msvc|cygwin|uwp|w64", "Windows is"),
    (r"freebsd|netbsd|openbsd|dragonfly|solaris|illumos|aix|haiku|fuchsia|nto|qnx|vxworks|zephyr|hurd|kfreebsd",
     "this system is"),
    (r"wasi|emscripten|wasm", "WebAssembly is"),
    (r"none|elf|eabi|unknown_none|baremetal", "bare metal is"),
)  # fmt: skip

_DEFAULT_ENVIRONMENT = {"armv7": "gnueabihf"}

# Exact names: a canonical name, or a (CPU, environment) whose target may not exist.
_EXACT: dict[str, str | tuple[str, str]] = {
    "arm64-v8a": ("aarch64", "android"),
    "armeabi-v7a": ("armv7", "androideabi"),
    "armeabi": ("armv7", "androideabi"),
    "cuda-host-x86_64": "cuda-host",
    "cuda-host-arm64": "cuda-host-aarch64",
    # The first three are NVIDIA's names for 64-bit Arm servers.
    "sbsa": "cuda-host-aarch64",
    "sbsa-linux": "cuda-host-aarch64",
    "linux-sbsa": "cuda-host-aarch64",
    "jetson": "cuda-host-aarch64",
    "grace": "cuda-host-aarch64",
}

# Names that say too little, and what the names of the choices match.
_AMBIGUOUS = {
    "arm": r"armv7-.*|aarch64-linux-gnu",
    "linux": r".*-linux-.*",
    "gnu": r".*-gnu\w*",
    "glibc": r".*-gnu\w*",
    "musl": r".*-musl",
    "android": r".*-android",
    "cuda": r"cuda-.*",
    "riscv": r"riscv.*",
    "ppc": r"powerpc.*",
    "powerpc": r"powerpc.*",
    "loongarch": r"loongarch.*",
    "s390": r"s390.*",
}

# Every environment that is met with Linux, so that one without a target is told from a misspelt one.
_ENVIRONMENT = (
    r"(?P<name>gnux32|gnuabi(?:n32|64)|gnu(?:eabi(?:hf)?|sf|f32|_ilp32|llvm)?|musl(?:eabi(?:hf)?|abi(?:n32|64)|x32|sf|f32)?"
    r"|android(?:eabi)?|uclibc(?:eabi(?:hf)?)?|ohos)(?:\.?(?P<version>\d+(?:\.\d+)*))?"
)
_PYTHON_TAGS = (
    (r"manylinux_(?P<major>\d+)_(?P<minor>\d+)_(?P<cpu>\w+)", "gnu"),
    (r"manylinux(?P<legacy>1|2010|2014)_(?P<cpu>\w+)", "gnu"),
    (r"musllinux_(?P<major>\d+)_(?P<minor>\d+)_(?P<cpu>\w+)", "musl"),
    (r"android_(?P<major>\d+)_(?P<cpu>\w+)", "android"),
    (r"linux_(?P<cpu>\w+)", ""),
)
_LEGACY_MANYLINUX = {"1": "2.5", "2010": "2.12", "2014": "2.17"}
_VCPKG_SUFFIXES = frozenset({"dynamic", "static", "release"})

# Spellings that `emitter targets NAME` shows beside a target's name.
SPELLINGS = (
    "aarch64", "aarch64-poky-linux", "aarch64-unknown-linux-gnu", "aarch64-unknown-linux-musl", "amd64",
    "arm-linux-gnueabihf", "arm64", "arm64-android", "arm64-linux", "arm64-v8a", "armhf",
    "armv7-unknown-linux-gnueabihf", "armv7l", "i386", "i386-linux-gnu", "i686", "jetson", "linux/386", "linux/amd64",
    "linux/arm/v7", "linux/arm64", "linux/ppc64le", "linux/riscv64", "linux/s390x", "loong64",
    "manylinux_2_28_aarch64", "manylinux_2_28_x86_64", "musllinux_1_2_aarch64", "musllinux_1_2_x86_64", "ppc64el",
    "ppc64le", "riscv64", "riscv64gc-unknown-linux-gnu", "s390x", "sbsa-linux", "x64-linux", "x86-linux-gnu",
    "x86_64", "x86_64-unknown-linux-gnu", "x86_64-unknown-linux-musl",
)  # fmt: skip


class _Parts(NamedTuple):
    """What a name says: a CPU as typed, an environment ("" for the usual one), a version."""

    cpu: str
    environment: str
    version: str | None = None


def canonical_names() -> list[str]:
    """Return the names of the targets, which are the files of this folder, sorted."""
    stems = {
        os.path.splitext(entry)[0]
        for entry in os.listdir(os.path.dirname(__file__))
        if entry.endswith((".py", ".pyc")) and not entry.startswith("_")
    }
    return sorted(stem.replace("_", "-").replace("x86-64", "x86_64") for stem in stems)


def parse(typed: str) -> tuple[str, str | None]:
    """Return the canonical name that `typed` stands for, and the version in it.

    Raises TargetError.
    """
    text = typed.strip().lower()
    known = canonical_names()
    if text in known:
        return text, None
    if text == "native":
        text = _native()
    if text in _AMBIGUOUS:
        raise _ambiguous(typed, text)
    exact = _EXACT.get(text)
    if isinstance(exact, str):
        return exact, None
    parts = _Parts(*exact) if exact else _split(typed, text)
    cpu = _cpu(parts.cpu)
    if cpu is None:
        if _fullmatch(_OTHER_CPUS, parts.cpu):
            raise _unsupported(typed, f"no target has the CPU {parts.cpu} yet", known)
        raise unknown(typed)
    environment = parts.environment or _DEFAULT_ENVIRONMENT.get(cpu, "gnu")
    if environment == "gnueabi" and _fullmatch(_HARD_FLOAT, parts.cpu):
        environment = "gnueabihf"
    name = f"{cpu}-linux-{environment}"
    if name not in known:
        near = [other for other in known if other.startswith(f"{cpu}-") or other.endswith(f"-{environment}")]
        raise _unsupported(typed, f"no target is {name} yet", near or known)
    return name, parts.version


def unknown(typed: str) -> TargetError:
    """Return the error for a name that nothing is known about."""
    from difflib import get_close_matches

    known = canonical_names()
    # A name that is nearer to a spelling than to a name is answered with the spelling: it is what the user writes.
    near = get_close_matches(typed.lower(), [*known, *SPELLINGS], n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(near)}?" if near else f"the targets are {', '.join(known)}"
    if "," in typed or " " in typed.strip():
        hint = "name one target; several are named by several --target"
    return TargetError("unknown target", where=f"target {shown(typed)}", hint=hint)


def _ambiguous(typed: str, text: str) -> TargetError:
    choices = [name for name in canonical_names() if _fullmatch(_AMBIGUOUS[text], name)]
    if len(choices) == 1:
        return TargetError("unknown target", where=f"target {shown(typed)}", hint=f"did you mean {choices[0]}?")
    return TargetError(
        "the name of a target is ambiguous", where=f"target {shown(typed)}", hint=f"write one of {', '.join(choices)}"
    )


def _unsupported(typed: str, what: str, choices: list[str]) -> TargetError:
    return TargetError(what, where=f"target {shown(typed)}", hint=f"this version supports {', '.join(choices)}")


def _cpu(text: str) -> str | None:
    return next((cpu for cpu, spelling in _CPUS.items() if _fullmatch(spelling, text)), None)


def _fullmatch(pattern: str, text: str) -> re.Match[str] | None:
    import re

    return re.fullmatch(pattern, text)


def _split(typed: str, text: str) -> _Parts:
    """Take a name apart by the grammar that its separators show."""
    if "/" in text:
        return _docker(typed, text)
    for tag, environment in _PYTHON_TAGS:
        # Several tags may stand side by side, dots between them.
        match = _fullmatch(tag, text.split(".", maxsplit=1)[0])
        if match:
            found = match.groupdict()
            numbers = [found[key] for key in ("major", "minor") if found.get(key)]
            version = ".".join(numbers) or _LEGACY_MANYLINUX.get(found.get("legacy", ""))
            return _Parts(found["cpu"], environment, version)
    components = text.replace("x86-64", "x86_64").split("-")
    for component in (*components, *text.split("_")):
        if component == "apple" or "linux" not in components:  # any other vendor may be called what it likes
            _refuse_system(typed, component)
    if components[0] in ("linux", "android") and len(components) > 1:  # linux-x64, linux-musl-arm64, android-arm64
        rest = components[1:]
        environment = rest.pop(0) if rest[0] == "musl" and len(rest) > 1 else ""
        cpu = {"64": "x86_64", "32": "i686"}.get(rest[0], "-".join(rest))  # conda's names
        return _Parts(cpu, "android" if components[0] == "android" else environment)
    return _triple(typed, components)


def _docker(typed: str, text: str) -> _Parts:
    """Read `os/architecture[/variant]`. The architecture `arm` is 32-bit, and its variant the version of the ISA."""
    system, architecture, variant, *more = [*text.split("/"), ""]
    _refuse_system(typed, system)
    if system not in ("linux", "android") or (more and more != [""]):
        raise unknown(typed)
    if architecture == "arm" and variant:
        architecture = "armv8l" if variant == "v8" else f"arm{variant}"
    return _Parts(architecture, "android" if system == "android" else "")


def _triple(typed: str, components: list[str]) -> _Parts:
    """Read CPU[-vendor...][-linux][-environment], where a CPU may have dashes of its own (Yocto's tunes)."""
    length = next((n for n in range(len(components), 0, -1) if _cpu("-".join(components[:n]))), 1)
    cpu, rest = "-".join(components[:length]), components[length:]
    while rest and rest[-1] in _VCPKG_SUFFIXES:
        rest.pop()
    if not rest or rest[-1] == "linux":
        return _Parts(cpu, "")
    match = _fullmatch(_ENVIRONMENT, rest[-1])
    # Without `linux` before it only Android is a system of its own.
    if match is None or ("linux" not in rest and not match["name"].startswith("android")):
        raise unknown(typed)
    return _Parts(cpu, match["name"], match["version"])


def _refuse_system(typed: str, component: str) -> None:
    for beginning, phrase in _OTHER_SYSTEMS:
        if _fullmatch(rf"(?:{beginning}).*", component):
            raise _unsupported(typed, f"{phrase} not supported yet by this version", canonical_names())


def _native() -> str:
    """Return a name for the platform that this runs on."""
    import platform
    import sys

    machine = platform.machine().lower()
    if sys.platform == "android" or hasattr(sys, "getandroidapilevel"):
        return f"{machine}-linux-android"
    if not sys.platform.startswith("linux"):
        raise TargetError(
            "the host is not a target", where="target 'native'", actual=f"{sys.platform} on {machine}",
            hint="name the target; `emitter targets` lists them",
        )  # fmt: skip
    if sys.maxsize < 1 << 32:  # a 32-bit program, perhaps on a 64-bit kernel
        machine = {"x86_64": "i686", "amd64": "i686", "aarch64": "armv7l"}.get(machine, machine)
    return f"{machine}-linux-musl" if _is_musl() else f"{machine}-linux"


def _is_musl() -> bool:
    try:
        return not os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):  # the name is glibc's
        return True
