"""Archives against GNU ar and llvm-ar, which must make the same bytes of the same members."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emitter.errors import LayoutError
from emitter.layout import BULK_ALIGNMENTS, FilePlan, Piece
from emitter.limits import MAX_MEMBER_SIZE
from emitter.pack.plan import plan_pack
from emitter.splice.archive import SYM64_THRESHOLD, plan_archive
from emitter.splice.elf import plan_object
from emitter.splice.member import Member
from emitter.symbols import pack_model
from emitter.targets import load, stub
from tests.elf_objects import TARGET_NAMES, package_of, run, write_pack_object
from tests.support import write_plan

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from emitter.model import ObjectModel

LLVM_AR = next((name for name in ("llvm-ar", "llvm-ar-14") if shutil.which(name)), "llvm-ar")


def member_of(name: str, symbols: list[str], data: bytes) -> Member:
    return Member(name, symbols, lambda _: FilePlan(len(data), [Piece(0, data)] if data else [], []))


def compiled(tmp_path: Path, name: str, symbols: list[str]) -> bytes:
    source = tmp_path / "source.c"
    source.write_text("".join(f"int {symbol} = 1;\n" for symbol in symbols) + "static int unused;\n")
    run("gcc", "-w", "-c", str(source), "-o", str(tmp_path / name))
    return (tmp_path / name).read_bytes()


# Names at the edge of the 15 bytes that the header holds; symbol names of odd and even total; a member without symbols.
MEMBERS = {
    "a.o": ["alpha", "beta"],
    "exactly15char.o": ["gamma_1"],
    "sixteen16chars.o": ["delta", "e"],
    "a name much longer than the header.o": ["zeta"],
    "nothing.o": [],
}


@pytest.mark.parametrize("count", range(1, len(MEMBERS) + 1))
@pytest.mark.parametrize("ar", ["ar", LLVM_AR])
def test_bytes_are_those_of_ar(tmp_path: Path, ar: str, count: int) -> None:
    chosen = dict(list(MEMBERS.items())[:count])
    members = [member_of(name, symbols, compiled(tmp_path, name, symbols)) for name, symbols in chosen.items()]
    write_plan(plan_archive(members), None, tmp_path / "ours.a")
    run(ar, "rcsD", "theirs.a", *chosen, cwd=tmp_path)
    assert (tmp_path / "ours.a").read_bytes() == (tmp_path / "theirs.a").read_bytes()


def test_index_without_symbols_is_there_as_gnu_ar_writes_it(tmp_path: Path) -> None:
    data = compiled(tmp_path, "nothing.o", [])
    write_plan(plan_archive([member_of("nothing.o", [], data)]), None, tmp_path / "ours.a")
    run("ar", "rcsD", "theirs.a", "nothing.o", cwd=tmp_path)
    assert (tmp_path / "ours.a").read_bytes() == (tmp_path / "theirs.a").read_bytes()


@pytest.mark.parametrize("name", TARGET_NAMES)
@pytest.mark.parametrize("ar", ["ar", LLVM_AR])
def test_emitted_members_make_the_same_archive(tmp_path: Path, name: str, ar: str) -> None:
    # The member is planned for its place in the archive; taken out and put back it must give the same bytes.
    write_pack_object(
        name, package_of({"odd": bytes(range(251)), "w": b"x" * 5000}), tmp_path / "libmodel.a", with_tensors=True
    )
    run(ar, "x", "libmodel.a", cwd=tmp_path)
    run(ar, "rcsD", "theirs.a", "model.o", cwd=tmp_path)
    assert (tmp_path / "theirs.a").read_bytes() == (tmp_path / "libmodel.a").read_bytes()


def big_model(size: int, path: Path) -> tuple[ObjectModel, int]:
    with path.open("wb") as file:
        file.truncate(size)
    pack = plan_pack(package_of({"w": path}), "little")
    return pack_model(load("x86_64-linux-gnu"), pack, name="model"), pack.payload_start


@pytest.mark.parametrize(("size", "alignment"), [(threshold, alignment) for threshold, alignment in BULK_ALIGNMENTS])
def test_payload_offset_is_fast_from_the_start_of_the_archive(tmp_path: Path, size: int, alignment: int) -> None:
    target = load("x86_64-linux-gnu")
    model, _ = big_model(size, tmp_path / "payload")
    symbols = [symbol.name for symbol in model.symbols]
    member = Member("m.o", symbols, lambda offset: plan_object(target, stub(target), model, file_offset=offset))
    plan = plan_archive([member_of("first.o", [], b"odd"), member])
    assert [copy.offset % alignment for copy in plan.copies] == [0]


def test_64_bit_index_is_read_by_binutils_llvm_and_linkers(tmp_path: Path) -> None:
    members = [member_of(name, symbols, compiled(tmp_path, name, symbols)) for name, symbols in MEMBERS.items()]
    plan = plan_archive(members, sym64_threshold=1)
    write_plan(plan, None, tmp_path / "libours.a")
    data = (tmp_path / "libours.a").read_bytes()
    assert data[8:16] == b"/SYM64/ "
    index_size = int(data[56:66])
    assert index_size % 8 == 0
    offsets = [int.from_bytes(data[68 + 8 * n : 76 + 8 * n], "big") for n in range(1, 7)]
    assert all(data[offset + 58 : offset + 60] == b"`\n" for offset in offsets)
    for nm in ("nm", "llvm-nm" if shutil.which("llvm-nm") else "llvm-nm-14"):
        index = run(nm, "--print-armap", str(tmp_path / "libours.a")).stdout
        assert "zeta in a name much longer than the header.o" in index
    (tmp_path / "main.c").write_text("extern int zeta, gamma_1; int main(void) { return zeta + gamma_1 - 2; }\n")
    for linker in ("bfd", "lld", "mold"):
        if shutil.which(f"ld.{linker}") is None:
            continue
        run("gcc", f"-fuse-ld={linker}", "main.c", "libours.a", "-o", "main", cwd=tmp_path)
        run(str(tmp_path / "main"))


@pytest.mark.parametrize(
    ("end_of_first", "index_name"),
    [
        (SYM64_THRESHOLD - 3, b"/"),
        (SYM64_THRESHOLD - 2, b"/"),
        (SYM64_THRESHOLD - 1, b"/SYM64/"),
        (SYM64_THRESHOLD, b"/SYM64/"),
    ],
)
def test_index_is_wide_where_a_header_offset_no_longer_fits(end_of_first: int, index_name: bytes) -> None:
    # The header of the second member, the only one in the index, stands at the next even offset.
    before = 8 + 60 + (4 * 2 + 2) + 60
    huge = Member("huge.o", [], lambda _: FilePlan(end_of_first - before, [], []))
    plan = plan_archive([huge, member_of("b.o", ["s"], b"")])
    assert plan.pieces[0].data[8:24].rstrip() == index_name


def test_large_last_member_needs_no_wide_index() -> None:
    huge = Member("huge.o", ["s"], lambda _: FilePlan(5 << 30, [], []))
    assert plan_archive([huge]).pieces[0].data[8:10] == b"/ "


@pytest.mark.parametrize("excess", [0, 1])
def test_member_size_has_ten_digits(excess: int) -> None:
    member = Member("huge.o", [], lambda _: FilePlan(MAX_MEMBER_SIZE + excess, [], []))
    if excess:
        with pytest.raises(LayoutError, match=r"'huge\.o': too large.*9999999999.*10000000000"):
            plan_archive([member])
    else:
        assert plan_archive([member]).pieces[-2].data[48:58] == b"9999999999"


@pytest.mark.parametrize("name", ["", "a/b.o", "a\nb.o", "a\0b.o"])
def test_names_that_the_format_cannot_hold_are_refused(name: str) -> None:
    with pytest.raises(LayoutError, match="not a name for a member"):
        plan_archive([member_of(name, [], b"")])


def test_equal_member_names_are_refused() -> None:
    with pytest.raises(LayoutError, match="two members of the archive have one name"):
        plan_archive([member_of("a.o", [], b""), member_of("a.o", [], b"")])


def test_second_pack_is_refused() -> None:
    members = [Member(name, [], lambda _: FilePlan(8, [], [], pack_offset=0)) for name in ("a.o", "b.o")]
    with pytest.raises(LayoutError, match="one pack"):
        plan_archive(members)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 5), st.integers(0, 300)), min_size=1, max_size=6),
    st.sampled_from([1, 200, SYM64_THRESHOLD]),
)
def test_pieces_ascend_and_members_start_even(rows: list[tuple[int, int, int]], threshold: int) -> None:
    starts: list[int] = []

    def planner(size: int) -> Callable[[int], FilePlan]:
        def plan(offset: int) -> FilePlan:
            starts.append(offset)
            return FilePlan(size, [Piece(0, bytes(size))] if size else [], [])

        return plan

    members = [
        Member(f"{number}{'n' * length}.o", [f"s{n}" for n in range(symbols)], planner(size))
        for number, (length, symbols, size) in enumerate(rows)
    ]
    plan = plan_archive(members, sym64_threshold=threshold)
    end = 0
    for piece in plan.pieces:
        assert piece.offset == end
        end += len(piece.data)
    assert end == plan.size
    assert all(start % 2 == 0 for start in starts)
