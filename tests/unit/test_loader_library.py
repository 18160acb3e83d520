"""The Python loader on packs: what it gives, how long that lives, and what it refuses."""

from __future__ import annotations

import gc
import mmap
import os
import struct
import sys
import weakref
from pathlib import Path
from socket import AF_UNIX, socket
from typing import TYPE_CHECKING

import ml_dtypes
import numpy
import pytest

from emitter.dtypes import TABLE, DType, Row
from emitter.errors import EmitterError, FormatError, LoadError, UsageError
from emitter.loaders import Library, Tensor, load
from emitter.pack import format as fmt
from emitter.package import Package
from tests.loader_support import add, later_pack, sample, sample_pack, set_field
from tests.support import build_pack

if TYPE_CHECKING:
    from collections.abc import Callable

    from emitter.package import ByteOrder

ORDERS: tuple[ByteOrder, ...] = ("little", "big")
GOLDEN = Path(__file__).parents[1] / "golden" / "packs"
NAMES = ["b", "blocks", "empty", "größe", "nibbles", "page", "scalar", "w"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "sample.pack"
    file.write_bytes(sample_pack())
    return file


@pytest.mark.parametrize("byte_order", ORDERS)
def test_gives_every_tensor_with_its_facts(byte_order: ByteOrder) -> None:
    pack = sample_pack(byte_order)
    library = load(pack)
    library.check()
    assert library.kind == "pack"
    assert library.names() == list(library) == library.keys() == NAMES
    assert len(library) == 8
    assert "w" in library
    assert "W" not in library
    assert 3 not in library
    assert library.byte_order == byte_order
    assert library.metadata == {"author": "Zoë", "licence": "none"}
    assert library.model_version == "2.0-β"
    assert library.version == (fmt.VERSION_MAJOR, fmt.VERSION_MINOR)
    assert library.alignment == 4096
    for wanted in sample().tensors:
        tensor = library.tensor(wanted.name)
        assert (tensor.name, tensor.dtype, tensor.shape, tensor.encoding) == (
            wanted.name,
            wanted.dtype,
            wanted.shape,
            wanted.encoding,
        )
        assert tensor.nbytes == len(tensor.bytes()) == wanted.nbytes
        assert tensor.metadata == wanted.metadata
        assert tensor.alignment == (wanted.alignment or 64)
        assert tensor.file_offset % tensor.alignment == 0
        assert pack[tensor.file_offset : tensor.file_offset + tensor.nbytes] == bytes(tensor.bytes())
        tensor.check()
    assert library.tensor("w").strides == (3, 1)
    assert library.tensor("empty").strides == (4, 1)


@pytest.mark.parametrize("byte_order", ORDERS)
def test_arrays_are_read_only_and_of_the_right_value(byte_order: ByteOrder) -> None:
    library = load(sample_pack(byte_order))
    for name, array in library.items():
        assert not array.flags.writeable
        assert library.tensor(name).numpy().tobytes() == array.tobytes()
    assert library["w"].dtype == numpy.dtype("<f4" if byte_order == "little" else ">f4")
    assert library["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert library["scalar"].shape == ()
    assert library["scalar"] == -5
    assert library["empty"].shape == (0, 4)
    assert library["größe"].tolist() == [1 - 2j]
    assert library["b"].dtype == ml_dtypes.bfloat16
    assert library["b"].astype(float).tolist() == [1, 2, -3]
    assert library["nibbles"].tolist() == [0xF1, 0x07]
    assert library.tensor("nibbles").unpack().astype(int).tolist() == [1, -1, 7]
    assert library.tensor("nibbles").unpack().dtype == ml_dtypes.int4
    assert bytes(library["blocks"]) == bytes(range(34))
    with pytest.raises(LoadError, match="encoding 2"):
        library.tensor("blocks").unpack()


def test_arrays_are_not_copies(path: Path) -> None:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        array = load(mapped)["w"]
        start = numpy.frombuffer(mapped, numpy.uint8).__array_interface__["data"][0]
        tensor = load(mapped).tensor("w")
        assert array.__array_interface__["data"][0] == start + tensor.file_offset
        del array, tensor


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
@pytest.mark.parametrize("byte_order", ORDERS)
def test_every_type_comes_as_what_numpy_or_ml_dtypes_calls_it(row: Row, byte_order: ByteOrder) -> None:
    name, dtype, _, in_numpy = row
    shape = (3, 5)
    size = dtype.nbytes(shape)
    data = bytes((7 * i + 1) % 256 for i in range(size))
    if name == "bool":
        data = bytes(i % 2 for i in range(size))
    package = Package()
    add(package, "t", name, shape, data)
    tensor = load(build_pack(package, byte_order)).tensor("t")
    array = tensor.numpy()
    if dtype.packed:
        assert array.tobytes() == data
        values = tensor.unpack()
        bits = int.from_bytes(data, "little")
        raw = [bits >> (i * dtype.bits) & ((1 << dtype.bits) - 1) for i in range(15)]
        assert values.shape == shape
        if name.startswith("int"):
            raw = [value - (1 << dtype.bits) if value >> (dtype.bits - 1) else value for value in raw]
        if name.startswith("float"):
            assert values.dtype == numpy.dtype(getattr(ml_dtypes, name))
            assert values.view(numpy.uint8).ravel().tolist() == raw
        else:
            assert values.astype(int).ravel().tolist() == raw
        return
    kind = numpy.dtype(name if in_numpy else getattr(ml_dtypes, name))
    assert array.shape == shape
    assert array.dtype.newbyteorder("=") == kind
    # numpy and ml_dtypes read the little-endian source bytes.
    assert numpy.ascontiguousarray(array).astype(kind).tobytes() == data
    assert tensor.unpack().flags.writeable


def test_lanes_are_a_last_dimension() -> None:
    package = Package()
    add(package, "t", DType(2, 32, 4), (3,), struct.pack("<12f", *range(12)))
    add(package, "i", DType(0, 4, 8), (2,), bytes(range(0x10, 0x18)))
    library = load(build_pack(package))
    assert library["t"].tolist() == numpy.arange(12.0).reshape(3, 4).tolist()
    assert library.tensor("i").unpack().shape == (2, 8)
    assert library.tensor("i").unpack().astype(int).ravel().tolist()[:4] == [0, 1, 1, 1]


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2), ()])
def test_unpacks_empty_and_scalar_tensors(shape: tuple[int, ...]) -> None:
    package = Package()
    add(package, "t", "int4", shape, b"" if 0 in shape else b"\x0e")
    values = load(build_pack(package)).tensor("t").unpack()
    assert values.shape == shape
    assert values.astype(int).ravel().tolist() == ([] if 0 in shape else [-2])


def test_a_type_without_a_name_gives_bytes_alone() -> None:
    package = Package()
    add(package, "t", DType(200, 24), (2,), b"abcdef")
    tensor = load(build_pack(package)).tensor("t")
    assert bytes(tensor.bytes()) == b"abcdef"
    with pytest.raises(LoadError, match="numpy has no type for 200:24:1"):
        tensor.numpy()


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    package = Package()
    for name in ("layer1.weight", "layer1.bias", "layer2.weight"):
        package.add_raw(name, b"x")
    library = load(build_pack(package))
    with pytest.raises(LoadError, match=r"'layer1.weigth'.*nearest are 'layer1.weight'"):
        library["layer1.weigth"]
    with pytest.raises(LoadError, match=r"holds no tensor called '.*'.*names"):
        library["\udcff"]
    assert library.get("layer9") is None
    assert library.get("layer9", 3) == 3
    found = library.get("layer1.bias")
    assert found is not None
    assert bytes(found) == b"x"


@pytest.mark.parametrize("count", [0, 1, 2, 3, 1000])
def test_finds_every_name_and_no_other(count: int) -> None:
    package = Package()
    names = [f"n{number * 7919 % 100003}" for number in range(count)]
    for name in names:
        package.add_raw(name, name.encode())
    library = load(build_pack(package))
    assert library.names() == sorted(names, key=str.encode)
    for name in names:
        assert bytes(library.tensor(name).bytes()).decode() == name
        assert name + "x" not in library
        assert name[:-1] in library or name[:-1] not in names
    library.check()


# how long things live


def test_a_closed_library_gives_nothing_new_and_takes_nothing_back(path: Path) -> None:
    with load(path) as library:
        array = library["w"]
        view = library.tensor("page").bytes()
        tensor = library.tensor("w")
        pack = library.packs[0]
    library.close()
    path.unlink()
    gc.collect()
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert bytes(view) == b"abcde"
    assert tensor.shape == (2, 3)
    refused: tuple[Callable[[], object], ...] = (
        *(library.names, library.check, library.validate, pack.names),
        *(tensor.numpy, tensor.bytes, tensor.unpack, tensor.check, tensor.__dlpack__),
        *(lambda: library["w"], lambda: "w" in library, lambda: len(library), lambda: list(library.items())),
        *(lambda: library.metadata, lambda: library.schema_hash, lambda: tensor.metadata),
    )
    for call in refused:
        with pytest.raises(LoadError, match="the library is closed"):
            call()
    assert "closed" in repr(pack)


def _maps(path: Path) -> int:
    if not os.path.exists("/proc/self/maps"):
        pytest.skip("/proc/self/maps is not on this system")
    with open("/proc/self/maps") as file:
        return sum(line.rstrip().endswith(str(path)) for line in file)


def test_the_file_is_mapped_until_the_last_view_is_gone(path: Path) -> None:
    with load(path) as library:
        assert _maps(path) == 1
        array = library["w"]
        slice_of_it = array[1:]
    del library, array
    gc.collect()
    assert _maps(path) == 1
    assert slice_of_it.tolist() == [[3, 4, 5]]
    del slice_of_it
    gc.collect()
    assert _maps(path) == 0


def test_closing_without_views_unmaps_at_once(path: Path) -> None:
    library = load(path)
    tensor = library.tensor("w")
    assert _maps(path) == 1
    library.close()
    assert _maps(path) == 0
    assert tensor.name == "w"


def test_a_mapping_of_the_user_is_held_while_views_are(path: Path) -> None:
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    with load(mapped) as library:
        array = library["w"]
    with pytest.raises(BufferError):
        mapped.close()
    del array
    capsule = load(mapped).tensor("scalar").__dlpack__(max_version=(1, 0)) if numpy.__version__ >= "2.1" else None
    if capsule:
        with pytest.raises(BufferError):
            mapped.close()
    del capsule
    mapped.close()


def test_a_failed_load_leaves_no_mapping(tmp_path: Path) -> None:
    file = tmp_path / "broken.pack"
    file.write_bytes(sample_pack()[:-1])
    with pytest.raises(LoadError, match="truncated"):
        load(file)
    gc.collect()
    assert _maps(file) == 0


# sources


def test_loads_paths_and_buffers(path: Path) -> None:
    pack = path.read_bytes()
    words = numpy.frombuffer(pack + bytes(-len(pack) % 8), "u8")
    for source in (str(path), path, pack, bytearray(pack), memoryview(pack), words):
        library = load(source)  # type: ignore[arg-type] # numpy arrays are buffers, which their types say since 3.12 only
        assert library["w"].sum() == 15
        assert not library["w"].flags.writeable
        assert isinstance(library, Library)
        assert isinstance(library.tensor("w"), Tensor)


@pytest.mark.parametrize("source", [3, None, ["x"]])
def test_refuses_what_is_neither_path_nor_buffer(source: object) -> None:
    with pytest.raises(UsageError, match="neither a path nor a buffer"):
        load(source)  # type: ignore[arg-type] # the point of the test


def test_refuses_a_buffer_with_gaps() -> None:
    with pytest.raises(UsageError, match="not contiguous"):
        load(memoryview(sample_pack())[::2])


def test_refuses_a_released_buffer() -> None:
    released = memoryview(sample_pack())
    released.release()
    with pytest.raises(UsageError, match="neither a path nor a buffer"):
        load(released)


def test_a_long_name_is_cut_in_messages() -> None:
    package = Package()
    long = "w" * 65535
    package.add_raw(long, b"abcd")
    package.add_raw("near", b"abc")
    pack = bytearray(build_pack(package))
    library = load(pack)
    tensor = library.tensor(long)
    assert len(repr(tensor)) < 300
    with pytest.raises(LoadError, match=r"'w{120}'\.\.\. \(65534 in all\).*names\(\) lists its 2") as caught:
        library.tensor(long[1:])
    assert len(str(caught.value)) < 400
    with pytest.raises(LoadError, match="the nearest is 'near'"):
        library.tensor("nea")
    pack[tensor.file_offset] ^= 1
    with pytest.raises(FormatError, match="crc32c does not match") as damaged:
        tensor.check()
    assert len(str(damaged.value)) < 400


def test_an_empty_path_is_shown() -> None:
    with pytest.raises(LoadError, match=r"^'': cannot open: No such file"):
        load("")


def bind(path: Path) -> None:
    with socket(AF_UNIX) as end:
        directory = os.getcwd()
        os.chdir(path.parent)  # the name of a socket is at most 107 bytes long
        try:
            end.bind(path.name)
        finally:
            os.chdir(directory)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot open: No such file"),
        (Path.mkdir, "not a regular file"),
        (lambda path: path.symlink_to("/dev/null"), "not a regular file"),
        (os.mkfifo, "not a regular file.*write the bytes to one"),
        (bind, "not a regular file"),
        (b"", "the file is empty"),
        (b"PK\3\4 something", r"not a file that holds packs.*begin 50 4b"),
        (b"\x89", "not a file that holds packs"),
    ],
)
def test_refuses_files_that_hold_no_packs(
    tmp_path: Path, content: bytes | Callable[[Path], None] | None, message: str
) -> None:
    path = tmp_path / "file"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content:
        content(path)
    with pytest.raises(LoadError, match=message):
        load(path)


@pytest.mark.parametrize("pack", sorted(GOLDEN.glob("*.pack")), ids=lambda pack: pack.name)
def test_packs_of_every_released_version_load(pack: Path) -> None:
    library = load(pack)
    library.check()
    assert library.byte_order in pack.name
    for tensor in library.tensors():
        assert tensor.numpy().nbytes == tensor.nbytes


def test_refuses_a_name_with_nul() -> None:
    with pytest.raises(LoadError, match="cannot open"):
        load("a\0b")


def test_an_empty_buffer_is_an_error() -> None:
    with pytest.raises(LoadError, match="an empty file"):
        load(b"")


# versions and damage


@pytest.mark.parametrize("byte_order", ORDERS)
def test_reads_what_a_later_version_writes(byte_order: ByteOrder) -> None:
    now, later = load(sample_pack(byte_order)), load(later_pack(sample_pack(byte_order)))
    later.check()
    assert later.version == (fmt.VERSION_MAJOR, 9)
    assert later.names() == now.names()
    assert later.metadata == now.metadata
    for old, new in zip(now.tensors(), later.tensors(), strict=True):
        assert (old.dtype, old.shape, old.strides, old.metadata) == (new.dtype, new.shape, new.strides, new.metadata)
        assert old.bytes() == new.bytes()


def test_refuses_unknown_incompatible_features_by_number() -> None:
    with pytest.raises(LoadError, match="incompatible feature bit 3, 63"):
        load(later_pack(sample_pack(), incompatible=1 << 63 | 8))


def test_refuses_a_later_major_version() -> None:
    with pytest.raises(LoadError, match=r"expected at most 1.x, found 7.0"):
        load(set_field(sample_pack(), fmt.HEADER, "version_major", 7))


@pytest.mark.parametrize("byte_order", ORDERS)
def test_every_truncation_of_a_pack_is_refused(byte_order: ByteOrder) -> None:
    package = Package()
    add(package, "w", "float32", (2,), struct.pack("<2f", 1, 2))
    pack = build_pack(package, byte_order)
    for size in range(len(pack)):
        with pytest.raises(EmitterError):
            load(pack[:size])


def test_bytes_behind_a_pack_do_not_belong_to_it() -> None:
    library = load(sample_pack() + b"tail")
    library.check()
    assert library.packs[0].size == len(sample_pack())


def test_a_damaged_payload_is_found_by_check_alone() -> None:
    pack = bytearray(sample_pack())
    tensor = load(bytes(pack)).tensor("w")
    pack[tensor.file_offset + 3] ^= 1
    library = load(pack)
    library.validate()
    for name in NAMES:
        if name != "w":
            library.tensor(name).check()
    with pytest.raises(FormatError, match=r"tensor 'w'.*not those that were written"):
        library.tensor("w").check()
    with pytest.raises(FormatError, match=r"payload 0.*not those that were written"):
        library.check()


def test_text_mode_damage_is_not_taken_for_a_pack() -> None:
    with pytest.raises(LoadError, match="not a file that holds packs"):
        load(sample_pack().replace(b"\r\n", b"\n"))


def test_objects_say_what_they_are(path: Path) -> None:
    library = load(path)
    assert repr(library) == f"<emitter library {path}: pack, 1 pack>"
    assert repr(library.packs[0]) == f"<emitter pack {path}: 8 tensors>"
    assert repr(library.tensor("w")) == "<emitter tensor 'w': float32 [2, 3], 24 bytes>"


def test_a_library_is_collected_without_the_cycle_collector(path: Path) -> None:
    gc.disable()
    try:
        library = load(path)
        _ = library["w"], library.tensor("b"), sys.getrefcount(library)
        assert _maps(path) == 1
        del library, _
        assert _maps(path) == 0
    finally:
        gc.enable()


def test_a_tensor_can_be_weakly_referred_to_through_its_array(path: Path) -> None:
    array = load(path)["w"]
    reference = weakref.ref(array)
    del array
    assert reference() is None
