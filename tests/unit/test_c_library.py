"""The optional part of emitter.h that opens shared libraries. The libraries are linked by the system's own tools."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

import pytest

from emitter import Package
from tests import c_tools
from tests.support import build_pack

if TYPE_CHECKING:
    from pathlib import Path

NOTE = """
.section .note.emitter,"a",@note
.balign {alignment}
.long 8, 24, 1
.asciz "emitter"
.balign {alignment}
1: .quad {pack} - 1b, {size}
.long 1, 0
"""

OTHER_NOTE = """
.section .note.emitter,"a",@note
.balign {alignment}
.long 5, 3, 1
.asciz "othr"
.balign {alignment}
.byte 1, 2, 3
"""

PAYLOAD = """
.section .rodata.{pack},"a"
.balign 64
{pack}: .incbin "{path}"
"""


def library_source(tmp_path: Path, packs: list[bytes], *, alignment: int = 4) -> str:
    """Return assembly of a library that holds packs, the first of which is emitter_pack."""
    text = '.section .note.GNU-stack,"",@progbits\n'
    text += OTHER_NOTE.format(alignment=alignment)
    for number, data in enumerate(packs):
        path = tmp_path / f"{number}.pack"
        path.write_bytes(data)
        text += NOTE.format(alignment=alignment, pack=f"pack{number}", size=len(data))
        text += PAYLOAD.format(pack=f"pack{number}", path=path)
    if packs:
        text += ".globl emitter_pack\n.type emitter_pack, @object\n.set emitter_pack, pack0\n"
        text += f".size emitter_pack, {len(packs[0])}\n"
    return text


def pack_of(name: str, value: int) -> bytes:
    package = Package()
    package.add_raw(name, bytes([value]) * 5000)
    return build_pack(package)


def link(tmp_path: Path, output: Path, packs: list[bytes], *options: str, alignment: int = 4) -> Path:
    source = tmp_path / f"{output.name}.s"
    source.write_text(library_source(tmp_path, packs, alignment=alignment))
    c_tools.build("gcc", str(output), "-shared", "-nostdlib", *options, str(source))
    return output


@pytest.fixture(scope="module", params=["gcc", "clang-14", "g++", "musl-gcc"])
def opener(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Build tests/data/c/library.c as strictly as the C library's own headers allow."""
    compiler = request.param
    options: tuple[str, ...] = ("-x", "c++", "-std=c++11") if compiler == "g++" else ("-std=c99",)
    if compiler != "musl-gcc":
        options += c_tools.sanitizers(compiler)
    output = str(tmp_path_factory.mktemp("opener") / "library")
    return c_tools.build(compiler, output, *c_tools.WARNINGS, *options, os.path.join(c_tools.DATA, "library.c"))


@pytest.mark.parametrize("alignment", [4, 8])
def test_a_path_is_opened_and_its_packs_are_found(tmp_path: Path, opener: str, alignment: int) -> None:
    one = link(tmp_path, tmp_path / "libone.so", [pack_of("one", 1)], alignment=alignment)
    two = link(tmp_path, tmp_path / "libtwo.so", [pack_of("two", 2), pack_of("three", 3)], alignment=alignment)
    done = c_tools.run(opener, str(one), str(two), str(one))
    assert (done.stdout, done.stderr, done.returncode) == ("1: one 1\n2: two 2\n1: one 1\n", "", 0)


def test_a_replaced_library_is_loaded_anew(tmp_path: Path, opener: str) -> None:
    """A descriptor's number is used again after each open: one library must not be taken for the next."""
    paths = [link(tmp_path, tmp_path / f"lib{n}.so", [pack_of(f"t{n}", n)]) for n in range(1, 4)]
    first, second, third = map(str, paths)
    done = c_tools.run(opener, first, second, "-", third, first, "-", "-", "-", second)
    assert done.stdout == "1: t1 1\n1: t2 2\n1: t3 3\n1: t1 1\n1: t2 2\n"
    assert done.returncode == 0


def test_a_bare_name_is_searched_for(tmp_path: Path, opener: str, monkeypatch: pytest.MonkeyPatch) -> None:
    link(tmp_path, tmp_path / "libone.so", [pack_of("one", 1)])
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    done = c_tools.run(opener, "libone.so", "libmissing.so")
    lines = done.stdout.splitlines()
    assert lines[0] == "1: one 1"
    assert lines[1].startswith("refused: ")
    assert "libmissing.so: " in lines[1]
    assert done.returncode == 0


def test_a_truncated_library_is_refused_with_numbers(tmp_path: Path, opener: str) -> None:
    path = link(tmp_path, tmp_path / "libone.so", [pack_of("one", 1)])
    data = path.read_bytes()
    phoff, phnum = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    headers = [struct.unpack_from("<IIQQQQQQ", data, phoff + 56 * number) for number in range(phnum)]
    end = max(header[2] + header[5] for header in headers if header[0] == 1)
    for size in (0, 3, 63, 64, phoff + 56 * phnum - 1, phoff + 56 * phnum, end - 1):
        cut = tmp_path / f"libcut{size}.so"
        cut.write_bytes(data[:size])
        done = c_tools.run(opener, str(cut))
        assert done.returncode == 0, size
        assert done.stdout.startswith(f"refused: {cut}: "), size
        expected = "not an ELF file" if size < 64 else "truncated"
        assert expected in done.stdout, size
    cut = tmp_path / "libcut.so"
    cut.write_bytes(data[: end - 1])
    assert f"the file has {end - 1}" in c_tools.run(opener, str(cut)).stdout
    cut.write_bytes(data[:end])  # section headers are not needed to run
    assert c_tools.run(opener, str(cut)).stdout == "1: one 1\n"


MACHINES = {
    "aarch64-linux-gnu-gcc": "AArch64 (e_machine 183, 64-bit, little-endian)",
    "s390x-linux-gnu-gcc": "S/390 (e_machine 22, 64-bit, big-endian)",
    "arm-linux-gnueabihf-gcc": "ARM (e_machine 40, 32-bit, little-endian)",
    "i686-linux-gnu-gcc": "i386 (e_machine 3, 32-bit, little-endian)",
    "riscv64-linux-gnu-gcc": "RISC-V (e_machine 243, 64-bit, little-endian)",
}


@pytest.mark.parametrize("compiler", MACHINES)
def test_another_machine_is_named(tmp_path: Path, opener: str, compiler: str) -> None:
    source = tmp_path / "a.c"
    source.write_text("const int emitter_pack = 1;\n")
    path = c_tools.build(compiler, str(tmp_path / "liba.so"), "-shared", "-nostdlib", "-fPIC", str(source))
    done = c_tools.run(opener, path)
    assert (
        done.stdout
        == f"refused: {path}: built for {MACHINES[compiler]}, this process is x86-64 (64-bit, little-endian)\n"
    )


def test_what_is_no_library_is_refused(tmp_path: Path, opener: str) -> None:
    (tmp_path / "text.so").write_text("INPUT(libone.so)\n" * 100)
    os.mkfifo(tmp_path / "pipe.so")
    source = tmp_path / "a.c"
    source.write_text("int main(void) { return 0; }\n")
    program = c_tools.build("gcc", str(tmp_path / "program"), "-no-pie", str(source))
    plain = link(tmp_path, tmp_path / "libplain.so", [])
    paths = [str(tmp_path / name) for name in ("text.so", "pipe.so", "missing.so", ".")]
    done = c_tools.run(opener, *paths, program, str(plain))
    assert done.returncode == 0
    for line, expected in zip(
        done.stdout.splitlines(),
        [
            "text.so: not an ELF file, or shorter than its header (a .pack is mapped, and opened by emitter_open)",
            "pipe.so: not a regular file",
            "missing.so: No such file or directory",
            ": not a regular file",
            "program: not a shared library (e_type is not ET_DYN)",
            "libplain.so: holds no pack: it exports no symbol emitter_pack",
        ],
        strict=True,
    ):
        assert line.startswith("refused: ")
        assert line.endswith(expected)


def test_what_dlopen_says_is_said_of_the_path(tmp_path: Path, opener: str) -> None:
    source = tmp_path / "a.c"
    source.write_text("extern int missing_symbol; int *emitter_pack = &missing_symbol;\n")
    path = c_tools.build("gcc", str(tmp_path / "liba.so"), "-shared", "-nostdlib", "-fPIC", str(source))
    done = c_tools.run(opener, path)
    assert done.stdout.startswith("refused: ")
    assert path in done.stdout
    assert "missing_symbol" in done.stdout
    assert "/proc/" not in done.stdout


def test_a_pack_that_is_refused_unloads_the_library(tmp_path: Path, opener: str) -> None:
    pack = bytearray(pack_of("one", 1))
    pack[60] ^= 1  # in the schema hash
    path = link(tmp_path, tmp_path / "libone.so", [bytes(pack)])
    done = c_tools.run(opener, str(path))
    assert done.stdout == f"refused: {path}: the bytes differ from those that were written\n"


def test_a_note_that_points_outside_is_not_followed(tmp_path: Path, opener: str) -> None:
    pack = pack_of("one", 1)
    source = tmp_path / "lying.s"
    text = library_source(tmp_path, [pack])
    for lie in (f"pack0 - 1b, {len(pack) + (1 << 30)}", f"pack0 - 1b + 0x10000000, {len(pack)}"):
        source.write_text(text.replace(f"pack0 - 1b, {len(pack)}", lie))
        path = c_tools.build("gcc", str(tmp_path / "liblying.so"), "-shared", "-nostdlib", str(source))
        done = c_tools.run(opener, path)
        assert done.stdout == f"refused: {path}: holds no .note.emitter that says where its pack is\n"


def test_a_message_is_cut_to_its_buffer_and_may_be_absent(tmp_path: Path) -> None:
    source = tmp_path / "a.c"
    source.write_text(
        '#define EMITTER_LIBRARY\n#include "emitter.h"\n'
        "int main(void) { emitter_library l; char m[8];\n"
        'if (emitter_library_open(&l, "/nowhere/lib.so", m, sizeof m) != EMITTER_LIBRARY_ERROR) return 1;\n'
        'if (strcmp(m, "/nowher") != 0) return 2;\n'
        'if (emitter_library_open(&l, "/nowhere/lib.so", NULL, 0) != EMITTER_LIBRARY_ERROR) return 3;\n'
        "emitter_library_close(&l);\n"
        "memset(&l, 0xaa, sizeof l);\n"
        'if (emitter_library_open(&l, NULL, m, sizeof m) != EMITTER_ARGUMENT || strcmp(m, "a null ") != 0) return 4;\n'
        "if (l.handle != NULL || l.symbol != NULL || l.reader.base != NULL || l.reader.tensor.count) return 5;\n"
        "emitter_reader r; memset(&r, 0xaa, sizeof r);\n"
        "if (emitter_library_pack(&l, 0, &r) != EMITTER_ARGUMENT || r.base != NULL || r.tensor.count) return 6;\n"
        "memset(&r, 0xaa, sizeof r);\n"
        "if (emitter_library_pack(NULL, 0, &r) != EMITTER_ARGUMENT || r.base != NULL || r.size != 0) return 7;\n"
        'if (emitter_library_open(NULL, "x", NULL, 0) != EMITTER_ARGUMENT) return 8;\n'
        "return emitter_library_pack(&l, 0, NULL) != EMITTER_ARGUMENT; }\n"
    )
    assert c_tools.run(c_tools.build("gcc", str(tmp_path / "a"), str(source))).returncode == 0
