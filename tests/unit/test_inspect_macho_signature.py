"""Code signatures: every page hash, against files that a linker signed and files that were changed since."""

from __future__ import annotations

import hashlib
import os
import struct
from typing import TYPE_CHECKING, Any

import pytest

from emitter.errors import FormatError
from emitter.inspect.macho import MachOFile
from emitter.inspect.macho_signature import read_signature, verify_signature
from emitter.inspect.view import View
from tests.foreign_files import dylib, run_tool

if TYPE_CHECKING:
    from pathlib import Path

PAGE = 4096


@pytest.fixture(scope="module", params=["arm64", "x86_64"])
def signed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = dylib(str(tmp_path_factory.mktemp("signature")), request.param)
    with open(path, "rb") as file:
        return file.read()


def _of(data: bytes) -> MachOFile:
    return MachOFile(View.of_bytes(data, "x.dylib"))


def test_what_a_linker_signed_is_right(signed: bytes) -> None:
    macho = _of(signed)
    signature = read_signature(macho)
    assert signature is not None
    (directory,) = signature.directories
    assert (directory.ident, directory.hash_name, 1 << directory.pageSize) == ("libouter.dylib", "sha256", PAGE)
    assert directory.adhoc
    assert directory.linker_signed
    assert directory.codeLimit == signature.offset == len(signed) - signature.size
    assert directory.nCodeSlots == -(-directory.codeLimit // PAGE)
    assert not signature.has_cms
    assert verify_signature(macho) == []


def test_every_page_is_covered(signed: bytes) -> None:
    signature = read_signature(_of(signed))
    assert signature is not None
    limit = signature.directories[0].codeLimit
    first = max(command.offset + command.cmdsize for command in _of(signed).commands)
    for page in range(-(-limit // PAGE)):
        for at in {max(page * PAGE, first), min((page + 1) * PAGE, limit) - 1}:
            data = bytearray(signed)
            data[at] ^= 1
            (fault,) = verify_signature(_of(bytes(data)))
            assert (fault.first_page, fault.last_page) == (page, page), hex(at)


def test_neighbouring_pages_are_one_fault() -> None:
    data = bytearray(_sign(_code(8 * PAGE, 4096), 2, 32, 12) + bytes(4096))
    for page in (1, 2, 3, 6):
        data[page * PAGE] ^= 0xFF
    faults = verify_signature(_of(bytes(data)))
    assert [(fault.first_page, fault.last_page) for fault in faults] == [(1, 3), (6, 6)]
    assert faults[0].what == "pages 1 to 3 do not match their hashes"
    assert hashlib.sha256(data[6 * PAGE : 7 * PAGE]).hexdigest() == faults[1].actual


def test_a_tool_that_edits_and_signs_again_leaves_it_right(tmp_path: Path) -> None:
    path = dylib(str(tmp_path), reexport=False)
    before = os.stat(path).st_size
    run_tool("llvm-strip", "-x", path)
    assert os.stat(path).st_size < before
    with open(path, "rb") as file:
        assert verify_signature(_of(file.read())) == []


def test_what_another_signer_signed_is_right(tmp_path: Path) -> None:
    signer: Any = pytest.importorskip("apple_platform", reason="apple-platform-py is not installed")
    path = dylib(str(tmp_path))
    signer.sign(path)
    with open(path, "rb") as file:
        data = bytearray(file.read())
    signature = read_signature(_of(bytes(data)))
    assert signature is not None
    # Requirements, and an empty CMS blob, which the linkers leave out.
    assert [slot for slot, _, _ in signature.blobs] == [0, 2, 0x10000]
    assert not signature.directories[0].linker_signed
    assert verify_signature(_of(bytes(data))) == []
    (requirements,) = (offset for slot, offset, _ in signature.blobs if slot == 2)
    data[requirements + 11] ^= 1
    (fault,) = verify_signature(_of(bytes(data)))
    assert fault.what == "the blob of slot 2 does not match its hash"


# One of each hash, with pages of 4 and 16 KiB, and one hash over everything.
FORMS = ((1, 20, 12), (2, 32, 12), (2, 32, 14), (3, 20, 12), (4, 48, 14), (2, 32, 0))


def _sign(code: bytes, hash_type: int, size: int, shift: int, *, blob: bytes = b"", corrupt: bool = False) -> bytes:
    """Return `code`, which begins with a Mach-O header, with a signature of its own form behind it."""
    name = {1: "sha1", 2: "sha256", 3: "sha256", 4: "sha384"}[hash_type]
    special = 2 if blob else 0
    page = 1 << shift if shift else len(code)
    pages = [code[at : at + page] for at in range(0, len(code), page)]
    hashes = [hashlib.new(name, one).digest()[:size] for one in pages]
    slots = [hashlib.new(name, blob).digest()[:size], bytes(size)] if blob else []
    at = 88 + len("ident") + 1 + special * size
    length = at + len(hashes) * size
    directory = struct.pack(
        ">9I4BI4IQ3Q", 0xFADE0C02, length, 0x20400, 2, at, 88, special, len(hashes), len(code), size, hash_type, 0,
        shift, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    )[:88]  # fmt: skip
    directory += b"ident\0" + b"".join(slots) + b"".join(hashes)
    blobs = [(0, directory), *([(2, bytes([blob[0] ^ corrupt]) + blob[1:])] if blob else [])]
    head, bodies, offset = b"", b"", 12 + 8 * len(blobs)
    for slot, body in blobs:
        head += struct.pack(">2I", slot, offset)
        bodies += body
        offset += len(body)
    return code + struct.pack(">3I", 0xFADE0CC0, offset, len(blobs)) + head + bodies


def _code(size: int, signature_size: int) -> bytes:
    command = struct.pack("<4I", 0x1D, 16, size, signature_size)
    header = struct.pack("<8I", 0xFEEDFACF, 0x0100000C, 0, 6, 1, len(command), 0, 0)
    return (header + command).ljust(size, b"\x5a")


@pytest.mark.parametrize(("hash_type", "size", "shift"), FORMS)
def test_every_hash_and_page_size_is_checked(hash_type: int, size: int, shift: int) -> None:
    code = _code(50000, 4096)
    data = _sign(code, hash_type, size, shift) + bytes(4096)
    assert verify_signature(_of(data)) == []
    broken = bytearray(data)
    broken[49999] ^= 1
    (fault,) = verify_signature(_of(bytes(broken)))
    assert fault.last_page == (49999 >> shift if shift else 0)


def test_blobs_are_compared_with_their_slots() -> None:
    code, blob = _code(10000, 4096), struct.pack(">3I", 0xFADE0C01, 12, 0)
    assert verify_signature(_of(_sign(code, 2, 32, 12, blob=blob) + bytes(4096))) == []
    (fault,) = verify_signature(_of(_sign(code, 2, 32, 12, blob=blob, corrupt=True) + bytes(4096)))
    assert fault.what == "the blob of slot 2 does not match its hash"


def test_a_signature_that_does_not_reach_to_itself_is_told() -> None:
    code = _code(10000, 4096)
    data = _sign(code, 2, 32, 12)
    moved = _code(10016, 4096)[:48] + data[48:10000] + bytes(16) + data[10000:] + bytes(4096)
    whats = [fault.what for fault in verify_signature(_of(moved))]
    assert "codeLimit is not where the signature begins" in whats


BROKEN = (
    (0, 0xFADE0CC1, "magic of the SuperBlob"),
    (4, 1 << 20, "length of the SuperBlob"),
    (8, 1 << 30, "count of the SuperBlob"),
    (16, 1 << 30, "offset of the blob of slot 0"),
    (20, 0xFADE0C01, "magic of the CodeDirectory"),
    (24, 1 << 20, "length of the blob of slot 0"),
    (36, 1 << 30, "hashes of the CodeDirectory"),
    (40, 1 << 30, "the identifier is not in the string table"),
    (44, 1 << 30, "hashes of the CodeDirectory"),
    (48, 1 << 30, "hashes of the CodeDirectory"),
    (56, 0x20090000, "hashType of the CodeDirectory"),
    (56, 0x00000000, "hashType of the CodeDirectory"),
    (56, 0x14020000, "hashSize of hashType 2"),
    (56, 0x20020020, "pageSize of the CodeDirectory"),
)


@pytest.mark.parametrize(("offset", "value", "message"), BROKEN)
def test_a_broken_signature_is_an_error(offset: int, value: int, message: str) -> None:
    data = bytearray(_sign(_code(10000, 4096), 2, 32, 12) + bytes(4096))
    struct.pack_into(">I", data, 10000 + offset, value)
    with pytest.raises(FormatError, match=message):
        verify_signature(_of(bytes(data)))


def test_a_file_without_signature_is_not_right() -> None:
    data = struct.pack("<8I", 0xFEEDFACF, 0x0100000C, 0, 6, 0, 0, 0, 0)
    assert read_signature(_of(data)) is None
    with pytest.raises(FormatError, match="no code signature"):
        verify_signature(_of(data))
