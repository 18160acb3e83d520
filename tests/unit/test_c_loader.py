"""The C side of emitter.h: what it reads, what it refuses, and how it may be used."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from emitter import Package
from emitter.checksum import crc32c
from emitter.dtypes import DType
from emitter.pack import format as fmt
from emitter.pack.plan import schema_hash
from tests import c_tools
from tests.c_pack import STATUS, Entry, Memory, Parts, Reader, TensorView, is_zero
from tests.golden.make_packs import PACKS, golden_package
from tests.support import build_pack

if TYPE_CHECKING:
    from collections.abc import Callable

    from emitter.package import ByteOrder

    Change = Callable[[Parts], object]

GOLDEN = sorted(name for name in os.listdir(PACKS) if name.endswith(".pack"))


# ---- The external form, through ctypes ----


@pytest.fixture(scope="module")
def external(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    directory = tmp_path_factory.mktemp("external")
    source = directory / "external.c"
    source.write_text('#define EMITTER_IMPLEMENTATION\n#include "emitter.h"\n')
    library = c_tools.build(
        "gcc", str(directory / "libexternal.so"), "-std=c99", "-O1", "-shared", "-fPIC", str(source)
    )
    loaded = ctypes.CDLL(library)
    loaded.emitter0_status_string.restype = ctypes.c_char_p
    loaded.emitter0_dtype_name.restype = ctypes.c_char_p
    loaded.emitter0_model_version.restype = ctypes.c_char_p
    loaded.emitter0_crc32c.restype = ctypes.c_uint32
    loaded.emitter0_crc32c.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32]
    return loaded


def open_pack(
    external: ctypes.CDLL, data: bytes, *, shift: int = 0, size: int | None = None
) -> tuple[str, Reader, Memory]:
    memory, reader = Memory(data, shift), Reader()
    length = ctypes.c_size_t(memory.size if size is None else size)
    status = external.emitter0_open(ctypes.byref(reader), ctypes.c_void_p(memory.address), length)
    return STATUS[status], reader, memory


def judge(external: ctypes.CDLL, data: bytes) -> tuple[str, str]:
    """Return the status of opening and validating a pack, and the field that is to blame."""
    status, reader, memory = open_pack(external, data)
    if status == "OK":
        status = STATUS[external.emitter0_validate(ctypes.byref(reader))]
    del memory
    return status, reader.where.decode()


def find(external: ctypes.CDLL, reader: Reader, name: bytes) -> tuple[str, TensorView]:
    tensor = TensorView()
    status = external.emitter0_find_length(ctypes.byref(reader), name, ctypes.c_size_t(len(name)), ctypes.byref(tensor))
    return STATUS[status], tensor


# ---- The rules ----


def small_package() -> Package:
    """Return tensors a (float32 [2, 3]), b (0-d), c (uint8 [8]), with metadata."""
    package = Package(metadata={"k1": "x", "k2": "y"}, model_version="v1")
    package.add(c_tools.tensor("a", DType(2, 32), (2, 3), bytes(range(24)), metadata={"m": "1", "n": "2"}))
    package.add(c_tools.tensor("b", DType(2, 64), (), bytes(range(8)), metadata={"m": "3"}))
    package.add(c_tools.tensor("c", DType(1, 8), (8,), bytes(range(8, 16)), alignment=8))
    return package


@pytest.fixture
def parts() -> Parts:
    return Parts(build_pack(small_package()))


A, B, C = range(3)


def header(field: str, value: int) -> Change:
    return lambda parts: parts.set_header(field, value)


def entry(record: fmt.Record, field: str, value: int) -> Change:
    return lambda parts: parts.set_entry(record, field, value)


def record(of: fmt.Record, number: int, field: str, value: int) -> Change:
    return lambda parts: parts.set(of, number, field, value)


def more(of: fmt.Record, number: int, field: str, delta: int) -> Change:
    return lambda parts: parts.set(of, number, field, parts.get(of, number, field) + delta)


def both(first: Change, second: Change) -> Change:
    def change(parts: Parts) -> None:
        first(parts)
        second(parts)

    return change


def longer(parts: Parts) -> None:
    parts.bytes += bytes(8)
    parts.set_header("total_size", len(parts.bytes))


def string_byte(of: fmt.Record, number: int, field: str, delta: int, value: int) -> Change:
    def change(parts: Parts) -> None:
        parts.bytes[parts.get(of, number, field) + delta] = value

    return change


def dim(number: int, value: int) -> Change:
    return lambda parts: parts.set(fmt.DIMS, number, "value", value)


def wide_shape(parts: Parts) -> None:
    """Make the product of the extents of a (2, 3) overflow: (2^62, 3), strides (3, 1)."""
    parts.set(fmt.DIMS, 0, "value", 1 << 62)


RULES: dict[str, tuple[Change, str, str]] = {
    "magic": (lambda p: p.bytes.__setitem__(0, 0), "NOT_A_PACK", "header.magic"),
    "no byte order": (header("byte_order", 0x04030102), "MALFORMED", "header.byte_order"),
    "foreign byte order": (header("byte_order", 0x04030201), "FOREIGN_BYTE_ORDER", "header.byte_order"),
    "major version": (header("version_major", 2), "VERSION", "header.version_major"),
    "header size": (header("header_size", 120), "MALFORMED", "header.header_size"),
    "header size not in eights": (header("header_size", 132), "MALFORMED", "header.header_size"),
    "header size over the limit": (header("header_size", (1 << 16) + 8), "MALFORMED", "header.header_size"),
    "index size": (header("index_size", 120), "MALFORMED", "header.index_size"),
    "index beyond the pack": (header("total_size", 128), "MALFORMED", "header.index_size"),
    "header alignment 0": (header("alignment", 0), "MALFORMED", "header.alignment"),
    "header alignment 4": (header("alignment", 4), "MALFORMED", "header.alignment"),
    "header alignment 96": (header("alignment", 96), "MALFORMED", "header.alignment"),
    "header alignment over the limit": (header("alignment", 1 << 22), "MALFORMED", "header.alignment"),
    "header alignment not the largest": (header("alignment", 128), "MALFORMED", "header.alignment"),
    "reserved header byte": (lambda p: p.bytes.__setitem__(127, 1), "MALFORMED", "header.reserved"),
    "model version beyond": (header("model_version_offset", 1 << 31), "MALFORMED", "header.model_version_offset"),
    "model version length": (header("model_version_length", 1), "MALFORMED", "header.model_version_offset"),
    "package metadata beyond": (header("metadata_count", 6), "MALFORMED", "header.metadata_first"),
    "package metadata not first": (header("metadata_first", 1), "MALFORMED", "metadata_first"),
    "directory offset in the header": (header("directory_offset", 64), "MALFORMED", "header.directory_offset"),
    "directory offset not in eights": (header("directory_offset", 132), "MALFORMED", "header.directory_offset"),
    "directory beyond": (header("directory_count", 1024), "MALFORMED", "header.directory_offset"),
    "directory over the limit": (header("directory_count", 1025), "MALFORMED", "header.directory_count"),
    "directory record size": (header("directory_record_size", 8), "MALFORMED", "header.directory_record_size"),
    "directory record size not in eights": (
        header("directory_record_size", 20),
        "MALFORMED",
        "header.directory_record_size",
    ),
    "kind twice": (entry(fmt.METADATA, "kind", fmt.TENSOR.kind), "MALFORMED", "table.kind"),
    "table not in eights": (entry(fmt.TENSOR, "offset", 260), "MALFORMED", "table.offset"),
    "table in the header": (entry(fmt.TENSOR, "offset", 120), "MALFORMED", "table.offset"),
    "table beyond": (entry(fmt.TENSOR, "count", 1 << 31), "MALFORMED", "table.offset"),
    "tables overlap": (
        lambda p: p.set_entry(fmt.METADATA, "offset", p.entry(fmt.TENSOR, "offset")),
        "MALFORMED",
        "table.offset",
    ),
    "tensor record size": (entry(fmt.TENSOR, "record_size", 32), "MALFORMED", "table.record_size"),
    "tensor record size not in eights": (entry(fmt.TENSOR, "record_size", 44), "MALFORMED", "table.record_size"),
    "payload record size": (entry(fmt.PAYLOAD, "record_size", 16), "MALFORMED", "table.record_size"),
    "metadata record size": (entry(fmt.METADATA, "record_size", 8), "MALFORMED", "table.record_size"),
    "longer dims": (
        both(entry(fmt.DIMS, "record_size", 16), entry(fmt.DIMS, "count", 1)),
        "MALFORMED",
        "table.record_size",
    ),
    "longer string bytes": (
        both(entry(fmt.STRINGS, "record_size", 8), entry(fmt.STRINGS, "count", 1)),
        "MALFORMED",
        "table.record_size",
    ),
    "payload alignment 0": (record(fmt.PAYLOAD, 0, "alignment", 0), "MALFORMED", "payload.alignment"),
    "payload alignment 24": (record(fmt.PAYLOAD, 0, "alignment", 24), "MALFORMED", "payload.alignment"),
    "payload alignment not kept": (more(fmt.PAYLOAD, 1, "offset", 8), "MALFORMED", "payload.offset"),
    "payload in the index": (record(fmt.PAYLOAD, 0, "offset", 64), "MALFORMED", "payload.offset"),
    "payload beyond": (record(fmt.PAYLOAD, 0, "offset", 1 << 40), "MALFORMED", "payload.offset"),
    "payload too long": (record(fmt.PAYLOAD, 0, "size", 1 << 40), "MALFORMED", "payload.size"),
    "payload size overflows": (record(fmt.PAYLOAD, 0, "size", (1 << 64) - 1), "MALFORMED", "payload.size"),
    "payloads overlap": (
        lambda p: p.set(fmt.PAYLOAD, 1, "offset", p.get(fmt.PAYLOAD, 0, "offset")),
        "MALFORMED",
        "payload.offset",
    ),
    "payload longer than its tensor": (more(fmt.PAYLOAD, 0, "size", 1), "MALFORMED", "payload.size"),
    "total size not the end": (
        longer,
        "MALFORMED",
        "header.total_size",
    ),
    "name beyond": (record(fmt.TENSOR, A, "name_offset", 1 << 31), "MALFORMED", "tensor.name_offset"),
    "name in another table": (record(fmt.TENSOR, A, "name_offset", 8), "MALFORMED", "tensor.name_offset"),
    "name without its NUL": (record(fmt.TENSOR, A, "name_length", 2), "MALFORMED", "tensor.name_offset"),
    "name length overflows": (record(fmt.TENSOR, A, "name_length", (1 << 32) - 1), "MALFORMED", "tensor.name_offset"),
    "name of no bytes": (
        both(more(fmt.TENSOR, A, "name_offset", 1), record(fmt.TENSOR, A, "name_length", 0)),
        "MALFORMED",
        "tensor.name_length",
    ),
    "names not sorted": (string_byte(fmt.TENSOR, B, "name_offset", 0, ord("A")), "MALFORMED", "tensor.name"),
    "name twice": (string_byte(fmt.TENSOR, B, "name_offset", 0, ord("a")), "MALFORMED", "tensor.name"),
    "not UTF-8": (string_byte(fmt.TENSOR, C, "name_offset", 0, 0xFF), "MALFORMED", "string"),
    "no such payload": (record(fmt.TENSOR, A, "payload", 3), "MALFORMED", "tensor.payload"),
    "another payload": (record(fmt.TENSOR, A, "payload", 1), "MALFORMED", "payload.size"),
    "no bits": (record(fmt.TENSOR, A, "dtype_bits", 0), "MALFORMED", "tensor.dtype_bits"),
    "no lanes": (record(fmt.TENSOR, A, "dtype_lanes", 0), "MALFORMED", "tensor.dtype_lanes"),
    "more bits than bytes": (record(fmt.TENSOR, A, "dtype_bits", 33), "MALFORMED", "payload.size"),
    "more lanes than bytes": (record(fmt.TENSOR, A, "dtype_lanes", 65535), "MALFORMED", "payload.size"),
    "65 dimensions": (record(fmt.TENSOR, A, "ndim", 65), "MALFORMED", "tensor.ndim"),
    "more dimensions than dims": (record(fmt.TENSOR, A, "ndim", 64), "MALFORMED", "tensor.shape_offset"),
    "shape of 0 dimensions": (record(fmt.TENSOR, B, "shape_offset", 8), "MALFORMED", "tensor.shape_offset"),
    "strides of 0 dimensions": (record(fmt.TENSOR, B, "strides_offset", 8), "MALFORMED", "tensor.strides_offset"),
    "shape beyond": (record(fmt.TENSOR, A, "shape_offset", 1 << 31), "MALFORMED", "tensor.shape_offset"),
    "shape in another table": (record(fmt.TENSOR, A, "shape_offset", 128), "MALFORMED", "tensor.shape_offset"),
    "shape not in eights": (more(fmt.TENSOR, A, "shape_offset", 4), "MALFORMED", "tensor.shape_offset"),
    "strides beyond": (record(fmt.TENSOR, A, "strides_offset", 1 << 31), "MALFORMED", "tensor.strides_offset"),
    "negative extent": (dim(0, -2), "MALFORMED", "tensor.shape"),
    "another extent": (dim(0, 4), "MALFORMED", "payload.size"),
    "product of extents overflows": (wide_shape, "MALFORMED", "tensor.shape"),
    "column-major strides": (dim(2, 2), "MALFORMED", "tensor.strides"),
    "last stride": (dim(3, 2), "MALFORMED", "tensor.strides"),
    "tensor metadata beyond": (record(fmt.TENSOR, A, "metadata_count", 1 << 31), "MALFORMED", "tensor.metadata_first"),
    "tensor metadata shared": (record(fmt.TENSOR, B, "metadata_first", 2), "MALFORMED", "metadata_first"),
    "reserved tensor byte": (
        lambda p: p.bytes.__setitem__(p.at(fmt.TENSOR, A) + 39, 1),
        "MALFORMED",
        "tensor.reserved",
    ),
    "key beyond": (record(fmt.METADATA, 0, "key_offset", 1 << 31), "MALFORMED", "metadata.key_offset"),
    "key of no bytes": (
        both(more(fmt.METADATA, 0, "key_offset", 2), record(fmt.METADATA, 0, "key_length", 0)),
        "MALFORMED",
        "metadata.key_length",
    ),
    "keys not sorted": (string_byte(fmt.METADATA, 0, "key_offset", 0, ord("z")), "MALFORMED", "metadata.key"),
    "value beyond": (record(fmt.METADATA, 0, "value_length", 1 << 31), "MALFORMED", "metadata.value_offset"),
    "value with a NUL": (
        lambda p: p.set(fmt.METADATA, 0, "value_length", 1 + 1 + len("k2")),
        "MALFORMED",
        "metadata.value",
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_checked_and_the_field_named(external: ctypes.CDLL, parts: Parts, rule: str) -> None:
    change, status, where = RULES[rule]
    assert judge(external, parts.sealed()) == ("OK", "")
    change(parts)
    assert judge(external, parts.sealed()) == (status, where)


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        (b"\xc2\x80", True), (b"\xdf\xbf", True), (b"\xe0\xa0\x80", True), (b"\xed\x9f\xbf", True),
        (b"\xee\x80\x80", True), (b"\xef\xbf\xbf", True), (b"\xf0\x90\x80\x80", True), (b"\xf4\x8f\xbf\xbf", True),
        (b"\x7f", True),
        (b"\x80", False), (b"\xc0\x80", False), (b"\xc1\xbf", False), (b"\xc3", False), (b"\xc3a", False),
        (b"\xe0\x9f\xbf", False), (b"\xed\xa0\x80", False), (b"\xe2\x82", False), (b"\xe2\x82\xc0", False),
        (b"\xf0\x8f\xbf\xbf", False), (b"\xf0\x9f\x98", False), (b"\xf4\x90\x80\x80", False),
        (b"\xf5\x80\x80\x80", False), (b"\xff", False),
    ],
)  # fmt: skip
def test_utf_8_is_judged_as_python_judges_it(external: ctypes.CDLL, text: bytes, valid: bool) -> None:
    try:
        text.decode()
        known = True
    except UnicodeDecodeError:
        known = False
    assert known == valid
    package = Package(model_version="x" * len(text))
    parts = Parts(build_pack(package))
    start = parts.header("model_version_offset")
    parts.bytes[start : start + len(text)] = text
    assert (judge(external, parts.sealed())[0] == "OK") == valid


def test_the_schema_is_expected(external: ctypes.CDLL) -> None:
    package = small_package()
    memory, reader = Memory(build_pack(package)), Reader()
    arguments = (ctypes.byref(reader), ctypes.c_void_p(memory.address), ctypes.c_size_t(memory.size))
    schema = schema_hash(package.tensors)
    assert STATUS[external.emitter0_open_expect(*arguments, ctypes.c_uint64(schema))] == "OK"
    assert STATUS[external.emitter0_open_expect(*arguments, ctypes.c_uint64(schema ^ 1))] == "SCHEMA"
    assert reader.schema == schema, "a refusal says which schema it found"
    assert external.emitter0_count(ctypes.byref(reader)) == 0
    assert find(external, reader, b"a")[0] == "NOT_FOUND"


@pytest.mark.parametrize("shift", [1, 2, 4])
def test_misaligned_memory_is_refused(external: ctypes.CDLL, shift: int) -> None:
    assert open_pack(external, build_pack(small_package()), shift=shift)[0] == "MISALIGNED"


@pytest.mark.parametrize("shift", [8, 64])
def test_eight_is_enough_and_more_bytes_than_the_pack_has_are_fine(external: ctypes.CDLL, shift: int) -> None:
    assert open_pack(external, build_pack(small_package()) + b"beyond", shift=shift)[0] == "OK"


def test_each_truncation_is_named(external: ctypes.CDLL) -> None:
    pack = build_pack(small_package())
    memory, reader = Memory(pack), Reader()
    for size in range(len(pack)):
        status = external.emitter0_open(ctypes.byref(reader), ctypes.c_void_p(memory.address), ctypes.c_size_t(size))
        assert STATUS[status] == "TRUNCATED", size


def test_null_pointers_are_refused(external: ctypes.CDLL) -> None:
    reader, tensor, null = Reader(), TensorView(), ctypes.c_void_p(None)
    assert STATUS[external.emitter0_open(null, null, ctypes.c_size_t(0))] == "ARGUMENT"
    assert STATUS[external.emitter0_open(ctypes.byref(reader), null, ctypes.c_size_t(9))] == "ARGUMENT"
    assert STATUS[external.emitter0_validate(ctypes.byref(reader))] == "ARGUMENT"
    assert STATUS[external.emitter0_check(ctypes.byref(reader))] == "ARGUMENT"
    assert STATUS[external.emitter0_find(ctypes.byref(reader), null, ctypes.byref(tensor))] == "ARGUMENT"
    assert STATUS[external.emitter0_at(ctypes.byref(reader), 0, null)] == "ARGUMENT"
    assert external.emitter0_model_version(ctypes.byref(reader)) == b""


def refusals(
    external: ctypes.CDLL, reader: Reader, bad: Reader
) -> dict[str, tuple[str, Callable[..., int], ctypes.Structure]]:
    """Return calls that fail: the status, the function of an `out`, and an out of its type."""
    here, null, tensor = ctypes.byref(reader), ctypes.c_void_p(None), TensorView()
    broken, index = ctypes.byref(bad), ctypes.c_uint32
    length = ctypes.c_size_t(1)
    return {
        "at without a reader": ("ARGUMENT", lambda out: external.emitter0_at(null, index(0), out), TensorView()),
        "at beyond": ("NOT_FOUND", lambda out: external.emitter0_at(here, index(3), out), TensorView()),
        "at of damage": ("MALFORMED", lambda out: external.emitter0_at(broken, index(A), out), TensorView()),
        "find without a reader": ("ARGUMENT", lambda out: external.emitter0_find(null, b"a", out), TensorView()),
        "find without a name": ("ARGUMENT", lambda out: external.emitter0_find(here, null, out), TensorView()),
        "find of another name": ("NOT_FOUND", lambda out: external.emitter0_find(here, b"aa", out), TensorView()),
        "find of damage": ("MALFORMED", lambda out: external.emitter0_find(broken, b"a", out), TensorView()),
        "find_length without a reader": (
            "ARGUMENT",
            lambda out: external.emitter0_find_length(null, b"a", length, out),
            TensorView(),
        ),
        "find_length without a name": (
            "ARGUMENT",
            lambda out: external.emitter0_find_length(here, null, length, out),
            TensorView(),
        ),
        "metadata_at without a reader": (
            "ARGUMENT",
            lambda out: external.emitter0_metadata_at(null, null, index(0), out),
            Entry(),
        ),
        "metadata_at of a tensor without a reader": (
            "ARGUMENT",
            lambda out: external.emitter0_metadata_at(null, ctypes.byref(tensor), index(0), out),
            Entry(),
        ),
        "metadata_at beyond": (
            "NOT_FOUND",
            lambda out: external.emitter0_metadata_at(here, null, index(2), out),
            Entry(),
        ),
        "metadata_at of damage": (
            "MALFORMED",
            lambda out: external.emitter0_metadata_at(broken, null, index(0), out),
            Entry(),
        ),
        "metadata_find without a reader": (
            "ARGUMENT",
            lambda out: external.emitter0_metadata_find(null, null, b"k1", out),
            Entry(),
        ),
        "metadata_find without a key": (
            "ARGUMENT",
            lambda out: external.emitter0_metadata_find(here, null, null, out),
            Entry(),
        ),
        "metadata_find of another key": (
            "NOT_FOUND",
            lambda out: external.emitter0_metadata_find(here, null, b"k3", out),
            Entry(),
        ),
        "metadata_find where there is none": (
            "NOT_FOUND",
            lambda out: external.emitter0_metadata_find(here, ctypes.byref(tensor), b"k1", out),
            Entry(),
        ),
    }


def test_what_fails_clears_its_out(external: ctypes.CDLL, parts: Parts) -> None:
    _, reader, memory = open_pack(external, parts.sealed())
    parts.set(fmt.TENSOR, A, "dtype_bits", 0)
    parts.set(fmt.TENSOR, B, "name_offset", 8)
    parts.set(fmt.METADATA, 0, "value_offset", 8)
    _, bad, other_memory = open_pack(external, parts.sealed())
    for what, (expected, call, out) in refusals(external, reader, bad).items():
        ctypes.memset(ctypes.addressof(out), 0xAA, ctypes.sizeof(out))
        assert STATUS[call(ctypes.byref(out))] == expected, what
        assert is_zero(out), what
    for function in (external.emitter0_at, external.emitter0_metadata_at, external.emitter0_find):
        assert STATUS[function(ctypes.byref(reader), *[ctypes.c_void_p(None)] * 3)] == "ARGUMENT"
    del memory, other_memory


def test_a_reader_that_is_refused_is_cleared(external: ctypes.CDLL) -> None:
    memory, reader = Memory(bytes(4096)), Reader()
    for base, status in ((None, "ARGUMENT"), (memory.address + 4, "MISALIGNED"), (memory.address, "NOT_A_PACK")):
        ctypes.memset(ctypes.addressof(reader), 0xAA, ctypes.sizeof(reader))
        size = ctypes.c_size_t(4000)
        assert STATUS[external.emitter0_open(ctypes.byref(reader), ctypes.c_void_p(base), size)] == status
        assert reader.where == (b"header.magic" if status == "NOT_A_PACK" else b"")
        reader.where = None
        assert is_zero(reader)
        assert external.emitter0_count(ctypes.byref(reader)) == 0


def test_unknown_incompatible_bits_are_refused_and_reported(external: ctypes.CDLL, parts: Parts) -> None:
    parts.set_header("incompatible_features", 1 << 3 | 1 << 63)
    status, reader, _ = open_pack(external, parts.sealed())
    assert (status, reader.where) == ("FEATURE", b"header.incompatible_features")
    assert reader.unknown_features == 1 << 3 | 1 << 63
    assert external.emitter0_status_string(6) == b"the pack needs features that this reader lacks"


def later_pack(package: Package) -> bytes:
    """Return the pack as a later writer may write it: longer header and records, a table more, compatible bits."""
    old = Parts(build_pack(package))
    index = bytearray(old.bytes[: fmt.HEADER.size]) + b"\x11" * 16
    tables = (fmt.PAYLOAD, fmt.TENSOR, fmt.METADATA, fmt.DIMS, fmt.STRINGS)
    directory, step = len(index), 24
    index += bytes(step * (len(tables) + 1))
    entries, moved = [], {}
    for table in tables:
        offset, count, size = old.entry(table, "offset"), old.entry(table, "count"), table.size
        grown = size + (16 if table in (fmt.PAYLOAD, fmt.TENSOR, fmt.METADATA) else 0)
        moved[table.kind] = len(index) - offset
        entries.append((table.kind, grown, len(index), count))
        for number in range(count):
            index += old.bytes[offset + number * size : offset + (number + 1) * size] + b"\x22" * (grown - size)
        index += bytes(-len(index) % 8)
    entries.append((77, 40, len(index), 3))
    index += b"\x33" * 120
    index += bytes((old.header("index_size") - len(index)) % 4096)  # keep alignments
    shift = len(index) - old.header("index_size")
    pack = Parts(bytes(index) + old.bytes[old.header("index_size") :])
    for number, values in enumerate(entries):
        struct.pack_into("<4I2I", pack.bytes, directory + number * step, *values, 0x44, 0x44)
    for name, value in {
        "version_minor": 9, "header_size": fmt.HEADER.size + 16, "index_size": len(index),
        "directory_offset": directory, "directory_count": len(entries), "directory_record_size": step,
        "compatible_features": 1 << 63 | 1,
        "total_size": old.header("total_size") + shift,
        "model_version_offset": old.header("model_version_offset") + moved[fmt.STRINGS.kind],
    }.items():  # fmt: skip
        pack.set_header(name, value)
    for number in range(old.entry(fmt.PAYLOAD, "count")):
        more(fmt.PAYLOAD, number, "offset", shift)(pack)
    for number in range(old.entry(fmt.TENSOR, "count")):
        more(fmt.TENSOR, number, "name_offset", moved[fmt.STRINGS.kind])(pack)
        if pack.get(fmt.TENSOR, number, "ndim"):
            more(fmt.TENSOR, number, "shape_offset", moved[fmt.DIMS.kind])(pack)
            more(fmt.TENSOR, number, "strides_offset", moved[fmt.DIMS.kind])(pack)
    for number in range(old.entry(fmt.METADATA, "count")):
        for name in ("key_offset", "value_offset"):
            more(fmt.METADATA, number, name, moved[fmt.STRINGS.kind])(pack)
    return pack.sealed()


def test_a_pack_without_tables_is_empty(external: ctypes.CDLL) -> None:
    parts = Parts(build_pack(Package()))
    parts.set_entry(fmt.TENSOR, "kind", 99)
    parts.set_entry(fmt.PAYLOAD, "kind", 98)
    assert judge(external, parts.sealed()) == ("OK", "")


# ---- Programs ----


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> str:
    source = os.path.join(c_tools.DATA, "dump.c")
    output = str(tmp_path_factory.mktemp("dump") / "dump")
    return c_tools.build("gcc", output, "-std=c99", *c_tools.WARNINGS, *c_tools.sanitizers("gcc"), source)


@pytest.fixture(scope="module")
def big_endian_dump(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    c_tools.need("qemu-s390x")
    source = os.path.join(c_tools.DATA, "dump.c")
    output = str(tmp_path_factory.mktemp("dump") / "dump-s390x")
    c_tools.build("s390x-linux-gnu-gcc", output, "-std=c99", "-static", *c_tools.WARNINGS, source)
    return ("qemu-s390x", output)


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_packs_load_for_ever(name: str, request: pytest.FixtureRequest) -> None:
    program = (request.getfixturevalue("dump"),) if "little" in name else request.getfixturevalue("big_endian_dump")
    done = c_tools.run(*program, os.path.join(PACKS, name))
    with open(os.path.join(PACKS, name.replace(".pack", ".txt")), encoding="utf-8") as file:
        assert done.stdout == file.read()
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("order", ["little", "big"])
def test_golden_packs_of_this_version_are_what_is_written_now(order: ByteOrder) -> None:
    path = os.path.join(PACKS, f"v{fmt.VERSION_MAJOR}.{fmt.VERSION_MINOR}-{order}.pack")
    with open(path, "rb") as file:
        assert build_pack(golden_package(), order) == file.read()


@pytest.mark.parametrize(("name", "program"), [("v1.0-big.pack", "dump"), ("v1.0-little.pack", "big_endian_dump")])
def test_the_other_byte_order_is_refused_by_name(name: str, program: str, request: pytest.FixtureRequest) -> None:
    command = request.getfixturevalue(program)
    done = c_tools.run(*([command] if isinstance(command, str) else command), os.path.join(PACKS, name))
    assert done.returncode == 1
    assert done.stdout == "the pack was made for a machine of the other byte order: header.byte_order 0\n"


def test_a_later_writer_is_read(tmp_path: Path, dump: str) -> None:
    package = c_tools.sample_package()
    pack = tmp_path / "later.pack"
    pack.write_bytes(later_pack(package))
    done = c_tools.run(dump, str(pack))
    assert done.stdout == c_tools.dump_text(package, "little", schema=schema_hash(package.tensors))
    assert done.returncode == 0


@pytest.mark.parametrize(
    "compiler", ["aarch64-linux-gnu-gcc", "arm-linux-gnueabihf-gcc", "i686-linux-gnu-gcc", "riscv64-linux-gnu-gcc"]
)
def test_other_machines_read_the_same(tmp_path: Path, compiler: str) -> None:
    emulator = "qemu-" + compiler.partition("-")[0].replace("i686", "i386")
    c_tools.need(emulator)
    program = c_tools.build(
        compiler,
        str(tmp_path / "dump"),
        "-std=c99",
        "-O2",
        "-static",
        *c_tools.WARNINGS,
        os.path.join(c_tools.DATA, "dump.c"),
    )
    package = c_tools.sample_package()
    pack = tmp_path / "sample.pack"
    pack.write_bytes(build_pack(package))
    done = c_tools.run(emulator, program, str(pack))
    assert done.stdout == c_tools.dump_text(package, "little", schema=schema_hash(package.tensors))


def many(count: int) -> Package:
    package = Package()
    for number in range(count):
        package.add(c_tools.tensor(f"layer.{number % 7}.{number}", DType(1, 8), (1,), bytes([number % 256])))
    return package


@pytest.mark.parametrize("count", [0, 1, 2, 3, 1000])
def test_every_name_is_found_and_no_other(external: ctypes.CDLL, count: int) -> None:
    package = many(count)
    _, reader, memory = open_pack(external, build_pack(package))
    assert external.emitter0_count(ctypes.byref(reader)) == count
    for number, tensor in enumerate(package.tensors):
        status, found = find(external, reader, tensor.name.encode())
        assert (status, found.name) == ("OK", tensor.name.encode())
        assert ctypes.string_at(found.data, 1) == bytes([number % 256])
        for other in (
            tensor.name[:-1],
            tensor.name + "0",
            tensor.name + "\0",
            "\x01" + tensor.name,
            tensor.name.upper(),
        ):
            expected = "OK" if any(one.name == other for one in package.tensors) else "NOT_FOUND"
            status, found = find(external, reader, other.encode())
            assert status == expected
            assert bool(found.data) == (status == "OK")
        if number > 50:
            break
    for other_name in (b"", b"a", b"z" * 70000, b"layer.", b"\xff"):
        assert find(external, reader, other_name)[0] == "NOT_FOUND"
    del memory


def test_unsorted_names_are_never_taken_for_others(external: ctypes.CDLL) -> None:
    parts = Parts(build_pack(many(40)))
    offsets = [parts.get(fmt.TENSOR, number, "name_offset") for number in range(40)]
    lengths = [parts.get(fmt.TENSOR, number, "name_length") for number in range(40)]
    for number in range(40):
        other = number * 17 % 40
        parts.set(fmt.TENSOR, number, "name_offset", offsets[other])
        parts.set(fmt.TENSOR, number, "name_length", lengths[other])
    status, reader, memory = open_pack(external, parts.sealed())
    assert status == "OK"
    for number in range(40):
        name = f"layer.{number % 7}.{number}".encode()
        status, found = find(external, reader, name)
        assert status in ("NOT_FOUND", "MALFORMED") or found.name == name
    del memory


@pytest.mark.parametrize(
    ("compiler", "options"),
    [
        ("gcc", ()),
        ("gcc", ("-O3", "-msse4.2")),
        ("gcc", ("-O3", "-m32", "-msse4.2")),
        ("clang-14", ("-O2", "-msse4.2")),
    ],
)
def test_crc_32c_in_tables_and_in_hardware(tmp_path: Path, compiler: str, options: tuple[str, ...]) -> None:
    source = tmp_path / "crc.c"
    source.write_text(
        '#include "emitter.h"\n#include <stdio.h>\n'
        "int main(void) { static uint64_t words[40]; unsigned char *b = (unsigned char *)words; unsigned i, j;\n"
        "for (i = 0; i < 300; i++) b[i] = (unsigned char)(i * 7 + 1);\n"
        "for (i = 0; i < 17; i++) for (j = 0; j < 40; j++)\n"
        'printf("%08x\\n", (unsigned)emitter_crc32c(b + i, j, i * j)); return 0; }\n'
    )
    if "-m32" in options and not os.path.exists("/usr/include/x86_64-linux-gnu/gnu/stubs-32.h"):
        compiler, options = "i686-linux-gnu-gcc", ("-O3", "-msse4.2", "-static")
    program = c_tools.build(compiler, str(tmp_path / "crc"), *options, str(source))
    data = bytes((i * 7 + 1) % 256 for i in range(300))
    expected = [f"{crc32c(data[i : i + j], i * j):08x}" for i in range(17) for j in range(40)]
    assert c_tools.run(program).stdout.split() == expected


def test_damaged_data_are_found(external: ctypes.CDLL, parts: Parts) -> None:
    parts.bytes[parts.get(fmt.PAYLOAD, 1, "offset") + 3] ^= 1
    status, reader, memory = open_pack(external, parts.sealed())
    assert status == "OK"
    assert STATUS[external.emitter0_validate(ctypes.byref(reader))] == "OK"
    assert STATUS[external.emitter0_check(ctypes.byref(reader))] == "CHECKSUM"
    assert (reader.where, reader.where_record) == (b"payload.crc32c", 1)
    for name, expected in ((b"a", "OK"), (b"b", "CHECKSUM"), (b"c", "OK")):
        tensor = find(external, reader, name)[1]
        assert STATUS[external.emitter0_check_tensor(ctypes.byref(tensor))] == expected
    del memory


@pytest.mark.parametrize("compiler", c_tools.C_COMPILERS)
@pytest.mark.parametrize(
    "options",
    [
        ("-std=c99",),
        ("-std=c11", "-DEMITTER_IMPLEMENTATION"),
        ("-std=c99", "-O2", "-Wcast-qual", "-Wcast-align=strict"),
    ],
)
def test_c_compiles_without_a_warning(tmp_path: Path, compiler: str, options: tuple[str, ...]) -> None:
    if compiler.startswith("clang"):
        options = tuple(option.replace("-Wcast-align=strict", "-Wcast-align") for option in options)
    program = c_tools.build(
        compiler, str(tmp_path / "a"), *c_tools.WARNINGS, *options, os.path.join(c_tools.DATA, "everything.c")
    )
    assert c_tools.run(program).returncode == 0


@pytest.mark.parametrize("level", ["-O0", "-O2", "-O3", "-Os"])
@pytest.mark.parametrize(
    "compiler",
    [
        "gcc",
        "clang-14",
        "arm-linux-gnueabihf-gcc",
        "i686-linux-gnu-gcc",
        "riscv64-linux-gnu-gcc",
        "s390x-linux-gnu-gcc",
    ],
)
def test_the_core_links_without_any_library(tmp_path: Path, compiler: str, level: str) -> None:
    options = (level, "-ffreestanding", "-nostdlib", "-static", "-fno-stack-protector")
    core = c_tools.build(compiler, str(tmp_path / "core"), *options, os.path.join(c_tools.DATA, "core.c"))
    assert b"\0emitter0_validate\0" in Path(core).read_bytes()  # the symbol table: what was linked is all of the core


def test_the_core_includes_nothing_else(tmp_path: Path) -> None:
    c_tools.need("gcc")
    done = c_tools.run(
        "gcc", "-std=c99", f"-I{c_tools.INCLUDE}", "-H", "-fsyntax-only", os.path.join(c_tools.DATA, "core.c")
    )
    direct = [line.split("/")[-1] for line in done.stderr.splitlines() if line.startswith(".. ")]
    assert direct == ["stddef.h", "stdint.h"]


@pytest.mark.parametrize("compiler", c_tools.C_COMPILERS)
def test_files_that_declare_and_one_that_defines(tmp_path: Path, compiler: str) -> None:
    c_tools.need("nm")
    (tmp_path / "define.c").write_text('#define EMITTER_IMPLEMENTATION\n#include "emitter.h"\n')
    everything = os.path.join(c_tools.DATA, "everything.c")
    user = c_tools.build(compiler, str(tmp_path / "user.o"), *c_tools.WARNINGS, "-DEMITTER_EXTERN", "-c", everything)
    assert " U emitter0_find\n" in c_tools.run("nm", user).stdout
    program = c_tools.build(compiler, str(tmp_path / "a"), user, str(tmp_path / "define.c"))
    assert c_tools.run(program).returncode == 0


def test_two_versions_in_one_file_and_in_one_program(tmp_path: Path) -> None:
    with open(os.path.join(c_tools.INCLUDE, "emitter.h"), encoding="utf-8") as file:
        text = file.read()
    later = (
        text.replace("emitter0", "emitter1")
        .replace("EMITTER0", "EMITTER1")
        .replace("INTERFACE 0", "INTERFACE 1")
        .replace("INTERFACE == 0", "INTERFACE == 1")
    )
    (tmp_path / "emitter1.h").write_text(later)
    source = os.path.join(c_tools.DATA, "two_versions.c")
    for compiler in ("gcc", "g++"):
        language = ("-x", "c++") if compiler == "g++" else ()
        program = c_tools.build(
            compiler, str(tmp_path / f"two-{compiler}"), *c_tools.WARNINGS, f"-I{tmp_path}", *language, source
        )
        assert c_tools.run(program).returncode == 0
    objects = []
    for number, name in enumerate(("emitter.h", "emitter1.h")):
        one = tmp_path / f"define{number}.c"
        one.write_text(f'#define EMITTER_IMPLEMENTATION\n#include "{name}"\n')
        objects.append(c_tools.build("gcc", str(tmp_path / f"define{number}.o"), f"-I{tmp_path}", "-c", str(one)))
    program = c_tools.build("gcc", str(tmp_path / "both"), f"-I{tmp_path}", "-DEMITTER_EXTERN", *objects, source)
    assert c_tools.run(program).returncode == 0


@pytest.mark.parametrize("late", [(), ("-DLATE",)])
@pytest.mark.parametrize("language", [("-std=c99",), ("-x", "c++", "-std=c++11")])
def test_dlpack_is_filled_if_its_header_came_first(
    tmp_path: Path, late: tuple[str, ...], language: tuple[str, ...]
) -> None:
    pack = tmp_path / "sample.pack"
    pack.write_bytes(build_pack(c_tools.sample_package()))
    program = c_tools.build(
        "gcc", str(tmp_path / "dlpack"), *c_tools.WARNINGS, *late, *language, os.path.join(c_tools.DATA, "dlpack.c")
    )
    assert c_tools.run(program, str(pack)).returncode == 0


def fuzz_package() -> Package:
    package = Package(metadata={"license": "0BSD"}, model_version="v1")
    package.add(
        c_tools.tensor("conv1.weight", DType(2, 32), (2, 3), bytes(range(24)), alignment=8, metadata={"license": "x"})
    )
    package.add(c_tools.tensor("a", DType(0, 4), (5,), b"\x12\x34\x05", alignment=1))
    package.add(c_tools.tensor("e", DType(2, 32), (0, 3), b"", alignment=8))
    package.add(c_tools.tensor("z", DType(1, 8), (4,), b"\1" * 9, alignment=8, encoding=0x8000))
    return package


@pytest.mark.parametrize("seed", [1, 20, 300])
def test_no_damage_makes_a_reader_leave_the_pack(tmp_path: Path, seed: int) -> None:
    pack = tmp_path / "fuzz.pack"
    pack.write_bytes(build_pack(fuzz_package()))
    source = os.path.join(c_tools.DATA, "mutate.c")
    program = c_tools.build(
        "gcc", str(tmp_path / "mutate"), "-O1", *c_tools.WARNINGS, *c_tools.sanitizers("gcc"), source
    )
    done = c_tools.run(program, str(pack), str(seed), "20000")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-2000:]
    accepted, refused = (int(word) for word in done.stdout.split() if word.isdecimal())
    assert accepted > 100, "some damage is not against the rules, and was read"
    assert refused > 10000
