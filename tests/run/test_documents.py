"""The documents say what is true: their blocks are run as they stand."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TOOLS = ("gcc", "make", "aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++", "qemu-aarch64")


def blocks_of(document: str) -> list[tuple[str, str, str]]:
    return BLOCK.findall((ROOT / document).read_text())


def environment() -> dict[str, str]:
    """Return an environment in which `emitter` and `python3` are those that run the tests."""
    return {**os.environ, "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])}


def require(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


def test_the_guide(tmp_path: Path) -> None:
    require(*TOOLS)
    blocks = blocks_of("docs/guide.md")
    assert len(blocks) > 15
    for language, name, text in blocks:
        if name:
            (tmp_path / name).write_text(text)
            continue
        assert language == "sh", text
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"


def test_the_programs_of_the_readme(tmp_path: Path) -> None:
    require(*TOOLS)
    (tmp_path / "p.py").write_text(next(text for language, _, text in blocks_of("README.md") if language == "python"))
    (tmp_path / "p.c").write_text(next(text for language, _, text in blocks_of("README.md") if language == "c"))
    script = f"""
        python3 {ROOT}/benchmarks/make_resnet18.py resnet18.safetensors
        emitter --target aarch64-linux-gnu resnet18.safetensors -o libresnet18.so
        python3 p.py
        emitter header -o emitter.h
        aarch64-linux-gnu-gcc -Wall -Werror p.c -o p -ldl
        qemu-aarch64 -L /usr/aarch64-linux-gnu ./p
    """
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "(64, 3, 7, 7) float32" in done.stdout
    assert "conv1.weight: 4 dimensions, first value" in done.stdout


@pytest.mark.parametrize(
    "document", ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
)
def test_links_lead_somewhere(document: str) -> None:
    base = (ROOT / document).parent
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / document).read_text()):
        assert (base / link).exists(), link
