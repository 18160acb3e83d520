"""COFF objects: what LLVM writes of a target, read by llvm-readobj and lief, and refused where the format ends."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import lief
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emitter import emit, llvm
from emitter.errors import LayoutError
from emitter.layout import BULK_ALIGNMENTS, Copy
from emitter.model import ObjectModel, Reference, Section, Symbol, Window
from emitter.package import BufferSource, Extent
from emitter.splice.coff import plan_object
from emitter.styles import style_model
from emitter.symbols import pack_model
from emitter.targets import load
from tests.coff_files import TARGET_NAMES, every_target, plan_output
from tests.elf_images import package_of, pattern, render
from tests.elf_objects import run
from tests.support import write_plan

if TYPE_CHECKING:
    from pathlib import Path

    from emitter.layout import FilePlan
    from emitter.options import Style

X86_64 = load("x86_64-windows-msvc")
PAYLOADS = {"a": pattern(5000, 1), "layer.with.a.long.name": pattern(64, 2), "empty": b""}

# What LLVM is asked for to compare with: read-only data in the pack's section, its size, and data of a program.
IR = """
@model = constant [64 x i8] c"{bytes}", section ".emitter", align 64
@model_size = constant i{width} 64, section ".rdata", align {word}
@data = global [4 x i8] c"data", section ".data", align 4
"""


def parse(data: bytes) -> lief.COFF.Binary:
    parsed = lief.COFF.parse(list(data))
    assert isinstance(parsed, lief.COFF.Binary)
    return parsed


def written(plan: FilePlan, path: Path) -> bytes:
    write_plan(plan, None, path)
    return path.read_bytes()


def facts(parsed: lief.COFF.Binary) -> dict[str, Any]:
    """Return what an object says of itself, of its sections and of its symbols, but where they are in the file."""
    names = [section.name for section in parsed.sections]
    symbols = {
        str(symbol.name): (
            names[symbol.section_idx - 1] if symbol.section_idx > 0 else symbol.section_idx,
            symbol.storage_class,
            symbol.value,
            int(symbol.base_type) + int(symbol.complex_type),
        )
        for symbol in parsed.symbols
    }
    return {
        "machine": parsed.header.machine,
        "time stamp": parsed.header.timedatestamp,
        "characteristics": parsed.header.kind,
        "sections": {section.name: section.characteristics for section in parsed.sections},
        "symbols": symbols,
    }


@every_target
def test_llvm_says_the_same_of_the_target(name: str, tmp_path: Path) -> None:
    target = load(name)
    width = target.pointer_width
    ours = ObjectModel(
        sections=[
            Section(".emitter", "rodata", 64, 64, data=b"\1" * 64),
            Section(".rdata", "rodata", width // 8, width // 8, data=(64).to_bytes(width // 8, "little")),
            Section(".data", "data", 4, 4, data=b"data"),
        ],
        symbols=[Symbol("model", 0, 0, 64), Symbol("model_size", 1, 0, width // 8), Symbol("data", 2, 0, 4)],
    )
    made = facts(parse(written(plan_object(target, ours), tmp_path / "ours.obj")))
    ir = IR.format(bytes="\\01" * 64, width=width, word=width // 8)
    theirs = facts(parse(llvm.emit_object(target, ir)))
    assert made["machine"] == theirs["machine"]
    assert made["time stamp"] == theirs["time stamp"] == 0
    assert made["characteristics"] == theirs["characteristics"]
    for section, characteristics in made["sections"].items():
        assert theirs["sections"][section] == characteristics, section
    assert set(made["symbols"]) == {f"{target.symbol_prefix}{name}" for name in ("model", "model_size", "data")} | {
        "@feat.00"
    }
    for symbol, value in made["symbols"].items():
        assert theirs["symbols"][symbol] == value, symbol


@every_target
def test_llvm_and_binutils_read_what_was_planned(name: str, tmp_path: Path) -> None:
    target = load(name)
    plan, pack = plan_output(target, "object", package_of(PAYLOADS))
    path = tmp_path / "model.obj"
    path.write_bytes(render(plan, pack))
    done = run("llvm-readobj", "--file-headers", "--sections", "--symbols", "--string-table", str(path))
    assert done.stderr == ""
    assert "TimeDateStamp: 1970-01-01 00:00:00 (0x0)" in done.stdout
    listed = run("llvm-nm", "--extern-only", str(path)).stdout.split("\n")
    payloads = {one: pack.payloads[number].offset for one, number in pack.index_of.items()}
    expected = {"model": 0, "model_size": 0} | {
        f"model_t_{one.replace('.', '_')}": offset for one, offset in payloads.items()
    }
    found = {line.split()[2]: int(line.split()[0], 16) for line in listed if line}
    assert found == {target.symbol_prefix + one: value for one, value in expected.items()}
    assert plan.pack_offset is not None
    parsed = parse(path.read_bytes())  # its parts do not outlive it
    [section] = [one for one in parsed.sections if one.name == ".emitter"]
    assert bytes(section.content) == render(plan, pack)[plan.pack_offset :][: pack.total_size]


@pytest.mark.parametrize("alignment", [1 << n for n in range(14)])
def test_alignment_is_in_the_characteristics(alignment: int, tmp_path: Path) -> None:
    model = ObjectModel([Section(".rdata", "rodata", 3, alignment, data=b"abc")], [Symbol("a", 0, 0, 3)])
    written(plan_object(X86_64, model), tmp_path / "a.obj")
    text = run("llvm-readobj", "--sections", str(tmp_path / "a.obj")).stdout
    assert f"IMAGE_SCN_ALIGN_{alignment}BYTES" in text


@every_target
def test_larger_alignment_is_refused_with_the_limit(name: str) -> None:
    model = ObjectModel([Section(".emitter", "rodata", 3, 16384, data=b"abc")], [])
    with pytest.raises(LayoutError, match=r"'\.emitter'.*expected at most 8192, found 16384; ask for less"):
        plan_object(load(name), model)


@pytest.mark.parametrize("name", [".a234567", ".a2345678", ".a.very.long.name.of.a.section", ".b$c"])
def test_section_names_of_any_length_are_read_back(name: str, tmp_path: Path) -> None:
    sections = [Section(one, "rodata", 1, 1, data=b"x") for one in (name, ".emitter", name)]
    written(plan_object(X86_64, ObjectModel(sections, [])), tmp_path / "a.obj")
    text = run("llvm-readobj", "--sections", str(tmp_path / "a.obj")).stdout
    assert re.findall(r"^    Name: (\S+)", text, re.MULTILINE) == [name, ".emitter", name]
    assert name in run("x86_64-w64-mingw32-objdump", "-h", str(tmp_path / "a.obj")).stdout


def test_many_sections_are_numbered(tmp_path: Path) -> None:
    """Numbers above 32767 are negative in the symbol's field, and not special."""
    count = 0xFEFF
    sections = [Section(".data", "data", 1, 1, data=b"x") for _ in range(count)]
    symbols = [Symbol(f"s{number}", number, 0, 1) for number in (0, 0x7FFE, 0x7FFF, count - 1)]
    written(plan_object(X86_64, ObjectModel(sections, symbols)), tmp_path / "a.obj")
    text = run("llvm-readobj", "--symbols", str(tmp_path / "a.obj")).stdout
    found = dict(re.findall(r"Name: (s\d+)\n\s+Value: 0\n\s+Section: \.data \((\d+)\)", text))
    assert found == {symbol.name: str(1 + (symbol.section or 0)) for symbol in symbols}
    sections.append(sections[0])
    with pytest.raises(LayoutError, match="at most 65279, found 65280; write several objects"):
        plan_object(X86_64, ObjectModel(sections, symbols))


@pytest.mark.parametrize("style", ["ld", "incbin", "xxd"])
@pytest.mark.parametrize("name", ["x86_64-windows-gnu", "i686-windows-gnu"])
def test_styles_have_their_sections_and_symbols(style: Style, name: str, tmp_path: Path) -> None:
    target = load(name)
    package = package_of({"blob.bin": b"abc", "two": pattern(100)})
    model = style_model(target, style, package.tensors)
    parsed = facts(parse(written(plan_object(target, model), tmp_path / "a.o")))
    expected = {"ld": (".data", 0xC0700040), "incbin": (".rdata", 0x40700040), "xxd": (".data", 0xC0700040)}[style]
    assert {name: int(flags) for name, flags in parsed["sections"].items()} == dict([expected])
    symbols = {
        "ld": {"_binary_blob_bin_start": 0, "_binary_blob_bin_end": 3, "_binary_blob_bin_size": 3},
        "incbin": {"gblob_binData": 0, "gblob_binEnd": 3, "gblob_binSize": 64},
        "xxd": {"blob_bin": 0, "blob_bin_len": 4},
    }[style]
    prefix = "" if style == "ld" else target.symbol_prefix
    for symbol, value in symbols.items():
        assert parsed["symbols"][prefix + symbol][2] == value, symbol
    if style == "ld":
        assert parsed["symbols"]["_binary_blob_bin_size"][0] == -1  # IMAGE_SYM_ABSOLUTE


@pytest.mark.parametrize("name", ["x86_64-windows-gnu", "i686-windows-gnu"])
def test_ld_style_has_the_symbols_of_ld(name: str, tmp_path: Path) -> None:
    target = load(name)
    cpu = name.partition("-")[0]
    (tmp_path / "blob.bin").write_bytes(b"abc")
    run(f"{cpu}-w64-mingw32-ld", "-r", "-b", "binary", "blob.bin", "-o", "theirs.o", cwd=tmp_path)
    model = style_model(target, "ld", package_of({"blob.bin": b"abc"}).tensors)
    ours = facts(parse(written(plan_object(target, model), tmp_path / "ours.o")))["symbols"]
    theirs = facts(parse((tmp_path / "theirs.o").read_bytes()))["symbols"]
    assert {one: value for one, value in ours.items() if one != "@feat.00"} == {
        one: value for one, value in theirs.items() if one.startswith("_binary")
    }


@pytest.mark.parametrize(("size", "alignment"), [(size, alignment) for size, alignment in BULK_ALIGNMENTS])
@pytest.mark.parametrize("format_", ["object", "archive", "library"])
def test_payload_has_a_fast_place_in_the_file(format_: Any, size: int, alignment: int, tmp_path: Path) -> None:
    with (tmp_path / "payload").open("wb") as file:
        file.truncate(size)
    package = package_of({"small": b"xyz"})
    package.add_raw("big", tmp_path / "payload")
    plan, pack = plan_output(X86_64, format_, package)
    assert plan.pack_offset is not None
    assert (plan.pack_offset + pack.payload_start) % min(alignment, 64 << 10) == 0
    if format_ != "library":
        assert (plan.pack_offset + pack.payload_start) % alignment == 0


def sparse_model(size: int) -> ObjectModel:
    """Return a model of one section of `size` bytes that are nowhere."""
    extent = Extent(BufferSource("nowhere", memoryview(b"")), 0, size)
    copy = Copy(0, size, extent, 1, (size,), 8)
    return ObjectModel([Section(".emitter", "rodata", size, 64, copies=(copy,))], [Symbol("a", 0, 0, size)])


EDGES = [0, 1, 63, 64, 65, (1 << 31) - 1, 1 << 31, (1 << 31) + 1]


@settings(max_examples=200, deadline=None)
@given(size=st.sampled_from(EDGES) | st.integers((1 << 32) - (3 << 20), (1 << 32) + 100), data=st.data())
def test_offsets_and_sizes_have_32_bits(size: int, data: st.DataObject) -> None:
    target = load(data.draw(st.sampled_from(TARGET_NAMES)))
    file_offset = data.draw(st.sampled_from([0, 158, 4096]))
    try:
        plan = plan_object(target, sparse_model(size), file_offset=file_offset)
    except LayoutError as error:
        assert "too large for a COFF object: expected at most 4294967295 bytes" in str(error)
        assert size > (1 << 32) - (3 << 20)  # the payload's place may cost 2 MiB
        return
    assert plan.size < 1 << 32
    [copy] = plan.copies
    assert copy.size == size
    end = max([copy.offset + size, *(piece.offset + len(piece.data) for piece in plan.pieces)])
    assert end == plan.size
    header, table = plan.pieces
    assert table.offset >= copy.offset + size
    assert int.from_bytes(header.data[8:12], "little") == table.offset


def test_pack_model_of_the_largest_size_is_refused_before_it_is_encoded() -> None:
    package = package_of({"a": b""})
    plan_, pack = plan_output(X86_64, "object", package)
    assert plan_.size < 1000
    with pytest.raises(LayoutError, match="too large for a COFF object"):
        plan_object(X86_64, pack_model(X86_64, pack._replace(total_size=5 << 32), name="model"))


def test_alignment_that_linkers_may_not_keep_is_warned_of(tmp_path: Path) -> None:
    """lld-link 14 puts such a section at an odd page without a word."""
    warnings: list[str] = []
    for align in (4096, 8192):
        emit(
            package_of({"a": b"abc"}),
            tmp_path / "a.obj",
            target="x86_64-windows-msvc",
            align=align,
            warn=warnings.append,
        )
    assert warnings == ["lld-link and link.exe keep an alignment of 8192 with /ALIGN:8192 only"]
    with pytest.raises(LayoutError, match="expected at most 8192, found 16384"):
        emit(
            package_of({"a": b"abc"}),
            tmp_path / "a.obj",
            target="x86_64-windows-msvc",
            align=16384,
            warn=warnings.append,
        )
    assert len(warnings) == 1  # what is refused is not warned of


@pytest.mark.parametrize("size", [(1 << 31) - (1 << 20), 1 << 31])
def test_object_that_no_program_holds_is_warned_of(size: int, tmp_path: Path) -> None:
    with (tmp_path / "payload").open("wb") as file:
        file.truncate(size)
    package = package_of({})
    package.add_raw("a", tmp_path / "payload")
    warnings: list[str] = []
    emit(package, tmp_path / "a.obj", target="x86_64-windows-msvc", warn=warnings.append)
    expected = ["the payload exceeds the 2147483647 bytes that a program of x86_64-windows-msvc may have: no link"]
    assert warnings == (expected if size == 1 << 31 else [])


def test_target_of_another_format_is_refused() -> None:
    with pytest.raises(LayoutError, match="not a target of COFF and PE: expected coff, found elf"):
        plan_object(load("x86_64-linux-gnu"), ObjectModel([], []))


@pytest.mark.parametrize(
    "more",
    [{"references": [Reference(0, 0, 0)]}, {"windows": [Window("w", 0, 0, 8, 8)]}],
    ids=lambda more: next(iter(more)),
)
def test_what_other_formats_have_is_refused(more: dict[str, Any]) -> None:
    model = ObjectModel([Section(".a", "rodata", 8, 8, data=bytes(8))], [], **more)
    with pytest.raises(LayoutError, match="a COFF object cannot hold this"):
        plan_object(load("x86_64-windows-msvc"), model)
