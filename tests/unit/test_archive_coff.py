"""Archives of COFF: both symbol indexes, and what llvm-ar, GNU nm and the linkers make of them."""

from __future__ import annotations

import struct
import sys
from typing import TYPE_CHECKING

import lief
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emitter.errors import LayoutError
from emitter.layout import FilePlan, Piece
from emitter.splice.archive_coff import MAX_MEMBERS, plan_archive
from emitter.splice.member import Member
from emitter.targets import load
from tests.coff_files import every_target, plan_output
from tests.elf_images import package_of, pattern, render
from tests.elf_objects import run
from tests.support import write_plan

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PAYLOADS = {"a": pattern(5000, 1), "b": pattern(63, 2)}


def member_of(name: str, symbols: Sequence[str], data: bytes) -> Member:
    return Member(name, symbols, lambda _: FilePlan(len(data), [Piece(0, data)] if data else [], []))


class Parsed:
    """An archive, read here on its own."""

    def __init__(self, data: bytes) -> None:
        assert data[:8] == b"!<arch>\n"
        self.members: list[tuple[bytes, int, bytes]] = []
        position = 8
        while position < len(data):
            header = data[position : position + 60]
            assert header[58:] == b"`\n"
            assert header[16:40].split() == ([] if header.startswith(b"//") else [b"0", b"0", b"0"])
            size = int(header[48:58])
            self.members.append((header[:16].rstrip(), position, data[position + 60 : position + 60 + size]))
            position += 60 + size + size % 2
        assert position == len(data)
        assert [name for name, _, _ in self.members[:2]] == [b"/", b"/"]
        first, second = self.members[0][2], self.members[1][2]
        (count,) = struct.unpack_from(">I", first)
        offsets = struct.unpack_from(f">{count}I", first, 4)
        self.first = list(zip(first[4 + 4 * count :].split(b"\0")[:count], offsets, strict=True))
        (count,) = struct.unpack_from("<I", second)
        starts = struct.unpack_from(f"<{count}I", second, 4)
        (symbols,) = struct.unpack_from("<I", second, 4 + 4 * count)
        numbers = struct.unpack_from(f"<{symbols}H", second, 8 + 4 * count)
        names = second[8 + 4 * count + 2 * symbols :].split(b"\0")[:symbols]
        self.second = [(name, starts[number - 1]) for name, number in zip(names, numbers, strict=True)]
        self.starts = starts


@every_target
def test_archive_is_read_by_llvm(name: str, tmp_path: Path) -> None:
    target = load(name)
    plan, pack = plan_output(target, "archive", package_of(PAYLOADS))
    path = tmp_path / "model.lib"
    path.write_bytes(render(plan, pack))
    assert run("llvm-ar", "t", str(path)).stdout == "a_member_with_a_long_name.obj\n"
    done = run("llvm-nm", "--print-armap", str(path))
    assert done.stderr == ""
    index = done.stdout.partition("Archive map\n")[2].partition("\n\n")[0].splitlines()
    symbols = [target.symbol_prefix + one for one in ("model", "model_size", "model_t_a", "model_t_b")]
    assert sorted(index) == [f"{symbol} in a_member_with_a_long_name.obj" for symbol in sorted(symbols)]
    run("llvm-ar", "x", str(path), cwd=tmp_path)
    parsed = lief.COFF.parse(str(tmp_path / "a_member_with_a_long_name.obj"))
    assert isinstance(parsed, lief.COFF.Binary)
    [section] = [one for one in parsed.sections if one.name == ".emitter"]
    assert plan.pack_offset is not None
    assert bytes(section.content) == path.read_bytes()[plan.pack_offset :][: pack.total_size]


def test_llvm_makes_the_same_bytes(tmp_path: Path) -> None:
    """The archiver of ziglang is that of LLVM; older ones write no second index."""
    pytest.importorskip("ziglang", reason="ziglang is not installed")
    members = []
    for file, payload, symbol in (("short.obj", b"abc", "zeta"), ("a_long_name_of_a_member.obj", b"defgh", "alpha")):
        plan, pack = plan_output(load("x86_64-windows-msvc"), "object", package_of({"t": payload}), name=symbol)
        data = render(plan, pack)
        (tmp_path / file).write_bytes(data)
        members.append(member_of(file, [symbol, f"{symbol}_size", f"{symbol}_t_t"], data))
    names = [member.name for member in members]
    run(sys.executable, "-m", "ziglang", "ar", "--format=coff", "rcsD", "theirs.lib", *names, cwd=tmp_path)
    write_plan(plan_archive(members), None, tmp_path / "ours.lib")
    theirs, ours = (tmp_path / "theirs.lib").read_bytes(), (tmp_path / "ours.lib").read_bytes()
    assert ours == theirs


@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_members_begin_at_even_offsets(size: int, tmp_path: Path) -> None:
    members = [member_of("a.obj", ["b"], b"x" * size), member_of("b.obj", ["a"], b"yy")]
    path = tmp_path / "x.lib"
    write_plan(plan_archive(members), None, path)
    parsed = Parsed(path.read_bytes())
    assert [body for _, _, body in parsed.members[2:]] == [b"x" * size, b"yy"]
    assert all(offset % 2 == 0 for _, offset, _ in parsed.members)
    assert run("llvm-ar", "p", str(path), "b.obj").stdout == "yy"
    assert "b.obj" in run("x86_64-w64-mingw32-ar", "t", str(path)).stdout


NAMES = st.text(st.characters(min_codepoint=32, max_codepoint=0x7E, exclude_characters="/"), min_size=1, max_size=40)


@settings(max_examples=100, deadline=None)
@given(
    members=st.lists(
        st.tuples(NAMES, st.lists(st.text("abz_AZ09", min_size=1, max_size=6), max_size=5), st.binary(max_size=9)),
        min_size=1,
        max_size=8,
    )
)
def test_both_indexes_lead_to_the_members(members: list[tuple[str, list[str], bytes]]) -> None:
    plan = plan_archive([member_of(*member) for member in members])
    image = bytearray(plan.size)
    for piece in plan.pieces:
        image[piece.offset : piece.offset + len(piece.data)] = piece.data
    parsed = Parsed(bytes(image))
    rest = [member for member in parsed.members[2:] if member[0] != b"//"]
    assert [body for _, _, body in rest] == [data for _, _, data in members]
    assert list(parsed.starts) == [offset for _, offset, _ in rest]
    expected = [
        (symbol.encode(), offset)
        for (_, symbols, _), (_, offset, _) in zip(members, rest, strict=True)
        for symbol in symbols
    ]
    assert parsed.first == expected
    assert parsed.second == sorted(expected)
    table = next((body for name, _, body in parsed.members if name == b"//"), b"")
    for (name, _, _), (field, _, _) in zip(members, rest, strict=True):
        if len(name) > 15:
            assert table[int(field[1:]) :].split(b"\0")[0] == name.encode()
        else:
            assert field == name.encode() + b"/"


def huge(size: int) -> Member:
    return Member("huge.obj", ["s"], lambda _: FilePlan(size, [], []))


def test_four_gib_are_refused() -> None:
    before = plan_archive([huge(0)]).size
    limit = (1 << 32) - 1
    assert plan_archive([huge(limit - 1 - before)]).size == limit - 1  # an even number
    with pytest.raises(LayoutError, match="archive of COFF: expected at most 4294967295 bytes, found 4294967296"):
        plan_archive([huge(limit + 1 - before)])


def test_member_numbers_have_16_bits() -> None:
    one = member_of("a.obj", [], b"")
    assert plan_archive([one] * MAX_MEMBERS).size
    with pytest.raises(LayoutError, match="at most 65535, found 65536; write several archives"):
        plan_archive([one] * (MAX_MEMBERS + 1))


@pytest.mark.parametrize("name", ["", "a/b.obj", "a\nb.obj", "a\0b.obj"])
def test_names_that_the_format_cannot_hold_are_refused(name: str) -> None:
    with pytest.raises(LayoutError, match="not a name for a member"):
        plan_archive([member_of(name, [], b"")])


def test_second_pack_is_refused() -> None:
    members = [Member(name, [], lambda _: FilePlan(8, [], [], pack_offset=0)) for name in ("a.obj", "b.obj")]
    with pytest.raises(LayoutError, match="one pack"):
        plan_archive(members)
