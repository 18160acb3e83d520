"""Universal files, taken apart by llvm-lipo and by lief: each slice is the file of its target, byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lief
import pytest

import emitter
from emitter.errors import LayoutError, UsageError
from emitter.layout import FilePlan
from emitter.splice.universal import plan_universal
from emitter.targets import load
from tests.macho_files import bad_pages, emit, fat_slices, package_of, parse, run

if TYPE_CHECKING:
    from pathlib import Path

PAYLOADS: dict[str, bytes | Path] = {"a": bytes(range(251)) * 9, "b": b"x" * 50000, "same": b"x" * 50000}
ARM, INTEL = "arm64-apple-macos", "x86_64-apple-macos"
FILES = ["libmodel.dylib", "libmodel.a", "model.o"]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("order", [(ARM, INTEL), (INTEL, ARM)])
def test_slices_are_the_files_of_their_targets(file: str, order: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / file
    artefact = emit(path, PAYLOADS, *order, tensor_symbols=True)
    assert artefact.target == "+".join(order) and artefact.size == path.stat().st_size
    assert artefact.deduplicated_size == 50000 and len(artefact.crcs) == 2
    assert run("llvm-lipo", path, "-archs").split() == ["x86_64", "arm64"]
    for target, arch in ((ARM, "arm64"), (INTEL, "x86_64")):
        alone = tmp_path / f"alone-{arch}" / file
        alone.parent.mkdir()
        emit(alone, PAYLOADS, target, tensor_symbols=True)
        thin = tmp_path / f"thin-{arch}"
        run("llvm-lipo", path, "-thin", arch, "-output", thin)
        assert thin.read_bytes() == alone.read_bytes()
    assert [cputype for cputype, _ in fat_slices(path.read_bytes())] == [0x01000007, 0x0100000C]


def test_lief_and_llvm_read_both_slices(tmp_path: Path) -> None:
    path = tmp_path / "libmodel.dylib"
    emit(path, PAYLOADS, ARM, INTEL)
    parsed = lief.MachO.parse(str(path))
    assert parsed is not None and parsed.size == 2
    for number in range(2):
        binary = parsed.at(number)
        assert binary is not None
        assert lief.MachO.check_layout(binary) == (True, "")
        assert binary.fat_offset % 16384 == 0
        assert bad_pages(path, binary.fat_offset)[1] == []
    listed = run("llvm-objdump", "--macho", "--universal-headers", path)
    assert listed.count("align 2^14 (16384)") == 2


def test_payload_is_at_a_fast_place_in_each_slice(tmp_path: Path) -> None:
    data = bytes(range(256)) * 8192
    path = tmp_path / "libmodel.dylib"
    emit(path, {"w": data}, ARM, INTEL)
    whole = path.read_bytes()
    first = whole.find(data)
    second = whole.find(data, first + 1)
    assert first % 65536 == second % 65536 == 0 and second > first
    assert {parse(part).at("_model_size", 8) for _, part in fat_slices(whole)} == {
        parse(part).at("_model_size", 8) for _, part in fat_slices(whole)[:1]
    }


def test_each_slice_has_the_packs_index(tmp_path: Path) -> None:
    path = tmp_path / "libmodel.dylib"
    emit(path, PAYLOADS, ARM, INTEL)
    (_, one), (_, other) = fat_slices(path.read_bytes())
    pack = parse(one).content("__EMITTER,__emitter")
    assert parse(other).content("__EMITTER,__emitter") == pack
    (tmp_path / "x.pack").write_bytes(pack)
    with emitter.load(tmp_path / "x.pack") as model:
        assert bytes(model["b"]) == PAYLOADS["b"]


@pytest.mark.parametrize(
    ("targets", "word"),
    [
        ((ARM, "arm64-apple-ios"), "xcframework"),
        (("arm64-apple-ios", "arm64-apple-ios-simulator"), "xcframework"),
        ((ARM, ARM), "each CPU once"),
    ],
)
@pytest.mark.parametrize("file", FILES)
def test_what_one_file_cannot_hold(targets: tuple[str, ...], word: str, file: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=word):
        emit(tmp_path / file, PAYLOADS, *targets)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("targets", "file"), [((ARM, INTEL), "model.pack"), ((ARM, "x86_64-linux-gnu"), "model.o")])
def test_others_want_a_path_each(targets: tuple[str, ...], file: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\{target\}"):
        emit(tmp_path / file, PAYLOADS, *targets)


def test_placeholders_still_give_a_file_each(tmp_path: Path) -> None:
    package = package_of(PAYLOADS)
    written = emitter.emit(package, tmp_path / "lib{target}.dylib", target=(ARM, INTEL))
    assert [artefact.target for artefact in written] == [ARM, INTEL]
    assert {parse(path.read_bytes()).header[1] for path in tmp_path.iterdir()} == {0x01000007, 0x0100000C}


def test_companions_are_one_for_all_slices(tmp_path: Path) -> None:
    import json

    emit(tmp_path / "libmodel.dylib", PAYLOADS, ARM, INTEL, map=str(tmp_path / "m.json"), header=str(tmp_path / "m.h"))
    document = json.loads((tmp_path / "m.json").read_text())
    assert document["target"] == f"{ARM}+{INTEL}"
    whole = (tmp_path / "libmodel.dylib").read_bytes()
    for tensor in document["tensors"]:
        data = PAYLOADS[tensor["name"]]
        assert whole[tensor["file_offset"] :][: tensor["size"]] == data
    with pytest.raises(UsageError, match="one map"):
        emit(tmp_path / "other.dylib", PAYLOADS, ARM, INTEL, map=str(tmp_path / "{target}.json"))


@pytest.mark.parametrize("style", ["ld", "incbin", "xxd"])
def test_other_tools_symbols(style: Any, tmp_path: Path) -> None:
    emit(tmp_path / "blobs.o", PAYLOADS, ARM, INTEL, symbols=style)
    parts = [parse(part) for _, part in fat_slices((tmp_path / "blobs.o").read_bytes())]
    assert list(parts[0].symbols()) == list(parts[1].symbols())
    assert parts[0].sections == parts[1].sections


def test_sum_of_the_slices_at_the_limit() -> None:
    arm, intel = load(ARM), load(INTEL)

    def plan(size: int) -> FilePlan:
        return plan_universal([(arm, FilePlan(1 << 31, [], [])), (intel, FilePlan(size, [], []))])

    assert plan((1 << 31) - 32768).size <= 0xFFFFFFFF
    with pytest.raises(LayoutError) as caught:
        plan(1 << 31)
    assert "4294967295" in str(caught.value) and "{target}" in str(caught.value) and "--sidecar" in str(caught.value)


def test_each_slice_alone_may_fit_and_both_not(tmp_path: Path) -> None:
    """2.2 GiB are well within a library's limit, and twice that is not: refused before a byte is written."""
    source = tmp_path / "w.bin"
    with source.open("wb") as file:
        file.truncate(2200 << 20)
    with pytest.raises(LayoutError, match="once for each CPU"):
        emit(tmp_path / "libmodel.dylib", {"w": source}, ARM, INTEL)
    assert not (tmp_path / "libmodel.dylib").exists()
    artefact = emit(tmp_path / "libmodel.dylib", {"w": source}, ARM, INTEL, sidecar=True)
    assert artefact.size < 1 << 20 and artefact.sidecar is not None
