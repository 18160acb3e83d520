"""Golden dumps of ELF: what is written today is what was looked at, field by field."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.golden.make_elf import DUMPS, FOLDER, make

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", DUMPS)
def test_files_are_as_they_were(name: str, tmp_path: Path) -> None:
    """Where a change is meant: `python -m tests.golden.make_elf`."""
    assert make(name, tmp_path) == (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
