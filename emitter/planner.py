"""Plans outputs: for each target the layout of the file, its symbols, and the files beside it. Nothing is written."""

from __future__ import annotations

import os

from emitter.companions import depfile_text
from emitter.errors import LayoutError, UsageError, shown
from emitter.jobs import Job, Outline, check_paths, universal
from emitter.layout import FilePlan
from emitter.limits import as_hint, beyond, exceeded, proposals, sidecar_exceeded, too_large
from emitter.modules import owners
from emitter.options import BLOB_STYLES, COMPANIONS, check_options, expand, has_placeholder, output_format, symbol_name
from emitter.pack.format import SIDECAR_ALIGNMENT
from emitter.pack.plan import DEFAULT_ALIGNMENT, plan_pack
from emitter.records import TYPE_CHECKING
from emitter.writers import plan_image, plan_linkable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from emitter.link.plan import Code
    from emitter.model import ObjectModel, TensorSymbol
    from emitter.options import Format, Options, Style
    from emitter.pack.plan import PackPlan
    from emitter.package import ByteOrder, Package
    from emitter.targets import Resolved
    from emitter.targets._base import Target

__all__ = ["Planner"]


class Planner:
    """Plans the outputs of one package; the pack is laid out once for each byte order."""

    def __init__(
        self, package: Package, options: Options, say: Callable[[str], None], warn: Callable[[str], None]
    ) -> None:
        self._package = package
        self._options = options
        self._say = say
        self._warn = warn
        self._packs: dict[ByteOrder, PackPlan] = {}
        self._same_as: dict[ByteOrder, Mapping[str, str]] = {}

    def plan(self, output: str, resolved: Sequence[Resolved]) -> list[Job]:
        """Return the plan of the output for each target; raise EmitterError for what cannot be written."""
        self.check_request(output, resolved)
        jobs = [self.plan_one(self.outline(output, one), one) for one in resolved]
        if self.is_universal(output, resolved):
            jobs = [universal(jobs)]
        check_paths(jobs)
        return jobs

    def check_request(self, output: str, resolved: Sequence[Resolved]) -> None:
        """Raise UsageError for what is wrong with a request as a whole, whatever its sizes."""
        if not self._package.tensors and not self._package.modules and not self._package.code:
            raise UsageError(
                "there is nothing to write", hint="name at least one input that holds a tensor, or add one"
            )
        if self._package.code:
            self._check_code_request(output, resolved)
        for module in self._package.modules:
            always = [number for number, one in enumerate(module.alternatives[:-1]) if not one.conditions]
            if always:
                self._warn(
                    f"module {shown(module.name)}: alternative {always[0]} always fits, so those behind it are never "
                    "loaded: put the one without requirements last"
                )
        if not resolved:
            raise UsageError("no target", hint="name one, or leave the option out for this machine's")
        if output in {"", "-"}:
            raise UsageError(
                "not the name of a file", where=repr(output), hint="parts of a file are written out of order"
            )
        if self.is_universal(output, resolved):
            from emitter.splice.universal import check_slices

            check_slices([one.target for one in resolved])
        elif len(resolved) > 1:
            self._check_placeholders(output)

    def _check_code_request(self, output: str, resolved: Sequence[Resolved]) -> None:
        """Raise UsageError for what cannot be combined with code."""
        options = self._options
        for flag, value in (("--sidecar", options.sidecar), (f"--symbols {options.symbols}", options.symbols)):
            if value:
                raise UsageError(f"{flag} cannot be combined with code", hint="leave out the one or the other")
        if resolved and self.is_universal(output, resolved):
            raise UsageError(
                "code is linked for one target at a time",
                where=output,
                hint="put {target} into -o, and join the libraries with lipo",
            )

    def is_universal(self, output: str, resolved: Sequence[Resolved]) -> bool:
        """Whether several targets make one file: Apple's, with one path for all, and not a bare pack."""
        return (
            len(resolved) > 1
            and not has_placeholder(output)
            and all(one.target.object_format == "macho" for one in resolved)
            and output_format(expand(output, resolved[0], self._lib_name()), self._options.emit, resolved[0].target)
            != "pack"
        )

    def _check_placeholders(self, output: str) -> None:
        for option, template in {"output": output, **self._companions()}.items():
            # The header is the same for every target.
            if option != "header" and not has_placeholder(template):
                raise UsageError(
                    "several targets would write one file",
                    where=template,
                    hint="put {target} or {triple} into the path; only Apple's libraries, archives and objects can be "
                    "one file for several CPUs",
                )

    def _companions(self) -> dict[str, str]:
        return {option: path for option in COMPANIONS if (path := getattr(self._options, option))}

    def outline(self, output: str, resolved: Resolved) -> Outline:
        """Return what the output for a target holds; raise EmitterError for options that do not fit together."""
        options, target = self._options, resolved.target
        path = expand(output, resolved, self._lib_name())
        format_ = output_format(path, options.emit, target)
        check_options(options, format_, target.object_format, code=bool(self._package.code))
        if self._package.code and format_ == "pack":
            raise UsageError("a pack holds no code", where=path, hint="write a library, an object or an archive")
        self._say(f"{resolved.typed}: {target.description}; writing {format_} {path}")
        if options.symbols or options.cuda_register:
            parts = owners(self._package) if options.cuda_register else self._package.tensors
            size = sum(part.nbytes for part in parts)
            return Outline(path, format_, None, None, None, size)
        symbol = None if format_ == "pack" else symbol_name(path, options.name)
        pack = self._pack(target.byte_order)
        if not options.sidecar:
            return Outline(path, format_, symbol, pack, None, pack.total_size)
        from emitter.options import sidecar_name
        from emitter.pack.plan import plan_index
        from emitter.sidecar import plan_sidecar

        chosen = options.sidecar_name
        name = sidecar_name(path, None if chosen is None else expand(chosen, resolved, self._lib_name()))
        index = plan_index(
            self._package,
            target.byte_order,
            sidecar=name,
            pinned=options.pin,
            alignment=options.align or DEFAULT_ALIGNMENT,
            same_as=self._same_as[target.byte_order],
        )
        beside = plan_sidecar(path, name, pack, pinned=options.pin)
        return Outline(path, format_, symbol, index, beside, index.total_size)

    def _lib_name(self) -> str | None:
        files = self._package.files
        return self._options.name or (symbol_name(files[0], None) if files else None)

    def check_sizes(self, outline: Outline, target: Target) -> None:
        """Raise LayoutError, with what works instead, for bytes that the output's format cannot hold."""
        if outline.pack is None:
            return  # another tool's style, whose own limits are tighter
        size = outline.size if outline.sidecar is None else outline.sidecar.plan.size
        beside = outline.sidecar is not None
        limit = sidecar_exceeded(target, size) if beside else exceeded(target, outline.format, size)
        if limit is not None:
            works = proposals(target, outline.format, size, self._largest(), sidecar=beside)
            raise too_large("sidecar" if beside else outline.format, target, size, limit, as_hint(works))

    def _largest(self) -> int:
        return max((owner.nbytes for owner in owners(self._package)), default=0)

    def plan_one(self, outline: Outline, resolved: Resolved) -> Job:
        """Lay out one output; raise EmitterError for what cannot be written."""
        try:
            return self._lay_out(outline, resolved)
        except LayoutError as error:
            # What stands around the bytes makes a file too large whose bytes alone are not.
            target = resolved.target
            if outline.sidecar is None and outline.pack is not None and beyond(error, target, outline.format):
                error.hint = as_hint(proposals(target, outline.format, outline.size, self._largest()))
            raise

    def _lay_out(self, outline: Outline, resolved: Resolved) -> Job:
        options, target = self._options, resolved.target
        path, format_, symbol, pack, sidecar, _ = outline
        name = self._lib_name()
        companions = {option: expand(template, resolved, name) for option, template in self._companions().items()}
        for written in (path, *companions.values()):
            if "{" in written and "}" in written:
                self._warn(f"{written} is taken as it stands: the placeholders are {{target}}, {{triple}} and {{lib}}")
        if sidecar is not None:
            self._say(f"{path} holds the index, {sidecar.path} the bytes")
        self.check_sizes(outline, target)
        if "implib" in companions:
            from emitter.splice.implib import check_name

            check_name(target, path, companions["implib"])
        texts: dict[str, str | bytes] = {}
        tensor_symbols: Sequence[TensorSymbol] = ()
        code: Code | None = None
        if options.cuda_register:
            from emitter.cuda_register import plan_registered

            prefix, visibility = options.symbol_prefix or "", options.visibility or "hidden"
            plan = plan_registered(target, format_, path, self._package, prefix=prefix, visibility=visibility)
        elif options.symbols:
            modules = self._package.modules and options.symbols != "tvm"
            if self._package.metadata or self._package.model_version or modules:
                raise UsageError(
                    f"--symbols {options.symbols} has no place for modules, metadata and a model version",
                    hint="leave out --meta, --keep-metadata and --model-version, or the modules",
                )
            plan = plan_linkable(target, format_, path, self._style_model(target, options.symbols))
            if options.symbols in BLOB_STYLES:
                from emitter.styles import data_symbols

                tensor_symbols = data_symbols(options.symbols, self._package.tensors)
        elif pack is None or symbol is None:
            pack = self._pack(target.byte_order)
            plan = FilePlan(pack.total_size, (), pack.payloads, pack_offset=0)
        else:
            tensor_symbols = self._tensor_symbols(pack, symbol)
            if self._package.code:
                tensor_symbols, code, plan = self._plan_code(target, path, format_, pack, symbol, tensor_symbols)
            texts |= self._texts(target, path, format_, pack, symbol, tensor_symbols, code)
            if code is not None:
                pass
            elif format_ == "library":
                plan = plan_image(target, path, pack, name=symbol, symbols=tensor_symbols, options=options)
            else:
                plan = plan_linkable(target, format_, path, self._pack_model(target, pack, symbol, tensor_symbols))
                self._speak_of_links(target, pack)
        if "depfile" in companions:
            outputs = [path] if sidecar is None else [path, sidecar.path]
            inputs = [*self._package.files, *(code.files if code is not None else ())]
            texts["depfile"] = depfile_text(outputs, list(dict.fromkeys(inputs)))
        return Job(path, resolved, format_, symbol, pack, plan, tensor_symbols, companions, texts, sidecar, (), code)

    def _plan_code(  # noqa: PLR0917 - six facts about one output
        self,
        target: Target,
        path: str,
        format_: Format,
        pack: PackPlan,
        symbol: str,
        shown_tensors: Sequence[TensorSymbol],
    ) -> tuple[Sequence[TensorSymbol], Code, FilePlan]:
        """Return the symbols of tensors that are shown, the code, and the plan of what goes to the linker with it."""
        from emitter.link.plan import Output, plan_code
        from emitter.symbols import tensor_symbols

        prefix = self._options.symbol_prefix if self._options.symbol_prefix is not None else f"{symbol}_t_"
        every = shown_tensors or tensor_symbols(self._package.tensors, pack, prefix)
        exported = shown_tensors or [one for one in every if one.name in self._options.export]
        large = self._large(target, pack)
        output = Output(target, format_, path, symbol, pack, every, exported, large)
        return exported, *plan_code(self._package, self._options, output, self._say, self._warn)

    def _texts(  # noqa: PLR0917 - six facts about one output
        self,
        target: Target,
        path: str,
        format_: Format,
        pack: PackPlan,
        symbol: str,
        tensor_symbols: Sequence[TensorSymbol],
        code: Code | None,
    ) -> dict[str, str | bytes]:
        """Return what the header, the linker script fragment and the import library will hold, where asked for."""
        texts: dict[str, str | bytes] = {}
        options = self._options
        if options.header:
            from emitter.header import render_header

            alignment = options.align or DEFAULT_ALIGNMENT
            texts["header"] = render_header(
                name=symbol,
                package=self._package,
                plan=pack,
                symbols=tensor_symbols,
                alignment=alignment,
                imported=format_ == "library",
                sidecar=options.sidecar,
                functions={} if code is None else code.functions,
            )
        if options.linker_script:
            from emitter.sections import pack_section
            from emitter.symbols import linker_script

            large = self._large(target, pack)
            texts["linker_script"] = linker_script(
                target, pack_section(target, symbol, section=options.section, large=large), region=options.region
            )
        if options.implib:
            from emitter.splice.implib import import_library

            names = [symbol, f"{symbol}_size", "emitter_pack", *(one.name for one in tensor_symbols)]
            functions: list[str] = []
            if code is not None:
                names, functions = list(code.data), sorted(code.functions)
            texts["implib"] = import_library(target, os.path.basename(path), names, functions=functions)
        return texts

    def _pack(self, byte_order: ByteOrder) -> PackPlan:
        if byte_order not in self._packs:
            from emitter.pack.deduplicate import find_duplicates

            same_as = find_duplicates(owners(self._package), byte_order)
            alignment = self._options.align or DEFAULT_ALIGNMENT
            first = SIDECAR_ALIGNMENT if self._options.sidecar else 1
            plan = plan_pack(self._package, byte_order, alignment=alignment, same_as=same_as, first_payload=first)
            self._packs[byte_order] = plan
            self._same_as[byte_order] = same_as
            self._say(
                f"pack, {byte_order}-endian: {len(self._package.tensors)} tensors, {len(plan.payloads)} payloads, "
                f"index {plan.index_size} bytes, total {plan.total_size} bytes"
            )
        return self._packs[byte_order]

    def _tensor_symbols(self, pack: PackPlan, symbol: str) -> Sequence[TensorSymbol]:
        """Return the symbols of the tensors, if they are asked for, after comparing all final names."""
        from emitter.symbols import check_symbols, tensor_symbols

        prefix = self._options.symbol_prefix if self._options.symbol_prefix is not None else f"{symbol}_t_"
        symbols = tensor_symbols(self._package.tensors, pack, prefix) if self._options.tensor_symbols else []
        check_symbols(symbol, symbols)
        return symbols

    def _large(self, target: Target, pack: PackPlan) -> bool:
        from emitter.symbols import use_large_data

        return use_large_data(target, pack.total_size, self._options.large_data or "auto")

    def _speak_of_links(self, target: Target, pack: PackPlan) -> None:
        """Say where a large payload goes, and warn of what links do not take as it is."""
        if self._large(target, pack) and target.large_data:
            self._say(f"the payload goes into {target.large_data.section}, the section for large data")
        if target.object_format == "coff":
            largest = target.max_image_size
            if largest is not None and pack.total_size > largest:
                self._warn(f"the payload exceeds the {largest} bytes that a program of {target.name} may have: no link")
        elif pack.total_size > target.reach and not self._options.linker_script:
            self._warn(
                f"the payload exceeds the {target.reach >> 30} GiB that code of {target.name} reaches: link with the "
                "fragment that --linker-script writes, or emit a shared library"
            )
        if target.object_format == "coff" and pack.alignment > target.max_page_size:
            self._warn(f"lld-link and link.exe keep an alignment of {pack.alignment} with /ALIGN:{pack.alignment} only")

    def _pack_model(
        self, target: Target, pack: PackPlan, symbol: str, tensor_symbols: Sequence[TensorSymbol]
    ) -> ObjectModel:
        from emitter.symbols import pack_model

        return pack_model(
            target,
            pack,
            name=symbol,
            section=self._options.section,
            visibility=self._options.visibility or "hidden",
            tensor_symbols=tensor_symbols,
            retain=self._options.retain,
            large=self._large(target, pack),
        )

    def _style_model(self, target: Target, style: Style) -> ObjectModel:
        alignment = self._options.align or DEFAULT_ALIGNMENT
        visibility = self._options.visibility or "default"
        if style == "aoti":
            from emitter.interop.aoti import constants_model

            return constants_model(target, self._package, alignment=alignment, visibility=visibility)
        if style == "tvm":
            from emitter.interop.tvm_object import library_bin_model

            return library_bin_model(target, self._package, alignment=alignment, visibility=visibility)
        from emitter.styles import style_model

        return style_model(target, style, self._package.tensors, alignment=alignment, visibility=visibility)
