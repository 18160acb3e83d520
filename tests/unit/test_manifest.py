"""Manifests: what they describe is what Python would add, and what is wrong is said before anything is written."""

from __future__ import annotations

import io
import json
import os
from typing import TYPE_CHECKING, Any

import jsonschema
import numpy as np
import pytest
from safetensors.numpy import save_file

from emitter import Package, emit
from emitter.cli import main
from emitter.errors import EmitterError, InputError
from emitter.extract import extract
from emitter.manifest import read_manifest
from tests.module_packages import module_package
from tests.support import build_pack

if TYPE_CHECKING:
    from pathlib import Path

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

with open(os.path.join(ROOT, "docs", "manifest.schema.json"), encoding="utf-8") as schema_file:
    VALIDATOR = jsonschema.Draft202012Validator(json.load(schema_file))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    save_file({"w": np.arange(4, dtype=np.float32), "b": np.ones(2, np.float16)}, "model.safetensors")
    np.save("one.npy", np.arange(3))
    (tmp_path / "bytes.bin").write_bytes(bytes(range(8)))
    return tmp_path


def document(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "schema": "emitter.manifest/1",
        "metadata": {"k": "v"},
        "model_version": "7",
        "tensors": [
            {"file": "model.safetensors", "prefix": "net"},
            {
                "name": "ids",
                "file": "one.npy",
                "dtype": "int64",
                "shape": [3],
                "alignment": 128,
                "metadata": {"a": "b"},
            },
            {"name": "raw", "raw": "bytes.bin", "dtype": "int16", "shape": [2, 2]},
        ],
        "modules": [
            {"name": "top", "kind": "lib", "text": "", "imports": ["engine"]},
            {
                "name": "engine",
                "imports": ["graph"],
                "functions": {"run": ["net.w", "ids"]},
                "metadata": {"m": "n"},
                "alternatives": [
                    {"kind": "trt", "file": "bytes.bin", "requires": {"sm": "== 87"}, "alignment": 256},
                    {"kind": "graph", "text": "{}", "schema_version": 3},
                ],
            },
            {"name": "graph", "kind": "graph", "text": "{}"},
        ],
    }
    return base | changes


def expected() -> Package:
    package = Package(metadata={"k": "v"}, model_version="7")
    package.add_input("model.safetensors", prefix="net")
    package.add_tensor("ids", np.arange(3), alignment=128, metadata={"a": "b"})
    package.add_tensor("raw", np.frombuffer(bytes(range(8)), "<i2").reshape(2, 2))
    graph = package.add_module("graph", "graph", b"{}")
    engine = package.add_module(
        "engine",
        "trt",
        bytes(range(8)),
        imports=[graph],
        functions={"run": ["net.w", "ids"]},
        requires={"sm": "87"},
        metadata={"m": "n"},
        alignment=256,
    )
    package.add_alternative(engine, "graph", b"{}", schema_version=3)
    package.add_module("top", "lib", b"", imports=[engine])
    return package


def test_a_manifest_says_what_python_would(folder: Path) -> None:
    (folder / "m.json").write_text(json.dumps(document()))
    package = Package()
    package.add_manifest(folder / "m.json")
    assert build_pack(package, "little") == build_pack(expected(), "little")
    assert str(folder / "m.json") in package.files
    assert len(package.files) == 4
    VALIDATOR.validate(document())


def test_paths_are_relative_to_the_manifest_or_the_current_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = json.dumps(document())
    (folder / "m.json").write_text(text)
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    package = Package()
    package.add_manifest("../m.json")
    assert len(package.tensors) == 4
    with pytest.raises(InputError, match="cannot open"):
        read_manifest(Package(), "standard input", text.encode())
    monkeypatch.chdir(folder)
    package = Package()
    read_manifest(package, "standard input", text.encode())
    assert build_pack(package, "big") == build_pack(expected(), "big")


def test_toml_says_the_same(folder: Path) -> None:
    (folder / "m.toml").write_text(
        """
        schema = "emitter.manifest/1"
        model_version = "7"
        [metadata]
        k = "v"
        [[tensors]]
        file = "model.safetensors"
        prefix = "net"
        [[tensors]]
        name = "ids"
        file = "one.npy"
        alignment = 128
        metadata = {a = "b"}
        [[tensors]]
        name = "raw"
        raw = "bytes.bin"
        dtype = "int16"
        shape = [2, 2]
        [[modules]]
        name = "top"
        kind = "lib"
        text = ""
        imports = ["engine"]
        [[modules]]
        name = "engine"
        imports = ["graph"]
        functions = {run = ["net.w", "ids"]}
        metadata = {m = "n"}
        [[modules.alternatives]]
        kind = "trt"
        file = "bytes.bin"
        requires = {sm = "87"}
        alignment = 256
        [[modules.alternatives]]
        kind = "graph"
        text = "{}"
        schema_version = 3
        [[modules]]
        name = "graph"
        kind = "graph"
        text = "{}"
        """
    )
    package = Package()
    package.add_manifest("m.toml")
    assert build_pack(package, "little") == build_pack(expected(), "little")


def module(**keys: Any) -> dict[str, Any]:
    return {"modules": [{"name": "m", "kind": "k", "text": ""} | keys]}


def tensor(**keys: Any) -> dict[str, Any]:
    return {"tensors": [keys]}


# (what changes, what the message says, whether the JSON Schema refuses it too)
WRONG: list[tuple[dict[str, Any], str, bool]] = [
    ({"schema": "emitter.manifest/2"}, "another schema", True),
    ({"schema": 1}, "another type", True),
    ({"modles": []}, "no key 'modles'.*did you mean modules", True),
    ({"metadata": {"a": 1}}, "metadata is of another type", True),
    ({"tensors": {}}, "tensors is of another type", True),
    (tensor(), "one of the keys file and raw", True),
    (tensor(file="one.npy", raw="one.npy"), "one of the keys file and raw", True),
    (tensor(file="nobody.npy"), "nobody.npy: cannot open", False),
    (tensor(raw="bytes.bin"), "have a name", False),
    (tensor(name="r", raw="bytes.bin", dtype="int17", shape=[4]), "no such element type.*int17", False),
    (tensor(name="r", raw="bytes.bin", dtype="int16"), "have a shape", False),
    (tensor(name="r", raw="bytes.bin", dtype="int16", shape=[5]), "contradicts.*10 bytes", False),
    (tensor(name="r", raw="bytes.bin", shape=[-1]), "bad dimension", True),
    (tensor(name="r", file="one.npy", dtype="float32"), "dtype is not the file's", False),
    (tensor(name="r", file="one.npy", shape=[4]), "shape is not the file's", False),
    (tensor(name="r", file="model.safetensors"), "name belong to one tensor", False),
    (tensor(name="r", prefix="p", file="one.npy"), "one of the keys name and prefix", False),
    (tensor(name="r", file="one.npy", alignment=3), "alignment", False),
    (tensor(name="r", file="one.npy", allignment=4), "did you mean alignment", True),
    (module(name=1), "another type", True),
    (module(kind=""), "kind", True),
    (module(schema_version=-1), "schema version", True),
    (module(schema_version=True), "another type", True),
    (module(requires={"sm": "> 3"}), "cannot be read", False),
    (module(imports=["nobody"]), "not a module of the manifest.*'m'", False),
    (module(imports=["m"]), "circle.*'m' -> 'm'", False),
    (module(functions={"f": "w"}), "another type", True),
    (module(alternatives=[]), "alternatives, or itself", True),
    (module(file="bytes.bin"), "one of the keys file and text", True),
    ({"modules": [{"name": "m"}]}, "alternatives, or itself", True),
    ({"modules": [{"kind": "k", "text": ""}]}, "needs the key name", True),
    ({"modules": [{"name": "m", "alternatives": [{"text": ""}]}]}, "needs the key kind", True),
    ({"modules": module()["modules"] * 2}, "two modules are called 'm'", False),
    (
        {"modules": [{"name": n, "kind": "k", "text": "", "imports": [i]} for n, i in ("ab", "bc", "ca")]},
        "circle.*'a' -> 'b' -> 'c' -> 'a'",
        False,
    ),
]


@pytest.mark.parametrize(("change", "message", "schema_too"), WRONG, ids=[str(n) for n in range(len(WRONG))])
def test_what_is_wrong_is_said_and_the_package_stays(
    folder: Path, change: dict[str, Any], message: str, schema_too: bool
) -> None:
    wrong = {"schema": "emitter.manifest/1"} | change
    (folder / "m.json").write_text(json.dumps(wrong))
    package = expected()
    before = build_pack(package, "little")
    with pytest.raises(InputError, match=message) as caught:
        package.add_manifest("m.json")
    assert "m.json" in str(caught.value) or "nobody" in str(caught.value) or "one.npy" in str(caught.value)
    assert build_pack(package, "little") == before
    assert VALIDATOR.is_valid(wrong) != schema_too


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (module(functions={"f": ["nobody"]}), "takes a tensor"),
        ({"modules": module()["modules"] + module(name="n")["modules"]}, "no single root"),
    ],
)
def test_a_tree_that_cannot_be_is_refused_before_anything_is_written(
    folder: Path, change: dict[str, Any], message: str
) -> None:
    (folder / "m.json").write_text(json.dumps({"schema": "emitter.manifest/1"} | change))
    package = Package()
    package.add_manifest("m.json")
    with pytest.raises(EmitterError, match=message):
        emit(package, "out.pack")
    assert not (folder / "out.pack").exists()


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[1]", b"\xff", b'{"schema": "emitter.manifest/1", "schema": "x"}', b"a = 1\na = 2", b"{" * 100000,
     b"schema = " + b"[" * 100000],
)  # fmt: skip
def test_what_is_no_document_is_refused(folder: Path, text: bytes) -> None:
    (folder / "m").write_bytes(text)
    with pytest.raises(InputError):
        Package().add_manifest("m")


def test_the_command_takes_manifests_from_files_and_standard_input(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "m.json").write_text(json.dumps(document()))
    assert main(["--manifest", "m.json", "raw:bytes.bin", "-o", "a.pack", "--depfile", "a.d"]) == 0
    assert "m.json" in (folder / "a.d").read_text()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO((folder / "m.json").read_bytes())))
    assert main(["--manifest", "-", "raw:bytes.bin", "-o", "b.pack"]) == 0
    assert (folder / "a.pack").read_bytes() == (folder / "b.pack").read_bytes()
    (folder / "m.json").write_text("{}")
    assert main(["--json", "--manifest", "m.json", "-o", "c.pack"]) == 2
    error = json.loads(capsys.readouterr().out)["errors"][0]
    assert error["what"] == "a manifest needs the key schema"
    assert error["where"] == "m.json"


@pytest.mark.parametrize("target", ["aarch64-linux-gnu", "s390x-linux-gnu"])
def test_what_extract_writes_is_a_manifest_of_the_same_package(folder: Path, target: str) -> None:
    emit(module_package(), "libm.so", target=target)
    emit(module_package(), "m.pack", target=target)
    extract("libm.so", "out")
    with open("out/manifest.json", encoding="utf-8") as file:
        VALIDATOR.validate(json.load(file))
    package = Package()
    package.add_manifest("out/manifest.json")
    emit(package, "again.pack", target=target)
    assert (folder / "again.pack").read_bytes() == (folder / "m.pack").read_bytes()
