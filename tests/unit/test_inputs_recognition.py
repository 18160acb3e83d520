"""Which reader an input gets, what its tensors are called, and what is refused."""

from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING

import numpy
import pytest
from safetensors.numpy import save_file

from emitter.errors import InputError, UsageError
from emitter.inputs import read_input, split_argument
from emitter.package import Package

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x.npy", ("", "x.npy")),
        ("enc=x.npy", ("enc", "x.npy")),
        ("enc=a=b.npy", ("enc", "a=b.npy")),
        ("enc=./a=b.npy", ("enc", "./a=b.npy")),
        ("enc=raw:a=b", ("enc", "raw:a=b")),
        ("./a=b.npy", ("", "./a=b.npy")),
        ("../a=b.npy", ("", "../a=b.npy")),
        ("/a=b.npy", ("", "/a=b.npy")),
        ("raw:a=b", ("", "raw:a=b")),
        ("=b.npy", ("", "=b.npy")),
        ("a=", ("a", "")),
        ("", ("", "")),
    ],
)
def test_split_argument(text: str, expected: tuple[str, str]) -> None:
    assert split_argument(text) == expected


@pytest.mark.parametrize(
    ("prefix", "name"),
    [
        ("", "w"),
        ("enc", "enc.w"),
        ("enc.", "enc.w"),
        ("enc_", "enc_w"),
        ("enc-", "enc-w"),
        ("a/", "a/w"),
        ("a:", "a:w"),
    ],
)
def test_the_prefix_of_a_container(tmp_path: Path, prefix: str, name: str) -> None:
    save_file({"w": numpy.zeros(1)}, tmp_path / "x")
    numpy.savez(tmp_path / "x.npz", w=numpy.zeros(1))
    for file in ("x", "x.npz"):
        (tensor,) = read_input(str(tmp_path / file), Package(), prefix=prefix)
        assert tensor.name == name


def test_the_name_of_a_single_tensor_does_not_depend_on_its_folder(tmp_path: Path) -> None:
    (tmp_path / "tab.v2.bin").write_bytes(b"abc")
    numpy.save(tmp_path / "w.v2.npy", numpy.zeros(1))
    for prefix, raw, npy in (("", "tab.v2.bin", "w.v2"), ("x.", "x.", "x."), ("x", "x", "x")):
        (tensor,) = read_input(f"raw:{tmp_path}/tab.v2.bin", Package(), prefix=prefix)
        assert (tensor.name, str(tensor.dtype), tensor.shape) == (raw, "uint8", (3,))
        assert (tensor.extent.offset, tensor.extent.length) == (0, 3)
        (tensor,) = read_input(f"{tmp_path}/w.v2.npy", Package(), prefix=prefix)
        assert tensor.name == npy


def test_raw_takes_any_content_and_no_bytes(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.write_bytes(b"")
    (tensor,) = read_input(f"raw:{path}", Package())
    assert (tensor.shape, tensor.nbytes) == ((0,), 0)
    with pytest.raises(UsageError, match=r"names no file"):
        read_input("raw:", Package())


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"GGUF\x03\0\0\0", "a GGUF model"),
        (pickle.dumps([1]), "a pickle"),
        (pickle.dumps([1], 2), "a pickle"),
        (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
        (b"\x08\x07\x12\x07pytorch\x1a", "an ONNX model"),
        (b"\x1c\0\0\0TFL3", "a TensorFlow Lite model"),
        (b"\x7fELF\x02", "an ELF program or library"),
        (b"\x1f\x8b\x08", "a gzip file"),
        (bytes(257) + b"ustar\x0000", "a tar archive"),
    ],
)
def test_a_known_container_is_named(tmp_path: Path, content: bytes, what: str) -> None:
    path = tmp_path / "model"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"model: this is {what}.*raw:FILE"):
        read_input(str(path), Package())


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x", b"", "the file is empty.*raw:FILE"),
        ("x", b"hello, world", "not recognised.*12 bytes that begin 68 65 6c.*raw:FILE"),
        ("x.safetensors", b"\0" * 20, "not that of a safetensors file: truncated or damaged.*raw:FILE"),
        ("x.NPZ", b"\0" * 20, "not that of a npz file"),
        ("x.pack", b"\0" * 20, "not that of a pack file"),
    ],
)
def test_what_is_not_recognised_is_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_input(str(path), Package())


def test_a_safetensors_header_length_that_spells_json(tmp_path: Path) -> None:
    # 0x227b bytes of header: the file begins with the characters {".
    path = tmp_path / "x"
    path.write_bytes((0x227B).to_bytes(8, "little") + b"{}".ljust(0x227B))
    assert list(read_input(str(path), Package())) == []


def test_an_empty_path_is_shown() -> None:
    with pytest.raises(InputError, match=r"^'': cannot open: No such file"):
        read_input("", Package())


def test_an_input_must_be_a_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "fifo", tmp_path / "missing"):
        for argument in (str(path), f"raw:{path}"):
            with pytest.raises(InputError, match=r"not a regular file|cannot open"):
                read_input(argument, Package())


def test_two_inputs_with_one_name_propose_a_prefix(tmp_path: Path) -> None:
    save_file({"w": numpy.zeros(1)}, tmp_path / "a")
    save_file({"w": numpy.zeros(2)}, tmp_path / "b")
    package = Package()
    package.add_input(tmp_path / "a")
    with pytest.raises(InputError, match=r"two tensors are called 'w'.*PREFIX=FILE"):
        package.add_input(tmp_path / "b")
    package.add_input(tmp_path / "b", prefix="b")
    assert [tensor.name for tensor in package.tensors] == ["w", "b.w"]


def test_reading_works_without_pread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pread")
    numpy.savez_compressed(tmp_path / "x.npz", a=numpy.zeros((3, 2)), b=numpy.ones(1))
    assert [tensor.shape for tensor in read_input(str(tmp_path / "x.npz"), Package())] == [(3, 2), (1,)]


def test_a_file_that_changes_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from emitter import reading
    from emitter.inputs import _common

    path = tmp_path / "x"
    save_file({"w": numpy.zeros(1)}, path)
    read = reading.pread

    def disturbed(fd: int, length: int, offset: int) -> bytes:
        with path.open("ab") as file:
            file.write(b"more")
        return bytes(read(fd, length, offset))

    monkeypatch.setattr(_common, "read_some", disturbed)
    with pytest.raises(InputError, match="changed while it was read"):
        read_input(str(path), Package())
