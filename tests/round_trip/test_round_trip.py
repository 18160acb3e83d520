"""What goes in comes out: every target and format, read back by the Python loader on this host."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import emitter
from emitter import Package, targets
from emitter.dtypes import TABLE
from emitter.package import ByteOrder

FORMATS = ("object", "archive", "library", "library with a sidecar", "pack")
TARGETS = {name: targets.load(name) for name in targets.names()}


def output_name(target: str, format_name: str) -> str | None:
    """Return how a file of a format is called on a target; None if the target has no such format."""
    one = TARGETS[target]
    suffixes = {"object": one.object_suffix, "archive": one.archive_suffix, "pack": ".pack"}
    suffix = suffixes.get(format_name, one.image_suffix)
    return None if suffix is None else f"{one.library_prefix}sample{suffix}"


PAIRS = [(target, format_name) for target in TARGETS for format_name in FORMATS if output_name(target, format_name)]
ORDERS: tuple[ByteOrder, ...] = ("little", "big")


def array_of(name: str, order: ByteOrder, shape: tuple[int, ...] = (3, 5)) -> np.ndarray:
    """Return random bytes as an array of a named element type; packed types have one element a byte."""
    random = np.random.default_rng(len(name))
    row = next(row for row in TABLE if row.name == name)
    dtype = np.dtype(row.name) if row.in_numpy else np.dtype(getattr(ml_dtypes, name))
    count = int(np.prod(shape)) * dtype.itemsize
    data = random.integers(0, 2 if name == "bool" else 1 << min(row.dtype.bits, 8), count, dtype=np.uint8)
    array = data.view(dtype).reshape(shape)
    return array.astype(array.dtype.newbyteorder("<" if order == "little" else ">")) if row.in_numpy else array


SAMPLE_TYPES = [row.name for row in TABLE if row.in_numpy or hasattr(ml_dtypes, row.name)]


@pytest.fixture(scope="module", params=ORDERS)
def sample(request: pytest.FixtureRequest) -> dict[str, np.ndarray]:
    arrays = {name: array_of(name, request.param) for name in SAMPLE_TYPES}
    arrays["empty"] = np.zeros((0, 4), np.float32)
    arrays["scalar"] = np.array(7.5, np.float64)
    arrays["repeated"] = arrays["float32"].copy()
    arrays["fortran"] = np.asfortranarray(arrays["int32"])
    return arrays


def meaning(array: np.ndarray, bits: int) -> bytes:
    """Return the bytes of an array, without the bits of a byte that a packed element does not use."""
    data = np.frombuffer(array.tobytes(), np.uint8)
    return (data & ((1 << bits) - 1)).tobytes() if bits < 8 else data.tobytes()


def package_of(arrays: dict[str, np.ndarray]) -> Package:
    package = Package(metadata={"origin": "test"}, model_version="1")
    for name, array in arrays.items():
        package.add_tensor(name, array, alignment=4096 if name == "scalar" else None)
    return package


@pytest.mark.parametrize(("target", "format_name"), PAIRS)
def test_every_target_and_format(target: str, format_name: str, sample: dict[str, np.ndarray], tmp_path: Path) -> None:
    path = tmp_path / str(output_name(target, format_name))
    beside = "sidecar" in format_name
    (artefact,) = emitter.emit(package_of(sample), path, target=target, sidecar=beside)
    assert artefact.size == path.stat().st_size
    assert artefact.format == format_name.split(maxsplit=1)[0]
    with emitter.load(path) as library:
        assert library.byte_order == TARGETS[target].byte_order
        library.validate()
        library.check()
        assert sorted(library) == sorted(sample)
        assert library.model_version == "1"
        assert dict(library.metadata) == {"origin": "test"}
        assert library.schema_hash == artefact.schema_hash
        for name, array in sample.items():
            tensor = library.tensor(name)
            assert tensor.shape == array.shape
            found = tensor.unpack() if tensor.dtype.packed else tensor.numpy()
            native = array.astype(array.dtype.newbyteorder("="))
            assert meaning(found.astype(native.dtype), tensor.dtype.bits) == meaning(native, tensor.dtype.bits), name
            assert found.flags.writeable is False or tensor.dtype.packed
        assert library.tensor("repeated").file_offset == library.tensor("float32").file_offset
        assert library.tensor("empty").nbytes == 0


@pytest.mark.parametrize("target", ["aarch64-linux-gnu", "arm64-apple-macos", "x86_64-windows-msvc"])
@pytest.mark.parametrize("format_name", ["object", "archive", "library"])
def test_the_pack_is_the_same_bytes_in_every_container(
    target: str, format_name: str, sample: dict[str, np.ndarray], tmp_path: Path
) -> None:
    package = package_of(sample)
    path = tmp_path / str(output_name(target, format_name))
    emitter.emit(package, tmp_path / "sample.pack", target=target)
    emitter.emit(package, path, target=target)
    pack = (tmp_path / "sample.pack").read_bytes()
    assert path.read_bytes().count(pack) == 1
    with emitter.load(path) as library:
        place = library.packs[0].file_offset
    assert path.read_bytes()[place : place + len(pack)] == pack


@pytest.mark.parametrize("format_name", ["object", "archive", "library"])
def test_a_universal_file_gives_one_slice(format_name: str, sample: dict[str, np.ndarray], tmp_path: Path) -> None:
    names = ["arm64-apple-macos", "x86_64-apple-macos"]
    path = tmp_path / str(output_name(names[0], format_name))
    emitter.emit(package_of(sample), path, target=names)
    with emitter.load(path) as library:
        library.check()
        assert library.kind.startswith("universal file of ")
        assert sorted(library) == sorted(sample)


@pytest.mark.parametrize("target", ["aarch64-linux-gnu", "s390x-linux-gnu"])
def test_a_pack_as_input_gives_the_same_pack(target: str, sample: dict[str, np.ndarray], tmp_path: Path) -> None:
    emitter.emit(package_of(sample), tmp_path / "first.pack", target=target)
    again = Package()
    again.add_input(tmp_path / "first.pack", keep_metadata=True)
    emitter.emit(again, tmp_path / "second.pack", target=target)
    assert (tmp_path / "second.pack").read_bytes() == (tmp_path / "first.pack").read_bytes()


def test_to_the_other_byte_order_and_back(sample: dict[str, np.ndarray], tmp_path: Path) -> None:
    emitter.emit(package_of(sample), tmp_path / "little.pack", target="x86_64-linux-gnu")
    previous = "little"
    for name, target in (("big", "s390x-linux-gnu"), ("again", "x86_64-linux-gnu")):
        package = Package()
        package.add_input(tmp_path / f"{previous}.pack", keep_metadata=True)
        emitter.emit(package, tmp_path / f"{name}.pack", target=target)
        previous = name
    assert (tmp_path / "again.pack").read_bytes() == (tmp_path / "little.pack").read_bytes()
    assert (tmp_path / "big.pack").read_bytes() != (tmp_path / "little.pack").read_bytes()


@pytest.mark.parametrize("target", ["aarch64-linux-gnu", "arm64-apple-macos", "x86_64-windows-gnu"])
@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize(
    "size", [0, 1, 63, 64, 65, 4095, 4096, 4097, 16383, 16385, 65535, 65537, (1 << 20) - 1, 1 << 20, (1 << 20) + 1]
)
def test_sizes_at_the_edges(size: int, format_name: str, target: str, tmp_path: Path) -> None:
    data = np.random.default_rng(size).bytes(size)
    package = Package()
    package.add_raw("first", data)
    package.add_raw("second", data[::-1])
    path = tmp_path / str(output_name(target, format_name))
    emitter.emit(package, path, target=target, sidecar="sidecar" in format_name)
    with emitter.load(path) as library:
        library.validate()
        library.check()
        assert library["first"].tobytes() == data
        assert library["second"].tobytes() == data[::-1]
