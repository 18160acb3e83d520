"""The Python loader on Mach-O files: made by clang, ld64.lld, llvm-lipo and llvm-ar, and by hand."""

from __future__ import annotations

import platform
import struct
from typing import TYPE_CHECKING

import pytest

from emitter.errors import EmitterError, FormatError, LoadError
from emitter.loaders import load
from tests.container_files import ARM64, X86_64, macho, universal
from tests.foreign_files import run_tool
from tests.loader_support import other_pack, sample_pack

if TYPE_CHECKING:
    from pathlib import Path

    from emitter.package import ByteOrder

CPUS = {"arm64": "AArch64", "x86_64": "x86-64"}
SHAPES: list[tuple[bool, ByteOrder]] = [(wide, order) for wide in (True, False) for order in ("little", "big")]


def assemble(path: Path, arch: str, pack: bytes, symbol: str = "_emitter_pack") -> Path:
    data, source = path.with_suffix(".bin"), path.with_suffix(".s")
    data.write_bytes(pack)
    source.write_text(
        f'.section __TEXT,__emitter\n.p2align 12\n.globl {symbol}\n{symbol}: .incbin "{data}"\n'
        ".subsections_via_symbols\n"
    )
    run_tool("clang", f"--target={arch}-apple-macos11", "-c", source, "-o", path)
    return path


def link(output: Path, arch: str, *objects: Path) -> Path:
    run_tool("ld64.lld", "-dylib", "-arch", arch, "-platform_version", "macos", "11.0", "11.0", *objects, "-o", output)
    return output


@pytest.mark.parametrize("arch", CPUS)
def test_objects_and_dylibs_of_other_tools(tmp_path: Path, arch: str) -> None:
    made = assemble(tmp_path / "a.o", arch, sample_pack())
    image = link(tmp_path / "liba.dylib", arch, made)
    for path, kind in ((made, "relocatable object"), (image, "dynamic library")):
        library = load(path)
        library.check()
        assert library.kind == f"Mach-O {kind} for {CPUS[arch]}"
        assert library["w"].sum() == 15
    run_tool("llvm-strip", "-x", image)
    load(image).check()


def test_packs_that_the_linker_joined(tmp_path: Path) -> None:
    first = assemble(tmp_path / "a.o", "arm64", sample_pack(), "_first")
    second = assemble(tmp_path / "b.o", "arm64", other_pack(), "_second")
    library = load(link(tmp_path / "liba.dylib", "arm64", first, second))
    library.check()
    assert sorted(len(pack) for pack in library.packs) == [1, 8]


def test_archives(tmp_path: Path) -> None:
    made = assemble(tmp_path / "a_name_beyond_sixteen.o", "arm64", sample_pack())
    for form in ("darwin", "bsd", "gnu"):
        archive = tmp_path / f"lib{form}.a"
        run_tool("llvm-ar", f"--format={form}", "rcsD", archive, made)
        library = load(archive)
        library.check()
        assert library.kind == "ar archive of Mach-O relocatable object for AArch64"
        assert library.packs[0].member == made.name


def test_universal_files_of_other_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packs = {"arm64": sample_pack(), "x86_64": other_pack()}
    images = []
    for arch, pack in packs.items():
        made = assemble(tmp_path / f"{arch}.o", arch, pack)
        images.append(link(tmp_path / f"{arch}.dylib", arch, made))
    output = tmp_path / "liba.dylib"
    run_tool("llvm-lipo", "-create", *images, "-output", output)
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    library = load(output)
    library.check()
    assert library["w"].sum() == 15
    assert library.kind == "universal file of x86-64, AArch64; loaded: Mach-O dynamic library for AArch64"
    assert library.packs[0].file_offset == output.read_bytes().index(packs["arm64"])
    monkeypatch.setattr(platform, "machine", lambda: "AMD64")
    assert load(output).names() == ["other"]


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize(
    ("machine", "names"), [("aarch64", ["other"]), ("x86_64", None), ("riscv64", None), ("", None)]
)
def test_the_slice_of_this_cpu_else_the_first(
    monkeypatch: pytest.MonkeyPatch, wide: bool, machine: str, names: list[str] | None
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    files = [(X86_64, macho(sample_pack())), (ARM64, macho(other_pack(), cputype=ARM64))]
    library = load(universal(files, wide=wide))
    library.check()
    assert library.names() == (names or load(sample_pack()).names())


def test_an_archive_may_be_a_slice() -> None:
    body = macho(sample_pack(), filetype=1)
    member = b"x.o/            0           0     0     644     " + str(len(body)).encode().ljust(10) + b"`\n" + body
    library = load(universal([(X86_64, b"!<arch>\n" + member)]))
    library.check()
    assert library.kind == ("universal file of x86-64; loaded: ar archive of Mach-O relocatable object for x86-64")
    assert library.packs[0].member == "x.o"


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (b"\xca\xfe\xba\xbe\0\0\0\x34" + bytes(60), LoadError, "a Java class file, or 52 slices"),
        (struct.pack(">II", 0xCAFEBABE, 0), FormatError, "has no slice"),
        (struct.pack(">II", 0xCAFEBABE, 1), LoadError, "truncated: fat_arch"),
        (b"\xca\xfe\xba\xbe\0", LoadError, "truncated: nfat_arch"),
        (universal([(X86_64, b"text")]), FormatError, "slice for x86-64 is no Mach-O file"),
        (universal([(X86_64, universal([(X86_64, b"")]))]), FormatError, "slice for x86-64 is no Mach-O file"),
        (universal([(9, macho(b""))]), LoadError, "cputype 0x9; loaded: .*holds no pack"),
        (universal([(ARM64, macho(sample_pack()))])[:0x6000], LoadError, "truncated: the slice for AArch64"),
    ],
)
def test_odd_universal_files(data: bytes, error: type[EmitterError], message: str) -> None:
    with pytest.raises(error, match=message):
        load(data)


@pytest.mark.parametrize(("wide", "order"), SHAPES)
def test_files_of_both_widths_and_byte_orders(wide: bool, order: ByteOrder) -> None:
    pack = sample_pack(order)
    gap = bytes(-len(pack) % 4096)
    library = load(macho(pack + gap + pack + bytes(5), wide=wide, order=order, filetype=8))
    library.check()
    assert library.kind == "Mach-O bundle for x86-64"
    assert [one.file_offset for one in library.packs] == [4096, 4096 + len(pack) + len(gap)]


def test_every_truncation_is_refused() -> None:
    data = macho(sample_pack())
    for size in (*range(4, 400), *range(400, len(data), 97), len(data) - 1):
        with pytest.raises(EmitterError, match=r"truncated"):
            load(data[:size])
    load(data).check()


# Offsets in the files of `macho` of the wide form: header, LC_SEGMENT_64, LC_UUID, LC_SEGMENT_64, section_64.
UUID = 32 + 72
SEGMENT = UUID + 24
SECTION = SEGMENT + 72


@pytest.mark.parametrize(
    ("offset", "form", "value", "message"),
    [
        (12, "I", 77, "file of type 77 for x86-64, 1 pack"),
        (4, "I", 0x01000099, "for cputype 0x1000099, 1 pack"),
        (16, "I", 4, "load command 3 does not fit into sizeofcmds"),
        (20, "I", 1 << 31, "truncated: the load commands"),
        (UUID + 4, "I", 0, "load command 1 has a wrong cmdsize: expected 8 to"),
        (UUID + 4, "I", 4096, "load command 1 has a wrong cmdsize"),
        (SEGMENT + 4, "I", 64, "load command 2 is too short for a segment"),
        (SEGMENT + 64, "I", 2, "load command 2 is too short for its sections"),
        (SEGMENT + 48, "Q", 1 << 63, "truncated: the segment of load command 2"),
        (SECTION + 40, "Q", 1 << 40, "truncated: a section of load command 2"),
        (SECTION + 40, "Q", 100, "the pack is truncated"),
        (SECTION + 48, "I", 1 << 31, "truncated: a section of load command 2"),
        (SECTION + 64, "I", 1, "it holds no pack"),  # S_ZEROFILL
    ],
)
def test_load_commands_that_lie(offset: int, form: str, value: int, message: str) -> None:
    data = bytearray(macho(sample_pack()))
    struct.pack_into("<" + form, data, offset, value)
    if message.endswith("1 pack"):
        assert message in repr(load(data))
        return
    with pytest.raises(EmitterError, match=message):
        load(data)
