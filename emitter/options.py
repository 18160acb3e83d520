"""What may be asked of an emission, which option belongs to which output, and what the name of the output says."""

from __future__ import annotations

import os

from emitter.errors import UsageError, shown
from emitter.layout import identifier
from emitter.model import Visibility
from emitter.records import TYPE_CHECKING, NamedTuple
from emitter.values import check_alignment, output_path

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Literal, TypeAlias

    from emitter.targets import Resolved
    from emitter.targets._base import ObjectFormat, Target

__all__ = [
    "BLOB_STYLES",
    "CODE_OPTIONS",
    "COMPANIONS",
    "FORMATS",
    "PACKAGE_STYLES",
    "Format",
    "LargeDataChoice",
    "Options",
    "Style",
    "check_options",
    "expand",
    "has_placeholder",
    "make_options",
    "output_format",
    "sidecar_name",
    "symbol_name",
]

Format: TypeAlias = 'Literal["object", "archive", "library", "pack"]'
Style: TypeAlias = 'Literal["ld", "incbin", "xxd", "aoti", "tvm"]'
LargeDataChoice: TypeAlias = 'Literal["auto", "always", "never"]'
FORMATS: tuple[Format, ...] = ("object", "archive", "library", "pack")
BLOB_STYLES: tuple[Style, ...] = ("ld", "incbin", "xxd")  # symbols for each blob, named for its file
PACKAGE_STYLES: tuple[Style, ...] = ("aoti", "tvm")  # symbols of their own for all tensors together

PACK_SUFFIX = ".pack"
MAX_COMPILE_SECONDS, MAX_COMPILE_MEMORY = 7 * 24 * 3600, 1 << 24  # a week; MiB: 16 TiB
MAX_OPT_LEVEL = 3
# Suffixes of the same kinds of file on platforms with other object formats: known, so that the message can say what is
# wrong.
_FOREIGN_SUFFIXES: dict[str, Format] = {
    ".o": "object", ".obj": "object", ".a": "archive", ".lib": "archive", ".so": "library",
    ".dylib": "library", ".dll": "library",
}  # fmt: skip


class Options(NamedTuple):
    """What may be asked for beside inputs, targets and output. The options of the command have the same names.

    `align` is the default alignment of each payload in bytes. `header`, `depfile`, `map`, `linker_script` and `implib`
    are paths of companions of the output, and may hold the placeholders that the output may hold, as may the file name
    `sidecar_name`. None takes the default that the command's help and docs/python.md state, where it is also said which
    outputs an option is for.
    """

    emit: Format | None = None
    name: str | None = None
    align: int | None = None
    section: str | None = None
    visibility: Visibility | None = None
    tensor_symbols: bool = False
    symbol_prefix: str | None = None
    symbols: Style | None = None
    soname: str | None = None
    install_name: str | None = None
    retain: bool = False
    large_data: LargeDataChoice | None = None
    header: str | None = None
    depfile: str | None = None
    map: str | None = None
    linker_script: str | None = None
    region: str | None = None
    implib: str | None = None
    sidecar: bool = False
    sidecar_name: str | None = None
    pin: bool = False
    cuda_register: bool = False
    opt_level: int | None = None
    cpu: str | None = None
    features: str | None = None
    abi: str | None = None
    linker: str | None = None
    libs: tuple[str, ...] = ()
    lib_dirs: tuple[str, ...] = ()
    allow_undefined: tuple[str, ...] = ()
    export: tuple[str, ...] = ()
    version_script: str | None = None
    no_cache: bool = False
    compile_seconds: int | None = None
    compile_memory: int | None = None


# What is said of code: docs/code.md.
CODE_OPTIONS = Options._fields[Options._fields.index("opt_level") :]


_CHOICES: Mapping[str, tuple[str, ...]] = {
    "emit": FORMATS,
    "visibility": ("default", "protected", "hidden"),
    "symbols": (*BLOB_STYLES, *PACKAGE_STYLES),
    "large_data": ("auto", "always", "never"),
}
_KINDS: Mapping[str, type] = {  # the others are str
    "align": int, "tensor_symbols": bool, "retain": bool, "sidecar": bool, "pin": bool, "cuda_register": bool,
    "opt_level": int, "libs": tuple, "lib_dirs": tuple, "allow_undefined": tuple, "export": tuple, "no_cache": bool,
    "compile_seconds": int, "compile_memory": int,
}  # fmt: skip

COMPANIONS = ("header", "linker_script", "implib", "map", "depfile")

_LINKABLE: tuple[Format, ...] = ("object", "archive")
_BINARY: tuple[Format, ...] = ("object", "archive", "library")

# Which option means something for which output. Elsewhere it is refused: to ignore it would hide a mistake.
_APPLIES: Mapping[str, tuple[Format, ...]] = {
    "name": _BINARY,
    "tensor_symbols": _BINARY,
    "symbol_prefix": _BINARY,
    "header": _BINARY,
    "soname": ("library",),
    "install_name": ("library",),
    "implib": ("library",),
    "section": _LINKABLE,
    "visibility": _LINKABLE,
    "symbols": _LINKABLE,
    "retain": _LINKABLE,
    "large_data": _LINKABLE,
    "linker_script": _LINKABLE,
    "region": _LINKABLE,
    "sidecar": ("library",),
    "sidecar_name": ("library",),
    "pin": ("library",),
    "cuda_register": _LINKABLE,
    **dict.fromkeys(("linker", "allow_undefined"), ("object", "library")),
    **dict.fromkeys(("libs", "lib_dirs", "version_script"), ("library",)),
    **dict.fromkeys(("opt_level", "cpu", "features", "abi", "export", "no_cache"), _BINARY),
    **dict.fromkeys(("compile_seconds", "compile_memory"), _BINARY),
}

# And for which object format.
_APPLIES_TO: Mapping[str, tuple[ObjectFormat, ...]] = {
    "soname": ("elf",),
    "install_name": ("macho",),
    "implib": ("coff",),
    "visibility": ("elf", "macho"),
    "retain": ("elf", "macho"),
    "large_data": ("elf",),
    "linker_script": ("elf",),
    "version_script": ("elf",),
}

# An object in another tool's symbol style holds no pack, hence nothing that belongs to one.
_NOT_WITH_STYLE = (
    "name",
    "tensor_symbols",
    "symbol_prefix",
    "header",
    "retain",
    "section",
    "large_data",
    "linker_script",
)

# Nor does one that registers its programs with the CUDA runtime.
_NOT_WITH_REGISTER = ("symbols", "align", "map", *(name for name in _NOT_WITH_STYLE if name != "symbol_prefix"))

# The bytes are in another file: no symbol of the library can be theirs.
_NOT_WITH_SIDECAR = ("tensor_symbols", "symbol_prefix")


def make_options(given: Mapping[str, object]) -> Options:
    """Return `Options(**given)`, paths as str; raise UsageError for an unknown option or a value of another type."""
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in Options._fields:
            from difflib import get_close_matches

            near = get_close_matches(name, [*Options._fields, "target"], n=1)
            hint = f"did you mean {near[0]}?" if near else None
            raise UsageError(f"there is no option {shown(name)}", expected=", ".join(Options._fields), hint=hint)
        if value == Options._field_defaults[name]:
            continue
        if name in COMPANIONS and isinstance(value, (str, os.PathLike)) and value:
            value = output_path(value)  # noqa: PLW2901 - the same path
        allowed = _CHOICES.get(name)
        if allowed is not None and value not in allowed:
            raise UsageError(f"{_flag(name)} has no such choice", expected=", ".join(allowed), actual=repr(value))
        kind = _KINDS.get(name, str)
        if kind is tuple and isinstance(value, (list, tuple)):
            if not all(isinstance(one, str) and one for one in value):
                raise UsageError(f"{_flag(name)} has a value of another type", expected="texts", actual=repr(value))
            value = tuple(dict.fromkeys(value))  # noqa: PLW2901 - the same names
        # bool is an int to Python, and no alignment.
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise UsageError(f"{_flag(name)} has a value of another type", expected=kind.__name__, actual=repr(value))
        if name in COMPANIONS and value == "-":
            raise UsageError(f"{_flag(name)} is not the name of a file", actual=repr(value))
        if value == "" and name != "symbol_prefix":
            raise UsageError(f"{_flag(name)} is empty", hint="leave the option out, or give it a value")
        values[name] = value
    return Options(**values)


def check_options(
    options: Options,
    format: Format,  # noqa: A002 - the field's word
    object_format: ObjectFormat,
    *,
    code: bool = False,
) -> None:
    """Raise UsageError for options that contradict the output's format, the target's, or one another.

    `code` says whether the package holds code.
    """
    given = [name for name, value in options._asdict().items() if value != Options._field_defaults[name]]
    for name in given:
        if name in CODE_OPTIONS and not code:
            raise UsageError(f"{_flag(name)} says something of code", hint="name an input that is code: docs/code.md")
        object_formats = _APPLIES_TO.get(name, (object_format,))
        if object_format not in object_formats:
            raise UsageError(
                f"{_flag(name)} means nothing for this target",
                expected=" or ".join(_FORMAT_NAMES[one] for one in object_formats),
                actual=f"a target of {_FORMAT_NAMES[object_format]}",
                hint="leave the option out",
            )
        formats = _APPLIES.get(name, FORMATS)
        if format not in formats:
            raise UsageError(
                f"{_flag(name)} means nothing for this output",
                expected=" or ".join(formats),
                actual=f"{_ARTICLE[format]} {format}",
                hint="leave the option out, or write another output",
            )
        if options.symbols and name in _NOT_WITH_STYLE:
            raise UsageError(
                f"{_flag(name)} cannot be combined with --symbols {options.symbols}",
                hint="an object in that style has the sections and symbols of the original tool, and no pack",
            )
        if options.cuda_register and name in _NOT_WITH_REGISTER:
            raise UsageError(
                f"{_flag(name)} cannot be combined with --cuda-register",
                hint="an object that registers its programs has the sections and symbols of nvcc's, and no pack",
            )
        if options.sidecar and name in _NOT_WITH_SIDECAR:
            raise UsageError(
                f"{_flag(name)} cannot be combined with --sidecar",
                hint="the tensors are in another file: find them by name, with emitter_library_open",
            )
        if name in {"sidecar_name", "pin"} and not options.sidecar:
            raise UsageError(f"{_flag(name)} says something of a sidecar", hint="add --sidecar")
    if options.export and options.version_script is not None:
        raise UsageError("--export cannot be combined with --version-script", hint="the script says what is exported")
    level = options.opt_level
    if level is not None and not 0 <= level <= MAX_OPT_LEVEL:
        raise UsageError("-O has no such level", expected=f"0 to {MAX_OPT_LEVEL}", actual=level)
    for name, most in (("compile_seconds", MAX_COMPILE_SECONDS), ("compile_memory", MAX_COMPILE_MEMORY)):
        value = getattr(options, name)
        if value is not None and not 1 <= value <= most:
            raise UsageError(f"{_flag(name)} is out of range", expected=f"1 to {most}", actual=value)
    if options.symbol_prefix is not None and not (options.tensor_symbols or options.cuda_register or code):
        raise UsageError("--symbol-prefix names tensor symbols", hint="add --tensor-symbols")
    if options.section is not None and options.large_data is not None:
        raise UsageError(
            "--large-data cannot be combined with --section", hint="the section's name decides: leave one out"
        )
    check_alignment(options.align)
    if options.region is not None and options.linker_script is None:
        raise UsageError("--region says something of a linker script", hint="add --linker-script")
    for name, value in (
        ("name", options.name), ("symbol_prefix", options.symbol_prefix or None), ("region", options.region),
    ):  # fmt: skip
        if value is not None and identifier(value) != value:
            raise UsageError(
                f"{_flag(name)} does not begin a C identifier", expected="letters, digits and _", actual=repr(value)
            )


_FORMAT_NAMES: Mapping[str, str] = {"elf": "ELF", "macho": "Mach-O", "coff": "COFF and PE"}
_ARTICLE: Mapping[str, str] = {"object": "an", "archive": "an", "library": "a", "pack": "a"}


_FLAGS: Mapping[str, str] = {"opt_level": "-O", "libs": "-l", "lib_dirs": "-L"}


def _flag(name: str) -> str:
    return _FLAGS.get(name) or f"--{name.replace('_', '-')}"


def output_format(path: str, choice: Format | None, target: Target) -> Format:
    """Return what to write: `choice`, else what the suffix of `path` says.

    Raises UsageError if choice, suffix and target disagree.
    """
    own: dict[str, Format] = {target.object_suffix: "object", target.archive_suffix: "archive"}
    if target.image_suffix is not None:
        own[target.image_suffix] = "library"
    own[PACK_SUFFIX] = "pack"
    suffix = _split_suffix(path)[1]
    said = own.get(suffix) or dict(target.other_suffixes).get(suffix)
    if said is None and suffix in _FOREIGN_SUFFIXES:
        wanted = _FOREIGN_SUFFIXES[suffix]
        right = [own_suffix for own_suffix, format_ in own.items() if format_ == wanted]
        if not right:
            raise _no_library(target, path, own)
        raise UsageError(
            f"the suffix does not belong to {target.name}",
            where=path,
            expected=right[0],
            actual=suffix,
            hint="correct -o or --target",
        )
    if said is None and choice is None:
        raise UsageError(
            "the suffix does not say what to write",
            where=path,
            expected=", ".join(own),
            actual=suffix or "none",
            hint="add --emit",
        )
    if (said or choice) == "archive" and target.implib_suffix and path.endswith(target.implib_suffix):
        raise UsageError(
            "the suffix is that of an import library",
            where=path,
            expected=f"a name such as {_split_suffix(path[: -len(target.implib_suffix)])[0]}{target.archive_suffix}",
            hint="or write the DLL, and this file beside it with --implib",
        )
    if said is not None and choice is not None and said != choice:
        raise UsageError(
            "--emit contradicts the suffix",
            where=path,
            expected=f"--emit {said}",
            actual=f"--emit {choice}",
            hint="leave --emit out, or correct -o",
        )
    if choice == "library" and target.image_suffix is None:
        raise _no_library(target, path, own)
    return said or choice  # type: ignore[return-value] # one of them is there, or it would have been refused


def _no_library(target: Target, path: str, own: Mapping[str, Format]) -> UsageError:
    return UsageError(
        f"nothing loads a shared library on {target.name}",
        where=path,
        expected=", ".join(own),
        hint="write an object or archive to be linked, or a .pack to be placed in memory",
    )


def symbol_name(path: str, choice: str | None) -> str:
    """Return the name of the pack's symbol: `choice`, else the output's stem without `lib`, made an identifier."""
    if choice is not None:
        return choice
    stem = _split_suffix(path)[0]
    return identifier(stem[3:] if stem.startswith("lib") and len(stem) > 3 else stem)


def sidecar_name(path: str, choice: str | None) -> str:
    """Return the file name of the sidecar of a library: `choice`, else the library's stem with the suffix of packs."""
    return choice if choice is not None else _split_suffix(path)[0] + PACK_SUFFIX


def expand(template: str, resolved: Resolved, name: str | None) -> str:
    """Return `template` with `{target}`, `{triple}` and `{lib}` put in.

    They stand for the target as typed, its LLVM triple, and the file name of the library `name`. Raises UsageError for
    `{lib}` without a name.
    """
    target = resolved.target
    values = {"target": resolved.typed, "triple": resolved.triple}
    if name is not None:
        suffix = target.image_suffix or target.archive_suffix
        values["lib"] = f"{target.library_prefix}{name}{suffix}"
    if "{lib}" in template and name is None:
        raise UsageError("{lib} needs a name", where=template, hint="add --name")
    for placeholder, value in values.items():
        template = template.replace(f"{{{placeholder}}}", value)
    return template


def has_placeholder(template: str) -> bool:
    """Whether the paths that `template` gives differ from target to target."""
    return any(f"{{{placeholder}}}" in template for placeholder in ("target", "triple"))


def _split_suffix(path: str) -> tuple[str, str]:
    """Split the file name of `path` into stem and suffix; the version of `libx.so.1.2` belongs to neither."""
    name = os.path.basename(path)
    unversioned = name
    while os.path.splitext(unversioned)[1][1:].isdecimal():
        unversioned = os.path.splitext(unversioned)[0]
    stem, suffix = os.path.splitext(unversioned)
    return (stem, suffix) if suffix == ".so" else os.path.splitext(name)
