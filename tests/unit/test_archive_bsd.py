"""Archives in the BSD form against llvm-ar, which must find the same members and symbols in them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emitter.errors import LayoutError
from emitter.layout import FilePlan, Piece
from emitter.splice.archive_bsd import plan_archive
from emitter.splice.member import Member
from tests.macho_files import TARGET_NAMES, emit, parse, run
from tests.support import write_plan

if TYPE_CHECKING:
    from pathlib import Path

PAYLOADS: dict[str, bytes | Path] = {"odd": bytes(range(251)), "w": b"x" * 5000}


def member_of(name: str, symbols: list[str], data: bytes) -> Member:
    return Member(name, symbols, lambda _: FilePlan(len(data), [Piece(0, data)] if data else [], []))


def members(data: bytes) -> list[tuple[int, str, bytes]]:
    """Return (offset of the header, name, contents) of each member."""
    assert data[:8] == b"!<arch>\n"
    at, found = 8, []
    while at < len(data):
        header = data[at : at + 60]
        assert header[58:] == b"`\n" and header[:3] == b"#1/" and header[16:40].split() == [b"0"] * 3
        name_size, size = int(header[3:16]), int(header[48:58])
        start = at + 60 + name_size
        assert start % 8 == 0
        found.append((at, data[at + 60 : start].rstrip(b"\0").decode(), data[start : at + 60 + size]))
        at += 60 + size
    assert at == len(data)
    return found


def index(data: bytes) -> list[tuple[str, int]]:
    """Return (symbol, offset of the member's header) as the index has them."""
    (_, name, body), *_ = members(data)
    assert name == "__.SYMDEF SORTED"
    (length,) = struct.unpack_from("<I", body)
    (size,) = struct.unpack_from("<I", body, 4 + length)
    strings = body[8 + length : 8 + length + size]
    assert len(body) - (8 + length + size) < 8
    rows = struct.iter_unpack("<2I", body[4 : 4 + length])
    return [(strings[strx : strings.index(b"\0", strx)].decode(), offset) for strx, offset in rows]


@pytest.mark.parametrize("name", TARGET_NAMES)
def test_llvm_reads_it(name: str, tmp_path: Path) -> None:
    emit(tmp_path / "libmodel.a", PAYLOADS, name, tensor_symbols=True)
    path = tmp_path / "libmodel.a"
    assert run("llvm-ar", "t", path) == "model.o\n"
    listed = run("llvm-nm", "--print-armap", path)
    for symbol in ("_model", "_model_size", "_model_t_odd", "_model_t_w"):
        assert f"{symbol} in model.o\n" in listed
    (_, member, data) = members(path.read_bytes())[1]
    assert member == "model.o"
    file = parse(data)
    assert file.at("_model_t_w", 5000) == b"x" * 5000
    symbols = sorted(file.symbols())
    at = members(path.read_bytes())[1][0]
    assert index(path.read_bytes()) == [(symbol, at) for symbol in symbols]


def test_payload_is_at_a_fast_place_of_the_archive(tmp_path: Path) -> None:
    data = bytes(range(256)) * 8192
    emit(tmp_path / "libmodel.a", {"w": data}, "arm64-apple-macos")
    assert (tmp_path / "libmodel.a").read_bytes().index(data) % 65536 == 0


def test_members_are_those_of_llvm_ar(tmp_path: Path) -> None:
    """Taken out and put back by llvm-ar, the members are the same bytes, headers included."""
    emit(tmp_path / "libmodel.a", PAYLOADS, "arm64-apple-macos")
    ours = (tmp_path / "libmodel.a").read_bytes()
    at, _, data = members(ours)[1]
    (tmp_path / "model.o").write_bytes(data)
    run("llvm-ar", "--format=darwin", "rcsD", tmp_path / "theirs.a", tmp_path / "model.o")
    theirs = (tmp_path / "theirs.a").read_bytes()
    assert theirs.endswith(ours[at:])


# Names at every length modulo 8; symbols of odd and even total; a member without symbols, and an empty one.
@settings(max_examples=100, deadline=None)
@given(
    chosen=st.lists(
        st.tuples(
            st.text("abc.", min_size=1, max_size=20),
            st.lists(st.text("_xyz", min_size=1, max_size=9), max_size=4),
            st.integers(0, 40),
        ),
        max_size=5,
        unique_by=lambda member: member[0],
    )
)
def test_any_members(chosen: list[tuple[str, list[str], int]], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "any.a"
    write_plan(plan_archive([member_of(name, symbols, b"y" * size) for name, symbols, size in chosen]), None, path)
    data = path.read_bytes()
    found = members(data)[1:]
    assert [(name, body[:size]) for (_, name, body), (_, _, size) in zip(found, chosen, strict=True)] == [
        (name, b"y" * size) for name, _, size in chosen
    ]
    starts = {name: at for at, name, _ in found}
    expected = [(symbol, starts[name]) for name, symbols, _ in chosen for symbol in symbols]
    rows = index(data)
    assert sorted(rows) == sorted(expected)
    assert [symbol for symbol, _ in rows] == sorted(symbol for symbol, _ in rows)


@pytest.mark.parametrize("name", ["", "a/b", "a\nb", "a\0b", "__.SYMDEF", "__.SYMDEF SORTED"])
def test_names_that_it_cannot_hold(name: str) -> None:
    with pytest.raises(LayoutError):
        plan_archive([member_of(name, [], b"")])


def test_two_members_of_one_name_and_two_packs() -> None:
    with pytest.raises(LayoutError, match="one name"):
        plan_archive([member_of("a.o", [], b""), member_of("a.o", [], b"")])
    pack = [Member(name, [], lambda _: FilePlan(8, [], [], 0)) for name in ("a.o", "b.o")]
    with pytest.raises(LayoutError, match="one pack"):
        plan_archive(pack)


@pytest.mark.parametrize("excess", [0, 8])
def test_size_at_the_limit_of_32_bits(excess: int) -> None:
    overhead = plan_archive([Member("a.o", [], lambda _: FilePlan(0, [], []))]).size
    size = 0xFFFFFFF8 - overhead + excess
    one = [Member("a.o", [], lambda _: FilePlan(size, [], []))]
    if not excess:
        assert plan_archive(one).size == 0xFFFFFFF8
        return
    with pytest.raises(LayoutError) as caught:
        plan_archive(one)
    assert "4294967295" in str(caught.value) and "--sidecar" in str(caught.value)
