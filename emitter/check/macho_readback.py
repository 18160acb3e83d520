"""A small, bounded reader of Mach-O for the check after writing.

Written apart from `emitter.macho` and `emitter.image`, with which the writers pack their records: what one gets wrong,
the other finds. Every offset that a file states is compared with its size before it is used.

Source: <mach-o/loader.h>, <mach-o/nlist.h>; xnu, osfmk/kern/cs_blobs.h.
"""

from __future__ import annotations

import struct

from emitter.check.readback import difference, expect, require, text
from emitter.checksum import sha256
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from emitter.check.readback import Reader
    from emitter.targets._base import Target

__all__ = [
    "LC_BUILD_VERSION",
    "LC_CODE_SIGNATURE",
    "LC_DYLD_INFO_ONLY",
    "LC_DYSYMTAB",
    "LC_ID_DYLIB",
    "LC_LOAD_DYLIB",
    "LC_SYMTAB",
    "LC_UUID",
    "MachO",
    "Section",
    "Segment",
    "Symbol",
    "Trie",
    "check_signature",
    "read_macho",
    "read_symbols",
]

LC_SYMTAB, LC_DYSYMTAB, LC_LOAD_DYLIB, LC_ID_DYLIB = 2, 11, 12, 13
LC_UUID, LC_CODE_SIGNATURE, LC_BUILD_VERSION, LC_DYLD_INFO_ONLY = 27, 29, 50, 0x80000022
_LC_SEGMENT_64 = 25

_MAX_TRIE_DEPTH = 1 << 16
_SAMPLES = 64  # pages whose hashes are taken again, beside those of headers and tables
_NEAR = 16  # pages at the beginning and at the end
_WORTH_OPENSSL = 256  # pages of a file from which its speed is worth loading it


class Section(NamedTuple):
    """The fields of a `section_64` that say where it is."""

    sectname: bytes
    segname: bytes
    addr: int
    size: int
    offset: int
    align: int


class Segment(NamedTuple):
    """The fields of an LC_SEGMENT_64."""

    segname: bytes
    vmaddr: int
    vmsize: int
    fileoff: int
    filesize: int
    maxprot: int
    initprot: int


class Symbol(NamedTuple):
    """An `nlist_64` without its name."""

    n_type: int
    n_sect: int
    n_desc: int
    n_value: int


class MachO(NamedTuple):
    """A file's load commands: segments, their sections in order, and where the other commands stand, by their kind."""

    segments: Sequence[Segment]
    sections: Sequence[Section]
    commands: Mapping[int, Sequence[int]]
    commands_end: int


def read_macho(reader: Reader, target: Target, *, filetype: int, flags: int) -> MachO:
    """Check the header against the target, and the bounds of commands, segments and sections; return them."""
    facts = target.macho
    if facts is None:
        raise difference("object format", "Mach-O", target.object_format)
    magic, cputype, cpusubtype, actual_type, ncmds, sizeofcmds, actual_flags, _ = reader.unpack("8I", 0, "header")
    expect("magic", hex(magic), "0xfeedfacf")
    expect("(cputype, cpusubtype)", (cputype, cpusubtype), (facts.cputype, facts.cpusubtype))
    expect("filetype", actual_type, filetype)
    expect("flags", hex(actual_flags), hex(flags))
    end = 32 + sizeofcmds
    reader.bound(32, sizeofcmds, "load commands")
    segments: list[Segment] = []
    sections: list[Section] = []
    commands: dict[int, list[int]] = {}
    at = 32
    for number in range(ncmds):
        require(f"load command {number} lies in sizeofcmds", at + 8 <= end)
        cmd, cmdsize = reader.unpack("2I", at, f"load command {number}")
        require(f"cmdsize of load command {number} is a multiple of 8, and inside", cmdsize % 8 == 0 < cmdsize)
        require(f"load command {number} lies in sizeofcmds", at + cmdsize <= end)
        if cmd == _LC_SEGMENT_64:
            _read_segment(reader, at, cmdsize, segments, sections)
        commands.setdefault(cmd, []).append(at)
        at += cmdsize
    expect("sizeofcmds", sizeofcmds, at - 32)
    build = commands.get(LC_BUILD_VERSION, [])
    expect("number of LC_BUILD_VERSION", len(build), 1)
    _, cmdsize, platform, minos, sdk, ntools = reader.unpack("6I", build[0], "LC_BUILD_VERSION")
    expect("(cmdsize, platform, ntools) of LC_BUILD_VERSION", (cmdsize, platform, ntools), (24, facts.platform, 0))
    expect("minos of LC_BUILD_VERSION", _version(minos), _padded(facts.minos))
    expect("sdk of LC_BUILD_VERSION", _version(sdk), _padded(facts.sdk))
    return MachO(segments, sections, commands, end)


def _read_segment(reader: Reader, at: int, cmdsize: int, segments: list[Segment], sections: list[Section]) -> None:
    require("an LC_SEGMENT_64 is as large as its fields", cmdsize >= 72)
    data = reader.read(at, cmdsize, "LC_SEGMENT_64")
    row = struct.unpack_from("<16s4Q4I", data, 8)
    segment = Segment(row[0].rstrip(b"\0"), *row[1:7])
    expect("cmdsize of an LC_SEGMENT_64", cmdsize, 72 + 80 * row[7])
    reader.bound(segment.fileoff, segment.filesize, f"segment {text(segment.segname)}")
    segments.append(segment)
    for start in range(72, cmdsize, 80):
        sectname, segname, addr, size, offset, align, *rest = struct.unpack_from("<16s16s2Q8I", data, start)
        section = Section(sectname.rstrip(b"\0"), segname.rstrip(b"\0"), addr, size, offset, align)
        name = text(section.sectname)
        expect(f"reloff, nreloc, flags and reserved fields of {name}", rest, [0] * 6)
        end = segment.fileoff + segment.filesize
        require(f"section {name} lies in its segment", segment.fileoff <= offset and offset + size <= end)
        expect(f"addr of {name} from its segment's", addr - segment.vmaddr, offset - segment.fileoff)
        require(f"align of {name} is at most 15, and kept", align <= 15 and addr % (1 << align) == 0)
        sections.append(section)


def read_symbols(reader: Reader, file: MachO) -> list[tuple[bytes, Symbol]]:
    """Check LC_SYMTAB and LC_DYSYMTAB; return (name, symbol) of each: all are defined, external, sorted by name."""
    for command, name in ((LC_SYMTAB, "LC_SYMTAB"), (LC_DYSYMTAB, "LC_DYSYMTAB")):
        expect(f"number of {name}", len(file.commands.get(command, [])), 1)
    symoff, nsyms, stroff, strsize = reader.unpack("4I", file.commands[LC_SYMTAB][0] + 8, "LC_SYMTAB")
    dysymtab = reader.unpack("18I", file.commands[LC_DYSYMTAB][0] + 8, "LC_DYSYMTAB")
    expect("fields of LC_DYSYMTAB", dysymtab, (0, 0, 0, nsyms, nsyms, *(0,) * 13))
    require("symbol table and strings do not overlap", symoff % 8 == 0 and symoff + 16 * nsyms <= stroff)
    strings = reader.read(stroff, strsize, "string table")
    symbols = []
    for n_strx, *row in struct.iter_unpack("<I2BHQ", reader.read(symoff, 16 * nsyms, "symbol table")):
        end = strings.find(b"\0", n_strx)
        if not 0 < n_strx < end:
            raise difference("n_strx of a symbol", "a string of the string table", n_strx)
        symbols.append((strings[n_strx:end], Symbol(*row)))
        require(f"{text(strings[n_strx:end])} is external", bool(row[0] & 1))
    names = [name for name, _ in symbols]
    require("the symbols are in the order of their names, each once", names == sorted(set(names)))
    return symbols


class Trie:
    """The export trie, walked as dyld walks it: one edge at a time."""

    def __init__(self, reader: Reader, offset: int, size: int) -> None:
        self._data = reader.read(offset, size, "export trie")
        self.size = size

    def find(self, name: bytes) -> int:
        """Return the address that the trie gives for a name."""
        at, rest = 0, name
        for _ in range(_MAX_TRIE_DEPTH):  # one that runs in a circle ends, too
            address, edges = self._node(at)
            if not rest:
                if address is None:
                    break
                return address
            for edge, child in edges:
                if rest.startswith(edge):
                    at, rest = child, rest[len(edge) :]
                    break
            else:
                break
        raise difference("export trie", f"an entry for {text(name)}", "none")

    def exports(self) -> dict[bytes, int]:
        """Return every name that the trie leads to, with its address."""
        found = {}
        waiting = [(0, b"")]
        seen = set()
        while waiting:
            at, name = waiting.pop()
            require(f"one edge leads to node {at} of the export trie", at not in seen)
            seen.add(at)
            address, edges = self._node(at)
            if address is not None:
                found[name] = address
            waiting += ((child, name + edge) for edge, child in edges)
        return found

    def _node(self, at: int) -> tuple[int | None, list[tuple[bytes, int]]]:
        """Return the address that a node holds, and its edges."""
        size, start = self._uleb(at)
        address = None
        if size:
            flags, value = self._uleb(start)
            address, end = self._uleb(value)
            expect(f"(flags, size) of node {at} of the export trie", (flags, size), (0, end - start))
        edges = []
        at = start + size + 1
        for _ in range(self._byte(start + size)):
            end = self._data.find(b"\0", at)
            require("an edge of the export trie ends, and is not empty", end > at)
            child, next_edge = self._uleb(end + 1)
            edges.append((self._data[at:end], child))
            at = next_edge
        return address, edges

    def _byte(self, at: int) -> int:
        if not 0 <= at < len(self._data):
            raise difference("offset in the export trie", f"below {len(self._data)}", at)
        return self._data[at]

    def _uleb(self, at: int) -> tuple[int, int]:
        """Return the number at an offset, and the offset behind it."""
        value = shift = 0
        while shift < 64:
            byte = self._byte(at)
            value |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                return value, at
        raise difference("a number in the export trie", "at most 64 bits", "more")


def check_signature(reader: Reader, file: MachO, size: int) -> None:
    """Check the structure of an ad-hoc signature, and a bounded number of its hashes, of pages of `size` bytes."""
    dataoff, datasize = reader.unpack("2I", file.commands[LC_CODE_SIGNATURE][0] + 8, "LC_CODE_SIGNATURE")
    expect("end of the signature", dataoff + datasize, reader.size)
    expect("dataoff of LC_CODE_SIGNATURE modulo 16", dataoff % 16, 0)
    head = reader.read(dataoff, 20 + 88, "signature")
    magic, length, count, kind, at = struct.unpack_from(">5I", head)
    expect("CS_SuperBlob", (magic, count, kind, at), (0xFADE0CC0, 1, 0, 20))
    require("the signature lies in LC_CODE_SIGNATURE", 20 + 88 <= length <= datasize)
    fields = struct.unpack_from(">9I4BI3I4Q", head, 20)
    magic, blob, version, flags, hash_offset, ident, special, slots, limit = fields[:9]
    expect("(magic, length, version) of the CodeDirectory", (magic, blob, version), (0xFADE0C02, length - 20, 0x20400))
    expect("flags of the CodeDirectory", hex(flags), hex(0x20002))  # CS_ADHOC | CS_LINKER_SIGNED
    expect("codeLimit", limit, dataoff)
    expect("(nSpecialSlots, nCodeSlots)", (special, slots), (0, -(-limit // size)))
    expect("(hashSize, hashType, platform, pageSize)", fields[9:13], (32, 2, 0, size.bit_length() - 1))
    expect("(execSegBase, execSegLimit, execSegFlags)", fields[18:], (0, file.segments[0].filesize, 0))
    expect("end of the hashes", hash_offset + 32 * slots, blob)
    name = reader.read(dataoff + 20 + ident, hash_offset - ident, "identifier") if ident < hash_offset else b""
    require("the identifier is a string", len(name) > 1 and name.find(b"\0") == len(name) - 1)
    digest = sha256
    if slots > _WORTH_OPENSSL:
        from hashlib import sha256 as openssl  # which the writer has used as well

        digest = lambda data: openssl(data, usedforsecurity=False).digest()  # noqa: E731 - the same function, faster
    table = dataoff + 20 + hash_offset
    pages = {*range(min(_NEAR, slots)), *range(max(slots - _NEAR, 0), slots), *range(0, slots, 1 + slots // _SAMPLES)}
    for page in sorted(pages):
        start = page * size
        data = reader.read(start, min(size, limit - start), f"page {page}")
        expect(f"hash of page {page}", reader.read(table + 32 * page, 32, "hashes").hex(), digest(data).hex())


def _version(packed: int) -> tuple[int, ...]:
    return packed >> 16, packed >> 8 & 0xFF, packed & 0xFF


def _padded(version: str) -> tuple[int, ...]:
    numbers = [int(part) for part in version.split(".")]
    return tuple(numbers + [0] * (3 - len(numbers)))
