"""The flow as a whole: determinism, companions, failure."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emitter
from emitter import Package
from emitter.checksum import crc32c
from emitter.errors import EmitterError, InputError, OutputError, UsageError

TARGET = "aarch64-linux-gnu"


@pytest.fixture
def package() -> Package:
    package = Package()
    package.add_tensor("w.0", np.arange(100, dtype=np.float32))
    package.add_tensor("w.1", np.arange(7, dtype=np.int8))
    package.add_tensor("again", np.arange(100, dtype=np.float32))
    return package


@pytest.mark.parametrize("suffix", [".so", ".o", ".a", ".pack", ".dll", ".obj", ".lib"])
def test_the_bytes_do_not_depend_on_the_surroundings(suffix: str, tmp_path: Path) -> None:
    outputs = []
    here = {"umask": "022", "LC_ALL": "C", "PYTHONHASHSEED": "1", "TZ": "UTC"}
    there = {"umask": "077", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "2", "TZ": "Asia/Tokyo", "SOURCE_DATE_EPOCH": "1"}
    for number, surroundings in enumerate([here, there]):
        directory = tmp_path / f"dir{number}" / ("deeper" * number)
        directory.mkdir(parents=True)
        (directory / "blob.bin").write_bytes(bytes(range(256)) * 20)
        np.savez(directory / "a.npz", x=np.arange(10), y=np.ones((2, 3)))
        umask = surroundings.pop("umask")
        target = "x86_64-windows-msvc" if suffix in {".dll", ".obj", ".lib"} else TARGET
        command = [sys.executable, "-m", "emitter", "--target", target, "raw:blob.bin", "a.npz", "-o", f"libx{suffix}"]
        subprocess.run(
            ["sh", "-c", f'umask {umask}; exec "$@"', "sh", *command],
            cwd=directory,
            check=True,
            env={**os.environ, **surroundings},
        )
        os.utime(directory / "blob.bin", (1, 1))
        outputs.append((directory / f"libx{suffix}").read_bytes())
    assert outputs[0] == outputs[1]


def test_the_map_is_the_authority(package: Package, tmp_path: Path) -> None:
    out = tmp_path / "libm.so"
    emitter.emit(package, out, target=TARGET, tensor_symbols=True, map=str(tmp_path / "m.json"))
    data = out.read_bytes()
    document = json.loads((tmp_path / "m.json").read_text())
    assert document["schema"] == "emitter.map/1"
    assert document["output"] == "libm.so"
    assert document["file_size"] == len(data)
    assert document["symbol"] == "m"
    pack = document["pack"]
    assert data[pack["file_offset"] :][:4] == b"\x89EMT"
    by_name = {tensor["name"]: tensor for tensor in document["tensors"]}
    assert by_name["w.0"]["file_offset"] == by_name["again"]["file_offset"]
    for name, array in (("w.0", np.arange(100, dtype=np.float32)), ("w.1", np.arange(7, dtype=np.int8))):
        tensor = by_name[name]
        content = data[tensor["file_offset"] :][: tensor["size"]]
        assert content == array.tobytes()
        assert int(tensor["crc32c"], 16) == crc32c(content)
        assert tensor["file_offset"] == pack["file_offset"] + tensor["pack_offset"]
        assert tensor["pack_offset"] % tensor["alignment"] == 0
        assert tensor["symbol"] == f"m_t_{name.replace('.', '_')}"
        assert tensor["shape"] == list(array.shape)
    with emitter.load(out) as library:
        assert int(pack["schema_hash"], 16) == library.schema_hash


def test_an_unchanged_header_keeps_its_time_stamp(package: Package, tmp_path: Path) -> None:
    header = tmp_path / "m.h"
    emitter.emit(package, tmp_path / "libm.so", target=TARGET, header=str(header))
    os.utime(header, (1, 1))
    other = Package()
    other.add_tensor("w.0", np.zeros(100, np.float32))
    other.add_tensor("w.1", np.zeros(7, np.int8))
    other.add_tensor("again", np.ones(100, np.float32))
    emitter.emit(other, tmp_path / "libm.so", target=TARGET, header=str(header))
    assert header.stat().st_mtime == 1
    other.add_tensor("more", np.zeros(1, np.int8))
    emitter.emit(other, tmp_path / "libm.so", target=TARGET, header=str(header))
    assert header.stat().st_mtime != 1


def test_a_depfile_names_every_input(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    np.save(tmp_path / "b.npy", np.arange(3))
    package = Package()
    package.add_input(f"raw:{tmp_path / 'a'}")
    package.add_input(tmp_path / "b.npy")
    emitter.emit(package, tmp_path / "libm.so", target=TARGET, depfile=str(tmp_path / "m.d"))
    rule = (tmp_path / "m.d").read_text().split("\n\n")[0].replace("\\\n", " ").split()
    assert rule == [f"{tmp_path / 'libm.so'}:", str(tmp_path / "a"), str(tmp_path / "b.npy")]


@pytest.mark.parametrize("suffix", [".so", ".o", ".a", ".pack"])
def test_an_input_that_changes_leaves_the_old_output(suffix: str, tmp_path: Path) -> None:
    source = tmp_path / "blob"
    source.write_bytes(b"1" * 1000)
    out = tmp_path / f"libm{suffix}"
    out.write_bytes(b"old")
    package = Package()
    package.add_raw("blob", source)
    source.write_bytes(b"2" * 999)
    with pytest.raises(InputError, match="changed while it was read"):
        emitter.emit(package, out, target=TARGET)
    assert out.read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == ["blob", out.name]


def test_nothing_is_written_for_any_target_if_one_is_refused(tmp_path: Path) -> None:
    package = Package()
    package.add_raw("blob", b"x", alignment=1 << 16)  # images keep at most 4096
    with pytest.raises(EmitterError):
        emitter.emit(package, tmp_path / "{target}.so", target=["s390x-linux-gnu", TARGET])
    assert os.listdir(tmp_path) == []


def test_a_companion_that_cannot_be_written_leaves_the_old_output(package: Package, tmp_path: Path) -> None:
    out = tmp_path / "libm.so"
    out.write_bytes(b"old")
    with pytest.raises(EmitterError, match="missing"):
        emitter.emit(package, out, target=TARGET, map=str(tmp_path / "missing" / "m.json"))
    assert out.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["libm.so"]


def test_no_companion_is_replaced_if_another_cannot_be_written(package: Package, tmp_path: Path) -> None:
    header = tmp_path / "m.h"
    header.write_text("old")
    with pytest.raises(EmitterError, match="missing"):
        emitter.emit(
            package, tmp_path / "libm.so", target=TARGET, header=str(header), map=str(tmp_path / "missing" / "m.json")
        )
    assert header.read_text() == "old"
    assert os.listdir(tmp_path) == ["m.h"]


def test_nothing_is_written_if_the_folder_of_one_target_is_missing(package: Package, tmp_path: Path) -> None:
    (tmp_path / TARGET).mkdir()
    with pytest.raises(EmitterError, match="s390x"):
        emitter.emit(package, tmp_path / "{target}" / "libm.so", target=[TARGET, "s390x-linux-gnu"])
    assert os.listdir(tmp_path / TARGET) == []


@pytest.mark.parametrize(("style", "symbol"), [("ld", "_binary_blob_start"), ("incbin", "gblobData"), ("xxd", "blob")])
def test_the_map_of_a_symbol_style(style: str, symbol: str, tmp_path: Path) -> None:
    package = Package()
    package.add_raw("blob", b"some bytes")
    emitter.emit(package, tmp_path / "m.o", target="s390x-linux-gnu", symbols=style, map=str(tmp_path / "m.json"))
    document = json.loads((tmp_path / "m.json").read_text())
    (tensor,) = document["tensors"]
    assert tensor["symbol"] == symbol
    assert (tmp_path / "m.o").read_bytes()[tensor["file_offset"] :][: tensor["size"]] == b"some bytes"
    assert int(tensor["crc32c"], 16) == crc32c(b"some bytes")
    assert document["byte_order"] == "big"


@pytest.mark.parametrize(
    "options",
    [
        {"visibility": "x"},
        {"symbols": "foo"},
        {"large_data": 1},
        {"emit": "exe"},
        {"align": "64"},
        {"align": 64.0},
        {"align": True},
        {"name": 5},
        {"tensor_symbols": "yes"},
        {"header": b"m.h"},
        {"target": []},
    ],
)
def test_a_value_of_another_kind_is_one_of_our_errors(
    options: dict[str, object], package: Package, tmp_path: Path
) -> None:
    with pytest.raises(UsageError):
        emitter.emit(package, tmp_path / "m.o", **{"target": TARGET, **options})  # type: ignore[arg-type] # on purpose
    assert os.listdir(tmp_path) == []


class BytesPath:
    def __fspath__(self) -> bytes:
        return b"x.pack"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"output": b"x.pack"}, r"not a path.*os\.fsdecode"),
        ({"output": BytesPath()}, "not a path"),
        ({"output": None}, "not a path.*None"),
        ({"target": b"x86_64-linux-gnu"}, "target is not text"),
        ({"target": [b"x86_64-linux-gnu"]}, "target is not text"),
        ({"target": None}, "target is not text"),
        ({"target": 7}, "target is not text"),
        ({"package": "p"}, "not a package"),
        ({"package": None}, "not a package"),
    ],
)
def test_an_argument_of_another_type_is_a_usage_error(package: Package, values: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"package": package, "output": "x.pack", "target": TARGET, **values}
    with pytest.raises(UsageError, match=message):
        emitter.emit(arguments.pop("package"), arguments.pop("output"), **arguments)


def test_paths_of_companions_may_be_path_objects(package: Package, tmp_path: Path) -> None:
    emitter.emit(package, tmp_path / "m.o", target=TARGET, map=tmp_path / "m.json")
    assert (tmp_path / "m.json").exists()


def test_an_empty_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to write"):
        emitter.emit(Package(), tmp_path / "x.pack")


def test_colliding_tensor_symbols_name_both_tensors(tmp_path: Path) -> None:
    package = Package()
    package.add_raw("a.b", b"1")
    package.add_raw("a/b", b"2")
    emitter.emit(package, tmp_path / "libm.so", target=TARGET)
    with pytest.raises(EmitterError, match=r"a\.b.*a/b|a/b.*a\.b"):
        emitter.emit(package, tmp_path / "libm.so", target=TARGET, tensor_symbols=True)


def test_one_header_for_targets_whose_symbols_differ_is_refused(package: Package, tmp_path: Path) -> None:
    names = [TARGET, "s390x-linux-gnu"]
    header = str(tmp_path / "m.h")
    emitter.emit(package, tmp_path / "{target}.o", target=names, name="m", header=header)
    with pytest.raises(UsageError, match="one file"):
        emitter.emit(package, tmp_path / "{target}.o", target=names, header=header)


def test_progress_reaches_the_end(package: Package, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    emitter.emit(package, tmp_path / "libm.so", target=TARGET, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o755), (0o077, 0o700), (0o002, 0o775)])
def test_modes_are_those_of_a_linker(umask: int, mode: int, package: Package, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        emitter.emit(package, tmp_path / "libm.so", target=TARGET)
        emitter.emit(package, tmp_path / "m.o", target=TARGET)
    finally:
        os.umask(before)
    assert (tmp_path / "libm.so").stat().st_mode & 0o777 == mode
    assert (tmp_path / "m.o").stat().st_mode & 0o777 == mode & ~0o111


class Choosy(io.RawIOBase):
    """A raw stream that takes at most a few bytes of each write."""

    def __init__(self) -> None:
        self.data = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        taken = bytes(data)[:1000]
        self.data += taken
        return len(taken)


@pytest.mark.parametrize("name", ["libm.so", "m.o", "m.pack"])
def test_a_stream_gets_the_same_bytes(package: Package, tmp_path: Path, name: str) -> None:
    emitter.emit(package, tmp_path / name, target=TARGET)
    expected = (tmp_path / name).read_bytes()
    (tmp_path / name).unlink()
    buffer, raw = io.BytesIO(b"before"), Choosy()
    buffer.seek(6)
    (artefact,) = emitter.emit(package, tmp_path / name, target=TARGET, to=buffer)
    emitter.emit(package, tmp_path / name, target=TARGET, to=raw)  # type: ignore[arg-type] # a raw stream does, too
    assert buffer.getvalue() == b"before" + expected
    assert raw.data == expected
    assert artefact.size == len(expected)
    assert not list(tmp_path.iterdir())


def test_a_stream_that_cannot_take_it_is_an_error(package: Package, tmp_path: Path) -> None:
    closed = io.BytesIO()
    closed.close()
    with pytest.raises(OutputError, match=r"libm\.so: cannot write"):
        emitter.emit(package, "libm.so", target=TARGET, to=closed)
    for wrong in ("path", object(), io.StringIO()):
        with pytest.raises(UsageError, match="not a stream"):
            emitter.emit(package, "libm.so", target=TARGET, to=wrong)  # type: ignore[arg-type] # what it refuses
    with pytest.raises(UsageError, match="a stream takes one file"):
        emitter.emit(package, "{target}.so", target=[TARGET, "s390x-linux-gnu"], to=io.BytesIO())
    with pytest.raises(UsageError, match="a stream takes one file"):
        emitter.emit(package, "libm.so", target=TARGET, to=io.BytesIO(), sidecar=True)


class Answers:
    """A stream that says how many bytes it took."""

    def __init__(self, said: object) -> None:
        self.said = said

    def write(self, _data: memoryview) -> object:
        return self.said


class Waits(io.RawIOBase):
    """A raw stream that cannot take anything without waiting."""

    def write(self, _data: object, /) -> None:
        return


@pytest.mark.parametrize("stream", [Answers(0), Answers(-1), Answers(1 << 40), Answers("all"), Waits()])
def test_a_stream_that_takes_nothing_or_says_nonsense_is_an_error(package: Package, stream: io.BytesIO) -> None:
    with pytest.raises(OutputError, match=r"libm\.so: the stream does not take the bytes: expected 1 to \d+, found"):
        emitter.emit(package, "libm.so", target=TARGET, to=stream)


def test_a_stream_that_says_nothing_has_taken_everything(package: Package) -> None:
    assert emitter.emit(package, "libm.so", target=TARGET, to=Answers(None))  # type: ignore[arg-type] # a small one


def test_nothing_reaches_a_stream_before_everything_is_checked(package: Package) -> None:
    package.add_raw("late", b"x")
    buffer = io.BytesIO()
    with pytest.raises(EmitterError):
        emitter.emit(package, "libm.so", target=TARGET, to=buffer, section=".x")
    assert buffer.getvalue() == b""


@pytest.mark.parametrize("name", ["x\0.so", "\ud800.so"])
def test_a_name_that_no_file_can_have_is_said_to_be_none(package: Package, name: str) -> None:
    with pytest.raises(UsageError, match="no name that a file can have"):
        emitter.emit(package, name, target=TARGET)
    for option in ("header", "map", "depfile"):
        with pytest.raises(UsageError, match="no name that a file can have"):
            emitter.emit(package, "libm.so", target=TARGET, **dict[str, Any]({option: name}))


@pytest.mark.parametrize("name", ["progress", "note", "warn"])
def test_what_is_called_must_be_a_function(package: Package, name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"`{name}` cannot be called: expected a function, or None, found 5"):
        emitter.emit(package, tmp_path / "libm.so", target=TARGET, **{name: 5})  # type: ignore[arg-type] # refused
    assert not list(tmp_path.iterdir())
