"""PE images as lief, llvm-readobj and MinGW's objdump read them."""

from __future__ import annotations

import os
import re
import struct
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from emitter.errors import FormatError, InputError
from emitter.inspect import open_file, recognise
from emitter.inspect.pe import PeFile
from emitter.inspect.view import View
from tests.c_tools import need
from tests.foreign_files import compile_c, pe_dll, run_tool
from tests.support import traced

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def outer(tmp_path_factory: pytest.TempPathFactory) -> str:
    return pe_dll(str(tmp_path_factory.mktemp("pe")))


@pytest.fixture(scope="module")
def mingw(tmp_path_factory: pytest.TempPathFactory) -> str:
    need("x86_64-w64-mingw32-gcc")
    folder = str(tmp_path_factory.mktemp("mingw"))
    source, path = os.path.join(folder, "x.c"), os.path.join(folder, "x.dll")
    with open(source, "w", encoding="utf-8") as file:
        file.write("__declspec(dllexport) int twice(int x) { return 2 * x; } __declspec(dllexport) int value = 3;")
    subprocess.run(["x86_64-w64-mingw32-gcc", "-g", "-shared", source, "-o", path], check=True, timeout=300)
    return path


def _of(data: bytes) -> PeFile:
    return PeFile(View.of_bytes(data, "x.dll"))


def _read(path: str) -> PeFile:
    with open(path, "rb") as file:
        return PeFile(View.of_bytes(file.read(), os.path.basename(path)))


def _value(enumeration: Any) -> int:
    return int(getattr(enumeration, "value", enumeration))


OPTIONAL = {
    "ImageBase": "imagebase", "SectionAlignment": "section_alignment", "FileAlignment": "file_alignment",
    "SizeOfImage": "sizeof_image", "SizeOfHeaders": "sizeof_headers", "CheckSum": "checksum",
    "DllCharacteristics": "dll_characteristics", "AddressOfEntryPoint": "addressof_entrypoint",
    "SizeOfCode": "sizeof_code", "BaseOfCode": "baseof_code", "MajorSubsystemVersion": "major_subsystem_version",
    "MinorOperatingSystemVersion": "minor_operating_system_version", "SizeOfStackCommit": "sizeof_stack_commit",
    "SizeOfHeapReserve": "sizeof_heap_reserve", "NumberOfRvaAndSizes": "numberof_rva_and_size",
}  # fmt: skip


def _compare(path: str) -> None:
    lief: Any = pytest.importorskip("lief")
    ours, theirs = _read(path), lief.PE.parse(path)
    assert ours.header.Machine == _value(theirs.header.machine)
    assert ours.header.TimeDateStamp == theirs.header.time_date_stamps
    assert ours.header.Characteristics == theirs.header.characteristics
    for field, name in OPTIONAL.items():
        assert getattr(ours.optional, field) == getattr(theirs.optional_header, name), field
    assert ours.optional.Subsystem == _value(theirs.optional_header.subsystem)
    assert [(one.VirtualAddress, one.Size) for one in ours.directories] == [
        (one.rva, one.size) for one in theirs.data_directories
    ]
    assert [
        (one.VirtualSize, one.VirtualAddress, one.SizeOfRawData, one.PointerToRawData, one.Characteristics)
        for one in ours.sections
    ] == [
        (one.virtual_size, one.virtual_address, one.sizeof_raw_data, one.pointerto_raw_data, one.characteristics)
        for one in theirs.sections
    ]
    directory, export = ours.export_directory, theirs.get_export()
    assert directory is not None
    assert (directory.name, directory.Base, directory.TimeDateStamp) == (
        export.name,
        export.ordinal_base,
        export.timestamp,
    )
    assert {(one.name, one.ordinal): 0 if one.forwarder else one.rva for one in ours.exports()} == {
        (one.name, one.ordinal): one.address for one in export.entries
    }
    imported = [(dll.name, [one.name for one in ours.imported_symbols(dll)]) for dll in ours.imports if not dll.delay]
    assert imported == [(one.name, [entry.name for entry in one.entries]) for one in theirs.imports]
    delayed = [(dll.name, [one.name for one in ours.imported_symbols(dll)]) for dll in ours.imports if dll.delay]
    assert delayed == [(one.name, [entry.name for entry in one.entries]) for one in theirs.delay_imports]
    assert [(block.VirtualAddress, block.SizeOfBlock) for block in ours.base_relocations()] == [
        (one.virtual_address, one.block_size) for one in theirs.relocations
    ]


def test_a_dll_of_lld_is_read_as_lief_reads_it(outer: str) -> None:
    _compare(outer)
    assert [(dll.name, dll.delay) for dll in _read(outer).imports] == [("near.dll", False), ("later.dll", True)]


def test_a_dll_of_mingw_is_read_as_lief_reads_it(mingw: str) -> None:
    _compare(mingw)


def test_exports_and_forwarders(outer: str) -> None:
    exports = {one.name: one for one in _read(outer).exports()}
    assert set(exports) == {"both", "table", "forward"}
    assert exports["forward"].forwarder == "other.name"
    assert not exports["table"].forwarder
    offset = _read(outer).rva_to_offset(exports["table"].rva, 16)
    assert offset is not None
    with open(outer, "rb") as file:
        file.seek(offset)
        assert struct.unpack("<4I", file.read(16)) == (1, 2, 3, 4)


def test_the_debug_directory_names_the_pdb(outer: str) -> None:
    codeview = _read(outer).codeview
    assert codeview is not None
    assert (codeview.signature, codeview.path) == ("RSDS", f"{outer}.pdb")
    text = run_tool("llvm-readobj", "--coff-debug-directory", outer)
    found = re.search(r"PDBGUID: \{([0-9A-F-]+)\}", text)
    guid = codeview.guid
    fields = (guid[3::-1], guid[5:3:-1], guid[7:5:-1], guid[8:10], guid[10:])
    assert found is None or found[1] == "-".join(part.hex() for part in fields).upper()
    assert "PDBAge: 1" in text
    assert codeview.age == 1


def test_a_hash_instead_of_the_time_is_told(outer: str, tmp_path: Path) -> None:
    assert not _read(outer).reproducible
    again = _read(pe_dll(str(tmp_path), "/Brepro"))
    assert again.reproducible
    assert [entry.Type for entry in again.debug] == [2, 16]


def test_tls_and_load_configuration(outer: str) -> None:
    pe = _read(outer)
    tls, config = pe.tls, pe.load_config
    assert tls is not None
    assert config is not None
    text = run_tool("llvm-readobj", "--coff-tls-directory", outer)
    values = {name: int(value, 0) for name, value in re.findall(r"(\w+): (0x[0-9A-F]+|\d+)", text)}
    assert tls.StartAddressOfRawData == values["StartAddressOfRawData"]
    assert tls.AddressOfCallBacks == values["AddressOfCallBacks"]
    assert tls.SizeOfZeroFill == 8
    assert len(tls.callbacks) == 1
    assert pe.rva_to_offset(tls.callbacks[0] - pe.optional.ImageBase) is not None
    assert config.Size == 152
    lief: Any = pytest.importorskip("lief")
    theirs = lief.PE.parse(outer).load_configuration
    assert config.SecurityCookie == theirs.security_cookie
    assert (config.SEHandlerTable, config.SEHandlerCount) == (1, 2)
    assert (config.GuardCFFunctionTable, config.GuardCFFunctionCount, config.GuardFlags) == (5, 6, 0x100)


def test_symbols_and_long_section_names_of_mingw(mingw: str) -> None:
    pe = _read(mingw)
    text = run_tool("x86_64-w64-mingw32-objdump", "-h", mingw)
    names = re.findall(r"^ +\d+ (\S+)", text, re.MULTILINE)
    assert [section.name for section in pe.sections] == names
    assert ".debug_info" in names
    lines = run_tool("x86_64-w64-mingw32-objdump", "-t", mingw)
    expected = re.findall(r"^\[ *(\d+)\]\(sec +(-?\d+)\).*\(nx (\d+)\) 0x[0-9a-f]+ (.*)$", lines, re.MULTILINE)
    found = [
        (str(one.number), str(one.SectionNumber), str(len(one.aux) // 18), one.file_name or one.name)
        for one in pe.symbols()
    ]
    assert found == expected
    assert any(one.file_name for one in pe.symbols())


def test_the_report_says_what_the_file_is(outer: str) -> None:
    with open_file(outer) as artefact:
        assert artefact.reader is not None
        report = artefact.reader.report()
        symbols = list(report.symbols())
    assert not report.faults
    identity = report.identity
    assert (identity.format, identity.kind, identity.machine, identity.os) == (
        "pe", "dynamic library", "x86-64", "Windows",
    )  # fmt: skip
    assert identity.name == "outer.dll"
    assert "DLL" in identity.flag_names
    assert [(one.name, one.kind) for one in report.dependencies] == [("near.dll", "needed"), ("later.dll", "delay")]
    assert {one.name for one in symbols if one.table == "exports"} == {"both", "table", "forward"}
    assert {(one.name, one.library) for one in symbols if one.table == "imports"} == {
        ("twice", "near.dll"), ("late", "later.dll"),
    }  # fmt: skip
    text = next(one for one in report.segments if one.name == ".text")
    assert (text.protection, text.mapped_start) == ("r-x", 0x180001000)
    hardening = {one.name: one.value for one in report.hardening}
    assert hardening["nx_stack"] is True
    assert hardening["signature"] is False


def test_32_bit_images_are_read(tmp_path: Path) -> None:
    source = "__declspec(dllexport) int value = 3; __declspec(dllexport) int twice(int x) { return 2 * x; }"
    path = str(tmp_path / "x.dll")
    objects = compile_c(str(tmp_path), "i686-windows-msvc", source, "x.obj")
    run_tool("lld-link", "/dll", "/noentry", "/nodefaultlib", f"/out:{path}", objects, "/safeseh:no")
    _compare(path)
    pe = _read(path)
    assert (pe.is_64, pe.machine, pe.pointer_width) == (False, "i386", 32)
    assert {one.name for one in pe.exports()} == {"value", "twice"}


def test_certificates_are_listed(outer: str) -> None:
    with open(outer, "rb") as file:
        data = bytearray(file.read())
    data += bytes(-len(data) % 8)
    at = len(data)
    data += struct.pack("<I2H", 13, 0x200, 2) + bytes(8) + struct.pack("<I2H", 8, 0x200, 2)
    security = struct.unpack_from("<I", data, 60)[0] + 24 + 112 + 4 * 8
    struct.pack_into("<2I", data, security, at, len(data) - at)
    assert _of(bytes(data)).certificates == ((at, 13, 0x200, 2), (at + 16, 8, 0x200, 2))
    assert {one.name: one.value for one in _of(bytes(data)).report().hardening}["signature"] is True
    struct.pack_into("<I", data, at, 1 << 30)
    with pytest.raises(FormatError, match="dwLength"):
        _ = _of(bytes(data)).certificates


def test_every_offset_belongs_to_the_section_of_its_address(outer: str) -> None:
    pe = _read(outer)
    assert pe.rva_to_offset(0) == 0
    assert pe.rva_to_offset(pe.optional.SizeOfHeaders) is None
    for section in pe.sections:
        start = section.VirtualAddress
        assert pe.rva_to_offset(start) == section.PointerToRawData
        assert pe.rva_to_offset(start, section.SizeOfRawData) == section.PointerToRawData
        assert pe.rva_to_offset(start, section.SizeOfRawData + 1) is None
        assert pe.rva_to_offset(start - 1) is None
    assert pe.rva_to_offset(-1) is None
    assert pe.rva_to_offset(1 << 32) is None


def _patched(path: str, offset: int, form: str, value: int) -> bytes:
    """Return a file with a number written `offset` bytes from the PE signature."""
    with open(path, "rb") as file:
        data = bytearray(file.read())
    struct.pack_into(form, data, struct.unpack_from("<I", data, 60)[0] + offset, value)
    return bytes(data)


BROKEN = (
    (20, "<H", 8, "SizeOfOptionalHeader"),
    (24, "<H", 0x107, "Magic is unknown"),
    (20, "<H", 200, "NumberOfRvaAndSizes"),
)


@pytest.mark.parametrize(("offset", "form", "value", "message"), BROKEN)
def test_a_broken_header_is_an_error(outer: str, offset: int, form: str, value: int, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        _of(_patched(outer, offset, form, value))


FAULTS = (
    (6, "<H", 0xFFFF, "sections"),  # NumberOfSections
    (24 + 112, "<I", 1 << 30, "exports"),
    (24 + 120, "<I", 1 << 30, "dependencies"),
    (24 + 112 + 6 * 8, "<I", 1 << 30, "debug"),
    (24 + 112 + 9 * 8, "<I", 1 << 30, "thread-local storage"),
    (24 + 112 + 10 * 8, "<I", 1 << 30, "load configuration"),
    (24 + 112 + 5 * 8, "<I", 1 << 30, "relocations"),
    (264 + 16, "<I", 1 << 30, "sections"),  # SizeOfRawData of the first section
)


@pytest.mark.parametrize(("offset", "form", "value", "part"), FAULTS)
def test_a_broken_part_is_a_fault_of_the_report(outer: str, offset: int, form: str, value: int, part: str) -> None:
    report = _of(_patched(outer, offset, form, value)).report()
    assert part in {fault.part for fault in report.faults}
    assert report.identity.machine == "x86-64"


def test_an_export_table_of_giant_counts_is_refused(outer: str) -> None:
    pe = _read(outer)
    place = pe.directory("EXPORT")
    assert place is not None
    at = pe.offset_of(place.VirtualAddress, 40, "exports")
    with open(outer, "rb") as file:
        data = bytearray(file.read())
    struct.pack_into("<I", data, at + 20, 1 << 31)
    with pytest.raises(FormatError, match="NumberOfFunctions"):
        list(_of(bytes(data)).exports())


def test_a_program_for_dos_alone_is_not_taken_for_pe() -> None:
    for data in (b"MZ", b"MZ" + bytes(62), b"MZ" + bytes(58) + struct.pack("<I", 1 << 31) + bytes(64)):
        with pytest.raises(InputError, match="not an object file"):
            recognise(View.of_bytes(data, "x.exe"))


def test_a_library_of_1_9_gib_costs_what_its_tables_cost(outer: str, tmp_path: Path) -> None:
    size = 0x78000000
    with open(outer, "rb") as file:
        data = bytearray(file.read())
    pe = _of(bytes(data))
    header = pe.e_lfanew + 24 + pe.header.SizeOfOptionalHeader + 40 * (len(pe.sections) - 1)
    start = len(data)
    struct.pack_into("<4I", data, header + 8, size, pe.sections[-1].VirtualAddress, size, start)
    struct.pack_into("<2I", data, pe.e_lfanew + 24 + 112 + 5 * 8, 0, 0)  # its relocations were there
    path = tmp_path / "big.dll"
    with path.open("wb") as file:
        file.write(data)
        file.truncate(start + size)
    with traced() as peak, open_file(path) as artefact:
        assert artefact.reader is not None
        report = artefact.reader.report()
        symbols = list(report.symbols())
        assert peak() < 8 << 20
    assert not report.faults
    assert "table" in {one.name for one in symbols}
