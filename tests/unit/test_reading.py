"""Reading ahead: much for neighbours, little for extents that are far apart; and what cannot be read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from emitter.errors import InputError
from emitter.package import BufferSource, FileSource
from emitter.reading import WINDOW, open_reader
from tests.support import record_reads

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("step", "calls", "most"), [(64, 20, 2 << 20), (100_000, 20_000, 200 << 10)])
def test_reading_ahead_follows_the_distance_of_extents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, calls: int, most: int
) -> None:
    content = os.urandom(1 << 20) + bytes(4 << 20)
    (tmp_path / "source").write_bytes(content)
    read = record_reads(monkeypatch)
    with open_reader(FileSource.of(tmp_path / "source")) as reader:
        for offset in range(0, 1 << 20 if step == 64 else 4 << 20, step):
            assert reader.read_near(offset, 50) == content[offset : offset + 50]
        assert reader.read_near(len(content) - 3, 3) == bytes(3)
        assert reader.read_near(100, WINDOW + 1) == content[100 : 101 + WINDOW]
        assert reader.read_near(64, 10) == content[64:74]
    assert len(read) <= calls
    assert sum(read) - WINDOW <= most


def test_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(bytes(100))
    for source in (FileSource.of(tmp_path / "source"), BufferSource("memory", memoryview(bytes(100)))):
        with open_reader(source) as reader:
            for call in (reader.read, reader.read_near):
                with pytest.raises(InputError, match="changed while it was read") as caught:
                    call(90, 11)
                assert source.path in str(caught.value)


def test_a_failing_disk_is_an_error_that_names_file_and_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "source").write_bytes(bytes(100))

    def fail(*arguments: object) -> bytes:
        raise OSError(5, "Input/output error")

    with open_reader(FileSource.of(tmp_path / "source")) as reader:
        monkeypatch.setattr("emitter.reading.pread", fail)
        with pytest.raises(InputError, match="byte 7: cannot read: Input/output error"):
            reader.read(7, 1)
