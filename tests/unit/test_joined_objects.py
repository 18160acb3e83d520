"""Objects in which code and a pack are joined: read by LLVM's tools, whatever code is made of; broken code refused."""

from __future__ import annotations

import itertools
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emitter
from emitter import Package
from emitter.errors import EmitterError, LayoutError, OutputError
from emitter.inspect import open_file
from emitter.inspect.coff import CoffFile
from emitter.inspect.macho import MachOFile
from emitter.inspect.view import View
from emitter.layout import Copy, bulk_alignment
from emitter.link import join_coff, join_macho
from emitter.model import TensorSymbol
from emitter.pack.format import MAGIC
from emitter.pack.plan import plan_pack
from emitter.package import BufferSource, Extent
from emitter.symbols import pack_model
from emitter.targets import load
from tests.c_tools import need
from tests.macho_files import command, run

if TYPE_CHECKING:
    from pathlib import Path

    from emitter.layout import FilePlan, Piece
    from emitter.model import ObjectModel
    from emitter.targets._base import Target

TARGETS = (
    "arm64-apple-macos",
    "x86_64-apple-macos",
    "arm64-apple-ios",
    "x86_64-windows-msvc",
    "x86_64-windows-gnu",
    "aarch64-windows-msvc",
    "i686-windows-gnu",
)
every_target = pytest.mark.parametrize("target", TARGETS)

# Everything that compilers put into an object beside plain functions: zeros, common and writable data, weak and local
# names, a comdat, an initialiser, an alias, strings that linkers merge, jump tables, exceptions' tables.
KERNEL = """
@model_t_w = external constant [5 x float]
@model_size = external constant i8
@zeros = global [100000 x i8] zeroinitializer, align 4096
@state = internal global [3 x i32] [i32 1, i32 2, i32 3]
@common = common global i32 0
@pointer = global ptr @model_t_w
@size_at = global ptr @model_size
@text = private unnamed_addr constant [6 x i8] c"hello\\00"
@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 65535, ptr @start, ptr null }]
@again = alias float (i32), ptr @weight

$shared = comdat any

declare void @outside(ptr)
declare i32 @__gxx_personality_v0(...)

define internal void @start() {
  store i32 7, ptr @common
  ret void
}
define linkonce_odr i32 @shared() comdat {
  ret i32 3
}
define weak i32 @soft() {
  ret i32 4
}
define float @weight(i32 %i) {
  %at = getelementptr float, ptr @model_t_w, i32 %i
  %value = load float, ptr %at
  ret float %value
}
define i32 @choose(i32 %x) personality ptr @__gxx_personality_v0 {
  switch i32 %x, label %other [ i32 0, label %a
    i32 1, label %b
    i32 2, label %c
    i32 3, label %d
    i32 4, label %e ]
a:
  invoke void @outside(ptr @text) to label %other unwind label %pad
b:
  call void @outside(ptr @state)
  br label %other
c:
  call void @outside(ptr @zeros)
  br label %other
d:
  %s = call i32 @shared()
  ret i32 %s
e:
  %t = call i32 @soft()
  ret i32 %t
pad:
  %l = landingpad { ptr, i32 } cleanup
  resume { ptr, i32 } %l
other:
  ret i32 -1
}
"""
# Windows unwinds in another way.
_UNWINDING = (
    ("invoke void @outside(ptr @text) to label %other unwind label %pad", "call void @outside(ptr @text)\n  ret i32 0"),
    ("  %l = landingpad { ptr, i32 } cleanup\n  resume { ptr, i32 } %l", "  unreachable"),
    (" personality ptr @__gxx_personality_v0", ""),
)


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMITTER_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "join-cache"))


def package(code: bytes | str | Path, payload: bytes = bytes(range(20))) -> Package:
    made = Package()
    made.add_raw("w", payload)
    made.add_code(code)
    return made


def kernel(target: str) -> str:
    text = KERNEL
    for old, new in _UNWINDING if "windows" in target else ():
        assert old in text
        text = text.replace(old, new)
    return text


def joined(folder: Path, target: str, code: bytes | str | Path | None = None, **options: Any) -> Path:
    output = folder / f"model{load(target).object_suffix}"
    emitter.emit(package(code or kernel(target)), output, target=target, name="model", **options)
    return output


def code_alone(folder: Path, target: str) -> Path:
    """Return the object of the code as it is in an archive."""
    archive = folder / f"alone{load(target).archive_suffix}"
    emitter.emit(package(kernel(target)), archive, target=target, name="model")
    members = folder / "members"
    members.mkdir()
    subprocess.run([command("llvm-ar"), "x", str(archive)], cwd=members, check=True)
    (path,) = (one for one in members.iterdir() if "code" in one.name)
    return path


def shown(path: Path) -> list[str]:
    """Return all sections as LLVM disassembles them, with their relocations, but for the name of the file."""
    text = run("llvm-objdump", "-D", "-r", "--no-show-raw-insn", path)
    return [line for line in text.splitlines() if line and "file format" not in line]


def names(path: Path) -> dict[str, str]:
    """Return the symbols with the letters that llvm-nm has for them."""
    rows = [line.split() for line in run("llvm-nm", "-a", path).splitlines()]
    return {row[-1]: row[-2] for row in rows if len(row) > 1}


@every_target
def test_the_code_is_what_it_was(target: str, tmp_path: Path) -> None:
    alone, output = code_alone(tmp_path, target), joined(tmp_path, target)
    before, after = shown(alone), shown(output)
    assert len(before) > 80 and after[: len(before)] == before
    old, new = names(alone), names(output)
    prefix = load(target).symbol_prefix
    own = {f"{prefix}{name}" for name in ("model", "model_size", "model_t_w")}
    assert {name for name in own if old.get(name) == "U"} == {f"{prefix}model_size", f"{prefix}model_t_w"}
    assert {name: kind for name, kind in new.items() if name not in own} == {
        k: v for k, v in old.items() if k not in own
    }
    assert {new[name] for name in own} <= {"S", "R", "D"}
    assert "error" not in run("llvm-readobj", "--sections", "--relocations", "--symbols", output)
    again = joined(tmp_path, target).read_bytes()
    assert output.read_bytes() == again


@pytest.mark.parametrize("target", TARGETS[:3])
def test_lief_reads_objects_for_apple(target: str, tmp_path: Path) -> None:
    lief: Any = pytest.importorskip("lief", reason="lief is not installed")
    output = joined(tmp_path, target)
    binary = lief.MachO.parse(str(output)).at(0)
    sections = {(one.segment_name, one.name): one for one in binary.sections}
    pack = sections["__TEXT", "__emitter"]
    data = output.read_bytes()
    assert data[pack.offset : pack.offset + 8] == MAGIC and pack.virtual_address % 64 == 0
    zeros = sections["__DATA", "__common"]  # a global that is zero, and has no bytes in the file
    assert zeros.size == 100_000 and zeros.offset == 0 and zeros.virtual_address % 4096 == 0
    dysymtab = binary.dynamic_symbol_command
    groups = (dysymtab.nb_local_symbols, dysymtab.nb_external_define_symbols, dysymtab.nb_undefined_symbols)
    assert sum(groups) == len(list(binary.symbols)) and min(groups) > 0
    assert {one.name for one in list(binary.symbols)[groups[0] + groups[1] :]} == {
        name for name, kind in names(output).items() if kind in "UC"
    }


@every_target
@pytest.mark.parametrize("align", [1, 2, 64, 4096, 8192])
def test_every_alignment_is_kept(target: str, align: int, tmp_path: Path) -> None:
    output = joined(tmp_path, target, align=align)
    with open_file(str(output)) as artefact:
        assert artefact.reader is not None
        report = artefact.reader.report()
        (pack,) = report.packs
        (holder,) = (one for one in report.sections if "emitter" in one.name and "size" not in one.name)
        assert holder.alignment >= align and holder.offset == pack.offset
        assert not report.faults and [tensor.name for tensor in pack.tensors()] == ["w"]


@pytest.mark.parametrize("target", ["x86_64-apple-macos", "x86_64-windows-msvc"])
@pytest.mark.parametrize("size", [1, (1 << 20) - 1, 1 << 20, 64 << 20, (1 << 31) - 1, 1 << 31])
def test_places_at_every_size(target: str, size: int, tmp_path: Path) -> None:
    """The payload has a place where copying is fast, and nothing overlaps."""
    alone = code_alone(tmp_path, target).read_bytes()
    plan = planned(load(target), alone, size)
    (copy,) = plan.copies
    ranges = sorted(
        [(one.offset, one.offset + len(one.data)) for one in plan.pieces] + [(copy.offset, copy.offset + size)]
    )
    assert copy.offset % bulk_alignment(size) == 0
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(ranges))
    assert ranges[0][0] == 0 and ranges[-1][1] == plan.size
    with pytest.raises(LayoutError, match="too large for a"):
        planned(load(target), alone, (1 << 32) - 4096)


def planned(target: Target, code: bytes, size: int = 20) -> FilePlan:
    """Return the plan of `code` and a payload of `size` bytes that do not exist."""
    made = package(kernel(target.name), bytes(20))
    pack = plan_pack(made, "little")
    start = pack.payload_start if size < 1 << 20 else 65536
    payload = Copy(start, size, Extent(BufferSource("a hole", memoryview(b"")), 0, size), 1, (size,), 8)
    pack = pack._replace(total_size=start + size, payload_start=start, payloads=[payload])
    model = pack_model(target, pack, name="model", tensor_symbols=[TensorSymbol("model_t_w", "w", start, size)])
    join = join_coff if target.coff else join_macho
    plan: FilePlan = join.plan_joined(target, model, code, "code.o")
    return plan


@pytest.mark.parametrize(
    "target", ["x86_64-apple-macos", "arm64-apple-macos", "x86_64-windows-msvc", "i686-windows-gnu"]
)
def test_broken_objects_are_refused(target: str, tmp_path: Path) -> None:
    """Any damage is an error of ours, or harmless; the plan never goes beyond its own size."""
    whole = code_alone(tmp_path, target).read_bytes()
    facts = load(target)
    planned(facts, whole)

    @settings(max_examples=400, deadline=None)
    @given(
        changes=st.lists(st.tuples(st.integers(0, min(len(whole), 3000) - 1), st.integers(0, 255)), max_size=4),
        end=st.one_of(st.none(), st.integers(0, len(whole))),
    )
    def broken(changes: list[tuple[int, int]], end: int | None) -> None:
        data = bytearray(whole)
        for at, value in changes:
            data[at] = value
        with suppress(EmitterError):
            plan = planned(facts, bytes(data[:end]))
            assert all(piece.offset + len(piece.data) <= plan.size for piece in plan.pieces)

    broken()


@every_target
@pytest.mark.parametrize("name", ["model", "model_size", "model_t_w"])
def test_code_that_defines_what_the_pack_defines(target: str, name: str, tmp_path: Path) -> None:
    with pytest.raises(EmitterError, match=name):
        joined(tmp_path, target, f"define i32 @{name}() {{\n  ret i32 1\n}}")
    assert not [one for one in tmp_path.iterdir() if one.suffix in {".o", ".obj"}]


@every_target
def test_several_objects_are_joined_by_no_linker(target: str, tmp_path: Path) -> None:
    made = package("define i32 @first() {\n  ret i32 1\n}")
    made.add_code(code_alone(tmp_path, target))
    output = tmp_path / f"two{load(target).object_suffix}"
    with pytest.raises(LayoutError, match="write an archive") as caught:
        emitter.emit(made, output, target=target, name="model")
    assert ("--linker" in str(caught.value)) == (target.endswith("-windows-gnu")) and not output.exists()


def test_gnu_ld_joins_several_objects_for_windows(tmp_path: Path) -> None:
    """Where it is named as --linker: each of them leads to the pack."""
    need("x86_64-w64-mingw32-ld")
    target = "x86_64-windows-gnu"
    made = package("define i32 @first() {\n  ret i32 1\n}")
    made.add_code(code_alone(tmp_path, target))
    output = tmp_path / "several.o"
    emitter.emit(made, output, target=target, name="model", linker="x86_64-w64-mingw32-ld")
    found = names(output)
    assert {found[name] for name in ("first", "weight", "choose")} == {"T"} and found["outside"] == "U"
    assert {found[name] for name in ("model", "model_size", "model_t_w")} == {"R"}
    with open_file(str(output)) as artefact:
        assert artefact.reader is not None
        report = artefact.reader.report()
        (pack,) = report.packs
        assert not report.faults and [tensor.name for tensor in pack.tensors()] == ["w"]
        (holder,) = (one for one in report.sections if one.offset <= pack.offset < one.offset + one.file_size)
        assert holder.alignment >= 64 and (pack.offset - holder.offset) % 64 == 0


@every_target
def test_one_object_is_joined_with_the_pack(target: str, tmp_path: Path) -> None:
    output = joined(tmp_path, target, code_alone(tmp_path, target))
    assert names(output)[f"{load(target).symbol_prefix}weight"] == "T"
    with open_file(str(output)) as artefact:
        assert artefact.reader is not None and len(artefact.reader.report().packs) == 1


@pytest.mark.parametrize("target", ["arm64-apple-macos", "x86_64-apple-macos", "x86_64-windows-msvc"])
def test_a_difference_is_found_after_writing(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte of the code or of a relocation that is not as it was: refused, and nothing is left."""
    output = joined(tmp_path, target)
    places = [at for start, size in _ranges(output) for at in {start, start + size // 2, start + size - 1}]
    output.unlink()
    join = join_coff if load(target).coff else join_macho
    right = join.plan_joined
    for place in places:

        def wrong(target: Target, model: ObjectModel, code: bytes, where: str, place: int = place) -> FilePlan:
            plan: FilePlan = right(target, model, code, where)
            return plan._replace(pieces=[_flipped(piece, place - piece.offset) for piece in plan.pieces])

        monkeypatch.setattr(join, "plan_joined", wrong)
        with pytest.raises(OutputError):
            joined(tmp_path, target)
        assert not output.exists()
    assert len(places) > 20


def _flipped(piece: Piece, at: int) -> Piece:
    if not 0 <= at < len(piece.data):
        return piece
    return piece._replace(data=piece.data[:at] + bytes([piece.data[at] ^ 1]) + piece.data[at + 1 :])


def _ranges(path: Path) -> list[tuple[int, int]]:
    """Return where the code's sections and their relocations are in an object."""
    with View.open(path) as view:
        if path.suffix == ".obj":
            rows = [
                (one.PointerToRawData, one.file_size, one.PointerToRelocations, 10 * one.NumberOfRelocations)
                for one in CoffFile(view).sections
                if "emitter" not in one.name
            ]
        else:
            sections = MachOFile(view).sections
            rows = [
                (one.offset, one.file_size, one.reloff, 8 * one.nreloc)
                for one in sections
                if "emitter" not in one.sectname
            ]
        return [(at, size) for row in rows for at, size in (row[:2], row[2:]) if size]
