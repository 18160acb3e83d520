"""Golden dumps of ELF, Mach-O, COFF and PE: what is written today is what was looked at, field by field."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.golden.make_dumps import DUMPS, make, path_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", DUMPS)
def test_files_are_as_they_were(name: str, tmp_path: Path) -> None:
    """Where a change is meant: `python -m tests.golden.make_dumps`."""
    assert make(name, tmp_path) == path_of(name).read_text(encoding="utf-8")


def test_every_dump_that_is_kept_is_compared() -> None:
    folders = {path_of(name).parent for name in DUMPS}
    assert {path for folder in folders for path in folder.iterdir()} == set(map(path_of, DUMPS))
