"""Mach-O objects against LLVM's own for the same target, and against LLVM's readers."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import lief
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emitter.errors import LayoutError
from emitter.layout import Copy, bulk_alignment
from emitter.llvm import emit_object
from emitter.macho import packed_version
from emitter.model import ObjectModel, Reference, Section, Symbol, Window
from emitter.package import BufferSource, Extent
from emitter.splice.macho import plan_object
from emitter.targets import load
from tests.macho_files import TARGET_NAMES, MachO, emit, parse, run

if TYPE_CHECKING:
    from pathlib import Path

    from emitter.layout import FilePlan

PAYLOADS: dict[str, bytes | Path] = {"a": bytes(range(251)) * 9, "b": b"x" * 5000, "empty": b"", "z": b"last" * 16}
every_target = pytest.mark.parametrize("name", TARGET_NAMES)

N_PEXT, N_ALT_ENTRY, N_NO_DEAD_STRIP = 0x10, 0x200, 0x20
LC_SYMTAB, LC_DYSYMTAB, LC_SEGMENT_64, LC_BUILD_VERSION = 0x2, 0xB, 0x19, 0x32


def written(tmp_path: Path, target: str, **options: Any) -> MachO:
    emit(tmp_path / "model.o", PAYLOADS, target, **options)
    return parse((tmp_path / "model.o").read_bytes())


def llvm_object(target: str, *, total: int, offset: int, alignment: int) -> MachO:
    """Return what LLVM writes for the same symbols in the same sections."""
    ir = f"""
@model_size = hidden constant i64 {total}, section "__TEXT,__const", align 8
@model = hidden constant [{total} x i8] zeroinitializer, section "__TEXT,__emitter", align {alignment}
@model_t_a = hidden alias i8, getelementptr (i8, ptr @model, i64 {offset})
@llvm.used = appending global [1 x ptr] [ptr @model], section "llvm.metadata"
"""
    return parse(emit_object(load(target), ir))


@every_target
def test_header_commands_sections_and_symbols_are_llvms(name: str, tmp_path: Path) -> None:
    ours = written(tmp_path, name, retain=True, tensor_symbols=True)
    symbols = ours.symbols()
    section = ours.section("__TEXT,__emitter")
    base = symbols["_model"].n_value
    llvms = llvm_object(name, total=section[3], offset=symbols["_model_t_a"].n_value - base, alignment=64)

    # magic, cputype, cpusubtype, filetype, ncmds; flags, reserved
    assert (ours.header[:5], ours.header[6:]) == (llvms.header[:5], llvms.header[6:])
    assert [cmd for cmd, _ in ours.commands] == [cmd for cmd, _ in llvms.commands]
    assert [len(body) for cmd, body in ours.commands if cmd != LC_SEGMENT_64] == [24, 24, 80]
    cmdsize, platform, minos, sdk, ntools = struct.unpack_from("<5I", ours.command(LC_BUILD_VERSION), 4)
    assert (cmdsize, platform, minos, ntools) == tuple(
        struct.unpack_from("<5I", llvms.command(LC_BUILD_VERSION), 4)[at] for at in (0, 1, 2, 4)
    )
    assert sdk >= minos
    # LLVM leaves an empty __text in front, and symbols of its own.
    assert ours.segments[0][0] == llvms.segments[0][0] == ""
    assert ours.segments[0][5:7] == llvms.segments[0][5:7]  # maxprot, initprot
    for row in ours.sections:
        theirs = llvms.section(f"{row[1]},{row[0]}")
        assert (row[2:4], row[5:]) == (theirs[2:4], theirs[5:])  # all but the file offset
    for symbol in ("_model", "_model_size", "_model_t_a"):
        mine, other = symbols[symbol], llvms.symbols()[symbol]
        assert (mine.n_type, mine.n_desc, mine.n_value) == (other.n_type, other.n_desc, other.n_value)
        assert ours.sections[mine.n_sect - 1][:2] == llvms.sections[other.n_sect - 1][:2]
    order = [symbol for symbol in llvms.symbols() if symbol in symbols]
    assert [symbol for symbol in symbols if symbol in order] == order
    nlocal = llvms.command(LC_DYSYMTAB, "18I")[1]
    assert ours.command(LC_DYSYMTAB, "18I") == (0, 0, 0, len(symbols), len(symbols), *(0,) * 13)
    assert llvms.command(LC_DYSYMTAB, "18I") == (0, nlocal, nlocal, 3, nlocal + 3, *(0,) * 13)


@every_target
def test_readers_find_nothing_to_complain_of(name: str, tmp_path: Path) -> None:
    written(tmp_path, name, tensor_symbols=True)
    path = tmp_path / "model.o"
    run("llvm-readobj", "--file-headers", "--sections", "--symbols", "--macho-segment", "--macho-dysymtab", path)
    assert "__emitter" in run("llvm-objdump", "--private-headers", "--section-headers", "--syms", path)
    listed = run("llvm-nm", "-m", path)
    assert "(__TEXT,__emitter) private external _model\n" in listed
    assert "(__TEXT,__const) private external _model_size\n" in listed
    assert "(__TEXT,__emitter) private external [alt entry] _model_t_z\n" in listed
    binary = lief.parse(str(path))
    assert isinstance(binary, lief.MachO.Binary)
    assert [section.name for section in binary.sections] == ["__const", "__emitter"]
    assert {str(symbol.name) for symbol in binary.symbols} == set(parse(path.read_bytes()).symbols())


@every_target
def test_pack_and_size_are_where_their_symbols_say(name: str, tmp_path: Path) -> None:
    file = written(tmp_path, name, tensor_symbols=True)
    total = len(file.content("__TEXT,__emitter"))
    assert file.at("_model_size", 8) == total.to_bytes(8, "little")
    assert file.at("_model", 8) == file.content("__TEXT,__emitter")[:8]
    for tensor in ("a", "b", "z"):
        data = PAYLOADS[tensor]
        assert isinstance(data, bytes)
        assert file.at(f"_model_t_{tensor}", len(data)) == data


def test_only_the_pack_and_its_size_begin_atoms(tmp_path: Path) -> None:
    for symbol in written(tmp_path, "arm64-apple-macos", tensor_symbols=True).symbols().values():
        begins = symbol.name in {"_model", "_model_size"}
        assert bool(symbol.n_desc & N_ALT_ENTRY) == (not begins), symbol


def test_retain_and_visibility(tmp_path: Path) -> None:
    plain = written(tmp_path, "arm64-apple-macos", visibility="default").symbols()["_model"]
    kept = written(tmp_path, "arm64-apple-macos", retain=True).symbols()["_model"]
    assert (plain.n_type, plain.n_desc) == (0x0F, 0)
    assert (kept.n_type, kept.n_desc) == (0x0F | N_PEXT, N_NO_DEAD_STRIP)
    with pytest.raises(LayoutError) as caught:
        written(tmp_path, "arm64-apple-macos", visibility="protected")
    assert "no protected symbols" in str(caught.value) and "hidden" in str(caught.value)


@pytest.mark.parametrize("section", ["__TEXT,__sixteen_bytes_", "__DATA_CONST,__weights", "__TEXT,__weights"])
def test_section_names_of_the_user(section: str, tmp_path: Path) -> None:
    file = written(tmp_path, "x86_64-apple-macos", section=section, tensor_symbols=True)
    symbol = file.symbols()["_model"]
    row = file.sections[symbol.n_sect - 1]
    assert f"{row[1]},{row[0]}" == section
    assert symbol.n_value % 64 == 0
    listed = run("llvm-objdump", "--section-headers", tmp_path / "model.o")
    assert section.partition(",")[2] in listed


@pytest.mark.parametrize("alignment", [1, 16384, 1 << 15])
def test_alignment_is_kept(alignment: int, tmp_path: Path) -> None:
    file = written(tmp_path, "arm64-apple-macos", align=alignment, tensor_symbols=True)
    section = file.section("__TEXT,__emitter")
    assert section[2] % alignment == 0 and 1 << section[5] >= alignment
    assert file.symbols()["_model_t_b"].n_value % alignment == 0


def test_alignment_above_that_of_linkers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LayoutError) as caught:
        written(tmp_path, "arm64-apple-macos", align=1 << 16)
    assert "at most 32768" in str(caught.value) and "--align" in str(caught.value)
    assert not (tmp_path / "model.o").exists()


def source(size: int) -> Extent:
    return Extent(BufferSource("a hole", memoryview(b"")), 0, size)


def sized(size: int, *, alignment: int = 64, bulk_offset: int = 0, file_offset: int = 0, **more: Any) -> FilePlan:
    """Return the plan of an object with one section of `size` bytes that copies nothing that exists."""
    copy = Copy(bulk_offset, size - bulk_offset, source(size), 1, (size,), 8)
    section = Section("__TEXT,__emitter", "rodata", size, alignment, copies=(copy,), bulk_offset=bulk_offset)
    model = ObjectModel([section], [Symbol("model", 0, 0, size)], **more)
    return plan_object(load("arm64-apple-macos"), model, file_offset=file_offset)


def test_sizes_at_the_limit_of_32_bits() -> None:
    overhead = sized(1 << 31).size - (1 << 31)
    largest = 0xFFFFFFFF - overhead - 8
    assert sized(largest).size <= 0xFFFFFFFF
    for size in (0xFFFFFFFF, 1 << 32, 1 << 33):
        with pytest.raises(LayoutError) as caught:
            sized(size)
        assert "4294967295" in str(caught.value) and "--sidecar" in str(caught.value)


@settings(max_examples=200, deadline=None)
@given(
    size=st.sampled_from([1, 63, 64, 65, (1 << 20) - 1, 1 << 20, (64 << 20) + 1, 1 << 31]),
    alignment=st.sampled_from([1, 8, 64, 4096, 1 << 15]),
    bulk_offset=st.sampled_from([0, 64, 4096, 65536]),
    file_offset=st.integers(0, 1 << 20).map(lambda number: number * 8),
)
def test_payload_is_aligned_in_memory_and_in_the_output(
    size: int, alignment: int, bulk_offset: int, file_offset: int
) -> None:
    size += bulk_offset
    plan = sized(size, alignment=alignment, bulk_offset=bulk_offset, file_offset=file_offset)
    file = parse(plan.pieces[0].data)
    section = file.section("__TEXT,__emitter")
    assert section[2] % alignment == 0
    assert section[4] - section[2] == file.segments[0][3]  # offset - addr = fileoff
    if bulk_offset % alignment == 0:
        assert (file_offset + section[4] + bulk_offset) % bulk_alignment(size - bulk_offset) == 0
    assert plan.size % 8 == 0 and plan.size >= section[4] + size


def test_references_and_too_many_sections_are_refused() -> None:
    with pytest.raises(LayoutError):
        sized(64, references=[Reference(0, 0, 0)])
    with pytest.raises(LayoutError):
        sized(64, windows=[Window("w", 0, 0, 8, 8)])
    many = [Section(f"__TEXT,__s{number}", "rodata", 8, 8, data=bytes(8)) for number in range(256)]
    target = load("arm64-apple-macos")
    with pytest.raises(LayoutError, match="255"):
        plan_object(target, ObjectModel(many, []))
    assert len(parse(plan_object(target, ObjectModel(many[:255], [])).pieces[0].data).sections) == 255


def test_target_of_another_format_is_refused() -> None:
    with pytest.raises(LayoutError, match="not a target of Mach-O: expected macho, found elf"):
        plan_object(load("x86_64-linux-gnu"), ObjectModel([], []))


@pytest.mark.parametrize(
    ("version", "packed"),
    [("11", 0x000B0000), ("10.15", 0x000A0F00), ("13.4.1", 0x000D0401), ("65535.255.255", 0xFFFFFFFF)],
)
def test_versions_that_are_carried(version: str, packed: int) -> None:
    assert packed_version(version) == packed


@pytest.mark.parametrize("version", ["65536", "11.256", "11.0.256", "1.2.3.4", "", "11.", "x", "-1", "1_0"])
def test_versions_that_cannot_be_carried(version: str) -> None:
    target = load("arm64-apple-macos")
    assert target.macho is not None
    section = Section("__TEXT,__emitter", "rodata", 8, 8, data=bytes(8))
    other = target._replace(macho=target.macho._replace(minos=version))
    with pytest.raises(LayoutError, match=r"65535\.255\.255"):
        plan_object(other, ObjectModel([section], []))


def test_names_above_sixteen_bytes_are_refused() -> None:
    section = Section("__TEXT,__seventeen_bytes", "rodata", 8, 8, data=bytes(8))
    with pytest.raises(LayoutError, match="16 bytes"):
        plan_object(load("arm64-apple-macos"), ObjectModel([section], []))


@pytest.mark.parametrize(
    ("style", "section"), [("ld", "__DATA,__data"), ("xxd", "__DATA,__data"), ("incbin", "__TEXT,__const")]
)
def test_styles_keep_each_blob_with_its_symbols(style: Any, section: str, tmp_path: Path) -> None:
    blobs: dict[str, bytes | Path] = {"one": b"1" * 100, "two": b"2" * 64, "three": b"3"}
    emit(tmp_path / "blobs.o", blobs, "arm64-apple-macos", symbols=style)
    file = parse((tmp_path / "blobs.o").read_bytes())
    assert [f"{row[1]},{row[0]}" for row in file.sections] == [section]  # one of each name
    symbols = file.symbols()
    starts = sorted(row.n_value for row in symbols.values() if row.n_sect and not row.n_desc & N_ALT_ENTRY)
    assert len(starts) == len(blobs)
    for name, data in blobs.items():
        assert isinstance(data, bytes)
        first, last = {
            "ld": (f"__binary_{name}_start", f"__binary_{name}_end"),
            "xxd": (f"_{name}", f"_{name}_len"),
            "incbin": (f"_g{name}Data", f"_g{name}End"),
        }[style]
        assert file.at(first, len(data)) == data
        begin, end = symbols[first].n_value, symbols[last].n_value
        assert symbols[first].n_desc == 0 and symbols[last].n_desc == N_ALT_ENTRY
        # What stands behind the blob belongs to its atom: the next one begins later.
        assert [at for at in starts if begin < at <= end] == []
        if style == "ld":
            size = symbols[f"__binary_{name}_size"]
            assert (end - begin, size.n_value, size.n_type, size.n_sect) == (len(data), len(data), 0x03, 0)  # N_ABS
        else:
            word = file.at(f"_{name}_len" if style == "xxd" else f"_g{name}Size", 4)
            assert word == len(data).to_bytes(4, "little")
    run("llvm-nm", "-m", tmp_path / "blobs.o")


def test_two_runs_write_the_same_bytes(tmp_path: Path) -> None:
    written(tmp_path, "arm64-apple-macos", tensor_symbols=True)
    first = (tmp_path / "model.o").read_bytes()
    written(tmp_path, "arm64-apple-macos", tensor_symbols=True)
    assert (tmp_path / "model.o").read_bytes() == first
