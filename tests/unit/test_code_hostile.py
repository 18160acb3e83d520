"""Code, paths and processes that are out of the ordinary: an error in words, or the right output."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from emitter import Package, emit, load
from emitter.cli import main
from emitter.compile import cache
from emitter.errors import InputError, LayoutError, OutputError, UsageError
from emitter.inspect import open_file
from emitter.link.objects import CodeObject
from emitter.link.resolve import needed_members
from emitter.page_helper import PageHelper
from tests.c_tools import need
from tests.code_packages import package_of_four
from tests.macho_files import bad_pages

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("code_cache")

HOST = "x86_64-linux-gnu"
USER = """\
@net_t_w = external constant [4 x float]
define float @at(i64 %i) {
  %p = getelementptr float, ptr @net_t_w, i64 %i
  %v = load float, ptr %p
  ret float %v
}
"""
CALL = """\
declare float @{0}(float)
define float @use_{0}(float %x) {{
  %y = call float @{0}(float %x)
  ret float %y
}}
"""


def built(folder: Path, name: str, *code: str | bytes | Path, target: str = HOST, **options: Any) -> Path:
    output = folder / name
    emit(package_of_four(*code), output, target=target, name="net", **options)
    return output


def assembled(folder: Path, source: str | bytes, name: str = "code.o") -> Path:
    need("as")
    subprocess.run(
        ["as", "-", "-o", name], check=True, cwd=folder, input=source if isinstance(source, bytes) else source.encode()
    )
    return folder / name


def test_a_real_library_does_not_excuse_other_names(tmp_path: Path) -> None:
    """What is allowed to be undefined is that name alone, though a library was linked."""
    need("gcc")
    command = ["gcc", "-shared", "-fPIC", "-xc", "-", "-o", "libreal.so"]
    subprocess.run(command, check=True, cwd=tmp_path, input=b"float reallib(float x) { return x; }")
    options: dict[str, Any] = {"lib_dirs": [str(tmp_path)], "libs": ["real"], "allow_undefined": ["helper"]}
    code = "".join(map(CALL.format, ("reallib", "helper", "typo")))
    with pytest.raises(InputError, match=r"undefined symbols: found typo;"):
        built(tmp_path, "libnet.so", code, **options)
    assert not (tmp_path / "libnet.so").exists()
    built(tmp_path, "libnet.so", "".join(map(CALL.format, ("reallib", "helper"))), **options)


@pytest.mark.parametrize("linker", ["ld.lld", "ld"])
@pytest.mark.parametrize("edit", [["--set-soname", "a-much-longer-name-than-before.so"], ["--set-rpath", "/x/y"]])
def test_patchelf_leaves_a_linked_library_readable(linker: str, edit: list[str], tmp_path: Path) -> None:
    need(linker, "patchelf")
    output = built(tmp_path, "libnet.so", USER, linker=linker)
    subprocess.run(["patchelf", *edit, str(output)], check=True)
    with load(output) as model:
        assert model["w"].tolist() == [2, 3, 5, 7]
    library = ctypes.CDLL(str(output))
    library.at.restype = ctypes.c_float
    assert library.at(ctypes.c_long(2)) == 5


@pytest.mark.parametrize(
    "text",
    [
        'c"failed to call asm kernel", align 1\nattributes #0 = {"frame-pointer"="all"}',
        'c"' + "call asm " * 4000 + '"',
        'c"' + "call " * 30000 + ' asm"',
    ],
)
def test_text_that_speaks_of_assembly_is_none(text: str, tmp_path: Path) -> None:
    value, _, more = text.partition("\n")
    size = len(value.partition('"')[2].partition('"')[0])
    code = f"@s = constant [{size} x i8] {value}\n{more}\ndefine ptr @f() {{\n  ret ptr @s\n}}\n"
    built(tmp_path, "net.a", code, target="aarch64-linux-gnu", compile_seconds=20)
    real = 'define void @f() {\n  call void asm sideeffect "nop", ""()\n  ret void\n}\n'
    with pytest.raises(InputError, match=r"holds assembly.*nop"):
        built(tmp_path, "net.a", real, target="aarch64-linux-gnu")
    built(tmp_path, "net.a", real.replace('"nop"', '""'), target="aarch64-linux-gnu")


@pytest.mark.parametrize("target", ["i686-windows-gnu", "x86_64-windows-gnu"])
def test_dlls_export_names_that_begin_with_an_underscore(target: str, tmp_path: Path) -> None:
    output = built(tmp_path, "net.dll", "define i32 @_under(i32 %x) {\n  ret i32 %x\n}\n", target=target)
    with open_file(str(output)) as artefact:
        assert artefact.reader is not None
        names = {one.name for one in artefact.reader.report().symbols() if one.table == "exports"}
    assert names == {"_under", "net", "net_size", "emitter_pack"}


@pytest.mark.parametrize("count", [0, 1, 3000])
def test_members_are_chosen_in_time_that_grows_with_their_number(count: int) -> None:
    """A chain, in the wrong order: each member is wanted by the one before."""

    def one(number: int, member: bool = True) -> CodeObject:
        return CodeObject(
            str(number), b"", member, frozenset(), frozenset({f"f{number}"}), frozenset({f"f{number + 1}"})
        )

    members = [one(number) for number in range(count, 0, -1)]
    start = one(0, member=False)
    chosen = needed_members([*members, start])
    assert [item.path for item in chosen] == [str(number) for number in range(count + 1)]


@pytest.mark.parametrize("output", ["libnet.so", "net.a"])
def test_names_that_are_not_utf_8(output: str, tmp_path: Path) -> None:
    code = assembled(tmp_path, b".globl caf\xe9\ncaf\xe9: ret\n.type caf\xe9,@function\n")
    built(tmp_path, output, code)
    data = (tmp_path / output).read_bytes()
    assert b"caf\xe9" in data


def test_paths_with_line_breaks_and_percent_signs(tmp_path: Path) -> None:
    """A path on the command line is a path, whatever it looks like; LLD takes % for its own."""
    folder = tmp_path / "a%2Fb"
    folder.mkdir()
    code = tmp_path / "; x\ndefine i32 @evil() { ret i32 1 }\n;.ll"
    code.write_text(USER)
    np.save(tmp_path / "w.npy", np.array([2, 3, 5, 7], np.float32))
    for name, target in (("libnet.so", HOST), ("net%.dll", "x86_64-windows-gnu"), ("net.o", "aarch64-linux-gnu")):
        argv = [str(code), str(tmp_path / "w.npy"), "--target", target, "--name", "net", "-o", str(folder / name)]
        assert main(argv) == 0
        assert (folder / name).stat().st_size > 100


@pytest.mark.parametrize("name", ["a b", "a\\22b", "a,b", "a=b", "a\\0Ab"])
def test_names_that_no_list_of_a_linker_holds(name: str, tmp_path: Path) -> None:
    code = f'define i32 @"{name}"() {{\n  ret i32 1\n}}\ndefine i32 @plain() {{\n  ret i32 2\n}}\n'
    for output, target in (("libnet.so", HOST), ("net.dll", "x86_64-windows-msvc")):
        with pytest.raises(InputError, match="a name that the lists of linkers cannot hold"):
            built(tmp_path, output, code, target=target)
        built(tmp_path, output, code, target=target, export=["plain"])
    built(tmp_path, "net.a", code)


def test_limits_that_no_system_has(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--compile-seconds is out of range"):
        built(tmp_path, "net.a", USER, compile_seconds=99999999999)
    with pytest.raises(UsageError, match="--compile-memory is out of range"):
        built(tmp_path, "net.a", USER, compile_memory=99999999999999)


def test_a_linker_that_writes_nothing_or_rubbish_is_named(tmp_path: Path) -> None:
    for words, message in (("", "something else than was asked for"), ("garbage", "something else than was asked for")):
        liar = tmp_path / "ld.lld"
        liar.write_text(
            f"#!{sys.executable}\nimport sys\nopen(sys.argv[sys.argv.index('-o') + 1], 'w').write({words!r})\n"
        )
        liar.chmod(0o755)
        with pytest.raises(OutputError, match=message):
            built(tmp_path, "libnet.so", USER, linker=str(liar))
    liar.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('No space left on device')\n")
    with pytest.raises(OutputError, match="no space left"):
        built(tmp_path, "libnet.so", USER, linker=str(liar))


@pytest.mark.parametrize("place", [0, 99_999, 100_000, 199_999])
def test_a_linker_that_damages_the_payload_is_found_out(
    place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is: of many bytes two threads take the checksum, each of a half."""
    need("ld.lld")
    monkeypatch.setattr("emitter.check.linked._WORTH_A_THREAD", 1000)
    payload = os.urandom(200_000)
    made = Package()
    made.add_raw("w", payload)
    made.add_code("@net_t_w = external constant [200000 x i8]\ndefine ptr @f() {\n  ret ptr @net_t_w\n}\n")
    emit(made, tmp_path / "libnet.so", target=HOST, name="net", linker="ld.lld")
    with load(tmp_path / "libnet.so") as model:
        assert bytes(model["w"]) == payload
    liar = tmp_path / "ld.lld"
    liar.write_text(f"""#!{sys.executable}
import subprocess, sys
subprocess.run([{shutil.which("ld.lld")!r}, *sys.argv[1:]], check=True)
path = sys.argv[sys.argv.index("-o") + 1]
data = bytearray(open(path, "rb").read())
data[data.index({payload[:64]!r}) + {place}] ^= 1
open(path, "wb").write(data)
""")
    liar.chmod(0o755)
    with pytest.raises(OutputError, match=r"CRC-32C of payload 0 in what was linked.*something else"):
        emit(made, tmp_path / "other.so", target=HOST, name="net", linker=str(liar))


def test_objects_of_bigobj_and_import_libraries(tmp_path: Path) -> None:
    need("clang")
    bigobj = b"\0\0\xff\xff\x02\0\x64\x86" + bytes(4) + bytes.fromhex("c7a1bad1eebaa94baf20faf66aa4dcb8") + bytes(28)
    with pytest.raises(LayoutError, match="/bigobj object is not joined"):
        built(tmp_path, "net.obj", bigobj, target="x86_64-windows-msvc")
    emit(package_of_four(), tmp_path / "net.dll", target="x86_64-windows-msvc", implib=tmp_path / "net.dll.lib")
    with pytest.raises(InputError, match=r"this is an import library.*-L and -l"):
        built(tmp_path, "other.dll", tmp_path / "net.dll.lib", target="x86_64-windows-msvc")


def test_other_calling_conventions_are_not_declared(tmp_path: Path) -> None:
    code = "define fastcc i32 @fast(i32 %x) {\n  ret i32 %x\n}\ndefine ccc i32 @plain(i32 %x) {\n  ret i32 %x\n}\n"
    built(tmp_path, "net.a", code, header=tmp_path / "net.h")
    text = (tmp_path / "net.h").read_text()
    assert '"fast": its types are not told' in text and "int32_t plain(int32_t)" in text


def test_a_cache_with_links_and_folders_is_still_pruned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_MAX_ENTRIES", 3)
    folder = tmp_path / "cache"
    built(tmp_path, "net.a", USER)
    (folder / "dangling.code").symlink_to("nowhere")
    (folder / "folder.code").mkdir()
    for number in range(6):
        built(tmp_path, "net.a", USER.replace("@at", f"@at{number}"))
    assert len([one for one in folder.iterdir() if one.is_file()]) <= 4


# The process that hashes pages


def test_hashing_does_not_wait_for_processes_that_were_forked_meanwhile(tmp_path: Path) -> None:
    """A child that a program forks has the pipe as well: its end is no sign."""
    source = tmp_path / "blob"
    with source.open("wb") as file:
        file.write(os.urandom(1 << 20) * 40)
    made = Package()
    made.add_raw("blob", source)
    children: list[int] = []
    stop = threading.Event()

    def fork() -> None:
        while not stop.is_set() and len(children) < 40:
            child = os.fork()
            if not child:
                time.sleep(60)
                os._exit(0)
            children.append(child)
            time.sleep(0.005)

    thread = threading.Thread(target=fork)
    thread.start()
    start = time.monotonic()
    try:
        emit(made, tmp_path / "libnet.dylib", target="arm64-apple-macos")
        took = time.monotonic() - start
    finally:
        stop.set()
        thread.join()
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    assert children and bad_pages(tmp_path / "libnet.dylib")[1] == []
    assert took < 50  # the children live for 60 seconds


def test_a_program_that_dies_of_sigpipe_lives_on(tmp_path: Path) -> None:
    """The other process is killed while the first one has SIGPIPE at its default."""
    program = f"""
import os, signal
from emitter.page_helper import PageHelper
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
fd = os.open({str(tmp_path / "f")!r}, os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 1 << 20)
helper = PageHelper(fd)
os.kill(helper._pid, signal.SIGKILL)
os.waitid(os.P_PID, helper._pid, os.WEXITED | os.WNOWAIT)
print([helper.give(4096, 0, 4096, 65536) for _ in range(3)], helper.finish())
os.write(1, b"alive")
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "alive" in done.stdout and "[False, False, False] False" in done.stdout


def test_the_helper_ends_when_it_is_told(tmp_path: Path) -> None:
    with (tmp_path / "f").open("w+b") as file:
        file.truncate(1 << 20)
        helper = PageHelper(file.fileno())
        assert helper.give(4096, 0, 8192, 65536)
        assert helper.finish()
        file.seek(65536)
        import hashlib

        assert file.read(64) == hashlib.sha256(bytes(4096)).digest() * 2
