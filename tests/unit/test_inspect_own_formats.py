"""What the emitter writes as Mach-O, PE and COFF, read by the readers of foreign files: packs, symbols, members."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy
import pytest

from emitter.cli import main
from emitter.inspect import open_file
from emitter.inspect.archive import ArchiveFile
from emitter.inspect.macho import MachOFile
from emitter.inspect.macho_signature import verify_signature
from emitter.inspect.pe import PeFile
from emitter.loaders import load

if TYPE_CHECKING:
    from pathlib import Path

# (target, file, what a C name begins with in it)
OUTPUTS = (
    ("arm64-apple-macos", "x.dylib", "_"),
    ("arm64-apple-macos", "x.o", "_"),
    ("arm64-apple-macos", "x.a", "_"),
    ("x86_64-apple-macos", "x.dylib", "_"),
    ("x86_64-windows-msvc", "x.dll", ""),
    ("x86_64-windows-msvc", "x.obj", ""),
    ("x86_64-windows-msvc", "x.lib", ""),
    ("aarch64-windows-msvc", "x.dll", ""),
)


def _emit(folder: Path, target: str, name: str) -> str:
    numpy.savez(folder / "w.npz", first=numpy.arange(6.0).reshape(2, 3), second=numpy.arange(100, dtype=numpy.int16))
    path = str(folder / name)
    arguments = ["--target", target, "--tensor-symbols", "--name", "model", str(folder / "w.npz"), "-o", path]
    assert main(arguments) == 0
    return path


@pytest.mark.parametrize(("target", "name", "prefix"), OUTPUTS)
def test_packs_are_found_with_their_symbols(target: str, name: str, prefix: str, tmp_path: Path) -> None:
    path = _emit(tmp_path, target, name)
    with open_file(path) as artefact, load(path) as library:
        reports = [one.reader.report() for one in artefact.objects() if one.reader]
        (report,) = (one for one in reports if one.packs)
        assert not report.faults
        (pack,), (loaded,) = report.packs, library.packs
        assert (report.base + pack.offset, pack.size) == (loaded.file_offset, loaded.size)
        assert pack.symbol == f"{prefix}model"
        tensors = {one.name: one for one in pack.tensors()}
        assert {one.symbol for one in tensors.values()} == {f"{prefix}model_t_first", f"{prefix}model_t_second"}
        assert tensors["first"].shape == (2, 3)
        with open(path, "rb") as file:
            file.seek(report.base + tensors["second"].offset)
            assert numpy.frombuffer(file.read(200), "<i2").tolist() == list(range(100))


@pytest.mark.parametrize("target", ["arm64-apple-macos", "x86_64-apple-macos"])
def test_our_signatures_are_right(target: str, tmp_path: Path) -> None:
    with open_file(_emit(tmp_path, target, "x.dylib")) as artefact:
        assert isinstance(artefact.reader, MachOFile)
        assert verify_signature(artefact.reader) == []
        names = {one.name for one in artefact.reader.exports()}
        assert names >= {"_model", "_model_size", "_emitter_pack", "_model_t_first"}


def test_symbols_within_a_pack_do_not_let_a_linker_cut_it(tmp_path: Path) -> None:
    with open_file(_emit(tmp_path, "arm64-apple-macos", "x.o")) as artefact:
        reader = artefact.reader
        assert isinstance(reader, MachOFile)
        section = next(one for one in reader.sections if one.sectname == "__emitter")
        inside = [one for one in reader.symbols() if section.addr < one.n_value < section.addr + section.size]
        assert len(inside) == 2
        assert not list(reader.interior_symbols(section.addr, section.addr + section.size))


@pytest.mark.parametrize(("target", "name"), [("arm64-apple-macos", "x.a"), ("x86_64-windows-msvc", "x.lib")])
def test_indexes_of_our_archives_are_right(target: str, name: str, tmp_path: Path) -> None:
    with open_file(_emit(tmp_path, target, name)) as artefact:
        assert isinstance(artefact.reader, ArchiveFile)
        assert artefact.reader.variant == ("bsd" if "apple" in target else "coff")
        assert [str(one) for one in artefact.reader.index_faults()] == []
        assert list(artefact.reader.index())


def test_our_dll_says_nothing_of_the_time(tmp_path: Path) -> None:
    with open_file(_emit(tmp_path, "x86_64-windows-msvc", "x.dll")) as artefact:
        reader = artefact.reader
        assert isinstance(reader, PeFile)
        assert (reader.header.TimeDateStamp, reader.optional.CheckSum) == (0, 0)
        assert reader.codeview is None
        directory = reader.export_directory
        assert directory is not None
        assert (directory.name, directory.TimeDateStamp) == ("x.dll", 0)
