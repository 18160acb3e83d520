"""docs/targets.md: its commands run as they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.run.test_documents import blocks_of, require, run_script

if TYPE_CHECKING:
    from pathlib import Path


def test_the_commands_for_bare_metal(tmp_path: Path) -> None:
    require("arm-none-eabi-gcc", "qemu-system-arm")
    printed = []
    for language, name, text in blocks_of("docs/targets.md"):
        if name:
            (tmp_path / name).write_text(text)
        elif language == "sh":
            printed.append(run_script(f"exec </dev/null\n{text}", tmp_path))
        else:
            assert language == "text"
    assert printed == ["", "weights: 12 bytes\n"]
    assert ".flash_weights : { KEEP(*(.flash_weights)) } > QSPI" in (tmp_path / "weights.ld").read_text()
