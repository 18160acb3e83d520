"""Lays out a pack as a Mach-O shared library (MH_DYLIB): no linker, no code, nothing to bind or to rebase.

Three segments. `__TEXT` holds the header, the load commands and the size of the pack; `__EMITTER`, read-only, the pack;
`__LINKEDIT` the export trie, the symbol table and the signature. Addresses are file offsets.

Source: <mach-o/loader.h>; for what loading demands, dyld (MachOAnalyzer.cpp, MachOFile.cpp), whose rules follow the SDK
that LC_BUILD_VERSION names: these files keep those of every SDK.
"""

from __future__ import annotations

import os

from emitter import macho
from emitter.errors import LayoutError, shown
from emitter.image import check_alignment, place_pack
from emitter.image.signature import ALIGNMENT as SIGNATURE_ALIGNMENT
from emitter.image.signature import plan_signature
from emitter.image.trie import export_trie
from emitter.layout import UUID_SIZE, FilePlan, PageHashes, Piece, align_up
from emitter.limits import MACHO_MAX_FILE_SIZE
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emitter.model import TensorSymbol
    from emitter.pack.plan import PackPlan
    from emitter.targets._base import MachO, Target


__all__ = ["PACK_SECTION", "PACK_SEGMENT", "SEGMENT_ALIGNMENT", "plan_image"]

PACK_SEGMENT, PACK_SECTION = "__EMITTER", "__emitter"

SEGMENT_ALIGNMENT = 1 << macho.SEGMENT_ALIGN

# Behind the load commands, for those who edit them: a longer install name, a search path.
_HEADER_SLACK = 1024

_MAX_NAME = 4096  # bytes of the install name; PATH_MAX is 1024

# What dyld assumes of a file that names no library at all; from the SDK of 2025 on it refuses such a file.
_LIB_SYSTEM = (b"/usr/lib/libSystem.B.dylib", "1351.0.0", "1.0.0")

# Data call nothing, so nothing that app extensions must not call.
_FLAGS = (
    macho.MH_NOUNDEFS
    | macho.MH_DYLDLINK
    | macho.MH_TWOLEVEL
    | macho.MH_NO_REEXPORTED_DYLIBS
    | macho.MH_APP_EXTENSION_SAFE
)
_SIZE_WORD = 8


def plan_image(
    target: Target, pack: PackPlan, *, name: str, install_name: str, symbols: Sequence[TensorSymbol] = ()
) -> FilePlan:
    """Return the plan of a shared library that holds `pack` and nothing else.

    Exports `name` and `emitter_pack` (the pack), `name`_size (its size in bytes, an object of 8 bytes) and `symbols`,
    with the target's prefix. The caller has made sure that the names differ. Raises LayoutError for a payload alignment
    above the CPU's page, an install name that no loader reads, and more than 4 GiB.
    """
    facts, path = _check_request(target, pack, install_name)
    read, execute = macho.VM_PROT_READ, macho.VM_PROT_EXECUTE

    # Sizes of the load commands are fixed; their contents are not.
    commands = _commands(facts, path, [], (0, 0), (0, 0, 0, 0), (0, 0))
    segments = macho.segment_size(1) + macho.segment_size(1) + macho.segment_size(0)
    commands_end = macho.HEADER_SIZE + segments + sum(map(len, commands))

    # Places: the size stands at the end of `__TEXT`, the pack in a segment of its own.
    text_size = align_up(commands_end + _HEADER_SLACK + _SIZE_WORD, SEGMENT_ALIGNMENT)
    size_offset = text_size - _SIZE_WORD
    pack_offset = place_pack(text_size, SEGMENT_ALIGNMENT, pack)
    # dyld refuses an export behind the segment: an empty tensor at the very end has an address there.
    reach = max([pack.total_size, *(symbol.offset + 1 for symbol in symbols)])
    data_end = align_up(pack_offset + reach, SEGMENT_ALIGNMENT)

    # __LINKEDIT: every table at a multiple of 8, none beside another.
    prefix = target.symbol_prefix
    exports = [(name, 2, pack_offset), ("emitter_pack", 2, pack_offset), (f"{name}_size", 1, size_offset)]
    exports += ((symbol.name, 2, pack_offset + symbol.offset) for symbol in symbols)
    exports = sorted((prefix + text, n_sect, value) for text, n_sect, value in exports)
    trie = export_trie((text.encode(), value) for text, _, value in exports)
    trie += bytes(-len(trie) % 8)
    strings = macho.StringTable(b" \0")
    n_type = macho.N_SECT | macho.N_EXT
    symtab = macho.nlist(
        macho.Nlist(strings.add(text.encode()), n_type, n_sect, 0, value) for text, n_sect, value in exports
    )
    strtab = strings.data()
    symoff = data_end + len(trie)
    stroff = symoff + len(symtab)
    code_limit = align_up(stroff + len(strtab), SIGNATURE_ALIGNMENT)
    _check_size(target, code_limit)  # the signature holds it
    signature = plan_signature(os.path.basename(path), code_limit, text_size, target.max_page_size)
    size = code_limit + signature.size
    _check_size(target, size)

    # File layout is fixed.
    size_section = macho.Section("__TEXT", "__const", size_offset, _SIZE_WORD, size_offset, 3)
    pack_section = macho.Section(
        PACK_SEGMENT, PACK_SECTION, pack_offset, pack.total_size, pack_offset, macho.SEGMENT_ALIGN
    )
    data_size, linkedit = data_end - text_size, size - data_end
    rows = [
        macho.Segment("__TEXT", 0, text_size, 0, text_size, read | execute, [size_section]),
        macho.Segment(PACK_SEGMENT, text_size, data_size, text_size, data_size, read, [pack_section]),
        macho.Segment("__LINKEDIT", data_end, align_up(linkedit, SEGMENT_ALIGNMENT), data_end, linkedit, read),
    ]
    tables = (symoff, len(exports), stroff, len(strtab))
    commands = _commands(facts, path, rows, (data_end, len(trie)), tables, (code_limit, signature.size))
    header = macho.header(facts, macho.MH_DYLIB, _FLAGS, commands)
    uuid = macho.HEADER_SIZE + segments + len(commands[len(rows)]) - UUID_SIZE
    pieces = [
        Piece(0, header),
        Piece(size_offset, pack.total_size.to_bytes(_SIZE_WORD, target.byte_order)),
        Piece(data_end, trie + symtab + strtab),
        Piece(code_limit, signature.head),
    ]
    return FilePlan(
        size=size,
        pieces=pieces,
        copies=[copy.moved(pack_offset) for copy in pack.payloads],
        pack_offset=pack_offset,
        page_hashes=[PageHashes(0, code_limit, target.max_page_size, code_limit + signature.hashes, uuid)],
    )


def _check_size(target: Target, size: int) -> None:
    if size > MACHO_MAX_FILE_SIZE:
        raise LayoutError(
            "too large for a Mach-O library",
            where=f"target {target.name}",
            expected=f"at most {MACHO_MAX_FILE_SIZE} bytes, as its offsets have 32 bits",
            actual=size,
            hint="add --sidecar, which leaves the bytes in a .pack beside the library; or split the package",
        )


def _commands(  # noqa: PLR0917 - the places of six tables, in the order of the file
    facts: MachO,
    path: bytes,
    segments: Sequence[macho.Segment],
    exports: tuple[int, int],
    tables: tuple[int, int, int, int],
    signature: tuple[int, int],
) -> list[bytes]:
    """Return the load commands: segments, LC_UUID, others. Older linkers refuse a library without LC_DYLD_INFO_ONLY."""
    return [
        *map(macho.segment, segments),
        macho.uuid(bytes(UUID_SIZE)),
        macho.dylib(macho.LC_ID_DYLIB, path, "1.0.0", "1.0.0"),
        macho.dyld_info_only(*exports),
        macho.symtab(*tables),
        macho.dysymtab(0, tables[1], 0),
        macho.build_version(facts),
        macho.dylib(macho.LC_LOAD_DYLIB, *_LIB_SYSTEM),
        macho.code_signature(*signature),
    ]


def _check_request(target: Target, pack: PackPlan, install_name: str) -> tuple[MachO, bytes]:
    """Refuse what no library can hold; return what the target says, and the install name as bytes."""
    facts = macho.facts_of(target)
    check_alignment(target, pack, target.max_page_size)
    try:
        path = install_name.encode(errors="surrogateescape")  # file names need not be UTF-8
    except UnicodeEncodeError:
        path = b""
    if b"\0" in path or not os.path.basename(path) or len(path) > _MAX_NAME:
        raise LayoutError(
            "not an install name",
            expected=f"a path of at most {_MAX_NAME} bytes that ends in a file name, such as @rpath/libNAME.dylib",
            actual=shown(install_name),
            hint="give another one with --install-name",
        )
    return facts, path
