"""The check of Mach-O after writing: it passes what is right, and names the field that is not."""

from __future__ import annotations

import os
import struct
from functools import cache
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emitter.check import check
from emitter.errors import OutputError
from emitter.options import Options
from emitter.output import open_output
from emitter.planner import Planner
from emitter.targets import resolve
from emitter.transfer import write_plan
from tests.macho_files import MachO, package_of, parse

if TYPE_CHECKING:
    from pathlib import Path

    from emitter.jobs import Job

PAYLOADS: dict[str, bytes | Path] = {"a": bytes(range(251)) * 20, "b": b"x" * 300, "empty": b"", "z": b"last" * 99}
ARM, INTEL = "arm64-apple-macos", "x86_64-apple-macos"
FILES = {"library": "libmodel.dylib", "object": "model.o", "archive": "libmodel.a"}


@cache
def made(format_: str, targets: tuple[str, ...], folder: Path) -> tuple[Job, bytes]:
    """Return a job and the bytes that were written for it, which the check has not seen."""
    planner = Planner(package_of(PAYLOADS), Options(tensor_symbols=True), print, print)
    (job,) = planner.plan(str(folder / FILES[format_]), [resolve(name) for name in targets])
    with open_output(job.path, job.plan.size, 0o666, []) as out:
        write_plan(out.fd, job.plan, job.pack)
        data = os.pread(out.fd, job.plan.size, 0)
    return job, data


def checked(job: Job, data: bytes, path: Path) -> None:
    """Write bytes at `path` and check them against the job."""
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    try:
        check(fd, job.format, job.resolved.target, job.plan, job.pack, job.symbol)
    finally:
        os.close(fd)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("made")


@pytest.mark.parametrize("targets", [(ARM,), (INTEL,), ("arm64-apple-ios",), (ARM, INTEL)])
@pytest.mark.parametrize("format_", FILES)
def test_what_is_right_passes(format_: str, targets: tuple[str, ...], folder: Path, tmp_path: Path) -> None:
    job, data = made(format_, targets, folder)
    checked(job, data, tmp_path / "file")


def command_at(data: bytes, cmd: int) -> int:
    """Return the file offset of the first load command of a kind."""
    at = 32
    while struct.unpack_from("<I", data, at)[0] != cmd:
        at += struct.unpack_from("<2I", data, at)[1]
    return at


def export_at(file: MachO) -> int:
    return int(file.command(0x80000022, "10I")[8])


# Faults of a library: (load command, or None for the file; offset from it; bytes; word of the field that is named).
IMAGE_FAULTS = [
    (None, 0, b"\xce", "magic"),
    (None, 4, b"\x07", "cputype"),
    (None, 12, b"\x02", "filetype"),
    (None, 16, b"\xff", "load command"),
    (None, 20, b"\xff\xff\xff", "load commands"),
    (None, 24, b"\x84", "flags"),
    (0x19, 8, b"__TEXX", "segments"),
    (0x19, 24, b"\1", "addr"),
    (0x19, 32, b"\1", "vmsize"),
    (0x19, 48, b"\xff\xff\xff\xff\xff", "segment __TEXT"),
    (0x19, 60, b"\7", "segments"),
    (0x19, 72 + 32, b"\1", "__const"),
    (0x19, 72 + 52, b"\x1f", "__const"),
    (0x02, 12, b"\xff", "dysymtab"),
    (0x02, 16, b"\0\0\0\0", "symbol"),
    (0x0B, 16, b"\xff", "dysymtab"),
    (0x80000022, 8, b"\1", "rebased"),
    (0x80000022, 44, b"\xff\xff\xff\xff", "export trie"),
    (0x1B, 0, b"\x1a", "LC_UUID"),
    (0x1B, 8, bytes(16), "LC_UUID"),
    (0x1B, 8, b"\xee\xee", "hash of page 0"),
    (0x32, 8, b"\2", "platform"),
    (0x32, 12, b"\xff", "minos"),
    (0x0C, 0, b"\x0b", "number of"),
    (0x1D, 8, b"\x11", "signature"),
    (0x1D, 12, b"\x11", "signature"),
]


@pytest.mark.parametrize(("cmd", "offset", "fault", "word"), IMAGE_FAULTS)
def test_image_fault_is_named(
    cmd: int | None, offset: int, fault: bytes, word: str, folder: Path, tmp_path: Path
) -> None:
    job, data = made("library", (ARM,), folder)
    at = offset + (0 if cmd is None else command_at(data, cmd))
    assert data[at : at + len(fault)] != fault
    with pytest.raises(OutputError) as caught:
        checked(job, data[:at] + fault + data[at + len(fault) :], tmp_path / "file")
    assert word.lower() in str(caught.value.where).lower()


@pytest.mark.parametrize("offset", [0, 4, 8, 12, 16, *range(20, 20 + 88, 4)])
def test_every_field_of_the_signature_is_checked(offset: int, folder: Path, tmp_path: Path) -> None:
    job, data = made("library", (ARM,), folder)
    if offset == 20 + 40:  # spare
        return
    dataoff = parse(data).command(0x1D, "2I")[0]
    at = dataoff + offset + 3
    unread = {20 + 44, 20 + 48, 20 + 52, 20 + 56, 20 + 60}  # scatter, team, spare, codeLimit64: zero by their version
    if offset in unread:
        return
    with pytest.raises(OutputError):
        checked(job, data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :], tmp_path / "file")


def test_a_wrong_byte_or_hash_is_named_by_its_page(folder: Path, tmp_path: Path) -> None:
    job, data = made("library", (ARM,), folder)
    symbol = parse(data).symbols()["_model_t_a"].n_value
    table = len(data) - 40  # one of the last hashes
    for at in (symbol + 5, table):
        with pytest.raises(OutputError) as caught:
            checked(job, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], tmp_path / "file")
        assert str(caught.value.where).startswith("hash of page")


def test_names_that_the_trie_does_not_lead_to(folder: Path, tmp_path: Path) -> None:
    job, data = made("library", (ARM,), folder)
    at = export_at(parse(data))
    where = set()
    for position in range(at, at + 60):
        damaged = bytearray(data)
        damaged[position] ^= 0x15
        # The hash of its page is made right, so that the trie itself is what differs.
        with pytest.raises(OutputError) as caught:
            checked(job, _signed(damaged), tmp_path / "file")
        where.add(str(caught.value.where))
    assert any("trie" in name for name in where) and not any("hash" in name for name in where)


def _signed(data: bytearray) -> bytes:
    import hashlib

    dataoff = parse(bytes(data)).command(0x1D, "2I")[0]
    hash_offset, slots = struct.unpack_from(">I8xI", data, dataoff + 20 + 16)
    for page in range(slots):
        digest = hashlib.sha256(data[page * 16384 : min(page * 16384 + 16384, dataoff)]).digest()
        at = dataoff + 20 + hash_offset + 32 * page
        data[at : at + 32] = digest
    return bytes(data)


def test_signed_again_passes(folder: Path, tmp_path: Path) -> None:
    job, data = made("library", (ARM,), folder)
    assert _signed(bytearray(data)) == data
    checked(job, _signed(bytearray(data)), tmp_path / "file")


# Faults of an object and of an archive: (what to find, offset from it, bytes, word of the field that is named).
OBJECT_FAULTS = [
    (b"\xcf\xfa\xed\xfe", 12, b"\2", "filetype"),
    (b"\xcf\xfa\xed\xfe", 24, b"\0\0", "flags"),
    (b"__emitter\0", 48, b"\0\0\0\0", "__emitter"),
    (b"__emitter\0", 32, b"\1", "__emitter"),
    (b"\0_model_size\0", 1, b"!", "symbol"),
    (b"\xcf\xfa\xed\xfe", 4, b"\x07", "cputype"),
]


@pytest.mark.parametrize("format_", ["object", "archive"])
@pytest.mark.parametrize(("found", "offset", "fault", "word"), OBJECT_FAULTS)
def test_object_fault_is_named(
    format_: str, found: bytes, offset: int, fault: bytes, word: str, folder: Path, tmp_path: Path
) -> None:
    job, data = made(format_, (ARM,), folder)
    at = data.rindex(found) + offset
    with pytest.raises(OutputError) as caught:
        checked(job, data[:at] + fault + data[at + len(fault) :], tmp_path / "file")
    assert word in str(caught.value.where)


def test_a_tensor_that_begins_an_atom_is_no_fault_but_a_pack_that_does_not_is(folder: Path, tmp_path: Path) -> None:
    job, data = made("object", (ARM,), folder)
    file = parse(data)
    symoff = file.command(0x2, "4I")[0]
    at = symoff + 16 * list(file.symbols()).index("_model") + 6
    assert data[at : at + 2] == b"\0\0"
    with pytest.raises(OutputError) as caught:
        checked(job, data[:at] + b"\0\2" + data[at + 2 :], tmp_path / "file")
    assert "atom" in str(caught.value.where)


@pytest.mark.parametrize(
    ("offset", "fault", "word"),
    [
        (0, b"?", "magic of the archive"),
        (8, b"x", "ar_name"),
        (8 + 58, b"?", "ar_fmag"),
        (8 + 48, b"x", "ar_size"),
        (8 + 48, b"9999999999", "end of member"),
        (8 + 3, b"99", "contents of the member"),
        (8 + 3, b"9999999", "name of the member"),
        (68, b"x", "name of the first member"),
        (68 + 20, b"\x07", "entries of the symbol index"),
        (68 + 28, b"\x07", "symbol index"),
    ],
)
def test_archive_fault_is_named(offset: int, fault: bytes, word: str, folder: Path, tmp_path: Path) -> None:
    job, data = made("archive", (ARM,), folder)
    with pytest.raises(OutputError) as caught:
        checked(job, data[:offset] + fault + data[offset + len(fault) :], tmp_path / "file")
    assert word in str(caught.value.where)


@pytest.mark.parametrize("offset", range(0, 48, 4))
def test_every_field_of_the_universal_header_is_checked(offset: int, folder: Path, tmp_path: Path) -> None:
    job, data = made("library", (ARM, INTEL), folder)
    at = offset + 3
    with pytest.raises(OutputError):
        checked(job, data[:at] + bytes([data[at] ^ 0x11]) + data[at + 1 :], tmp_path / "file")


@pytest.mark.parametrize("format_", FILES)
@pytest.mark.parametrize("change", [-1, 1])
def test_another_size_is_refused(format_: str, change: int, folder: Path, tmp_path: Path) -> None:
    job, data = made(format_, (ARM,), folder)
    with pytest.raises(OutputError) as caught:
        checked(job, data[:-1] if change < 0 else data + b"\0", tmp_path / "file")
    assert caught.value.where == "size of the file"


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_no_damage_ends_in_another_error(
    data: st.DataObject, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    targets = data.draw(st.sampled_from([(ARM,), (INTEL, ARM)]))
    job, contents = made(data.draw(st.sampled_from(list(FILES))), targets, folder)
    damaged = bytearray(contents)
    for _ in range(data.draw(st.integers(1, 4))):
        # Headers more often than payload.
        top = data.draw(st.sampled_from([48, 2000, len(damaged)]))
        damaged[data.draw(st.integers(0, min(top, len(damaged)) - 1))] = data.draw(st.integers(0, 255))
    try:
        checked(job, bytes(damaged), tmp_path_factory.getbasetemp() / "damaged")
    except OutputError as error:
        assert error.where  # that, or nothing: any other exception is a fault of the check
