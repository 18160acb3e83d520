"""Mach-O as lief, llvm-nm and llvm-objdump read it; what a hostile export trie may not do."""

from __future__ import annotations

import os
import re
import struct
from typing import TYPE_CHECKING, Any

import pytest

from emitter.errors import FormatError
from emitter.inspect import open_file, recognise
from emitter.inspect.macho import MachOFile
from emitter.inspect.macho_trie import walk
from emitter.inspect.view import View
from tests.foreign_files import MACHO_SOURCE, compile_c, dylib, run_tool
from tests.support import traced

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TRIPLES = ("arm64-apple-macos11", "x86_64-apple-macos10.13", "i386-apple-macos10.13", "armv7-apple-ios9")


@pytest.fixture(scope="module")
def outer(tmp_path_factory: pytest.TempPathFactory) -> str:
    return dylib(str(tmp_path_factory.mktemp("macho")))


def _read(path: str) -> MachOFile:
    with View.open(path) as view:
        return MachOFile(View.of_bytes(view.read(0, view.size, "all"), os.path.basename(path)))


def _of(data: bytes) -> MachOFile:
    return MachOFile(View.of_bytes(data, "x.dylib"))


def _lief(path: str) -> Any:
    lief: Any = pytest.importorskip("lief")
    return lief.MachO.parse(path).at(0)


def _value(enumeration: Any) -> int:
    value = getattr(enumeration, "value", enumeration)
    return int(value)


def _compare(path: str) -> None:
    ours, theirs = _read(path), _lief(path)
    assert ours.header.cputype == _value(theirs.header.cpu_type) & 0xFFFFFFFF
    assert ours.header.cpusubtype == theirs.header.cpu_subtype
    assert ours.header.filetype == _value(theirs.header.file_type)
    assert ours.header.flags == theirs.header.flags
    commands = [(_value(one.command) & 0xFFFFFFFF, one.size, one.command_offset) for one in theirs.commands]
    assert [(one.cmd, one.cmdsize, one.offset) for one in ours.commands] == commands
    assert [
        (one.segname, one.vmaddr, one.vmsize, one.fileoff, one.filesize, one.maxprot, one.initprot, one.nsects,
         one.flags)
        for one in ours.segments
    ] == [
        (one.name, one.virtual_address, one.virtual_size, one.file_offset, one.file_size, one.max_protection,
         one.init_protection, one.numberof_sections, one.flags)
        for one in theirs.segments
    ]  # fmt: skip
    assert sorted(
        (one.sectname, one.segname, one.addr, one.size, one.offset, one.align, one.reloff, one.nreloc)
        for one in ours.sections
    ) == sorted(
        (one.name, one.segment_name, one.virtual_address, one.size, one.offset, one.alignment, one.relocation_offset,
         one.numberof_relocations)
        for one in theirs.sections
    )  # fmt: skip
    # lief adds what it finds in the export trie and the bindings, without a type.
    symbols = [
        (one.name, one.raw_type, one.numberof_sections, one.description & 0xFFFF, one.value)
        for one in theirs.symbols
        if one.origin.name == "SYMTAB"
    ]
    found = [(one.name, one.n_type, one.n_sect, one.n_desc, one.n_value) for one in ours.symbols()]
    assert sorted(found) == sorted(symbols)
    assert ours.uuid == (bytes(theirs.uuid.uuid) if theirs.has_uuid else None)


@pytest.mark.parametrize("triple", TRIPLES)
def test_objects_are_read_as_lief_reads_them(triple: str, tmp_path: Path) -> None:
    path = compile_c(str(tmp_path), triple, MACHO_SOURCE, "x.o")
    _compare(path)
    macho = _read(path)
    assert macho.kind == "Mach-O object"
    assert macho.header.flags & 0x2000
    assert {symbol.name for symbol in macho.symbols()} >= {"_table", "_twice", "_far_away", "_common_one"}
    # llvm-readobj counts the relocations of every section.
    counted = re.findall(r"RelocationCount: (\d+)", run_tool("llvm-readobj", "--sections", path))
    assert [len(list(macho.relocations(section))) for section in macho.sections] == [int(one) for one in counted]


def test_a_dylib_is_read_as_lief_reads_it(outer: str) -> None:
    _compare(outer)
    ours, theirs = _read(outer), _lief(outer)
    assert [(one.name, one.current_version, one.compatibility_version, one.timestamp) for one in ours.dylibs] == [
        (one.name, _packed(one.current_version), _packed(one.compatibility_version), one.timestamp)
        for one in theirs.commands
        if type(one).__name__ == "DylibCommand"
    ]
    assert [one.kind for one in ours.dylibs] == ["id", "load", "weak", "load", "reexport"]
    assert ours.install_name == "@rpath/libouter.dylib"
    assert ours.rpaths == ("@loader_path/lib",)
    (build,) = ours.build_versions
    assert (build.platform, build.minos, build.sdk) == (1, 0x000B0000, 0x000C0300)
    assert len(build.tools) == 1
    info, dysymtab = ours.dyld_info, ours.dysymtab
    assert info is not None
    assert dysymtab is not None
    assert (info.export_off, info.export_size) == tuple(theirs.dyld_info.export_info)
    assert ours.export_trie == (info.export_off, info.export_size)
    assert dysymtab.nundefsym == theirs.dynamic_symbol_command.nb_undefined_symbols
    signature = ours.signature
    assert signature is not None
    assert (signature.dataoff, signature.datasize) == (
        theirs.code_signature.data_offset,
        theirs.code_signature.data_size,
    )


def _packed(version: list[int]) -> int:
    return version[0] << 16 | version[1] << 8 | version[2]


def test_exports_are_those_of_llvm_objdump(outer: str) -> None:
    text = run_tool("llvm-objdump", "--macho", "--exports-trie", outer)
    expected = {
        (name, int(address, 16), "weak" in rest)
        for address, name, rest in re.findall(r"^(0x[0-9A-F]+) +(\S+)(.*)$", text, re.MULTILINE)
    }
    exports = list(_read(outer).exports())
    assert {(one.name, one.address, one.weak) for one in exports} == expected
    assert len(exports) == 4


def test_symbols_of_the_report_are_those_of_llvm_nm(outer: str) -> None:
    with open_file(outer) as artefact:
        assert artefact.reader is not None
        report = artefact.reader.report()
        assert not report.faults
        symbols = [one for one in report.symbols() if one.table == "symtab"]
        exports = [one for one in report.symbols() if one.table == "exports"]
    lines = run_tool("llvm-nm", outer).splitlines()
    named = {line.split()[-1]: line.split()[-2] for line in lines}
    assert {one.name for one in symbols} == set(named)
    for one in symbols:
        letter = named[one.name]
        assert (one.place == "undefined") == (letter == "U"), one
        assert (one.binding == "local") == letter.islower(), one
    assert {one.name: one.binding for one in exports}["_weak_one"] == "weak"
    assert {one.name: one.library for one in symbols}["_far_away"] == "@rpath/libinner0.dylib"
    assert {one.name: one.visibility for one in symbols}["_hidden_one"] == "private external"


def test_the_report_says_what_the_file_is(outer: str) -> None:
    with open_file(outer) as artefact:
        assert artefact.reader is not None
        report = artefact.reader.report()
    identity = report.identity
    assert (identity.format, identity.machine, identity.os, identity.os_version) == ("macho", "arm64", "macOS", "11.0")
    assert (identity.name, identity.version) == ("@rpath/libouter.dylib", "3.2.1")
    assert identity.build_id == (_read(outer).uuid or b"").hex()
    assert report.page_size == 16384
    text = next(one for one in report.segments if one.name == "__TEXT")
    assert (text.protection, text.mapped_start, text.mapped_end, text.loaded) == ("r-x", 0, 16384, True)
    common = next(one for one in report.sections if one.name == "__common")
    assert (common.type, common.file_size, common.size, common.segment) == ("S_ZEROFILL", 0, 4, "__DATA")
    kinds = [(one.name.rpartition("/")[2], one.kind) for one in report.dependencies]
    assert kinds[:2] == [("libinner0.dylib", "needed"), ("libinner1.dylib", "weak")]
    assert ("libinner2.dylib", "reexport") in kinds
    hardening = {one.name: one.value for one in report.hardening}
    assert hardening["signature"] == "ad hoc"
    assert hardening["writable_and_executable"] is False


@pytest.mark.parametrize("form", ["object", "dylib"])
def test_addresses_lead_to_their_bytes(form: str, outer: str, tmp_path: Path) -> None:
    path = outer if form == "dylib" else compile_c(str(tmp_path), TRIPLES[0], MACHO_SOURCE, "x.o")
    macho = _read(path)
    table = next(one.n_value for one in macho.symbols() if one.name == "_table" and not one.stab)
    common = next(one for one in macho.sections if one.sectname == "__common")
    offset = macho.address_to_offset(table, 64)
    assert offset is not None
    with open(path, "rb") as file:
        file.seek(offset)
        assert file.read(64) == b"table".ljust(64, b"\0")
    assert macho.address_to_offset(common.addr) is None or form == "dylib"
    assert macho.address_to_offset(1 << 40) is None
    if form == "dylib":
        (export,) = (one for one in macho.exports() if one.name == "_table")
        assert macho.base_address + export.address == table


def test_debug_entries_carry_the_time_of_their_object(outer: str) -> None:
    (entry,) = _read(outer).oso()
    assert entry.name.endswith("outer.o")
    assert entry.n_value == int(os.stat(entry.name).st_mtime)


def test_symbols_inside_a_range_are_found_unless_they_are_alternative_entries(tmp_path: Path) -> None:
    text = """
    .section __TEXT,__const
    .globl _model, _model_t0, _model_t1, _next
    .p2align 6
    _model: .space 64
    _model_t0: .space 64
    .alt_entry _model_t1
    _model_t1: .space 64
    _next: .space 4
    .subsections_via_symbols
    """
    macho = _read(compile_c(str(tmp_path), "arm64-apple-macos11", text, "x.s.o"))
    place = {symbol.name: symbol.n_value for symbol in macho.symbols()}
    assert [one.name for one in macho.interior_symbols(place["_model"], place["_next"])] == ["_model_t0"]
    plain = compile_c(str(tmp_path), "arm64-apple-macos11", text.replace(".subsections_via_symbols", ""), "y.s.o")
    assert not list(_read(plain).interior_symbols(place["_model"], place["_next"]))


OLD_SYSTEMS = (
    ("x86_64-apple-macos10.9", 0x24, 1, 0x000A0900),
    ("armv7-apple-ios7.0", 0x25, 2, 0x00070000),
    ("arm64-apple-tvos9.1", 0x2F, 3, 0x00090100),
    ("armv7k-apple-watchos2.0", 0x30, 4, 0x00020000),
    ("arm64-apple-ios15.0", 0x32, 2, 0x000F0000),
)


@pytest.mark.parametrize(("triple", "cmd", "platform", "minos"), OLD_SYSTEMS)
def test_older_commands_name_the_platform_too(triple: str, cmd: int, platform: int, minos: int, tmp_path: Path) -> None:
    macho = _read(compile_c(str(tmp_path), triple, "int x = 1;", "x.o"))
    (build,) = macho.build_versions
    assert (build.cmd, build.platform, build.minos) == (cmd, platform, minos)


def _big_endian() -> bytes:
    """Return a 32-bit big-endian object for PowerPC: one section, a relocation, two symbols."""
    section = struct.pack(">16s16s9I", b"__data", b"__DATA", 0, 8, 152 + 24, 2, 184, 1, 0, 0, 0)
    segment = struct.pack(">2I16s8I", 1, 124, b"", 0, 8, 176, 8, 7, 7, 1, 0) + section
    symtab = struct.pack(">6I", 2, 24, 192, 2, 216, 16)
    header = struct.pack(">7I", 0xFEEDFACE, 18, 0, 1, 2, len(segment) + len(symtab), 0)
    data = struct.pack(">2I", 1, 2)
    relocation = struct.pack(">2I", 4, 1 << 8 | 2 << 5 | 1 << 4)
    symbols = struct.pack(">IBBHI", 1, 0x0F, 1, 0, 0) + struct.pack(">IBBHI", 7, 0x01, 0, 0, 0)
    return header + segment + symtab + data + relocation + symbols + b"\0_data\0_other\0\0\0\0"


def test_big_endian_files_are_read(tmp_path: Path) -> None:
    data = _big_endian()
    macho = _of(data)
    assert (macho.byte_order, macho.pointer_width, macho.machine) == ("big", 32, "ppc")
    assert [(one.name, one.n_type, one.n_sect) for one in macho.symbols()] == [("_data", 15, 1), ("_other", 1, 0)]
    (relocation,) = macho.relocations(macho.sections[0])
    assert relocation == (4, 1, 0, 2, 1, 0, False)
    path = tmp_path / "x.o"
    path.write_bytes(data)
    text = run_tool("llvm-readobj", "--file-headers", "--sections", "--symbols", str(path))
    for expected in ("CpuType: PowerPC", "Name: __data", "RelocationCount: 1", "Name: _data", "Name: _other"):
        assert expected in text


# The load commands of the dylib: (where the number stands, its new value, what the message says).
BROKEN = (
    (16, 1 << 16, "ncmds and sizeofcmds differ"),
    (20, 0xFFFFFFFF, "sizeofcmds is too large"),
    (20, 1 << 19, "the load commands at offset 0x20"),
    (36, 0, "cmdsize of load command 0"),
    (36, 7, "cmdsize of load command 0"),
    (36, 0x7FFFFFF8, "cmdsize of load command 0"),
)


@pytest.mark.parametrize(("offset", "value", "message"), BROKEN)
def test_a_broken_header_is_an_error(outer: str, offset: int, value: int, message: str) -> None:
    with open(outer, "rb") as file:
        data = bytearray(file.read())
    struct.pack_into("<I", data, offset, value)
    with pytest.raises(FormatError, match=re.escape(message)):
        _of(bytes(data))


def test_a_segment_with_too_many_sections_is_a_fault_of_the_report(outer: str) -> None:
    with open(outer, "rb") as file:
        data = bytearray(file.read())
    struct.pack_into("<I", data, 32 + 64, 1 << 31)  # nsects of __TEXT
    report = _of(bytes(data)).report()
    assert any("nsects of segment '__TEXT'" in str(fault.error) for fault in report.faults)
    assert report.identity.machine == "arm64"


def test_a_truncated_file_is_told_by_its_parts(outer: str) -> None:
    with open(outer, "rb") as file:
        data = file.read()[:40000]
    report = _of(data).report()
    parts = {fault.part for fault in report.faults}
    assert parts >= {"segments", "symbols", "linkedit", "signature"}
    with pytest.raises(FormatError):
        list(report.symbols())


def test_a_library_of_3_gib_costs_what_its_tables_cost(outer: str, tmp_path: Path) -> None:
    hole = 3 << 30
    with open(outer, "rb") as file:
        data = bytearray(file.read())
    macho = _of(bytes(data))
    start = macho.segments[-1].fileoff
    for command in macho.commands:  # everything in __LINKEDIT moves behind the hole
        fields = {0x19: (), 0x2: (8, 16), 0xB: (56,), 0x80000022: (8, 16, 24, 32, 40)}
        for field in fields.get(command.cmd, (8,) if command.cmd in (0x1D, 0x26, 0x29) else ()):
            (value,) = struct.unpack_from("<I", data, command.offset + field)
            struct.pack_into("<I", data, command.offset + field, value + hole)
    last = macho.of(0x19)[-1].offset
    struct.pack_into("<Q", data, last + 40, start + hole)
    path = tmp_path / "big.dylib"
    with path.open("wb") as file:
        file.write(data[:start])
        file.seek(start + hole)
        file.write(data[start:])
    with traced() as peak, open_file(path) as artefact:
        assert artefact.reader is not None
        report = artefact.reader.report()
        symbols = list(report.symbols())
        assert peak() < 8 << 20
    assert not report.faults
    assert "_table" in {one.name for one in symbols}


def _uleb(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _node(children: list[tuple[bytes, int]], terminal: bytes = b"") -> bytes:
    edges = b"".join(name + b"\0" + _uleb(child) for name, child in children)
    return _uleb(len(terminal)) + terminal + bytes([len(children)]) + edges


def _walk(trie: bytes) -> Iterator[Any]:
    return walk(View.of_bytes(trie, "x"), 0, len(trie))


def test_every_kind_of_export_is_read() -> None:
    stub = _node([], _uleb(0x10) + _uleb(0x300) + _uleb(0x200))
    reexport = _node([], _uleb(0x08) + _uleb(2) + b"_c\0")
    root = _node([(b"_a", 10), (b"_b", 10 + len(stub))])
    assert len(root) == 10
    one, two = _walk(root + stub + reexport)
    assert (one.name, one.address, one.resolver, one.reexport) == ("_a", 0x300, 0x200, False)
    assert (two.name, two.ordinal, two.imported_name, two.reexport) == ("_b", 2, "_c", True)


HOSTILE = {
    "loop": _node([(b"a", 0)]),
    "two edges to one node": _node([(b"a", 8), (b"b", 8)]) + _node([]),
    "node outside": _node([(b"a", 100)]),
    "edge without end": b"\0\1aaaa",
    "terminal outside": b"\x7f\0\0",
    "number without end": b"\x80" * 20,
    "nothing but counts": b"\0\xff",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_trie_is_refused(name: str) -> None:
    with pytest.raises(FormatError):
        list(_walk(HOSTILE[name]))


def test_names_of_a_trie_do_not_grow_without_end() -> None:
    # Each node is the only child of the one before, and its edge is long: the sum of the names is quadratic.
    edge = b"x" * 1000
    parts, at = [], 0
    for _ in range(400):
        at += len(edge) + 6
        child = bytes([at & 0x7F | 0x80, at >> 7 & 0x7F | 0x80, at >> 14])
        parts.append(b"\0\1" + edge + b"\0" + child)
    trie = b"".join(parts) + b"\0\0"
    with pytest.raises(FormatError, match="too long"):
        list(_walk(trie))


def test_what_is_no_mach_o_is_refused() -> None:
    with pytest.raises(FormatError):
        MachOFile(View.of_bytes(b"\x7fELF" + bytes(64), "x"))
    with pytest.raises(FormatError):
        recognise(View.of_bytes(b"\xcf\xfa\xed\xfe", "x"))
