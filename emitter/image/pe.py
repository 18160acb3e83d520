"""Lays out a pack as a DLL: no linker, no relocations, no code, no entry point.

Two sections, both read-only, whose addresses in the image are their offsets in the file: `.rdata` with the size and the
export directory, and `.emitter`, the pack. Each byte of the file belongs to the headers or to a section, so that a
signature, which is put behind them, covers all.

Source: Microsoft's PE Format. The values are those that lld-link and GNU ld give to a DLL of one data object. There is
no `.reloc` section, and the image is tied to no address: IMAGE_FILE_RELOCS_STRIPPED is clear, and nothing in it needs
relocation.
"""

from __future__ import annotations

import struct

from emitter import coff
from emitter.errors import LayoutError
from emitter.image import check_alignment, place_pack
from emitter.layout import FilePlan, Piece, align_up
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emitter.model import TensorSymbol
    from emitter.pack.plan import PackPlan
    from emitter.targets._base import Coff, Target


__all__ = ["MAX_EXPORTS", "PACK_SECTION", "plan_image"]

# Survives a link, and is what loaders look for. Eight bytes: an image has no string table for longer names.
PACK_SECTION = b".emitter"

MAX_EXPORTS = 0xFFFF  # ordinals have 16 bits

# Both alignments. With the usual FileAlignment of 512 a loader may have to read the payload into memory of the process;
# whole pages are mapped.
_PAGE = 0x1000

_DOS_HEADER_SIZE = 64
_SIGNATURE = b"PE\0\0"
_NUMBER_OF_RVA_AND_SIZES = 16
_IMAGE_SUBSYSTEM_WINDOWS_GUI = 2
_READ = coff.IMAGE_SCN_CNT_INITIALIZED_DATA | coff.IMAGE_SCN_MEM_READ

# Standard fields to SizeOfUninitializedData, AddressOfEntryPoint and BaseOfCode; PE32 has BaseOfData, too.
_STANDARD = {0x10B: struct.Struct("<H2B7I"), 0x20B: struct.Struct("<H2B5IQ")}
# From SectionAlignment to DllCharacteristics, then reserve and commit of stack and heap, in the width of pointers.
_WINDOWS = struct.Struct("<2I6H4I2H")

_EXPORT_DIRECTORY = struct.Struct("<2I2H7I")


def plan_image(
    target: Target, pack: PackPlan, *, name: str, dll_name: str, symbols: Sequence[TensorSymbol] = ()
) -> FilePlan:
    """Return the plan of a DLL that holds `pack` and nothing else.

    Exports, by name: `name` and `emitter_pack` (the pack), `name`_size (its size in bytes, of pointer width), and
    `symbols`. On 32-bit x86 they have no underscore before them, as in all DLLs. The caller has made sure that the
    names differ. `dll_name` is what the file will be called. The pack begins a page, its payload at the file offset
    that `layout.bulk_alignment` wants. CheckSum is 0: Windows checks it for drivers alone. Raises LayoutError for a
    payload alignment above 4096, for more than 65535 exports, and for an image that the target cannot map.
    """
    facts = coff.facts_of(target)
    check_alignment(target, pack, _PAGE, ", or emit an object, which keeps 8192")
    _check_size(target, pack.total_size)

    size_name = f"{name}_size"
    in_pack = {name: 0, "emitter_pack": 0} | {symbol.name: symbol.offset for symbol in symbols}
    exports = sorted(one.encode() for one in (*in_pack, size_name))  # names are searched by halves
    if len(exports) > MAX_EXPORTS:
        raise LayoutError(
            "too many symbols for a DLL",
            expected=f"at most {MAX_EXPORTS}",
            actual=len(exports),
            hint="leave out --tensor-symbols; tensors are found by name without them",
        )

    # Addresses: SizeOfHeaders is a page, `.rdata` fills what comes before the pack, and each section begins a page.
    word = target.pointer_width // 8
    rdata = _PAGE
    directory = rdata + word
    directory_size = _directory_size(exports, dll_name)
    rdata_size = word + directory_size
    at_pack = place_pack(rdata + rdata_size, _PAGE, pack)
    if align_up(rdata + rdata_size, _PAGE) != at_pack:
        rdata_size = at_pack - rdata  # no hole between sections: Windows takes none
    end = align_up(at_pack + pack.total_size, _PAGE)
    _check_size(target, end)

    # File layout is fixed.
    addresses = {one: at_pack + offset for one, offset in in_pack.items()} | {size_name: rdata}
    content = pack.total_size.to_bytes(word, "little") + _export_directory(exports, addresses, directory, dll_name)
    sections = [
        coff.SectionHeader(b".rdata", rdata_size, rdata, at_pack - rdata, rdata, _READ),
        coff.SectionHeader(PACK_SECTION, pack.total_size, at_pack, end - at_pack, at_pack, _READ),
    ]
    headers = b"".join((
        _dos_header(),
        _SIGNATURE,
        _file_header(facts, len(sections)),
        _optional_header(facts, word, (directory, directory_size), rdata, end),
        *(section.encode() for section in sections),
    ))  # fmt: skip
    return FilePlan(
        size=end,
        pieces=[Piece(0, headers), Piece(rdata, content)],
        copies=[copy.moved(at_pack) for copy in pack.payloads],
        pack_offset=at_pack,
    )


def _check_size(target: Target, size: int) -> None:
    limit = target.max_image_size
    if limit is not None and size > limit:
        raise LayoutError(
            "the library is too large",
            where=f"target {target.name}",
            expected=f"SizeOfImage of at most {limit} bytes",
            actual=size,
            hint="split the package into several libraries, or write a .pack and map it",
        )


def _directory_size(exports: Sequence[bytes], dll_name: str) -> int:
    """Return the size of the export directory with its tables and strings."""
    strings = sum(len(one) + 1 for one in (_file_name(dll_name), *exports))
    return _EXPORT_DIRECTORY.size + (4 + 4 + 2) * len(exports) + strings


def _file_name(dll_name: str) -> bytes:
    return dll_name.encode(errors="surrogateescape")  # file names need not be UTF-8


def _export_directory(exports: Sequence[bytes], addresses: dict[str, int], start: int, dll_name: str) -> bytes:
    """Return the export directory that begins at the address `start`: ordinal 1 + n is the nth name.

    What it exports lies outside it: an address within the directory would be read as the name of another DLL's export.
    """
    count = len(exports)
    functions = start + _EXPORT_DIRECTORY.size
    names = functions + 4 * count
    ordinals = names + 4 * count
    strings = ordinals + 2 * count
    texts = [_file_name(dll_name), *exports]
    places = []
    position = strings
    for text in texts:
        places.append(position)
        position += len(text) + 1
    header = _EXPORT_DIRECTORY.pack(0, 0, 0, 0, places[0], 1, count, count, functions, names, ordinals)
    return b"".join((
        header,
        struct.pack(f"<{count}I", *(addresses[one.decode()] for one in exports)),
        struct.pack(f"<{count}I", *places[1:]),
        struct.pack(f"<{count}H", *range(count)),
        *(text + b"\0" for text in texts),
    ))  # fmt: skip


def _dos_header() -> bytes:
    """Return an IMAGE_DOS_HEADER: a file of one page for MS-DOS, whose program is empty, and where the rest begins."""
    e_cblp, e_cp, e_cparhdr, e_maxalloc, e_lfarlc = _DOS_HEADER_SIZE, 1, 4, 0xFFFF, 0x40
    words = (e_cblp, e_cp, 0, e_cparhdr, 0, e_maxalloc, 0, 0, 0, 0, 0, e_lfarlc, 0)
    return b"MZ" + struct.pack("<13H", *words) + bytes(32) + struct.pack("<I", _DOS_HEADER_SIZE)


def _file_header(facts: Coff, number_of_sections: int) -> bytes:
    standard = _STANDARD[facts.magic]
    word = 8 if facts.magic == 0x20B else 4
    size = standard.size + _WINDOWS.size + 4 * word + 8 + 8 * _NUMBER_OF_RVA_AND_SIZES
    return coff.file_header(
        facts.machine, number_of_sections, size_of_optional_header=size, characteristics=facts.characteristics
    )


def _optional_header(facts: Coff, word: int, directory: tuple[int, int], rdata: int, end: int) -> bytes:
    """Return the optional header; `directory` is (address, size) of the export directory."""
    size_of_initialized_data = end - rdata
    common = (facts.magic, 0, 0, 0, size_of_initialized_data, 0, 0, 0)
    # PE32 has BaseOfData before an ImageBase of 32 bits.
    base = (rdata, facts.image_base) if word == 4 else (facts.image_base,)
    version = facts.operating_system_version
    windows = (
        _PAGE, _PAGE,
        *version, 0, 0, *version,  # of the system, the image, the subsystem
        0, end, _PAGE, 0,  # Win32VersionValue, SizeOfImage, SizeOfHeaders, CheckSum
        _IMAGE_SUBSYSTEM_WINDOWS_GUI, facts.dll_characteristics,
    )  # fmt: skip
    stack_and_heap = (0x100000, 0x1000, 0x100000, 0x1000)  # of no meaning in a DLL; what linkers write
    return b"".join((
        _STANDARD[facts.magic].pack(*common, *base),
        _WINDOWS.pack(*windows),
        struct.pack(f"<4{'I' if word == 4 else 'Q'}2I", *stack_and_heap, 0, _NUMBER_OF_RVA_AND_SIZES),
        struct.pack("<2I", *directory) + bytes(8 * (_NUMBER_OF_RVA_AND_SIZES - 1)),
    ))  # fmt: skip
