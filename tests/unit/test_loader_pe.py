"""The Python loader on PE images and COFF objects: made by clang, lld-link and MinGW, and by hand."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from emitter.errors import EmitterError, LoadError
from emitter.loaders import load
from tests.container_files import bigobj, coff_object, pe
from tests.foreign_files import run_tool
from tests.loader_support import other_pack, sample_pack

if TYPE_CHECKING:
    from pathlib import Path

# Triple: (name in messages, magic of its images, prefix of symbols).
TRIPLES = {
    "x86_64-pc-windows-msvc": ("x86-64", "PE32+", ""),
    "aarch64-pc-windows-msvc": ("AArch64", "PE32+", ""),
    "x86_64-w64-windows-gnu": ("x86-64", "PE32+", ""),
    "i686-w64-windows-gnu": ("Intel 80386", "PE32", "_"),
}


def assemble(path: Path, triple: str, pack: bytes, symbol: str = "emitter_pack") -> Path:
    data, source = path.with_suffix(".bin"), path.with_suffix(".s")
    data.write_bytes(pack)
    name = TRIPLES[triple][2] + symbol
    source.write_text(f'.section .emitter,"dr"\n.p2align 6\n.globl {name}\n{name}: .incbin "{data}"\n')
    run_tool("clang", f"--target={triple}", "-c", source, "-o", path)
    return path


@pytest.mark.parametrize("triple", TRIPLES)
def test_objects_and_libraries_of_other_tools(tmp_path: Path, triple: str) -> None:
    cpu, magic, _ = TRIPLES[triple]
    made = assemble(tmp_path / "a.obj", triple, sample_pack())
    image = tmp_path / "a.dll"
    run_tool("lld-link", "/dll", "/noentry", "/safeseh:no", "/export:emitter_pack,data", made, f"/out:{image}")
    for path, kind in ((made, f"COFF object for {cpu}"), (image, f"{magic} DLL for {cpu}")):
        library = load(path)
        library.check()
        assert library.kind == kind
        assert library["w"].sum() == 15


def test_what_gnu_ld_joined_and_stripped(tmp_path: Path) -> None:
    first = assemble(tmp_path / "a.obj", "x86_64-w64-windows-gnu", sample_pack(), "first")
    second = assemble(tmp_path / "b.obj", "x86_64-w64-windows-gnu", other_pack(), "second")
    image = tmp_path / "a.dll"
    run_tool("x86_64-w64-mingw32-gcc", "-shared", "-nostdlib", first, second, "-o", image)
    for _ in range(2):
        library = load(image)
        library.check()
        assert sorted(len(pack) for pack in library.packs) == [1, 8]
        run_tool("x86_64-w64-mingw32-strip", image)


def test_static_and_import_libraries(tmp_path: Path) -> None:
    made = assemble(tmp_path / "a_name_beyond_sixteen.obj", "x86_64-pc-windows-msvc", sample_pack())
    static, stand_in = tmp_path / "static.lib", tmp_path / "import.lib"
    run_tool("llvm-lib", f"/out:{static}", made)
    library = load(static)
    library.check()
    assert library.kind == "ar archive of COFF object for x86-64"
    assert library.packs[0].member.endswith(made.name)
    run_tool(
        "lld-link",
        "/dll",
        "/noentry",
        "/export:emitter_pack,data",
        made,
        f"/out:{tmp_path}/a.dll",
        f"/implib:{stand_in}",
    )
    with pytest.raises(LoadError, match="COFF import or intermediate code for x86-64: it holds no pack"):
        load(stand_in)


def _member(name: bytes, body: bytes) -> bytes:
    header = name.ljust(16) + b"0           0     0     100666  " + str(len(body)).encode().ljust(10) + b"`\n"
    return header + body + b"\n" * (len(body) % 2)


def test_an_archive_as_microsofts_tools_write_it() -> None:
    """Two tables of symbols called `/`, names that end with a NUL, and a table for ARM64EC."""
    name = b"build\\a_name_beyond_sixteen.obj"
    tables = _member(b"/", bytes(4)) + _member(b"/", bytes(8)) + _member(b"//", name + b"\0")
    library = load(
        b"!<arch>\n" + tables + _member(b"/<ECSYMBOLS>/", bytes(4)) + _member(b"/0", coff_object(sample_pack()))
    )
    library.check()
    assert library.packs[0].member == name.decode()


@pytest.mark.parametrize("wide", [True, False])
def test_images_made_by_hand(wide: bool) -> None:
    pack = sample_pack()
    joined = pack + bytes(-len(pack) % 4096) + other_pack()
    library = load(pe(joined, wide=wide, machine=0x14C, characteristics=0x102))
    library.check()
    assert library.kind == f"{'PE32+' if wide else 'PE32'} executable for Intel 80386"
    assert [len(one) for one in library.packs] == [8, 1]


@pytest.mark.parametrize("make", [coff_object, bigobj])
@pytest.mark.parametrize(("machine", "cpu"), [(0x8664, "x86-64"), (0xAA64, "AArch64"), (0xA641, "AArch64 (ARM64EC)")])
def test_objects_made_by_hand(make: type, machine: int, cpu: str) -> None:
    library = load(make(sample_pack(), machine=machine))
    library.check()
    assert library.kind == f"COFF object for {cpu}"
    with pytest.raises(LoadError, match="holds no pack"):
        load(make(sample_pack(), machine=machine, flags=0xC0700040))  # writable


@pytest.mark.parametrize("data", [pe(sample_pack()), coff_object(sample_pack()), bigobj(sample_pack())])
def test_every_truncation_is_refused(data: bytes) -> None:
    for size in (*range(4, 400), *range(400, len(data), 97), len(data) - 1):
        with pytest.raises(EmitterError, match="truncated"):
            load(data[:size])
    load(data).check()


SECTION = 0x80 + 4 + 20 + 240


@pytest.mark.parametrize(
    ("offset", "form", "value", "message"),
    [
        (0x3C, "I", 1 << 31, "truncated: the PE header"),
        (0x3C, "I", 0x40, "program of DOS: it holds no pack"),
        (0x84, "H", 0x1234, "DLL for machine 0x1234, 1 pack"),
        (0x86, "H", 60000, "truncated: the section table"),
        (0x94, "H", 0, "magic of the optional header is unknown"),
        (0x98, "H", 0x107, "expected 0x10b .PE32. or 0x20b .PE32+., found 0x107"),
        (SECTION + 8, "I", 100, "the pack is truncated"),
        (SECTION + 8, "I", 0, "DLL for x86-64, 1 pack"),  # of old linkers
        (SECTION + 16, "I", 1 << 31, "truncated: section 1"),
        (SECTION + 20, "I", 1 << 31, "truncated: section 1"),
        (SECTION + 20, "I", 0, "it holds no pack"),
        (SECTION + 36, "I", 0xC0000040, "it holds no pack"),
        (SECTION + 36, "I", 0x60000020, "it holds no pack"),
    ],
)
def test_headers_that_lie(offset: int, form: str, value: int, message: str) -> None:
    data = bytearray(pe(sample_pack()))
    struct.pack_into("<" + form, data, offset, value)
    if message.endswith("1 pack"):
        assert message in repr(load(data))
        return
    with pytest.raises(EmitterError, match=message.replace("+", r"\+")):
        load(data)


def test_what_only_looks_like_an_object() -> None:
    with pytest.raises(EmitterError, match="COFF object has no optional header"):
        load(b"\x64\x86" + b"x" * 60)
    with pytest.raises(LoadError, match="COFF import or intermediate code for x86-64: it holds no pack"):
        load(bigobj(b"", version=1))
