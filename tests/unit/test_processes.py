"""Other programs: what they are given and say, and that they end with the process that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from emitter.processes import run

PYTHON = sys.executable


def test_a_program_is_given_bytes_and_answers() -> None:
    program = "import sys; sys.stdout.write(sys.stdin.read().upper()); sys.stderr.write('words'); sys.exit(3)"
    done = run([PYTHON, "-c", program], data=b"abc" * 100000, seconds=60)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"ABC" * 100000, b"words")


def test_no_data_is_an_empty_standard_input() -> None:
    assert run([PYTHON, "-c", "import sys; print(len(sys.stdin.read()))"], seconds=60).stdout.split() == [b"0"]


def test_a_program_that_takes_too_long_is_ended() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run([PYTHON, "-c", "import time; time.sleep(600)"], seconds=0.5)


def test_a_program_that_cannot_be_started() -> None:
    with pytest.raises(FileNotFoundError):
        run(["/nonexistent/program"], seconds=60)


PARENT = """
import sys
from emitter.output import cleanup_on_signals, work_folder
from emitter.processes import run
cleanup_on_signals()
child = "import os, time; open('n', 'w').write(str(os.getpid())); os.rename('n', 'started'); time.sleep(600)"
with work_folder(sys.argv[1]) as folder:
    run([sys.executable, "-c", child], seconds=600, folder=folder)
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_both_and_leaves_nothing(tmp_path: os.PathLike[str], number: signal.Signals) -> None:
    folder = os.fspath(tmp_path)
    with subprocess.Popen([PYTHON, "-c", PARENT, os.path.join(folder, "out")]) as parent:
        child = _started(folder)
        parent.send_signal(number)
        assert parent.wait(timeout=60) == 128 + number
    assert os.listdir(folder) == []
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def _started(folder: str) -> int:
    for _ in range(6000):
        for name in os.listdir(folder):
            path = os.path.join(folder, name, "started")
            if os.path.exists(path):
                with open(path, encoding="ascii") as file:
                    return int(file.read())
        time.sleep(0.01)
    pytest.fail("the program does not start")


def test_a_signal_while_a_program_starts_ends_it_too() -> None:
    program = """
import os, signal, subprocess, sys
from emitter.output import cleanup_on_signals, ends_with_us
cleanup_on_signals()
def start():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdout=subprocess.PIPE)
    os.write(1, b"%d" % child.pid)
    os.kill(os.getpid(), signal.SIGTERM)
    return child
with ends_with_us(start):
    os.write(1, b"alive")
"""
    done = subprocess.run([PYTHON, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (143, "")
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)
