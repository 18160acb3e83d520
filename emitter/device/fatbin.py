"""CUDA fatbins: several programs, each for one GPU, in one container.

Sources: `fatbinary_section.h` of the CUDA toolkit for the 16 bytes of the header. The entries are not documented. What
is read of them here was compared with what cuobjdump 13.5 says of files that fatbinary made: kinds, sm numbers, the
suffixes `a` and `f`, compression, options and names. Nothing is ever written in this format.
"""

from __future__ import annotations

from emitter.device import FATBIN_MAGIC, cubin
from emitter.device.image import CUDA, RELOCATABLE, Image, Program, broken, cuda_image
from emitter.errors import FormatError
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from emitter.inspect.view import View

__all__ = ["CUBIN", "LTO", "PTX", "FatbinEntry", "read", "read_fatbin"]

PTX, CUBIN, LTO = 1, 2, 8  # kinds of entries; the last is NVVM IR for optimisation when it is linked
KINDS = {PTX: "PTX", CUBIN: "a cubin", LTO: "NVVM IR"}

_HEADER_SIZE = 16
_ENTRY_VERSION = 0x0101
_ENTRY_SIZE = 64  # of an entry's header, without options and name
_MAX_ENTRY_SIZE = 1 << 20
_MAX_ENTRIES = 1 << 16
_LZ4, _ZSTD = 0x2000, 0x8000
_SUFFIXES = {0x100000: "a", 0x200000: "f"}
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_MAX_ARCH = 9999


class FatbinEntry(NamedTuple):
    """A program in a fatbin: `offset` of its header, whose size is `header_size`; `size` bytes of program follow it.

    `arch` is the sm number and `suffix` its letter. `stored` are the bytes of the program as it is stored, without
    padding; `unpacked` is 0, or its size before it was compressed with LZ4 or zstd. `options` are for ptxas.
    """

    offset: int
    kind: int
    header_size: int
    size: int
    arch: int
    suffix: str = ""
    stored: int = 0
    unpacked: int = 0
    compression: str = ""
    options: str = ""

    @property
    def payload(self) -> int:
        """Offset of the program."""
        return self.offset + self.header_size


def read_fatbin(view: View, *, padded: bool = False) -> list[FatbinEntry]:
    """Return the entries of a fatbin; raise FormatError, with the offset, for one that breaks the format.

    With `padded` its size need not be a multiple of 8: who stores it pads it.
    """
    where = view.where
    magic = view.read_up_to(0, 4)
    if magic != FATBIN_MAGIC:
        raise broken("not a fatbin", where, 0, FATBIN_MAGIC.hex(" "), magic.hex(" "), "make it with fatbinary or nvcc")
    if view.size < _HEADER_SIZE:
        raise broken("the fatbin is truncated", where, view.size, f"{_HEADER_SIZE} bytes", f"{view.size}")
    version, header_size, size = view.unpack("<HHQ", 4, "the header of the fatbin")
    if version != 1 or header_size != _HEADER_SIZE:
        raise broken(
            "the header of the fatbin is of another kind", where, 4,
            f"version 1, {_HEADER_SIZE} bytes", f"version {version}, {header_size} bytes",
        )  # fmt: skip
    if size % 8 and not padded:
        raise broken("the size of the fatbin is no multiple of 8", where, 8, "a multiple of 8", f"{size}")
    if header_size + size > view.size:
        raise broken(
            "the fatbin is truncated", where, 8, f"{header_size + size} bytes", f"{view.size}", "copy it again"
        )
    entries: list[FatbinEntry] = []
    position, end = header_size, header_size + size
    while position < end:
        if len(entries) == _MAX_ENTRIES:
            raise broken("too many entries", where, position, f"at most {_MAX_ENTRIES}", "more")
        entry = _read_entry(view, position, end, f"{where}: entry {len(entries)}")
        entries.append(entry)
        position += entry.header_size + entry.size
    return entries


def _read_entry(view: View, position: int, end: int, where: str) -> FatbinEntry:
    if position + _ENTRY_SIZE > end:
        raise broken(
            "an entry is not inside of the fatbin", where, position,
            f"{_ENTRY_SIZE} bytes before {end:#x}", f"{end - position} bytes",
        )  # fmt: skip
    fields = view.unpack("<HHIQIIHHIIIQ8xQ", position, "an entry of the fatbin")
    kind, version, header_size, size, compressed, options_at, _, _, arch, name_at, name_size, flags, unpacked = fields
    if version != _ENTRY_VERSION:
        raise broken("an entry is of another version", where, position + 2, f"{_ENTRY_VERSION:#x}", f"{version:#x}")
    if not _ENTRY_SIZE <= header_size <= _MAX_ENTRY_SIZE or header_size % 8:
        expected = f"a multiple of 8, {_ENTRY_SIZE} to {_MAX_ENTRY_SIZE}"
        raise broken(
            "the header of an entry has a size that it cannot have", where, position + 4, expected, header_size
        )
    if position + header_size + size > end:
        raise broken(
            "an entry is not inside of the fatbin", where, position + 8,
            f"an end of at most {end:#x}", f"{position + header_size + size:#x}, header of {header_size} bytes",
        )  # fmt: skip
    for at, offset, length in ((20, options_at, 8 if options_at else 0), (32, name_at, name_size)):
        if (offset or length) and not _ENTRY_SIZE <= offset <= offset + length <= header_size:
            expected = f"an offset of {_ENTRY_SIZE} to {header_size - length}"
            raise broken("what belongs to an entry is outside of its header", where, position + at, expected, offset)
    if not 0 < arch <= _MAX_ARCH:
        raise broken("an entry is for no GPU", where, position + 28, f"an sm number of 1 to {_MAX_ARCH}", arch)
    compression = "LZ4" if flags & _LZ4 else "zstd" if flags & _ZSTD else ""
    if compression and not 0 < compressed <= size:
        raise broken("the compressed size is wrong", where, position + 16, f"1 to {size}", compressed)
    for at, value in ((16, compressed), (56, unpacked)):
        if value and not compression:
            raise broken("what is not compressed has a compressed size", where, position + at, 0, value)
    if compression and not unpacked:
        raise broken("the size before compression is missing", where, position + 56, "more than 0", unpacked)
    return FatbinEntry(
        position, kind, header_size, size, arch,
        next((suffix for bit, suffix in _SUFFIXES.items() if flags & bit), ""),
        compressed if compression else size, unpacked if compression else 0, compression,
        _options(view, position, header_size, options_at, where),
    )  # fmt: skip


def _options(view: View, position: int, header_size: int, at: int, where: str) -> str:
    """Return the options for ptxas: an offset from the entry and a length, u32 each, stand at `at`."""
    if not at:
        return ""
    start, length = view.unpack("<II", position + at, "the options of an entry")
    if length and not at + 8 <= start <= start + length <= header_size:
        expected = f"text within {at + 8} to {header_size}"
        raise broken("the options of an entry are outside of its header", where, position + at, expected, start)
    return (
        view.read(position + start, length, "the options of an entry").decode("latin-1").strip("\0 ") if length else ""
    )


def read(view: View) -> Program:
    """Return what a fatbin holds; raise FormatError, with the offset, for one that the driver would not take."""
    entries = read_fatbin(view, padded=True)
    size = _HEADER_SIZE + view.unpack("<Q", 8, "the size of the fatbin")[0]
    if not entries:
        raise broken("the fatbin is empty", view.where, 8, "at least one program", "none")
    for chunk in view.chunks(size, view.size - size, "what follows the fatbin"):
        if any(chunk):
            raise broken("something follows the fatbin", view.where, size, "its end", f"{view.size - size} bytes")
    images = []
    relocatable = False
    for number, entry in enumerate(entries):
        where = f"{view.where}: entry {number}"
        if entry.kind not in KINDS:
            expected = ", ".join(f"{kind} ({name})" for kind, name in KINDS.items())
            hint = "write raw:FILE to take its bytes as they are"
            raise broken("an entry is of a kind that is not known", where, entry.offset, expected, entry.kind, hint)
        if entry.compression == "zstd" and entry.kind != LTO:
            _expect_start(view, entry, _ZSTD_MAGIC, "zstd data", where)
        elif entry.kind == CUBIN and not entry.compression:
            relocatable |= _check_cubin(view, entry, where)
        elif entry.kind == PTX and not entry.compression:
            _check_ptx(view, entry, where)
        # NVVM IR is linked, as is what was compiled with -rdc=true: ptxas is told so.
        relocatable |= entry.kind == LTO or "--compile-only" in entry.options.split()
        if entry.kind == LTO:
            images.append(Image(f"lto_{entry.arch}{entry.suffix}", {}, (2, -entry.arch)))
        else:
            images.append(cuda_image(entry.arch, entry.suffix, ptx=entry.kind == PTX))
    kind = RELOCATABLE if relocatable else CUDA
    return Program("fatbin", kind, size, 64, tuple(images))


def _expect_start(view: View, entry: FatbinEntry, magic: bytes, what: str, where: str) -> None:
    found = view.read_up_to(entry.payload, len(magic))
    if found != magic or entry.size < len(magic):
        raise broken(f"an entry does not hold {what}", where, entry.payload, magic.hex(" "), found.hex(" "))


def _check_cubin(view: View, entry: FatbinEntry, where: str) -> bool:
    """Compare a cubin with its entry; return whether it has to be linked."""
    header = cubin.read_header(view.window(entry.payload, entry.size, where), base=entry.payload)
    if header.sm != entry.arch:
        raise broken("the entry is for another GPU than its cubin", where, entry.offset + 28, header.sm, entry.arch)
    return header.relocatable


def _check_ptx(view: View, entry: FatbinEntry, where: str) -> None:
    from emitter.device.ptx import read_ptx

    try:
        head = read_ptx(view.window(entry.payload, entry.size, where))
    except FormatError as error:
        raise broken(error.what, where, entry.payload, error.expected, error.actual) from error
    if (head.arch, head.suffix) != (entry.arch, entry.suffix):
        actual = f"{entry.arch}{entry.suffix}"
        raise broken(
            "the entry is for another GPU than its PTX", where, entry.offset + 28, f"{head.arch}{head.suffix}", actual
        )
