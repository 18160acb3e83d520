"""A skip that nobody expects fails the continuous integration."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), ".ci")


@pytest.mark.parametrize(
    ("reason", "status"),
    [("loongarch64-linux-gnu: Debian 12 has no C compiler for LoongArch", 0), ("clang is not installed", 1), (None, 0)],
)
def test_unexpected_skip(reason: str | None, status: int, tmp_path: Path) -> None:
    body = f'import pytest\ndef test_it():\n    pytest.skip("{reason}")\n' if reason else "def test_it():\n    pass\n"
    (tmp_path / "test_one.py").write_text(body)
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", "test_one.py"]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    check = [
        sys.executable,
        os.path.join(FOLDER, "check_skips.py"),
        str(report),
        os.path.join(FOLDER, "expected-skips"),
    ]
    done = subprocess.run(check, check=False, capture_output=True, text=True)
    assert done.returncode == status
    assert (reason or "") in done.stdout
