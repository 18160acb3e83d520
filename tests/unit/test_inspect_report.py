"""The neutral report of ELF files: identity, protections, what the loader maps, and what is said of broken files."""

from __future__ import annotations

import re
import struct
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import emitter
from cross.table import TOOLCHAINS
from emitter.inspect import open_file, recognise, view
from emitter.inspect.command import report_text
from emitter.inspect.report import Report, page_range
from emitter.inspect.view import View
from emitter.package import Package
from emitter.reading import pread
from tests.elf_objects import run

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = "static int t[4]; int *p = t; int f(void) { return *p; } int main(void) { return f(); }"

# Name, compiler flags, and what must be said. Flags are spelled out: distributions have defaults of their own.
VARIANTS: dict[str, tuple[list[str], dict[str, object]]] = {
    "library": (["-shared", "-fPIC", "-Wl,-z,relro,-z,lazy"], {"relro": "partial", "bind_now": False, "pie": None}),
    "now": (["-shared", "-fPIC", "-Wl,-z,relro,-z,now"], {"relro": "full", "bind_now": True}),
    "no relro": (["-shared", "-fPIC", "-Wl,-z,norelro"], {"relro": False}),
    "executable stack": (["-shared", "-fPIC", "-Wl,-z,execstack"], {"nx_stack": False}),
    "pie": (["-pie", "-fPIE"], {"pie": True, "text_relocations": False}),
    "no pie": (["-no-pie", "-fno-pie"], {"pie": False}),
    "static pie": (["-static-pie", "-fPIE"], {"pie": True}),
    "text relocations": (
        ["-shared", "-fno-pic", "-mcmodel=large", "-Wl,-z,notext"],
        {"text_relocations": True},
    ),
    "writable code": (["-shared", "-fPIC", "-nostdlib", "-Wl,-N"], {"writable_and_executable": True}),
    "cet": (["-c", "-fcf-protection=full"], {"ibt": True, "shstk": True, "nx_stack": True}),
    "no cet": (["-c", "-fcf-protection=none"], {"ibt": False, "shstk": False}),
    "object without a stack note": (["-c", "-Wa,--noexecstack", "-x", "assembler"], {"nx_stack": True}),
}


def _report(path: Path) -> Report:
    with open_file(path) as artefact:
        assert artefact.reader is not None
        return artefact.reader.report()


@pytest.mark.parametrize("variant", VARIANTS)
def test_protections_are_those_that_were_asked_for(variant: str, tmp_path: Path) -> None:
    flags, expected = VARIANTS[variant]
    source = tmp_path / "a.c"
    source.write_text("" if "assembler" in flags else PROGRAM)
    run("gcc", *flags, str(source), "-o", str(tmp_path / "out"))
    found = {entry.name: entry.value for entry in _report(tmp_path / "out").hardening}
    assert {name: found[name] for name in expected} == expected


def test_a_stack_of_which_nothing_is_said_is_missing(tmp_path: Path) -> None:
    (tmp_path / "a.s").write_text("nop\n")
    run("as", str(tmp_path / "a.s"), "-o", str(tmp_path / "a.o"))
    assert {entry.name: entry.value for entry in _report(tmp_path / "a.o").hardening}["nx_stack"] == "missing"


@pytest.mark.parametrize("tags", ["--enable", "--disable"])
def test_search_paths_are_shown(tags: str, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text(PROGRAM)
    flags = f"-Wl,{tags}-new-dtags,-rpath,/opt/x:$ORIGIN"
    run("gcc", flags, str(tmp_path / "a.c"), "-o", str(tmp_path / "a"))
    assert _report(tmp_path / "a").identity.search_path == ("/opt/x:$ORIGIN",)


# What the compilers of cross/table.py make: (ABI, byte order, pointer width) by the first part of the triple.
ABIS = {
    "aarch64": ("", "little", 64),
    "x86_64": ("", "little", 64),
    "i686": ("", "little", 32),
    "armv7": ("hard float", "little", 32),
    "riscv64": (r"lp64d, rv64i.*d2p\d.*", "little", 64),
    "powerpc64le": ("ELFv2", "little", 64),
    "s390x": ("", "big", 64),
    "loongarch64": ("lp64d", "little", 64),
}


@pytest.mark.parametrize("toolchain", TOOLCHAINS, ids=lambda toolchain: str(toolchain.name))
def test_identity_is_that_of_the_compiler(toolchain: object, tmp_path: Path) -> None:
    name, compiler = toolchain.name, toolchain.c  # type: ignore[attr-defined] # a Toolchain
    (tmp_path / "a.c").write_text(PROGRAM)
    run(compiler, "-O1", str(tmp_path / "a.c"), "-o", str(tmp_path / "a"))
    report = _report(tmp_path / "a")
    header = run("readelf", "-hW", str(tmp_path / "a")).stdout
    abi, byte_order, width = ABIS[name.partition("-")[0]]
    assert (report.identity.byte_order, report.identity.pointer_width) == (byte_order, width)
    assert re.fullmatch(abi, report.identity.abi)
    assert report.identity.flags == int(re.search(r"Flags: +0x([0-9a-f]+)", header)[1], 16)  # type: ignore[index] # it has
    assert report.identity.machine.split()[-1].lower() in header.lower().replace("advanced micro devices ", "")
    assert report.identity.kind in ("executable", "position-independent executable")
    assert not report.faults
    if "musl" not in name:
        assert (report.identity.os, report.identity.os_version[:1].isdigit()) == ("Linux", True)
        assert report.dependencies[0].name.startswith("libc.so")
        assert any(version.startswith("GLIBC_2.") for version in report.dependencies[0].versions)


@pytest.mark.parametrize("page_size", [4096, 16384, 65536])
def test_segments_are_mapped_as_the_system_maps_them(page_size: int, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text(PROGRAM)
    run("gcc", "-pie", "-fPIE", f"-Wl,-z,max-page-size={page_size}", str(tmp_path / "a.c"), "-o", str(tmp_path / "a"))
    with open_file(tmp_path / "a") as artefact:
        assert artefact.reader is not None
        segments = [segment for segment in artefact.reader.report(page_size).segments if segment.loaded]
    headers = re.findall(
        r"LOAD +\S+ 0x(\S+) \S+ \S+ 0x(\S+) ([R ][W ][E ])", run("readelf", "-lW", str(tmp_path / "a")).stdout
    )
    assert len(segments) == len(headers) > 1
    for segment, (address, size, flags) in zip(segments, headers, strict=True):
        assert segment.mapped_start == int(address, 16) // page_size * page_size
        assert segment.mapped_end == -(-(int(address, 16) + int(size, 16)) // page_size) * page_size
        assert segment.protection == flags.lower().replace("e", "x").replace(" ", "-")
    assert all(one.mapped_end <= two.mapped_start for one, two in pairwise(segments))


@given(
    address=st.integers(0, 1 << 48),
    size=st.integers(0, 1 << 32),
    page_size=st.sampled_from([1, 4096, 16384, 65536]),
)
def test_a_page_range_holds_what_it_is_of(address: int, size: int, page_size: int) -> None:
    start, end = page_range(address, size, page_size)
    if not size:
        assert (start, end) == (0, 0)
    else:
        assert start % page_size == end % page_size == 0
        assert start <= address < start + page_size
        assert end - page_size < address + size <= end


# Packs


@pytest.mark.parametrize("suffix", [".so", ".o", ".a", ".pack"])
def test_tensors_are_found_with_offsets_and_symbols(suffix: str, tmp_path: Path) -> None:
    package = Package(metadata={"key": "value"}, model_version="7")
    contents = {"a.weight": b"\1" * 300, "a.twin": b"\1" * 300, "b": b"two" * 50}
    for name, data in contents.items():
        package.add_raw(name, data)
    path = tmp_path / f"libm{suffix}"
    options = {} if suffix == ".pack" else {"tensor_symbols": True, "target": "riscv64-linux-gnu"}
    emitter.emit(package, path, **options)  # type: ignore[arg-type] # one of them is a bool
    whole = path.read_bytes()
    with open_file(path) as artefact:
        (member,) = artefact.objects()
        assert member.reader is not None
        (pack,) = member.reader.report().packs
        tensors = {tensor.name: tensor for tensor in pack.tensors()}
    assert (pack.metadata, pack.model_version, pack.tensor_count) == ({"key": "value"}, "7", 3)
    for name, data in contents.items():
        tensor = tensors[name]
        start = member.view.base + tensor.offset
        assert whole[start : start + tensor.nbytes] == data
        assert tensor.symbol == ("" if suffix == ".pack" else f"m_t_{name.replace('.', '_')}")
    assert pack.symbol == ("" if suffix == ".pack" else "m")
    assert tensors["a.weight"].offset == tensors["a.twin"].offset


@pytest.mark.parametrize("suffix", [".so", ".o", ".a", ".pack"])
def test_a_gigabyte_is_not_read(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(1 << 30)
    package = Package()
    package.add_input(f"raw:{tmp_path / 'w.bin'}")
    path = tmp_path / f"libw{suffix}"
    emitter.emit(package, path, **({} if suffix == ".pack" else {"target": "aarch64-linux-gnu"}))  # type: ignore[arg-type] # a str
    read = []

    def counted(fd: int, length: int, offset: int) -> bytes:
        read.append(length)
        return pread(fd, length, offset)

    monkeypatch.setattr(view, "pread", counted)
    with open_file(path) as artefact:
        lines = list(report_text(artefact))
    assert any("tensors      1" in line for line in lines)
    assert sum(read) < 1 << 20


# Broken files


def _library(tmp_path: Path) -> bytes:
    package = Package()
    package.add_raw("w", bytes(5000))
    emitter.emit(package, tmp_path / "libw.so", target="x86_64-linux-gnu")
    return (tmp_path / "libw.so").read_bytes()


def _faults(data: bytes) -> tuple[Report, dict[str, str]]:
    reader = recognise(View.of_bytes(data, "broken.so")).reader
    assert reader is not None
    report = reader.report()
    return report, {fault.part: str(fault.error) for fault in report.faults}


def test_a_truncated_library_still_shows_its_segments(tmp_path: Path) -> None:
    data = _library(tmp_path)
    report, faults = _faults(data[:3000])
    assert report.identity.machine == "x86-64"
    assert len(report.segments) == 9
    assert {"segments", "sections", "notes"} <= set(faults)
    assert "segment 0 (PT_LOAD) at offset 0x0 does not fit into the file" in "".join(
        str(fault.error) for fault in report.faults
    )
    # Each is said once.
    texts = [str(fault.error) for fault in report.faults]
    assert len(texts) == len(set(texts))


@pytest.mark.parametrize(
    ("place", "value", "part"),
    [
        (40, struct.pack("<Q", 1 << 40), "sections"),
        (32, struct.pack("<Q", 1 << 40), "segments"),
        (58, struct.pack("<H", 63), "sections"),
        (54, struct.pack("<H", 55), "segments"),
        (40, bytes(8), "sections"),
        (32, bytes(8), "segments"),
        (62, struct.pack("<H", 5), None),
        (62, struct.pack("<H", 60000), None),
    ],
)
def test_one_broken_part_leaves_the_others(place: int, value: bytes, part: str | None, tmp_path: Path) -> None:
    data = bytearray(_library(tmp_path))
    data[place : place + len(value)] = value
    report, faults = _faults(bytes(data))
    if part is not None:
        assert part in faults
        assert (len(report.sections) > 0) == (part != "sections")
        assert (len(report.segments) > 0) == (part != "segments")
    assert report.identity.machine == "x86-64"
    if part == "sections":
        # The dynamic section and the notes lead on.
        assert {symbol.name for symbol in report.symbols()} >= {"w", "emitter_pack", "w_size"}
        assert len(report.packs) == 1
