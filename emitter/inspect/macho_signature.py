"""Reads the code signature of a Mach-O file, and checks every hash in it against the file.

A SuperBlob is a list of (slot, offset) to blobs. A CodeDirectory holds a hash of each page of the file up to
`codeLimit`, and before them, counted backwards, hashes of other blobs. What an ad-hoc signature promises can be checked
anywhere, and is checked here; who signed with a certificate cannot. All numbers are big-endian.

Source: <kern/cs_blobs.h>, <Security/CSCommon.h>.
"""

from __future__ import annotations

from emitter.errors import FormatError
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.inspect.macho import MachOFile
    from emitter.inspect.view import View

__all__ = ["CodeDirectory", "CodeSignature", "SignatureFault", "read_signature", "verify_signature"]

CSMAGIC_EMBEDDED_SIGNATURE = 0xFADE0CC0
CSMAGIC_CODEDIRECTORY = 0xFADE0C02

CSSLOT_CODEDIRECTORY, CSSLOT_REQUIREMENTS, CSSLOT_ENTITLEMENTS, CSSLOT_DER_ENTITLEMENTS = 0, 2, 5, 7
CSSLOT_ALTERNATE_CODEDIRECTORIES = range(0x1000, 0x1005)
CSSLOT_CMS_SIGNATURE = 0x10000

CS_ADHOC, CS_LINKER_SIGNED = 0x2, 0x20000

# hashType: (name in hashlib, bytes kept).
_HASHES = {1: ("sha1", 20), 2: ("sha256", 32), 3: ("sha256", 20), 4: ("sha384", 48)}
_BLOB_SLOTS = (CSSLOT_REQUIREMENTS, CSSLOT_ENTITLEMENTS, CSSLOT_DER_ENTITLEMENTS)

# Fields that each version added, at the offset where they stand.
_SCATTER, _TEAM, _LIMIT64, _EXEC_SEG = 0x20100, 0x20200, 0x20300, 0x20400
_FIXED = 44  # bytes of it

_MAX_BLOBS = 64
_MAX_PAGE_SHIFT = 16
_MAX_FAULTS = 64
_STEP = 1 << 20  # bytes of hashes or of pages that are read at once


class CodeDirectory(NamedTuple):
    """`CS_CodeDirectory`; `slot` is where the SuperBlob has it, `offset` where it stands in the file.

    `pageSize` is the logarithm of the page's size; 0 means that one hash covers everything. `codeLimit` is that of
    `codeLimit64` where it is set.
    """

    slot: int
    offset: int
    length: int
    version: int
    flags: int
    hashOffset: int
    identOffset: int
    nSpecialSlots: int
    nCodeSlots: int
    codeLimit: int
    hashSize: int
    hashType: int
    platform: int
    pageSize: int
    scatterOffset: int
    ident: str
    team: str
    execSegBase: int
    execSegLimit: int
    execSegFlags: int

    @property
    def adhoc(self) -> bool:
        """Whether it names no signer."""
        return bool(self.flags & CS_ADHOC)

    @property
    def linker_signed(self) -> bool:
        """Whether a linker made it."""
        return bool(self.flags & CS_LINKER_SIGNED)

    @property
    def hash_name(self) -> str:
        """The hash: `sha256`."""
        return _HASHES.get(self.hashType, (f"hash type {self.hashType}", 0))[0]


class CodeSignature(NamedTuple):
    """The SuperBlob at `offset` of the file; `blobs` are (slot, offset in the file, length), `size` is datasize."""

    offset: int
    size: int
    length: int
    blobs: tuple[tuple[int, int, int], ...]
    directories: tuple[CodeDirectory, ...]

    @property
    def has_cms(self) -> bool:
        """Whether a certificate signs it: a CMS blob longer than its own header."""
        return any(slot == CSSLOT_CMS_SIGNATURE and length > 8 for slot, _, length in self.blobs)


class SignatureFault(NamedTuple):
    """What is wrong with a signature. `first_page`, `last_page`: pages (from 0) that do not match; -1 where none is."""

    what: str
    expected: str
    actual: str
    first_page: int = -1
    last_page: int = -1


def read_signature(macho: MachOFile) -> CodeSignature | None:
    """Return the signature, or None if there is none. Raises FormatError for a broken one."""
    command = macho.signature
    if command is None:
        return None
    view = macho.view
    start, size = command.dataoff, command.datasize
    view.check(start, size, "the code signature")
    magic, length, count = view.unpack(">3I", start, "the SuperBlob")
    if magic != CSMAGIC_EMBEDDED_SIGNATURE:
        raise _error(view, "magic of the SuperBlob", f"{CSMAGIC_EMBEDDED_SIGNATURE:#x}", f"{magic:#x}")
    if not 12 <= length <= size:
        raise _error(view, "length of the SuperBlob", f"from 12 to {size}", length)
    if count > _MAX_BLOBS or 12 + 8 * count > length:
        raise _error(view, "count of the SuperBlob", f"at most {min(_MAX_BLOBS, (length - 12) // 8)}", count)
    blobs, directories = [], []
    for slot, offset in view.table(">2I", start + 12, 8, count, "the index of the SuperBlob"):
        if offset + 8 > length:
            raise _error(view, f"offset of the blob of slot {slot:#x}", f"at most {length - 8}", offset)
        magic, blob_length = view.unpack(">2I", start + offset, "a blob")
        if not 8 <= blob_length <= length - offset:
            raise _error(view, f"length of the blob of slot {slot:#x}", f"from 8 to {length - offset}", blob_length)
        blobs.append((slot, start + offset, blob_length))
        if slot == CSSLOT_CODEDIRECTORY or slot in CSSLOT_ALTERNATE_CODEDIRECTORIES:
            if magic != CSMAGIC_CODEDIRECTORY:
                raise _error(view, "magic of the CodeDirectory", f"{CSMAGIC_CODEDIRECTORY:#x}", f"{magic:#x}")
            directories.append(_directory(view, slot, start + offset, blob_length))
    return CodeSignature(start, size, length, tuple(blobs), tuple(directories))


def verify_signature(macho: MachOFile) -> list[SignatureFault]:
    """Recompute every hash that the signature holds; return what does not match: nothing, if all is right.

    Pages stream, so memory is flat. Raises FormatError for a signature that is missing or cannot be read.
    """
    signature = read_signature(macho)
    if signature is None:
        raise FormatError("there is no code signature", where=macho.view.where)
    if not signature.directories:
        raise FormatError("the code signature has no CodeDirectory", where=macho.view.where)
    faults: list[SignatureFault] = []
    for directory in signature.directories:
        faults += _check_coverage(directory, signature)
        faults += _check_blobs(macho.view, directory, signature)
        faults += _check_pages(macho.view, directory)
    return faults


def _directory(view: View, slot: int, at: int, size: int) -> CodeDirectory:
    what = "the CodeDirectory"
    if size < _FIXED:
        raise _error(view, f"length of {what}", f"at least {_FIXED}", size)
    (
        _, length, version, flags, hash_offset, ident_offset, special, slots, code_limit, hash_size, hash_type,
        platform, page_size, _,
    ) = view.unpack(">9I4BI", at, what)  # fmt: skip
    needed = next((end for from_version, end in _ENDS if version >= from_version), _FIXED)
    if length < needed:
        raise _error(view, f"length of {what} of version {version:#x}", f"at least {needed}", length)
    scatter, team_offset, limit64, seg_base, seg_limit, seg_flags = 0, 0, 0, 0, 0, 0
    if version >= _SCATTER:
        (scatter,) = view.unpack(">I", at + 44, what)
    if version >= _TEAM:
        (team_offset,) = view.unpack(">I", at + 48, what)
    if version >= _LIMIT64:
        (limit64,) = view.unpack(">Q", at + 56, what)
    if version >= _EXEC_SEG:
        seg_base, seg_limit, seg_flags = view.unpack(">3Q", at + 64, what)
    if hash_type not in _HASHES:
        raise _error(view, f"hashType of {what}", ", ".join(map(str, _HASHES)), hash_type)
    if hash_size != _HASHES[hash_type][1]:
        raise _error(view, f"hashSize of hashType {hash_type}", _HASHES[hash_type][1], hash_size)
    if page_size > _MAX_PAGE_SHIFT:
        raise _error(view, f"pageSize of {what}", f"at most {_MAX_PAGE_SHIFT}", page_size)
    if special * hash_size > hash_offset or hash_offset + slots * hash_size > length:
        raise _error(
            view,
            f"hashes of {what}",
            f"within its {length} bytes",
            f"{special} before and {slots} after {hash_offset:#x}",
        )
    end = at + length
    return CodeDirectory(
        slot, at, length, version, flags, hash_offset, ident_offset, special, slots, limit64 or code_limit, hash_size,
        hash_type, platform, page_size, scatter,
        view.string(at + ident_offset, end, "the identifier"),
        view.string(at + team_offset, end, "the team") if team_offset else "",
        seg_base, seg_limit, seg_flags,
    )  # fmt: skip


# The end of the fixed part by version, newest first.
_ENDS = ((_EXEC_SEG, 88), (_LIMIT64, 64), (_TEAM, 52), (_SCATTER, 48))


def _check_coverage(directory: CodeDirectory, signature: CodeSignature) -> Iterator[SignatureFault]:
    if directory.codeLimit != signature.offset:
        yield SignatureFault(
            "codeLimit is not where the signature begins", hex(signature.offset), hex(directory.codeLimit)
        )
    page = 1 << directory.pageSize if directory.pageSize else max(directory.codeLimit, 1)
    slots = -(-directory.codeLimit // page)
    if directory.nCodeSlots != slots:
        yield SignatureFault("nCodeSlots does not cover codeLimit", str(slots), str(directory.nCodeSlots))
    if directory.scatterOffset:
        yield SignatureFault("scattered code cannot be checked", "scatterOffset 0", hex(directory.scatterOffset))


def _check_blobs(view: View, directory: CodeDirectory, signature: CodeSignature) -> Iterator[SignatureFault]:
    """Compare the special slots with the blobs of this signature that they are hashes of."""
    at = directory.offset + directory.hashOffset
    for slot, offset, length in signature.blobs:
        if slot not in _BLOB_SLOTS:
            continue
        actual = _hash(directory, view.chunks(offset, length, "a blob"))
        expected = b""
        if slot <= directory.nSpecialSlots:
            expected = view.read(at - slot * directory.hashSize, directory.hashSize, "a special slot")
        if expected != actual:
            yield SignatureFault(
                f"the blob of slot {slot} does not match its hash", expected.hex() or "a hash", actual.hex()
            )


def _check_pages(view: View, directory: CodeDirectory) -> list[SignatureFault]:
    """Compare every page up to codeLimit with its hash; neighbours that differ are one fault."""
    limit = min(directory.codeLimit, view.size)
    page = 1 << directory.pageSize if directory.pageSize else max(limit, 1)
    count = min(directory.nCodeSlots, -(-limit // page))
    faults: list[SignatureFault] = []
    if limit < directory.codeLimit:
        faults.append(SignatureFault("the file ends before codeLimit", hex(directory.codeLimit), hex(view.size)))
    if not count:
        return faults
    bad, size = 0, directory.hashSize
    for first, expected, actual in _hashes(view, directory, page, count, limit):
        if expected == actual:
            continue
        for at in range(0, len(expected), size):
            if expected[at : at + size] == actual[at : at + size]:
                continue
            bad += 1
            number = first + at // size
            last = faults[-1] if faults else None
            if last is not None and last.last_page == number - 1 >= 0:
                what = f"pages {last.first_page} to {number} do not match their hashes"
                faults[-1] = last._replace(what=what, last_page=number)
            elif len(faults) < _MAX_FAULTS:
                what = f"page {number} (offset {number * page:#x}) does not match its hash"
                hashes = expected[at : at + size].hex(), actual[at : at + size].hex()
                faults.append(SignatureFault(what, *hashes, number, number))
    if len(faults) == _MAX_FAULTS:
        faults.append(SignatureFault("more pages do not match", "none", f"{bad} in all"))
    return faults


def _hashes(
    view: View, directory: CodeDirectory, page: int, count: int, limit: int
) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield (number of the first page, hashes in the signature, hashes of the pages) of some pages at a time."""
    size = directory.hashSize
    at = directory.offset + directory.hashOffset
    if not directory.pageSize:  # one hash over everything
        yield 0, view.read(at, size, "a hash"), _hash(directory, view.chunks(0, limit, "the code"))
        return
    import hashlib

    new = getattr(hashlib, _HASHES[directory.hashType][0])
    per_step = _STEP // page
    zeros = bytes(per_step * page)
    of_zeros = new(zeros[:page]).digest()[:size]
    for first in range(0, count, per_step):
        now = min(per_step, count - first)
        start = first * page
        data = view.read(start, min(now * page, limit - start), "the code")
        hashes = view.read(at + first * size, now * size, "the hashes")
        if data == zeros:  # a hole of a sparse file, or padding
            yield first, hashes, of_zeros * now
            continue
        pages = memoryview(data)
        digests = [new(pages[low : low + page]).digest()[:size] for low in range(0, now * page, page)]
        yield first, hashes, b"".join(digests)


def _hash(directory: CodeDirectory, chunks: Iterator[bytes]) -> bytes:
    import hashlib

    name, size = _HASHES[directory.hashType]
    digest = hashlib.new(name)
    for chunk in chunks:
        digest.update(chunk)
    return digest.digest()[:size]


def _error(view: View, what: str, expected: object, actual: object) -> FormatError:
    return FormatError(what, where=f"{view.where}: code signature", expected=expected, actual=actual)
