"""Plans an output that holds code beside a pack: what is compiled, what is linked with what, what is to be seen."""

from __future__ import annotations

import os

from emitter.errors import InputError, LayoutError, UsageError, shown
from emitter.image import check_alignment
from emitter.image.elf import KEPT_ALIGNMENT
from emitter.link.advice import check_constructors, warn_of_features, warn_of_options, warn_of_variables
from emitter.link.find import Linker, find_linker
from emitter.link.resolve import FLOAT_MARK, Wants, needed_members, resolve
from emitter.model import Section, Symbol
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from emitter.compile import Variable
    from emitter.layout import FilePlan
    from emitter.link.objects import CodeObject
    from emitter.model import ObjectModel, TensorSymbol
    from emitter.options import Format, Options
    from emitter.pack.plan import PackPlan
    from emitter.package import Package
    from emitter.targets._base import Target

__all__ = ["Code", "plan_code"]

_DESCRIPTOR_SIZE = 16


class Code(NamedTuple):
    """The code of one output. `functions` are what it exports, with their C types where these are known.

    `linker` is None for an archive, and for an object that is joined here: they are planned completely. `stub` is the
    plan of what is linked in place of the pack, where that is attached afterwards and never passes through the linker;
    None where it does.
    """

    objects: Sequence[CodeObject]
    functions: Mapping[str, list[str] | None]
    data: Sequence[str]
    wants: Wants
    linker: Linker | None
    stub: FilePlan | None
    far: bool
    name: str
    version_script: str | None

    @property
    def files(self) -> list[str]:
        """The files that the linker reads beside those of the package: libraries that were found, and the script."""
        return [*self.wants.paths, *([] if self.version_script is None else [self.version_script])]


def plan_code(  # noqa: PLR0917 - what one output is
    package: Package,
    options: Options,
    target: Target,
    format_: Format,
    path: str,
    symbol: str,
    pack: PackPlan,
    all_tensors: Sequence[TensorSymbol],
    shown_tensors: Sequence[TensorSymbol],
    large: bool,
    say: Callable[[str], None],
    warn: Callable[[str], None],
) -> tuple[Code, FilePlan]:
    """Compile the code of `package`, resolve its names, and return it with the plan of what the emitter itself writes.

    That is the object with the pack, which is linked with the code; or the whole archive. `all_tensors` are the
    symbols that tensors have, `shown_tensors` those that were asked for. Raises EmitterError for what cannot be
    compiled, linked or named.
    """
    script = options.version_script
    if script is not None and not os.path.isfile(script):
        raise UsageError("no such file", where=f"--version-script {shown(script)}")
    objects, variables, functions, started = _objects(package, options, target, say, warn)
    linked = format_ == "library"
    wants = resolve(
        target,
        objects,
        variables,
        symbol=symbol,
        tensors=all_tensors,
        libs=options.libs,
        folders=options.lib_dirs,
        allowed=options.allow_undefined,
        linked=linked,
    )
    _check_exports(options, objects, functions, symbol, all_tensors)
    warn_of_variables(package, wants, variables, warn)
    warn_of_options(options, objects, functions, format_, warn)
    if linked and target.object_format == "elf":
        check_alignment(target, pack, KEPT_ALIGNMENT, "")
    attached = _is_attached(target, format_, wants, say)
    far = pack.total_size > target.reach // 2
    near = [one.name for one in wants.tensors if one.name in variables and variables[one.name].near]
    if far and not attached and near:
        raise LayoutError(
            "the payload is out of reach of code that fixes its distance",
            where=", ".join(near[:8]),
            expected="a declaration of default visibility without dso_local",
            actual=f"{pack.total_size} bytes of payload",
            hint=f"or reach the pack through {symbol}_descriptor: docs/code.md",
        )
    hidden = [one for one in wants.tensors if one not in shown_tensors]
    model = _model(target, pack, symbol, options, format_, shown_tensors, hidden, wants, large=large)
    if format_ == "archive":
        plan, linker = _archive(target, path, model, objects), None
    elif format_ == "object" and target.object_format != "elf" and options.linker is None:
        plan, linker = _joined(target, model, objects), None
        say("object: code and data are joined without a linker")
    else:
        linker = find_linker(target, options.linker, say)
        plan = _object(target, path, model)
    if linked:
        check_constructors(target, linker, objects, started)
    own = {symbol, f"{symbol}_size", "emitter_pack", *(one.name for one in shown_tensors)}
    if linked:
        # What COFF objects export by themselves is exported, whatever the linker is told.
        themselves = dict(row for one in objects for row in one.exports)
        functions = dict.fromkeys(name for name, is_data in themselves.items() if not is_data) | functions
        own |= {name for name, is_data in themselves.items() if is_data}
    data = sorted(own) + sorted(set(options.export) - functions.keys() - own)
    name = (options.soname or options.install_name) if linked else None
    stub = _stub(target, path, symbol, shown_tensors) if attached else None
    code = Code(objects, functions, data, wants, linker, stub, far, name or "", options.version_script)
    return code, plan


def _objects(
    package: Package, options: Options, target: Target, say: Callable[[str], None], warn: Callable[[str], None]
) -> tuple[list[CodeObject], dict[str, Variable], dict[str, list[str] | None], list[str]]:
    """Return all objects, what the IR says of variables that it declares, what is exported, and its constructors."""
    from emitter.code import read_source
    from emitter.compile import compile_code, settings_of
    from emitter.link.objects import read_objects

    modules = [one for one in package.code if one.kind in ("ir", "bitcode")]
    objects: list[CodeObject] = []
    variables: dict[str, Variable] = {}
    functions: dict[str, list[str] | None] = {}
    started: list[str] = []
    if modules:
        settings = settings_of(
            target,
            options.opt_level,
            options.cpu,
            options.features,
            options.abi,
            options.export or None,
            options.compile_seconds,
            options.compile_memory,
        )
        compiled = compile_code(modules, target, settings, cache=not options.no_cache, say=say)
        objects += read_objects(", ".join(one.path for one in modules), compiled.data, target, "object")
        variables, started = compiled.variables, compiled.constructors
        # Without those that LLVM found to be of no use (linkonce).
        functions = {name: types for name, types in compiled.signatures.items() if name in objects[0].defined}
        warn_of_features(target, compiled.beyond, warn)
        own = objects[0].functions & set(options.export) if options.export else objects[0].functions
        functions |= dict.fromkeys(sorted(own - functions.keys()))  # aliases of functions
    for one in package.code:
        if one.kind in ("object", "archive"):
            objects += read_objects(one.path, read_source(one), target, one.kind)
    objects = needed_members(objects)
    given = {
        name for one in objects[1 if modules else 0 :] if not one.member or options.export for name in one.functions
    }
    for name in sorted(given & set(options.export) if options.export else given):
        functions.setdefault(name, None)
    # What C cannot declare: names of C++ and Rust, which are reserved in C.
    functions = {name: None if name.startswith(("_Z", "_R")) else types for name, types in functions.items()}
    return objects, variables, functions, started


def _check_exports(
    options: Options,
    objects: Sequence[CodeObject],
    functions: Mapping[str, list[str] | None],
    symbol: str,
    tensors: Sequence[TensorSymbol],
) -> None:
    from emitter.symbols import check_names

    known = {name for one in objects for name in one.defined} | {one.name for one in tensors}
    unknown = [name for name in options.export if name not in known]
    if unknown:
        from difflib import get_close_matches

        near = get_close_matches(unknown[0], known, n=3)
        raise UsageError(
            "--export names what the code does not define",
            where=", ".join(map(shown, unknown)),
            hint=f"did you mean {', '.join(near)}?" if near else "names are those of the object, as nm shows them",
        )
    own = [(symbol, "the name"), (f"{symbol}_size", f"the size of {symbol}"), ("emitter_pack", "the pack")]
    taken = dict(own)
    for name in functions:
        if name in taken:
            raise InputError("the code exports a name of the pack", actual=name, where=taken[name])
    check_names(own[:2])


def _is_attached(target: Target, format_: Format, wants: Wants, say: Callable[[str], None]) -> bool:
    """Whether the pack goes into the library after it is linked: nothing in the code names it, and the format can."""
    from emitter.attach.stub import cannot_attach

    if format_ != "library":
        return False
    if wants.tensors or wants.pack:
        names = [one.name for one in wants.tensors[:3]] or ["the pack"]
        say(f"payload: linked in the ordinary way, since the code names {', '.join(names)}")
        return False
    reason = cannot_attach(target, format_)
    if reason is not None:
        say(f"payload: linked in the ordinary way: {reason}")
        return False
    say("payload: attached after linking, so that it does not pass through the linker")
    return True


def _model(  # noqa: PLR0917 - what one object is made of
    target: Target,
    pack: PackPlan,
    symbol: str,
    options: Options,
    format_: Format,
    shown_tensors: Sequence[TensorSymbol],
    hidden: Sequence[TensorSymbol],
    wants: Wants,
    *,
    large: bool,
) -> ObjectModel:
    """Return the object of the pack, with the symbols that the code wants beside those that are shown."""
    from emitter.symbols import check_symbols, pack_model

    visibility = options.visibility or "hidden"
    if format_ == "library":
        visibility = "protected" if target.object_format == "elf" else "default"
    check_symbols(symbol, [*shown_tensors, *hidden])
    model = pack_model(
        target,
        pack,
        name=symbol,
        section=options.section,
        visibility=visibility,
        tensor_symbols=shown_tensors,
        retain=format_ == "library" or options.retain,
        large=large,
    )
    at = model.symbols[0].section
    symbols = [Symbol(one.name, at, one.offset, one.size, visibility="hidden") for one in hidden]
    if format_ == "library":
        symbols.append(Symbol("emitter_pack", at, 0, pack.total_size, visibility=visibility))
    if wants.float_mark and format_ == "library":  # elsewhere the program's C library has it
        symbols.append(Symbol(FLOAT_MARK, 0, 0, 0))
    model = model._replace(symbols=[*model.symbols, *symbols])
    return _with_descriptor(target, model, symbol, pack) if wants.descriptor else model


def _with_descriptor(target: Target, model: ObjectModel, symbol: str, pack: PackPlan) -> ObjectModel:
    """Add the descriptor of docs/code.md: the distance from itself to the pack, and the size of the pack."""
    from emitter.layout import align_up
    from emitter.model import Reference

    name = f"{symbol}_descriptor"
    at = model.symbols[0].section or 0
    order = target.byte_order
    if target.object_format == "elf":
        data = bytes(8) + pack.total_size.to_bytes(8, order)
        section = Section(f".rodata.{name}", "rodata", _DESCRIPTOR_SIZE, _DESCRIPTOR_SIZE, data)
        number = len(model.sections)
        return model._replace(
            sections=[*model.sections, section],
            symbols=[*model.symbols, Symbol(name, number, 0, _DESCRIPTOR_SIZE, visibility="hidden")],
            references=[*model.references, Reference(number, 0, at)],
        )
    # No relocation of COFF has 64 bits of distance, and Mach-O needs none: behind the pack, the distance is known.
    held = model.sections[at]
    offset = align_up(pack.total_size, _DESCRIPTOR_SIZE)
    tail = (-offset).to_bytes(8, order, signed=True) + pack.total_size.to_bytes(8, order)
    sections = list(model.sections)
    sections[at] = held._replace(
        size=offset + _DESCRIPTOR_SIZE, tail=tail, alignment=max(held.alignment, _DESCRIPTOR_SIZE)
    )
    return model._replace(
        sections=sections, symbols=[*model.symbols, Symbol(name, at, offset, _DESCRIPTOR_SIZE, visibility="hidden")]
    )


def _object(target: Target, path: str, model: ObjectModel) -> FilePlan:
    from emitter.writers import plan_linkable

    return plan_linkable(target, "object", path, model)


def _joined(target: Target, model: ObjectModel, objects: Sequence[CodeObject]) -> FilePlan:
    """Return the plan of an object of the code and the pack; linkers for the other formats than ELF join none."""
    if len(objects) != 1:
        raise LayoutError(
            "several objects are joined by no linker for this target",
            where=target.name,
            expected="LLVM IR, or one object",
            actual=", ".join(one.path for one in objects[:4]),
            hint=f"write an archive ({target.archive_suffix})"
            + ("; or name GNU ld as --linker" if target.gnu_triple else ""),
        )
    if target.object_format == "coff":
        from emitter.link.join_coff import plan_joined
    else:
        from emitter.link.join_macho import plan_joined
    return plan_joined(target, model, objects[0].data, objects[0].path)


def _stub(target: Target, path: str, symbol: str, tensors: Sequence[TensorSymbol]) -> FilePlan:
    from emitter.attach.stub import stub_model

    return _object(target, path, stub_model(target, symbol, tensors))


def _archive(target: Target, path: str, model: ObjectModel, objects: Sequence[CodeObject]) -> FilePlan:
    from emitter.layout import FilePlan, Piece
    from emitter.writers import plan_members

    def planned(data: bytes) -> Callable[[int], FilePlan]:
        return lambda _offset: FilePlan(len(data), [Piece(0, data)], ())

    others = [(f"code{n or ''}", one.symbols, planned(one.data)) for n, one in enumerate(objects)]
    return plan_members(target, path, model, others)
