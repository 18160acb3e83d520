"""emitter.h opens DLLs that emitter wrote, under Wine: paths, refusals, several at once, sidecars."""

from __future__ import annotations

import shutil
import struct
from typing import TYPE_CHECKING

import pytest

import emitter
from emitter import Package
from tests.run.device import Model, emit, lines
from tests.windows import build, compile_and_link, mingw

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.windows import Wine

STRICT = ("-pedantic", "-Wconversion", "-Wshadow")


@pytest.fixture(scope="module")
def opener(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("opener") / "library.exe"
    return compile_and_link([mingw("x86_64")], output, "library.c", *STRICT)


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_and_link([mingw("x86_64")], tmp_path_factory.mktemp("dump") / "dump.exe", "dump.c")


def write(
    path: Path, name: str, value: int, target: str = "x86_64-windows-gnu", *, sidecar: bool = False, pin: bool = False
) -> Path:
    """Emit a DLL with one tensor whose bytes are `value`."""
    package = Package()
    package.add_raw(name, bytes([value]) * 5000)
    emitter.emit(package, path, target=target, sidecar=sidecar, pin=pin)
    return path


def refusals(wine: Wine, opener: Path, *paths: object) -> list[str]:
    """Open files that are refused, and return the messages."""
    messages = wine.prints(opener, *map(str, paths))
    assert all(line.startswith("refused: ") for line in messages)
    return [line.removeprefix("refused: ") for line in messages]


@pytest.mark.parametrize("target", ["x86_64-windows-gnu", "x86_64-windows-msvc"])
@pytest.mark.parametrize("options", [(), ("--sidecar",)])
def test_every_tensor_with_its_checksum(
    target: str, options: Sequence[str], dump: Path, model: Model, other_model: Model, wine: Wine, tmp_path: Path
) -> None:
    """Both DLLs are open before one is read: they never see each other's data."""
    paths = []
    for one in (model, other_model):
        paths.append(tmp_path / f"{one.name}.dll")
        emit("--target", target, one.path, "-o", paths[-1], *options)
    assert wine.prints(dump, *paths) == lines(model.tensors, target) + lines(other_model.tensors, target)


def test_paths(opener: Path, wine: Wine, tmp_path: Path) -> None:
    """Both slashes, a relative path, a name that is searched for, and letters of no code page, in one process."""
    folder = tmp_path / "größe имя 重み"
    folder.mkdir()
    write(tmp_path / "one.dll", "one", 1)
    write(folder / "one.dll", "other", 2)  # the same name elsewhere is another library
    write(folder / "重み.dll", "side", 3, sidecar=True)
    paths = ("./one.dll", f"{folder.name}/one.dll", f"{folder.name}\\重み.dll", "one.dll", f"Z:{folder}/one.dll")
    assert wine.prints(opener, *paths, cwd=tmp_path) == [
        "1: one 1",
        "1: other 2",
        "1: side 3",
        "1: one 1",
        "1: other 2",
    ]


def test_several_packs_that_a_linker_joined(opener: Path, wine: Wine, tmp_path: Path) -> None:
    """A DLL of somebody else's objects exports no emitter_pack: the first pack is the library's."""
    for name, value in (("one", 1), ("two", 2)):
        write(tmp_path / f"{name}.o", name, value)
    linked, objects = tmp_path / "linked.dll", (str(tmp_path / "one.o"), str(tmp_path / "two.o"))
    build(mingw("x86_64"), "-shared", "-nostdlib", "-Wl,--entry=0", *objects, "-o", str(linked))
    assert wine.prints(opener, linked) == ["2: one 1"]


def test_what_is_refused(opener: Path, wine: Wine, tmp_path: Path) -> None:
    good = write(tmp_path / "good.dll", "one", 1).read_bytes()
    files = {
        "cut.dll": good[:-4096],
        "headers.dll": good[:100],
        "short.dll": good[:10],
        "text.dll": b"MZ is the beginning of this text, which is no program and goes on for 64 bytes and more.",
        "program.dll": good.replace(b"PE\0\0", b"NE\0\0", 1),
    }
    signature = good.index(b"PE\0\0")
    program = bytearray(good)
    struct.pack_into("<H", program, signature + 22, struct.unpack_from("<H", good, signature + 22)[0] & ~0x2000)
    files["exe.dll"] = bytes(program)
    magic = good.index(b"\x89EMT")
    files["nopack.dll"] = good[:magic] + b"X" + good[magic + 1 :]
    files["schema.dll"] = good[: magic + 56] + bytes([good[magic + 56] ^ 1]) + good[magic + 57 :]
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    write(tmp_path / "x86.dll", "one", 1, "i686-windows-gnu")
    write(tmp_path / "arm64.dll", "one", 1, "aarch64-windows-msvc")
    (tmp_path / "folder.dll").mkdir()
    expected = {
        "cut.dll": "truncated: section ",
        "headers.dll": "truncated: its section table is not within the file",
        "short.dll": "not a PE file, or shorter than its header",
        "text.dll": "truncated, or not a PE file: its header is not within the file",
        "program.dll": "not a PE file",
        "exe.dll": "not a DLL",
        "nopack.dll": "holds no pack: no read-only section begins with one",
        "schema.dll": "the bytes differ from those that were written",
        "x86.dll": "built for x86 (Machine 0x14c, PE32), this process is x64 (PE32+)",
        "arm64.dll": "built for ARM64 (Machine 0xaa64, PE32+), this process is x64 (PE32+)",
        "folder.dll": "not a regular file",
        "missing.dll": "System error 2",
    }
    messages = refusals(wine, opener, *(tmp_path / name for name in expected))
    for (name, words), message in zip(expected.items(), messages, strict=True):
        assert message.startswith(f"{tmp_path / name}: "), message
        assert words in message
    assert f"the file has {len(good) - 4096}" in messages[0]
    (bare,) = refusals(wine, opener, "no_such_library_anywhere.dll")
    assert "System error 126" in bare  # ERROR_MOD_NOT_FOUND


def test_a_sidecar_that_does_not_belong_is_refused(opener: Path, wine: Wine, tmp_path: Path) -> None:
    plain, pinned = (
        write(tmp_path / f"{name}.dll", "one", 1, sidecar=True, pin=name == "pin") for name in ("plain", "pin")
    )
    other = write(tmp_path / "other.dll", "one", 9, sidecar=True)
    renamed = write(tmp_path / "renamed.dll", "another name", 1, sidecar=True)
    assert wine.prints(opener, plain, pinned) == ["1: one 1"] * 2
    sidecar = other.with_suffix(".pack").read_bytes()
    for library in (plain, pinned):
        library.with_suffix(".pack").write_bytes(sidecar)
    assert wine.prints(opener, plain) == ["1: one 9"]  # other weights of the same schema
    (pin,) = refusals(wine, opener, pinned)
    assert pin.endswith("pin.pack: not the file that the library was made with: its SHA-256 differs")
    shutil.copy(renamed.with_suffix(".pack"), plain.with_suffix(".pack"))
    pinned.with_suffix(".pack").write_bytes(sidecar[:-1])
    other.with_suffix(".pack").write_bytes(sidecar[:-1])
    renamed.with_suffix(".pack").unlink()
    messages = refusals(wine, opener, plain, pinned, other, renamed)
    for message, name, words in zip(
        messages,
        ("plain.pack", "pin.pack", "other.pack", "renamed.dll"),
        (
            "the tensors have other names, types or shapes than expected",
            f"not the file that the library was made with: {len(sidecar) - 1} bytes, not {len(sidecar)}",
            "the pack is longer than the memory that was given",
            "its payloads are in another file, which is not there: ",
        ),
        strict=True,
    ):
        assert f"{name}: {words}" in message
    assert messages[3].endswith("\\renamed.pack")


def test_another_file_at_the_path_of_a_loaded_library(wine: Wine, tmp_path: Path) -> None:
    """Windows gives the library that it loaded from that path before, whatever is there now."""
    program = compile_and_link([mingw("x86_64")], tmp_path / "replaced.exe", "replaced.c", *STRICT)
    write(tmp_path / "one.dll", "one", 1)
    write(tmp_path / "two.dll", "two", 2)
    assert wine.prints(program, "./one.dll", "./two.dll", cwd=tmp_path) == [
        "refused: ./one.dll: another file was loaded than the one that was checked",
        "one 1",
        "two 2",
    ]
