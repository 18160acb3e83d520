"""Outputs that are locked, mapped, running or immutable: replaced where the system lets us, else refused in words."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from emitter import Package, emit, load
from emitter.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TARGET = "x86_64-linux-gnu"


def package(value: int) -> Package:
    made = Package()
    made.add_raw("w", bytes([value]) * 100000)
    return made


def test_a_mapped_library_is_replaced_and_its_user_keeps_the_old_bytes(tmp_path: Path) -> None:
    path = tmp_path / "libw.so"
    for sidecar in (False, True):
        emit(package(1), path, target=TARGET, sidecar=sidecar)
        with load(path) as library:
            old = library["w"]
            emit(package(2), path, target=TARGET, sidecar=sidecar)
            assert set(old.tolist()) == {1}
        with load(path) as library:
            assert set(library["w"].tolist()) == {2}


def test_a_running_program_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "libw.so"
    cat = shutil.which("cat")
    if cat is None or not sys.platform.startswith("linux"):
        pytest.skip("cat is not installed, or the system keeps running programs from being replaced")
    shutil.copy(cat, path)
    with subprocess.Popen([path], stdin=subprocess.PIPE) as process:
        with pytest.raises(OSError, match="busy"):
            path.open("r+b").close()  # what overwriting would meet
        emit(package(1), path, target=TARGET)
        assert process.poll() is None
        process.communicate()
        assert process.returncode == 0
    with load(path) as library:
        library.check()


@pytest.fixture
def immutable(tmp_path: Path) -> Iterator[Path]:
    """Give a folder; what the test makes immutable in it can be removed again."""
    folder = tmp_path / "folder"
    folder.mkdir()
    yield folder
    subprocess.run(["chattr", "-R", "-i", folder], check=False, capture_output=True)


def set_immutable(path: Path) -> None:
    if shutil.which("chattr") is None:
        pytest.skip("chattr is not installed")
    if subprocess.run(["chattr", "+i", path], check=False, capture_output=True).returncode:
        pytest.skip("chattr +i needs root, and a file system that has it")


@pytest.mark.parametrize("held", ["libw.so", "libw.pack", "map.json", "."])
def test_an_immutable_file_or_folder(held: str, immutable: Path) -> None:
    emit(package(1), immutable / "libw.so", target=TARGET, sidecar=True, map=immutable / "map.json")
    old = {path.name: path.read_bytes() for path in immutable.iterdir()}
    set_immutable(immutable / held)
    with pytest.raises(OutputError, match="the system permits no change there") as caught:
        emit(package(2), immutable / "libw.so", target=TARGET, sidecar=True, map=immutable / "map.json")
    assert caught.value.where == str(immutable / (held if held != "." else "libw.pack"))
    assert "immutable" in str(caught.value.hint)
    assert {path.name for path in immutable.iterdir()} == set(old)  # no debris
    # Nothing of the pair has changed, unless it is the sidecar alone that cannot.
    for name in ("libw.so", "libw.pack") if held != "libw.pack" else ("libw.pack",):
        assert (immutable / name).read_bytes() == old[name]


def test_a_mount_point(tmp_path: Path) -> None:
    path = tmp_path / "libw.so"
    path.write_bytes(b"old")
    (tmp_path / "other").write_bytes(b"other")
    if subprocess.run(["mount", "--bind", tmp_path / "other", path], check=False, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        with pytest.raises(OutputError, match="in use by the system") as caught:
            emit(package(1), path, target=TARGET)
        assert caught.value.where == str(path)
        assert path.read_bytes() == b"other"
    finally:
        subprocess.run(["umount", path], check=True)
    assert sorted(os.listdir(tmp_path)) == ["libw.so", "other"]


@pytest.mark.parametrize(
    ("winerror", "what"),
    [
        (5, "access is denied"),
        (32, "open or loaded in another program"),
        (33, "open or loaded in another program"),
        (1224, "open or loaded in another program"),
        (112, "no permission to write there"),  # any other: what errno says
    ],
)
def test_what_windows_says_of_a_file_in_use(
    winerror: int, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "libw.so"
    path.write_bytes(b"old")

    def refuse(*_arguments: object) -> None:
        error = PermissionError(errno.EACCES, "denied")
        error.winerror = winerror  # type: ignore[attr-defined] # which only Windows gives
        raise error

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OutputError, match=what) as caught:
        emit(package(1), path, target=TARGET)
    assert caught.value.where == str(path)
    assert caught.value.hint
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["libw.so"]


def test_running_programs_in_the_way_of_a_system_that_minds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError(errno.ETXTBSY, os.strerror(errno.ETXTBSY))

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OutputError, match="in use by a running program; end it, or write under another name"):
        emit(package(1), tmp_path / "libw.so", target=TARGET)
    assert os.listdir(tmp_path) == []


def test_a_lock_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "libw.so"
    path.write_bytes(b"old")
    import fcntl

    with path.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        mapped = mmap.mmap(file.fileno(), 0)
        emit(package(1), path, target=TARGET)
        assert mapped[:] == b"old"
        mapped.close()
    with load(path) as library:
        library.check()
