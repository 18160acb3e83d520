"""The constants of AOTInductor: distances, section, symbols and byte order of the object."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

import emitter
from emitter.errors import UsageError
from emitter.inspect import open_file
from emitter.package import Package
from emitter.targets import load, names
from tests.elf_objects import section_of

if TYPE_CHECKING:
    from pathlib import Path

SIZES = (0, 1, 63, 64, 65, 200)


def package_of(sizes: tuple[int, ...]) -> Package:
    package = Package()
    for number, size in enumerate(sizes):
        package.add_raw(f"c{number}", bytes([number + 1]) * size)
    return package


def blob(sizes: tuple[int, ...]) -> bytes:
    return b"".join((bytes([number + 1]) * size).ljust(-(-size // 64) * 64, b"\0") for number, size in enumerate(sizes))


@pytest.mark.parametrize("target_name", list(names()))
def test_constants_stand_at_multiples_of_64(tmp_path: Path, target_name: str) -> None:
    target = load(target_name)
    path = tmp_path / f"x{target.object_suffix}"
    emitter.emit(package_of(SIZES), path, target=target_name, symbols="aoti")
    with open_file(path) as artefact:
        assert artefact.reader is not None
        report = artefact.reader.report()
        symbols = {one.name.removeprefix(target.symbol_prefix): one for one in report.symbols()}
        start, end = symbols["_binary_constants_bin_start"], symbols["_binary_constants_bin_end"]
        (section,) = (one for one in report.sections if one.number == start.section)
        assert end.section == start.section
        assert end.value - start.value == len(blob(SIZES))
        # In Mach-O a byte more keeps the end with what it ends.
        assert section.file_size - (target.object_format == "macho") == len(blob(SIZES))
        assert section.alignment >= 64
        assert artefact.view.read(section.offset, len(blob(SIZES)), "constants") == blob(SIZES)


def test_x86_64_has_large_data_as_the_original(tmp_path: Path) -> None:
    emitter.emit(package_of((1,)), tmp_path / "x.o", target="x86_64-linux-gnu", symbols="aoti")
    elf = ELFFile(BytesIO((tmp_path / "x.o").read_bytes()))
    section = section_of(elf, ".lrodata")
    assert section["sh_flags"] == 0x10000002  # SHF_X86_64_LARGE, SHF_ALLOC
    (symbol,) = section_of(elf, ".symtab").get_symbol_by_name("_binary_constants_bin_start")
    assert (symbol["st_info"]["bind"], symbol["st_info"]["type"]) == ("STB_GLOBAL", "STT_NOTYPE")


def test_elements_have_the_byte_order_of_the_target(tmp_path: Path) -> None:
    package = Package()
    package.add_tensor("a", np.array([1], "<u4"))
    emitter.emit(package, tmp_path / "x.o", target="s390x-linux-gnu", symbols="aoti")
    elf = ELFFile(BytesIO((tmp_path / "x.o").read_bytes()))
    assert section_of(elf, ".rodata").data() == b"\0\0\0\1".ljust(64, b"\0")


def test_an_alignment_of_a_tensor_counts_for_the_first_byte_alone(tmp_path: Path) -> None:
    package = Package()
    package.add_raw("a", b"a")
    package.add_raw("b", b"b", alignment=4096)
    emitter.emit(package, tmp_path / "x.o", target="aarch64-linux-gnu", symbols="aoti")
    section = section_of(ELFFile(BytesIO((tmp_path / "x.o").read_bytes())), ".rodata")
    assert section["sh_addralign"] == 4096
    assert section.data() == b"a".ljust(64, b"\0") + b"b".ljust(64, b"\0")


def test_what_has_no_place_is_refused(tmp_path: Path) -> None:
    package = package_of((1,))
    package.add_module("m", "cuda", b"x")
    with pytest.raises(UsageError, match="no place for modules"):
        emitter.emit(package, tmp_path / "x.o", target="x86_64-linux-gnu", symbols="aoti")
    with pytest.raises(UsageError, match="cannot be combined"):
        emitter.emit(package_of((1,)), tmp_path / "x.o", target="x86_64-linux-gnu", symbols="aoti", retain=True)
