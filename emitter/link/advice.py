"""What is odd about code that links all the same: warnings, and constructors that nobody would call."""

from __future__ import annotations

import os

from emitter.errors import InputError, shown
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from emitter.compile import Variable
    from emitter.link.find import Linker
    from emitter.link.objects import CodeObject
    from emitter.link.resolve import Wants
    from emitter.options import Format, Options
    from emitter.package import Package
    from emitter.targets._base import Target

__all__ = ["check_constructors", "warn_of_features", "warn_of_options", "warn_of_variables"]

_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64, "fp128": 128}  # of LLVM's types


def warn_of_features(target: Target, beyond: Mapping[str, Sequence[str]], warn: Callable[[str], None]) -> None:
    """Warn of functions (`beyond`, with what they ask for) that not every CPU of the target can run."""
    if beyond:
        features = sorted({feature for features in beyond.values() for feature in features})
        shown_names = ", ".join(sorted(beyond)[:4]) + (", ..." if len(beyond) > 4 else "")
        warn(f"the code wants {', '.join(features)} ({shown_names}), which not every CPU of {target.name} has")


def warn_of_variables(
    package: Package, wants: Wants, variables: Mapping[str, Variable], warn: Callable[[str], None]
) -> None:
    """Warn of declarations that have another idea of a tensor than the pack: of its elements, or that it changes."""
    dtypes = {tensor.name: tensor.dtype for tensor in package.tensors}
    for symbol in wants.tensors:
        variable, dtype = variables.get(symbol.name), dtypes.get(symbol.tensor)
        if variable is None or dtype is None:
            continue
        if not variable.constant:
            warn(f"{symbol.name} is declared as a variable, and the pack cannot be written: declare it const")
        element = variable.type.rpartition(" ")[2].rstrip("]>")
        bits = int(element[1:]) if element[:1] == "i" and element[1:].isdigit() else _BITS.get(element, 8)
        if bits not in (8, dtype.bits):  # bytes are what any tensor is made of
            warn(f"{symbol.name} is declared as {variable.type}, and the elements of the tensor are {dtype}")


def warn_of_options(
    options: Options,
    objects: Sequence[CodeObject],
    functions: Mapping[str, list[str] | None],
    format_: Format,
    warn: Callable[[str], None],
) -> None:
    """Warn of what has no effect, and of a library without functions."""
    for folder in options.lib_dirs:
        if not os.path.isdir(folder):
            warn(f"-L {shown(folder)}: there is no such folder")
    wanted = {name for one in objects for name in one.undefined}
    for name in options.allow_undefined:
        if name not in wanted:
            warn(f"--allow-undefined {shown(name)}: the code does not refer to it")
    if format_ == "library" and not functions and not options.version_script:
        warn("no function of the code is exported: name those of archives with --export")


def check_constructors(
    target: Target, linker: Linker | None, objects: Sequence[CodeObject], started: Sequence[str]
) -> None:
    """Raise InputError for functions to be called at loading, where the library that is linked would not call them."""
    named = next((one for one in objects if one.constructors), None)
    if target.object_format == "coff" and (started or named is not None):
        raise InputError(
            "the code has constructors, and nothing in a DLL of this command calls them",
            where=named.path if named is not None else "the code",
            actual=", ".join(started[:4]) or (named.constructors if named is not None else ""),
            hint="export a function that does their work; or write an object, and link it with the C run-time library",
        )
    if target.object_format == "elf" and named is not None and linker is not None and linker.flavour != "gnu":
        raise InputError(
            f"the object has constructors in {named.constructors}, which {linker.name} leaves out",
            where=named.path,
            hint="compile it for .init_array (-fuse-init-array, the default of today's compilers), or name GNU ld",
        )
