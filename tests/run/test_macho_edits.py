"""Signed libraries after other people's tools: each leaves a file whose every page hash is right, and whose pack is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lief
import pytest

import emitter
from tests.macho_files import bad_pages, emit, fat_slices, parse, run, trie_exports

if TYPE_CHECKING:
    from pathlib import Path

PAYLOADS: dict[str, bytes | Path] = {"first": bytes(range(251)) * 400, "last": b"the last tensor " * 100}
TARGETS = ["arm64-apple-macos", "x86_64-apple-macos"]

# Tools that rewrite a library, and what they are told.
EDITS: dict[str, tuple[str, ...]] = {
    "strip": ("llvm-strip", "-x"),
    "identity": ("llvm-install-name-tool", "-id", "/a/much/longer/install/name/than/before/libmodel.1.dylib"),
    "search path": ("llvm-install-name-tool", "-add_rpath", "@loader_path/../Frameworks"),
}


def library(tmp_path: Path, *targets: str) -> Path:
    path = tmp_path / "libmodel.dylib"
    emit(path, PAYLOADS, *targets, tensor_symbols=True)
    return path


def assert_intact(path: Path) -> None:
    """Read the library as linkers, loaders and we do."""
    pages, wrong = bad_pages(path)
    assert pages and not wrong
    file = parse(path.read_bytes())
    offset, size = file.command(0x80000022, "10I")[8:]
    exports = trie_exports(file.data[offset : offset + size])
    assert exports == {name: row.n_value for name, row in file.symbols().items()}
    assert file.at("_model_t_last", 1600) == PAYLOADS["last"]
    binary = lief.parse(str(path))
    assert isinstance(binary, lief.MachO.Binary)
    assert lief.MachO.check_layout(binary) == (True, "")
    with emitter.load(path) as model:
        model.validate()
        assert {name: bytes(model[name]) for name in model} == PAYLOADS


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("edits", [("strip",), ("identity",), ("search path",), ("identity", "search path", "strip")])
def test_edited_by_llvm(target: str, edits: tuple[str, ...], tmp_path: Path) -> None:
    path = library(tmp_path, target)
    before = path.read_bytes()
    for edit in edits:
        run(*EDITS[edit], path)
        assert_intact(path)
    if "identity" in edits:
        assert EDITS["identity"][-1] in run("llvm-objdump", "--macho", "--dylib-id", path)
    assert path.read_bytes() != before


def signer() -> Any:
    """Return the signing tool: rcodesign, written in Rust by others, in a wheel."""
    return pytest.importorskip("apple_platform", reason="apple-platform-py is not installed")


def complaints(path: Path) -> list[str]:
    """Return what rcodesign finds wrong: it hashes every page; that nobody vouches for an ad-hoc signature is right."""
    found = [row["description"].rpartition("@")[2] for row in signer().verify_macho(str(path))]
    return [text for text in found if "no cryptographic signature" not in text and "CMS error" not in text]


@pytest.mark.parametrize("targets", [*((target,) for target in TARGETS), tuple(TARGETS), ("arm64-apple-ios",)])
def test_an_independent_verifier_finds_nothing(targets: tuple[str, ...], tmp_path: Path) -> None:
    path = library(tmp_path, *targets)
    assert complaints(path) == []
    damaged = bytearray(path.read_bytes())
    damaged[20_000] ^= 1
    path.write_bytes(damaged)
    assert any("digest mismatch" in text for text in complaints(path))


@pytest.mark.parametrize("target", TARGETS)
def test_signed_again_by_an_independent_signer(target: str, tmp_path: Path) -> None:
    path = library(tmp_path, target)
    signer().sign(str(path))
    assert complaints(path) == []
    assert_intact(path)


def test_a_universal_file_signed_again(tmp_path: Path) -> None:
    path = library(tmp_path, *TARGETS)
    signer().sign(str(path))
    assert complaints(path) == []
    for number, (_, part) in enumerate(fat_slices(path.read_bytes())):
        thin = tmp_path / f"thin-{number}.dylib"
        thin.write_bytes(part)
        assert_intact(thin)


@pytest.mark.parametrize("file", ["model.o", "libmodel.a"])
def test_objects_stripped_of_what_debuggers_read(file: str, tmp_path: Path) -> None:
    emit(tmp_path / file, PAYLOADS, "arm64-apple-macos", tensor_symbols=True)
    run("llvm-strip", "-S", tmp_path / file)
    listed = run("llvm-nm", "-m", tmp_path / file)
    assert "(__TEXT,__emitter) private external _model\n" in listed
    assert "[alt entry] _model_t_last\n" in listed
    with emitter.load(tmp_path / file) as model:
        model.validate()
        assert {name: bytes(model[name]) for name in model} == PAYLOADS


def test_lipo_makes_a_universal_file_of_ours(tmp_path: Path) -> None:
    parts = []
    for target in TARGETS:
        parts.append(tmp_path / target)
        emit(parts[-1].with_suffix(".dylib"), PAYLOADS, target)
        parts[-1].with_suffix(".dylib").rename(parts[-1])
    run("llvm-lipo", "-create", *parts, "-output", tmp_path / "theirs.dylib")
    found = [part for _, part in fat_slices((tmp_path / "theirs.dylib").read_bytes())]
    assert sorted(found) == sorted(part.read_bytes() for part in parts)
