"""Builds an output that a linker makes: objects into a folder beside it, the linker, the payload behind, the check."""

from __future__ import annotations

import os

from emitter.errors import UsageError
from emitter.layout import BUILD_ID_SIZE, FilePlan
from emitter.output import DATA_MODE, IMAGE_MODE, LinkedFile, OutputFile, open_output
from emitter.package import OPEN_FLAGS, Package
from emitter.reading import pread
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    import hashlib
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import ExitStack

    from emitter.jobs import Job
    from emitter.link.libraries import Library
    from emitter.link.plan import Code
    from emitter.pack.plan import PackPlan
    from emitter.package import Source
    from emitter.targets._base import Target
    from emitter.transfer import Progress

__all__ = ["build"]

_STEP = 4 << 20


def build(
    job: Job,
    stack: ExitStack,
    sources: Iterable[Source],
    *,
    progress: Progress | None,
    say: Callable[[str], None],
) -> tuple[Job, OutputFile, list[int]]:
    """Write the output of a job with code; return the job with the plan as it is now, the file, and the CRC-32C.

    The file waits for its `commit`; leaving `stack` without one removes it. Raises EmitterError.
    """
    from emitter.output import work_folder

    code, target, pack = job.code, job.resolved.target, job.pack
    if code is None or pack is None or job.symbol is None or code.linker is None:
        msg = "this job is not one for a linker"
        raise TypeError(msg)
    OutputFile(job.path, 0, DATA_MODE, sources)  # refuses what must not be replaced, before the work
    folder = stack.enter_context(work_folder(job.path))
    # DLLs and signatures take their name from that of the linker's output; the other files have other names.
    name = os.path.basename(job.path)
    prefix = os.path.join(folder, "b-" if name.startswith("a") else "a-")
    linked = os.path.join(folder, name)
    inputs = _write_inputs(code, prefix)
    if code.stub is not None:
        stub = f"{prefix}stub.o"
        _write(stub, code.stub, None, None)
        _link(job, code, [*inputs, stub], linked, folder, far=False)
        attached = _attach(job, stack, sources, linked, pack, progress=progress, say=say)
        if attached is not None:
            return attached
    data = f"{prefix}constants.o"
    crcs = _write(data, job.plan, pack, progress)
    # Elsewhere than in ELF the descriptor stands behind the pack, in its section: what was linked is checked then.
    if not (code.wants.descriptor and target.object_format != "elf"):
        _check_object(data, job, pack)
    _link(job, code, [*inputs, data], linked, folder, far=code.far)

    from emitter.check.linked import check_linked

    offset, build_id = check_linked(linked, job, pack, crcs)
    out = stack.enter_context(LinkedFile(job.path, linked, sources))
    plan = FilePlan(out.size, (), [copy.moved(offset) for copy in pack.payloads], offset, build_id)
    if build_id is not None:
        out.write(_identity(out, plan, crcs), build_id)
    return job._replace(plan=plan), out, crcs


def _identity(out: OutputFile, plan: FilePlan, crcs: Sequence[int]) -> bytes:
    """Return the build id: of all bytes but those of payloads, of which size and CRC-32C stand for them."""
    from hashlib import sha256

    digest = sha256()
    at = 0
    for copy, crc in sorted(zip(plan.copies, crcs, strict=True), key=lambda pair: pair[0].offset):
        _hash(digest, out.fd, at, copy.offset)
        digest.update(copy.size.to_bytes(8, "little") + crc.to_bytes(4, "little"))
        at = copy.offset + copy.size
    _hash(digest, out.fd, at, plan.size)
    return digest.digest()[:BUILD_ID_SIZE]


def _hash(digest: hashlib._Hash, fd: int, start: int, end: int) -> None:
    for at in range(start, end, _STEP):
        digest.update(pread(fd, min(_STEP, end - at), at))


def _write(path: str, plan: FilePlan, pack: PackPlan | None, progress: Progress | None) -> list[int]:
    from emitter.transfer import write_plan

    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | OPEN_FLAGS, 0o600)
    try:
        os.ftruncate(fd, plan.size)
        return write_plan(fd, plan, pack, progress=progress)
    finally:
        os.close(fd)


def _check_object(path: str, job: Job, pack: PackPlan) -> None:
    from emitter.check import check

    fd = os.open(path, OPEN_FLAGS)
    try:
        check(fd, "object", job.resolved.target, job.plan, pack, job.symbol)
    finally:
        os.close(fd)


def _write_inputs(code: Code, prefix: str) -> list[str]:
    """Write the code, and return the paths of what the linker gets before the constants."""
    paths = []
    for number, one in enumerate(code.objects):
        path = f"{prefix}code{number or ''}.o"
        with open(path, "xb") as file:
            file.write(one.data)
        paths.append(path)
    return paths


def _link(job: Job, code: Code, objects: Sequence[str], linked: str, folder: str, *, far: bool) -> None:
    from emitter.link.drive import Request, link

    target = job.resolved.target
    script = None
    if far and target.object_format == "elf" and job.format == "library":
        from emitter.sections import pack_section
        from emitter.symbols import linker_script, use_large_data

        large = use_large_data(target, job.pack.total_size if job.pack else 0, "auto")
        script = os.path.join(folder, "far.lds")
        with open(script, "w", encoding="utf-8") as text:
            text.write(linker_script(target, pack_section(target, job.symbol or "", section=None, large=large)))
    libraries = [_stand_in(target, folder, library, names) for library, names in code.wants.libraries.items()]
    name = code.name or (f"@rpath/{os.path.basename(job.path)}" if target.macho else os.path.basename(job.path))
    request = Request(
        output=linked,
        folder=folder,
        objects=objects,
        libraries=[*map(os.path.abspath, code.wants.paths), *libraries],  # the linker runs in another folder
        name=name,
        exports=sorted(code.functions),
        data=code.data,
        relocatable=job.format == "object",
        undefined=bool(code.wants.allowed),
        script=script,
        version_script=None if code.version_script is None else os.path.abspath(code.version_script),
    )
    if code.linker is not None:
        link(code.linker, target, request)


def _stand_in(target: Target, folder: str, library: Library, names: Iterable[str]) -> str:
    """Write what stands for a library in the link: its name, and those of its functions that are used."""
    from emitter.link.drive import PLATFORMS

    path = os.path.join(folder, f"lib{os.path.basename(library.name)}")
    if target.object_format == "macho":
        arch = f"{target.llvm_triple.partition('-')[0]}-{PLATFORMS[target.macho.platform if target.macho else 0]}"
        symbols = ", ".join(f"_{name}" for name in sorted(names))
        text = (
            f"--- !tapi-tbd\ntbd-version: 4\ntargets: [ {arch} ]\ninstall-name: '{library.name}'\nexports:\n"
            f"  - targets: [ {arch} ]\n    symbols: [ dyld_stub_binder, {symbols} ]\n...\n"
        )
        path = f"{path}.tbd"
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path
    if target.object_format == "coff":
        from emitter.splice.implib import import_library

        path = f"{path}.lib"
        with open(path, "wb") as binary:
            binary.write(import_library(target, library.name, [], functions=sorted(names)))
        return path
    from emitter.image.elf import plan_image
    from emitter.model import TensorSymbol
    from emitter.pack.plan import plan_pack

    pack = plan_pack(Package(), target.byte_order)
    symbols_of = [TensorSymbol(name, name, 0, 1) for name in sorted(names)]
    plan = plan_image(target, pack, name="emitter_stand_in", soname=library.name, symbols=symbols_of)
    path = f"{path}.so"
    _write(path, plan, pack, None)
    return path


def _attach(
    job: Job,
    stack: ExitStack,
    sources: Iterable[Source],
    linked: str,
    pack: PackPlan,
    *,
    progress: Progress | None,
    say: Callable[[str], None],
) -> tuple[Job, OutputFile, list[int]] | None:
    """Put the pack behind the linked library; None if it cannot be there, which is said."""
    from emitter.attach.plan import plan_attach
    from emitter.check.attached import check_attached
    from emitter.check.linked import check_library
    from emitter.transfer import write_plan

    target, symbol = job.resolved.target, job.symbol or ""
    check_library(linked, job)
    with open(linked, "rb") as file:
        data = file.read()
    try:
        plan = plan_attach(data, target, pack, name=symbol, where=job.path, symbols=job.tensor_symbols, say=say)
    except UsageError as error:
        # What the linker made of it is such that the payload cannot follow, or looks so.
        say(f"payload: linked in the ordinary way after all: {error}")
        return None
    out = stack.enter_context(open_output(job.path, plan.size, IMAGE_MODE, sources))
    crcs = write_plan(out.fd, plan, pack, progress=progress)
    check_attached(out.fd, target, plan, pack, symbol)
    return job._replace(plan=plan), out, crcs
