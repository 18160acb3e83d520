"""Lays out a package as a pack: all offsets first, then the index, when the checksums of the payloads are known."""

from __future__ import annotations

import struct

from emitter.checksum import crc32c, sha256
from emitter.errors import LayoutError, shown
from emitter.layout import Copy, align_up, bulk_alignment
from emitter.modules import in_order
from emitter.pack import format as fmt
from emitter.pack.modules import module_tables
from emitter.pack.programs import NUL, arrange
from emitter.records import TYPE_CHECKING, NamedTuple
from emitter.values import check_metadata, check_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from emitter.modules import Module
    from emitter.package import ByteOrder, Package, Tensor
    from emitter.targets._base import Target

__all__ = [
    "DEFAULT_ALIGNMENT",
    "PackPlan",
    "check_address_space",
    "plan_index",
    "plan_pack",
    "point_to_sidecar",
    "schema_hash",
]

DEFAULT_ALIGNMENT = 64

_U32_MAX = 0xFFFFFFFF


class PackPlan(NamedTuple):
    """A laid-out pack. Offsets are relative to the pack's first byte.

    `payloads` are in ascending order of offset. `index_of[name]` is the number of a tensor's payload. An index pack
    (`plan_index`) has no payloads, and `sidecar_table`, the offset of that table, which is 0 in others. `fatbins` are
    the offsets of the first fatbin and of the end of the last one: nothing but zeros is between and behind them.
    `terminators` counts the payloads that are the NUL behind a text.
    """

    byte_order: ByteOrder
    total_size: int
    alignment: int
    payload_start: int
    payloads: Sequence[Copy]
    payload_alignments: Sequence[int]
    index_of: Mapping[str, int]
    schema: int
    blank_index: bytes  # the index, with all checksums zero
    index_size: int
    payload_table: int  # offset of the payload table in the index
    sidecar_table: int = 0
    fatbins: tuple[int, int] = (0, 0)
    terminators: int = 0

    def render_index(self, crcs: Sequence[int]) -> bytes:
        """Return the index with the CRC-32C of each payload, and its own."""
        order = "<" if self.byte_order == "little" else ">"
        index = bytearray(self.blank_index)
        if not self.sidecar_table:  # else `point_to_sidecar` has filled it
            _fill_payloads(self, index, self.payloads, crcs)
        word = struct.Struct(order + "I")
        word.pack_into(index, fmt.HEADER.offset("index_crc32c"), crc32c(bytes(index[fmt.HEADER.size :])))
        word.pack_into(index, fmt.HEADER_CRC_OFFSET, crc32c(bytes(index[: fmt.HEADER.size])))
        return bytes(index)


def _fill_payloads(plan: PackPlan, index: bytearray, payloads: Sequence[Copy], crcs: Sequence[int]) -> None:
    record = struct.Struct(("<" if plan.byte_order == "little" else ">") + fmt.PAYLOAD.struct_format)
    for number, (payload, alignment, crc) in enumerate(zip(payloads, plan.payload_alignments, crcs, strict=True)):
        at = plan.payload_table + number * record.size
        record.pack_into(index, at, payload.offset, payload.size, alignment, crc)


def plan_pack(
    package: Package,
    byte_order: ByteOrder,
    *,
    alignment: int = DEFAULT_ALIGNMENT,
    same_as: Mapping[str, str] | None = None,
    first_payload: int = 1,
) -> PackPlan:
    """Lay out `package` for a target of `byte_order`.

    `alignment` (bytes, a power of two) is the default of each payload. `same_as` maps the name of a tensor to that of
    an earlier one whose payload has been found to be the same bytes. The offset of the first payload is a multiple of
    `first_payload`. Raises LayoutError when the index exceeds 4 GiB, and for metadata or a model version that is not
    UTF-8 without NUL, or too long.
    """
    return _plan(package, byte_order, alignment, same_as, first_payload, None)


def plan_index(
    package: Package,
    byte_order: ByteOrder,
    *,
    sidecar: str,
    pinned: bool,
    alignment: int = DEFAULT_ALIGNMENT,
    same_as: Mapping[str, str] | None = None,
) -> PackPlan:
    """Lay out the index pack of `package`, whose payloads will be in the file `sidecar`: docs/pack-format.md, Sidecar.

    `alignment` and `same_as` are those of the sidecar's own plan. `point_to_sidecar` fills in what it says of the
    payloads. Raises LayoutError as `plan_pack`, and for a name that is not one of a file in a folder.
    """
    if not fmt.is_sidecar_name(sidecar):
        raise LayoutError(
            "not the name of a file beside the library",
            where=shown(sidecar),
            expected="a file name of UTF-8 without / \\ : and NUL",
            hint="give another one with --sidecar-name",
        )
    return _plan(package, byte_order, alignment, same_as, 1, (sidecar, fmt.PINNED if pinned else 0))


def point_to_sidecar(
    index: PackPlan, sidecar: PackPlan, crcs: Sequence[int], *, size: int = 0, sha256: bytes = bytes(32)
) -> PackPlan:
    """Return `index` (of `plan_index`) with payloads where `sidecar` has them, of the CRC-32C `crcs`.

    `size` and `sha256` are those of the sidecar's file, as it was written, if `index` pins it.
    """
    blank = bytearray(index.blank_index)
    _fill_payloads(index, blank, sidecar.payloads, crcs)
    at = index.sidecar_table + fmt.SIDECAR.offset("size")
    blank[at : at + 8] = size.to_bytes(8, index.byte_order)
    at = index.sidecar_table + fmt.SIDECAR.offset("sha256")
    blank[at : at + len(sha256)] = sha256
    return index._replace(blank_index=bytes(blank))


def _plan(  # noqa: PLR0917 - those of the two functions above, which name them
    package: Package,
    byte_order: ByteOrder,
    alignment: int,
    same_as: Mapping[str, str] | None,
    first_payload: int,
    sidecar: tuple[str, int] | None,
) -> PackPlan:
    """Lay out a pack; or the index pack for the sidecar of that name, with those flags."""
    tensors = package.tensors
    modules = in_order(package.modules, (tensor.name for tensor in tensors))
    same_as = same_as or {}

    # Payloads: numbered in source order, each as strictly aligned as its strictest owner; modules' after tensors'.
    number_of: dict[str, int] = {}
    owners: list[Tensor] = []
    alignments: list[int] = []
    arranged = arrange(tensors, modules, same_as)
    for tensor in arranged.owners:
        wanted = tensor.alignment or alignment
        number = number_of.get(same_as.get(tensor.name, ""))
        if number is None:
            number = len(owners)
            owners.append(tensor)
            alignments.append(wanted)
            if tensor.name in arranged.texts:
                owners.append(NUL)  # of no record's: an alignment of 1 puts it right behind the text
                alignments.append(1)
        else:
            alignments[number] = max(alignments[number], wanted)
        number_of[tensor.name] = number

    # The index: strings and dims are pooled, records are sorted by the bytes of the name.
    strings = _Strings()
    dims = _Dims()
    metadata: list[tuple[int, ...]] = []
    package_metadata = _add_metadata(metadata, strings, check_metadata(package.metadata, "the package"))
    version = check_text(package.model_version, "the model version")
    model_version = strings.add_bytes(_encoded("the model version", version, 0, fmt.MAX_NAME_BYTES))
    sidecar_name = (0, 0)
    if sidecar is not None:
        sidecar_name = strings.add_bytes(_encoded("the sidecar's name", sidecar[0], 1, fmt.MAX_NAME_BYTES))
    records: list[tuple[int, ...]] = []
    tensor_number = {}
    for name, tensor in sorted((tensor.name.encode(), tensor) for tensor in tensors):
        tensor_number[tensor.name] = len(records)
        name_offset, name_length = strings.add_bytes(name)
        shape, strides = dims.add(tensor.shape)
        dtype = tensor.dtype
        records.append((
            name_offset, name_length, dtype.code, dtype.bits, dtype.lanes, tensor.encoding, len(tensor.shape),
            number_of[tensor.name], shape, strides, *_add_metadata(metadata, strings, tensor.metadata),
        ))  # fmt: skip
    module_rows = module_tables(
        modules,
        number_of,
        tensor_number,
        lambda text: strings.add_bytes(text.encode()),
        lambda pairs: _add_metadata(metadata, strings, pairs),
    )

    # Index layout is fixed.
    counts = {
        fmt.PAYLOAD: len(owners), fmt.TENSOR: len(records), fmt.METADATA: len(metadata), fmt.DIMS: len(dims.values),
        fmt.STRINGS: len(strings.data), **{record: len(rows) for record, rows in module_rows},
    }  # fmt: skip
    if sidecar is not None:
        counts[fmt.SIDECAR] = 1
    offsets: dict[fmt.Record, int] = {}
    end = align_up(fmt.HEADER.size + len(counts) * fmt.DIRECTORY_ENTRY.size, 8)
    for table, count in counts.items():
        offsets[table] = end
        end = align_up(end + table.size * count, 8)
    index_size = end
    if index_size > _U32_MAX:
        raise LayoutError(
            "the index is too large",
            expected="at most 4294967295 bytes of names, shapes and metadata",
            actual=index_size,
            hint="split the package",
        )

    # Payload layout is fixed.
    total = sum(owner.nbytes for owner in owners)
    wanted_start = max(first_payload, min(max([8, bulk_alignment(total), *alignments]), 64 << 10))
    payload_start = align_up(index_size, wanted_start) if sidecar is None else index_size
    position = payload_start
    payloads: list[Copy] = []
    for owner, wanted in zip(owners if sidecar is None else (), alignments, strict=False):
        position = align_up(position, wanted)
        unit = owner.swap_unit(byte_order)
        payloads.append(Copy(position, owner.nbytes, owner.extent, unit, owner.shape, owner.dtype.element_bits))
        position += owner.nbytes
    total_size = max(position, index_size)
    fatbins = [payloads[number_of[name]] for name in arranged.fatbins] if payloads else []
    first_fatbin = min((payload.offset for payload in fatbins), default=0)
    fatbins_end = max((payload.offset + payload.size for payload in fatbins), default=0)

    pack_alignment = max([8, *alignments])
    schema = schema_hash(tensors, modules)
    order = "<" if byte_order == "little" else ">"
    index = bytearray(index_size)
    at_dims, at_strings = offsets[fmt.DIMS], offsets[fmt.STRINGS]
    struct.pack_into(
        order + fmt.HEADER.struct_format, index, 0,
        fmt.MAGIC, fmt.BYTE_ORDER_MARK, fmt.VERSION_MAJOR, fmt.VERSION_MINOR, fmt.HEADER.size, 0,
        total_size, index_size, 0, 0, 0 if sidecar is None else fmt.SIDECAR_FEATURE, schema,
        at_strings + model_version[0], model_version[1], *package_metadata,
        fmt.HEADER.size, len(counts), fmt.DIRECTORY_ENTRY.size, pack_alignment,
    )  # fmt: skip
    directory = [(table.kind, table.size, offsets[table], count) for table, count in counts.items()]
    _pack_rows(index, order, fmt.DIRECTORY_ENTRY, fmt.HEADER.size, directory)
    for number, record in enumerate(records):
        if record[6]:  # ndim: shape and strides are offsets in the pack
            places = (at_dims + 8 * record[8], at_dims + 8 * record[9])
            records[number] = (*record[:8], *places, *record[10:])
    for table, rows in ((fmt.TENSOR, records), (fmt.METADATA, metadata), *module_rows):
        _pack_rows(index, order, table, offsets[table], rows, strings=at_strings)
    struct.pack_into(f"{order}{len(dims.values)}q", index, at_dims, *dims.values)
    index[at_strings : at_strings + len(strings.data)] = strings.data
    sidecar_table = offsets.get(fmt.SIDECAR, 0)
    if sidecar is not None:
        values = (at_strings + sidecar_name[0], sidecar_name[1], sidecar[1], 0, bytes(32))
        struct.pack_into(order + fmt.SIDECAR.struct_format, index, sidecar_table, *values)
    return PackPlan(
        byte_order,
        total_size,
        pack_alignment,
        payload_start,
        payloads,
        alignments,
        number_of,
        schema,
        bytes(index),
        index_size,
        offsets[fmt.PAYLOAD],
        sidecar_table,
        (first_fatbin, fatbins_end),
        sum(owner is NUL for owner in owners) if arranged.texts else 0,
    )


def check_address_space(target: Target, size: int) -> None:
    """Raise LayoutError for a pack of `size` bytes that pointers of the target cannot span."""
    if size >> target.pointer_width:
        raise LayoutError(
            "too large for the target's address space",
            where=f"target {target.name}",
            expected=f"less than 2^{target.pointer_width} bytes",
            actual=size,
            hint="split the package",
        )


def _pack_rows(
    index: bytearray, order: str, record: fmt.Record, at: int, rows: Iterable[tuple[int, ...]], *, strings: int = 0
) -> None:
    """Pack the rows of a table at `at`. What refers to a string is relative to the pool so far, which is at `strings`.

    A string that is not there has no length, and keeps its offset 0.
    """
    pack_into = struct.Struct(order + record.struct_format).pack_into
    names = [field.name for field in record.fields if not field.name.startswith("reserved")]
    texts = [number for number, name in enumerate(names) if f"{name.removesuffix('_offset')}_length" in names]
    for row in rows:
        values = list(row)
        for number in texts:
            if values[number + 1] or names[number] != "upper_offset":
                values[number] += strings
        pack_into(index, at, *values)
        at += record.size


def schema_hash(tensors: Sequence[Tensor], modules: Sequence[Module] = ()) -> int:
    """Return the schema hash: see docs/pack-format.md, Schema hash. It is the same for every byte order."""
    parts = [b"emitter schema 1\0", struct.pack("<Q", len(tensors))]
    for name, tensor in sorted((tensor.name.encode(), tensor) for tensor in tensors):
        dtype, shape = tensor.dtype, tensor.shape
        parts.append(struct.pack("<I", len(name)) + name)
        numbers = (dtype.code, dtype.bits, dtype.lanes, tensor.encoding, len(shape), *shape)
        parts.append(struct.pack(f"<BBHHH{len(shape)}q", *numbers))
    parts.append(struct.pack("<Q", len(modules)))
    number_of = {id(module): number for number, module in enumerate(modules)}
    for module in modules:
        imports = [number_of[id(child)] for child in module.imports]
        parts += (
            _hashed(module.name),
            struct.pack("<I", len(module.alternatives)),
            *(_hashed(one.kind) + struct.pack("<I", one.schema_version) for one in module.alternatives),
            struct.pack(f"<I{len(imports)}I", len(imports), *imports),
            struct.pack("<I", len(module.functions)),
        )
        for function, names in sorted(module.functions.items(), key=lambda item: item[0].encode()):
            parts += (_hashed(function), struct.pack("<I", len(names)), *map(_hashed, names))
    return int.from_bytes(sha256(b"".join(parts))[:8], "little")


def _hashed(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<I", len(encoded)) + encoded


class _Strings:
    """The pool of NUL-terminated strings; equal ones are stored once."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._known: dict[bytes, int] = {}

    def add_bytes(self, text: bytes) -> tuple[int, int]:
        offset = self._known.setdefault(text, len(self.data))
        if offset == len(self.data):
            self.data += text + b"\0"
        return offset, len(text)


class _Dims:
    """The pool of shapes and strides; equal shapes are stored once."""

    def __init__(self) -> None:
        self.values: list[int] = []
        self._known: dict[tuple[int, ...], tuple[int, int]] = {(): (0, 0)}

    def add(self, shape: tuple[int, ...]) -> tuple[int, int]:
        known = self._known.get(shape)
        if known is None:
            known = (len(self.values), len(self.values) + len(shape))
            self._known[shape] = known
            self.values += shape
            self.values += row_major_strides(shape)
        return known


def row_major_strides(shape: tuple[int, ...]) -> list[int]:
    """Return the strides, in elements, of a compact row-major tensor; an empty dimension counts as one, as in numpy."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return strides[::-1]


def _add_metadata(records: list[tuple[int, ...]], strings: _Strings, metadata: Mapping[str, str]) -> tuple[int, int]:
    first = len(records)
    pairs = (
        (_encoded("a metadata key", key, 1, fmt.MAX_NAME_BYTES), _encoded("a metadata value", value, 0, _U32_MAX))
        for key, value in metadata.items()
    )
    for key, value in sorted(pairs):
        records.append((*strings.add_bytes(key), *strings.add_bytes(value)))
    return first, len(metadata)


def _encoded(what: str, text: str, least: int, most: int) -> bytes:
    try:
        encoded = text.encode()
    except UnicodeEncodeError as error:
        raise LayoutError(f"{what} is not valid UTF-8", actual=shown(text)) from error
    if b"\0" in encoded or not least <= len(encoded) <= most:
        raise LayoutError(
            f"{what} cannot be written",
            expected=f"{least} to {most} bytes of UTF-8 without NUL",
            actual=f"{len(encoded)} bytes, {shown(text)}",
            hint="change or leave out the metadata",
        )
    return encoded
