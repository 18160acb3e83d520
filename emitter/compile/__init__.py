"""Compiles LLVM IR for a target: in a process of its own, once for the same content.

LLVM ends the process on some mistakes, and may need any time and memory. Here that is one error that says what LLVM
said. What was compiled is kept (`emitter.compile.cache`), so that a build with nothing new never loads LLVM.
"""

from __future__ import annotations

import re
import sys

from emitter.code import producer, read_source
from emitter.errors import InputError, TargetError, UsageError, shown
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from emitter.code import CodeInput
    from emitter.targets._base import Target

__all__ = [
    "DEFAULT_MEMORY",
    "DEFAULT_SECONDS",
    "READER",
    "Compiled",
    "Settings",
    "Variable",
    "compile_code",
    "settings_of",
]

DEFAULT_SECONDS = 300
DEFAULT_MEMORY = 4096  # MiB

READER = "read by LLVM "  # what the first line of the process begins with, which then says the version

# ABIs that pass arguments in registers of an extension. LLVM writes the ABI into e_flags without the extension, too,
# and compiles for another ABI: the result links and computes wrongly.
_ABI_NEEDS = {"ilp32f": "+f", "ilp32d": "+d", "lp64f": "+f", "lp64d": "+d"}

# LLVM says these on standard error, and goes on with something else than what was asked for.
_IGNORED = ("ignoring", "is not a recognized")
_PROCESSOR = re.compile(r"'([^']*)' is not a recognized processor for this target")
_FEATURE = re.compile(r"[+-][\w.-]+")
_ATTRIBUTE = re.compile(r"'([^']*)' is not a recognized (?:feature|processor) for this target")

# The last words of LLVM before it ends the process: those of an assertion, of report_fatal_error, of the driver.
_LAST_WORDS = ("LLVM ERROR:", "UNREACHABLE", "Assertion", "error:", "fatal error")
_NO_MEMORY = ("bad_alloc", "out of memory", "MemoryError", "failed to map segment", "Cannot allocate memory")
_MANGLED = "PLEASE submit a bug report"
_SHOWN = 400


class Settings(NamedTuple):
    """How code is compiled. `level` is 0 to 3; `exports` names what stays visible, None for all functions that are.

    `seconds` and `memory` (MiB) are what LLVM may take.
    """

    level: str
    cpu: str
    features: str
    abi: str
    exports: tuple[str, ...] | None
    seconds: int
    memory: int


class Variable(NamedTuple):
    """A variable that the code declares and does not define: `size` in bytes, 0 where its type does not say it.

    `near` says that the code reaches it at a distance that the linker fixes, not through a table.
    """

    size: int
    near: bool
    constant: bool
    type: str


class Compiled(NamedTuple):
    """An object, what it declares, and the C types of the functions that it exports (None: unknown).

    `beyond` are the functions that ask for more than the target's CPUs have, with the features; `constructors` those
    that are to be called when the code is loaded or unloaded.
    """

    data: bytes
    variables: dict[str, Variable]
    signatures: dict[str, list[str] | None]
    beyond: dict[str, list[str]]
    constructors: list[str]


def settings_of(  # noqa: PLR0917 - the options of one compilation
    target: Target,
    level: int | None,
    cpu: str | None,
    features: str | None,
    abi: str | None,
    exports: Sequence[str] | None,
    seconds: int | None,
    memory: int | None,
) -> Settings:
    """Return the settings, with the target's for what is not asked for.

    `features` are added to those of the target's baseline. Raises TargetError for an ABI whose registers they lack,
    UsageError for features without + or -.
    """
    base = target.code_features or target.features
    wrong = [one for one in (features or "").split(",") if features and not _FEATURE.fullmatch(one)]
    if wrong:
        raise UsageError(
            "--features has a feature that is neither added nor taken away",
            expected="+NAME or -NAME, with commas between",
            actual=", ".join(map(shown, wrong)),
            hint=f"write +{wrong[0].strip() or 'NAME'}",
        )
    joined = ",".join(one for one in (base, features) if one)
    abi = abi or target.abi_name
    needed = _ABI_NEEDS.get(abi)
    chosen = joined.split(",")
    # The last mention of a feature counts.
    if needed and next((one for one in reversed(chosen) if one[1:] == needed[1:]), "") != needed:
        raise TargetError(
            f"the ABI {abi} passes arguments in registers that the features lack",
            where=f"target {target.name}",
            expected=f"{needed} among --features",
            actual=joined or "none",
        )
    if abi != target.abi_name:
        raise TargetError(
            "this target has another ABI, and its objects do not link with it",
            where=f"target {target.name}: --abi",
            expected=target.abi_name or "none",
            actual=abi,
        )
    return Settings(
        str(2 if level is None else level),
        cpu or target.cpu,
        joined,
        abi,
        None if exports is None else tuple(sorted(exports)),
        seconds or DEFAULT_SECONDS,
        memory or DEFAULT_MEMORY,
    )


def compile_code(
    inputs: Sequence[CodeInput], target: Target, settings: Settings, *, cache: bool, say: Callable[[str], None]
) -> Compiled:
    """Compile modules of LLVM IR, linked into one, to a relocatable object of `target`.

    Raises InputError for what LLVM refuses or dies of, with its words, TargetError where it ignores an option, and
    UsageError for a cache that is not the user's.
    """
    from emitter.compile.cache import Cache, key_of

    modules = [read_source(one) for one in inputs]
    store = Cache.open() if cache else None
    key = key_of(inputs, modules, target, settings) if store else ""
    kept = store.get(key) if store else None
    if kept is not None:
        say(f"code: compiled before, from {store.folder if store else ''}")
        facts, data = kept
    else:
        say(f"code: LLVM compiles it, -O{settings.level}, CPU {settings.cpu}, features {settings.features or 'none'}")
        facts, data = _run(inputs, modules, target, settings, say)
        if store:
            store.put(key, facts, data)
    variables = {name: Variable(**one) for name, one in facts["variables"].items()}
    return Compiled(data, variables, facts["signatures"], facts["beyond"], facts["constructors"])


def _run(
    inputs: Sequence[CodeInput],
    modules: Sequence[bytes],
    target: Target,
    settings: Settings,
    say: Callable[[str], None],
) -> tuple[dict[str, Any], bytes]:
    import json
    import subprocess

    from emitter.processes import run

    request = {
        "modules": [
            {"path": one.path, "kind": one.kind, "size": len(data)} for one, data in zip(inputs, modules, strict=True)
        ],
        "target": {
            "name": target.name,
            "triple": target.llvm_triple,
            "data_layout": target.data_layout,
            "object_format": target.object_format,
            "cpu": settings.cpu,
            "features": settings.features,
            "abi": settings.abi,
            "relocation_model": target.relocation_model,
            "code_model": target.code_model,
        },
        "level": settings.level,
        "exports": settings.exports,
        "seconds": settings.seconds,
        "memory": settings.memory << 20,
    }
    where = ", ".join(one.path for one in inputs)
    # The paths of this process: what is called like a module in the current directory must not take its place.
    program = f"import sys\nsys.path[:] = {sys.path!r}\nfrom emitter.compile.child import main\nsys.exit(main())"
    if not sys.executable:
        raise UsageError("LLVM runs in a process of its own, and this Python has no command", hint="run python itself")
    try:
        done = run(
            [sys.executable, "-c", program],
            data=json.dumps(request).encode() + b"\n" + b"".join(modules),
            seconds=settings.seconds,
        )
    except subprocess.TimeoutExpired as error:
        raise _too_long(where, settings) from error
    words = done.stderr.decode(errors="replace")
    reader = "of an unknown version"
    if words.startswith(READER):
        reader, _, words = words[len(READER) :].partition("\n")
    head, newline, data = done.stdout.partition(b"\n")
    if done.returncode or not newline:
        made = [producer(data) for one, data in zip(inputs, modules, strict=True) if one.kind == "bitcode"]
        versions = None
        if made:
            names = ", ".join(dict.fromkeys(one or "an unknown version" for one in made))
            versions = f"the bitcode was made by {names}; LLVM {reader.strip()} reads it up to its own version"
        raise _died(where, done.returncode, words, target, settings, versions)
    facts = json.loads(head)
    problem = facts.get("error")
    if problem is not None:
        if problem.pop("kind", None) == "memory":
            raise _too_much(where, settings)
        problem.setdefault("where", where)
        raise InputError(**problem)
    for line in dict.fromkeys(map(str.strip, words.splitlines())):
        if any(sign in line for sign in _IGNORED):
            _judge_ignored(line, where, settings, say)
    return facts, data


def _judge_ignored(line: str, where: str, settings: Settings, say: Callable[[str], None]) -> None:
    """Raise TargetError for something that LLVM ignores, unless it only has no part in what was asked for.

    Functions carry the CPU and the features that their compiler knew: what LLVM calls otherwise today costs speed.
    """
    found = _ATTRIBUTE.match(line)
    if found and found.group(1) not in (settings.cpu, *settings.features.split(",")):
        say(f"code: LLVM says: {line[:_SHOWN]}")
        return
    raise TargetError(
        f"LLVM does not do what was asked for: {line[:_SHOWN]}",
        where=where,
        hint="correct --cpu, --features and --abi, or the code's own attributes of that name",
    )


def _died(  # noqa: PLR0917 - what is known of a death
    where: str, status: int, words: str, target: Target, settings: Settings, versions: str | None
) -> InputError:
    import signal

    if status == -getattr(signal, "SIGXCPU", 0) and status:
        return _too_long(where, settings)
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    if any("No module named 'llvmlite'" in line for line in lines):
        return InputError("LLVM compiles this, and llvmlite is not installed", where=where, hint="pip install llvmlite")
    if any(sign in line for line in lines for sign in _NO_MEMORY):
        return _too_much(where, settings)
    unknown = next((found.group(1) for found in map(_PROCESSOR.match, lines) if found), None)
    if unknown == settings.cpu:
        return InputError(
            "LLVM knows no such CPU",
            where=f"target {target.name}",
            actual=unknown,
            hint="correct --cpu, or leave it out",
        )
    message = next((line for line in lines if any(sign in line for sign in _LAST_WORDS) and _MANGLED not in line), "")
    message = message or (lines[-1] if lines else "it said nothing")
    message = message[max(message.find("Assertion"), 0) :]  # where LLVM was built is nobody's affair
    name = next((one.name for one in signal.Signals if one == -status), f"exit status {status}")
    hint = versions
    if "asm parser" in message:
        hint = f"llvmlite reads no assembly of {target.name}: assemble that part with a compiler, and give its object"
    elif "target-abi" in message:
        hint = f"compile the code with the ABI of {target.name}: {target.abi_name or 'none is named'}"
    return InputError(f"LLVM gave up on the code ({name}): {message[:_SHOWN]}", where=where, hint=hint)


def _too_long(where: str, settings: Settings) -> InputError:
    return InputError(
        "LLVM did not come to an end in time",
        where=where,
        expected=f"at most {settings.seconds} seconds",
        hint="allow more with --compile-seconds, or a lower -O",
    )


def _too_much(where: str, settings: Settings) -> InputError:
    own = _own_limit()
    less = own is not None and own < settings.memory
    return InputError(
        "LLVM needs more memory than it may have",
        where=where,
        expected=f"at most {own if less else settings.memory} MiB",
        hint=f"allow more with {'`ulimit -v`' if less else '--compile-memory'}, or a lower -O",
    )


def _own_limit() -> int | None:
    """Return the address space that a child of this process can have at most, in MiB; None where nothing limits it."""
    try:
        import resource
    except ImportError:
        return None  # Windows
    limit = resource.getrlimit(resource.RLIMIT_AS)[1]
    return None if limit == resource.RLIM_INFINITY else limit >> 20
