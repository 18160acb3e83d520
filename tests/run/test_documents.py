"""The documents say what is true: their blocks are run as they stand."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from emitter import Artefact, errors
from emitter.options import Options

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TOOLS = (
    "gcc", "g++", "make", "ninja", "cmake", "aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++", "qemu-aarch64",
    "x86_64-w64-mingw32-gcc",
)  # fmt: skip


def blocks_of(document: str) -> list[tuple[str, str, str]]:
    return BLOCK.findall((ROOT / document).read_text())


def environment() -> dict[str, str]:
    """Return an environment in which `emitter` and `python3` are those that run the tests."""
    return {**os.environ, "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])}


def require(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


def run_script(script: str, folder: Path) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout


def run_blocks(document: str, folder: Path) -> int:
    """Run every block of a document in order, and return their number; one with a name is the content of that file."""
    blocks = blocks_of(document)
    for language, name, text in blocks:
        if name:
            (folder / name).write_text(text)
            continue
        assert language == "sh", text
        run_script(text, folder)
    return len(blocks)


@pytest.mark.parametrize(
    ("document", "least"),
    [
        ("code.md", 6),
        ("external-codegen.md", 13),
        ("guide.md", 35),
        ("inspect.md", 11),
        ("manifest.md", 3),
        ("python.md", 8),
        ("symbols.md", 6),
        ("tvm.md", 12),
        ("verify.md", 9),
    ],
)
def test_every_block_runs(document: str, least: int, tmp_path: Path) -> None:
    require(*TOOLS)
    if document == "tvm.md":
        pytest.importorskip("tvm", reason="apache-tvm is not installed")
    if document == "external-codegen.md":
        pytest.importorskip("cbor2", reason="cbor2 is not installed")
    assert run_blocks(f"docs/{document}", tmp_path) >= least
    # No block is written in a way that escapes the pattern.
    assert len(blocks_of(f"docs/{document}")) * 2 == (ROOT / "docs" / document).read_text().count("```")


def test_large_data_with_small_data(tmp_path: Path) -> None:
    require("gcc", "ld.lld", "readelf", "aarch64-linux-gnu-gcc", "qemu-aarch64")
    document = (ROOT / "docs/large-data.md").read_text()
    for _, name, text in blocks_of("docs/large-data.md"):
        if name:
            (tmp_path / name).write_text(text)
        else:
            script, sizes = re.subn(r"truncate -s \d+M", "truncate -s 1M", text)
            assert sizes == 1, text
            run_script(script, tmp_path)
    assert document.count("```") == 2 * len(blocks_of("docs/large-data.md"))


def test_the_programs_of_the_readme(tmp_path: Path) -> None:
    require(*TOOLS)
    blocks = blocks_of("README.md")
    for language in ("python", "c"):
        for name, text in ((name, text) for found, name, text in blocks if found == language):
            (tmp_path / (name or "host.py")).write_text(text)
    compile_line = next(text for language, _, text in blocks if language == "sh" and "print.c" in text)
    proofs = next(text for language, _, text in blocks if language == "sh" and "emitter verify" in text)
    first = next(text for language, _, text in blocks if language == "sh")
    assert first.count("&& . .venv/bin/activate &&") == 1
    printed = run_script(
        f"""
        python3 {ROOT}/benchmarks/make_resnet18.py resnet18.safetensors
        {first.strip().rpartition(" && ")[2]}
        python3 host.py
        {compile_line}
        qemu-aarch64 -L /usr/aarch64-linux-gnu ./print
        {proofs}
        """,
        tmp_path,
    )
    assert "are equal; tensors: 122" in printed
    assert "(64, 3, 7, 7) float32" in printed
    assert "conv1.weight: 4 dimensions, first value" in printed


def first_cells(text: str) -> list[str]:
    """Return what the first cells of tables say: the text in backquotes."""
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


def test_the_python_reference_has_every_option_field_and_error() -> None:
    text = (ROOT / "docs/python.md").read_text()
    options = text.split("| option |")[1].split("\n\n")[0]
    assert first_cells(options) == list(Options._fields)
    artefact = text.split("`emitter.Artefact` is")[1].split("`to_json()`")[0]
    assert first_cells(artefact) == list(Artefact._fields)
    classes = {name for name in errors.__all__ if name not in ("EmitterError", "printable", "shown")}
    assert set(first_cells(text.split("## Errors")[1])) == classes


def keys_of(value: object, path: str = "") -> set[str]:
    """Return the path of every key in a document: `a[].b` is the key b of each element of the list a."""
    if isinstance(value, dict):
        inner = {f"{path}.{key}".lstrip("."): part for key, part in value.items()}
        return set(inner).union(*(keys_of(part, name) for name, part in inner.items()))
    if isinstance(value, list):
        return set().union(*(keys_of(part, f"{path}[]") for part in value))
    return set()


MANIFEST = """{
    "schema": "emitter.manifest/1",
    "tensors": [{"name": "e", "raw": "a.npy", "encoding": 7, "alignment": 64}],
    "modules": [{"name": "m", "kind": "k", "text": "", "alignment": 64}]
}"""

MODULES = """{
    "schema": "emitter.manifest/1",
    "tensors": [{"name": "e", "raw": "a.npy"}],
    "modules": [{"name": "m", "kind": "k", "text": "x", "functions": {"f": ["e"]}}]
}"""

DOCUMENTS = {
    "emit": ["emitter --json a.npy -o a.o --target arm64", "emitter --json --symbols xxd raw:a.npy -o b.o"],
    "map": [
        "emitter a.npy -o a.so --tensor-symbols --map a.json && cat a.json",
        "emitter --symbols xxd raw:a.npy -o b.o --map b.json && cat b.json",
        "emitter a.npy -o c.so --sidecar --map c.json && cat c.json",
        f"echo '{MODULES}' > m.json; emitter --manifest m.json -o d.so --map d.json && cat d.json",
    ],
    "diff": [
        (
            "emitter a.npy -o a.so --target arm64; emitter a.npy -o b.so --meta k=v\n"
            "emitter diff --json a.so b.so || test $? = 1"
        ),
        (
            f"echo '{MANIFEST}' > m.json; emitter --manifest m.json -o a.pack\n"
            "emitter diff /bin/ls a.pack --json || test $? = 1"
        ),
    ],
    "extract": ["emitter extract --json a.npy -o a.safetensors"],
    "manifest": [
        (
            f"echo '{MANIFEST}' > m.json\n"
            "emitter --manifest m.json -o m.pack && emitter extract m.pack -o out && cat out/manifest.json"
        ),
        "emitter extract a.npy -o out2 && cat out2/manifest.json",
    ],
    "plan": [
        "emitter plan --json a.npy -o a.so --target arm64 --sidecar",
        "truncate -s 3G b && emitter plan --json raw:b -o b.o --target x86_64-linux-gnu",
        "emitter plan --json raw:b -o b.dll --target x86_64-windows-msvc || test $? = 2",
    ],
    "inspect": [
        "emitter a.npy -o a.so --target arm64 && emitter inspect --json --sizes --depth 1 a.so",
        "emitter inspect --json --sizes --depth 1 $(readlink -f $(command -v bash))",
        "head -c 1000 a.so > cut.so && (emitter inspect --json cut.so || test $? = 1)",
        f"echo '{MODULES}' > t.json; emitter --symbols tvm --manifest t.json -o t.o && emitter inspect --json t.o",
        f"echo '{MODULES}' > m.json; emitter --manifest m.json -o m.pack && emitter inspect --json m.pack",
    ],
    "svg": ["emitter a.npy -o a.so --target arm64 && emitter inspect --json a.so --svg a.svg"],
    "tensors": ["emitter a.npy -o a.so --target arm64 && emitter inspect --json --tensors --stats --hex a.so"],
    "targets": ["emitter targets --json", "emitter targets --json aarch64-linux-android31"],
    "header": ["emitter header --json -o emitter.h"],
    "verify": [
        (
            "for name in a b c; do emitter a.npy -o $name.so --target arm64; done\n"
            'echo \'[[waiver]]\nrule = "elf-machine"\npath = "a.so"\nreason = "known"\' > emitter-verify.toml\n'
            "emitter verify --target amd64 b.so --baseline b.json --write-baseline > out\n"
            "emitter verify --target amd64 a.so b.so c.so nobody.so --baseline b.json --json || test $? = 2"
        ),
    ],
    "rules": ["emitter rules --json"],
    "baseline": [
        (
            "emitter a.npy -o a.so --target arm64\n"
            "emitter verify --target amd64 a.so --baseline b.json --write-baseline > out; cat b.json"
        ),
    ],
    "error": ["emitter --json nobody.npy -o a.o || test $? = 2"],
}


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_the_keys_of_json_documents_are_those_of_the_text(kind: str, tmp_path: Path) -> None:
    text = (ROOT / "docs/json.md").read_text()
    documented = first_cells(text.split(f"## emitter.{kind}/1")[1].split("\n## ")[0])
    script = "python3 -c 'import numpy; numpy.save(\"a.npy\", numpy.ones(2))'"
    run_script(script, tmp_path)
    found = set()
    for command in DOCUMENTS[kind]:
        document = json.loads(run_script(command, tmp_path))
        assert document["schema"] == f"emitter.{kind}/1"
        found |= keys_of(document)
    assert len(documented) == len(set(documented))
    assert set(documented) == found


def test_every_schema_has_a_section() -> None:
    schemas = set()
    for folder in ("emitter", "targets"):
        for path in (ROOT / folder).rglob("*.py"):
            schemas |= set(re.findall(r"\"(emitter\.\w+/\d+)\"", path.read_text()))
    assert set(re.findall(r"^## (emitter\.\w+/\d+)$", (ROOT / "docs/json.md").read_text(), re.MULTILINE)) == schemas


def anchors_of(path: Path) -> set[str]:
    """Return the anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "document", ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
)
def test_links_lead_somewhere(document: str) -> None:
    base = (ROOT / document).parent
    for link, anchor in re.findall(r"\]\(([^)#:]+)(?:#([^)]*))?\)", (ROOT / document).read_text()):
        assert (base / link).exists(), link
        assert not anchor or anchor in anchors_of(base / link), f"{link}#{anchor}"
