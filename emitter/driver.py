"""The flow: inputs, plan, write, check, rename. `emit` reads top to bottom."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emitter import targets
from emitter.errors import UsageError
from emitter.layout import FilePlan
from emitter.options import COMPANIONS, check_options, expand, has_placeholder, make_options, output_format, symbol_name
from emitter.pack.plan import DEFAULT_ALIGNMENT, plan_pack

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from emitter.model import ObjectModel, TensorSymbol
    from emitter.options import Format, Options
    from emitter.pack.plan import PackPlan
    from emitter.package import ByteOrder, Package
    from emitter.targets import Resolved
    from emitter.targets._base import Target

__all__ = ["Artefact", "emit"]


@dataclass(frozen=True, slots=True)
class Artefact:
    """One output that was written. Sizes in bytes; `crcs` are the CRC-32C of the payloads, in the order of the file."""

    path: str
    target: str
    format: Format
    symbol: str | None
    size: int
    tensors: int
    payload_size: int
    deduplicated_size: int
    schema_hash: int | None
    crcs: tuple[int, ...]

    def to_json(self) -> dict[str, object]:
        """Return the fields as a document of the schema `emitter.emit/1` has them; a hash is a hexadecimal string."""
        return {
            "path": self.path,
            "target": self.target,
            "format": self.format,
            "symbol": self.symbol,
            "size": self.size,
            "tensors": self.tensors,
            "payload_size": self.payload_size,
            "deduplicated_size": self.deduplicated_size,
            "schema_hash": None if self.schema_hash is None else f"0x{self.schema_hash:016x}",
        }


@dataclass(frozen=True, slots=True)
class _Job:
    """One output, planned completely. `companions` are the paths of the files beside it, by option."""

    path: str
    resolved: Resolved
    format: Format
    symbol: str | None
    pack: PackPlan | None
    plan: FilePlan
    tensor_symbols: Sequence[TensorSymbol]
    companions: Mapping[str, str]


def emit(
    package: Package,
    output: str | os.PathLike[str],
    *,
    target: str | Sequence[str] = "native",
    progress: Callable[[int, int], None] | None = None,
    note: Callable[[str], None] | None = None,
    **options: object,
) -> list[Artefact]:
    """Write `package` to `output` for one target, or for several with `{target}`, `{triple}` or `{lib}` in `output`.

    `options` are the fields of `emitter.options.Options`. `progress(done, total)` is called with bytes, `note(line)`
    with what was decided. Everything is checked before a byte is written, and an existing output stays as it is until
    its successor is complete. Raises EmitterError.
    """
    from emitter.check import check
    from emitter.output import open_output
    from emitter.transfer import write_plan

    say = note or (lambda _line: None)
    settings = make_options(options)
    typed = [target] if isinstance(target, str) else list(target)
    jobs = _plan_jobs(package, os.fspath(output), [targets.resolve(name) for name in typed], settings, say)
    # Every file layout is fixed, and what can be refused has been.

    artefacts = []
    for job in jobs:
        with ExitStack() as stack:
            main = stack.enter_context(
                open_output(job.path, job.plan.size, executable=job.format == "library", inputs=package.files)
            )
            crcs = write_plan(main.fd, job.plan, job.pack, progress=progress)
            # The bytes are final.
            check(main.fd, job.format, job.resolved.target, job.plan, job.pack, job.symbol)
            finished = []
            for option, path in job.companions.items():
                text = _companion_text(option, job, package, crcs).encode()
                if option == "header" and _holds(path, text):
                    continue  # its time stamp is what makes users' files recompile
                companion = stack.enter_context(open_output(path, len(text), inputs=package.files))
                companion.write(text)
                finished.append(companion)
            for file in (*finished, main):
                file.commit()
        say(f"wrote {job.path}: {job.plan.size} bytes")
        artefacts.append(_artefact(package, job, crcs))
    return artefacts


def _plan_jobs(
    package: Package, output: str, resolved: Sequence[Resolved], options: Options, say: Callable[[str], None]
) -> list[_Job]:
    if not package.tensors:
        raise UsageError("there is nothing to write", hint="name at least one input that holds a tensor, or add one")
    templates = {
        "-o": output,
        **{f"--{o.replace('_', '-')}": path for o in COMPANIONS if (path := getattr(options, o))},
    }
    for option, template in templates.items():
        # The header is the same for every target.
        if len(resolved) > 1 and option != "--header" and not has_placeholder(template):
            raise UsageError(
                f"several targets would write one file with {option}",
                where=template,
                hint="put {target} or {triple} into the path",
            )
    packs = _PackPlans(package, options, say)
    jobs = [_plan_job(package, output, one, options, packs, say) for one in resolved]
    written: dict[str, tuple[str, str | None]] = {}
    for job in jobs:
        for option, path in (("-o", job.path), *job.companions.items()):
            this = (option, job.symbol)
            other = written.setdefault(os.path.realpath(path), this)
            if other is not this and not (option == "header" and this == other):
                raise UsageError(
                    "two outputs would be one file",
                    where=path,
                    actual=f"{other[0]} for {other[1]} and {option} for {job.symbol}",
                )
    return jobs


class _PackPlans:
    """The layouts of a package, one for each byte order: made once, however many targets there are."""

    def __init__(self, package: Package, options: Options, say: Callable[[str], None]) -> None:
        self._package = package
        self._options = options
        self._say = say
        self._plans: dict[ByteOrder, PackPlan] = {}

    def of(self, byte_order: ByteOrder) -> PackPlan:
        if byte_order not in self._plans:
            from emitter.pack.deduplicate import find_duplicates

            same_as = find_duplicates(self._package.tensors, byte_order)
            plan = plan_pack(
                self._package, byte_order, alignment=self._options.align or DEFAULT_ALIGNMENT, same_as=same_as
            )
            self._plans[byte_order] = plan
            self._say(
                f"pack, {byte_order}-endian: {len(self._package.tensors)} tensors, {len(plan.payloads)} payloads, "
                f"index {plan.index_size} bytes, total {plan.total_size} bytes"
            )
        return self._plans[byte_order]


def _plan_job(
    package: Package, output: str, resolved: Resolved, options: Options, packs: _PackPlans, say: Callable[[str], None]
) -> _Job:
    target = resolved.target
    path = expand(output, resolved, options.name or symbol_name(package.files[0], None) if package.files else None)
    format_ = output_format(path, options.emit, target)
    check_options(options, format_)
    companions = {
        option: expand(template, resolved, options.name)
        for option in COMPANIONS
        if (template := getattr(options, option))
    }
    say(f"{resolved.typed}: {target.description}; writing {format_} {path}")
    pack, symbol, tensor_symbols = None, None, []
    if options.symbols:
        from emitter.symbols import style_model

        plan = _plan_model(target, format_, path, style_model(target, package.tensors, options.symbols, options))
    else:
        pack = packs.of(target.byte_order)
        if format_ == "pack":
            plan = FilePlan(pack.total_size, (), pack.payloads, pack_offset=0)
        else:
            symbol = symbol_name(path, options.name)
            tensor_symbols = _tensor_symbols(package, pack, symbol, options)
            if format_ == "library":
                plan = _plan_image(target, pack, path, symbol, tensor_symbols, options)
            else:
                plan = _plan_model(target, format_, path, _pack_model(target, pack, symbol, tensor_symbols, options))
    return _Job(path, resolved, format_, symbol, pack, plan, tensor_symbols, companions)


def _tensor_symbols(package: Package, pack: PackPlan, symbol: str, options: Options) -> list[TensorSymbol]:
    """Return the symbols of the tensors, if they are asked for, after comparing all final names."""
    from emitter.symbols import check_symbols, tensor_symbols

    prefix = options.symbol_prefix if options.symbol_prefix is not None else f"{symbol}_t_"
    symbols = tensor_symbols(package, pack, prefix) if options.tensor_symbols else []
    check_symbols(symbol, symbols)
    return symbols


def _pack_model(
    target: Target, pack: PackPlan, symbol: str, tensors: Sequence[TensorSymbol], options: Options
) -> ObjectModel:
    from emitter.symbols import pack_model, use_large_data

    return pack_model(
        target,
        pack,
        name=symbol,
        section=options.section,
        visibility=options.visibility or "hidden",
        tensor_symbols=tensors,
        retain=options.retain,
        large=use_large_data(target, pack.total_size, options.large_data or "auto"),
    )


def _plan_model(target: Target, format_: Format, path: str, model: ObjectModel) -> FilePlan:
    """Return the plan of an object, or of an archive whose one member is that object."""
    from emitter.splice.elf import plan_object

    stub = targets.stub(target)
    if format_ == "object":
        return plan_object(target, stub, model)
    from emitter.splice.archive import plan_archive

    member = symbol_name(path, None) + target.object_suffix
    symbols = [symbol.name for symbol in model.symbols]
    return plan_archive([(member, symbols, lambda offset: plan_object(target, stub, model, file_offset=offset))])


def _plan_image(
    target: Target, pack: PackPlan, path: str, symbol: str, tensors: Sequence[TensorSymbol], options: Options
) -> FilePlan:
    from emitter.image.elf import plan_image

    return plan_image(target, pack, name=symbol, soname=options.soname or os.path.basename(path), symbols=tensors)


def _companion_text(option: str, job: _Job, package: Package, crcs: Sequence[int]) -> str:
    target = job.resolved.target
    if option == "depfile":
        from emitter.companions import depfile_text

        return depfile_text([job.path], package.files)
    if option == "map":
        from emitter.companions import map_text

        return map_text(
            output=os.path.basename(job.path),
            target=target.name,
            format=job.format,
            symbol=job.symbol,
            package=package,
            pack=job.pack,
            plan=job.plan,
            tensor_symbols=job.tensor_symbols,
            crcs=crcs,
        )
    if option == "header":
        from emitter.header import render_header

        return render_header(name=job.symbol, package=package, plan=job.pack, symbols=job.tensor_symbols)
    from emitter.symbols import linker_script

    return linker_script(target, job.pack)


def _holds(path: str, text: bytes) -> bool:
    """Whether the file at `path` holds exactly `text`."""
    try:
        with open(path, "rb") as file:
            return file.read(len(text) + 1) == text
    except OSError:
        return False


def _artefact(package: Package, job: _Job, crcs: Sequence[int]) -> Artefact:
    payload_size = sum(tensor.nbytes for tensor in package.tensors)
    return Artefact(
        path=job.path,
        target=job.resolved.target.name,
        format=job.format,
        symbol=job.symbol,
        size=job.plan.size,
        tensors=len(package.tensors),
        payload_size=payload_size,
        deduplicated_size=payload_size - sum(copy.size for copy in job.plan.copies),
        schema_hash=None if job.pack is None else job.pack.schema,
        crcs=tuple(crcs),
    )
