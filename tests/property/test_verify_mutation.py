"""Mutated files never give a traceback, a hang, or much memory. Set EMITTER_MUTATIONS to try more of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys

COUNT = int(os.environ.get("EMITTER_MUTATIONS", "1500"))
SEED = 1
LIMIT = 500  # MiB


def test_mutated_files_end_with_a_status() -> None:
    command = [sys.executable, "-m", "tests.verify_mutations", str(SEED), str(COUNT)]
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = re.fullmatch(r"\{(.*)\} peak (\d+) MiB\n", done.stdout)
    assert found is not None, done.stdout
    assert sum(map(int, re.findall(r": (\d+)", found[1]))) == COUNT
    assert int(found[2]) < LIMIT
