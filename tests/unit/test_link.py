"""Linkers: which is taken and why, what they are told, and the libraries, objects and names that come together."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from emitter import emit, load, targets
from emitter.errors import EmitterError, InputError, TargetError, UsageError
from emitter.inspect import open_file
from emitter.inspect.macho import MachOFile
from emitter.link import find
from emitter.link.find import find_linker, linkers
from emitter.link.libraries import library_of, offers
from emitter.link.objects import CodeObject
from emitter.link.resolve import needed_members
from emitter.macho import packed_version
from tests import code_packages
from tests.c_tools import need
from tests.code_packages import package

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("code_cache")

IR = f"{code_packages.IR}define void @other() {{\n  ret void\n}}\n@counter = global i32 3\n"


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that is the whole path, and hide ziglang."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(find, "_zig", lambda: None)
    return folder


def tool(folder: Path, name: str, says: str = "") -> str:
    """Make a program that prints a line."""
    path = folder / name
    path.write_text(f"#!{sys.executable}\nprint({says!r})\n")
    path.chmod(0o755)
    return str(path)


def test_lld_goes_before_gnu_ld_and_ziglang(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = targets.load("aarch64-linux-gnu")
    said: list[str] = []
    monkeypatch.setattr(find, "_zig", lambda: "/zig")
    assert find_linker(target, None, said.append).command == ("/zig", "ld.lld")
    assert "no ld.lld on the path; no aarch64-linux-gnu-ld on the path" in said[-1]
    gnu = tool(tools, "aarch64-linux-gnu-ld")
    assert find_linker(target, None, said.append) == ("gnu", (gnu,), gnu)
    versioned = tool(tools, "ld.lld-17")
    assert find_linker(target, None, said.append) == ("lld", (versioned,), versioned)
    lld = tool(tools, "ld.lld")
    assert [one.command for one in linkers(target)] == [(lld,), (gnu,), ("/zig", "ld.lld")]
    tool(tools, "ld")  # the host's, which links for no other CPU
    assert len(list(linkers(target))) == 3
    apple = targets.load("arm64-apple-ios")
    assert find_linker(apple, None, said.append) == ("zig", ("/zig", "cc"), "cc of ziglang")
    ld64 = tool(tools, "ld64.lld-16")
    assert [one.command for one in linkers(apple)] == [(ld64,), ("/zig", "cc")]


@pytest.mark.parametrize(("version", "taken"), [("Debian LLD 14.0.6", False), ("LLD 18.1.0", True), ("", False)])
def test_an_lld_that_is_too_old_is_passed_over(version: str, taken: bool, tools: Path) -> None:
    tool(tools, "ld.lld", version)
    gnu = tool(tools, "s390x-linux-gnu-ld")
    said: list[str] = []
    linker = find_linker(targets.load("s390x-linux-gnu"), None, said.append)
    assert (linker.flavour == "lld") == taken
    if not taken:
        assert linker.command == (gnu,)
        assert "does not link for s390x-linux-gnu" in said[0]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("aarch64-linux-gnu", r"no linker.*pip install ziglang.*package lld.*binutils-aarch64-linux-gnu"),
        ("x86_64-windows-gnu", r"no linker.*ziglang.*lld-link.*binutils-x86-64-w64-mingw32"),
        ("arm64-apple-macos", r"no linker.*ziglang.*ld64\.lld.*an archive needs none"),
    ],
)
@pytest.mark.usefixtures("tools")
def test_without_a_linker_the_error_says_what_would_give_one(target: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        find_linker(targets.load(target), None, lambda _line: None)


@pytest.mark.parametrize(
    ("name", "flavour", "target"),
    [
        ("mold", "mold", "x86_64-linux-gnu"),
        ("ld.mold", "mold", "x86_64-linux-gnu"),
        ("ld.lld-19", "lld", "x86_64-linux-gnu"),
        ("riscv64-unknown-linux-gnu-ld.bfd", "gnu", "riscv64-linux-gnu"),
        ("ld64.lld-14", "ld64", "arm64-apple-macos"),
        ("lld-link-16", "link", "x86_64-windows-msvc"),
        ("x86_64-w64-mingw32-ld", "gnu", "x86_64-windows-gnu"),
        ("lld-link", None, "x86_64-linux-gnu"),
        ("ld64.lld", None, "x86_64-linux-gnu"),
        ("mold", None, "arm64-apple-macos"),
        ("gcc", None, "x86_64-linux-gnu"),
    ],
)
def test_a_linker_is_known_by_its_name(name: str, flavour: str | None, target: str, tools: Path) -> None:
    path = tool(tools, name)
    for named in (name, path):
        if flavour is None:
            with pytest.raises(UsageError, match=f"not a linker for this target.*called {name}"):
                find_linker(targets.load(target), named, lambda _line: None)
        else:
            assert find_linker(targets.load(target), named, lambda _line: None) == (flavour, (path,), path)
    with pytest.raises(UsageError, match="no such program"):
        find_linker(targets.load(target), "ld.none", lambda _line: None)
    with pytest.raises(UsageError, match="ziglang"):
        find_linker(targets.load(target), "zig", lambda _line: None)


def test_the_words_of_a_linker_reach_the_user_and_the_old_file_stays(tools: Path, tmp_path: Path) -> None:
    liar = tools / "ld.lld"
    liar.write_text(f"#!{sys.executable}\nimport sys\nprint('cannot do it', file=sys.stderr)\nsys.exit(3)\n")
    liar.chmod(0o755)
    output = tmp_path / "libnet.so"
    output.write_bytes(b"old")
    with pytest.raises(InputError, match=r"refuses \(exit status 3\): cannot do it"):
        emit(package(IR), output, target="x86_64-linux-gnu", name="net")
    liar.write_text(f"#!{sys.executable}\nprint('error: undefined symbol: foo')\nraise SystemExit(1)\n")
    with pytest.raises(InputError, match="undefined symbols: found foo"):
        emit(package(IR), output, target="x86_64-linux-gnu", name="net")
    tool(tools, "ld.lld")
    with pytest.raises(EmitterError, match="written nothing"):
        emit(package(IR), output, target="x86_64-linux-gnu", name="net")
    # One that writes something else than it was asked for.
    liar.write_text(
        f"#!{sys.executable}\nimport shutil, sys\na = sys.argv\nshutil.copy(a[-3], a[a.index('-o') + 1])\n"  # an object
    )
    with pytest.raises(EmitterError, match="something else than was asked for"):
        emit(package(IR), output, target="x86_64-linux-gnu", name="net")
    assert output.read_bytes() == b"old"
    assert {entry.name for entry in tmp_path.iterdir()} == {"bin", "cache", "libnet.so"}


def exports(path: Path) -> set[str]:
    """Return what a library exports, by nm."""
    need("nm")
    done = subprocess.run(["nm", "-D", "--defined-only", str(path)], check=True, capture_output=True, text=True)
    return {line.split()[2].partition("@")[0] for line in done.stdout.splitlines() if line.split()[1] != "A"}


OWN = {"net", "net_size", "emitter_pack"}


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, {"at", "other"} | OWN),
        ({"export": ["at"]}, {"at"} | OWN),
        ({"export": ["at", "counter"]}, {"at", "counter"} | OWN),
        ({"tensor_symbols": True}, {"at", "other", "net_t_w"} | OWN),
        ({"export": ["at", "net_t_w"]}, {"at", "net_t_w"} | OWN),
    ],
)
def test_what_is_exported(options: dict[str, Any], wanted: set[str], tmp_path: Path) -> None:
    output = tmp_path / "libnet.so"
    for linker in linkers(targets.load("x86_64-linux-gnu")):
        named = "zig" if "ziglang" in linker.name else linker.command[0]
        emit(package(IR), output, target="x86_64-linux-gnu", name="net", linker=named, **options)
        assert exports(output) == wanted, linker.name


@pytest.mark.parametrize("target", ["arm64-apple-macos12.0", "x86_64-apple-macos", "arm64-apple-ios15.0-simulator"])
def test_what_is_exported_for_apple(target: str, tmp_path: Path) -> None:
    """By every linker: the names that are asked for, one that the program defines, the versions of the target."""
    resolved = targets.resolve(target).target
    output = tmp_path / "libnet.dylib"
    code = IR + "declare void @given()\ndefine void @call() {\n call void @given()\n ret void\n}\n"
    found = list(linkers(resolved))
    if not found:
        pytest.skip("no linker for Apple's systems is installed")
    for linker in found:
        named = "zig" if "ziglang" in linker.name else linker.command[0]
        options: dict[str, Any] = {
            "target": target,
            "name": "net",
            "linker": named,
            "install_name": "@rpath/a, b.dylib",
        }
        with pytest.raises(InputError, match="given"):
            emit(package(code), output, **options)
        for export in ([], ["at"]):
            emit(package(code), output, allow_undefined=["given"], export=export, **options)
            with open_file(str(output)) as artefact:
                assert isinstance(artefact.reader, MachOFile)
                names = {one.name for one in artefact.reader.exports()} - {"___dso_handle", "__mh_dylib_header"}
                functions = {"_at"} if export else {"_at", "_other", "_call"}
                assert names == {"_net", "_net_size", "_emitter_pack", *functions}, linker.name
                assert artefact.reader.install_name == "@rpath/a, b.dylib"
                (version,) = artefact.reader.build_versions
                facts = resolved.macho
                assert facts is not None
                assert (version.platform, version.minos) == (facts.platform, packed_version(facts.minos)), linker.name
            with load(output) as library:
                assert library["w"].tolist() == list(range(12))


def test_a_version_script_of_the_users_own(tmp_path: Path) -> None:
    script = tmp_path / "v.map"
    script.write_text("NET_1.0 { global: at; net; local: *; };\n")
    output = tmp_path / "libnet.so"
    need("ld.lld", "readelf")
    emit(package(IR), output, target="x86_64-linux-gnu", name="net", version_script=str(script), linker="ld.lld")
    assert exports(output) == {"at", "net"}
    shown = subprocess.run(["readelf", "-VW", str(output)], check=True, capture_output=True, text=True).stdout
    assert "NET_1.0" in shown


def test_a_symbol_may_be_left_to_the_program(tmp_path: Path) -> None:
    code = IR + "declare void @given()\ndefine void @call() {\n call void @given()\n ret void\n}\n"
    output = tmp_path / "libnet.so"
    with pytest.raises(InputError, match=r"given.*--allow-undefined"):
        emit(package(code), output, target="x86_64-linux-gnu", name="net")
    for linker in linkers(targets.load("x86_64-linux-gnu")):
        named = "zig" if "ziglang" in linker.name else linker.command[0]
        emit(package(code), output, target="x86_64-linux-gnu", name="net", allow_undefined=["given"], linker=named)
        with load(output) as library:
            assert library["w"].tolist() == list(range(12))


def test_objects_archives_and_real_libraries_are_linked(tmp_path: Path) -> None:
    """The IR calls an object, which calls a member of an archive, which calls a shared library."""
    need("gcc", "ar", "readelf")
    code = IR + "declare i32 @one()\ndefine i32 @call() {\n %v = call i32 @one()\n ret i32 %v\n}\n"
    sources = {
        "one": "int two(void); int one(void) { return two() + 1; }",
        "two": "int three(void); int two(void) { return three() + 1; }",
        "unused": "int nowhere(void); int unused(void) { return nowhere(); }",
        "three": "int three(void) { return 40; }",
    }
    for name, text in sources.items():
        command = ["gcc", "-O1", "-fPIC", "-fvisibility=default", "-x", "c", "-", "-c", "-o", f"{name}.o"]
        subprocess.run(command, input=text, text=True, check=True, cwd=tmp_path)
    subprocess.run(["ar", "rcs", "libtwo.a", "two.o", "unused.o"], check=True, cwd=tmp_path)
    subprocess.run(
        ["gcc", "-shared", "-o", "libthree.so", "three.o", "-Wl,-soname,libthree.so"], check=True, cwd=tmp_path
    )
    made = package(code, tmp_path / "one.o", tmp_path / "libtwo.a")
    output = tmp_path / "libnet.so"
    with pytest.raises(InputError, match="found three"):
        emit(made, output, target="x86_64-linux-gnu", name="net")
    emit(made, output, target="x86_64-linux-gnu", name="net", libs=["three"], lib_dirs=[str(tmp_path)])
    assert exports(output) == {"at", "other", "call", "one"} | OWN
    if targets.resolve("native").target.name == "x86_64-linux-gnu":
        program = (
            f"import ctypes\nctypes.CDLL({str(tmp_path / 'libthree.so')!r})\nprint(ctypes.CDLL({str(output)!r}).call())"
        )
        done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
        assert done.stdout == "42\n"
    archive = tmp_path / "libnet.a"
    emit(made, archive, target="x86_64-linux-gnu", name="net")
    listed = subprocess.run(["ar", "t", str(archive)], check=True, capture_output=True, text=True).stdout.split()
    assert listed == ["net.o", "net_code.o", "net_code1.o", "net_code2.o"]  # without the member that nothing asks for


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("aarch64-linux-gnu", "the machine of this object is not that of aarch64-linux-gnu"),
        ("x86_64-windows-msvc", "the format of this object is not that of x86_64-windows-msvc"),
        ("arm64-apple-macos", "the format of this object"),
    ],
)
def test_objects_of_another_platform_are_refused(target: str, message: str, tmp_path: Path) -> None:
    emit(package(), tmp_path / "d.o", target="x86_64-linux-gnu")
    emit(package(), tmp_path / "d.a", target="x86_64-linux-gnu")
    for name in ("d.o", "d.a"):
        output = tmp_path / f"x{targets.load(target).archive_suffix}"
        with pytest.raises(InputError, match=message):
            emit(package(tmp_path / name), output, target=target, name="net")


@pytest.mark.parametrize(
    ("target", "flags", "message"),
    [
        (
            "armv7-linux-gnueabihf",
            ["--target=arm-linux-gnueabihf", "-mfloat-abi=softfp"],
            "hard float, found soft float",
        ),
        ("armv7-linux-gnueabihf", ["--target=arm-linux-gnueabihf", "-mfloat-abi=hard"], ""),
        ("armv7-linux-androideabi", ["--target=armv7-linux-androideabi21", "-mfloat-abi=softfp"], ""),
        ("riscv64-linux-gnu", ["--target=riscv64-linux-gnu", "-march=rv64imac", "-mabi=lp64"], "lp64d, found lp64"),
        ("riscv64-linux-gnu", ["--target=riscv64-linux-gnu"], ""),
    ],
)
def test_objects_of_another_abi_are_refused(target: str, flags: list[str], message: str, tmp_path: Path) -> None:
    need("clang")
    source = "float twice(float x) { return x + x; }"
    command = ["clang", *flags, "-O1", "-fPIC", "-x", "c", "-", "-c", "-o", "abi.o"]
    subprocess.run(command, input=source, text=True, check=True, cwd=tmp_path)
    output = tmp_path / "x.a"
    if message:
        with pytest.raises(InputError, match=f"other registers.*expected {message}"):
            emit(package(tmp_path / "abi.o"), output, target=target, name="net")
    else:
        emit(package(tmp_path / "abi.o"), output, target=target, name="net")


def test_a_broken_object_is_refused(tmp_path: Path) -> None:
    emit(package(), tmp_path / "d.o", target="x86_64-linux-gnu")
    whole = (tmp_path / "d.o").read_bytes()
    for size in (70, len(whole) // 2, len(whole) - 1):
        with pytest.raises(EmitterError):
            emit(package(whole[:size]), tmp_path / "x.a", target="x86_64-linux-gnu", name="net")


def test_members_are_chosen_as_linkers_choose_them() -> None:
    def one(path: str, member: bool, defined: str, undefined: str) -> CodeObject:
        return CodeObject(path, b"", member, frozenset(), frozenset(defined), frozenset(undefined))

    code = one("code", False, "a", "b")
    first, second, third = one("1", True, "c", ""), one("2", True, "b", "c"), one("3", True, "z", "b")
    assert needed_members([first, second, third, code]) == [code, second, first]
    assert needed_members([first, third]) == [first, third]
    assert needed_members([code]) == [code]


@pytest.mark.parametrize("name", sorted(targets.names()))
def test_the_c_library_of_each_platform_is_known(name: str) -> None:
    target = targets.load(name)
    if target.image_suffix is None:
        assert library_of(target, "m") is None
        return
    library = library_of(target, "m")
    assert library is not None
    assert {"exp", "tanh", "fmaf"} <= library.offers
    assert (offers(target, "exp"), offers(target, "nosuch")) == ("m", None)


@pytest.mark.parametrize("target", ["x86_64-windows-gnu", "i686-windows-gnu"])
def test_ucrtbase_has_what_is_offered(target: str) -> None:
    """A DLL that wants a name which is not there cannot be loaded: MinGW's import library knows them all."""
    cpu = target.partition("-")[0]
    path = f"/usr/{cpu}-w64-mingw32/lib/libucrtbase.a"
    if not os.path.exists(path):
        pytest.skip(f"MinGW for {cpu} is not installed")
    need(f"{cpu}-w64-mingw32-nm")
    shown = subprocess.run([f"{cpu}-w64-mingw32-nm", path], check=False, capture_output=True, text=True).stdout
    prefix = "__imp_" + targets.load(target).symbol_prefix
    real = {line.split()[-1].removeprefix(prefix) for line in shown.splitlines() if " I __imp_" in line}
    assert len(real) > 1000
    for letters in ("m", "c", "ucrt"):
        library = library_of(targets.load(target), letters)
        assert library is not None and not {one for one in library.offers - real if not one.startswith("__aeabi")}
    assert offers(targets.load(target), "expf") == ("m" if cpu == "x86_64" else None)


@pytest.mark.parametrize("cpu", ["x86_64-linux-gnu", "arm-linux-gnueabihf", "aarch64-linux-gnu"])
def test_libgcc_s_has_what_is_offered(cpu: str) -> None:
    places = [f"/usr/{cpu}/lib/libgcc_s.so.1", f"/lib/{cpu}/libgcc_s.so.1"]
    path = next(filter(os.path.exists, places), None)
    if path is None:
        pytest.skip(f"there is no libgcc_s.so.1 for {cpu}")
    need("nm")
    shown = subprocess.run(["readelf", "--dyn-syms", "-W", path], check=True, capture_output=True, text=True).stdout
    library = library_of(targets.load("armv7-linux-gnueabihf" if "arm" in cpu else "x86_64-linux-gnu"), "gcc_s")
    assert library is not None
    real = {word.partition("@")[0] for word in shown.split()}
    assert not {one for one in library.offers - real if "arm" in cpu or not one.startswith("__aeabi")}


@pytest.mark.skipif(os.name == "nt", reason="ELF libraries of the host")
def test_the_stand_in_offers_what_the_real_library_has() -> None:
    """The names that -l m and -l c promise are in the C library of this machine."""
    import ctypes.util

    target = targets.resolve("native").target
    if target.version_kind != "glibc":
        pytest.skip("this machine's C library is not glibc")
    for letters in ("m", "c"):
        library = library_of(target, letters)
        assert library is not None
        real = ctypes.CDLL(library.name)
        missing = [
            name for name in sorted(library.offers) if not name.startswith("__aeabi") and not hasattr(real, name)
        ]
        assert missing == []


def test_the_linker_is_not_asked_twice_for_a_stream(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as stream, pytest.raises(UsageError, match="stream takes no output of a linker"):
        emit(package(IR), "libnet.so", target="x86_64-linux-gnu", name="net", to=stream)
    with (tmp_path / "out.a").open("wb") as stream:
        emit(package(IR), "libnet.a", target="x86_64-linux-gnu", name="net", to=stream)
    assert shutil.which("ar") is None or subprocess.run(["ar", "t", str(tmp_path / "out.a")], check=True)


def test_a_linker_may_be_named_by_a_relative_path(tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tools, "ld.lld", "it runs")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EmitterError, match="the linker has written nothing"):
        emit(package(IR), "libnet.so", target="x86_64-linux-gnu", name="net", linker="bin/ld.lld")
    assert sorted(os.listdir(tmp_path)) == ["bin", "cache"]
