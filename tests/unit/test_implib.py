"""Import libraries: member for member those of llvm-dlltool; names that Windows finds, and no static archive has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emitter import Package, emit
from emitter.errors import LayoutError, UsageError
from emitter.splice.implib import import_library
from emitter.targets import load
from tests.coff_files import every_target
from tests.elf_objects import run
from tests.unit.test_archive_coff import Parsed

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ["model", "model_size", "emitter_pack", "_underscored", "model_t_conv1_weight"]
MACHINES = {"x86_64": "i386:x86-64", "aarch64": "arm64", "i686": "i386"}


def members(archive: bytes) -> list[tuple[bytes, bytes]]:
    """Return (name, content) of the members, without the indexes; of any archive."""
    found = []
    position = 8
    while position < len(archive):
        size = int(archive[position + 48 : position + 58])
        found.append((archive[position : position + 16].rstrip(), archive[position + 60 : position + 60 + size]))
        position += 60 + size + size % 2
    return [member for member in found if member[0] != b"/"]


@every_target
def test_llvm_dlltool_makes_the_same_members(name: str, tmp_path: Path) -> None:
    definition = "".join(f"{one} DATA\n" for one in NAMES)
    (tmp_path / "model.def").write_text(f"LIBRARY model.dll\nEXPORTS\n{definition}")
    machine = MACHINES[name.partition("-")[0]]
    run("llvm-dlltool", "-m", machine, "-d", "model.def", "-l", "theirs.lib", cwd=tmp_path)
    ours = import_library(load(name), "model.dll", NAMES)
    assert sorted(members(ours)) == sorted(members((tmp_path / "theirs.lib").read_bytes()))


@every_target
def test_both_indexes_have_every_import(name: str, tmp_path: Path) -> None:
    target = load(name)
    path = tmp_path / "model.dll.lib"
    path.write_bytes(import_library(target, "model.dll", NAMES))
    parsed = Parsed(path.read_bytes())
    expected = [f"__imp_{target.symbol_prefix}{one}".encode() for one in NAMES]
    expected += [b"__IMPORT_DESCRIPTOR_model", b"__NULL_IMPORT_DESCRIPTOR", b"\x7fmodel_NULL_THUNK_DATA"]
    assert [symbol for symbol, _ in parsed.second] == sorted(expected)
    assert sorted(parsed.first) == parsed.second
    done = run("llvm-readobj", "--file-headers", str(path))
    assert done.stderr == ""
    assert done.stdout.count("Type: data") == len(NAMES)
    # On 32-bit x86 the DLL's names are those of C: without the underscore, whatever they begin with.
    assert done.stdout.count("Name type: " + ("noprefix" if target.symbol_prefix else "name")) == len(NAMES)


@every_target
@pytest.mark.parametrize(
    "name_of_dll", ["model", "m\N{LATIN SMALL LETTER O WITH DIAERESIS}del.dll", "a\\b.dll", "a?.dll"]
)
def test_dll_that_windows_would_not_find_is_refused(name: str, name_of_dll: str) -> None:
    with pytest.raises(LayoutError, match=r"could not find the DLL by its name.*NAME\.dll"):
        import_library(load(name), name_of_dll, NAMES)


def test_too_many_imports_are_refused() -> None:
    with pytest.raises(
        LayoutError, match="too many symbols for an import library: expected at most 65532, found 65533"
    ):
        import_library(load("x86_64-windows-msvc"), "model.dll", [f"s{number}" for number in range(65533)])


@pytest.mark.parametrize(
    ("target", "dll", "implib", "proposed"),
    [
        ("x86_64-windows-msvc", "model.dll", "model.lib", "model.dll.lib"),
        ("x86_64-windows-msvc", "model.dll", "lib/MODEL.LIB", "model.dll.lib"),
        ("aarch64-windows-msvc", "libmodel.dll", "model.lib", "libmodel.dll.lib"),
        ("x86_64-windows-gnu", "libmodel.dll", "libmodel.a", "libmodel.dll.a"),
        ("i686-windows-gnu", "model.dll", "libmodel.a", "model.dll.a"),
        ("i686-windows-gnu", "model.dll", "model.lib", "model.dll.a"),
    ],
)
def test_name_of_the_static_archive_is_refused(
    target: str, dll: str, implib: str, proposed: str, tmp_path: Path
) -> None:
    package = Package()
    package.add_raw("w", b"abc")
    (tmp_path / "lib").mkdir()
    with pytest.raises(UsageError, match="name of a static archive") as caught:
        emit(package, tmp_path / dll, target=target, implib=str(tmp_path / implib))
    assert caught.value.expected == f"a name such as {proposed}"
    assert not (tmp_path / dll).exists()
    emit(package, tmp_path / dll, target=target, implib=str(tmp_path / proposed))
    assert (tmp_path / proposed).read_bytes() == import_library(
        load(target), dll, [*(symbol := [dll[:-4].removeprefix("lib")]), f"{symbol[0]}_size", "emitter_pack"]
    )


def test_import_library_belongs_to_a_dll(tmp_path: Path) -> None:
    package = Package()
    package.add_raw("w", b"abc")
    for target, output in (("x86_64-windows-msvc", "m.lib"), ("x86_64-linux-gnu", "m.so")):
        with pytest.raises(UsageError, match="--implib means nothing"):
            emit(package, tmp_path / output, target=target, implib=str(tmp_path / "m.dll.lib"))


@pytest.mark.parametrize("suffix", [".obj", ".lib", ".dll", ".o", ".a"])
def test_mingw_takes_both_families_of_suffixes(suffix: str, tmp_path: Path) -> None:
    package = Package()
    package.add_raw("w", b"abc")
    [artefact] = emit(package, tmp_path / f"m{suffix}", target="x86_64-windows-gnu")
    expected = {".obj": "object", ".o": "object", ".lib": "archive", ".a": "archive", ".dll": "library"}
    assert artefact.format == expected[suffix]


@pytest.mark.parametrize(
    ("target", "suffix", "proposed"),
    [("x86_64-windows-gnu", ".dll.a", ".a"), ("x86_64-windows-msvc", ".dll.lib", ".lib")],
)
def test_static_archive_with_the_name_of_an_import_library_is_refused(
    target: str, suffix: str, proposed: str, tmp_path: Path
) -> None:
    package = Package()
    package.add_raw("w", b"abc")
    with pytest.raises(UsageError, match="suffix is that of an import library") as caught:
        emit(package, tmp_path / f"libm{suffix}", target=target)
    assert caught.value.expected == f"a name such as libm{proposed}"
