"""Runs commands and measures them as whole processes: wall time, processor time, peak memory."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Command", "Row", "Sample", "best_of", "compare", "run_once"]

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Sample:
    """One run: seconds of wall and processor time, bytes of the largest process in it."""

    wall: float
    cpu: float
    peak: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command with the files that it writes. They are removed around each run, unless `replaces` is set."""

    name: str
    argv: Sequence[str]
    outputs: Sequence[str] = ()
    replaces: bool = False


@dataclass(slots=True)
class Row:
    """What was measured of a command, and of its baseline directly before each run; `failure` says why nothing was."""

    name: str
    samples: list[Sample] = field(default_factory=list)
    baseline: list[Sample] = field(default_factory=list)
    failure: str = ""

    @property
    def wall(self) -> float:
        """Median wall time in seconds."""
        return statistics.median(sample.wall for sample in self.samples)

    @property
    def cpu(self) -> float:
        """Median processor time in seconds."""
        return statistics.median(sample.cpu for sample in self.samples)

    @property
    def peak(self) -> int:
        """The largest memory of any run, in bytes."""
        return max(sample.peak for sample in self.samples)

    @property
    def ratios(self) -> list[float]:
        """Wall time of each pair, as a multiple of the baseline, sorted."""
        return sorted(s.wall / b.wall for s, b in zip(self.samples, self.baseline, strict=True))

    @property
    def ratio(self) -> float:
        """Median of the ratios."""
        return statistics.median(self.ratios)

    @property
    def extra(self) -> float:
        """Median of the seconds beyond the baseline."""
        return statistics.median(s.wall - b.wall for s, b in zip(self.samples, self.baseline, strict=True))

    def ratio_beyond(self, start_up: float) -> float:
        """Return the median ratio when `start_up` seconds are taken from each run."""
        pairs = zip(self.samples, self.baseline, strict=True)
        return statistics.median((s.wall - start_up) / b.wall for s, b in pairs)

    def to_json(self) -> dict[str, object]:
        """Return the figures under their keys; times in seconds, memory in bytes."""
        if self.failure:
            return {"name": self.name, "failure": self.failure}
        result: dict[str, object] = {
            "name": self.name,
            "runs": len(self.samples),
            "wall_s": self.wall,
            "cpu_s": self.cpu,
            "peak_bytes": self.peak,
        }
        if self.baseline:
            result |= {
                "ratio": self.ratio,
                "ratio_min": self.ratios[0],
                "ratio_max": self.ratios[-1],
                "extra_s": self.extra,
            }
        return result


def run_once(argv: Sequence[str]) -> Sample:
    """Run a command with a file for its messages; raise RuntimeError, with the last of them, if it fails.

    The kernel counts the launcher's memory at the time of the fork as the child's peak: keep this process small.
    """
    import tempfile

    with tempfile.TemporaryFile() as messages:
        start = time.perf_counter()
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=messages, stderr=messages)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            messages.seek(0)
            lines = messages.read().decode(errors="replace").strip().splitlines()
            raise RuntimeError(f"exit {process.returncode}: {lines[-1] if lines else 'no message'}")
    return Sample(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def compare(commands: Sequence[Command], baseline: Command | None, rounds: int) -> list[Row]:
    """Run each command `rounds` times, directly after the baseline each time, all in turn; one more round warms up."""
    rows = [Row(command.name) for command in commands]
    for number in range(rounds + 1):
        for command, row in zip(commands, rows, strict=True):
            if row.failure:
                continue
            try:
                before = _run(baseline) if baseline else None
                sample = _run(command)
            except (RuntimeError, OSError) as error:
                row.failure = str(error)
                continue
            if number:
                row.samples.append(sample)
                if before:
                    row.baseline.append(before)
    for command in [*commands, *([baseline] if baseline else [])]:
        _remove(command)
    return rows


def best_of(argv: Sequence[str], rounds: int) -> float:
    """Return the median of the number that a program prints as its first word."""
    found = [
        float(subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()[0]) for _ in range(rounds)
    ]
    return statistics.median(found)


def _run(command: Command) -> Sample:
    if not command.replaces:
        _remove(command)
    sample = run_once(command.argv)
    if not command.replaces:
        _remove(command)  # before it is written back: the disk is not what is measured
    return sample


def _remove(command: Command) -> None:
    for path in command.outputs:
        if os.path.exists(path):
            os.unlink(path)
