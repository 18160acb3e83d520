"""Speaks to linkers: what each kind is told, and what it says when it refuses."""

from __future__ import annotations

import os
import re
import signal

from emitter.errors import InputError, OutputError, TargetError
from emitter.layout import BUILD_ID_SIZE
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from emitter.link.find import Flavour, Linker
    from emitter.targets._base import Target

__all__ = ["PLATFORMS", "Request", "link"]

_SECONDS = 3600
_SHOWN_LINES = 8

# Apple's names of LC_BUILD_VERSION's platforms, as -platform_version and .tbd files have them.
PLATFORMS = {1: "macos", 2: "ios", 7: "ios-simulator"}
_MACHINES = {0x8664: "x64", 0xAA64: "arm64", 0x14C: "x86"}

# What ELF linkers say of code that only a program can hold.
_NOT_PIC = ("recompile with -fPIC", "cannot be used with -shared", "recompile with '-fPIC'")
_FOR_A_PROGRAM = "the code was compiled for a program: compile it with -fPIC"

_UNDEFINED = re.compile(r"undefined (?:symbol|reference)(?:: | to )[`'\"]?([\w.$@?]+)")


class Request(NamedTuple):
    """A library to be linked, or (`relocatable`) objects to be joined. All are paths but `name` and the exports.

    `name` is DT_SONAME or the install name. `libraries` are linked if something needs them. `exports` are the names of
    functions, `data` those of variables, as C has them; nothing else is to be seen.
    """

    output: str
    folder: str  # for what linkers want to read and write beside
    objects: Sequence[str]
    libraries: Sequence[str]
    name: str
    exports: Sequence[str]
    data: Sequence[str]
    relocatable: bool = False
    undefined: bool = False  # whether names may stay without a definition
    script: str | None = None  # a linker script to be added
    version_script: str | None = None  # the user's, in place of the one that the exports make


def link(linker: Linker, target: Target, request: Request) -> None:
    """Run the linker. Raises TargetError if it cannot be run, InputError with its words if it refuses."""
    import subprocess

    from emitter.processes import run

    program, *first = linker.command
    speak = _SPEAK[target.object_format, linker.flavour]
    # It runs in its folder, to which a path that was given does not refer; and LLD takes % in a path for its own.
    inside = request._replace(output=os.path.join(".", os.path.relpath(request.output, request.folder)))
    command = [os.path.abspath(program), *first, *speak(target, linker.flavour, inside)]
    # Words in English, no time stamps of today, nothing that adds options, and no caches elsewhere.
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in {"LD_RUN_PATH", "LD_LIBRARY_PATH", "LDEMULATION", "LINK", "_LINK_", "LLD_REPRODUCE", "MOLD_JOBS"}
    }
    environment |= {"LC_ALL": "C", "SOURCE_DATE_EPOCH": "0", "ZERO_AR_DATE": "1"}
    environment |= dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), request.folder)
    try:
        done = run(command, seconds=_SECONDS, folder=request.folder, environment=environment)
    except OSError as error:
        raise TargetError(f"the linker cannot be run: {error.strerror or error}", where=linker.name) from error
    except subprocess.TimeoutExpired as error:
        raise TargetError("the linker did not come to an end", where=linker.name) from error
    words = (done.stdout + done.stderr).decode(errors="replace").replace(f"{request.folder}{os.sep}", "")
    if done.returncode:
        names = list(dict.fromkeys(_UNDEFINED.findall(words)))
        if names:
            raise InputError(
                "undefined symbols",
                where=linker.name,
                actual=", ".join(names),
                hint="give the code that defines them, -l for a library that does, or --allow-undefined NAME",
            )
        lines = [line.strip() for line in words.splitlines() if line.strip()]
        if done.returncode == -getattr(signal, "SIGBUS", 0) or "No space left" in words:
            raise OutputError(
                "no space left for the linker's output",
                where=os.path.dirname(request.folder),
                hint="free some space, or write to another file system",
            )
        raise InputError(
            f"the linker refuses (exit status {done.returncode}): {' | '.join(lines[:_SHOWN_LINES]) or 'no word'}",
            where=linker.name,
            hint=_FOR_A_PROGRAM if any(sign in words for sign in _NOT_PIC) else None,
        )
    if not os.path.exists(request.output):
        raise OutputError(f"the linker has written nothing, and said: {words.strip() or 'no word'}", where=linker.name)


def _elf(target: Target, flavour: Flavour, request: Request) -> list[str]:
    if request.relocatable:
        return ["-r", "-o", request.output, *request.objects]
    script = request.version_script
    if script is None:
        names = [*request.exports, *request.data]
        listed = " ".join(f'"{name}";' for name in names)  # quoted, no character has a meaning
        script = _write(request, "exports.map", f"{{ global: {listed} local: *; }};\n")
    page = f"max-page-size={target.max_page_size}"
    arguments = ["-shared", "-o", request.output, "-soname", request.name, f"--version-script={script}"]
    arguments += ["-z", "noexecstack", "-z", "relro", "-z", "now", "-z", page, "--hash-style=both"]
    # Room for the build id that is made of what was linked, without reading the payload again.
    arguments.append(f"--build-id=0x{'00' * BUILD_ID_SIZE}")
    arguments += ["--eh-frame-hdr", "--no-undefined-version"]
    # GNU ld ends what is read-only after relocation at such a page; LLD before 17 would let it end beyond the segment.
    if flavour == "gnu":
        arguments += ["-z", f"common-page-size={target.max_page_size}"]
    if not request.undefined:
        arguments += ["-z", "defs"]
    if request.script is not None:
        if flavour == "mold":
            raise TargetError(
                "mold reads no linker scripts, and the payload is too far for what it makes without",
                where=target.name,
                hint="name another --linker, or reach the pack through its descriptor: docs/code.md",
            )
        arguments += ["-T", request.script]
    return [*arguments, *request.objects, "--as-needed", *request.libraries]


def _macho(target: Target, _flavour: Flavour, request: Request) -> list[str]:
    facts = target.macho
    if facts is None or request.relocatable:
        raise _no_objects_for_apple("LLD", target)
    names = "".join(f"_{name}\n" for name in (*request.exports, *request.data))
    exported = _write(request, "exports.txt", names)
    arguments = ["-dylib", "-arch", target.llvm_triple.partition("-")[0]]
    arguments += ["-platform_version", PLATFORMS[facts.platform], facts.minos, facts.sdk, "-adhoc_codesign", "-S"]
    arguments += ["-install_name", request.name, "-exported_symbols_list", exported, "-o", request.output]
    if request.undefined:
        arguments += ["-undefined", "dynamic_lookup"]
    return [*arguments, *request.objects, *request.libraries]


def _zig_macho(target: Target, _flavour: Flavour, request: Request) -> list[str]:
    """Speak to `zig cc`, whose linker exports what is not hidden, whatever it is told."""
    facts = target.macho
    if facts is None or request.relocatable:
        raise _no_objects_for_apple("zig", target)
    system, _, simulator = PLATFORMS[facts.platform].partition("-")
    cpu = target.llvm_triple.partition("-")[0].replace("arm64", "aarch64")
    triple = f"{cpu}-{system}.{facts.minos}" + (f"-{simulator}" if simulator else "")
    arguments = ["-target", triple, "-shared", "-nostdlib", "-o", request.output]
    arguments += ["-install_name", request.name]
    if request.undefined:
        arguments.append("-Wl,-undefined,dynamic_lookup")
    return [*arguments, *request.objects, *request.libraries]


def _no_objects_for_apple(linker: str, target: Target) -> TargetError:
    return TargetError(
        f"{linker} joins no objects for Apple's systems", where=target.name, hint="leave out --linker: it needs none"
    )


def _link(target: Target, _flavour: Flavour, request: Request) -> list[str]:
    facts = target.coff
    if facts is None or request.relocatable:
        raise _no_objects(target)
    # Pages of the file are then pages in memory, which are mapped and not read.
    arguments = [
        "/nologo",
        "/dll",
        "/noentry",
        "/nodefaultlib",
        "/Brepro",
        "/filealign:4096",
        f"/machine:{_MACHINES[facts.machine]}",
    ]
    arguments += [f"/out:{request.output}", "/implib:unused.lib"]
    arguments += ["/nxcompat", "/dynamicbase"] + (["/highentropyva"] if target.pointer_width == 64 else [])
    arguments += [f"/export:{name}" for name in request.exports] + [f"/export:{name},DATA" for name in request.data]
    if request.undefined:
        arguments.append("/force:unresolved")
    return [*arguments, *request.objects, *request.libraries]


def _gnu_pe(target: Target, _flavour: Flavour, request: Request) -> list[str]:
    if request.relocatable:
        return ["-r", "-o", request.output, *request.objects]
    lines = [f"  {name}" for name in request.exports] + [f"  {name} DATA" for name in request.data]
    definition = _write(request, "exports.def", "\n".join(["EXPORTS", *lines]) + "\n")
    arguments = ["-shared", "-o", request.output, "--no-insert-timestamp", "--dynamicbase", "--nxcompat"]
    arguments += ["--file-alignment", "4096"]
    arguments += ["--high-entropy-va"] if target.pointer_width == 64 else []
    arguments += ["-e", "0", "--subsystem", "windows", definition]
    if request.undefined:
        arguments += ["--unresolved-symbols=ignore-all"]
    return [*arguments, *request.objects, *request.libraries]


def _no_objects(target: Target) -> TargetError:
    return TargetError(
        "lld-link joins no objects",
        where=target.name,
        hint=f"leave out --linker: it needs none{'; or name GNU ld' if target.gnu_triple else ''}",
    )


def _write(request: Request, name: str, text: str) -> str:
    path = os.path.join(request.folder, name)
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    return path


_SPEAK: Mapping[tuple[str, str], Callable[[Target, Flavour, Request], list[str]]] = {
    ("elf", "lld"): _elf,
    ("elf", "gnu"): _elf,
    ("elf", "mold"): _elf,
    ("macho", "ld64"): _macho,
    ("macho", "zig"): _zig_macho,
    ("coff", "link"): _link,
    ("coff", "gnu"): _gnu_pe,
}
