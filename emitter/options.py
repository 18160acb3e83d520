"""What may be asked of an emission, which option belongs to which output, and what the name of the output says."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from emitter.errors import UsageError
from emitter.layout import identifier
from emitter.package import MAX_ALIGNMENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emitter.model import Visibility
    from emitter.targets import Resolved
    from emitter.targets._base import Target

__all__ = [
    "COMPANIONS",
    "FORMATS",
    "Format",
    "LargeDataChoice",
    "Options",
    "Style",
    "check_options",
    "expand",
    "has_placeholder",
    "make_options",
    "output_format",
    "symbol_name",
]

Format = Literal["object", "archive", "library", "pack"]
Style = Literal["ld", "incbin", "xxd"]
LargeDataChoice = Literal["auto", "always", "never"]
FORMATS: tuple[Format, ...] = get_args(Format)

PACK_SUFFIX = ".pack"
# Suffixes of the same kinds of file on platforms with other object formats: known, so that the message can say what is
# wrong.
_FOREIGN_SUFFIXES: dict[str, Format] = {
    ".o": "object", ".obj": "object", ".a": "archive", ".lib": "archive", ".so": "library",
    ".dylib": "library", ".dll": "library",
}  # fmt: skip


class Options(NamedTuple):
    """What may be asked for beside inputs, targets and output. The options of the command have the same names.

    `align` is the default alignment of each payload in bytes. `header`, `depfile`, `map` and `linker_script` are paths
    of companions of the output, and may hold the placeholders that the output may hold. None takes the default that the
    command's help states.
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
    retain: bool = False
    large_data: LargeDataChoice | None = None
    header: str | None = None
    depfile: str | None = None
    map: str | None = None
    linker_script: str | None = None


COMPANIONS = ("header", "linker_script", "map", "depfile")

_LINKABLE: tuple[Format, ...] = ("object", "archive")
_BINARY: tuple[Format, ...] = ("object", "archive", "library")

# Which option means something for which output. Elsewhere it is refused: to ignore it would hide a mistake.
_APPLIES: Mapping[str, tuple[Format, ...]] = {
    "name": _BINARY,
    "tensor_symbols": _BINARY,
    "symbol_prefix": _BINARY,
    "header": _BINARY,
    "soname": ("library",),
    "section": _LINKABLE,
    "visibility": _LINKABLE,
    "symbols": _LINKABLE,
    "retain": _LINKABLE,
    "large_data": _LINKABLE,
    "linker_script": _LINKABLE,
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


def make_options(given: Mapping[str, object]) -> Options:
    """Return `Options(**given)`; raise UsageError for a name that is not an option."""
    known = Options._fields
    for name in given:
        if name not in known:
            raise UsageError(f"there is no option {name!r}", expected=", ".join(known))
    return Options(**given)  # type: ignore[arg-type] # the values are checked where they are used


def check_options(options: Options, format: Format) -> None:  # noqa: A002 - the field's own word
    """Raise UsageError for options that contradict the output's format or one another."""
    for name, formats in _APPLIES.items():
        if getattr(options, name) and format not in formats:
            raise UsageError(
                f"--{name.replace('_', '-')} means nothing for this output",
                expected=" or ".join(formats),
                actual=f"--emit {format}",
            )
    if options.symbols:
        for name in _NOT_WITH_STYLE:
            if getattr(options, name):
                raise UsageError(
                    f"--{name.replace('_', '-')} cannot be combined with --symbols {options.symbols}",
                    hint="an object in that style has the sections and symbols of the original tool, and no pack",
                )
    if options.symbol_prefix is not None and not options.tensor_symbols:
        raise UsageError("--symbol-prefix names tensor symbols", hint="add --tensor-symbols")
    if options.align is not None and not (
        0 < options.align <= MAX_ALIGNMENT and options.align & (options.align - 1) == 0
    ):
        raise UsageError(
            "the alignment cannot be kept", expected=f"a power of two, 1 to {MAX_ALIGNMENT}", actual=options.align
        )
    for name in ("name", "symbol_prefix"):
        value = getattr(options, name)
        empty_prefix = name == "symbol_prefix" and value == ""
        if value is not None and identifier(value) != value and not empty_prefix:
            raise UsageError(
                f"--{name.replace('_', '-')} does not begin a C identifier",
                expected="letters, digits and _",
                actual=repr(value),
            )


def output_format(path: str, choice: Format | None, target: Target) -> Format:
    """Return what to write: `choice`, else what the suffix of `path` says.

    Raises UsageError if choice, suffix and target disagree.
    """
    own: dict[str, Format] = {
        target.object_suffix: "object", target.archive_suffix: "archive", target.image_suffix: "library",
        PACK_SUFFIX: "pack",
    }  # fmt: skip
    suffix = _split_suffix(path)[1]
    said = own.get(suffix)
    if said is None and suffix in _FOREIGN_SUFFIXES:
        right = next(s for s, format_ in own.items() if format_ == _FOREIGN_SUFFIXES[suffix])
        raise UsageError(
            f"the suffix does not belong to {target.name}",
            where=path,
            expected=right,
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
    if said is not None and choice is not None and said != choice:
        raise UsageError(
            "--emit contradicts the suffix", where=path, expected=f"--emit {said}", actual=f"--emit {choice}"
        )
    return said or choice or "library"


def symbol_name(path: str, choice: str | None) -> str:
    """Return the name of the pack's symbol: `choice`, else the output's stem without `lib`, made an identifier."""
    if choice is not None:
        return choice
    stem = _split_suffix(path)[0]
    return identifier(stem[3:] if stem.startswith("lib") and len(stem) > 3 else stem)


def expand(template: str, resolved: Resolved, name: str | None) -> str:
    """Return `template` with `{target}`, `{triple}` and `{lib}` put in.

    They stand for the target as typed, its LLVM triple, and the file name of the library `name`. Raises UsageError for
    `{lib}` without a name.
    """
    target = resolved.target
    values = {"target": resolved.typed, "triple": resolved.triple}
    if name is not None:
        values["lib"] = f"{target.library_prefix}{name}{target.image_suffix}"
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
