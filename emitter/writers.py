"""Which writer lays out what, by the target's object format. Each is imported when a file of its format is planned."""

from __future__ import annotations

import os

from emitter.options import symbol_name
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from emitter.layout import FilePlan
    from emitter.model import ObjectModel, TensorSymbol
    from emitter.options import Format, Options
    from emitter.pack.plan import PackPlan
    from emitter.splice.member import Member
    from emitter.targets._base import ObjectFormat, Target

__all__ = ["plan_image", "plan_linkable", "plan_member", "plan_members"]


def plan_image(
    target: Target, path: str, pack: PackPlan, *, name: str, symbols: Sequence[TensorSymbol], options: Options
) -> FilePlan:
    """Return the plan of a shared library that will be called as `path` is, and exports `name` and `symbols`."""
    return _IMAGES[target.object_format](
        target, os.path.basename(path), pack, name=name, symbols=symbols, options=options
    )


def plan_linkable(target: Target, format_: Format, path: str, model: ObjectModel) -> FilePlan:
    """Return the plan of an object, or of an archive whose one member is that object."""
    if format_ == "object":
        return _OBJECTS[target.object_format](target)(model, 0)
    return plan_members(target, path, model)


def plan_members(
    target: Target,
    path: str,
    model: ObjectModel,
    others: Sequence[tuple[str, Sequence[str], Callable[[int], FilePlan]]] = (),
) -> FilePlan:
    """Return the plan of an archive of an object, and `others`: names without suffix, what they define, planners."""
    from emitter.splice.member import Member

    plan_object = _OBJECTS[target.object_format](target)
    stem = symbol_name(path, None)
    rows = [
        (
            stem,
            [target.symbol_prefix + symbol.name for symbol in model.symbols],
            lambda offset: plan_object(model, offset),
        ),
        *((f"{stem}_{name}", names, plan) for name, names, plan in others),
    ]
    members = [Member(name + target.object_suffix, names, plan) for name, names, plan in rows]
    return _ARCHIVES[target.object_format](members)


def plan_member(target: Target, path: str, symbols: Sequence[str], plan: FilePlan) -> FilePlan:
    """Return the plan of an archive of one object that is laid out already, and defines `symbols`, in its order."""
    from emitter.splice.member import Member

    names = [target.symbol_prefix + symbol for symbol in symbols]
    member = Member(symbol_name(path, None) + target.object_suffix, names, lambda _offset: plan)
    return _ARCHIVES[target.object_format]([member])._replace(compiled=plan.compiled)


def _elf_image(
    target: Target, file_name: str, pack: PackPlan, *, name: str, symbols: Sequence[TensorSymbol], options: Options
) -> FilePlan:
    from emitter.image.elf import plan_image as plan

    soname = options.soname if options.soname is not None else file_name
    return plan(target, pack, name=name, soname=soname, symbols=symbols)


def _macho_image(
    target: Target, file_name: str, pack: PackPlan, *, name: str, symbols: Sequence[TensorSymbol], options: Options
) -> FilePlan:
    from emitter.image.macho import plan_image as plan

    install_name = options.install_name if options.install_name is not None else f"@rpath/{file_name}"
    return plan(target, pack, name=name, install_name=install_name, symbols=symbols)


def _pe_image(
    target: Target,
    file_name: str,
    pack: PackPlan,
    *,
    name: str,
    symbols: Sequence[TensorSymbol],
    options: Options,  # noqa: ARG001 - a DLL is called by its file name, whatever is asked for
) -> FilePlan:
    from emitter.image.pe import plan_image as plan

    return plan(target, pack, name=name, dll_name=file_name, symbols=symbols)


def _elf_object(target: Target) -> Callable[[ObjectModel, int], FilePlan]:
    from emitter import targets
    from emitter.splice.elf import plan_object

    stub = targets.stub(target)
    return lambda model, file_offset: plan_object(target, stub, model, file_offset=file_offset)


def _macho_object(target: Target) -> Callable[[ObjectModel, int], FilePlan]:
    from emitter.splice.macho import plan_object

    return lambda model, file_offset: plan_object(target, model, file_offset=file_offset)


def _coff_object(target: Target) -> Callable[[ObjectModel, int], FilePlan]:
    from emitter.splice.coff import plan_object

    return lambda model, file_offset: plan_object(target, model, file_offset=file_offset)


def _gnu_archive(members: Sequence[Member]) -> FilePlan:
    from emitter.splice.archive import plan_archive

    return plan_archive(members)


def _bsd_archive(members: Sequence[Member]) -> FilePlan:
    from emitter.splice.archive_bsd import plan_archive

    return plan_archive(members)


def _coff_archive(members: Sequence[Member]) -> FilePlan:
    from emitter.splice.archive_coff import plan_archive

    return plan_archive(members)


_IMAGES: Mapping[ObjectFormat, Callable[..., FilePlan]] = {"elf": _elf_image, "macho": _macho_image, "coff": _pe_image}
_OBJECTS: Mapping[ObjectFormat, Callable[[Target], Callable[[ObjectModel, int], FilePlan]]] = {
    "elf": _elf_object,
    "macho": _macho_object,
    "coff": _coff_object,
}
_ARCHIVES: Mapping[ObjectFormat, Callable[[Sequence[Member]], FilePlan]] = {
    "elf": _gnu_archive,
    "macho": _bsd_archive,
    "coff": _coff_archive,
}
