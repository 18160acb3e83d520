"""emitter.h and libraries whose payloads are in a file beside them."""

from __future__ import annotations

import hashlib
import os
import struct
from typing import TYPE_CHECKING

import pytest

import emitter
from emitter import Package
from emitter.pack import format as fmt
from tests import c_tools
from tests.c_pack import Parts
from tests.support import build_pack
from tests.unit.test_c_library import link

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="module", params=["gcc", "clang-14", "musl-gcc"])
def opener(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    compiler = request.param
    options = () if compiler == "musl-gcc" else c_tools.sanitizers(compiler)
    source = os.path.join(c_tools.DATA, "library.c")
    output = str(tmp_path_factory.mktemp("opener") / "library")
    return c_tools.build(compiler, output, "-std=c99", "-O2", *c_tools.WARNINGS, *options, source)


def package_of(value: int, name: str = "one") -> Package:
    package = Package()
    package.add_raw(name, bytes([value]) * 5000)
    return package


def write(path: Path, value: int, name: str = "one", *, pin: bool = False) -> Path:
    """Emit a library with one tensor whose bytes are `value`; its sidecar is the path with another suffix."""
    emitter.emit(package_of(value, name), path, target="x86_64-linux-gnu", sidecar=True, pin=pin)
    return path


def index_pack(library: Path) -> bytes:
    data = library.read_bytes()
    start = data.index(fmt.MAGIC)
    (size,) = struct.unpack_from("<Q", data, start + fmt.HEADER.offset("total_size"))
    return data[start : start + size]


def refusal(opener: str, library: Path | str, directory: Path | None = None) -> str:
    done = (
        c_tools.run(opener, str(library))
        if directory is None
        else c_tools.run("env", "-C", str(directory), opener, str(library))
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("refused: ")
    return done.stdout.removeprefix("refused: ").rstrip("\n")


def opens(opener: str, *libraries: Path | str, directory: Path) -> list[str]:
    done = c_tools.run("env", "-C", str(directory), opener, *map(str, libraries))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize("pin", [False, True])
def test_it_opens_as_any_other_library(opener: str, tmp_path: Path, pin: bool) -> None:
    folder = tmp_path / "with blanks ü"
    folder.mkdir()
    one, two = (write(folder / f"lib{name}.so", value, pin=pin) for name, value in (("one", 1), ("two", 2)))
    assert opens(opener, one, two, one, "-", "-", two, directory=tmp_path) == [
        "1: one 1",
        "1: one 2",
        "1: one 1",
        "1: one 2",
    ]
    assert opens(opener, f"{folder.name}/libone.so", directory=tmp_path) == ["1: one 1"]
    assert opens(opener, "./libone.so", directory=folder) == ["1: one 1"]


def test_a_bare_name_is_searched_for(opener: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "libone.so", 1)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert opens(opener, "libone.so", "libone.so", directory=tmp_path.parent) == ["1: one 1"] * 2
    # The system's loader knows the library by its SONAME, and by the name under which the first call had it opened.
    assert opens(opener, tmp_path / "libone.so", "libone.so", directory=tmp_path.parent) == ["1: one 1"] * 2


def test_weights_are_exchanged(opener: str, tmp_path: Path) -> None:
    write(tmp_path / "libone.so", 1)
    write(tmp_path / "libnewer.so", 9)
    os.replace(tmp_path / "libnewer.pack", tmp_path / "libone.pack")
    assert opens(opener, "./libone.so", directory=tmp_path) == ["1: one 9"]


def test_the_folder_of_the_path_comes_before_that_of_the_file(opener: str, tmp_path: Path) -> None:
    real, link_folder = tmp_path / "real", tmp_path / "links"
    real.mkdir()
    link_folder.mkdir()
    write(real / "libone.so", 1)
    (link_folder / "name.so").symlink_to("../real/libone.so")
    assert opens(opener, "links/name.so", directory=tmp_path) == ["1: one 1"]
    write(tmp_path / "libone.so", 2)
    os.replace(tmp_path / "libone.pack", link_folder / "libone.pack")
    assert opens(opener, "links/name.so", directory=tmp_path) == ["1: one 2"]
    (link_folder / "libone.pack").write_bytes(b"wrong")  # the first that is there is the one
    assert refusal(opener, link_folder / "name.so") == f"{link_folder}/libone.pack: not a pack, or truncated"


def test_what_does_not_belong_is_refused(opener: str, tmp_path: Path) -> None:
    plain = write(tmp_path / "libplain.so", 1)
    pinned = write(tmp_path / "libpin.so", 1, pin=True)
    sidecar = plain.with_suffix(".pack")
    good = sidecar.read_bytes()

    def with_sidecar(data: bytes, library: Path = plain) -> str:
        path = library.with_suffix(".pack")
        path.write_bytes(data)
        message = refusal(opener, library)
        assert message.startswith(f"{path}: ")
        return message.removeprefix(f"{path}: ")

    other = build_pack(package_of(1, "another"))
    assert with_sidecar(other) == "the tensors have other names, types or shapes than expected"
    assert with_sidecar(build_pack(package_of(1), "big")) == "the pack was made for a machine of the other byte order"
    assert with_sidecar(good[:-1]) == "the pack is longer than the memory that was given"
    assert with_sidecar(b"") == "not a pack, or truncated"
    assert with_sidecar(b"x" * 5000) == "not a pack, or damaged by a transfer in text mode"
    assert with_sidecar(index_pack(plain)).startswith("the payloads are in another file, its sidecar")
    sidecar.unlink()
    sidecar.mkdir()
    assert refusal(opener, plain) == f"{sidecar}: not a regular file"
    sidecar.rmdir()
    os.mkfifo(sidecar)
    assert refusal(opener, plain) == f"{sidecar}: not a regular file"
    sidecar.unlink()
    assert refusal(opener, plain) == f"{plain}: its payloads are in another file, which is not there: {sidecar}"
    for data, words in (
        (good[:-1] + b"x", "not the file that the library was made with: its SHA-256 differs"),
        (good + b"x", f"not the file that the library was made with: {len(good) + 1} bytes, not {len(good)}"),
    ):
        assert with_sidecar(data, pinned) == words


def _set(field: str, value: int) -> Callable[[Parts], None]:
    return lambda parts: parts.set(fmt.SIDECAR, 0, field, value)


def _name(text: bytes) -> Callable[[Parts], None]:
    def change(parts: Parts) -> None:
        at = parts.get(fmt.SIDECAR, 0, "name_offset")
        parts.bytes[at : at + len(text) + 1] = text + b"\0"
        parts.set(fmt.SIDECAR, 0, "name_length", len(text))

    return change


@pytest.mark.parametrize(
    "change",
    [
        *(
            _name(name)
            for name in (b"..", b".", b"a/lib.pack", b"..\\lib.pack", b"C:lib.pack", b"a\0b.pack", b"/lib.pack")
        ),
        _set("name_length", 0),
        _set("name_length", 1 << 16),
        _set("name_offset", 0),
        _set("name_offset", 0xFFFFFFFF),
        _set("flags", 2),
        _set("size", 1),
    ],
)
def test_a_record_that_breaks_a_rule(tmp_path: Path, change: Callable[[Parts], None]) -> None:
    library = write(tmp_path / "lib.so", 1)
    parts = Parts(index_pack(library))
    change(parts)
    linked = link(tmp_path, tmp_path / "liblinked.so", [parts.sealed()])
    program = c_tools.build(
        "gcc", str(tmp_path / "library"), *c_tools.sanitizers("gcc"), os.path.join(c_tools.DATA, "library.c")
    )
    message = refusal(program, linked)
    assert message == f"{linked}: its record of the file that holds the payloads breaks a rule of the format"


def test_an_index_pack_is_complete(tmp_path: Path) -> None:
    """Its checksum is compared before the file that it names is opened, and it is all index."""
    library = write(tmp_path / "lib.so", 1)
    program = c_tools.build(
        "gcc", str(tmp_path / "library"), *c_tools.sanitizers("gcc"), os.path.join(c_tools.DATA, "library.c")
    )
    damaged = Parts(index_pack(library))
    damaged.sealed()
    damaged.set(fmt.SIDECAR, 0, "flags", 1)
    longer = Parts(index_pack(library))
    longer.bytes += bytes(64)
    longer.set_header("total_size", len(longer.bytes))
    for pack in (bytes(damaged.bytes), longer.sealed()):
        linked = link(tmp_path, tmp_path / "liblinked.so", [pack])
        assert refusal(program, linked).endswith(
            "its record of the file that holds the payloads breaks a rule of the format"
        )


def test_sha256_of_every_length(tmp_path: Path) -> None:
    source = tmp_path / "a.c"
    source.write_text(
        '#define EMITTER_LIBRARY\n#include "emitter.h"\n'
        "int main(void) { unsigned char data[300], digest[32]; size_t size, i;\n"
        "for (i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 7);\n"
        "for (size = 0; size <= sizeof data; size++) { emitter0_sha256_(data, size, digest);\n"
        'for (i = 0; i < 32; i++) printf("%02x", digest[i]); printf("\\n"); } return 0; }\n'
    )
    program = c_tools.build("gcc", str(tmp_path / "a"), *c_tools.sanitizers("gcc"), str(source))
    data = bytes(i * 7 & 255 for i in range(300))
    assert c_tools.run(program).stdout.split() == [hashlib.sha256(data[:size]).hexdigest() for size in range(301)]


def test_without_the_library_it_is_refused_by_name(tmp_path: Path) -> None:
    """The part of emitter.h that reads memory alone cannot follow: it says so, and not that it is too old."""
    library = write(tmp_path / "lib.so", 1)
    pack = index_pack(library)
    (tmp_path / "pack.h").write_text(
        f"static const unsigned char pack[] __attribute__((aligned(64))) = {{{','.join(map(str, pack))}}};"
    )
    source = tmp_path / "a.c"
    source.write_text(
        '#include "emitter.h"\n#include "pack.h"\n#include <stdio.h>\n'
        "int main(void) { emitter_reader r; emitter_status s = emitter_open(&r, pack, sizeof pack);\n"
        'printf("%d %d %u ", s == EMITTER_SIDECAR, r.base == 0, (unsigned)r.unknown_features);\n'
        "puts(emitter_status_string(s));\n"
        "return emitter_count(&r) != 0; }\n"
    )
    program = c_tools.build("gcc", str(tmp_path / "a"), "-std=c99", *c_tools.sanitizers("gcc"), str(source))
    done = c_tools.run(program)
    assert done.returncode == 0
    assert done.stdout == "1 1 1 the payloads are in another file, its sidecar: open the library instead of its pack\n"
