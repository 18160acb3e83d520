"""docs/cuda.md runs as it stands, and cross/gpu_check.sh computes what numpy does, with stand-ins in place of a GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.c_tools import ROOT
from tests.cuda_tools import standin, toolkit
from tests.run.test_documents import blocks_of, require, run_script

if TYPE_CHECKING:
    from pathlib import Path


def surroundings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the stand-ins where programs and linkers find the driver and the runtime, and nvcc on the path."""
    require("gcc", "g++")
    standin(folder / "driver")
    standin(folder / "driver", source="libcudart")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder / "driver"))
    monkeypatch.setenv("LIBRARY_PATH", str(folder / "driver"))
    monkeypatch.setenv("CUDA_RUNTIME", str(folder / "driver"))
    monkeypatch.setenv("CUDA_COMPUTE", "1")
    monkeypatch.setenv("PATH", os.pathsep.join([str(toolkit() / "bin"), os.environ["PATH"]]))


def test_the_document_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    surroundings(tmp_path, monkeypatch)
    work = tmp_path / "work"
    work.mkdir()
    printed = []
    for language, name, text in blocks_of("docs/cuda.md"):
        if name:
            (work / name).write_text(text)
        else:
            assert language == "sh", text
            printed.append(run_script(text, work))
    assert len(printed) == 7
    assert re.findall(r"\.(sm_\d+)\.(cubin|ptx)", printed[2]) == [
        ("sm_80", "cubin"),
        ("sm_90", "cubin"),
        ("sm_90", "ptx"),
    ]
    assert printed[3] == printed[4] == "axpy: 1000 elements, the last is 3996\n"


def run_check(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [os.path.join(ROOT, "cross", "gpu_check.sh"), sys.executable],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_the_check_of_a_gpu_with_the_stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    surroundings(tmp_path, monkeypatch)
    done = run_check()
    assert done.returncode == 0, done.stdout + done.stderr
    ways = re.findall(r"^gpu_check: (\w+): 1000003 elements are right$", done.stdout, re.MULTILINE)
    assert ways == ["fatbin", "cubin", "ptx", "registered"]
    # A kernel that does not run is found out.
    monkeypatch.delenv("CUDA_COMPUTE")
    done = run_check()
    assert done.returncode not in {0, 77}
    assert "Not equal to tolerance" in done.stderr


def test_the_check_of_a_gpu() -> None:
    done = run_check()
    if done.returncode == 77:
        pytest.skip(done.stdout.strip().rpartition("\n")[2])
    assert done.returncode == 0, done.stdout + done.stderr
