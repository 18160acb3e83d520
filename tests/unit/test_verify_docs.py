"""The workflow in docs/github-actions.yml: it is YAML, and its commands do what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import yaml

from emitter.verify.profile import KEYS

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / "docs" / "github-actions.yml").read_text())
JOB = WORKFLOW["jobs"]["verify"]


@pytest.mark.parametrize("row", JOB["strategy"]["matrix"]["include"], ids=lambda row: row["profile"])
def test_the_commands_of_the_workflow_run(row: dict[str, str], tmp_path: Path) -> None:
    safetensors.numpy.save_file({"w": np.ones((3, 4), np.float32)}, tmp_path / "model.safetensors")
    (tmp_path / "dist").mkdir()
    environment = {**os.environ, "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])}
    commands = [step["run"] for step in JOB["steps"] if "emitter" in step.get("run", "") and "pip" not in step["run"]]
    assert len(commands) == 2
    for command in commands:
        line = re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda match: row[match[1]], command)
        done = subprocess.run(
            ["bash", "-ec", line], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert "1 artefact verified: 0 errors" in done.stdout


def test_what_the_workflow_uses_has_a_version() -> None:
    used = [step["uses"] for step in JOB["steps"] if "uses" in step]
    assert used
    assert all(re.fullmatch(r"[\w./-]+@v\d+", name) for name in used)


def test_the_document_names_every_key_of_profiles_and_every_option() -> None:
    text = (ROOT / "docs" / "verify.md").read_text()
    assert all(f"`{key}`" in text for key in KEYS)
    done = subprocess.run(
        [sys.executable, "-m", "emitter", "verify", "--help"], capture_output=True, text=True, check=True
    )
    for option in set(re.findall(r"--[a-z-]+", done.stdout)) - {"--help", "--json"}:
        assert option in text, option
