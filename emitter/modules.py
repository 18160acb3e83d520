"""Modules: opaque bytes for some runtime, with what they import, their functions, and the tensors that these need.

A module comes in one form or in several alternatives (an engine for one device, one for another, a portable fallback);
each has a kind, a schema version, its bytes, and what it requires of the place where it is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from emitter.dtypes import UINT, DType
from emitter.errors import UsageError, shown
from emitter.pack import format as fmt
from emitter.package import BufferSource, Extent, FileSource, Tensor, flat_view
from emitter.records import TYPE_CHECKING, NamedTuple
from emitter.values import check_alignment, check_metadata, check_text, typed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from emitter.package import Package

__all__ = [
    "DEVICE_KINDS",
    "ROOT",
    "Alternative",
    "Condition",
    "Module",
    "ModuleFacts",
    "check_functions",
    "check_name",
    "in_order",
    "joined",
    "make_alternative",
    "owners",
    "parse_requirement",
    "payload_tensors",
]


# Kinds of programs for GPUs: `emitter.device.image` makes them.
DEVICE_KINDS = frozenset({"cuda", "cuda-relocatable", "hip", "tensorrt", "spirv"})
ROOT = "package"  # name and kind of the module that imports them, where there are several


class Condition(NamedTuple):
    """What the place must say of `key`: the text `value`, a version from `value` on, or also one below `upper`."""

    key: str
    comparison: int
    value: str
    upper: str = ""

    @property
    def requirement(self) -> str:
        """The text that `parse_requirement` reads it from."""
        sign = "==" if self.comparison == fmt.EQUAL else ">="
        return f"{sign} {self.value}" + (f", < {self.upper}" if self.comparison == fmt.WITHIN else "")


class Alternative(NamedTuple):
    """One form of a module: `extent` are its bytes, `alignment` (bytes) None means the package's default."""

    kind: str
    schema_version: int
    extent: Extent
    conditions: tuple[Condition, ...] = ()
    alignment: int | None = None


class Module:
    """A module of a package; made by `Package.add_module`, which checks everything.

    `functions` gives, by name, the names of the tensors that each function takes, in order.
    """

    __slots__ = ("alternatives", "functions", "imports", "metadata", "name")

    def __init__(
        self,
        name: str,
        imports: tuple[Module, ...],
        functions: Mapping[str, tuple[str, ...]],
        metadata: Mapping[str, str],
    ) -> None:
        self.name = name
        self.alternatives: list[Alternative] = []
        self.imports = imports
        self.functions = functions
        self.metadata = metadata

    def __repr__(self) -> str:
        kinds = " or ".join(alternative.kind for alternative in self.alternatives)
        return f"<emitter module {shown(self.name)}: {kinds}, {len(self.functions)} functions>"


class ModuleFacts(NamedTuple):
    """A module of an input; `imports` are numbers in the list of modules, each greater than that of this module."""

    name: str
    alternatives: list[Alternative]
    imports: list[int]
    functions: dict[str, tuple[str, ...]]
    metadata: dict[str, str]


def make_alternative(
    module: str,
    kind: str,
    payload: bytes | bytearray | memoryview | os.PathLike[str] | Extent,
    *,
    schema_version: int = 1,
    requires: Mapping[str, str] | None = None,
    alignment: int | None = None,
) -> Alternative:
    """Return one form of the module called `module`; raise UsageError or InputError for what cannot be written."""
    where = f"module {shown(module)}"
    check_name(kind, f"{where}: kind")
    if type(schema_version) is not int or not 0 <= schema_version <= fmt.MAX_SCHEMA_VERSION:
        expected = f"an integer from 0 to {fmt.MAX_SCHEMA_VERSION}"
        raise UsageError(
            "the schema version cannot be written", where=where, expected=expected, actual=typed(schema_version)
        )
    check_alignment(alignment, where)
    conditions = tuple(
        parse_requirement(key, text, where)
        for key, text in sorted(check_metadata(requires, f"{where}: requires").items())
    )
    return Alternative(kind, schema_version, _extent(module, payload), conditions, alignment)


def _extent(module: str, payload: object) -> Extent:
    where = f"module {shown(module)}"
    if isinstance(payload, Extent):
        return payload._replace(label=payload.label or where)
    if isinstance(payload, (bytes, bytearray, memoryview)):
        data = flat_view(payload, where)
        return Extent(BufferSource(where, data), 0, data.nbytes, label=where)
    if isinstance(payload, os.PathLike):
        source = FileSource.of(payload)
        return Extent(source, 0, source.size, label=where)
    raise UsageError(
        "the payload is neither bytes nor a path", where=where, actual=typed(payload), hint="write pathlib.Path(FILE)"
    )


def parse_requirement(key: str, text: str, where: str) -> Condition:
    """Return the condition that `key` must fulfil, from `== TEXT` (or TEXT), `>= VERSION`, `>= VERSION, < VERSION`.

    A version is numbers joined by dots. Raises UsageError for anything else.
    """
    check_name(key, f"{where}: requirement")
    lower, comma, upper = (part.strip() for part in text.partition(","))
    if lower.startswith(">=") and (not comma or (upper.startswith("<") and not upper.startswith("<="))):
        comparison = fmt.WITHIN if comma else fmt.AT_LEAST
        condition = Condition(key, comparison, lower[2:].strip(), upper[1:].strip())
        understood = all(map(fmt.is_version, [condition.value, condition.upper][: 2 if comma else 1]))
    else:
        condition = Condition(key, fmt.EQUAL, text.strip().removeprefix("==").strip())
        understood = text.strip().startswith("==") or text.strip()[:1] not in {"<", ">", "!", "~", "="}
    if not understood:
        raise UsageError(
            f"the requirement of {shown(key)} cannot be read",
            where=where,
            expected="== TEXT, >= VERSION, or >= VERSION, < VERSION; a version is numbers joined by dots",
            actual=shown(text),
        )
    check_name(condition.value, f"{where}: value of {shown(key)}")
    return condition


def check_functions(functions: object, where: str) -> dict[str, tuple[str, ...]]:
    """Return a copy of a mapping from function to names of tensors, empty for None; raise UsageError for another."""
    if functions is None:
        return {}
    if not isinstance(functions, Mapping):
        expected = "a mapping from function to the names of its tensors"
        raise UsageError("the functions cannot be read", where=where, expected=expected, actual=typed(functions))
    found = {}
    for name, tensors in functions.items():
        check_name(name, f"{where}: function")
        if isinstance(tensors, (str, bytes)) or not hasattr(tensors, "__iter__"):
            raise UsageError(
                f"the tensors of function {shown(name)} are not a list", where=where, actual=typed(tensors)
            )
        found[name] = tuple(check_text(tensor, f"the name of a tensor of {shown(name)}") for tensor in tensors)
    return found


def check_name(name: object, what: str) -> str:
    """Return `name`; raise UsageError for one that is empty, too long, or not UTF-8 without NUL."""
    text = check_text(name, what)
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise UsageError("the text is not valid UTF-8", where=what, actual=shown(text)) from error
    if not 0 < size <= fmt.MAX_NAME_BYTES or "\0" in text:
        expected = f"1 to {fmt.MAX_NAME_BYTES} bytes of UTF-8 without NUL"
        raise UsageError("the text cannot be written", where=what, expected=expected, actual=f"{size} bytes")
    return text


def payload_tensors(modules: Iterable[Module]) -> list[Tensor]:
    """Return the bytes of every alternative as a tensor, so that they are laid out, shared and copied as tensors are.

    No tensor of a package can have the names of these, which hold a NUL.
    """
    return [
        Tensor(f"\0{number} {choice}", DType(UINT, 8), (one.extent.length,), one.extent, one.alignment)
        for number, module in enumerate(modules)
        for choice, one in enumerate(module.alternatives)
    ]


def owners(package: Package) -> list[Tensor]:
    """Return all that has bytes in the pack: the tensors, then `payload_tensors` of the modules in the pack's order."""
    tensors = package.tensors
    return [*tensors, *payload_tensors(in_order(package.modules, (tensor.name for tensor in tensors)))]


def joined(modules: Sequence[Module], roots: Sequence[Module]) -> list[Module]:
    """Return the modules and, behind them, one without bytes that imports the `roots`; it is called after its kind.

    That of an input, which was made so, is left out for it.
    """
    old = [root for root in roots if root.name == ROOT and [one.kind for one in root.alternatives] == [ROOT]]
    imports = dict.fromkeys(child for root in roots for child in (root.imports if root in old else (root,)))
    if any(module.name == ROOT and module not in old for module in modules):
        raise UsageError(f"no module beside programs for GPUs is called {shown(ROOT)}", hint="rename it")
    root = Module(ROOT, tuple(imports), {}, {})
    root.alternatives.append(Alternative(ROOT, 1, Extent(BufferSource(f"module {ROOT}", memoryview(b"")), 0, 0)))
    return [*(module for module in modules if module not in old), root]


def in_order(modules: Sequence[Module], tensors: Iterable[str]) -> list[Module]:
    """Return the modules in the pack's order: the root first, and each before what it imports.

    Modules are made after what they import, so the reverse of the order of their making is one. Programs for GPUs
    need no root: where there are several, or other modules beside them, `joined` makes one. Raises UsageError where
    there is no single root, or where a function takes a tensor that is not among `tensors`.
    """
    imported = {id(child) for module in modules for child in module.imports}
    roots = [module for module in modules if id(module) not in imported]
    if len(roots) > 1 and any(one.kind in DEVICE_KINDS for root in roots for one in root.alternatives):
        modules = joined(modules, roots)
    elif len(roots) > 1:
        raise UsageError(
            "the modules have no single root",
            expected="one module that no other imports",
            actual=", ".join(shown(module.name) for module in roots[:8]),
            hint="add a module that imports them",
        )
    known = set(tensors)
    for module in modules:
        for function, names in module.functions.items():
            for name in names:
                if name not in known:
                    raise UsageError(
                        f"function {shown(function)} takes a tensor that the package does not hold",
                        where=f"module {shown(module.name)}",
                        actual=shown(name),
                        hint="add the tensor, or correct its name",
                    )
    return list(reversed(modules))
