"""What is installed: one top-level name, all that is needed at run time, and a loader that numpy alone satisfies."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from tests.support import build_pack

if TYPE_CHECKING:
    from pathlib import Path

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def _build(what: str, source: str, destination: str) -> str:
    """Build with the setuptools that is installed, so that no package index is needed; return the file's path."""
    if find_spec("build") is None:
        pytest.skip("build is not installed")
    command = [sys.executable, "-m", "build", f"--{what}", "--no-isolation", "--outdir", destination, source]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=destination)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (os.path.join(destination, name) for name in os.listdir(destination))
    return path


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a copy of the tree: building leaves files behind, which a later build would pick up."""
    copy = str(tmp_path_factory.mktemp("copy") / "tree")
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__"))
    return copy


@pytest.fixture(scope="module")
def wheel(tree: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    return _build("wheel", tree, str(tmp_path_factory.mktemp("wheel")))


def _content(wheel: str) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}


def _sources() -> set[str]:
    """Return the files that a wheel must hold, by the tree's own folders."""
    found = set()
    for folder, package in (("emitter", "emitter"), ("targets", "emitter/targets"), ("loaders", "emitter/loaders")):
        for directory, _, files in os.walk(os.path.join(ROOT, folder)):
            inside = os.path.relpath(directory, os.path.join(ROOT, folder))
            found |= {
                os.path.normpath(os.path.join(package, inside, name)) for name in files if not name.endswith(".pyc")
            }
    return found


def test_a_wheel_has_one_top_level_name(wheel: str) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"emitter"}
    assert len(tops) == 2


def test_a_wheel_holds_every_file_of_its_folders(wheel: str) -> None:
    content = _content(wheel)
    assert set(content) == _sources()
    assert {"emitter/py.typed", "emitter/loaders/c/emitter.h", "emitter/targets/stubs/x86_64-linux-gnu.o"} <= set(
        content
    )


def test_a_wheel_names_its_licences_and_its_command(wheel: str) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name.partition(".dist-info/")[2] for name in archive.namelist()}
        (entry_points,) = (
            archive.read(name).decode() for name in archive.namelist() if name.endswith("entry_points.txt")
        )
    assert {"licenses/LICENSE", "licenses/LICENSE-0BSD"} <= names
    assert "emitter = emitter.__main__:main" in entry_points


def test_a_source_distribution_builds_the_same_wheel(wheel: str, tree: str, tmp_path: Path) -> None:
    (tmp_path / "sdist").mkdir()
    (tmp_path / "wheel").mkdir()
    archive = _build("sdist", tree, str(tmp_path / "sdist"))
    shutil.unpack_archive(archive, tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    assert _content(_build("wheel", str(source), str(tmp_path / "wheel"))) == _content(wheel)


_LOAD = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"llvmlite", "lief", "elftools", "google_crc32c", "ml_dtypes", "setuptools"}:
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocker())
import emitter
with emitter.load(sys.argv[1]) as library:
    print(library["scale"].tolist())
assert emitter.__file__.startswith(sys.argv[2]), emitter.__file__
"""


def test_the_installed_loader_needs_numpy_alone(wheel: str, tmp_path: Path) -> None:
    import numpy as np

    from emitter.package import Package

    package = Package()
    package.add_tensor("scale", np.array([1.5, -2.0], np.float32))
    (tmp_path / "x.pack").write_bytes(build_pack(package))
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    # numpy's folder comes second and holds the other packages too: the program blocks them.
    packages = os.path.dirname(os.path.dirname(np.__file__))
    paths = f"import sys; sys.path[:0] = [{str(installed)!r}, {packages!r}]\n"
    command = [sys.executable, "-I", "-S", "-c", paths + _LOAD, str(tmp_path / "x.pack"), str(installed)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[1.5, -2.0]\n"
