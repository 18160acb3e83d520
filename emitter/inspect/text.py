"""The report as lines of text. Names go out as the file has them: whoever prints the lines makes them printable."""

from __future__ import annotations

from itertools import islice

from emitter.errors import EmitterError
from emitter.inspect.modules import module_lines
from emitter.inspect.sizes import module_nodes, pack_sizes, section_tree, tensor_tree
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from emitter.inspect.report import Artefact, PackEntry, Report, Symbol
    from emitter.inspect.sizes import Node
    from emitter.interop.tvm_read import TvmLibrary

__all__ = ["SHORT", "report_lines", "size_lines", "table_lines"]

SHORT = 40  # rows of a table, unless all are asked for
_BATCH = 2000  # rows whose columns are aligned together: a table of millions streams


def report_lines(artefact: Artefact, report: Report, everything: bool) -> Iterator[str]:
    """Yield the lines of one object file; tables end after SHORT rows unless `everything` is asked for."""
    identity = report.identity
    width = f", {identity.pointer_width}-bit" if identity.pointer_width else ""
    order = f" {identity.byte_order}-endian" if identity.byte_order else ""
    yield f"{artefact.where}: {artefact.kind}, {identity.machine}{width}{order}"
    facts = (
        ("kind", identity.kind if identity.kind not in artefact.kind else ""),
        ("size", f"{report.size} bytes" + (f" from file offset {report.base:#x}" if report.base else "")),
        ("flags", f"{identity.flags:#x} {', '.join(identity.flag_names)}" if identity.flags else ""),
        ("abi", identity.abi),
        ("os", f"{identity.os} {identity.os_version}".strip()),
        ("name", identity.name),
        ("version", identity.version),
        ("build id", identity.build_id),
        ("interpreter", identity.interpreter),
        ("search path", ", ".join(identity.search_path)),
    )
    yield from (f"  {name:<13}{value}" for name, value in facts if value)
    if report.hardening:
        yield "hardening"
        yield from (f"  {entry.name:<24}{_state(entry.value)}" for entry in report.hardening)
    yield from _part("dependencies", _dependency_rows(report), len(report.dependencies), everything)
    title = f"segments, as pages of {report.page_size} bytes"
    yield from _part(title, _segment_rows(report), len(report.segments), everything)
    yield from _part("sections", _section_rows(report), len(report.sections), everything)
    for pack in report.packs:
        yield from _pack_lines(artefact, pack)
        base = 0 if pack.sidecar else artefact.view.base
        yield from module_lines(base, pack, None if everything else SHORT)
    for library in report.tvm:
        yield from _tvm_lines(artefact, library, everything)
    yield from _part(f"symbols: {report.symbol_count}", _symbol_rows(report), report.symbol_count, everything)
    yield from (f"fault in {fault.part}: {fault.error}" for fault in report.faults)


def size_lines(artefact: Artefact, report: Report, depth: int) -> Iterator[str]:
    """Yield where the bytes go: of each pack by its tensors; of a file without packs by its sections."""
    yield f"{artefact.where}: {report.size} bytes"
    for pack in report.packs:
        yield f"pack {pack.symbol or 'without a symbol'}: {pack.size} bytes"
        sizes = pack_sizes(pack)
        yield f"  index {sizes.index_size}, payload {sizes.payload}, padding {sizes.padding}"
        yield f"  deduplicated {sizes.deduplicated}: bytes of equal payloads that are not stored again"
        nodes = tensor_tree(pack, depth)
        modules = module_nodes(pack)
        total = sum(node.size for node in (*nodes, *modules))
        yield from _tree_lines(nodes, "tensors", total)
        yield from _tree_lines(modules, "modules", total)
    if not report.packs:
        yield from _tree_lines(section_tree(report, depth), "sections", report.size)


def table_lines(rows: Iterable[tuple[str, ...]], indent: str = "") -> Iterator[str]:
    """Yield rows of text as aligned columns, the last one as it is; columns are measured over some rows at a time."""
    batch: list[tuple[str, ...]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _BATCH:
            yield from _aligned(batch, indent)
            batch.clear()
    yield from _aligned(batch, indent)


def _aligned(rows: list[tuple[str, ...]], indent: str) -> Iterator[str]:
    if rows:
        # A name of 64 KiB must not make every row as long.
        widths = [min(max(len(row[column]) for row in rows), 60) for column in range(len(rows[0]) - 1)]
        for row in rows:
            cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
            yield f"{indent}{'  '.join([*cells, row[-1]])}".rstrip()


def _part(title: str, rows: Iterator[tuple[str, ...]], total: int, everything: bool) -> Iterator[str]:
    """Yield a title and a table of `total` rows behind its header; nothing where there are none.

    Rows that are not shown are not made.
    """
    if not total:
        return
    yield title
    yield from table_lines(rows if everything else islice(rows, SHORT + 1), "  ")
    if total > SHORT and not everything:
        yield f"  ... and {total - SHORT} more: --all shows them"


def _state(value: bool | str | None) -> str:
    return {True: "yes", False: "no", None: "-"}.get(value, str(value))  # type: ignore[arg-type] # a word stands for itself


def _dependency_rows(report: Report) -> Iterator[tuple[str, ...]]:
    yield "name", "kind", "versions"
    for entry in report.dependencies:
        yield entry.name, entry.kind, ", ".join(entry.versions)


def _segment_rows(report: Report) -> Iterator[tuple[str, ...]]:
    yield "nr", "offset", "file size", "address", "memory size", "align", "prot", "pages", "type"
    for entry in report.segments:
        pages = f"{entry.mapped_start:#x}-{entry.mapped_end:#x}" if entry.loaded else "-"
        yield (
            str(entry.number), f"{entry.offset:#x}", f"{entry.file_size:#x}", f"{entry.address:#x}",
            f"{entry.memory_size:#x}", f"{entry.alignment:#x}", entry.protection, pages, entry.name,
        )  # fmt: skip


def _section_rows(report: Report) -> Iterator[tuple[str, ...]]:
    yield "nr", "offset", "size", "address", "align", "type", "flags", "name"
    for entry in report.sections:
        name = f"{entry.segment},{entry.name}" if entry.segment else entry.name
        yield (
            str(entry.number), f"{entry.offset:#x}", f"{entry.size:#x}", f"{entry.address:#x}", str(entry.alignment),
            entry.type, " ".join(entry.flags) or "-", name,
        )  # fmt: skip


def _symbol_rows(report: Report) -> Iterator[tuple[str, ...]]:
    yield "value", "size", "type", "binding", "visibility", "place", "table", "name"
    try:
        for entry in report.symbols():
            yield _symbol_row(entry)
    except EmitterError as error:
        yield "-", "-", "-", "-", "-", "-", "-", f"(the rest cannot be read: {error})"


def _symbol_row(entry: Symbol) -> tuple[str, ...]:
    place = entry.place if entry.section is None else f"section {entry.section}"
    library = f" from {entry.library}" if entry.library else ""
    return (
        f"{entry.value:#x}", "-" if entry.size is None else str(entry.size), entry.type or "-", entry.binding,
        entry.visibility, place, entry.table, f"{entry.name}{entry.version}{library}",
    )  # fmt: skip


def _pack_lines(artefact: Artefact, pack: PackEntry) -> Iterator[str]:
    yield f"pack {pack.symbol or 'without a symbol'}"
    yield f"  file offset  {artefact.view.base + pack.offset:#x}"
    yield f"  size         {pack.size} bytes, aligned to {pack.alignment}"
    yield f"  format       {'.'.join(map(str, pack.version))}, {pack.byte_order}-endian"
    yield f"  schema hash  0x{pack.schema_hash:016x}"
    if pack.sidecar:
        yield f"  sidecar      {pack.sidecar}: the bytes of the tensors are in that file"
    if pack.model_version:
        yield f"  version      {pack.model_version}"
    yield from (f"  metadata     {key} = {value}" for key, value in pack.metadata.items())
    yield f"  tensors      {pack.tensor_count}: --tensors lists them, --sizes adds them up"


def _tvm_lines(artefact: Artefact, library: TvmLibrary, everything: bool) -> Iterator[str]:
    yield f"TVM's modules {library.symbol}"
    yield f"  file offset  {artefact.view.base + library.offset:#x}"
    yield f"  size         {library.size} bytes"
    yield f"  format       {'__tvm_dev_mblob, which states no lengths' if library.old else 'tvm-ffi'}, little-endian"
    yield from _part("modules of TVM", _tvm_rows(artefact, library), len(library.modules), everything)
    tensors = sum(len(module.constants.tensors) for module in library.modules if module.constants)
    yield f"  tensors      {tensors}: --tensors lists them"


def _tvm_rows(artefact: Artefact, library: TvmLibrary) -> Iterator[tuple[str, ...]]:
    yield ("number", "kind", "bytes", "file offset", "imports", "functions")
    for number, module in enumerate(library.modules):
        functions = len(module.constants.functions) if module.constants else 0
        imports = ",".join(map(str, module.imports)) or "-"
        offset = f"{artefact.view.base + module.offset:#x}" if module.size else "-"
        yield str(number), module.kind, str(module.size), offset, imports, str(functions or "-")


def _tree_lines(nodes: list[Node], title: str, total: int, indent: str = "  ") -> Iterator[str]:
    rows = list(_tree_rows(nodes, total, ""))
    if rows:
        yield from table_lines([("bytes", "%", "of all", title), *rows], indent)


def _tree_rows(nodes: list[Node], total: int, indent: str) -> Iterator[tuple[str, ...]]:
    for node in nodes:
        share = f"{100 * node.size / total:.1f}" if total else "-"
        yield str(node.size), share, str(node.members), f"{indent}{node.name}"
        yield from _tree_rows(node.children, total, f"{indent}  ")
