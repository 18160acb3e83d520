"""Archives of every kind, as the archivers that made them list them, and what is wrong in an index."""

from __future__ import annotations

import os
import re
import struct
import subprocess
from typing import TYPE_CHECKING

import pytest

from emitter.errors import FormatError
from emitter.inspect import open_file
from emitter.inspect.archive import ArchiveFile
from emitter.inspect.view import View
from tests.c_tools import need
from tests.foreign_files import archive, compile_c, run_tool

if TYPE_CHECKING:
    from pathlib import Path

LONG = "a_member_with_a_long_name.o"
FORMS = ("gnu", "bsd", "darwin", "coff")
TRIPLES = {"gnu": "x86_64-linux-gnu", "bsd": "x86_64-linux-gnu", "darwin": "arm64-apple-macos11",
           "coff": "x86_64-windows-msvc"}  # fmt: skip


def _objects(folder: str, triple: str) -> list[str]:
    sources = {"a.o": "int a = 1; int also_a; extern int b;", LONG: "extern int a; int b(void) { return a; }"}
    return [compile_c(folder, triple, source, name) for name, source in sources.items()]


@pytest.fixture(scope="module", params=FORMS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, list[str]]:
    folder = str(tmp_path_factory.mktemp("archive"))
    objects = _objects(folder, TRIPLES[request.param])
    return request.param, archive(os.path.join(folder, "x.a"), objects, request.param), objects


def _bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _of(data: bytes) -> ArchiveFile:
    return ArchiveFile(View.of_bytes(data, "x.a"))


def test_members_are_the_files_that_went_in(made: tuple[str, str, list[str]]) -> None:
    form, path, objects = made
    with open_file(path) as artefact:
        members = list(artefact.members())
        assert [member.name for member in members] == [os.path.basename(one) for one in objects]
        for member, one in zip(members, objects, strict=True):
            data = member.view.read(0, member.view.size, "all")
            assert data.rstrip(b"\0\n") == _bytes(one).rstrip(b"\0\n")
            assert member.reader is not None
            assert not member.reader.report().faults
    assert _of(_bytes(path)).variant == {"darwin": "bsd"}.get(form, form)


def test_headers_say_what_llvm_ar_says(made: tuple[str, str, list[str]]) -> None:
    _, path, _ = made
    headers = [header for header in _of(_bytes(path)).headers() if not header.special]
    listed = re.findall(r"^(\S+) (\d+)/(\d+) +(\d+) ", run_tool("llvm-ar", "tvO", path), re.MULTILINE)
    assert [(one.ar_uid, one.ar_gid) for one in headers] == [(uid, gid) for _, uid, gid, _ in listed]
    assert {(one.ar_date, one.ar_uid, one.ar_gid, one.ar_mode) for one in headers} == {("0", "0", "0", "644")}
    # The offset that llvm-ar prints is that of the member's bytes.
    offsets = re.findall(r" 0x([0-9a-f]+)$", run_tool("llvm-ar", "tvO", path), re.MULTILINE)
    assert [one.offset for one in headers] == [int(one, 16) for one in offsets]


def test_the_index_is_that_of_llvm_nm(made: tuple[str, str, list[str]]) -> None:
    _, path, _ = made
    reader = _of(_bytes(path))
    names = {header.header_offset: header.name for header in reader.headers()}
    text = run_tool("llvm-nm", "--print-armap", path)
    expected = re.findall(r"^(\S+) in (\S+)$", text, re.MULTILINE)
    found = [(entry.name, names[entry.header_offset]) for entry in reader.index()]
    assert set(found) == set(expected)
    assert len(found) in (len(expected), 2 * len(expected))  # COFF has two indexes
    assert [str(fault) for fault in reader.index_faults()] == []


@pytest.mark.parametrize(("form", "index"), [("gnu", "/SYM64/"), ("darwin", "__.SYMDEF_64")])
def test_indexes_of_64_bits(form: str, index: str, tmp_path: Path) -> None:
    objects = _objects(str(tmp_path), TRIPLES[form])
    plain = _of(_bytes(archive(str(tmp_path / "x.a"), objects, form)))
    wide = _of(_bytes(archive(str(tmp_path / "y.a"), objects, form, SYM64_THRESHOLD="1")))
    assert [one.name for one in wide.indexes] == [index]
    assert [entry.name for entry in wide.index()] == [entry.name for entry in plain.index()]
    assert not list(wide.index_faults())


def test_archives_of_gnu_ar(tmp_path: Path) -> None:
    need("ar")
    objects = _objects(str(tmp_path), "x86_64-linux-gnu")
    for flags in ("rcsD", "rcsU", "rcS"):
        path = str(tmp_path / f"{flags}.a")
        subprocess.run(["ar", flags, path, *objects], check=True)
        reader = _of(_bytes(path))
        headers = [header for header in reader.headers() if not header.special]
        assert [header.name for header in headers] == [os.path.basename(one) for one in objects]
        assert [one.name for one in reader.indexes] == ([] if "S" in flags else ["/"])
        stamps = [header.ar_date for header in headers]
        expected = [str(int(os.stat(one).st_mtime)) for one in objects] if "U" in flags else ["0", "0"]
        assert stamps == expected
        modes = [header.ar_mode for header in headers]
        assert modes == ([f"{os.stat(one).st_mode:o}" for one in objects] if "U" in flags else ["644", "644"])


def test_a_thin_archive_names_its_members_and_is_no_pass(tmp_path: Path) -> None:
    objects = _objects(str(tmp_path), "x86_64-linux-gnu")
    path = str(tmp_path / "x.a")
    run_tool("llvm-ar", "--thin", "rcs", path, *objects)
    with open_file(path) as artefact:
        reader = artefact.reader
        assert isinstance(reader, ArchiveFile)
        assert reader.thin
        assert artefact.kind == "thin archive"
        names = [header.name for header in reader.headers() if not header.special]
        assert [os.path.basename(name) for name in names] == [os.path.basename(one) for one in objects]
        assert not list(reader.index_faults())
        with pytest.raises(FormatError, match="holds only the names"):
            list(artefact.members())


def test_each_member_has_its_own_reader(tmp_path: Path) -> None:
    objects = [compile_c(str(tmp_path), triple, f"int {form}_one;", f"{form}.o") for form, triple in TRIPLES.items()]
    text, inner, path = tmp_path / "notes.txt", str(tmp_path / "inner.a"), str(tmp_path / "x.a")
    text.write_text("no object")
    run_tool("llvm-ar", "--format=gnu", "rcS", inner, objects[0])
    need("ar")
    subprocess.run(["ar", "rcSD", path, *objects, str(text), inner], check=True)
    with open_file(path) as artefact:
        kinds = {one.name: one.kind for one in artefact.members()}
        assert kinds == {
            "gnu.o": "ELF relocatable object", "bsd.o": "ELF relocatable object", "darwin.o": "Mach-O object",
            "coff.o": "COFF object", "notes.txt": "unknown", "inner.a": "archive",
        }  # fmt: skip
        assert [one.name for one in artefact.objects()][-2:] == ["notes.txt", "gnu.o"]


def test_an_index_that_differs_from_the_members_is_told(tmp_path: Path) -> None:
    objects = _objects(str(tmp_path), "x86_64-linux-gnu")
    data = bytearray(_bytes(archive(str(tmp_path / "x.a"), objects)))
    (count,) = struct.unpack_from(">I", data, 68)
    names = 72 + 4 * count
    assert data[names : names + 2] == b"a\0"
    data[names] = ord("z")
    messages = [str(fault) for fault in _of(bytes(data)).index_faults()]
    assert any("'a.o' defines 'a': expected in the index" in one for one in messages)
    assert any("'a.o' does not define 'z': expected not in the index" in one for one in messages)
    struct.pack_into(">I", data, 72, 4711)
    assert any("'z' leads to no member" in str(fault) for fault in _of(bytes(data)).index_faults())


HEADER = b"a.o/            0           0     0     644     4         `\n"
BROKEN = {
    "no end of the header": (HEADER[:58] + b"xx" + b"1234", "not a member header"),
    "header cut off": (HEADER[:40], "a member header at offset 0x8"),
    "size beyond the end": (HEADER.replace(b"4         `", b"5         `") + b"1234", "the member at 0x8"),
    "size is no number": (HEADER.replace(b"4         `", b"4x        `") + b"1234", "ar_size is not a decimal"),
    "size is negative": (HEADER.replace(b"4         `", b"-4        `") + b"1234", "ar_size is not a decimal"),
    "no table of names": (b"/7  " + HEADER[4:] + b"1234", "not in the table of names"),
    "long name longer than the member": (b"#1/5" + HEADER[4:] + b"1234", "the name is too long"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_archive_is_an_error(name: str) -> None:
    body, message = BROKEN[name]
    with pytest.raises(FormatError, match=re.escape(message)):
        list(_of(b"!<arch>\n" + body).members())


def _indexed(name: bytes, body: bytes) -> ArchiveFile:
    header = name.ljust(16) + b"0           0     0     0       " + str(len(body)).encode().ljust(10) + b"`\n"
    return _of(b"!<arch>\n" + header + body + b"\n" * (len(body) & 1))


INDEXES = {
    "count beyond the end": (b"/", struct.pack(">I", 1000), "does not fit"),
    "giant count": (b"/", struct.pack(">I", 0xFFFFFFFF), "too many symbols"),
    "giant count of 64 bits": (b"/SYM64/", struct.pack(">Q", 1 << 63), "too many symbols"),
    "names that are missing": (b"/", struct.pack(">3I", 2, 8, 8) + b"a\0b", "names of the index are missing"),
    "size of ranlib": (b"__.SYMDEF", struct.pack("<I", 7) + bytes(8), "the size of the index"),
    "name outside": (b"__.SYMDEF", struct.pack("<4I", 8, 9, 8, 4) + b"a\0\0\0", "a name of the index"),
    "too short": (b"__.SYMDEF", b"\0", "the size of the index"),
}


@pytest.mark.parametrize("name", INDEXES)
def test_a_broken_index_is_an_error(name: str) -> None:
    member, body, message = INDEXES[name]
    with pytest.raises(FormatError, match=message):
        list(_indexed(member, body).index())


@pytest.mark.parametrize("order", ["<", ">"])
def test_indexes_of_either_byte_order_are_read(order: str) -> None:
    body = struct.pack(f"{order}4I", 8, 0, 8, 4) + b"abc\0"
    assert [(entry.name, entry.header_offset) for entry in _indexed(b"__.SYMDEF", body).index()] == [("abc", 8)]


def test_a_member_of_5_gib_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.a"
    with path.open("wb") as file:
        file.write(b"!<arch>\n" + HEADER.replace(b"4         `", b"5368709120`") + b"\x7fELF")
        file.truncate(68 + 5368709120)
    with open_file(path) as artefact:
        (member,) = (artefact.reader or _of(b"")).members()
        assert member.view.size == 5368709120


def test_libraries_of_the_system_are_right() -> None:
    paths = ("/usr/lib/x86_64-linux-gnu/libm-2.36.a", "/usr/x86_64-w64-mingw32/lib/libmingw32.a")
    found = [path for path in paths if os.path.exists(path)]
    if not found:
        pytest.skip("the C library's archives are not installed")
    for path in found:
        with open_file(path) as artefact:
            assert isinstance(artefact.reader, ArchiveFile)
            assert not list(artefact.reader.index_faults())
            assert all(one.reader is not None for one in artefact.members())
