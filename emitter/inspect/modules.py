"""The modules of a pack: their records, and how the report shows them."""

from __future__ import annotations

from itertools import islice

from emitter.loaders._validate_modules import check_runs
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from emitter.inspect.report import PackEntry
    from emitter.loaders import Pack

__all__ = ["AlternativeEntry", "ModuleEntry", "module_json", "module_lines", "read_modules"]


class AlternativeEntry(NamedTuple):
    """One form of a module. `offset` is in the object file, or in the pack's sidecar; `size` and `alignment` are bytes.

    `requires` gives what the place of loading must say, as `Package.add_module` takes it: "== 87" by "sm".
    """

    kind: str
    schema_version: int
    offset: int
    size: int
    alignment: int
    crc32c: int
    requires: dict[str, str]


class ModuleEntry(NamedTuple):
    """A module of a pack: its forms in the order in which they are tried, and names of modules and of tensors."""

    name: str
    alternatives: Sequence[AlternativeEntry]
    imports: Sequence[str]
    functions: dict[str, tuple[str, ...]]
    metadata: dict[str, str]


def read_modules(pack: Pack) -> Iterator[ModuleEntry]:
    """Yield the modules of a pack, the root first. Raises FormatError where their tables are broken."""
    check_runs(pack.index())
    for module in pack.modules:
        alternatives = [
            AlternativeEntry(
                kind=one.kind,
                schema_version=one.schema_version,
                offset=one.file_offset,
                size=one.size,
                alignment=one.alignment,
                crc32c=one.crc32c,
                requires={condition.key: condition.requirement for condition in one.conditions},
            )
            for one in module.alternatives
        ]
        functions = {name: tuple(tensor.name for tensor in tensors) for name, tensors in module.functions.items()}
        yield ModuleEntry(
            module.name, alternatives, [child.name for child in module.imports], functions, module.metadata
        )


def module_lines(base: int, pack: PackEntry, shown: int | None) -> Iterator[str]:
    """Yield lines of text about the modules of a pack, `shown` of them or all; `base` is added to offsets."""
    if not pack.modules:
        return
    yield f"modules of pack {pack.symbol}".rstrip()
    for module in islice(pack.modules, shown):
        yield f"  {module.name}"
        for one in module.alternatives:
            where = ", ".join(f"{key} {requirement}" for key, requirement in one.requires.items())
            condition = f", where {where}" if where else ""
            place = f"{base + one.offset:#x}" + (f" of {pack.sidecar}" if pack.sidecar else "")
            yield (
                f"    {one.kind} {one.schema_version}: {one.size} bytes at {place}, aligned to {one.alignment}, "
                f"crc32c 0x{one.crc32c:08x}{condition}"
            )
        if module.imports:
            yield f"    imports {', '.join(module.imports)}"
        yield from (f"    function {name}({', '.join(tensors)})" for name, tensors in module.functions.items())
        yield from (f"    metadata {key} = {value}" for key, value in module.metadata.items())
    if shown is not None and len(pack.modules) > shown:
        yield f"  ... and {len(pack.modules) - shown} more: --all shows them"


def module_json(base: int, module: ModuleEntry) -> dict[str, object]:
    """Return a module under the keys of `emitter.inspect/1`; `base` is added to offsets."""
    return {
        "name": module.name,
        "alternatives": [
            {
                "kind": one.kind,
                "schema_version": one.schema_version,
                "file_offset": base + one.offset,
                "size": one.size,
                "alignment": one.alignment,
                "crc32c": f"0x{one.crc32c:08x}",
                "requires": one.requires,
            }
            for one in module.alternatives
        ],
        "imports": list(module.imports),
        "functions": [{"name": name, "tensors": list(tensors)} for name, tensors in module.functions.items()],
        "metadata": module.metadata,
    }
