"""The names that people type for targets: parsed, so that spellings need not be listed one by one.

Read, in any case: canonical names; LLVM, GNU, Debian, Rust, Zig, Yocto, RPM and Nix triples (the vendor says nothing
about the target); `uname -m`; Debian's architectures; Android's ABIs; vcpkg's triplets; `linux/arm64` of Docker and Go;
Python's platform tags; `linux-arm64` of .NET, Node and conda; `cortex-m4`; `native`. The version of a C library or of
the system, or an API level, may be part of a name: `aarch64-linux-gnu.2.31`, `aarch64-linux-android24`,
`manylinux_2_17_aarch64`, `arm64-apple-macos13.0`.

The parser knows CPUs and systems, not targets: whether a pair exists is asked of the folder, so a new target needs a
line in `_spellings` only if its CPU or its system is new.
"""

from __future__ import annotations

import os

from emitter.errors import TargetError, shown
from emitter.records import TYPE_CHECKING, NamedTuple
from emitter.targets import _spellings as words
from emitter.targets._spellings import SPELLINGS

if TYPE_CHECKING:
    import re

__all__ = ["SPELLINGS", "canonical_names", "parse", "unknown"]


class _Parts(NamedTuple):
    """What a name says: a CPU as typed, a system, an environment ("" for the usual one), a version."""

    cpu: str
    system: str
    environment: str = ""
    version: str | None = None


class _System(NamedTuple):
    """What the component of a name that says the system says, and the component itself."""

    name: str
    version: str | None
    component: str


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
    if "," in text or len(text.split()) > 1:
        raise unknown(typed)  # a list: vendors may be anything else, and the first CPU would go with the last system
    known = canonical_names()
    if text in known:
        return text, None
    if text == "native":
        text = _native()
    if text in words.AMBIGUOUS:
        raise _ambiguous(typed, words.AMBIGUOUS[text])
    if "universal2" in text:
        raise _universal(typed, text)
    exact = words.EXACT.get(text)
    if isinstance(exact, str):
        return exact, None
    for spelling, name in words.BARE_METAL:
        if _fullmatch(spelling, text):
            return name, None
    parts = _Parts(*exact) if exact else _split(typed, text)
    cpu = _cpu(parts.cpu)
    if cpu is None:
        if _fullmatch(words.OTHER_CPUS, parts.cpu):
            raise _unsupported(typed, f"no target has the CPU {parts.cpu} yet", _of_system(parts.system, known))
        raise unknown(typed)
    name = _compose(cpu, parts)
    if name not in known:
        system = _of_system(parts.system, known)
        first, last = name.split("-")[0], name.split("-")[-1]
        near = [other for other in system if other.startswith(f"{first}-") or other.endswith(f"-{last}")]
        raise _unsupported(typed, f"no target is {name} yet", near or system)
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


def _compose(cpu: str, parts: _Parts) -> str:
    """Return the name that a target of this CPU and system would have."""
    system, environment = parts.system, parts.environment
    if system in ("macos", "ios", "ios-simulator"):
        return f"{'arm64' if cpu == 'aarch64' else cpu}-apple-{system}"
    if system == "windows":
        return f"{cpu}-windows-{environment or 'msvc'}"
    if cpu == "armv7":
        if environment == "gnueabi" and _fullmatch(words.HARD_FLOAT, parts.cpu):
            environment = "gnueabihf"
        environment = {"": "gnueabihf", "android": "androideabi"}.get(environment, environment)
    return f"{cpu}-linux-{environment or 'gnu'}"


def _of_system(system: str, known: list[str]) -> list[str]:
    word = "apple" if system in ("macos", "ios", "ios-simulator") else system
    return [name for name in known if f"-{word}-" in name]


def _ambiguous(typed: str, pattern: str) -> TargetError:
    choices = [name for name in canonical_names() if _fullmatch(pattern, name)]
    if len(choices) == 1:
        return TargetError("unknown target", where=f"target {shown(typed)}", hint=f"did you mean {choices[0]}?")
    return TargetError(
        "the name of a target is ambiguous", where=f"target {shown(typed)}", hint=f"write one of {', '.join(choices)}"
    )


def _universal(typed: str, text: str) -> TargetError:
    """Return the error for Python's tag of files for both CPUs of macOS."""
    found = _fullmatch(r"macosx[-_](\d+)[._](\d+)[-_]universal2", text)
    names = [name + (f"{found[1]}.{found[2]}" if found else "") for name in ("arm64-apple-macos", "x86_64-apple-macos")]
    return TargetError(
        "the name of a target is ambiguous",
        where=f"target {shown(typed)}",
        hint=f"name both: {' '.join(f'--target {name}' for name in names)}",
    )


def _unsupported(typed: str, what: str, choices: list[str]) -> TargetError:
    return TargetError(what, where=f"target {shown(typed)}", hint=f"this version supports {', '.join(choices)}")


def _cpu(text: str) -> str | None:
    return next((cpu for cpu, spelling in words.CPUS.items() if _fullmatch(spelling, text)), None)


def _fullmatch(pattern: str, text: str) -> re.Match[str] | None:
    import re

    return re.fullmatch(pattern, text)


def _split(typed: str, text: str) -> _Parts:
    """Take a name apart by the grammar that its separators show."""
    if "/" in text:
        return _docker(typed, text)
    for tag, system, environment in words.PYTHON_TAGS:
        # Several tags may stand side by side, dots between them; `macosx-11.0-arm64` has one of its own.
        for candidate in (text, text.split(".", maxsplit=1)[0]):
            match = _fullmatch(tag, candidate)
            if match:
                found = match.groupdict()
                numbers = [found[key] for key in ("major", "minor") if found.get(key)]
                version = ".".join(numbers) or words.LEGACY_MANYLINUX.get(found.get("legacy", ""))
                return _Parts(found["cpu"], system, environment, version)
    components = text.replace("x86-64", "x86_64").split("-")
    if "linux" in components or _fullmatch(words.ENVIRONMENT, components[-1]):
        if components[0] == "linux" and len(components) > 1:  # linux-x64, linux-musl-arm64
            rest = components[1:]
            environment = rest.pop(0) if rest[0] == "musl" and len(rest) > 1 else ""
            return _Parts(_short(rest), "linux", environment)
        if not any(_system(component) for component in components):
            return _linux(typed, components)
        if "linux" in components:
            raise unknown(typed)  # two systems
    if components[0] == "android" and len(components) > 1:
        return _Parts("-".join(components[1:]), "linux", "android")
    first = _system(components[0])
    if first and len(components) > 1:  # osx-arm64, win-x64, darwin-arm64
        return _finish(typed, _short(components[1:]), first, [])
    return _other(typed, components)


def _short(components: list[str]) -> str:
    """Return the CPU of a name that begins with its system; conda counts bits."""
    return {"64": "x86_64", "32": "i686"}.get(components[0], "-".join(components))


def _docker(typed: str, text: str) -> _Parts:
    """Read `os/architecture[/variant]`. The architecture `arm` is 32-bit, and its variant the version of the ISA."""
    system, architecture, variant, *more = [*text.split("/"), ""]
    if more and more != [""]:
        raise unknown(typed)
    if architecture == "arm" and variant:
        architecture = "armv8l" if variant == "v8" else f"arm{variant}"
    if system in ("linux", "android"):
        return _Parts(architecture, "linux", "android" if system == "android" else "")
    found = _system(system)
    if found:
        return _finish(typed, architecture, found, [])
    _refuse_system(typed, system)
    raise unknown(typed)


def _take_cpu(components: list[str]) -> tuple[str, list[str]]:
    """Split a name into its CPU, which may have dashes of its own (Yocto's tunes), and the rest."""
    length = next((n for n in range(len(components), 0, -1) if _cpu("-".join(components[:n]))), 1)
    rest = components[length:]
    while rest and rest[-1] in words.VCPKG_SUFFIXES:
        rest.pop()
    return "-".join(components[:length]), rest


def _linux(typed: str, components: list[str]) -> _Parts:
    """Read CPU[-vendor...][-linux][-environment]."""
    cpu, rest = _take_cpu(components)
    if not rest or rest[-1] == "linux":
        return _Parts(cpu, "linux")
    match = _fullmatch(words.ENVIRONMENT, rest[-1])
    # Without `linux` before it only Android is a system of its own.
    if match is None or ("linux" not in rest and not match["name"].startswith("android")):
        raise unknown(typed)
    return _Parts(cpu, "linux", match["name"], match["version"])


def _other(typed: str, components: list[str]) -> _Parts:
    """Read CPU[-vendor...][-system][-more], for every system but Linux. A CPU alone is one under Linux."""
    cpu, rest = _take_cpu(components)
    for component in components:
        if component == "uwp" or _fullmatch("macabi", component):
            _refuse_system(typed, component)
    for number, component in enumerate(rest):
        system = _system(component)
        if system:
            return _finish(typed, cpu, system, rest[number + 1 :])
    if not rest and (_cpu(cpu) or _fullmatch(words.OTHER_CPUS, cpu)):
        return _Parts(cpu, "linux")
    for component in (*rest, *components, *"-".join(components).split("_")):
        _refuse_system(typed, component)
    if any(_fullmatch(words.BARE_METAL_WORDS, component) for component in components):
        raise _unsupported(typed, "no bare-metal target has this name yet", _of_system("none", canonical_names()))
    raise unknown(typed)


def _system(component: str) -> _System | None:
    """Return the system that a component of a name says; None for Linux too."""
    for name, spelling in words.SYSTEMS.items():
        match = _fullmatch(spelling, component)
        if match:
            return _System(name, match.groupdict().get("version"), component)
    return None


def _finish(typed: str, cpu: str, system: _System, behind: list[str]) -> _Parts:
    """Read what stands behind the system, and give the system the name that targets have for it."""
    name, version, component = system
    if name == "windows":
        # MinGW is an environment by itself; gnullvm is it with LLVM's libraries.
        environment = "gnu" if component.startswith("mingw") else ""
        match = _fullmatch(r"(?P<name>msvc|gnu|gnullvm|mingw\w*)(?P<version>\d[\d.]*)?", behind[0]) if behind else None
        if behind and match is None:
            raise unknown(typed)
        if match:
            environment = "msvc" if match["name"] == "msvc" else "gnu"
            version = match["version"]
        return _Parts(cpu, name, environment, version)
    if name == "darwin":
        return _Parts(cpu, "macos", "", version and _darwin_version(typed, version))
    if behind and behind[0] in words.IOS_SIMULATOR and name == "ios":
        return _Parts(cpu, "ios-simulator", "", version)
    if behind and behind != ["none"]:  # Zig's word for no libc
        for component_behind in behind:
            _refuse_system(typed, component_behind)
        raise unknown(typed)
    return _Parts(cpu, name, "", version)


def _darwin_version(typed: str, version: str) -> str:
    """Return the first macOS with the kernel of a version. Its later numbers count updates, not releases of macOS."""
    kernel = int(version.split(".", maxsplit=1)[0][:9])
    if kernel not in words.DARWIN:
        newest = max(words.DARWIN)
        raise TargetError(
            "no macOS is known by this version of Darwin",
            where=f"target {shown(typed)}",
            expected=f"{min(words.DARWIN)} to {newest}",
            actual=version,
            hint="name the version of macOS instead, as in arm64-apple-macos13.0",
        )
    return words.DARWIN[kernel]


def _refuse_system(typed: str, component: str) -> None:
    for beginning, phrase, choices in words.OTHER_SYSTEMS:
        if _fullmatch(rf"(?:{beginning}).*", component):
            known = [name for name in canonical_names() if _fullmatch(choices, name)]
            raise _unsupported(typed, f"{phrase} not supported yet by this version", known)


def _native() -> str:
    """Return a name for the platform that this runs on."""
    import platform
    import sys

    machine = platform.machine().lower()
    if sys.platform == "android" or hasattr(sys, "getandroidapilevel"):
        return f"{machine}-linux-android"
    if sys.platform == "darwin":
        return f"{machine}-apple-macos"
    if sys.platform == "ios":
        simulator = "simulator" in getattr(sys.implementation, "_multiarch", "")
        return f"{machine}-apple-ios{'-simulator' if simulator else ''}"
    if sys.platform == "win32":
        if sys.maxsize < 1 << 32:
            machine = "i686"
        return f"{machine}-windows-{'gnu' if 'GCC' in sys.version else 'msvc'}"
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
