"""What a planner plans: outlines before the layout of a file, jobs after it, and what holds for several of them."""

from __future__ import annotations

import os

from emitter.errors import UsageError
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from emitter.layout import FilePlan
    from emitter.link.plan import Code
    from emitter.model import TensorSymbol
    from emitter.options import Format
    from emitter.pack.plan import PackPlan
    from emitter.sidecar import Sidecar
    from emitter.targets import Resolved

__all__ = ["Job", "Outline", "check_paths", "universal"]


class Outline(NamedTuple):
    """What an output will hold, before it is laid out as a file.

    `pack` is what the output itself holds, None in another tool's style; with a sidecar that is the index alone.
    `size` is that of the bytes that must go into the output, without what its format puts around them.
    """

    path: str
    format: Format
    symbol: str | None
    pack: PackPlan | None
    sidecar: Sidecar | None
    size: int

    @property
    def bytes_pack(self) -> PackPlan | None:
        """The pack with the payloads, wherever it is."""
        return self.pack if self.sidecar is None else self.sidecar.pack


class Job(NamedTuple):
    """One output, planned completely.

    `companions` are the paths of the files beside it, by option; `texts` is what they will hold, but for the map, which
    needs the checksums. `pack` and `plan` are those of the output, `bytes_plan` is that of the file with the payloads.
    """

    path: str
    resolved: Resolved
    format: Format
    symbol: str | None
    pack: PackPlan | None
    plan: FilePlan
    tensor_symbols: Sequence[TensorSymbol]
    companions: Mapping[str, str]
    texts: Mapping[str, str | bytes]
    sidecar: Sidecar | None = None
    universal: Sequence[Resolved] = ()  # the targets, where they are several
    code: Code | None = None  # what is linked with the object that `plan` is then of

    @property
    def target_name(self) -> str:
        """The name of the target, or those of all in a universal file, in the order given, with a + between them."""
        return "+".join(one.target.name for one in self.universal or (self.resolved,))

    @property
    def bytes_plan(self) -> FilePlan:
        """The plan of the file that holds the payloads: the output itself, or its sidecar."""
        return self.plan if self.sidecar is None else self.sidecar.plan


def check_paths(jobs: Sequence[Job]) -> None:
    """Raise UsageError if two outputs are one file; only a header that says the same for several targets may be."""
    written: dict[str, tuple[str, str | bytes | None, str]] = {}
    for job in jobs:
        beside = () if job.sidecar is None else (("sidecar", job.sidecar.path),)
        for option, path in (("output", job.path), *beside, *job.companions.items()):
            this = (option, job.texts.get("header"), job.resolved.typed)
            other = written.setdefault(os.path.realpath(path), this)
            if other is not this and not (option == "header" and this[:2] == other[:2]):
                found = f"{other[0]} for {other[2]} and {option} for {this[2]}"
                hint = "choose another path for one of them"
                if other[2] != this[2]:
                    hint = "put {target} into the path, or choose another one"
                elif other[0] == option:
                    hint = "name each target once"
                raise UsageError("two outputs would be one file", where=path, actual=found, hint=hint)


def universal(jobs: Sequence[Job]) -> Job:
    """Return one output that holds those of all `jobs`; raise EmitterError where their companions differ, or the size.

    They were planned with the same options, so all that differs between them is their plan.
    """
    from emitter.splice.universal import plan_universal

    first = jobs[0]
    paths = [job.companions if job.sidecar is None else {"sidecar": job.sidecar.path, **job.companions} for job in jobs]
    for option, path in paths[0].items():
        if any(others[option] != path for others in paths):
            raise UsageError(
                f"a universal file has one {option.replace('_', ' ')}",
                where=path,
                hint="leave {target} and {triple} out of that path, or put them into -o as well",
            )
    plan = plan_universal([(job.resolved.target, job.plan) for job in jobs])
    return first._replace(plan=plan, universal=[job.resolved for job in jobs])
