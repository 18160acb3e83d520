"""Lays out a package as a pack: all offsets first, then the index, when the checksums of the payloads are known."""

from __future__ import annotations

import struct

from emitter.checksum import crc32c, sha256
from emitter.errors import LayoutError, shown
from emitter.layout import Copy, align_up, bulk_alignment
from emitter.pack import format as fmt
from emitter.records import TYPE_CHECKING, NamedTuple
from emitter.values import check_metadata, check_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from emitter.package import ByteOrder, Package, Tensor
    from emitter.targets._base import Target

__all__ = ["DEFAULT_ALIGNMENT", "PackPlan", "check_address_space", "plan_pack", "schema_hash"]

DEFAULT_ALIGNMENT = 64

_TABLES = (fmt.PAYLOAD, fmt.TENSOR, fmt.METADATA, fmt.DIMS, fmt.STRINGS)
_U32_MAX = 0xFFFFFFFF


class PackPlan(NamedTuple):
    """A laid-out pack. Offsets are relative to the pack's first byte.

    `payloads` are in ascending order of offset. `index_of[name]` is the number of a tensor's payload.
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

    def render_index(self, crcs: Sequence[int]) -> bytes:
        """Return the index with the CRC-32C of each payload, and its own."""
        order = "<" if self.byte_order == "little" else ">"
        index = bytearray(self.blank_index)
        record = struct.Struct(order + fmt.PAYLOAD.struct_format)
        for number, crc in enumerate(crcs):
            payload = self.payloads[number]
            record.pack_into(
                index,
                self.payload_table + number * record.size,
                payload.offset,
                payload.size,
                self.payload_alignments[number],
                crc,
            )
        word = struct.Struct(order + "I")
        word.pack_into(index, fmt.HEADER.offset("index_crc32c"), crc32c(bytes(index[fmt.HEADER.size :])))
        word.pack_into(index, fmt.HEADER_CRC_OFFSET, crc32c(bytes(index[: fmt.HEADER.size])))
        return bytes(index)


def plan_pack(
    package: Package,
    byte_order: ByteOrder,
    *,
    alignment: int = DEFAULT_ALIGNMENT,
    same_as: Mapping[str, str] | None = None,
) -> PackPlan:
    """Lay out `package` for a target of `byte_order`.

    `alignment` (bytes, a power of two) is the default of each payload. `same_as` maps the name of a tensor to that of
    an earlier one whose payload has been found to be the same bytes. Raises LayoutError when the index exceeds 4 GiB,
    and for metadata or a model version that is not UTF-8 without NUL, or too long.
    """
    tensors = package.tensors
    same_as = same_as or {}

    # Payloads: numbered in source order, each as strictly aligned as its strictest tensor.
    number_of: dict[str, int] = {}
    owners: list[Tensor] = []
    alignments: list[int] = []
    for tensor in tensors:
        wanted = tensor.alignment or alignment
        number = number_of.get(same_as.get(tensor.name, ""))
        if number is None:
            number = len(owners)
            owners.append(tensor)
            alignments.append(wanted)
        else:
            alignments[number] = max(alignments[number], wanted)
        number_of[tensor.name] = number

    # The index: strings and dims are pooled, records are sorted by the bytes of the name.
    strings = _Strings()
    dims = _Dims()
    metadata: list[tuple[int, int, int, int]] = []
    package_metadata = _add_metadata(metadata, strings, check_metadata(package.metadata, "the package"))
    version = check_text(package.model_version, "the model version")
    model_version = strings.add_bytes(_encoded("the model version", version, 0, fmt.MAX_NAME_BYTES))
    records = []
    for name, tensor in sorted((tensor.name.encode(), tensor) for tensor in tensors):
        name_offset, name_length = strings.add_bytes(name)
        shape, strides = dims.add(tensor.shape)
        dtype = tensor.dtype
        records.append((
            name_offset, name_length, dtype.code, dtype.bits, dtype.lanes, tensor.encoding, len(tensor.shape),
            number_of[tensor.name], shape, strides, *_add_metadata(metadata, strings, tensor.metadata),
        ))  # fmt: skip
    counts = (len(owners), len(records), len(metadata), len(dims.values), len(strings.data))

    # Index layout is fixed.
    offsets = []
    end = align_up(fmt.HEADER.size + len(_TABLES) * fmt.DIRECTORY_ENTRY.size, 8)
    for table, count in zip(_TABLES, counts, strict=True):
        offsets.append(end)
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
    payload_start = align_up(index_size, min(max([8, bulk_alignment(total), *alignments]), 64 << 10))
    position = payload_start
    payloads: list[Copy] = []
    for owner, wanted in zip(owners, alignments, strict=True):
        position = align_up(position, wanted)
        unit = owner.swap_unit(byte_order)
        payloads.append(Copy(position, owner.nbytes, owner.extent, unit, owner.shape, owner.dtype.element_bits))
        position += owner.nbytes
    total_size = max(position, index_size)

    pack_alignment = max([8, *alignments])
    schema = schema_hash(tensors)
    order = "<" if byte_order == "little" else ">"
    index = bytearray(index_size)
    struct.pack_into(
        order + fmt.HEADER.struct_format, index, 0,
        fmt.MAGIC, fmt.BYTE_ORDER_MARK, fmt.VERSION_MAJOR, fmt.VERSION_MINOR, fmt.HEADER.size, 0,
        total_size, index_size, 0, 0, 0, schema,
        offsets[4] + model_version[0], model_version[1], *package_metadata,
        fmt.HEADER.size, len(_TABLES), fmt.DIRECTORY_ENTRY.size, pack_alignment,
    )  # fmt: skip
    entry = struct.Struct(order + fmt.DIRECTORY_ENTRY.struct_format)
    for number, table in enumerate(_TABLES):
        entry.pack_into(
            index, fmt.HEADER.size + number * entry.size, table.kind, table.size, offsets[number], counts[number]
        )
    at_dims, at_strings = offsets[3], offsets[4]
    tensor_record = struct.Struct(order + fmt.TENSOR.struct_format)
    for number, record in enumerate(records):
        relative = list(record)
        relative[0] += at_strings
        if record[6]:
            relative[8] = at_dims + 8 * record[8]
            relative[9] = at_dims + 8 * record[9]
        tensor_record.pack_into(index, offsets[1] + number * tensor_record.size, *relative)
    metadata_record = struct.Struct(order + fmt.METADATA.struct_format)
    for number, (key, key_length, value, value_length) in enumerate(metadata):
        metadata_record.pack_into(
            index,
            offsets[2] + number * metadata_record.size,
            at_strings + key,
            key_length,
            at_strings + value,
            value_length,
        )
    struct.pack_into(f"{order}{len(dims.values)}q", index, at_dims, *dims.values)
    index[at_strings : at_strings + len(strings.data)] = strings.data
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
        offsets[0],
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


def schema_hash(tensors: Sequence[Tensor]) -> int:
    """Return the schema hash: see docs/pack-format.md, Schema hash. It is the same for every byte order."""
    parts = [b"emitter schema 1\0", struct.pack("<Q", len(tensors))]
    for name, tensor in sorted((tensor.name.encode(), tensor) for tensor in tensors):
        dtype, shape = tensor.dtype, tensor.shape
        parts.append(struct.pack("<I", len(name)) + name)
        numbers = (dtype.code, dtype.bits, dtype.lanes, tensor.encoding, len(shape), *shape)
        parts.append(struct.pack(f"<BBHHH{len(shape)}q", *numbers))
    parts.append(struct.pack("<Q", 0))  # modules
    return int.from_bytes(sha256(b"".join(parts))[:8], "little")


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


def _add_metadata(
    records: list[tuple[int, int, int, int]], strings: _Strings, metadata: Mapping[str, str]
) -> tuple[int, int]:
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
