"""Libraries whose bytes are in a file beside them: what is written, what is read, and what is refused."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
import pytest

from emitter import Artefact, Package, emit, load
from emitter.checksum import crc32c
from emitter.errors import EmitterError, FormatError, LayoutError, LoadError, UsageError
from emitter.pack import format as fmt
from emitter.pack.plan import plan_index, plan_pack, point_to_sidecar
from tests.c_pack import Parts
from tests.golden.make_sidecars import ORDERS, SIDECARS, folder_of, golden_files
from tests.loader_support import seal, set_field

if TYPE_CHECKING:
    from emitter.package import ByteOrder

TARGETS = ("x86_64-linux-gnu", "s390x-linux-gnu", "armv7-linux-gnueabihf", "arm64-apple-macos", "x86_64-windows-msvc")
SUFFIX = {"arm64-apple-macos": ".dylib", "x86_64-windows-msvc": ".dll"}


def package(seed: int = 1, **changes: Any) -> Package:
    """Return a package with two tensors of one payload, one of none, and metadata; `seed` changes values alone."""
    made = Package(**{"metadata": {"licence": "none"}, "model_version": f"v{seed}", **changes})
    made.add_tensor("weight", numpy.arange(6, dtype="float32").reshape(2, 3) * seed)
    made.add_tensor("again", numpy.arange(6, dtype="float32").reshape(2, 3) * seed)
    made.add_tensor("empty", numpy.zeros((0, 3), "int16"))
    made.add_raw("engine", bytes(range(100)), alignment=4096)
    return made


def write(
    folder: Path, target: str = "x86_64-linux-gnu", made: Package | None = None, name: str = "libm", **options: Any
) -> Path:
    path = folder / (name + SUFFIX.get(target, ".so"))
    emit(made or package(), path, target=target, sidecar=True, **options)
    return path


def index_pack(library: Path) -> bytes:
    """Return the pack in a library's own file."""
    with load(library.read_bytes()) as opened:
        pack = opened.packs[0]
        return library.read_bytes()[pack.file_offset : pack.file_offset + pack.size]


def record(pack: bytes) -> tuple[str, int, int, bytes]:
    """Return name, flags, size and SHA-256 of the only sidecar record, decoded by the text of the format."""
    order = "<" if pack[8] == 4 else ">"
    count, size, start = struct.unpack_from(order + "IIx", pack, 84)[:2] + struct.unpack_from(order + "I", pack, 80)
    for number in range(count):
        kind, record_size, offset, records = struct.unpack_from(order + "4I", pack, start + number * size)
        if kind == 6:
            assert (record_size, records) == (56, 1)
            at, length, flags, reserved, total = struct.unpack_from(order + "4IQ", pack, offset)
            assert reserved == 0
            assert pack[at + length] == 0
            return pack[at : at + length].decode(), flags, total, pack[offset + 24 : offset + 56]
    raise AssertionError(kind)


@pytest.mark.parametrize("pin", [False, True])
@pytest.mark.parametrize("target", TARGETS)
def test_the_loader_makes_no_difference(target: str, pin: bool, tmp_path: Path) -> None:
    library = write(tmp_path, target, pin=pin)
    whole = tmp_path / f"whole{library.suffix}"
    emit(package(), whole, target=target)
    assert library.stat().st_size < whole.stat().st_size
    with load(library) as ours, load(str(whole)) as other:
        assert ours.names() == other.names()
        assert (ours.metadata, ours.model_version, ours.schema_hash) == (
            other.metadata, other.model_version, other.schema_hash,
        )  # fmt: skip
        for mine, theirs in zip(ours.tensors(), other.tensors(), strict=True):
            assert bytes(mine.bytes()) == bytes(theirs.bytes())
            assert (mine.shape, mine.dtype, mine.alignment, mine.crc32c, mine.metadata) == (
                theirs.shape, theirs.dtype, theirs.alignment, theirs.crc32c, theirs.metadata,
            )  # fmt: skip
        ours.check()
        assert ours.kind == other.kind
        assert ours.packs[0].sidecar == "libm.pack"
        assert ours.packs[0].path == str(tmp_path / "libm.pack")
        at = ours.tensor("weight").file_offset
        assert (tmp_path / "libm.pack").read_bytes()[at : at + 24] == bytes(ours.tensor("weight").bytes())


@pytest.mark.parametrize("byte_order", ["little", "big"])
def test_the_index_pack_by_the_rules_of_the_text(byte_order: ByteOrder, tmp_path: Path) -> None:
    library = write(tmp_path, {"little": "x86_64-linux-gnu", "big": "s390x-linux-gnu"}[byte_order], pin=True)
    sidecar = (tmp_path / "libm.pack").read_bytes()
    index = index_pack(library)
    order = "<" if byte_order == "little" else ">"
    assert record(index) == ("libm.pack", 1, len(sidecar), hashlib.sha256(sidecar).digest())
    total, index_size, index_crc = struct.unpack_from(order + "QII", index, 24)
    assert total == index_size == len(index)
    assert index_crc == crc32c(index[128:])
    assert struct.unpack_from(order + "Q", index, 48) == (1,)
    assert struct.unpack_from(order + "Q", sidecar, 48) == (0,)
    assert index[56:64] == sidecar[56:64]  # the schema
    # The same tensors, with the same payload records, at places in the sidecar.
    tables = [
        struct.unpack_from(order + "4I", pack, 128 + 16 * number) for pack in (index, sidecar) for number in (0, 1)
    ]
    assert [table[0] for table in tables] == [1, 2, 1, 2]
    (_, size, ours, count), (_, _, theirs, _) = tables[0], tables[2]
    assert index[ours : ours + size * count] == sidecar[theirs : theirs + size * count]
    first = struct.unpack_from(order + "Q", sidecar, theirs)[0]
    assert first % 65536 == 0
    # The sidecar is complete by itself.
    with load(tmp_path / "libm.pack") as pack:
        pack.check()
        assert pack.packs[0].sidecar == ""
        assert pack.model_version == "v1"


def test_two_runs_write_the_same_bytes_anywhere(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder, pin=True)
    for name in ("libm.so", "libm.pack"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_weights_are_exchanged_alone(tmp_path: Path) -> None:
    library = write(tmp_path)
    # Another pack of the schema: other weights, other alignment, no shared payload, other metadata.
    emit(package(3, metadata={}), tmp_path / "libm.pack", target="x86_64-linux-gnu", align=256)
    with load(library) as opened:
        assert opened["weight"].tolist() == [[0, 3, 6], [9, 12, 15]]
        assert (opened.model_version, opened.metadata) == ("v3", {})
        assert opened.tensor("weight").alignment == 256
        opened.check()


def test_a_pinned_library_takes_no_other_weights(tmp_path: Path) -> None:
    library = write(tmp_path, pin=True)
    sidecar = tmp_path / "libm.pack"
    right = sidecar.read_bytes()
    with load(library) as opened:
        assert opened["weight"].tolist() == [[0, 1, 2], [3, 4, 5]]
    sidecar.write_bytes(right[:-1] + bytes([right[-1] ^ 1]))
    with pytest.raises(LoadError, match=r"libm.pack: not the file that the library is pinned to: expected SHA-256"):
        load(library)
    for other in (right + b"\0", right[:-1], b"x"):
        sidecar.write_bytes(other)
        with pytest.raises(LoadError, match=f"pinned to: expected {len(right)} bytes, found {len(other)}"):
            load(library)


def test_damage_is_found_on_request_without_a_pin(tmp_path: Path) -> None:
    library = write(tmp_path)
    sidecar = tmp_path / "libm.pack"
    data = bytearray(sidecar.read_bytes())
    data[-1] ^= 1
    sidecar.write_bytes(data)
    with load(library) as opened:
        opened.validate()
        with pytest.raises(FormatError, match="crc32c does not match"):
            opened.check()


def other_schema(folder: Path) -> None:
    made = Package()
    made.add_raw("weight", b"1")
    emit(made, folder / "libm.pack", target="x86_64-linux-gnu")


def other_order(folder: Path) -> None:
    emit(package(), folder / "libm.pack", target="s390x-linux-gnu")


def no_bytes(folder: Path) -> None:
    (folder / "libm.pack").write_bytes(index_pack(folder / "libm.so"))


def truncated(folder: Path) -> None:
    data = (folder / "libm.pack").read_bytes()
    (folder / "libm.pack").write_bytes(data[:-1])


def directory(folder: Path) -> None:
    (folder / "libm.pack").unlink()
    (folder / "libm.pack").mkdir()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (other_schema, "the sidecar is of another library: its schema_hash differs: expected 0x"),
        (other_order, "the sidecar is of another library: its byte order differs: expected little, found big"),
        (no_bytes, "an index without bytes"),
        (truncated, "the pack is truncated"),
        (directory, "not a regular file"),
        (lambda folder: (folder / "libm.pack").write_bytes(b""), "the file is empty"),
        (lambda folder: shutil.copy(folder / "libm.so", folder / "libm.pack"), "not a pack"),
    ],
)
def test_a_wrong_sidecar_is_refused_by_its_path(change: Any, message: str, tmp_path: Path) -> None:
    library = write(tmp_path)
    change(tmp_path)
    with pytest.raises(EmitterError, match=message) as caught:
        load(library)
    assert caught.value.where == str(tmp_path / "libm.pack")
    assert caught.value.hint == f"it is the sidecar that {library} names: put the right one there"


def test_a_missing_sidecar_is_named_with_the_places_that_were_tried(tmp_path: Path) -> None:
    library = write(tmp_path)
    (tmp_path / "libm.pack").unlink()
    link = tmp_path / "links" / "libm.so"
    link.parent.mkdir()
    link.symlink_to(library)
    with pytest.raises(LoadError, match=r"its bytes are in the file 'libm\.pack', which is not there") as caught:
        load(link)
    assert caught.value.expected == f"{link.parent / 'libm.pack'} or {tmp_path / 'libm.pack'}"


def test_a_link_to_the_library_finds_the_sidecar_beside_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = write(tmp_path)
    folder = tmp_path / "links"
    folder.mkdir()
    (folder / "libm.so").symlink_to(library)
    with load(folder / "libm.so") as opened:
        assert opened.packs[0].path == str(tmp_path / "libm.pack")
    # The one beside the path as it was opened comes first; being wrong, it is refused, and nothing else is tried.
    emit(package(2), folder / "libm.pack", target="x86_64-linux-gnu")
    with load(folder / "libm.so") as opened:
        assert opened.model_version == "v2"
    other_schema(folder)
    with pytest.raises(LoadError, match="another library"):
        load(folder / "libm.so")
    # Every file may be a link to somewhere else.
    (folder / "libm.pack").unlink()
    (folder / "libm.pack").symlink_to(shutil.move(tmp_path / "libm.pack", tmp_path / "stored"))
    with load(folder / "libm.so") as opened:
        assert opened.model_version == "v1"
    monkeypatch.chdir(folder)
    with load("libm.so") as opened:
        assert opened.packs[0].path == "libm.pack"


def test_written_through_a_link_it_stands_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "libm.so").symlink_to("real/libm.so.1")
    write(tmp_path)
    assert sorted(os.listdir(tmp_path / "real")) == ["libm.pack", "libm.so.1"]
    for path in (tmp_path / "libm.so", tmp_path / "real" / "libm.so.1"):
        with load(path) as opened:
            assert opened.model_version == "v1"


def test_from_memory_it_is_described_and_its_bytes_are_refused(tmp_path: Path) -> None:
    library = write(tmp_path)
    with load(library) as whole, load(library.read_bytes()) as opened:
        assert opened.names() == whole.names()
        assert opened.tensor("weight").shape == (2, 3)
        assert opened.tensor("weight").file_offset == whole.tensor("weight").file_offset
        assert (opened.packs[0].path, opened.packs[0].sidecar) == ("buffer", "libm.pack")
        opened.validate()
        for read in (opened.tensor("weight").bytes, opened.tensor("weight").numpy, opened.check):
            with pytest.raises(LoadError, match=r"in the file 'libm\.pack'; load the library by its path"):
                read()


def test_the_name_is_the_librarys_or_chosen(tmp_path: Path) -> None:
    write(tmp_path, name="libm")
    emit(package(), tmp_path / "libm.so.1.2", target="x86_64-linux-gnu", sidecar=True, sidecar_name="weights-ä.bin")
    emit(package(), tmp_path / "libn.so.1.2", target="x86_64-linux-gnu", sidecar=True)
    assert sorted(os.listdir(tmp_path)) == [
        "libm.pack", "libm.so", "libm.so.1.2", "libn.pack", "libn.so.1.2", "weights-ä.bin",
    ]  # fmt: skip
    with load(tmp_path / "libm.so.1.2") as opened:
        assert opened.packs[0].sidecar == "weights-ä.bin"
        assert opened["weight"][1, 2] == 5


@pytest.mark.parametrize("name", ["../x.pack", "a/b", "/x", "a\\b", "c:x", ".", "..", "a\0b", "x" * 65536, "\ud800"])
def test_a_name_that_leads_elsewhere_is_not_written(name: str, tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match="not the name of a file beside the library") as caught:
        write(tmp_path, sidecar_name=name)
    assert caught.value.hint == "give another one with --sidecar-name"
    assert os.listdir(tmp_path) == []


def changed(folder: Path, change: Any) -> bytes:
    """Return a file that is an index pack, changed and sealed; its sidecar is beside it."""
    library = write(folder)
    parts = Parts(index_pack(library))
    change(parts)
    return seal(bytearray(parts.bytes))


def rename(parts: Parts, name: bytes) -> None:
    at = parts.get(fmt.SIDECAR, 0, "name_offset")
    assert len(name) == parts.get(fmt.SIDECAR, 0, "name_length")
    parts.bytes[at : at + len(name)] = name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda parts: rename(parts, b"../m.pack"), "not the name of a file in a folder"),
        (lambda parts: rename(parts, b"x\\/m.pack"), "not the name of a file in a folder"),
        (lambda parts: rename(parts, b"lib\0.pack"), "not the name of a file in a folder"),
        (lambda parts: rename(parts, b"lib\xff.pack"), "is not UTF-8"),
        (lambda parts: parts.set(fmt.SIDECAR, 0, "name_length", 0), "not the name of a file in a folder"),
        (lambda parts: parts.set(fmt.SIDECAR, 0, "name_offset", 1 << 30), "is not in the index"),
        (lambda parts: parts.set(fmt.SIDECAR, 0, "flags", 2), "reserved bits or bytes are not zero"),
        (lambda parts: parts.set(fmt.SIDECAR, 0, "size", 1), "size and sha256 are not zero, and it is not pinned"),
        (lambda parts: parts.set_entry(fmt.SIDECAR, "count", 0), "the records of sidecars do not fit"),
        (lambda parts: parts.set_entry(fmt.SIDECAR, "kind", 99), "the records of sidecars do not fit"),
        (lambda parts: parts.set_header("incompatible_features", 0), "the records of sidecars do not fit"),
        (lambda parts: parts.set_header("incompatible_features", 3), "incompatible feature bit 1"),
        (lambda parts: parts.set_header("total_size", 1 << 20), "total_size of an index pack is not its index_size"),
    ],
)
def test_an_index_pack_that_breaks_the_format_is_refused(change: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "index"
    path.write_bytes(changed(tmp_path, lambda _parts: None))
    with load(path) as opened:
        assert opened.model_version == "v1"  # an index pack is followed wherever it is
    path.write_bytes(changed(tmp_path, change))
    with pytest.raises(EmitterError, match=message):
        load(path)


def test_what_the_index_pack_says_of_payloads_is_not_used_but_validated(tmp_path: Path) -> None:
    path = tmp_path / "index"
    path.write_bytes(changed(tmp_path, lambda parts: parts.set(fmt.PAYLOAD, 0, "offset", 1 << 40)))
    with load(path) as opened:
        assert opened["weight"].tolist() == [[0, 1, 2], [3, 4, 5]]
        with pytest.raises(FormatError, match="overlaps the one before, or is out of order"):
            opened.validate()


def test_what_was_written_is_told(tmp_path: Path) -> None:
    lines: list[str] = []
    (artefact,) = emit(
        package(), tmp_path / "libm.so", target="x86_64-linux-gnu", sidecar=True, pin=True, note=lines.append,
        map=tmp_path / "m.json", depfile=tmp_path / "m.d",
    )  # fmt: skip
    sidecar = tmp_path / "libm.pack"
    assert (artefact.sidecar, artefact.sidecar_size) == (str(sidecar), sidecar.stat().st_size)
    assert artefact.to_json()["sidecar"] == str(sidecar)
    assert artefact.size == (tmp_path / "libm.so").stat().st_size
    assert (artefact.payload_size, artefact.deduplicated_size) == (148, 24)
    found = json.loads((tmp_path / "m.json").read_text())
    assert found["sidecar"] == {"file": "libm.pack", "size": sidecar.stat().st_size, "pinned": True}
    for tensor in found["tensors"]:
        data = sidecar.read_bytes()[tensor["file_offset"] : tensor["file_offset"] + tensor["size"]]
        assert f"0x{crc32c(data):08x}" == tensor["crc32c"]
    assert (tmp_path / "m.d").read_text().startswith(f"{tmp_path / 'libm.so'} {sidecar}:")
    assert lines[-1] == f"wrote {sidecar}: {sidecar.stat().st_size} bytes"
    (other,) = emit(package(), tmp_path / "x.so", target="x86_64-linux-gnu")
    assert (other.sidecar, other.sidecar_size) == (None, None)


def test_placeholders_give_each_target_its_own(tmp_path: Path) -> None:
    targets = ["x86_64-linux-gnu", "s390x-linux-gnu"]
    artefacts: list[Artefact] = emit(package(), tmp_path / "libm-{target}.so", target=targets, sidecar=True)
    assert [artefact.sidecar for artefact in artefacts] == [str(tmp_path / f"libm-{name}.pack") for name in targets]
    for artefact in artefacts:
        with load(artefact.path) as opened:
            assert opened["weight"].tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(UsageError, match="two outputs would be one file"):
        emit(package(), tmp_path / "libm-{target}.so", target=targets, sidecar=True, sidecar_name="one.pack")
    artefacts = emit(
        package(), tmp_path / "libm-{target}.so", target=targets, sidecar=True, sidecar_name="w-{triple}.bin"
    )
    assert artefacts[1].sidecar == str(tmp_path / "w-s390x-unknown-linux-gnu.bin")


def test_the_slices_of_a_universal_library_share_one(tmp_path: Path) -> None:
    targets = ["arm64-apple-macos", "x86_64-apple-macos"]
    (artefact,) = emit(package(), tmp_path / "libm.dylib", target=targets, sidecar=True, pin=True)
    assert artefact.sidecar == str(tmp_path / "libm.pack")
    data = (tmp_path / "libm.dylib").read_bytes()
    indices = [at for at in range(len(data)) if data.startswith(fmt.MAGIC, at)]
    assert len(indices) == 2
    for at in indices:
        assert record(data[at : at + 4096])[0] == "libm.pack"
    with load(tmp_path / "libm.dylib") as opened:
        opened.check()
    # Two names would differ in length, too, and the indexes of the slices with them.
    with pytest.raises(UsageError, match="a universal file has one sidecar") as caught:
        emit(package(), tmp_path / "libn.dylib", target=targets, sidecar=True, sidecar_name="{target}.pack")
    assert caught.value.hint is not None and "leave {target} and {triple} out" in caught.value.hint
    assert not (tmp_path / "libn.dylib").exists()


@pytest.mark.parametrize(
    ("targets", "output", "options", "hint"),
    [
        (["s390x", "s390x"], "{target}.so", {}, "name each target once"),
        (["x86_64", "amd64"], "{triple}.so", {}, "put {target} into the path"),
        (["x86_64", "s390x"], "{target}.so", {"header": "x.h"}, "put {target} into the path"),  # the names differ
        (["x86_64"], "x.so", {"map": "x.pack", "sidecar": True}, "choose another path"),
    ],
)
def test_two_outputs_that_would_be_one_file(
    targets: list[str], output: str, options: dict[str, Any], hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="two outputs would be one file") as caught:
        emit(package(), output, target=targets, **options)
    assert caught.value.hint is not None and caught.value.hint.startswith(hint)
    assert not os.listdir()


def test_a_failure_leaves_both_old_files(tmp_path: Path) -> None:
    library = write(tmp_path)
    old = {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}
    changing = tmp_path / "input.bin"
    changing.write_bytes(bytes(1000))
    made = Package()
    made.add_input(f"raw:{changing}")
    changing.write_bytes(bytes(2000))
    with pytest.raises(EmitterError, match=r"changed|became"):
        emit(made, library, target="x86_64-linux-gnu", sidecar=True, pin=True)
    changing.unlink()
    assert {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)} == old


@pytest.mark.parametrize(
    ("output", "options", "message"),
    [
        ("x.o", {"sidecar": True}, "--sidecar means nothing for this output"),
        ("x.pack", {"sidecar": True}, "--sidecar means nothing for this output"),
        ("x.so", {"pin": True}, "--pin says something of a sidecar; add --sidecar"),
        ("x.so", {"sidecar_name": "y"}, "--sidecar-name says something of a sidecar; add --sidecar"),
        ("x.so", {"sidecar": True, "tensor_symbols": True}, "--tensor-symbols cannot be combined with --sidecar"),
        ("x.so", {"sidecar": True, "sidecar_name": "x.so"}, "two outputs would be one file"),
        ("x.so", {"sidecar": True, "map": "x.pack"}, "two outputs would be one file"),
        ("x.so", {"sidecar": 1, "pin": "yes"}, "another type"),
    ],
)
def test_misuse(
    output: str, options: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        emit(package(), output, target="x86_64-linux-gnu", **options)
    assert os.listdir(tmp_path) == []


def test_the_sidecar_may_not_be_an_input(tmp_path: Path) -> None:
    old = tmp_path / "libm.pack"
    emit(package(), old, target="x86_64-linux-gnu")
    made = Package()
    made.add_input(old)
    with pytest.raises(UsageError, match="the output is one of the inputs"):
        write(tmp_path, made=made)


def test_an_index_larger_than_the_first_payloads_offset(tmp_path: Path) -> None:
    # The library's index has more in it than the sidecar's: it may end behind the place of a payload in the sidecar.
    made = Package(metadata={"filler": ""})
    made.add_raw("w", bytes(range(64)))
    room = 65536 - plan_pack(made, "little").index_size
    made.metadata["filler"] = "x" * room
    assert plan_pack(made, "little", first_payload=65536).payload_start == 65536
    library = write(tmp_path, made=made)
    with load(library) as opened:
        assert opened.packs[0].file_offset == 0
        opened.check()
        assert opened.tensor("w").file_offset == 65536
    assert len(index_pack(library)) > 65536


def test_filling_in_changes_no_other_byte() -> None:
    made = package()
    stored = plan_pack(made, "little", first_payload=65536)
    index = plan_index(made, "little", sidecar="x", pinned=True)
    crcs = [7] * len(stored.payloads)
    filled = point_to_sidecar(index, stored, crcs, size=5, sha256=b"\xaa" * 32)
    assert len(filled.blank_index) == len(index.blank_index) == filled.total_size
    assert filled._replace(blank_index=b"") == index._replace(blank_index=b"")
    # plan_index without a pin, filled without one, differs in the flag alone before checksums.
    other = point_to_sidecar(plan_index(made, "little", sidecar="x", pinned=False), stored, crcs)
    differing = [at for at, (a, b) in enumerate(zip(filled.blank_index, other.blank_index, strict=True)) if a != b]
    start = index.sidecar_table
    assert differing == [start + 8, start + 16, *range(start + 24, start + 56)]


def test_a_later_writers_longer_record_is_read(tmp_path: Path) -> None:
    library = write(tmp_path)
    pack = bytearray(index_pack(library))
    parts = Parts(bytes(pack))
    old, size = parts.at(fmt.SIDECAR, 0), len(pack)
    grown = pack + pack[old : old + 56] + b"later!!!"
    parts.bytes = grown
    parts.set_entry(fmt.SIDECAR, "record_size", 64)
    parts.set_entry(fmt.SIDECAR, "offset", size)
    parts.set_header("index_size", len(grown))
    parts.set_header("total_size", len(grown))
    path = tmp_path / "later"
    path.write_bytes(seal(bytearray(parts.bytes)))
    with load(path) as opened:
        opened.check()
    assert set_field(bytes(grown), fmt.HEADER, "version_minor", 2) != grown


@pytest.mark.parametrize("stored", sorted(os.listdir(SIDECARS)))
def test_golden_sidecars_load_for_ever(stored: str) -> None:
    with load(os.path.join(SIDECARS, stored, "index")) as opened:
        opened.check()
        assert opened.byte_order in stored
        assert opened["weight"].tolist() == [[0, 1, 2], [3, 4, 5]]
        assert opened["bias"].tolist() == [1, -2]
        assert opened.tensor("bias").metadata == {"unit": "V"}
        assert (opened.metadata, opened.model_version) == ({"licence": "0BSD"}, "v1")
        assert opened.packs[0].sidecar == "weights.pack"
        modules = [[bytes(one.bytes()) for one in module.alternatives] for module in opened.modules]
        assert modules == ([] if stored.startswith("v0.1") else [[b"an engine", b"a graph"]])


@pytest.mark.parametrize("order", ORDERS)
def test_golden_sidecars_of_this_version_are_what_is_written_now(order: ByteOrder) -> None:
    for name, data in golden_files(order).items():
        assert Path(folder_of(order), name).read_bytes() == data


def test_the_header_says_how_to_open_it(tmp_path: Path) -> None:
    write(tmp_path, header=tmp_path / "m.h")
    text = (tmp_path / "m.h").read_text()
    assert "emitter_library_open(&library, path_of_the_library" in text
    assert "emitter_open_expect" not in text
    emit(package(), tmp_path / "whole.so", target="x86_64-linux-gnu", header=tmp_path / "w.h")
    assert "emitter_open_expect" in (tmp_path / "w.h").read_text()


def test_modules_are_in_the_sidecar_too(tmp_path: Path) -> None:
    made = package()
    made.add_module("engine1", "tensorrt", b"an engine", functions={"run": ["weight"]})
    library = write(tmp_path, made=made, pin=True)
    with load(library) as opened:
        (module,) = opened.modules
        assert bytes(module.alternatives[0].bytes()) == b"an engine"
        opened.check()
    assert b"an engine" not in library.read_bytes()
    assert b"an engine" in (tmp_path / "libm.pack").read_bytes()
    with load(library.read_bytes()) as opened, pytest.raises(LoadError, match="load the library by its path"):
        opened.modules[0].alternatives[0].bytes()
