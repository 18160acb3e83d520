""".npz files: written by numpy and zipfile, and malformed by hand."""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

import numpy
import pytest

from emitter.errors import InputError
from emitter.inputs import read_input
from emitter.package import FileSource, Package, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def payload(tensor: Tensor) -> bytes:
    extent = tensor.extent
    assert isinstance(extent.source, FileSource)
    with extent.source.open() as fd:
        data = os.pread(fd, extent.length, extent.offset)
    if extent.inflate is None:
        return data
    data = zlib.decompress(data, -15)
    assert len(data) == extent.inflate.size
    assert zlib.crc32(data) == extent.inflate.crc32
    return data[extent.inflate.skip :]


def read(path: str | Path) -> list[Tensor]:
    return list(read_input(str(path), Package()))


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    numpy.save(file, array)
    return file.getvalue()


ONES = npy(numpy.ones(2))


def make(*members: tuple[str, bytes], method: int = zipfile.ZIP_STORED, comment: bytes = b"") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.comment = comment
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return file.getvalue()


@pytest.mark.parametrize("save", [numpy.savez, numpy.savez_compressed])
def test_reads_what_numpy_writes(tmp_path: Path, save: Callable[..., None]) -> None:
    arrays: dict[str, Any] = {
        "a/b": numpy.arange(1000, dtype=">i4").reshape(10, 100),
        "f": numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3)),
        "empty": numpy.zeros((0, 2)),
        "scalar": numpy.array(3, numpy.uint16),
        "größe": numpy.zeros(5000, numpy.complex64),
    }
    save(tmp_path / "x.npz", numpy.ones(1), **arrays)
    tensors = {tensor.name: tensor for tensor in read(tmp_path / "x.npz")}
    assert set(tensors) == {*arrays, "arr_0"}
    for name, array in arrays.items():
        tensor = tensors[name]
        assert (tensor.shape, str(tensor.dtype)) == (array.shape, array.dtype.name)
        assert (tensor.extent.inflate is None) == (save is numpy.savez)
        assert payload(tensor) == array.tobytes("F" if tensor.extent.fortran_order else "C")
    assert tensors["a/b"].extent.byte_order == "big"
    assert tensors["f"].extent.fortran_order


def test_an_archive_without_arrays(tmp_path: Path) -> None:
    numpy.savez(tmp_path / "x.npz")
    assert read(tmp_path / "x.npz") == []


def test_a_header_longer_than_one_read(tmp_path: Path) -> None:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}}{' ' * 60000}\n".encode()
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(8)
    (tmp_path / "x").write_bytes(make(("a.npy", data), method=zipfile.ZIP_DEFLATED))
    (tensor,) = read(tmp_path / "x")
    assert payload(tensor) == bytes(8)


@pytest.mark.parametrize("comment", [b"", b"x", b"PK\x05\x06 is no record here", b"c" * 65535])
def test_a_comment_that_looks_like_an_end(tmp_path: Path, comment: bytes) -> None:
    (tmp_path / "x").write_bytes(make(("a.npy", ONES), comment=comment))
    assert [tensor.name for tensor in read(tmp_path / "x")] == ["a"]


def test_sizes_that_follow_the_member(tmp_path: Path) -> None:
    class Stream(io.RawIOBase):
        """A file that cannot seek, so that zipfile writes data descriptors."""

        def __init__(self) -> None:
            self.data = bytearray()

        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            self.data += data
            return len(data)

    stream = Stream()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", ONES)
        archive.writestr("b.npy", ONES)
    (tmp_path / "x").write_bytes(stream.data)
    assert [payload(tensor) for tensor in read(tmp_path / "x")] == [ONES[-16:], ONES[-16:]]


def test_members_and_offsets_beyond_4_gib(tmp_path: Path) -> None:
    """A sparse archive, with the records of ZIP64 that a real one of this size has."""
    size = 5 << 30
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({size},), }}\n".encode()
    npy_header = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    total = len(npy_header) + size
    path = tmp_path / "big.npz"
    with path.open("wb") as file:
        big, small = b"big.npy", b"small.npy"
        extra = struct.pack("<2H2Q", 1, 16, total, total)
        file.write(
            struct.pack("<4s5H3L2H", b"PK\x03\x04", 45, 0, 0, 0, 33, 0, 0xFFFFFFFF, 0xFFFFFFFF, len(big), len(extra))
        )
        file.write(big + extra + npy_header)
        file.seek(size, os.SEEK_CUR)
        second = file.tell()
        file.write(
            struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, 0, 0, 0, 33, 0, len(ONES), len(ONES), len(small), 0)
            + small
            + ONES
        )
        directory = file.tell()
        sizes = (0xFFFFFFFF, 0xFFFFFFFF)
        file.write(
            struct.pack(
                "<4s6H3L5H2L", b"PK\x01\x02", 45, 45, 0, 0, 0, 33, 0, *sizes, len(big), len(extra), 0, 0, 0, 0, 0
            )
            + big
            + extra
        )
        sizes = (len(ONES), len(ONES))
        extra = struct.pack("<2H4x2HQ", 0x5455, 4, 1, 8, second)
        file.write(
            struct.pack(
                "<4s6H3L5H2L",
                b"PK\x01\x02",
                45,
                45,
                0,
                0,
                0,
                33,
                0,
                *sizes,
                len(small),
                len(extra),
                0,
                0,
                0,
                0,
                0xFFFFFFFF,
            )
            + small
            + extra
        )
        end = file.tell()
        file.write(struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 2, 2, end - directory, directory))
        file.write(struct.pack("<4sLQL", b"PK\x06\x07", 0, end, 1))
        file.write(struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 2, 2, end - directory, 0xFFFFFFFF, 0))
    with zipfile.ZipFile(path) as archive:  # zipfile agrees that this is an archive
        assert [(info.filename, info.file_size) for info in archive.infolist()] == [
            ("big.npy", total),
            ("small.npy", len(ONES)),
        ]
    first, last = read(path)
    assert (first.name, first.shape, first.extent.length) == ("big", (size,), size)
    assert (last.name, payload(last)) == ("small", ONES[-16:])


def patched(data: bytes, signature: bytes, offset: int, value: bytes, which: int = 0) -> bytes:
    """Return `data` with `value` at `offset` of the record number `which` that begins with `signature`."""
    at = -1
    for _ in range(which + 1):
        at = data.index(signature, at + 1)
    return data[: at + offset] + value + data[at + offset + len(value) :]


LOCAL, ENTRY, END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
TWO = make(("a.npy", ONES), ("b.npy", ONES))
ONE = make(("a.npy", ONES))
DEFLATED = make(("a.npy", npy(numpy.zeros(5000))), method=zipfile.ZIP_DEFLATED)


def twice(data: bytes, entry: int, local: int, value: bytes) -> bytes:
    return patched(patched(data, ENTRY, entry, value), LOCAL, local, value)


MALFORMED: list[tuple[str, bytes, str]] = [
    ("truncated", ONE[:-1], "no end record.*truncated"),
    ("only a start", ONE[:40], "no end record"),
    ("bytes after the end", ONE + b"x", "no end record"),
    ("other member", make(("a.npy", ONES), ("readme.txt", b"x")), "'readme.txt' is not a named .npy"),
    ("no name", make((".npy", ONES)), "'.npy' is not a named .npy"),
    ("folder", make(("a/", b"")), "'a/' is not a named .npy"),
    ("PyTorch", make(("m/data.pkl", b"x"), ("m/data/0", b"x")), "this is a PyTorch file.*safetensors"),
    ("object array", make(("a.npy", npy(numpy.array([None])))), "member 'a.npy': .*pickle, which is never opened"),
    ("no .npy", make(("a.npy", b"hello")), "member 'a.npy': this is not a .npy"),
    ("lying shape", make(("a.npy", ONES[:-1])), "member 'a.npy': .*contradicts"),
    ("lying shape, deflated", make(("a.npy", ONES[:-1]), method=zipfile.ZIP_DEFLATED), "contradicts"),
    ("bzip2", make(("a.npy", ONES), method=zipfile.ZIP_BZIP2), "compression method.*12"),
    ("encrypted", patched(ONE, ENTRY, 8, b"\1"), "encrypted"),
    ("duplicate", twice(TWO, 46, 30, b"b.npy"), "two members are called 'b.npy'"),
    ("two disks", patched(ONE, END, 4, b"\1"), "several parts"),
    ("another count", patched(ONE, END, 10, b"\2"), "another number of entries"),
    ("directory elsewhere", patched(ONE, END, 16, b"\1"), "out of place"),
    ("entry signature", patched(ONE, ENTRY, 0, b"QK"), "another signature"),
    ("entry cut off", patched(ONE, ENTRY, 28, b"\xff"), "cut off"),
    ("name not UTF-8", patched(patched(ONE, ENTRY, 9, b"\x08"), ENTRY, 46, b"\xff"), "not UTF-8"),
    ("ZIP64 field missing", patched(ONE, ENTRY, 24, b"\xff" * 4), "ZIP64 extra field"),
    ("local elsewhere", patched(ONE, ENTRY, 42, b"\1"), "local header is malformed"),
    ("local out of bounds", patched(ONE, ENTRY, 42, b"\xf0\xff\xff\0"), "out of bounds"),
    ("local name", patched(ONE, LOCAL, 30, b"b"), "contradicts the central directory"),
    ("local size", patched(ONE, LOCAL, 22, b"\1"), "contradicts the central directory"),
    ("local CRC", patched(ONE, LOCAL, 14, b"\1\1\1\1"), "contradicts the central directory"),
    ("two sizes", twice(ONE, 24, 22, b"\x91"), "two sizes"),
    ("into the directory", twice(twice(ONE, 20, 18, b"\xff\xff"), 24, 22, b"\xff\xff"), "runs into"),
    ("overlap", patched(TWO, ENTRY, 42, bytes(4), 1), "contradicts|overlaps"),
    ("bomb", twice(DEFLATED, 24, 22, b"\xff\xff\xff\x7f"), "cannot be that large.*1032"),
    ("broken stream", patched(DEFLATED, LOCAL, 35, b"\xff\xff"), "compressed bytes are malformed"),
    ("short stream", patched(DEFLATED, LOCAL, 35, b"\x03\0"), "compressed bytes end too early"),
]


@pytest.mark.parametrize(("content", "message"), [row[1:] for row in MALFORMED], ids=[row[0] for row in MALFORMED])
def test_malformed_archives_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "broken.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"(?s)broken\.npz.*({message})"):
        read(path)


def test_members_that_share_bytes(tmp_path: Path) -> None:
    """Two entries of one member: the way of bombs without a high ratio."""
    at = ONE.index(ENTRY)
    entry = ONE[at : ONE.index(END)]
    end = struct.pack("<4s4H2LH", END, 0, 0, 2, 2, 2 * len(entry), at, 0)
    (tmp_path / "x.npz").write_bytes(ONE[:at] + entry + entry.replace(b"a.npy", b"b.npy") + end)
    with pytest.raises(InputError, match="overlaps the one before"):
        read(tmp_path / "x.npz")


def test_a_real_bomb_is_not_inflated(tmp_path: Path) -> None:
    """Its header tells the truth about 64 MiB of zeros; they are streamed later, and none of them is read here."""
    numpy.savez_compressed(tmp_path / "x.npz", a=numpy.zeros(64 << 20, numpy.uint8))
    (tensor,) = read(tmp_path / "x.npz")
    assert tensor.nbytes == 64 << 20
    assert tensor.extent.length < 100_000
