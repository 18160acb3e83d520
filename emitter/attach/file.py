"""Attaches a payload to a linked library, from one file to another."""

from __future__ import annotations

import os

from emitter.attach.plan import MAX_LIBRARY_SIZE, plan_attach
from emitter.errors import InputError, UsageError
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from emitter.model import TensorSymbol
    from emitter.pack.plan import PackPlan
    from emitter.package import Source
    from emitter.targets._base import Target

__all__ = ["attach", "read_library"]


def attach(
    library: str | int,
    output: str,
    target: Target,
    pack: PackPlan,
    *,
    name: str,
    symbols: Sequence[TensorSymbol] = (),
    sources: Iterable[Source] = (),
    progress: Callable[[int, int], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> list[int]:
    """Write the library at a path or descriptor, with `pack` attached, to `output`; return the payloads' CRC-32C.

    `output` may be the library's own path: the file is new, and takes its name when it has been checked. `sources` are
    inputs that must not be overwritten. `progress(done, total)` gets bytes of payload. Memory is the size of the
    library as linked, whatever the payload. Raises what `plan_attach` raises; InputError for a library that cannot be
    read, OutputError for an output that cannot be written or that differs from its plan.
    """
    from emitter.check.attached import check_attached
    from emitter.output import IMAGE_MODE, open_output
    from emitter.transfer import write_plan

    where = output if isinstance(library, int) else library
    data = read_library(library, where)
    plan = plan_attach(data, target, pack, name=name, where=where, symbols=symbols, say=say)
    with open_output(output, plan.size, IMAGE_MODE, sources) as out:
        crcs = write_plan(out.fd, plan, pack, progress=progress)
        # The bytes are final.
        check_attached(out.fd, target, plan, pack, name)
        out.commit()
    return crcs


def read_library(library: str | int, where: str) -> bytes:
    """Return the bytes of a linked library.

    Raises InputError for a file that cannot be read, UsageError for one above `MAX_LIBRARY_SIZE`.
    """
    try:
        fd = os.dup(library) if isinstance(library, int) else os.open(library, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        with os.fdopen(fd, "rb") as file:
            size = os.fstat(fd).st_size
            if size > MAX_LIBRARY_SIZE:
                raise UsageError(
                    "the linked library is too large",
                    where=where,
                    expected=f"at most {MAX_LIBRARY_SIZE} bytes",
                    actual=size,
                    hint="it is held in memory: link its data apart from the code",
                )
            file.seek(0)
            return file.read(size)
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror or error}", where=where, hint="check the path and its permissions"
        ) from error
