"""emitter inspect, as it is typed: text, JSON, tensors, sizes, pictures, and what is refused."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from emitter.cli import main
from emitter.inspect.document import pieces
from tests.elf_objects import run

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = "evil\x1b[31m\n<&>\"'\u202e"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model as library, archive and pack."""
    path = tmp_path_factory.mktemp("inspect")
    tensors: dict[str, Any] = {
        "layer1.0.weight": np.arange(12, dtype=np.float32).reshape(3, 4) - 2,
        "layer1.0.bias": np.array([np.nan, 1, np.inf], np.float16),
        "layer1.1.weight": np.arange(12, dtype=np.float32).reshape(3, 4) - 2,
        "layer2/scale": np.array(7, np.int64),
        HOSTILE: np.zeros(100, np.uint8),
    }
    save_file(tensors, path / "m.safetensors")
    for output in ("libm.so", "m.a", "m.pack"):
        target = [] if output == "m.pack" else ["--target", "aarch64-linux-gnu", "--tensor-symbols"]
        assert main([*target, str(path / "m.safetensors"), "-o", str(path / output)]) == 0
    return path


def inspect(capsys: pytest.CaptureFixture[str], *arguments: object, status: int = 0) -> str:
    capsys.readouterr()
    assert main(["inspect", *map(str, arguments)]) == status
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    capsys.readouterr()
    assert main(["inspect", *map(str, arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_text_shows_every_part_and_no_control_characters(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = inspect(capsys, folder / "libm.so")
    parts = (
        "ELF shared object, AArch64, 64-bit little-endian", "hardening", "segments, as pages of 4096 bytes", "sections",
        "pack m", "symbols: ", "build id", "name         libm.so", "PT_GNU_RELRO", ".emitter",
    )  # fmt: skip
    for part in parts:
        assert part in text
    for output in ([], ["--tensors"], ["--tensors", "--stats"], ["--sizes", "--depth", "9"], ["--tensor", HOSTILE]):
        text = inspect(capsys, folder / "libm.so", *output)
        assert all(line.isprintable() for line in text.split("\n"))
        assert not output or "evil" in text


@pytest.mark.parametrize("name", ["libm.so", "m.a", "m.pack"])
def test_tensors_are_listed_with_the_offsets_of_their_bytes(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(inspect(capsys, folder / name, "--tensors", "--json", "--stats", "--hex"))
    data = (folder / name).read_bytes()
    tensors = {tensor["name"]: tensor for tensor in document["tensors"]}
    assert len(tensors) == 5
    weight = tensors["layer1.0.weight"]
    assert np.frombuffer(data, "<f4", 12, weight["file_offset"]).tolist() == list(np.arange(12) - 2)
    assert (weight["shape"], weight["dtype"], weight["size"]) == ([3, 4], "float32", 48)
    assert weight["stats"] | {"crc32c": ""} == {
        "count": 12, "minimum": -2, "maximum": 9, "mean": 3.5, "nan": 0, "inf": 0, "crc32c": "",
    }  # fmt: skip
    assert weight["stats"]["crc32c"] == weight["crc32c"]
    assert tensors["layer1.0.bias"]["stats"]["nan"] == tensors["layer1.0.bias"]["stats"]["inf"] == 1
    assert bytes.fromhex(weight["hex"]) == (np.arange(12, dtype="<f4") - 2).tobytes()
    assert weight["symbol"] == (None if name == "m.pack" else "m_t_layer1_0_weight")
    assert weight["member"] == ("m.o" if name == "m.a" else "")
    text = inspect(capsys, folder / name, "--tensors")
    assert f"{weight['file_offset']:#x}" in text


def test_one_tensor_with_values_and_bytes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = inspect(capsys, folder / "libm.so", "--tensor", "layer1.0.weight", "--stats", "--head", "3")
    assert "head         -2 -1 0\n" in text
    assert "symbol       m_t_layer1_0_weight" in text
    line = text.splitlines()[-1]
    assert re.fullmatch(r"float32 \[3,4\] crc32c 0x[0-9a-f]{8} min -2 max 9 mean 3.5 nan 0 inf 0 layer1.0.weight", line)
    text = inspect(capsys, folder / "libm.so", "--tensor", "layer1.0.weight", "--hex", "--head", "2")
    assert text.splitlines()[-1].endswith(": 00 00 00 c0 00 00 80 bf")
    document = json.loads(inspect(capsys, folder / "libm.so", "--tensor", "layer1.0.bias", "--head", "9", "--json"))
    assert document["tensors"][0]["head"] == ["nan", 1.0, "inf"]


def test_stats_find_bytes_that_changed(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(inspect(capsys, folder / "libm.so", "--tensor", "layer2/scale", "--json"))
    data = bytearray((folder / "libm.so").read_bytes())
    data[document["tensors"][0]["file_offset"]] ^= 1
    (tmp_path / "changed.so").write_bytes(data)
    text = inspect(capsys, tmp_path / "changed.so", "--tensors", "--stats", status=1)
    assert re.search(
        r"^fault: .*changed\.so: tensor 'layer2/scale': .*crc32c does not match: expected 0x", text, re.MULTILINE
    )
    document = json.loads(inspect(capsys, tmp_path / "changed.so", "--tensors", "--stats", "--json", status=1))
    assert [fault["kind"] for fault in document["faults"]] == ["FormatError"]


def test_tensors_of_a_sidecar_are_read_there(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    library = tmp_path / "libs.so"
    assert main(["--target", "x86_64-linux-gnu", str(folder / "m.safetensors"), "-o", str(library), "--sidecar"]) == 0
    (report,) = json.loads(inspect(capsys, library, "--json", "--sizes"))["objects"]
    (pack,) = report["packs"]
    assert pack["sidecar"] == "libs.pack"
    assert (pack["sizes"]["payload"], pack["sizes"]["deduplicated"]) == (0, 48)
    assert "sidecar      libs.pack" in inspect(capsys, library)
    assert "evil" not in inspect(capsys, library, "--svg", tmp_path / "a.svg")
    measured = inspect(capsys, library, "--tensors", "--stats")
    assert measured == inspect(capsys, tmp_path / "libs.pack", "--tensors", "--stats")
    assert "file offset  0x" in inspect(capsys, library, "--tensor", "layer2/scale", "--head", "1")
    (tmp_path / "libs.pack").unlink()
    assert "libs.pack: cannot open" in refused(capsys, library, "--tensors", "--stats")


def test_sizes_add_up(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (report,) = json.loads(inspect(capsys, folder / "libm.so", "--json", "--sizes", "--depth", "2"))["objects"]
    (pack,) = report["packs"]
    sizes = pack["sizes"]
    assert sizes["index"] + sizes["payload"] + sizes["padding"] == pack["size"]
    assert sizes["payload"] == 48 + 6 + 8 + 100
    assert sizes["deduplicated"] == 48
    tree = {node["name"]: node for node in sizes["tree"]}
    assert (tree["layer1"]["size"], tree["layer1"]["count"]) == (102, 3)
    assert [child["name"] for child in tree["layer1"]["children"]] == ["layer1.0", "layer1.1"]
    assert tree["layer2"]["children"] == [{"name": "layer2/scale", "size": 8, "count": 1, "children": []}]
    text = inspect(capsys, folder / "libm.so", "--sizes")
    assert f"index {sizes['index']}, payload 162, padding {sizes['padding']}" in text
    (pack,) = json.loads(inspect(capsys, folder / "libm.so", "--json"))["objects"][0]["packs"]
    assert pack["sizes"] == sizes | {"tree": None}


def test_a_file_without_packs_has_its_sections_added_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.s").write_text('.section .rodata.one,"a"\n.zero 300\n.section .rodata.two,"a"\n.zero 200\n')
    run("as", str(tmp_path / "a.s"), "-o", str(tmp_path / "a.o"))
    text = inspect(capsys, tmp_path / "a.o", "--sizes", "--depth", "1")
    assert re.search(r"^ +500 .* 2 +\.rodata$", text, re.MULTILINE)


@pytest.mark.parametrize("name", ["libm.so", "m.a", "m.pack"])
def test_a_picture_is_valid_to_scale_and_the_same_each_time(
    name: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inspect(capsys, folder / name, "--svg", tmp_path / "a.svg")
    inspect(capsys, folder / name, "--svg", tmp_path / "b.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    root = ET.fromstring((tmp_path / "a.svg").read_text())  # noqa: S314 - it was written here
    svg = "{http://www.w3.org/2000/svg}"
    boxes = {}
    for group in root.iter(f"{svg}g"):
        title, rectangle = group.find(f"{svg}title"), group.find(f"{svg}rect")
        assert title is not None and title.text is not None and rectangle is not None
        boxes[title.text] = (float(rectangle.attrib["x"]), float(rectangle.attrib["width"]))
    size = (folder / name).stat().st_size
    document = json.loads(inspect(capsys, folder / name, "--tensors", "--json"))
    (zeros,) = (tensor for tensor in document["tensors"] if tensor["name"] == HOSTILE)
    (box,) = (place for title, place in boxes.items() if "evil\\x1b[31m\\n<&>\"'" in title)
    # 1200 units for the file, from 110; places are rounded to a hundredth.
    assert box[0] == pytest.approx(110 + zeros["file_offset"] / size * 1200, abs=0.01)
    assert box[1] == pytest.approx(max(zeros["size"] / size * 1200, 0.2), abs=0.01)


def test_many_sections_make_no_large_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.s").write_text("".join(f'.section .data.s{n},"aw"\n.long {n}\n' for n in range(20_000)))
    run("as", str(tmp_path / "a.s"), "-o", str(tmp_path / "a.o"))
    inspect(capsys, tmp_path / "a.o", "--svg", tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text()
    assert len(text) < 2 << 20
    assert " more: " in text
    text = inspect(capsys, tmp_path / "a.o")
    assert re.search(r"\.\.\. and \d{5} more: --all shows them", text)
    assert ".data.s19999" in inspect(capsys, tmp_path / "a.o", "--all")


def test_json_has_the_same_keys_for_every_kind_of_object(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = set()
    for name in ("libm.so", "m.a", "m.pack"):
        document = json.loads(inspect(capsys, folder / name, "--json"))
        assert document["schema"] == "emitter.inspect/1"
        (found,) = document["objects"]
        keys.add((*document, *found, *found["identity"]))
    assert len(keys) == 1


def test_members_that_are_nothing_known_are_said(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("words\n")
    (tmp_path / "bad.o").write_bytes(b"\x7fELF\7\7\7")
    (tmp_path / "mixed.a").write_bytes((folder / "m.a").read_bytes())
    run("ar", "q", "mixed.a", "notes.txt", cwd=tmp_path)
    text = inspect(capsys, tmp_path / "mixed.a")
    assert "member notes.txt: not an object file" in text
    assert "member m.o: ELF relocatable object" in text
    run("ar", "q", "mixed.a", "bad.o", cwd=tmp_path)
    document = json.loads(inspect(capsys, tmp_path / "mixed.a", "--json", status=1))
    assert [entry["member"] for entry in document["objects"]] == ["m.o", "notes.txt", "bad.o"]
    assert [entry["kind"] for entry in document["objects"]] == ["ELF relocatable object", "unknown", "unknown"]
    assert document["objects"][2]["faults"][0]["part"] == "header"
    text = inspect(capsys, tmp_path / "mixed.a", "--member", "m.o")
    assert "notes.txt" not in text


def test_an_empty_result_is_an_error(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("words\n")
    (tmp_path / "empty").touch()
    (tmp_path / "empty.a").write_bytes(b"!<arch>\n")
    run("ar", "qc", "text.a", "notes.txt", cwd=tmp_path)
    assert "not an object file" in refused(capsys, tmp_path / "notes.txt")
    assert "empty" in refused(capsys, tmp_path / "empty")
    assert "holds no object file" in refused(capsys, tmp_path / "empty.a")
    assert "holds no object file" in refused(capsys, tmp_path / "text.a")
    assert "cannot open" in refused(capsys, tmp_path / "nothing")
    assert "no object file 'x.o'" in refused(capsys, folder / "m.a", "--member", "x.o")
    (tmp_path / "a.s").write_text("nop\n")
    run("as", str(tmp_path / "a.s"), "-o", str(tmp_path / "a.o"))
    assert "it holds no pack" in refused(capsys, tmp_path / "a.o", "--tensors")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--stats"], "--stats is about tensors"),
        (["--hex"], "--hex is about tensors"),
        (["--head", "3"], "--head is about tensors"),
        (["--depth", "3"], "--depth is about sizes"),
        (["--tensors", "--tensor", "x"], "exclude each other"),
        (["--sizes", "--tensors"], "exclude each other"),
        (["--sizes", "--svg", "x.svg"], "exclude each other"),
        (["--tensors", "--head", "-1"], "--head is too small"),
        (["--sizes", "--depth", "0"], "--depth is too small"),
        (["--page-size", "5000"], "--page-size is not a power of two"),
        (["--page-size", "0"], "--page-size is not a power of two"),
        (["--member", "x"], "--member is about containers"),
        (["--tensor", "layer1.0.weigth"], "nearest: 'layer1.0.weight'"),
    ],
)
def test_misuse(arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refused(capsys, folder / "libm.so", *arguments)


def test_pieces_make_the_document_that_they_are_of() -> None:
    document = {"a": [1, {"b": None}], "c": iter([{"d": iter([])}, {"e": iter([1, "\udcff"])}]), "f": {}, "g": iter([])}
    text = "".join(pieces(document))
    expected = {"a": [1, {"b": None}], "c": [{"d": []}, {"e": [1, "\udcff"]}], "f": {}, "g": []}
    assert json.loads(text) == expected
