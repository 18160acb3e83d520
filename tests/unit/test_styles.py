"""The symbol styles against the tools that they stand in for: same names, types, sizes, sections, values and bytes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from elftools.elf.elffile import ELFFile

from cross.table import find
from emitter.dtypes import parse
from emitter.errors import LayoutError
from emitter.pack.plan import DEFAULT_ALIGNMENT
from emitter.package import BufferSource, Extent, Package, Tensor
from emitter.styles import STYLES, style_model, style_name
from emitter.targets import load
from tests.c_tools import toolchain_of
from tests.elf_objects import TARGET_NAMES, package_of, run, section_of, symbol_table, write_styled

if TYPE_CHECKING:
    from pathlib import Path

    from emitter.options import Style

PATHS = ["a-b.bin", "9 w.bin", "sub/dir/x.y", "./x/a-b.bin", "naïve.bin", "UPPER_lower.0"]
CONTENTS = [b"", b"a", b"abc", bytes(range(200))]

COLUMNS = ("name", "type", "bind", "visibility", "size")


def signature(path: Path, prefixes: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return what a linker sees of each symbol, sorted; the value only relative to the section's start."""
    rows = [row for prefix in prefixes for row in symbol_table(path, prefix) if row["bind"] == "GLOBAL"]
    with path.open("rb") as file:
        parsed = ELFFile(file)
        return sorted(
            (
                *(row[column] for column in COLUMNS),
                "ABS" if row["index"] == "ABS" else parsed.get_section(int(row["index"])).name,
            )
            for row in rows
        )


def image_at(path: Path, symbol: str, size: int) -> bytes:
    row = next(row for row in symbol_table(path, symbol) if row["name"] == symbol)
    with path.open("rb") as file:
        start = int(row["value"], 16)
        return bytes(ELFFile(file).get_section(int(row["index"])).data()[start : start + size])


@pytest.mark.parametrize("typed", PATHS)
@pytest.mark.parametrize("contents", CONTENTS, ids=len)
def test_ld_style_is_what_ld_makes(
    tmp_path: Path, typed: str, contents: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.makedirs(os.path.dirname(typed) or ".", exist_ok=True)
    with open(typed, "wb") as file:
        file.write(contents)
    run("ld", "-r", "-b", "binary", typed, "-o", "theirs.o")
    write_styled("x86_64-linux-gnu", "ld", package_of({typed: contents}), tmp_path / "ours.o")
    theirs, ours = (signature(tmp_path / name, ("_binary_",)) for name in ("theirs.o", "ours.o"))
    assert ours == theirs
    name = style_name("ld", typed)
    for symbol in ("start", "end", "size"):
        values = [
            next(row["value"] for row in symbol_table(tmp_path / file, f"_binary_{name}_{symbol}"))
            for file in ("theirs.o", "ours.o")
        ]
        assert values[0] == values[1]
    assert image_at(tmp_path / "ours.o", f"_binary_{name}_start", len(contents)) == contents
    assert section_flags(tmp_path / "ours.o", ".data") == section_flags(tmp_path / "theirs.o", ".data")


def section_flags(path: Path, name: str) -> tuple[object, object]:
    with path.open("rb") as file:
        section = section_of(ELFFile(file), name)
        return (section["sh_type"], section["sh_flags"])


CPUS = [name for name in TARGET_NAMES if find(name)]


@pytest.mark.parametrize("target_name", CPUS)
@pytest.mark.parametrize("typed", ["a-b.bin", "9 w.bin", "naïve.bin", "x_len.h"])
@pytest.mark.parametrize("contents", CONTENTS[1:], ids=len)
def test_xxd_style_is_what_a_compiler_makes_of_xxd(
    tmp_path: Path, target_name: str, typed: str, contents: bytes
) -> None:
    compiler = toolchain_of(target_name).c
    (tmp_path / typed).write_bytes(contents)
    text = run("xxd", "-i", typed, cwd=tmp_path).stdout
    (tmp_path / "x.c").write_text(text)
    run(compiler, "-c", "x.c", "-o", "theirs.o", cwd=tmp_path)
    write_styled(target_name, "xxd", package_of({typed: contents}), tmp_path / "ours.o")
    name = style_name("xxd", typed)
    assert signature(tmp_path / "ours.o", (name,)) == signature(tmp_path / "theirs.o", (name,))
    order = load(target_name).byte_order
    for file in ("ours.o", "theirs.o"):
        assert image_at(tmp_path / file, name, len(contents)) == contents
        assert int.from_bytes(image_at(tmp_path / file, f"{name}_len", 4), order) == len(contents)
    assert section_flags(tmp_path / "ours.o", ".data") == section_flags(tmp_path / "theirs.o", ".data")


# What INCBIN(Name, "blob") of incbin.h says to the assembler, for SIMD of 16 bytes.
INCBIN = """
    .section .rodata
    .global g{n}Data
    .type g{n}Data, %object
    .balign {a}
g{n}Data:
    .incbin "blob"
    .global g{n}End
    .type g{n}End, %object
    .balign 1
g{n}End:
    .byte 1
    .global g{n}Size
    .type g{n}Size, %object
    .balign {a}
g{n}Size:
    .int g{n}End - g{n}Data
    .balign {a}
    .text
"""


@pytest.mark.parametrize("target_name", CPUS)
@pytest.mark.parametrize("contents", CONTENTS, ids=len)
def test_incbin_style_is_what_incbin_makes(tmp_path: Path, target_name: str, contents: bytes) -> None:
    compiler = toolchain_of(target_name).c
    (tmp_path / "blob").write_bytes(contents)
    (tmp_path / "i.s").write_text(INCBIN.format(n="Icon", a=16))
    run(compiler, "-c", "i.s", "-o", "theirs.o", cwd=tmp_path)
    write_styled(target_name, "incbin", package_of({"Icon": contents}), tmp_path / "ours.o", alignment=16)
    assert signature(tmp_path / "ours.o", ("gIcon",)) == signature(tmp_path / "theirs.o", ("gIcon",))
    with (tmp_path / "ours.o").open("rb") as ours, (tmp_path / "theirs.o").open("rb") as theirs:
        our_bytes, their_bytes = (section_of(ELFFile(file), ".rodata").data() for file in (ours, theirs))
    assert our_bytes == their_bytes[: len(our_bytes)]
    assert not any(their_bytes[len(our_bytes) :])
    assert section_flags(tmp_path / "ours.o", ".rodata") == section_flags(tmp_path / "theirs.o", ".rodata")


def test_incbin_alignment_is_at_least_the_originals() -> None:
    for style, row in STYLES.items():
        model = style_model(load("x86_64-linux-gnu"), style, package_of({"a": b"abc"}).tensors, alignment=1)
        assert model.sections[0].alignment == row.alignment
        model = style_model(load("x86_64-linux-gnu"), style, package_of({"a": b"abc"}).tensors)
        assert model.sections[0].alignment == DEFAULT_ALIGNMENT


@pytest.mark.parametrize("style", list(STYLES))
def test_every_target_with_an_operating_system_gets_a_stack_note(tmp_path: Path, style: Style) -> None:
    for name in (name for name in TARGET_NAMES if load(name).image_suffix):
        write_styled(name, style, package_of({"a": b"abc"}), tmp_path / "o.o")
        # Empty, and not executable: that is what it says of the stack.
        with (tmp_path / "o.o").open("rb") as file:
            note = section_of(ELFFile(file), ".note.GNU-stack")
            assert (note["sh_type"], note["sh_flags"], note["sh_size"]) == ("SHT_PROGBITS", 0, 0), name


def tensor_of(size: int) -> Tensor:
    dtype = parse("uint8")
    assert dtype is not None
    return Tensor("big.bin", dtype, (size,), Extent(BufferSource("big.bin", memoryview(b"")), 0, size))


@pytest.mark.parametrize("target_name", ["x86_64-linux-gnu", "armv7-linux-gnueabihf"])
@pytest.mark.parametrize("style", list(STYLES))
def test_sizes_that_the_style_cannot_express(target_name: str, style: Style) -> None:
    target = load(target_name)
    style_model(target, style, [tensor_of(0xFFFFFFFF)])
    if style == "ld" and target.pointer_width == 64:
        model = style_model(target, style, [tensor_of(5 << 30)])
        assert model.symbols[2].value == 5 << 30
        return
    with pytest.raises(LayoutError, match=r"'big\.bin': too large for the symbols of"):
        style_model(target, style, [tensor_of(1 << 32)])


def test_long_names_are_cut_in_messages() -> None:
    long = "w" * 65000
    with pytest.raises(LayoutError, match="two symbols would be called") as caught:
        style_model(load("x86_64-linux-gnu"), "ld", package_of({long + "-": b"1", long + "_": b"2"}).tensors)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("style", "first", "second"),
    [("ld", "a-b", "a_b"), ("xxd", "9", "__9"), ("xxd", "x", "x_len"), ("incbin", "a.b", "a_b")],
)
def test_colliding_inputs_are_named(style: Style, first: str, second: str) -> None:
    if (first, second) == ("x", "x_len"):
        # x_len of x and x_len itself
        package = package_of({"x": b"1", "x_len": b"2"})
    else:
        package = package_of({first: b"1", second: b"2"})
    with pytest.raises(LayoutError, match="two symbols would be called") as caught:
        style_model(load("x86_64-linux-gnu"), style, package.tensors)
    assert repr(first) in str(caught.value)
    assert repr(second) in str(caught.value)


@pytest.mark.parametrize("name", ["main", "int"])
def test_xxd_of_a_keyword_is_refused(name: str) -> None:
    with pytest.raises(LayoutError, match=f"symbol '{name}' of '{name}'"):
        style_model(load("x86_64-linux-gnu"), "xxd", package_of({name: b"1"}).tensors)


def test_elements_are_swapped_for_the_target() -> None:
    package = Package()
    dtype = parse("float32")
    assert dtype is not None
    package.add(Tensor("w", dtype, (2,), Extent(BufferSource("w", memoryview(bytes(8))), 0, 8)))
    for name, unit in (("x86_64-linux-gnu", 1), ("s390x-linux-gnu", 4)):
        assert style_model(load(name), "ld", package.tensors).sections[0].copies[0].swap_unit == unit


def test_thousands_of_blobs_share_one_object(tmp_path: Path) -> None:
    blobs = {f"b{number}": number.to_bytes(4, "little") for number in range(2000)}
    write_styled("x86_64-linux-gnu", "xxd", package_of(blobs), tmp_path / "o.o")
    (tmp_path / "main.c").write_text(
        "extern unsigned char b0[], b1999[]; extern unsigned int b1999_len;\n"
        "int main(void) { return b0[0] || b1999[0] != 0xcf || b1999[1] != 7 || b1999_len != 4; }\n"
    )
    run("gcc", "main.c", "o.o", "-Wl,--gc-sections", "-o", "main", cwd=tmp_path)
    run(str(tmp_path / "main"))
    assert len(symbol_table(tmp_path / "main", "b")) < 100  # the other blobs are gone
