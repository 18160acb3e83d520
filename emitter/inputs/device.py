"""Programs for GPUs as inputs: each becomes a module, with an alternative for every GPU that it holds code for.

The alternatives of a fatbin share its bytes. They say which GPUs there are in the words that loaders choose by, in
every language: the key `sm` is the compute capability without its dot.
"""

from __future__ import annotations

from emitter.device import read_program
from emitter.errors import FormatError, InputError, UsageError, shown
from emitter.inputs._common import Contents, stem
from emitter.inspect.view import View
from emitter.modules import Alternative, ModuleFacts, check_name, parse_requirement
from emitter.package import Extent
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emitter.device import Image, Program
    from emitter.modules import Module
    from emitter.package import FileSource, Package

__all__ = ["FORMAT", "IMAGES", "adopt", "read"]

FORMAT, IMAGES = "device.format", "device.images"  # keys of a module's metadata


def read(source: FileSource, prefix: str) -> Contents:
    """Return the module that a file of device code is, called `prefix` or else after the file, without its suffix.

    Raises InputError, with the offset and what was expected there, for a file that its runtime would not take.
    """
    with View.open(source.path) as view:
        if view.size != source.size:
            raise InputError("changed while it was read", where=source.path, hint="emit it again")
        try:
            program = read_program(view)
        except FormatError as error:
            raise InputError(
                error.what, where=error.where, expected=error.expected, actual=error.actual, hint=error.hint
            ) from error
    name = check_name(prefix or stem(source.path), "the name of a module")
    extent = Extent(source, 0, program.size, label=f"module {shown(name)}")
    images = sorted(program.images, key=lambda image: image.order)
    alternatives = _alternatives(program, images, extent, f"module {shown(name)}")
    metadata = {FORMAT: program.format, **{f"device.{key}": value for key, value in program.facts.items()}}
    names = " ".join(image.name for image in images if image.name)
    if names:
        metadata[IMAGES] = names
    return Contents([], modules=[ModuleFacts(name, alternatives, [], {}, metadata)])


def _alternatives(program: Program, images: list[Image], extent: Extent, where: str) -> list[Alternative]:
    found: dict[tuple[tuple[str, str], ...], Alternative] = {}
    for image in images:
        conditions = tuple(parse_requirement(key, text, where) for key, text in sorted(image.requires.items()))
        # Two images for one GPU (a debug form, say) are one alternative: which is taken is the driver's choice.
        key = tuple((one.key, one.requirement) for one in conditions)
        found.setdefault(key, Alternative(program.kind, 1, extent, conditions, program.alignment))
    if () in found:
        # Something in it runs anywhere, as far as the bytes say.
        return [found[()]]
    return list(found.values())


def adopt(package: Package, facts: ModuleFacts, *, named: bool) -> None:
    """Add a module of `read` to a package; if it was `named` and there is one of that name, as more forms of that.

    So several cubins become one program. The form that suits a GPU best comes first. Raises InputError for a second
    form for the same GPU, and where the other module is no program of the same runtime.
    """
    other = next((module for module in package.modules if module.name == facts.name), None)
    if other is None or not named:
        package.adopt([facts])
        return
    where = f"module {shown(facts.name)}"
    if FORMAT not in other.metadata or other.alternatives[0].kind != facts.alternatives[0].kind:
        raise UsageError(f"two modules are called {shown(facts.name)}", where=where, hint="rename one of them")
    known = {tuple(one.requirement for one in alternative.conditions) for alternative in other.alternatives}
    for alternative in facts.alternatives:
        requirement = tuple(one.requirement for one in alternative.conditions)
        if requirement in known or not requirement:
            raise InputError(
                f"{where} has code for this GPU already",
                where=alternative.extent.source.path,
                actual=facts.metadata.get(IMAGES, "code for a GPU that the file does not name"),
                hint="leave one of the files out, or give it another name",
            )
    _extend(package, other, facts)


def _extend(package: Package, module: Module, facts: ModuleFacts) -> None:
    combined = [*module.alternatives, *facts.alternatives]
    package.replace_alternatives(module, sorted(combined, key=_rank), _joined(module.metadata, facts.metadata))


def _rank(alternative: Alternative) -> tuple[bool, int]:
    """Return the place of a form: machine code before PTX, newer GPUs first. Equal ones keep their order."""
    from emitter.pack.format import AT_LEAST

    condition = alternative.conditions[0]
    number = condition.value
    return condition.comparison == AT_LEAST, -int(number) if number.isdecimal() else 0


def _joined(first: Mapping[str, str], second: Mapping[str, str]) -> dict[str, str]:
    joined = dict(first)
    for key, value in second.items():
        between = " " if key == IMAGES else ", "
        words = [*joined.get(key, "").split(between), *value.split(between)]
        joined[key] = between.join(dict.fromkeys(word for word in words if word))
    return joined
