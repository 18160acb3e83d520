"""`emitter extract`: what comes out is what went in, whatever the artefact and its CPU."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from emitter import Package, emit
from emitter.cli import main
from emitter.contents import package_of
from emitter.dtypes import DType
from emitter.errors import EmitterError, FormatError, InputError, LayoutError, LoadError, UsageError
from emitter.extract import extract
from emitter.package import BufferSource, Extent, Tensor

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

ARRAYS: dict[str, NDArray[Any]] = {
    "layer.0/w": np.arange(12, dtype=np.float32).reshape(3, 4),
    "ids": np.arange(5, dtype=np.int64) - 2,
    "scalar": np.array(3.5),
    "empty": np.zeros((0, 3), np.float16),
    "mask": np.array([True, False, True]),
    "shared": np.arange(5, dtype=np.int64) - 2,
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    save_file(ARRAYS, str(path), metadata={"licence": "none"})
    return path


def emitted(model: Path, name: str, target: str) -> Path:
    package = Package()
    package.add_input(model, keep_metadata=True)
    path = model.parent / name
    emit(package, path, target=target)
    return path


@pytest.mark.parametrize("target", ["aarch64-linux-gnu", "s390x-linux-gnu", "i686-linux-gnu"])
@pytest.mark.parametrize("name", ["libm.so", "m.o", "libm.a", "m.pack"])
def test_safetensors_come_back_byte_for_byte(model: Path, target: str, name: str) -> None:
    out = model.parent / "out.safetensors"
    done = extract(emitted(model, name, target), out)
    assert out.read_bytes() == model.read_bytes()
    assert done.tensors == len(ARRAYS)
    assert done.payload_size == sum(array.nbytes for array in ARRAYS.values())


@pytest.mark.parametrize("target", ["aarch64-linux-gnu", "s390x-linux-gnu"])
def test_a_pack_comes_back_byte_for_byte(model: Path, target: str) -> None:
    pack = emitted(model, "m.pack", target)
    extract(emitted(model, "libm.so", target), model.parent / "out.pack")
    assert (model.parent / "out.pack").read_bytes() == pack.read_bytes()


def test_a_directory_holds_what_numpy_reads_and_a_manifest(model: Path) -> None:
    folder = model.parent / "out"
    extract(emitted(model, "libm.so", "s390x-linux-gnu"), folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["metadata"] == {"licence": "none"}
    found = {row["name"]: np.load(folder / row["file"], allow_pickle=False) for row in manifest["tensors"]}
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
    assert sorted(os.listdir(folder)) == sorted(["manifest.json", *(row["file"] for row in manifest["tensors"])])


def test_names_that_no_file_can_have_or_that_differ_in_case_alone_get_files_of_their_own(tmp_path: Path) -> None:
    names = ["../up", "CON", "con.w", ".hidden", "a", "A", "manifest", "é\n", "x" * 300, "x" * 301]
    package = Package()
    for number, name in enumerate(names):
        package.add_raw(name, bytes([number]))
    emit(package, tmp_path / "m.pack")
    extract(tmp_path / "m.pack", tmp_path / "out")
    rows = json.loads((tmp_path / "out" / "manifest.json").read_text())["tensors"]
    files = [row["file"] for row in rows]
    assert len({file.casefold() for file in files}) == len(names)
    assert all(os.path.basename(file) == file and not file.startswith(".") for file in files)
    assert [np.load(tmp_path / "out" / row["file"]).tolist() for row in rows] == [[n] for n in range(len(names))]


def test_what_numpy_cannot_express_comes_as_bytes(tmp_path: Path) -> None:
    package = Package()
    data = bytes(range(6))
    package.add(Tensor("bf", DType(4, 16), (3,), Extent(BufferSource("b", memoryview(data)), 0, 6)))
    emit(package, tmp_path / "m.pack", target="s390x-linux-gnu")
    extract(tmp_path / "m.pack", tmp_path / "out")
    assert (tmp_path / "out" / "bf.bin").read_bytes() == data
    row = json.loads((tmp_path / "out" / "manifest.json").read_text())["tensors"][0]
    assert (row["dtype"], row["shape"]) == ("bfloat16", [3])


def test_only_chooses_by_pattern(model: Path) -> None:
    out = model.parent / "some.safetensors"
    extract(emitted(model, "libm.so", "aarch64-linux-gnu"), out, only=["layer.*", "ids"])
    assert load_file(str(out)).keys() == {"layer.0/w", "ids"}
    with pytest.raises(UsageError, match=r"matches no tensor.*'ids'"):
        extract(model, out, only=["idz"])


def test_a_type_that_safetensors_lacks_is_refused_with_what_works(tmp_path: Path) -> None:
    package = Package()
    package.add_tensor("z", np.zeros(2, np.complex128))
    emit(package, tmp_path / "m.pack")
    with pytest.raises(LayoutError, match=r"tensor 'z'.*complex128.*\.pack"):
        extract(tmp_path / "m.pack", tmp_path / "out.safetensors")
    assert not (tmp_path / "out.safetensors").exists()


def test_damaged_bytes_are_not_handed_on(model: Path) -> None:
    library = emitted(model, "libm.so", "aarch64-linux-gnu")
    data = bytearray(library.read_bytes())
    at = data.index(ARRAYS["layer.0/w"].tobytes())
    data[at + 5] ^= 1
    library.write_bytes(data)
    out = model.parent / "out.safetensors"
    with pytest.raises(EmitterError, match="layer"):
        extract(library, out)
    assert not out.exists()
    with pytest.raises(EmitterError, match="layer"):
        extract(library, model.parent / "dir")
    assert sorted(os.listdir(model.parent)) == ["libm.so", "model.safetensors"]


def test_one_of_several_packs_is_chosen(model: Path) -> None:
    first = emitted(model, "m.o", "x86_64-linux-gnu").read_bytes()
    both = model.parent / "both.a"
    members = [(b"a.o/", first), (b"b.o/", first)]
    both.write_bytes(
        b"!<arch>\n"
        + b"".join(b"%-16s%-12s%-6s%-6s%-8s%-10d`\n" % (name, b"0", b"0", b"0", b"644", len(data)) + data
                   for name, data in members)
    )  # fmt: skip
    with pytest.raises(LoadError, match=r"two packs.*--pack"):
        package_of(both)
    assert [tensor.name for tensor in package_of(both, 1).tensors] == [t.name for t in package_of(both, 0).tensors]
    with pytest.raises(UsageError, match="no such pack"):
        package_of(both, 2)
    with pytest.raises(UsageError, match="one package"):
        package_of(model, 0)


@pytest.mark.parametrize("content", [b"", b"nothing", b"\x7fELF\x02\x01\x01", b"!<arch>\n"])
def test_what_holds_no_tensors_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.so").write_bytes(content)
    with pytest.raises((LoadError, FormatError, InputError)):
        extract(tmp_path / "x.so", tmp_path / "out.pack")
    assert os.listdir(tmp_path) == ["x.so"]


def test_the_output_never_replaces_what_it_should_not(model: Path) -> None:
    (model.parent / "full").mkdir()
    (model.parent / "full" / "mine").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        extract(model, model.parent / "full")
    with pytest.raises(UsageError, match="one of the inputs"):
        extract(model, model)
    with pytest.raises(UsageError, match="suffix"):
        extract(model, model.parent / "out.npz")
    (model.parent / "new").mkdir()
    extract(model, model.parent / "new")
    assert (model.parent / "new" / "ids.npy").exists()


def test_the_command_prints_json(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(model.parent / "out.safetensors")
    assert main(["extract", str(model), "-o", out, "--only", "ids", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "schema": "emitter.extract/1",
        "path": out,
        "format": "safetensors",
        "tensors": 1,
        "payload_size": 40,
        "modules": 0,
    }
    assert main(["extract", str(model), "-o", out, "--only", "nothing"]) == 2


def test_arguments_of_another_type_are_misuse(tmp_path: Path) -> None:
    path = tmp_path / "a.pack"
    package = Package()
    package.add_raw("a", b"a")
    emit(package, path)
    for wrong in ({"only": 5}, {"only": "a"}, {"only": [5]}, {"number": "0"}, {"number": True}, {"progress": 5}):
        with pytest.raises(UsageError):
            extract(path, tmp_path / "out.pack", **wrong)
    for name in ("", "x\0/", "\ud800/"):
        with pytest.raises(UsageError, match="no name that a file can have"):
            extract(path, name)
