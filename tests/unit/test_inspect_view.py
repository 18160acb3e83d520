"""The bounds-checked window on a file: what it refuses, what it costs, and how windows nest."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emitter.errors import FormatError, InputError
from emitter.inspect.view import MAX_READ, MAX_STRING, View
from tests.support import traced

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EDGES = (0, 1, 7, 8, 9, (64 << 10) - 1, 64 << 10, (64 << 10) + 1)
SIZE = 200_000
DATA = bytes(i * i % 251 for i in range(SIZE))


@pytest.fixture
def view(tmp_path: Path) -> Iterator[View]:
    path = tmp_path / "data"
    path.write_bytes(DATA)
    with View.open(path) as opened:
        yield opened


@given(offset=st.integers(-10, SIZE + 10), size=st.integers(-1, SIZE + 10))
def test_read_gives_the_bytes_or_refuses(offset: int, size: int) -> None:
    view = View.of_bytes(DATA, "data")
    if offset >= 0 and size >= 0 and offset + size <= SIZE:
        assert view.read(offset, size, "it") == DATA[offset : offset + size]
    else:
        with pytest.raises(FormatError, match="it at offset"):
            view.read(offset, size, "it")


@pytest.mark.parametrize("offset", EDGES)
@pytest.mark.parametrize("size", EDGES)
def test_small_and_large_reads_of_a_file_across_blocks(offset: int, size: int, view: View) -> None:
    assert view.read(offset, size, "it") == DATA[offset : offset + size]
    assert view.read(SIZE - size, size, "it") == DATA[SIZE - size :]


def test_the_message_says_what_where_and_how_far() -> None:
    view = View.of_bytes(bytes(100), "liba.a: member x.o")
    with pytest.raises(FormatError) as caught:
        view.read(90, 20, "the section header table")
    text = str(caught.value)
    assert text.startswith("liba.a: member x.o: the section header table at offset 0x5a")
    assert "at most 0x64" in text
    assert "0x6e (20 bytes)" in text


@pytest.mark.parametrize(("offset", "count"), [(0, 1 << 62), (1 << 63, 1), (0, 1 << 40)])
def test_a_hostile_count_costs_nothing(offset: int, count: int, tmp_path: Path) -> None:
    path = tmp_path / "data"
    with path.open("wb") as file:
        file.truncate(1 << 32)
    with View.open(path) as view, traced() as peak:
        with pytest.raises(FormatError):
            view.table("<Q", offset, 8, count, "a table")
        with pytest.raises(FormatError, match="too large"):
            view.read(0, MAX_READ + 1, "a table")
        assert peak() < 1 << 20


def test_a_table_of_a_gigabyte_is_read_in_steps(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with path.open("wb") as file:
        file.truncate(1 << 30)
        file.seek(24)
        file.write(struct.pack("<Q", 7))
    with View.open(path) as view, traced() as peak:
        rows = view.table("<Q", 0, 8, (1 << 30) // 8, "a table")
        assert [next(rows) for _ in range(5)] == [(0,), (0,), (0,), (7,), (0,)]
        assert peak() < 4 << 20


@pytest.mark.parametrize("entry_size", [8, 9, 24, 100, (256 << 10) - 1, 256 << 10, (256 << 10) + 1])
def test_entries_may_be_larger_than_what_is_read_of_them(entry_size: int) -> None:
    count = 3 if entry_size > 1000 else 5000
    data = b"".join(struct.pack("<Q", n).ljust(entry_size, b"x") for n in range(count))
    rows = View.of_bytes(data, "data").table("<Q", 0, entry_size, count, "a table")
    assert [row[0] for row in rows] == list(range(count))


def test_entries_may_not_be_smaller() -> None:
    with pytest.raises(FormatError, match="entry size of a table is wrong: expected 8, found 7"):
        View.of_bytes(bytes(80), "data").table("<Q", 0, 7, 2, "a table")
    assert list(View.of_bytes(b"", "data").table("<Q", 0, 0, 0, "a table")) == []


def test_strings_end_at_a_nul_before_the_limit() -> None:
    long = b"n" * (MAX_STRING - 1)
    data = b"\0one\0t\xffwo\0" + long + b"\0" + b"m" * (MAX_STRING + 1) + b"\0rest"
    view = View.of_bytes(data, "data")
    assert view.string(0, len(data), "a name") == ""
    assert view.string(1, len(data), "a name") == "one"
    assert view.string(5, len(data), "a name") == "t\udcffwo"
    assert view.string(10, len(data), "a name") == long.decode()
    with pytest.raises(FormatError, match="has no end"):
        view.string(10 + len(long) + 1, len(data), "a name")
    with pytest.raises(FormatError, match="has no end"):
        view.string(1, 4, "a name")
    with pytest.raises(FormatError, match="has no end"):
        view.string(len(data) - 4, len(data) + 100, "a name")
    for offset in (-1, len(data), 1 << 63):
        with pytest.raises(FormatError, match="not in the string table"):
            view.string(offset, len(data), "a name")


def test_windows_nest_and_know_their_place(view: View) -> None:
    inner = view.window(1000, 500, "outer: member a").window(100, 50, "outer: member a: slice")
    assert (inner.base, inner.size, inner.where) == (1100, 50, "outer: member a: slice")
    assert inner.path == view.path
    assert inner.read(0, 50, "it") == DATA[1100:1150]
    assert bytes(inner.buffer()) == DATA[1100:1150]
    assert inner.crc32c(0, 50, "it") == google_crc32c.value(DATA[1100:1150])
    assert inner.read_up_to(40, 100) == DATA[1140:1150]
    assert inner.read_up_to(60, 100) == b""
    with pytest.raises(FormatError):
        inner.read(49, 2, "it")
    with pytest.raises(FormatError):
        view.window(SIZE - 1, 2, "a member")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    for name, message in (
        ("nothing", "cannot open"),
        ("empty", "empty"),
        ("pipe", "not a regular"),
        (".", "not a reg"),
    ):
        with pytest.raises(InputError, match=message):
            View.open(tmp_path / name)
    with pytest.raises(InputError, match="cannot open"):
        View.open("a\0b")


def test_a_file_that_shrinks_is_an_error_and_so_is_a_closed_one(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(DATA)
    view = View.open(path)
    os.truncate(path, 1000)
    with pytest.raises(InputError, match="changed while it was read"):
        view.read(100_000, 10, "it")
    view.close()
    view.close()
    with pytest.raises(InputError, match="closed"):
        view.read(150_000, 8 << 10, "it")
