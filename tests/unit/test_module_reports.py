"""Modules in what is reported: emitter inspect, its sizes and pictures, maps, plans, and the checksums of verify."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

import pytest

from emitter import emit, load
from emitter.checksum import crc32c
from emitter.cli import main
from emitter.errors import FormatError
from emitter.pack import format as fmt
from tests.loader_support import set_field
from tests.module_packages import GRAPH, module_package, module_tables_of, with_checksums
from tests.support import build_pack

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ["root", "tables", "device", "engine", "graph"]
SVG_TITLE = "{http://www.w3.org/2000/svg}title"
FILES = ["libm.so", "m.o", "libm.a", "m.pack", "libm.dylib", "m.dll", "m.obj"]
TARGETS = {"libm.dylib": "arm64-apple-macos", "m.dll": "x86_64-windows-msvc", "m.obj": "x86_64-windows-msvc"}


def printed(capsys: pytest.CaptureFixture[str], *arguments: object, status: int = 0) -> str:
    capsys.readouterr()
    assert main([*map(str, arguments)]) == status
    return capsys.readouterr().out


def written(folder: Path, file: str, **options: Any) -> Path:
    emit(module_package(), folder / file, target=TARGETS.get(file, "aarch64-linux-gnu"), **options)
    return folder / file


def modules_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    (modules,) = [pack["modules"] for one in document["objects"] for pack in one["packs"] or ()]
    assert [module["name"] for module in modules] == NAMES
    return list(modules)


def stored(path: Path, form: dict[str, Any]) -> bytes:
    data = path.read_bytes()[form["file_offset"] : form["file_offset"] + form["size"]]
    assert form["crc32c"] == f"0x{crc32c(data):08x}"
    return data


@pytest.mark.parametrize("file", FILES)
def test_inspect_says_where_the_bytes_of_modules_are(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, file)
    modules = modules_of(json.loads(printed(capsys, "inspect", path, "--json")))
    root, tables, device, engine, graph = modules
    assert root["imports"] == ["engine", "device", "tables"]
    assert [stored(path, one["alternatives"][0])[:4] for one in (root, tables)] == [b"root", b""]
    assert stored(path, device["alternatives"][0]) == b"\x50\xed\x55\xba"
    forms = engine["alternatives"]
    assert [(one["kind"], one["schema_version"]) for one in forms] == [("tensorrt", 1), ("tensorrt", 1), ("graph", 2)]
    assert forms[0]["requires"] == {"sm": "== 87", "tensorrt": ">= 10.3, < 11"}
    assert forms[1]["requires"] == {"driver": ">= 550.54", "sm": "== 90"}
    assert forms[0]["alignment"] == 256
    assert stored(path, forms[2]) == stored(path, graph["alternatives"][0]) == GRAPH
    assert engine["functions"] == [
        {"name": "calibrate", "tensors": ["scale"]},
        {"name": "infer", "tensors": ["b", "w", "w"]},
    ]
    assert (engine["metadata"], tables["metadata"]) == ({"precision": "fp16"}, {"empty": ""})


def test_the_report_shows_modules_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "inspect", written(tmp_path, "libm.so"))
    for line in (
        r"^modules of pack m$",
        r"^    tensorrt 1: 680 bytes at 0x\w+, aligned to 256, crc32c 0x\w{8}, where sm == 87, tensorrt >= 10.3, < 11$",
        r"^    imports engine, device, tables$",
        r"^    function infer\(b, w, w\)$",
        r"^    metadata precision = fp16$",
    ):
        assert re.search(line, text, re.MULTILINE), line
    text = printed(capsys, "inspect", written(tmp_path, "libs.so", sidecar=True))
    assert re.search(r"bytes at 0x[0-9a-f]+ of libs\.pack, aligned", text)


def test_many_modules_are_cut_short_in_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = module_package()
    previous = "root"
    for number in range(60):
        previous = package.add_module(f"m{number}", "k", b"", imports=[previous]).name
    emit(package, tmp_path / "m.pack")
    text = printed(capsys, "inspect", tmp_path / "m.pack")
    assert "  m20\n" in text
    assert "  m19\n" not in text
    assert "... and 25 more: --all shows them" in text
    assert "  root\n" in printed(capsys, "inspect", tmp_path / "m.pack", "--all")


def test_offsets_count_in_the_sidecar(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, "libs.so", sidecar=True)
    reported = modules_of(json.loads(printed(capsys, "inspect", path, "--json")))
    found = [[stored(tmp_path / "libs.pack", form) for form in module["alternatives"]] for module in reported]
    with load(path) as library:
        assert found == [[bytes(form.bytes()) for form in module.alternatives] for module in library.modules]


def test_sizes_add_up_with_modules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(printed(capsys, "inspect", written(tmp_path, "m.pack"), "--json", "--sizes"))
    (pack,) = document["objects"][0]["packs"]
    sizes = pack["sizes"]
    total = sum(form["size"] for module in pack["modules"] for form in module["alternatives"]) + 48 + 32 + 4
    assert (sizes["deduplicated"], sizes["payload"]) == (len(GRAPH), total - len(GRAPH))
    assert sizes["index"] + sizes["payload"] + sizes["padding"] == pack["size"]
    text = printed(capsys, "inspect", tmp_path / "m.pack", "--sizes")
    assert re.search(r"^ +723 +85\.9 +3 +engine$", text, re.MULTILINE)
    assert re.search(r"^ +27 +3\.2 +1 +2 \(graph 2\)$", text, re.MULTILINE)


def test_the_picture_has_modules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed(capsys, "inspect", written(tmp_path, "libm.so"), "--svg", tmp_path / "m.svg")
    titles = [one.text or "" for one in ET.parse(tmp_path / "m.svg").iter(SVG_TITLE)]  # noqa: S314 - it was written here
    assert any(re.fullmatch(r"engine: tensorrt: 0x[0-9a-f]+-0x[0-9a-f]+, 680 bytes", title) for title in titles)


def test_broken_modules_are_a_fault_and_the_rest_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = build_pack(module_package(), "little")
    start, _ = module_tables_of(data, "little")
    changed = bytearray(data)
    changed[start : start + 4] = b"\xff\xff\xff\x7f"  # the offset of the root's name
    (tmp_path / "m.pack").write_bytes(with_checksums(changed, "little"))
    document = json.loads(printed(capsys, "inspect", tmp_path / "m.pack", "--json", status=1))
    (report,) = document["objects"]
    assert [fault["part"] for fault in report["faults"]] == ["modules"]
    assert (report["packs"][0]["modules"], report["packs"][0]["tensors"]) == ([], 3)
    assert "fault in modules: " in printed(capsys, "inspect", tmp_path / "m.pack", status=1)


@pytest.mark.parametrize(
    ("record", "field", "number", "value", "message"),
    [
        (fmt.FUNCTION, "argument_first", 2, 0, "a run of the table argument is not behind the owner before"),
        (fmt.FUNCTION, "argument_count", 3, 1 << 31, "a run of the table argument leaves it"),
        (fmt.ALTERNATIVE, "condition_first", 4, 0, "a run of the table condition is not behind the owner before"),
        (fmt.MODULE, "function_count", 2, 2, "a run of the table function is not behind the owner before"),
        (fmt.MODULE, "metadata_count", 0, 9, "runs of metadata overlap"),
        (fmt.DIRECTORY_ENTRY, "count", 7, 3, "is not behind the owner before|leaves it|belong to nobody"),
    ],
)
def test_runs_that_overlap_are_refused_before_they_are_read(
    record: fmt.Record,
    field: str,
    number: int,
    value: int,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Else a small file could have each of many owners read all records again."""
    data = set_field(build_pack(module_package(), "little"), record, field, value, number=number)
    (tmp_path / "m.pack").write_bytes(data)
    assert re.search(f"fault in modules: .*({message})", printed(capsys, "inspect", tmp_path / "m.pack", status=1))
    with pytest.raises(FormatError, match=message):
        load(data).validate()


@pytest.mark.parametrize("sidecar", [False, True])
def test_the_map_has_modules(tmp_path: Path, sidecar: bool) -> None:
    path = written(tmp_path, "libm.so", sidecar=sidecar, map=tmp_path / "m.json")
    path = tmp_path / "libm.pack" if sidecar else path
    document = json.loads((tmp_path / "m.json").read_text())
    assert [module["name"] for module in document["modules"]] == NAMES
    engine, graph = document["modules"][3:]
    assert stored(path, engine["alternatives"][0]).startswith(b"engine for sm_87 ")
    assert engine["alternatives"][2] == graph["alternatives"][0]
    assert (graph["alternatives"][0]["kind"], graph["alternatives"][0]["schema_version"]) == ("graph", 2)
    start = 0 if sidecar else document["pack"]["file_offset"]
    for module in document["modules"]:
        for form in module["alternatives"]:
            assert form["file_offset"] - form["pack_offset"] == start
            stored(path, form)


def test_emission_and_plan_count_modules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    emit(module_package(), tmp_path / "m.pack")
    document = json.loads(printed(capsys, "plan", "--json", tmp_path / "m.pack", "-o", tmp_path / "a.so"))
    assert document["outputs"][0]["modules"] == 5
    assert re.search(
        r"tensors +3 and 5 modules, ", printed(capsys, "plan", tmp_path / "m.pack", "-o", tmp_path / "a.so")
    )
    emitted = json.loads(printed(capsys, "--json", tmp_path / "m.pack", "-o", tmp_path / "a.so"))
    assert emitted["outputs"][0]["modules"] == 5


@pytest.mark.parametrize("sidecar", [False, True])
def test_verify_reads_the_bytes_of_modules(sidecar: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, "libm.so", sidecar=sidecar)

    def damaged() -> list[str]:
        capsys.readouterr()
        main(["verify", "--json", str(path)])
        findings = json.loads(capsys.readouterr().out)["findings"]
        return [one["subject"] for one in findings if one["rule"] == "pack-checksum"]

    assert damaged() == []
    holder = tmp_path / "libm.pack" if sidecar else path
    data = bytearray(holder.read_bytes())
    data[data.index(b"engine for sm_90")] ^= 1
    holder.write_bytes(data)
    assert damaged() == ["module engine, alternative 1"]
