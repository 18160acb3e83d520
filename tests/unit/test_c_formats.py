"""What emitter.h checks of DLLs and dylibs before their systems load them, and how it finds packs, run on this host.

The parsers call nothing of those systems, so they are compiled here with a private macro.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

import pytest

from tests import c_tools
from tests.container_files import ARM64, X86_64, coff_object, macho, pe, universal
from tests.loader_support import sample_pack

if TYPE_CHECKING:
    from pathlib import Path

PACK = sample_pack()
JOINED = PACK + bytes(-len(PACK) % 4096) + PACK
PLACES = f"4096:{len(PACK)} {4096 + len(PACK) + -len(PACK) % 4096}:{len(PACK)} "


@pytest.fixture(scope="module", params=["gcc", "clang-14"])
def formats(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    compiler = request.param
    output = str(tmp_path_factory.mktemp("formats") / "formats")
    source = os.path.join(c_tools.DATA, "formats.c")
    return c_tools.build(compiler, output, "-std=c99", "-O1", *c_tools.WARNINGS, *c_tools.sanitizers(compiler), source)


def says(program: str, tmp_path: Path, kind: tuple[str, ...], data: bytes) -> str:
    """Return what the program prints of a file, without the file's name."""
    path = tmp_path / "file"
    path.write_bytes(data)
    done = c_tools.run(program, *kind, str(path))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.rstrip("\n").removeprefix(f"{path}: ")


def poked(data: bytes, offset: int, form: str, value: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into("<" + form, changed, offset, value)
    return bytes(changed)


X64 = ("pe", "0x8664", "0x20b")
SECTION = 0x80 + 24 + 240
DLL = pe(JOINED)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (DLL, PLACES),
        (poked(DLL, SECTION + 8, "I", len(PACK) + 100), PLACES.split(" ", maxsplit=1)[0] + " "),
        (b"", "not a PE file, or shorter than its header"),
        (coff_object(PACK), "not a PE file, or shorter than its header"),
        (DLL[:64], "truncated, or not a PE file: its header is not within the file"),
        (poked(DLL, 0x3C, "I", 0xFFFFFFFF), "truncated, or not a PE file: its header is not within the file"),
        (poked(DLL, 0x3C, "I", 0x40), "not a PE file"),
        (poked(DLL, 0x84, "H", 0xAA64), "built for ARM64 (Machine 0xaa64, PE32+), this process is x64 (PE32+)"),
        (pe(PACK, wide=False, machine=0x14C), "built for x86 (Machine 0x14c, PE32), this process is x64 (PE32+)"),
        (poked(DLL, 0x98, "H", 0x107), "built for x64 (Machine 0x8664, no image), this process is x64 (PE32+)"),
        (poked(DLL, 0x94, "H", 0), "built for x64 (Machine 0x8664, no image), this process is x64 (PE32+)"),
        (poked(DLL, 0x96, "H", 0x22), "not a DLL"),
        (poked(DLL, 0x94, "H", 0xFFFF), "truncated: its section table is not within the file"),
        (poked(DLL, 0x86, "H", 0xFFFF), "truncated: its section table is not within the file"),
        (DLL[:-1], f"truncated: section 1 needs {len(DLL) - 4096} bytes from offset 4096, the file has {len(DLL) - 1}"),
        (poked(DLL, SECTION + 20, "I", 0xFFFFF000), "truncated: section 1 needs"),
        (poked(DLL, SECTION + 36, "I", 0xC0000040), "holds no pack: no read-only section begins with one"),
        (pe(b"plain data" * 50), "holds no pack: no read-only section begins with one"),
        (pe(PACK[:100]), "holds no pack: no read-only section begins with one"),
    ],
)
def test_pe(formats: str, tmp_path: Path, data: bytes, message: str) -> None:
    assert says(formats, tmp_path, X64, data).startswith(message)


INTEL = ("macho", hex(X86_64))
SEGMENT = 32 + 72 + 24
MACHO_SECTION = SEGMENT + 72
DYLIB = macho(JOINED)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (DYLIB, PLACES),
        (macho(PACK, filetype=8), f"4096:{len(PACK)} "),
        (b"", "not a Mach-O file, or shorter than its header"),
        (b"\x7fELF" * 20, "not a Mach-O file"),
        (b"\xca\xfe\xba\xbe\0\0\0\x34" + bytes(60), "not a Mach-O file"),
        (macho(PACK, filetype=1), "not a dynamic library or bundle (MH_DYLIB, MH_BUNDLE)"),
        (macho(PACK, cputype=ARM64), "built for arm64, this process is x86_64"),
        (macho(PACK, wide=False, cputype=7), "built for i386, this process is x86_64"),
        (macho(PACK, order="big"), "built for a big-endian machine, this process is x86_64"),
        (macho(PACK, cputype=99), "built for another CPU, this process is x86_64"),
        (poked(DYLIB, 20, "I", 1 << 30), "truncated: its load commands are not within the file"),
        (poked(DYLIB, 16, "I", 4), "damaged: a load command is not within its list"),
        (poked(DYLIB, 36, "I", 4), "damaged: a load command is not within its list"),
        (poked(DYLIB, 36, "I", 0xFFFFFFFF), "damaged: a load command is not within its list"),
        (poked(DYLIB, SEGMENT + 64, "I", 2), "damaged: a segment's load command is too short for its sections"),
        (
            poked(DYLIB, SEGMENT + 64, "I", 0xFFFFFFFF),
            "damaged: a segment's load command is too short for its sections",
        ),
        (
            DYLIB[:-1],
            f"truncated: the segment of load command 2 needs {len(JOINED)} bytes from offset 4096, the file has",
        ),
        (poked(DYLIB, SEGMENT + 40, "Q", 1 << 63), "truncated: the segment of load command 2 needs"),
        (poked(DYLIB, MACHO_SECTION + 64, "I", 1), "holds no pack: no section begins with one"),
        (poked(DYLIB, MACHO_SECTION + 40, "Q", 1 << 40), "holds no pack: no section begins with one"),
        (universal([(ARM64, b""), (7, b"")]), "built for arm64, i386, this process is x86_64"),
        (universal([(ARM64, b"")] * 44), "built for arm64, arm64, arm64"),
        (universal([(X86_64, DYLIB)])[: 0x4000 + 100], "truncated: slice 0 needs"),
        (universal([(X86_64, DYLIB)])[:24], "not a Mach-O file, or shorter than its header"),
        (universal([(ARM64, b"")] * 3)[:60], "truncated: its list of slices is not within the file"),
        (universal([(X86_64, b"text")]), "not a Mach-O file, or shorter than its header"),
    ],
)
def test_macho(formats: str, tmp_path: Path, data: bytes, message: str) -> None:
    assert says(formats, tmp_path, INTEL, data).startswith(message)


@pytest.mark.parametrize("wide", [True, False])
def test_the_slice_of_this_process_is_checked(formats: str, tmp_path: Path, wide: bool) -> None:
    data = universal([(ARM64, macho(PACK, cputype=ARM64)), (X86_64, macho(PACK)[:-1])], wide=wide)
    assert says(formats, tmp_path, INTEL, data).startswith("truncated: the segment of load command 2 needs")


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (X64, DLL),
        (("macho", hex(X86_64), "0"), DYLIB),
        (("macho", hex(X86_64), "0"), universal([(ARM64, macho(b"", cputype=ARM64)), (X86_64, macho(PACK))])),
    ],
)
def test_whatever_the_bytes_are(formats: str, tmp_path: Path, kind: tuple[str, ...], data: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    done = c_tools.run(formats, "mutate", *kind, str(path), "20000")
    assert (done.returncode, done.stderr) == (0, "")
    assert 1000 < int(done.stdout.split()[0]) < 20000
