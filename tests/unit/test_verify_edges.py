"""Rules at the edges of what they allow."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from elftools.elf.elffile import ELFFile

from emitter import Package, emit
from emitter.errors import UsageError
from emitter.verify import verify
from emitter.verify.identify import promises
from emitter.verify.rules.abi import parse_isa
from emitter.verify.rules.dependencies import version_of
from emitter.verify.settings import parse_size
from tests.verify_files import command, ehdr, phdr, put

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def library(tmp_path: Path) -> bytes:
    package = Package()
    package.add_raw("w", bytes(1000))
    emit(package, tmp_path / "m.so", target="aarch64-linux-gnu")
    return (tmp_path / "m.so").read_bytes()


def rules(data: bytes, folder: Path, page_size: int | None = None) -> set[str]:
    (folder / "x.so").write_bytes(data)
    return {finding.rule for finding in verify(folder / "x.so", page_size=page_size, config="").findings}


@pytest.mark.parametrize("page", [4096, 16384, 65536])
@pytest.mark.parametrize("alignment", [1, 2048, 4096, 8192, 16384, 32768, 65536])
def test_a_segment_must_be_aligned_to_the_page(page: int, alignment: int, library: bytes, tmp_path: Path) -> None:
    found = rules(phdr(library, "PT_LOAD", None, p_align=alignment), tmp_path, page)
    assert ("elf-load-alignment" in found) == (alignment < page)


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_a_segment_may_end_where_the_file_ends(beyond: int, library: bytes, tmp_path: Path) -> None:
    last = [segment for segment in ELFFile(io.BytesIO(library)).iter_segments() if segment["p_type"] == "PT_LOAD"][-1]
    size = len(library) - last["p_offset"] + beyond
    changed = phdr(library, "PT_LOAD", -1, p_filesz=size, p_memsz=max(size, last["p_memsz"]))
    assert ("elf-segment-in-file" in rules(changed, tmp_path)) == (beyond > 0)


@pytest.mark.parametrize(
    ("text", "extensions"),
    [
        ("rv64i", {"i"}),
        ("rv64i2p1_m2p0_zicsr2p0", {"i", "m", "zicsr"}),
        ("rv64imafdc", {"i", "m", "a", "f", "d", "c"}),
        ("rv32e1p9", {"e"}),
        ("rv64gc", {"i", "m", "a", "f", "d", "c", "zicsr", "zifencei"}),
        ("RV64I2P1_ZVE32F1P0_ZVL128B1P0", {"i", "zve32f", "zvl128b"}),
        ("rv64i2p0_xtheadba1p0_svinval1p0", {"i", "xtheadba", "svinval"}),
    ],
)
def test_isa_strings(text: str, extensions: set[str]) -> None:
    assert parse_isa(text) == extensions


@pytest.mark.parametrize(("target", "found"), [("arm64-apple-macos", True), ("x86_64-apple-macos", False)])
def test_old_libraries_of_intel_macs_have_no_export_trie(target: str, found: bool, tmp_path: Path) -> None:
    package = Package()
    package.add_raw("w", bytes(100))
    emit(package, tmp_path / "m.dylib", target=target)
    data = (tmp_path / "m.dylib").read_bytes()
    data = put(data, command(data, 0x80000022), "I", 0x2E)  # LC_DYLD_INFO_ONLY becomes a linker's hint
    (tmp_path / "m.dylib").write_bytes(data)
    result = verify(tmp_path / "m.dylib", config="")
    assert any(one.rule == "macho-exports" for one in result.findings) == found


@pytest.mark.parametrize(("machine", "executable"), [(62, True), (8, False), (15, False)])
def test_stacks_of_mips_and_pa_risc_are_executable(
    machine: int, executable: bool, library: bytes, tmp_path: Path
) -> None:
    data = ehdr(phdr(library, "PT_GNU_STACK", 0, p_flags=7), e_machine=machine)
    (tmp_path / "x.so").write_bytes(data)
    result = verify(tmp_path / "x.so", config="")
    assert any(one.rule == "elf-gnu-stack-executable" for one in result.findings) == executable
    known = machine == 62
    assert any("no target of this version describes the machine" in note for note in result.notes) != known


@pytest.mark.parametrize(
    ("name", "promised"),
    [
        ("libc.so.6", True),
        ("lib/libstdc++.so.6.0.30", True),
        ("libx.so", True),
        ("x.o", True),
        ("libstdc++.so.6.0.30-gdb.py", False),
        ("libc.so.6.gz", False),
        ("libx.so.", False),
        ("so", False),
    ],
)
def test_names_that_promise_an_artefact(name: str, promised: bool) -> None:
    assert promises(name) == promised


def test_versions_are_compared_by_numbers() -> None:
    assert version_of("2.9") < version_of("2.17") < version_of("2.17.1") < version_of("3")
    # Names in files are anything: digits that int does not know, and more of them than it takes.
    assert version_of("2.\u00b2") == (2,)
    assert version_of("2." + "9" * 5000) > version_of("2.40")


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("100K", 100 << 10), ("64MiB", 64 << 20), ("2g", 2 << 30), (4096, 4096), ("1TB", 1 << 40)],
)
def test_sizes(text: str | int, size: int) -> None:
    assert parse_size(text, "x") == size


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5M", "M", "1X", "9" * 30, "\u0661"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match="not a size"):
        parse_size(text, "x")
