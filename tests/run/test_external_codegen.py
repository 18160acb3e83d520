"""The back end of docs/external-codegen.md, whose code is there to be taken: what it makes of damaged payloads."""

from __future__ import annotations

import os
import random
import struct
from typing import TYPE_CHECKING

import pytest

from emitter import load
from tests import c_tools
from tests.run.test_documents import blocks_of, run_script

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the program, built with sanitizers for the host, and its library."""
    pytest.importorskip("cbor2", reason="cbor2 is not installed")
    path = tmp_path_factory.mktemp("acme")
    for _, name, text in blocks_of("docs/external-codegen.md"):
        if name:
            (path / name).write_text(text.replace("aarch64-linux-gnu", "x86_64-linux-gnu"))
    run_script("python3 build_model.py", path)
    flags = ("-std=c99", "-D_GNU_SOURCE", "-g", *c_tools.WARNINGS, *c_tools.sanitizers("gcc"))
    c_tools.build("gcc", str(path / "acme"), *flags, str(path / "acme.c"), "-ldl")
    return path


def test_the_program_computes_what_the_document_says(folder: Path) -> None:
    for arguments, line in ((["2.4.1"], "acme.npu: 0 0 9 17\n"), ([], "acme.graph: 0 0 9 17\n")):
        done = c_tools.run(str(folder / "acme"), str(folder / "libmodel.so"), *arguments)
        assert (done.returncode, done.stdout, done.stderr) == (0, line, "")


def damaged(payload: bytes, rng: random.Random) -> bytes:
    """Return a payload with some bytes changed, put in or taken out: lengths and types of every kind, or anything."""
    data = bytearray(payload)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data) + 1)
        end = at + rng.randint(0, 9)
        data[at:end] = rng.choice([
            b"", rng.randbytes(rng.randint(1, 9)), bytes([rng.choice((0x1B, 0x3B, 0x5B, 0x7B, 0x9B, 0xBB, 0xFF))]),
        ])  # fmt: skip
    return bytes(data)


def test_damaged_payloads_are_refused_or_read_within_their_bytes(folder: Path, tmp_path: Path) -> None:
    """Under the address sanitizer, each in memory that ends where it ends."""
    with load(folder / "libmodel.so") as library:
        program, graph = (bytes(form.bytes()) for form in library.modules[0].alternatives)
        pack = library.packs[0]
        data = (folder / "libmodel.so").read_bytes()[pack.file_offset : pack.file_offset + pack.size]
    (tmp_path / "m.pack").write_bytes(data)
    rng = random.Random(1)
    cases = [(1, graph), (0, program)]
    cases += ((1, graph[:size]) for size in range(len(graph)))
    cases += ((1, graph[:at] + bytes([value]) + graph[at + 1 :]) for at in range(len(graph)) for value in range(256))
    cases += ((kind, damaged(payload, rng)) for kind, payload in ((1, graph), (0, program)) for _ in range(5000))
    (tmp_path / "cases").write_bytes(b"".join(struct.pack("<BI", kind, len(one)) + one for kind, one in cases))
    include = ("-std=c99", "-D_GNU_SOURCE", "-g", f"-I{folder}", *c_tools.sanitizers("gcc"))
    source = os.path.join(c_tools.DATA, "acme_mutate.c")
    binary = c_tools.build("gcc", str(tmp_path / "mutate"), *c_tools.WARNINGS, *include, source, "-ldl")
    done = c_tools.run(binary, str(tmp_path / "m.pack"), str(tmp_path / "cases"))
    assert (done.returncode, done.stderr) == (0, "")
    ran, total = map(int, done.stdout.split(" of "))
    assert total == len(cases)
    assert 2 + len(graph) <= ran < total // 2  # the whole ones, in each place of the graph's bytes
