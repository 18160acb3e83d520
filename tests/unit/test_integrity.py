"""Damage in a source that has checksums: it is found, named, and never written with a fresh checksum."""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

import numpy
import pytest
from safetensors.numpy import save_file

from emitter import Package, emit, load
from emitter.checksum import crc32c
from emitter.dtypes import DType
from emitter.errors import InputError
from emitter.layout import Copy
from emitter.pack import format as fmt
from emitter.package import BufferSource, Checksum, Extent, Inflate, Tensor
from emitter.reading import open_reader
from emitter.transforms import inflate
from tests.loader_support import set_field
from tests.support import build_pack, record_reads

if TYPE_CHECKING:
    from pathlib import Path

    from emitter.package import ByteOrder

ORDER = {"x86_64-linux-gnu": "little", "s390x-linux-gnu": "big"}
LARGE = numpy.random.default_rng(1).integers(0, 1 << 31, 2 << 20, numpy.int32)
ARRAYS: dict[str, Any] = {
    "small": numpy.arange(5, dtype="<f4"),
    "byte": numpy.arange(7, dtype=numpy.uint8),
    "fortran": numpy.asfortranarray(numpy.arange(12, dtype="<i8").reshape(3, 4)),
    "large": LARGE,
}


def emit_all(folder: Path, *paths: Path, **options: Any) -> None:
    """Emit the inputs, under names of their own, for both byte orders."""
    for target in ORDER:
        package = Package()
        for number, path in enumerate(paths):
            package.add_input(path, prefix=f"p{number}", **options)
        emit(package, folder / "out.pack", target=target)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def place(path: Path, content: bytes) -> int:
    """Return where the only occurrence of bytes is."""
    data = path.read_bytes()
    assert data.count(content) == 1
    return data.index(content)


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("where", ["first", "last", "header"])
def test_a_damaged_member_of_a_zip_is_found(tmp_path: Path, name: str, where: str) -> None:
    path = tmp_path / "x.npz"
    numpy.savez(path, **ARRAYS)
    emit_all(tmp_path, path)
    file = io.BytesIO()
    numpy.save(file, ARRAYS[name])
    whole = file.getvalue()
    start = place(path, whole)
    if where == "header":
        # A blank behind the dictionary becomes a tab: it reads the same, and has another CRC.
        at = start + whole.index(b"}") + 1
        assert path.read_bytes()[at] == 0x20
        data = bytearray(path.read_bytes())
        data[at] = 0x09
        path.write_bytes(data)
    else:
        flip(path, start + (len(whole) - ARRAYS[name].nbytes if where == "first" else len(whole) - 1))
    with pytest.raises(zipfile.BadZipFile), numpy.load(path) as archive:
        archive[name]
    found = zlib.crc32(path.read_bytes()[start : start + len(whole)])
    for target in ORDER:
        package = Package()
        package.add_input(path)
        message = f"x.npz: member '{name}.npy': .*CRC-32 .*expected {zlib.crc32(whole):#010x}, found {found:#010x}"
        with pytest.raises(InputError, match=message):
            emit(package, tmp_path / "fresh.so", target=target)
        assert not (tmp_path / "fresh.so").exists()


def test_an_empty_member_has_a_checksum_too(tmp_path: Path) -> None:
    for save in (numpy.savez, numpy.savez_compressed):
        path = tmp_path / "x.npz"
        save(path, full=numpy.ones(2), empty=numpy.zeros((0, 3)))
        emit_all(tmp_path, path)
        with zipfile.ZipFile(path) as archive:
            crc = archive.getinfo("empty.npy").CRC.to_bytes(4, "little")
        data = path.read_bytes()
        path.write_bytes(data.replace(crc, bytes([crc[0] ^ 1]) + crc[1:]))
        with pytest.raises(InputError, match="CRC-32"):
            emit_all(tmp_path, path)


def test_a_damaged_member_that_is_the_same_as_another_is_found(tmp_path: Path) -> None:
    for size in (4, 100_000):  # compared at once, and in pieces
        path = tmp_path / "x.npz"
        numpy.savez(path, a=numpy.arange(size, dtype="i4"), b=numpy.arange(size, dtype="i4"))
        emit_all(tmp_path, path)
        with zipfile.ZipFile(path) as archive:
            second = archive.getinfo("b.npy")
        # Its directory and its local header say another CRC.
        name = b"b.npy"
        data = bytearray(path.read_bytes())
        local, entry = data.index(name) - 30 + 14, data.rindex(name) - 46 + 16
        for at in (local, entry):
            assert data[at : at + 4] == second.CRC.to_bytes(4, "little")
            data[at] ^= 1
        path.write_bytes(data)
        with pytest.raises(InputError, match=r"member 'b\.npy'"):
            emit_all(tmp_path, path)


def pack_of(folder: Path, order: ByteOrder, **arrays: Any) -> Path:
    package = Package()
    for name, array in arrays.items():
        package.add_tensor(name, numpy.ascontiguousarray(array))
    block = BufferSource("block", memoryview(b"block format"))
    package.add(Tensor("encoded", DType(1, 4), (8,), Extent(block, 0, 12), encoding=3))
    path = folder / "x.pack"
    path.write_bytes(build_pack(package, order))
    return path


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize("name", [*ARRAYS, "encoded"])
def test_a_damaged_payload_of_a_pack_is_found(tmp_path: Path, name: str, order: ByteOrder) -> None:
    path = pack_of(tmp_path, order, **ARRAYS)
    emit_all(tmp_path, path)
    tensor = load(path).tensor(name)
    flip(path, tensor.file_offset + tensor.nbytes - 1)
    data = path.read_bytes()[tensor.file_offset : tensor.file_offset + tensor.nbytes]
    for target in ORDER:
        package = Package()
        package.add_input(path)
        message = f"x.pack: tensor '{name}': .*CRC-32C .*expected {tensor.crc32c:#010x}, found {crc32c(data):#010x}"
        with pytest.raises(InputError, match=message):
            emit(package, tmp_path / "fresh.o", target=target)
        assert not (tmp_path / "fresh.o").exists()


def test_an_empty_payload_has_a_checksum_too(tmp_path: Path) -> None:
    package = Package()
    package.add_tensor("empty", numpy.zeros((0, 2)))
    (tmp_path / "x.pack").write_bytes(set_field(build_pack(package), fmt.PAYLOAD, "crc32c", 1))
    with pytest.raises(InputError, match=r"tensor 'empty'.*expected 0x00000001, found 0x00000000"):
        emit_all(tmp_path, tmp_path / "x.pack")


def test_a_payload_of_two_tensors_is_named_after_the_first(tmp_path: Path) -> None:
    package = Package()
    package.add_raw("b", b"same")
    package.add_raw("a", b"same")
    (tmp_path / "x.pack").write_bytes(build_pack(package, same_as={"a": "b"}))
    flip(tmp_path / "x.pack", -1)
    with pytest.raises(InputError, match="tensor 'a'"):
        emit_all(tmp_path, tmp_path / "x.pack")


def test_a_payload_that_is_the_same_as_that_of_a_file_without_checksums_is_compared(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"1234")
    package = Package()
    package.add_raw("a", b"1235")
    (tmp_path / "x.pack").write_bytes(build_pack(package))
    data = (tmp_path / "x.pack").read_bytes()
    (tmp_path / "x.pack").write_bytes(data.replace(b"1235", b"1234"))  # damaged into the other's bytes
    package = Package()
    package.add_raw("plain", tmp_path / "plain")
    package.add_input(tmp_path / "x.pack")
    with pytest.raises(InputError, match="tensor 'a'"):
        emit(package, tmp_path / "out.pack", target="x86_64-linux-gnu")


def test_styles_compare_too(tmp_path: Path) -> None:
    package = Package()
    package.add_raw("a", b"1234")
    (tmp_path / "x.pack").write_bytes(build_pack(package))
    flip(tmp_path / "x.pack", -1)
    package = Package()
    package.add_input(tmp_path / "x.pack")
    with pytest.raises(InputError, match="tensor 'a'"):
        emit(package, tmp_path / "out.o", target="x86_64-linux-gnu", symbols="ld")


def test_what_the_writer_sums_anyway_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_file({"large": LARGE, "small": numpy.ones(3)}, tmp_path / "a.safetensors")
    (tmp_path / "raw").write_bytes(bytes(range(256)) * 5000)
    pack = pack_of(tmp_path, "little", large=LARGE[1:], small=numpy.ones(4))
    package = Package()
    package.add_input(tmp_path / "a.safetensors", prefix="a")
    package.add_raw("raw", tmp_path / "raw")
    package.add_input(pack, prefix="b")

    def never(*arguments: object) -> None:
        raise AssertionError

    monkeypatch.setattr("emitter.integrity.check_sum", never)
    emit(package, tmp_path / "out.so", target="x86_64-linux-gnu")
    load(tmp_path / "out.so").check()


def test_memory_is_bounded_and_holes_count_as_zeros(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from emitter import integrity
    from emitter.package import FileSource

    path = tmp_path / "sparse"
    size = 3 << 20
    with path.open("wb") as file:
        file.truncate(size)
        file.seek(1 << 20)
        file.write(b"data")
    content = path.read_bytes()
    lengths = record_reads(monkeypatch)
    source = FileSource.of(path)
    for algorithm, value in (("CRC-32", zlib.crc32(content)), ("CRC-32C", crc32c(content))):
        for wrong in (0, 1):
            checksum = Checksum(algorithm, value ^ wrong, 0, size)  # type: ignore[arg-type]  # one of the two
            copy = Copy(0, 4, Extent(source, 0, 4, checksum=checksum), 2, (2,), 16)
            with open_reader(source) as reader:
                if wrong:
                    with pytest.raises(InputError, match=f"{algorithm} than the file says"):
                        integrity.check_unwritten(reader, copy)
                else:
                    integrity.check_unwritten(reader, copy)
    assert max(lengths) <= 256 << 10


@pytest.mark.parametrize("size", [0, 10, 700_000])
@pytest.mark.parametrize("behind", [1, 3, 300_000])
def test_bytes_behind_the_end_of_compressed_data_are_found(size: int, behind: int) -> None:
    data = os.urandom(size)
    compressor = zlib.compressobj(wbits=-15)
    stored = compressor.compress(data) + compressor.flush()
    declared = Inflate(size, zlib.crc32(data), 0)
    source = BufferSource("x.npz", memoryview(stored + bytes(behind)))
    with open_reader(source) as reader:
        for extra in (0, behind):
            extent = Extent(source, 0, len(stored) + extra, inflate=declared, label="member 'a.npy'")
            if not extra:
                assert b"".join(inflate(reader.read, extent)) == data
                continue
            message = f"x.npz: member 'a.npy': .*behind the end.*expected {len(stored) + behind}.*found {len(stored)};"
            with pytest.raises(InputError, match=message):
                list(inflate(reader.read, extent))
