"""The ad-hoc code signature of a Mach-O image, as Apple's and LLVM's linkers write it: a CodeDirectory alone.

Source: xnu, osfmk/kern/cs_blobs.h (`CS_SuperBlob`, `CS_CodeDirectory`, version 0x20400). Numbers are big-endian. What
is computed when the bytes are final, the SHA-256 of every page, is left zero here: `layout.PageHashes` says where it
goes.
"""

from __future__ import annotations

from struct import Struct

from emitter.layout import HASH_SIZE, align_up
from emitter.records import NamedTuple

__all__ = ["ALIGNMENT", "Signature", "plan_signature"]

ALIGNMENT = 16  # of the signature in the file, and of its size

_CSMAGIC_EMBEDDED_SIGNATURE, _CSMAGIC_CODEDIRECTORY = 0xFADE0CC0, 0xFADE0C02
_CSSLOT_CODEDIRECTORY = 0
_CS_ADHOC, _CS_LINKER_SIGNED = 0x2, 0x20000
_CS_HASHTYPE_SHA256 = 2
_VERSION = 0x20400  # the first with execSegBase and its neighbours

_SUPER_BLOB = Struct(">5I")  # with its one index entry
_CODE_DIRECTORY = Struct(">9I4BI3I4Q")


class Signature(NamedTuple):
    """What goes into the file at the end of the code, `head`; how far behind it the hashes stand; the size in all."""

    head: bytes
    hashes: int
    size: int


def plan_signature(identifier: bytes, code_limit: int, exec_seg_limit: int, page: int) -> Signature:
    """Return the signature of a file whose first `code_limit` bytes it covers.

    `identifier` has no NUL; `exec_seg_limit` is the size of `__TEXT` in the file, which begins at its start; `page` is
    how many bytes a hash covers: a page of the processor (16 KiB on Apple silicon, as codesign has it from macOS 26 on
    and Zig's linker always had; other linkers take 4 KiB everywhere, and four times the hashes).
    """
    slots = -(-code_limit // page)
    hash_offset = _CODE_DIRECTORY.size + len(identifier) + 1
    length = hash_offset + slots * HASH_SIZE
    directory = _CODE_DIRECTORY.pack(
        _CSMAGIC_CODEDIRECTORY, length, _VERSION, _CS_ADHOC | _CS_LINKER_SIGNED,
        hash_offset, _CODE_DIRECTORY.size, 0, slots, code_limit,
        HASH_SIZE, _CS_HASHTYPE_SHA256, 0, page.bit_length() - 1, 0,
        0, 0, 0, 0,  # no scatter, no team, spare, codeLimit64
        0, exec_seg_limit, 0,  # execSegFlags: CS_EXECSEG_MAIN_BINARY is for programs
    )  # fmt: skip
    total = _SUPER_BLOB.size + length
    index = (1, _CSSLOT_CODEDIRECTORY, _SUPER_BLOB.size)
    head = _SUPER_BLOB.pack(_CSMAGIC_EMBEDDED_SIGNATURE, total, *index) + directory + identifier + b"\0"
    return Signature(head, len(head), align_up(total, ALIGNMENT))
