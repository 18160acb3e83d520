"""What every test may rely on."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

# A run that was started with nohup, or in the background of a script, ignores these, and so would every process that a
# test starts and means to interrupt.
for _number, _handler in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)


@pytest.fixture
def code_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the test have a cache of compiled code of its own, which is empty: the folder `cache` of its `tmp_path`."""
    monkeypatch.setenv("EMITTER_CACHE_DIR", str(tmp_path / "cache"))
