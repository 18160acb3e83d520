"""Tensors one by one: their records, the bytes of the first elements, and the statistics that a device prints too."""

from __future__ import annotations

import os

from emitter.errors import FormatError, LoadError, shown
from emitter.inspect.elements import Stats, head, measure
from emitter.inspect.view import View
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from emitter.errors import EmitterError
    from emitter.inspect.report import Artefact, PackEntry, Report, TensorEntry
    from emitter.interop.tvm_read import TvmLibrary

__all__ = ["Found", "Wanted", "damage", "detail_lines", "find_tensors", "stats_line", "table_rows", "tensor_json"]

_DEFAULT_HEAD = 16
_BYTES_A_LINE = 16
_MAX_COMPARED = 5000  # names that are looked through for near ones


class Wanted(NamedTuple):
    """What is asked of tensors: the name of one, or None for all; statistics; the first `head` values, or in hex."""

    name: str | None
    stats: bool
    head: int | None
    hex: bool


class Found(NamedTuple):
    """A tensor, with the pack (or what TVM has stored) and the object file around it, and what was read of it."""

    artefact: Artefact
    pack: PackEntry | TvmLibrary
    tensor: TensorEntry
    stats: Stats | None
    head: list[float | int] | None
    hex: str | None

    @property
    def file_offset(self) -> int:
        """Where its bytes begin in the outermost file, or in the pack's sidecar."""
        return self.tensor.offset + (0 if self.pack.sidecar else self.artefact.view.base)


def find_tensors(
    objects: Iterable[tuple[Artefact, Report]], wanted: Wanted, faults: list[EmitterError]
) -> Iterator[Found]:
    """Yield the tensors that are asked for, in file order of their packs, in them by name.

    A pack that breaks its format ends there, and the error goes to `faults`. Raises LoadError, with the nearest names,
    if there is no tensor of that name, or no pack at all.
    """
    names: list[str] = []
    found = packs = 0
    where = ""
    for artefact, report in objects:
        where = where or artefact.view.path
        holders: list[PackEntry | TvmLibrary] = [*report.packs, *report.tvm]
        for pack in holders:
            packs += 1
            try:
                for tensor in pack.tensors():
                    if wanted.name is None or tensor.name == wanted.name:
                        found += 1
                        yield _read(artefact, pack, tensor, wanted)
                    elif len(names) < _MAX_COMPARED:
                        names.append(tensor.name)
            except FormatError as error:
                faults.append(error)
    if not packs:
        raise LoadError(
            "it holds no pack that can be read", where=where, hint="emitter inspect FILE shows what it holds"
        )
    if not found and not faults and wanted.name is not None:
        from difflib import get_close_matches

        near = get_close_matches(wanted.name, names, n=3, cutoff=0.5)
        hint = f"the nearest: {', '.join(map(shown, near))}" if near else "--tensors lists them"
        raise LoadError(f"it holds no tensor called {shown(wanted.name)}", where=where, hint=hint)


def _read(artefact: Artefact, pack: PackEntry | TvmLibrary, tensor: TensorEntry, wanted: Wanted) -> Found:
    if pack.sidecar and (wanted.stats or wanted.hex or wanted.head is not None):
        with View.open(os.path.join(os.path.dirname(artefact.view.path), pack.sidecar)) as view:
            return _measured(artefact, pack, tensor, wanted, view)
    return _measured(artefact, pack, tensor, wanted, artefact.view)


def _measured(
    artefact: Artefact, pack: PackEntry | TvmLibrary, tensor: TensorEntry, wanted: Wanted, view: View
) -> Found:
    stats = measure(view, tensor, pack.byte_order) if wanted.stats else None
    values = text = None
    if wanted.hex:
        count = _DEFAULT_HEAD if wanted.head is None else wanted.head
        text = view.read(
            tensor.offset, min(_head_bytes(tensor, count), tensor.nbytes), f"tensor {shown(tensor.name)}"
        ).hex()
    elif wanted.head is not None:
        values = head(view, tensor, pack.byte_order, wanted.head)
    return Found(artefact, pack, tensor, stats, values, text)


def _head_bytes(tensor: TensorEntry, count: int) -> int:
    from emitter.dtypes import parse

    dtype = parse(tensor.dtype)
    bits = 8 if dtype is None or tensor.encoding else dtype.element_bits
    return -(-count * bits // 8)


def _extents(shape: tuple[int, ...]) -> str:
    return ",".join(map(str, shape))


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form % value


def _crc(tensor: TensorEntry) -> str | None:
    return None if tensor.crc32c is None else f"0x{tensor.crc32c:08x}"


def stats_line(found: Found) -> str:
    """Return the line that cross/programs/dump.c prints of the tensor with --stats, character for character.

    dtype [shape] crc32c CRC min MIN max MAX mean MEAN nan COUNT inf COUNT NAME; `-` stands for what there is not.
    """
    tensor, stats = found.tensor, found.stats
    if stats is None:
        raise LoadError("the tensor was not measured", where=shown(tensor.name))
    return (
        f"{tensor.dtype} [{_extents(tensor.shape)}] crc32c 0x{stats.crc32c:08x} min {_number(stats.minimum, '%.9g')} "
        f"max {_number(stats.maximum, '%.9g')} mean {_number(stats.mean, '%.6g')} nan {_number(stats.nan, '%d')} "
        f"inf {_number(stats.inf, '%d')} {tensor.name}"
    )


def table_rows(found: Iterable[Found]) -> Iterator[tuple[str, ...]]:
    """Yield a row of text for each tensor, the header first."""
    yield ("dtype", "shape", "bytes", "file offset", "crc32c", "symbol", "name")
    for item in found:
        tensor = item.tensor
        shape = f"[{_extents(tensor.shape)}]"
        symbol = tensor.symbol or "-"
        crc = _crc(tensor) or "-"
        yield tensor.dtype, shape, str(tensor.nbytes), f"{item.file_offset:#x}", crc, symbol, tensor.name


def detail_lines(found: Found) -> Iterator[str]:
    """Yield the lines that say everything of one tensor."""
    tensor = found.tensor
    encoding = f", encoding {tensor.encoding}" if tensor.encoding else ""
    yield tensor.name
    if found.artefact.parent is not None:
        yield f"  member       {found.artefact.name}"
    yield f"  dtype        {tensor.dtype}{encoding}, {found.pack.byte_order}-endian"
    yield f"  shape        [{_extents(tensor.shape)}]"
    yield f"  strides      [{_extents(tensor.strides)}]"
    yield f"  bytes        {tensor.nbytes}"
    yield f"  alignment    {tensor.alignment}"
    yield f"  file offset  {found.file_offset:#x}" + (f" of {found.pack.sidecar}" if found.pack.sidecar else "")
    yield f"  crc32c       {_crc(tensor) or '-'}"
    yield f"  symbol       {tensor.symbol or '-'}"
    if found.head is not None:
        values = (f"{value:.9g}" if isinstance(value, float) else str(value) for value in found.head)
        yield f"  head         {' '.join(values)}"
    if found.hex is not None:
        for start in range(0, len(found.hex), 2 * _BYTES_A_LINE):
            text = found.hex[start : start + 2 * _BYTES_A_LINE]
            spaced = " ".join(text[i : i + 2] for i in range(0, len(text), 2))
            yield f"  {found.file_offset + start // 2:#x}: {spaced}"


def damage(found: Found) -> FormatError | None:
    """Return the error of a tensor whose bytes, where they were read, are not those that were written."""
    if found.stats is None or found.tensor.crc32c in {None, found.stats.crc32c}:
        return None
    return FormatError(
        "the bytes are not those that were written: crc32c does not match",
        where=f"{found.artefact.where}: tensor {shown(found.tensor.name)}",
        expected=_crc(found.tensor),
        actual=f"0x{found.stats.crc32c:08x}",
        hint="copy or emit the file again",
    )


def tensor_json(found: Found) -> dict[str, object]:
    """Return a tensor under the keys of `emitter.tensors/1`."""
    tensor, stats = found.tensor, found.stats
    return {
        "name": tensor.name,
        "member": found.artefact.name if found.artefact.parent is not None else "",
        "dtype": tensor.dtype,
        "encoding": tensor.encoding,
        "byte_order": found.pack.byte_order,
        "shape": list(tensor.shape),
        "strides": list(tensor.strides),
        "size": tensor.nbytes,
        "alignment": tensor.alignment,
        "file_offset": found.file_offset,
        "sidecar": found.pack.sidecar or None,
        "crc32c": _crc(tensor),
        "symbol": tensor.symbol or None,
        "stats": None
        if stats is None
        else {
            "count": stats.values,
            "minimum": stats.minimum,
            "maximum": stats.maximum,
            "mean": _finite(stats.mean),
            "nan": stats.nan,
            "inf": stats.inf,
            "crc32c": f"0x{stats.crc32c:08x}",
        },
        "head": None if found.head is None else [_finite(value) for value in found.head],
        "hex": found.hex,
    }


def _finite(value: float | None) -> float | int | str | None:
    """Return a number as JSON can hold it: NaN and the infinities as text."""
    if isinstance(value, float) and not -float("inf") < value < float("inf"):
        return "nan" if value != value else "inf" if value > 0 else "-inf"  # noqa: PLR0124 - NaN is not itself
    return value
