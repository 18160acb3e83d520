"""`emitter plan`: what an emission would write, what its formats can hold, and what works where they cannot."""

from __future__ import annotations

from emitter import targets
from emitter.errors import LayoutError, UsageError
from emitter.jobs import check_paths
from emitter.limits import Limit, limits_of, linkers, sidecar_limit, works_of
from emitter.macho import SEGMENT_ALIGN
from emitter.modules import owners
from emitter.options import make_options, symbol_name
from emitter.planner import Planner
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from emitter.jobs import Job, Outline
    from emitter.limits import Linker
    from emitter.options import Options
    from emitter.package import Package
    from emitter.targets import Resolved
    from emitter.targets._base import Target

__all__ = ["Forecast", "fits", "forecast", "plan_json", "plan_text"]


class Reach(NamedTuple):
    """How far code reaches: `size` bytes. `linkers` is what they make of a payload beyond; None if not measured."""

    size: int
    is_exceeded: bool
    linkers: tuple[Linker, ...] | None


class Forecast(NamedTuple):
    """What would become of one output. `job` is None and `problem` says why, where it cannot be written."""

    outline: Outline
    resolved: Sequence[Resolved]
    job: Job | None
    problem: LayoutError | None
    section: str | None
    is_large: bool
    reach: Reach | None
    proposals: Sequence[str]
    warnings: Sequence[str]

    @property
    def target(self) -> Target:
        """The target, or the first of a universal file."""
        return self.resolved[0].target


def forecast(
    package: Package, output: str | None, target_names: Sequence[str], given: Mapping[str, object]
) -> list[Forecast]:
    """Plan `package` for each target, as `emitter.driver.emit` does with the options `given`; nothing is written.

    Without `output`, the first input names it; several targets have a folder each. Raises EmitterError for everything
    that sizes do not decide: options, names, inputs.
    """
    options = make_options(given)
    resolved = [targets.resolve(name) for name in target_names]
    warnings: list[str] = []
    planner = Planner(package, options, lambda _line: None, warnings.append)
    paths = [output or _default_output(package, options, one.target, several=len(resolved) > 1) for one in resolved]
    planner.check_request(paths[0] if paths else "", resolved)
    groups = [resolved] if planner.is_universal(paths[0], resolved) else [[one] for one in resolved]
    forecasts = []
    for group, path in zip(groups, paths, strict=False):  # of a universal file, all paths are one
        warnings.clear()
        outline = planner.outline(path, group[0])
        job, problem = None, None
        try:
            (job,) = planner.plan(path, group)
        except LayoutError as error:
            problem = error
        forecasts.append(_forecast(options, outline, group, job, problem, list(warnings)))
    check_paths([one.job for one in forecasts if one.job is not None])
    return forecasts


def _is_linked(job: Job) -> bool:
    """Whether a linker makes the output, so that its layout is not known before."""
    return job.code is not None and job.code.linker is not None


def fits(forecasts: Sequence[Forecast]) -> bool:
    """Whether every output can be written."""
    return all(one.problem is None for one in forecasts)


def _default_output(package: Package, options: Options, target: Target, *, several: bool) -> str:
    files = package.files
    name = options.name or (symbol_name(files[0], None) if files else None)
    if name is None:
        raise UsageError("no output", hint="add -o FILE")
    suffixes = {
        "library": target.image_suffix,
        "object": target.object_suffix,
        "archive": target.archive_suffix,
        "pack": ".pack",
    }
    format_ = options.emit or ("library" if target.image_suffix is not None else "object")
    prefix = target.library_prefix if format_ in {"library", "archive"} else ""
    return f"{'{target}/' if several else ''}{prefix}{name}{suffixes[format_] or ''}"


def _forecast(  # noqa: PLR0917 - six facts, in the order in which they arise
    options: Options,
    outline: Outline,
    group: Sequence[Resolved],
    job: Job | None,
    problem: LayoutError | None,
    warnings: Sequence[str],
) -> Forecast:
    target = group[0].target
    section, large, reach = None, False, None
    if outline.pack is not None and outline.symbol is not None and outline.format in {"object", "archive"}:
        from emitter.sections import pack_section
        from emitter.symbols import use_large_data

        size = outline.pack.total_size
        large = use_large_data(target, size, options.large_data or "auto")
        section = pack_section(target, outline.symbol, section=options.section, large=large)
        found = linkers(target, size, large=large, script=options.linker_script is not None)
        reach = Reach(target.reach, size > target.reach, found)
    works = works_of(problem.hint) if problem is not None else []
    return Forecast(outline, group, job, problem, section, large, reach, works, warnings)


def _limits(one: Forecast) -> Iterator[tuple[Limit, bool]]:
    """Yield each limit of the output, and whether it is exceeded by what is known of its size."""
    size = one.job.plan.size if one.job is not None else one.outline.size
    for limit in limits_of(one.target, one.outline.format):
        yield limit, size > limit.size
    sidecar, beside = one.outline.sidecar, sidecar_limit(one.target)
    if sidecar is not None and beside is not None:
        yield Limit(beside.size, f"the sidecar: {beside.what}"), sidecar.plan.size > beside.size


def _segment_alignment(target: Target) -> int:
    return 1 << SEGMENT_ALIGN if target.object_format == "macho" else target.max_page_size


def plan_json(package: Package, forecasts: Sequence[Forecast]) -> dict[str, object]:
    """Return the document `emitter.plan/1`: docs/json.md."""
    return {
        "schema": "emitter.plan/1",
        "fits": fits(forecasts),
        "outputs": [_output_json(package, one) for one in forecasts],
    }


def _output_json(package: Package, one: Forecast) -> dict[str, object]:
    outline, job = one.outline, one.job
    pack, sidecar, reach = outline.bytes_pack, outline.sidecar, one.reach
    payload_size = sum(owner.nbytes for owner in owners(package))
    stored = payload_size if pack is None else sum(copy.size for copy in pack.payloads)
    copies = job.bytes_plan.copies if job is not None and not _is_linked(job) else ()
    return {
        "path": outline.path,
        "target": "+".join(resolved.target.name for resolved in one.resolved),
        "format": outline.format,
        "symbol": outline.symbol,
        "fits": one.problem is None,
        "size": None if job is None or _is_linked(job) else job.plan.size,
        "tensors": len(package.tensors),
        "modules": len(package.modules),
        "payload_size": payload_size,
        "deduplicated_size": payload_size - stored,
        "pack_size": None if pack is None else pack.total_size,
        "index_size": None if pack is None else pack.index_size,
        "alignment": None if pack is None else pack.alignment,
        "payload_offset": copies[0].offset if copies else None,
        "section": one.section,
        "large_data": one.is_large,
        "page_size": _segment_alignment(one.target) if outline.format == "library" else None,
        "sidecar": None
        if sidecar is None
        else {"path": sidecar.path, "size": sidecar.plan.size, "pinned": sidecar.pinned},
        "reach": None
        if reach is None
        else {
            "size": reach.size,
            "exceeded": reach.is_exceeded,
            "linkers": None if reach.linkers is None else [linker._asdict() for linker in reach.linkers],
        },
        "limits": [{"size": limit.size, "what": limit.what, "exceeded": over} for limit, over in _limits(one)],
        "warnings": list(one.warnings),
        "problem": None if one.problem is None else one.problem.to_json(),
        "proposals": list(one.proposals),
    }


def plan_text(package: Package, forecasts: Sequence[Forecast]) -> str:
    """Return the same in lines for people."""
    return "\n".join(line for one in forecasts for line in _lines(package, one)) + "\n"


def _lines(package: Package, one: Forecast) -> Iterator[str]:
    facts = _output_json(package, one)
    outline = one.outline
    size = "does not fit" if one.job is None else _bytes(facts["size"])
    if one.job is not None and _is_linked(one.job):
        size = "of the size that the linker gives it, with code"
    yield f"{outline.path}: {outline.format} for {facts['target']}, {size}"
    modules = f" and {facts['modules']} modules" if facts["modules"] else ""
    rows: list[tuple[str, str]] = [("tensors", f"{facts['tensors']}{modules}, {_bytes(facts['payload_size'])}")]
    if facts["deduplicated_size"]:
        rows.append(("", f"{_bytes(facts['deduplicated_size'])} of them equal others, and are stored once"))
    if outline.sidecar is not None:
        pinned = ", pinned" if outline.sidecar.pinned else ""
        rows.append(("sidecar", f"{outline.sidecar.path}, {_bytes(outline.sidecar.plan.size)}{pinned}"))
    if facts["pack_size"] is not None:
        rows.append(("pack", f"{_bytes(facts['pack_size'])}, index {facts['index_size']}"))
    if facts["payload_offset"] is not None:
        where = "the file" if outline.sidecar is None else "the sidecar"
        rows.append(("payload", f"at {facts['payload_offset']} of {where}"))
    if facts["alignment"] is not None:
        rows.append(("alignment", f"{facts['alignment']}"))
    if one.section is not None:
        rows.append(("section", f"{one.section}{' (large data)' if one.is_large else ''}"))
    if facts["page_size"] is not None:
        rows.append(("pages", f"segments at multiples of {facts['page_size']}"))
    rows += _reach_rows(one)
    rows += (
        ("limit", f"{_bytes(limit.size)}: {limit.what}{'; EXCEEDED' if over else ''}") for limit, over in _limits(one)
    )
    rows += (("warning", line) for line in one.warnings)
    if one.problem is not None:
        problem = one.problem
        rows.append(("problem", str(LayoutError(problem.what, expected=problem.expected, actual=problem.actual))))
        rows += (("instead", line) for line in one.proposals)
    previous = ""
    for name, text in rows:
        yield f"  {name if name != previous else '':<10} {text}"
        previous = name


def _reach_rows(one: Forecast) -> Iterator[tuple[str, str]]:
    if one.job is not None and one.job.code is not None:
        return  # what reaches what was found out when the code was compiled
    if one.outline.format == "library":
        yield "reach", "any: libraries are opened, no linker places the payload"
    if one.reach is None:
        return
    yield "reach", f"code of the target reaches {_bytes(one.reach.size)}{': EXCEEDED' if one.reach.is_exceeded else ''}"
    if one.reach.linkers is None:
        yield "linkers", "what they make of that was not measured for this target"
    elif not one.reach.linkers:
        yield "linkers", "all"
    else:
        yield from (("linkers", f"{linker.name}: {linker.says}") for linker in one.reach.linkers)


_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def _bytes(size: object) -> str:
    if not isinstance(size, int):
        return str(size)
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size} bytes ({size / unit:.1f} {name})"
    return f"{size} bytes"
