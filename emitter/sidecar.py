"""The file beside a library that holds the bytes of its package: docs/pack-format.md, Sidecar."""

from __future__ import annotations

import os

from emitter.layout import FilePlan
from emitter.pack.plan import point_to_sidecar
from emitter.reading import WINDOW
from emitter.records import TYPE_CHECKING, NamedTuple
from emitter.writing import read_back

if TYPE_CHECKING:
    from collections.abc import Callable

    from emitter.pack.plan import PackPlan
    from emitter.targets._base import Target

__all__ = ["Sidecar", "plan_sidecar", "write_sidecar"]


class Sidecar(NamedTuple):
    """A sidecar, planned: the pack of its bytes, in a file `name` in the folder of its library."""

    path: str
    name: str
    pinned: bool
    pack: PackPlan
    plan: FilePlan


def plan_sidecar(library: str, name: str, pack: PackPlan, *, pinned: bool) -> Sidecar:
    """Return the sidecar of the library that will be written to the path `library`.

    It stands beside the file itself: where `library` is a symbolic link, beside what that leads to. Readers look there
    too, whatever path they have.
    """
    real = os.path.realpath(library) if os.path.islink(library) else library
    path = os.path.join(os.path.dirname(real), name)
    return Sidecar(path, name, pinned, pack, FilePlan(pack.total_size, (), pack.payloads, pack_offset=0))


def write_sidecar(
    fd: int,
    sidecar: Sidecar,
    index: PackPlan,
    target: Target,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[PackPlan, list[int]]:
    """Write a sidecar into the file `fd`, and check it.

    Returns its library's pack, `index`, with what it says of the sidecar, and the CRC-32C of each payload.
    """
    from emitter.check import check
    from emitter.transfer import write_plan

    crcs = write_plan(fd, sidecar.plan, sidecar.pack, progress=progress)
    check(fd, "pack", target, sidecar.plan, sidecar.pack, None)
    # The sidecar's bytes are final.
    if not sidecar.pinned:
        return point_to_sidecar(index, sidecar.pack, crcs), crcs
    size = sidecar.plan.size
    return point_to_sidecar(index, sidecar.pack, crcs, size=size, sha256=_sha256(fd, size)), crcs


def _sha256(fd: int, size: int) -> bytes:
    import hashlib

    digest = hashlib.sha256()
    for offset in range(0, size, WINDOW):
        digest.update(read_back(fd, min(WINDOW, size - offset), offset))
    return digest.digest()
