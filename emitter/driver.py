"""The flow: inputs, plan, write, check, rename. `emit` reads top to bottom."""

from __future__ import annotations

import os
from _thread import start_new_thread
from collections.abc import Iterable
from contextlib import ExitStack, suppress

from emitter import targets
from emitter.errors import UsageError
from emitter.modules import owners
from emitter.options import make_options
from emitter.package import Package
from emitter.planner import Planner
from emitter.records import TYPE_CHECKING, NamedTuple
from emitter.values import check_function, check_text, output_path

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import BinaryIO

    from emitter.jobs import Job
    from emitter.options import Format
    from emitter.output import OutputFile

__all__ = ["Artefact", "emit"]

_WORTH_A_THREAD = 8 << 20  # bytes of output


class Artefact(NamedTuple):
    """One output that was written. Sizes in bytes.

    `target` is the target's own name, however it was typed; of a universal file, those of all, with + between them.
    `symbol` is that of the pack: None for a .pack, and with the option `symbols`, as `schema_hash` is then.
    `payload_size` are the bytes of all tensors and modules, `deduplicated_size` those that were not stored again.
    `sidecar` is the path of the file that holds the bytes, `sidecar_size` its size; None if it is the output itself.
    `crcs` are the CRC-32C of the payloads, in the order of the file.
    """

    path: str
    target: str
    format: Format
    symbol: str | None
    size: int
    tensors: int
    modules: int
    payload_size: int
    deduplicated_size: int
    schema_hash: int | None
    sidecar: str | None
    sidecar_size: int | None
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
            "modules": self.modules,
            "payload_size": self.payload_size,
            "deduplicated_size": self.deduplicated_size,
            "schema_hash": None if self.schema_hash is None else f"0x{self.schema_hash:016x}",
            "sidecar": self.sidecar,
            "sidecar_size": self.sidecar_size,
        }


def emit(
    package: Package,
    output: str | os.PathLike[str],
    *,
    target: str | Sequence[str] = "native",
    to: BinaryIO | None = None,
    progress: Callable[[int, int], None] | None = None,
    note: Callable[[str], None] | None = None,
    warn: Callable[[str], None] | None = None,
    **options: object,
) -> list[Artefact]:
    """Write `package` to `output` for one target, or for several with `{target}` or `{triple}` in `output`.

    Without these, several of Apple's targets for one platform give one universal file, and one Artefact.
    With `to`, a stream open for writing bytes, the one output goes there, and `output` only says what it is called.
    `options` are the fields of `emitter.options.Options`; docs/python.md has their defaults. Returns an Artefact for
    each target, in their order. `progress(done, total)` is called with bytes, `note(line)` with what was decided,
    `warn(line)` with what may not be what you want (without it, `note` gets that). Everything is checked before a byte
    is written, and existing files stay as they are until all their successors are complete. Raises EmitterError.
    """
    from emitter.output import DATA_MODE, IMAGE_MODE, StreamFile, holds, open_output
    from emitter.transfer import write_plan

    say = note or (lambda _line: None)
    _check_package(package)
    for function, what in ((progress, "`progress`"), (note, "`note`"), (warn, "`warn`")):
        check_function(function, what)
    planner = Planner(package, make_options(options), say, warn or say)
    jobs = planner.plan(output_path(output), [targets.resolve(name) for name in _target_names(target)])
    if to is not None:
        _check_stream(to, jobs)
    # Every file layout is fixed, and what can be refused has been.
    if max(job.bytes_plan.size for job in jobs) >= _WORTH_A_THREAD:
        with suppress(RuntimeError):  # where no thread can start, the import below takes its time
            start_new_thread(_import_check, (jobs[0],))  # the kernel copies, and the interpreter is idle

    artefacts = []
    with ExitStack() as stack:
        sources = package.sources
        outputs: list[StreamFile | OutputFile | None] = []
        sidecars: list[OutputFile | None] = []
        for job in jobs:
            beside = job.sidecar
            sidecars.append(
                stack.enter_context(open_output(beside.path, beside.plan.size, DATA_MODE, sources)) if beside else None
            )
            mode = IMAGE_MODE if job.format == "library" else DATA_MODE
            size = job.plan.size
            if job.code is not None and job.code.linker is not None:
                outputs.append(None)  # the linker makes it
            elif to is not None:
                outputs.append(stack.enter_context(StreamFile(job.path, size, to)))
            else:
                outputs.append(stack.enter_context(open_output(job.path, size, mode, sources)))
        finished: list[StreamFile | OutputFile] = []
        for job, out, bytes_out in zip(jobs, outputs, sidecars, strict=True):
            pack = job.pack
            if out is None:
                from emitter.link.build import build

                job, out, crcs = build(job, stack, sources, progress=progress, say=say)  # noqa: PLW2901 - it knows more now
            elif job.sidecar is not None and bytes_out is not None and pack is not None:
                from emitter.sidecar import write_sidecar

                pack, crcs = write_sidecar(bytes_out.fd, job.sidecar, pack, job.resolved.target, progress=progress)
                write_plan(out.fd, job.plan, pack)
            else:
                crcs = write_plan(out.fd, job.plan, pack, progress=progress)
            # The bytes are final.
            if job.code is None:
                from emitter.check import check

                check(out.fd, job.format, job.resolved.target, job.plan, pack, job.symbol)
            elif pack is not None and job.code.linker is None:
                from emitter.check.unlinked import check_unlinked

                check_unlinked(out.fd, job, pack, crcs)
            for option, path in job.companions.items():
                text = _map_text(job, package, crcs) if option == "map" else job.texts[option]
                data = text if isinstance(text, bytes) else text.encode(errors="surrogateescape")
                # An unchanged header keeps its time stamp, so that nothing is compiled again.
                if option == "header" and holds(path, data):
                    continue
                companion = stack.enter_context(open_output(path, len(data), DATA_MODE, sources))
                companion.write(data)
                finished.append(companion)
            finished.append(out)
            if bytes_out is not None:
                finished.append(bytes_out)  # behind the library: where that cannot be replaced, both stay
            artefacts.append(_artefact(package, job, crcs))
        # Everything is written. What follows are renames.
        for file in finished:
            file.commit()
            say(f"wrote {file.path}: {file.size} bytes")
    return artefacts


def _import_check(job: Job) -> None:
    """Import what checks an output, before it is wanted."""
    from emitter.check import check_of

    with suppress(Exception):  # the check itself imports it again, and says what is wrong
        if job.format != "pack" and job.code is None:
            check_of(job.format, job.resolved.target)


def _check_package(package: object) -> None:
    if not isinstance(package, Package):
        raise UsageError("this is not a package", expected="an emitter.Package", actual=type(package).__name__)


def _check_stream(stream: object, jobs: Sequence[Job]) -> None:
    from io import TextIOBase

    if not callable(getattr(stream, "write", None)) or isinstance(stream, TextIOBase):
        raise UsageError("`to` is not a stream", expected="an object with write(bytes)", actual=type(stream).__name__)
    if any(job.code is not None and job.code.linker is not None for job in jobs):
        raise UsageError("a stream takes no output of a linker", hint="leave out `to`, or write an archive")
    if len(jobs) > 1 or jobs[0].sidecar is not None:
        raise UsageError(
            "a stream takes one file",
            actual=f"{len(jobs)} outputs" if len(jobs) > 1 else "a library and its sidecar",
            hint="leave out `to`, or emit one after the other",
        )


def _target_names(target: object) -> list[str]:
    if isinstance(target, Iterable) and not isinstance(target, (str, bytes)):
        return [check_text(name, "the name of a target") for name in target]
    return [check_text(target, "the name of a target")]


def _map_text(job: Job, package: Package, crcs: Sequence[int]) -> str:
    from emitter.companions import map_text

    return map_text(
        output=os.path.basename(job.path),
        target=job.target_name,
        byte_order=job.resolved.target.byte_order,
        format=job.format,
        symbol=job.symbol,
        package=package,
        pack=job.pack,
        plan=job.plan,
        sidecar=job.sidecar,
        tensor_symbols=job.tensor_symbols,
        crcs=crcs,
    )


def _artefact(package: Package, job: Job, crcs: Sequence[int]) -> Artefact:
    payload_size = sum(owner.nbytes for owner in owners(package))
    # Each slice of a universal file has all of them.
    written = sum(copy.size for copy in job.bytes_plan.copies) // (len(job.bytes_plan.slices) or 1)
    ended = 0 if job.pack is None else job.pack.terminators
    return Artefact(
        path=job.path,
        target=job.target_name,
        format=job.format,
        symbol=job.symbol,
        size=job.plan.size,
        tensors=len(package.tensors),
        modules=len(package.modules),
        payload_size=payload_size,
        deduplicated_size=payload_size - (written - ended),
        schema_hash=None if job.pack is None else job.pack.schema,
        sidecar=None if job.sidecar is None else job.sidecar.path,
        sidecar_size=None if job.sidecar is None else job.sidecar.plan.size,
        crcs=tuple(crcs),
    )
