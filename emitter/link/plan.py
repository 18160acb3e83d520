"""Plans an output that holds code beside a pack: what is compiled, what is linked with what, what is to be seen."""

from __future__ import annotations

import os

from emitter.attach.stub import cannot_attach, stub_model
from emitter.errors import InputError, LayoutError, UsageError, shown
from emitter.image import check_alignment
from emitter.image.elf import KEPT_ALIGNMENT
from emitter.link.advice import check_constructors, warn_of_features, warn_of_options, warn_of_variables
from emitter.link.find import Linker, find_linker
from emitter.link.pack_object import pack_object
from emitter.link.resolve import Wants, needed_members, resolve
from emitter.records import TYPE_CHECKING, NamedTuple
from emitter.writers import plan_linkable, plan_members

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

__all__ = ["Code", "Output", "plan_code"]


_NOT_IN_LISTS = frozenset('",=;{} \t\r\n\0')


class Output(NamedTuple):
    """What is to be written: `tensors` are the symbols that tensors have, `shown` those that were asked for."""

    target: Target
    format: Format
    path: str
    symbol: str
    pack: PackPlan
    tensors: Sequence[TensorSymbol]
    shown: Sequence[TensorSymbol]
    large: bool


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


def plan_code(
    package: Package, options: Options, out: Output, say: Callable[[str], None], warn: Callable[[str], None]
) -> tuple[Code, FilePlan]:
    """Compile the code of `package`, resolve its names, and return it with the plan of what the emitter itself writes.

    That is the object with the pack, which is linked with the code; or the whole archive, or joined object. Raises
    EmitterError for what cannot be compiled, linked or named.
    """
    script, target = options.version_script, out.target
    if script is not None and not os.path.isfile(script):
        raise UsageError("no such file", where=f"--version-script {shown(script)}")
    objects, variables, functions, started = _objects(package, options, target, say, warn)
    linked = out.format == "library"
    wants = resolve(
        target,
        objects,
        variables,
        symbol=out.symbol,
        tensors=out.tensors,
        libs=options.libs,
        folders=options.lib_dirs,
        allowed=options.allow_undefined,
        linked=linked,
    )
    _check_exports(options, objects, functions, out)
    warn_of_variables(package, wants, variables, warn)
    warn_of_options(options, objects, functions, out.format, warn)
    if linked and target.object_format == "elf":
        check_alignment(target, out.pack, KEPT_ALIGNMENT, "")
    attached = _is_attached(out, wants, say)
    far = out.pack.total_size > target.reach // 2
    if far and not attached:
        _check_reach(out, wants, variables)
    model = pack_object(out, options, wants)
    if out.format == "archive":
        plan, linker = _archive(out, model, objects), None
    elif out.format == "object" and target.object_format != "elf" and options.linker is None:
        plan, linker = _joined(target, model, objects), None
        say("object: code and data are joined without a linker")
    else:
        linker = find_linker(target, options.linker, say)
        plan = plan_linkable(target, "object", out.path, model)
    own = {out.symbol, f"{out.symbol}_size", "emitter_pack", *(one.name for one in out.shown)}
    if linked:
        check_constructors(target, linker, objects, started)
        # What COFF objects export by themselves is exported, whatever the linker is told.
        themselves = dict(row for one in objects for row in one.exports)
        functions = dict.fromkeys(name for name, is_data in themselves.items() if not is_data) | functions
        own |= {name for name, is_data in themselves.items() if is_data}
    data = sorted(own) + sorted(set(options.export) - functions.keys() - own)
    name = (options.soname or options.install_name) if linked else None
    stub = plan_linkable(target, "object", out.path, stub_model(target, out.symbol, out.shown)) if attached else None
    return Code(objects, functions, data, wants, linker, stub, far, name or "", script), plan


def _check_reach(out: Output, wants: Wants, variables: Mapping[str, Variable]) -> None:
    near = [one.name for one in wants.tensors if one.name in variables and variables[one.name].near]
    if near:
        raise LayoutError(
            "the payload is out of reach of code that fixes its distance",
            where=", ".join(near[:8]),
            expected="a declaration of default visibility without dso_local",
            actual=f"{out.pack.total_size} bytes of payload",
            hint=f"or reach the pack through {out.symbol}_descriptor: docs/code.md",
        )


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
    out: Output,
) -> None:
    from emitter.symbols import check_names

    known = {name for one in objects for name in one.defined} | {one.name for one in out.tensors}
    unknown = [name for name in options.export if name not in known]
    if unknown:
        from difflib import get_close_matches

        near = get_close_matches(unknown[0], known, n=3)
        raise UsageError(
            "--export names what the code does not define",
            where=", ".join(map(shown, unknown)),
            hint=f"did you mean {', '.join(near)}?" if near else "names are those of the object, as nm shows them",
        )
    own = [(out.symbol, "the name"), (f"{out.symbol}_size", f"the size of {out.symbol}"), ("emitter_pack", "the pack")]
    taken = dict(own)
    for name in functions:
        if name in taken:
            raise InputError("the code exports a name of the pack", actual=name, where=taken[name])
        if out.format == "library" and _NOT_IN_LISTS.intersection(name):
            raise InputError(
                "the code exports a name that the lists of linkers cannot hold",
                actual=shown(name),
                hint="hide the function, or name with --export what is wanted",
            )
    check_names(own[:2])


def _is_attached(out: Output, wants: Wants, say: Callable[[str], None]) -> bool:
    """Whether the pack goes into the library after it is linked: nothing in the code names it, and the format can."""
    if out.format != "library":
        return False
    if wants.tensors or wants.pack:
        names = [one.name for one in wants.tensors[:3]] or ["the pack"]
        say(f"payload: linked in the ordinary way, since the code names {', '.join(names)}")
        return False
    reason = cannot_attach(out.target, out.format)
    if reason is not None:
        say(f"payload: linked in the ordinary way: {reason}")
        return False
    say("payload: attached after linking, so that it does not pass through the linker")
    return True


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


def _archive(out: Output, model: ObjectModel, objects: Sequence[CodeObject]) -> FilePlan:
    from emitter.layout import FilePlan, Piece

    def planned(data: bytes) -> Callable[[int], FilePlan]:
        return lambda _offset: FilePlan(len(data), [Piece(0, data)], ())

    others = [(f"code{n or ''}", one.symbols, planned(one.data)) for n, one in enumerate(objects)]
    return plan_members(out.target, out.path, model, others)
