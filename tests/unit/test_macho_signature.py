"""Code signatures: every hash taken again by code that did not write it."""

from __future__ import annotations

import hashlib
import itertools
import struct
from typing import TYPE_CHECKING, Any

import lief
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emitter
from emitter import page_hashes, page_helper
from emitter.errors import EmitterError
from emitter.image.signature import plan_signature
from emitter.layout import PageHashes
from emitter.package import Checksum, Package
from emitter.page_hashes import PageHasher
from tests.macho_files import TARGET_NAMES, bad_pages, emit, parse

if TYPE_CHECKING:
    from pathlib import Path

PAGE = 16384  # of Apple silicon


def random_bytes(size: int, seed: int = 1) -> bytes:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8).tobytes()


@pytest.mark.parametrize("name", TARGET_NAMES)
@pytest.mark.parametrize("size", [0, 1, 4095, 4096, PAGE - 1, PAGE, 300_001, 3 << 20])
def test_every_page_hash_is_right(name: str, size: int, tmp_path: Path) -> None:
    path = tmp_path / "libmodel.dylib"
    emit(path, {"w": random_bytes(size), "tail": b"tail"}, name)
    pages, wrong = bad_pages(path)
    code_limit = parse(path.read_bytes()).command(0x1D, "2I")[0]
    assert not wrong and pages == -(-code_limit // {"x86_64-apple-macos": 4096}.get(name, PAGE))


@pytest.mark.parametrize("origin", ["raw", "safetensors"])
def test_large_files_are_hashed_behind_the_copy(origin: str, tmp_path: Path) -> None:
    """Enough for the second thread to hash: behind the kernel's copy, and behind blocks that are written."""
    data = random_bytes(40_000_003)
    path, source = tmp_path / "libmodel.dylib", tmp_path / "source"
    if origin == "raw":
        source.write_bytes(data)
        emit(path, {"w": source}, "arm64-apple-macos")
    else:
        package = Package()
        header = b'{"w":{"dtype":"U8","shape":[40000003],"data_offsets":[0,40000003]}}'
        source.write_bytes(len(header).to_bytes(8, "little") + header + data)
        package.add_input(source)
        emitter.emit(package, path, target="x86_64-apple-macos")
    pages, wrong = bad_pages(path)
    assert pages > (2400 if origin == "raw" else 9700) and not wrong
    with emitter.load(path) as model:
        assert bytes(model["w"]) == data


def test_lief_finds_the_hashes_of_the_pages(tmp_path: Path) -> None:
    path = tmp_path / "libmodel.dylib"
    emit(path, {"w": random_bytes(100_000)}, "arm64-apple-macos")
    binary = lief.parse(str(path))
    assert isinstance(binary, lief.MachO.Binary)
    signature = binary.code_signature
    assert signature is not None
    data = path.read_bytes()
    assert signature.data_offset + signature.data_size == len(data) and signature.data_offset % 16 == 0
    blob = bytes(signature.content)
    hash_offset = struct.unpack_from(">I", blob, 20 + 16)[0]
    code = data[: signature.data_offset]
    digests = b"".join(hashlib.sha256(code[at : at + PAGE]).digest() for at in range(0, len(code), PAGE))
    assert blob[20 + hash_offset : 20 + hash_offset + len(digests)] == digests


@pytest.mark.parametrize("page", [4096, PAGE])
@pytest.mark.parametrize("limit", [16, 4080, 4096, 4112, PAGE - 16, PAGE, PAGE + 16, (1 << 32) - 16])
@pytest.mark.parametrize("identifier", [b"x", b"libmodel.dylib", b"y" * 4096])
def test_signature_has_room_for_every_page(limit: int, identifier: bytes, page: int) -> None:
    signature = plan_signature(identifier, limit, 16384, page)
    slots = -(-limit // page)
    assert signature.size % 16 == 0 and 0 <= signature.size - signature.hashes - 32 * slots < 16
    magic, length, count, kind, offset = struct.unpack_from(">5I", signature.head)
    assert (magic, length, count, kind, offset) == (0xFADE0CC0, signature.hashes + 32 * slots, 1, 0, 20)
    magic, length, version, flags, hash_offset, ident, special, code, code_limit = struct.unpack_from(
        ">9I", signature.head, 20
    )
    assert (magic, length, version, flags) == (0xFADE0C02, signature.hashes - 20 + 32 * slots, 0x20400, 0x20002)
    assert (special, code, code_limit) == (0, slots, limit)
    assert signature.head[20 + ident : 20 + hash_offset] == identifier + b"\0" and 20 + hash_offset == signature.hashes
    assert struct.unpack_from(">4B", signature.head, 20 + 36) == (32, 2, 0, {4096: 12, 16384: 14}[page])
    assert struct.unpack_from(">3Q", signature.head, 20 + 64) == (0, 16384, 0)


# Ways in which bytes reach a library: sizes and offsets of tensors, and pages that are zero.
KINDS = {
    "small": [random_bytes(size, size) for size in (1, 63, 64, 5000, 4096, 12345, 70000)],
    "zeros": [bytes(100_000), random_bytes(9000), bytes(8192), random_bytes(50)],
    "large": [random_bytes(2_500_001), bytes(1 << 20), random_bytes((1 << 20) + 5, 2)],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("as_file", "compressed"), [(False, False), (True, True)])
def test_hashes_are_right_however_the_bytes_come(kind: str, as_file: bool, compressed: bool, tmp_path: Path) -> None:
    package = Package()
    blocks = KINDS[kind]
    for number, block in enumerate(blocks):
        if as_file:
            path = tmp_path / f"{number}.bin"
            path.write_bytes(block)
            package.add_raw(f"t{number}", path)
        else:
            package.add_raw(f"t{number}", block)
    path = tmp_path / "libmodel.dylib"
    emitter.emit(package, path, target="arm64-apple-macos")
    assert bad_pages(path)[1] == []
    # From one file, at offsets where the kernel does not copy, or inflated; one of them column-major.
    arrays: dict[str, Any] = {f"t{number}": np.frombuffer(block, np.uint8) for number, block in enumerate(blocks)}
    arrays["turned"] = np.asfortranarray(np.arange(120_000, dtype=np.float32).reshape(300, 400))
    (np.savez_compressed if compressed else np.savez)(tmp_path / "all.npz", **arrays)
    package = Package()
    package.add_input(tmp_path / "all.npz")
    emitter.emit(package, path, target="arm64-apple-macos")
    assert bad_pages(path)[1] == []


def test_holes_are_hashed_without_being_read(tmp_path: Path) -> None:
    """1.5 GiB of holes between a few bytes: the hashes are right, and the holes stay holes."""
    source = tmp_path / "sparse.bin"
    size = 3 << 29
    with source.open("wb") as file:
        file.truncate(size)
        for at in (0, (1 << 30) - 3, size - 7):
            file.seek(at)
            file.write(b"written")
    path = tmp_path / "libmodel.dylib"
    emit(path, {"w": source}, "arm64-apple-macos")
    assert path.stat().st_blocks * 512 < 64 << 20
    zero = hashlib.sha256(bytes(PAGE)).digest()
    with path.open("rb") as file:
        file.seek(path.stat().st_size - (size // PAGE + 1000) * 32)
        table = file.read()
    assert table.count(zero) > size // PAGE - 100


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_ranges_in_any_cut_give_the_same_table(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    page = data.draw(st.sampled_from([4096, PAGE]))
    size = data.draw(st.integers(16, 12 * page))
    start = data.draw(st.sampled_from([0, 16384]))
    zero_from = data.draw(st.integers(0, size))
    content = random_bytes(zero_from, size) + bytes(size - zero_from)
    cuts = sorted(data.draw(st.sets(st.integers(0, size), max_size=8)) | {0, size})
    path = tmp_path_factory.getbasetemp() / "cut.bin"
    table_at = start + size + 16
    path.write_bytes(bytes(start) + content + bytes(16 + 32 * (size // page + 1)))
    with path.open("r+b", buffering=0) as file:
        hasher = PageHasher(file.fileno(), [PageHashes(start, size, page, table_at, start)])
        for low, high in itertools.pairwise(cuts):
            how = data.draw(st.sampled_from(["data", "left", "hole"]))
            if how == "hole" and low >= zero_from:
                hasher.hole(start + low, start + high)
            elif how == "data":
                hasher.data(start + low, content[low:high])
        hasher.finish()
    written = path.read_bytes()
    final = written[start : start + size]
    expected = b"".join(hashlib.sha256(final[at : at + page]).digest() for at in range(0, size, page))
    assert written[table_at : table_at + len(expected)] == expected
    assert final[16:] == content[16:]
    # The identity is made of the hashes of the bytes as they were before it was written, here of one window of them.
    before = b"".join(hashlib.sha256(content[at : at + page]).digest() for at in range(0, size, page))
    identity = bytearray(hashlib.sha256(hashlib.sha256(before).digest()).digest()[:16])
    identity[6], identity[8] = identity[6] & 0x0F | 0x30, identity[8] & 0x3F | 0x80
    assert final[:16] == identity


@pytest.mark.parametrize("broken", ["", "raise SystemExit(1)", "import os; os._exit(9)"])
def test_another_process_hashes_a_part_and_what_it_leaves_is_hashed_here(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_hashes, "_WORTH_A_PROCESS", 0)
    handed: list[bool] = []
    give = page_helper.PageHelper.give

    def counted(helper: page_helper.PageHelper, page: int, start: int, size: int, table: int) -> bool:
        handed.append(give(helper, page, start, size, table))
        return handed[-1]

    monkeypatch.setattr(page_helper.PageHelper, "give", counted)
    if broken:
        monkeypatch.setattr(page_helper, "_PROGRAM", broken)
    (tmp_path / "blob.bin").write_bytes(random_bytes(9 << 20))
    package = Package()
    package.add_raw("blob", tmp_path / "blob.bin")
    emitter.emit(package, tmp_path / "libm.dylib", target="arm64-apple-macos")
    pages, wrong = bad_pages(tmp_path / "libm.dylib")
    assert pages > 500 and not wrong
    assert any(handed) and not all(handed)  # the first process hashes what the other has no time for


def test_another_process_hashes_both_slices_of_a_universal_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages of two sizes, at offsets that are the slices'."""
    given = _gives_to_another_process(monkeypatch)
    (tmp_path / "blob.bin").write_bytes(random_bytes(9 << 20))
    path = tmp_path / "libm.dylib"
    emit(path, {"blob": tmp_path / "blob.bin"}, "arm64-apple-macos", "x86_64-apple-macos")
    parsed = lief.MachO.parse(str(path))
    assert parsed is not None and parsed.size == 2
    for number, page in enumerate((4096, PAGE)):  # the slice for Intel comes first
        binary = parsed.at(number)
        assert binary is not None
        pages, wrong = bad_pages(path, binary.fat_offset)
        assert pages > (9 << 20) // page and not wrong
    assert {page for page, _ in given} == {4096, PAGE}


def test_another_process_hashes_what_lies_between_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = _gives_to_another_process(monkeypatch)
    size, block = 24 << 20, random_bytes(3 << 20)
    with (tmp_path / "sparse.bin").open("wb") as file:
        file.truncate(size)
        for at in ((1 << 20) + 4096, 12 << 20, size - len(block)):
            file.seek(at)
            file.write(block)
    if (tmp_path / "sparse.bin").stat().st_blocks * 512 >= size:
        pytest.skip("the file system of the temporary directory has no holes")
    path = tmp_path / "libm.dylib"
    emit(path, {"w": tmp_path / "sparse.bin"}, "arm64-apple-macos")
    pages, wrong = bad_pages(path)
    assert pages > size // PAGE and not wrong
    assert given and sum(number for _, number in given) < size  # the holes are hashed here
    assert path.stat().st_blocks * 512 < size


def _gives_to_another_process(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Let another process hash however little there is; return a list that gets (page, bytes) of what it takes."""
    monkeypatch.setattr(page_hashes, "_WORTH_A_PROCESS", 0)
    taken: list[tuple[int, int]] = []
    give = page_helper.PageHelper.give

    def counted(helper: page_helper.PageHelper, page: int, start: int, size: int, table: int) -> bool:
        if give(helper, page, start, size, table):
            taken.append((page, size))
            return True
        return False

    monkeypatch.setattr(page_helper.PageHelper, "give", counted)
    return taken


@pytest.mark.parametrize("name", ["python-that-is-not-there", "application", None])
def test_where_no_process_can_be_started_all_is_hashed_here(
    name: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An application with an interpreter in it names itself as the executable: it is not started again."""
    started = tmp_path / "started"
    if name == "application":
        (tmp_path / name).write_text(f"#!/bin/sh\ntouch {started}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(page_hashes, "_WORTH_A_PROCESS", 0)
    monkeypatch.setattr("sys.executable", name and str(tmp_path / name))
    (tmp_path / "blob.bin").write_bytes(random_bytes(9 << 20))
    package = Package()
    package.add_raw("blob", tmp_path / "blob.bin")
    emitter.emit(package, tmp_path / "libm.dylib", target="arm64-apple-macos")
    assert bad_pages(tmp_path / "libm.dylib")[1] == []
    assert not started.exists()


def test_a_failure_ends_the_other_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_hashes, "_WORTH_A_PROCESS", 0)
    ended: list[bool] = []
    finish = page_helper.PageHelper.finish

    def watched(helper: page_helper.PageHelper) -> bool:
        ended.append(finish(helper))
        return ended[-1]

    monkeypatch.setattr(page_helper.PageHelper, "finish", watched)
    (tmp_path / "blob.bin").write_bytes(random_bytes(9 << 20))
    package = Package()
    package.add_raw("blob", tmp_path / "blob.bin")
    source = package.sources[0]
    extent = package.tensors[0].extent._replace(checksum=Checksum("CRC-32C", 1, 0, source.size))
    broken = Package()
    broken.add(package.tensors[0]._replace(extent=extent))
    with pytest.raises(EmitterError):
        emitter.emit(broken, tmp_path / "libm.dylib", target="arm64-apple-macos")
    assert ended == [True]
