"""Other programs: run to their end, and ended with this process."""

from __future__ import annotations

from emitter.output import ends_with_us
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from subprocess import CompletedProcess

__all__ = ["run"]


def run(
    command: Sequence[str],
    *,
    data: bytes = b"",
    seconds: float,
    folder: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> CompletedProcess[bytes]:
    """Run a program with `data` on its standard input; return its status and what it wrote.

    Unlike what `subprocess.run` starts, it is killed when a signal ends this process (`output.cleanup_on_signals`).
    Raises OSError if it cannot be started, subprocess.TimeoutExpired after `seconds`.
    """
    import subprocess

    pipe = subprocess.PIPE
    with ends_with_us(
        lambda: subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=pipe if data else subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
        )
    ) as child:
        out, words = child.communicate(data or None, timeout=seconds)
    return subprocess.CompletedProcess(command, child.returncode, out, words)
