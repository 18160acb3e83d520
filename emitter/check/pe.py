"""The check of DLLs after writing: what the loader of Windows would meet, and each export found as it finds it.

Source: Microsoft's PE Format, "Optional Header" and "The .edata Section".
"""

from __future__ import annotations

from emitter.check.coff import read_sections
from emitter.check.pack import check_pack_at, open_output
from emitter.check.readback import Reader, difference, expect, require, text
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from emitter.check.coff import Section
    from emitter.layout import FilePlan
    from emitter.pack.plan import PackPlan
    from emitter.targets._base import Coff, Target

__all__ = ["check_image"]

_MAX_LOOKUPS = 1000  # names that are looked up
_READ_ONLY = 0x40000040  # IMAGE_SCN_CNT_INITIALIZED_DATA, IMAGE_SCN_MEM_READ
_PAGE = 0x1000


def check_image(fd: int, target: Target, plan: FilePlan, pack: PackPlan | None, symbol: str | None) -> None:
    """Check a PE image field by field: nothing that runs, nothing that is writable, exports that lead to the pack."""
    reader = open_output(fd, target, plan)
    facts = target.coff
    if facts is None:
        raise difference("object format of the target", "coff", target.object_format)
    expect("e_magic", reader.read(0, 2, "e_magic"), b"MZ")
    (at,) = reader.unpack("I", 60, "e_lfanew")
    expect("signature", reader.read(at, 4, "signature"), b"PE\0\0")
    sections, directory = _check_headers(reader, facts, at + 4)
    exports = _Exports(reader, sections, directory)
    if pack is None or symbol is None or plan.pack_offset is None:
        return
    check_pack_at(reader, plan, pack)
    holders = [section for section in sections if section.name == b".emitter"]
    expect("number of sections .emitter", len(holders), 1)
    holder = holders[0]
    expect("PointerToRawData of .emitter", holder.raw_offset, plan.pack_offset)
    expect("VirtualSize of .emitter", holder.virtual_size, pack.total_size)
    begin, end = holder.virtual_address, holder.virtual_address + pack.total_size
    for name in (symbol, "emitter_pack"):
        expect(f"address of {name}", exports.find(name.encode()), begin)
    size_name = f"{symbol}_size".encode()
    at = _offset(sections, exports.find(size_name), reader.word, f"{symbol}_size")
    expect(f"content of {symbol}_size", reader.unpack(reader.word_code, at, "size"), (pack.total_size,))
    for number in range(0, exports.count, 1 + exports.count // _MAX_LOOKUPS):
        name_bytes = exports.name(number)
        address = exports.find(name_bytes)
        require(f"export {text(name_bytes)} lies in the pack", begin <= address <= end or name_bytes == size_name)


def _check_headers(reader: Reader, facts: Coff, at: int) -> tuple[list[Section], tuple[int, int]]:
    """Check the file header at `at` to the section headers; return the sections and the export directory's place."""
    machine, count, stamp, *table, size, characteristics = reader.unpack("2H3I2H", at, "file header")
    expect("Machine", hex(machine), hex(facts.machine))
    expect("TimeDateStamp", stamp, 0)
    expect("(PointerToSymbolTable, NumberOfSymbols)", table, [0, 0])
    expect("Characteristics", hex(characteristics), hex(facts.characteristics))
    at += 20
    wide = facts.magic == 0x20B
    expect("SizeOfOptionalHeader", size, 240 if wide else 224)
    magic, _, _, code, _, bss, entry, _ = reader.unpack("H2B5I", at, "optional header")
    expect("Magic", hex(magic), hex(facts.magic))
    expect("(SizeOfCode, SizeOfUninitializedData, AddressOfEntryPoint)", (code, bss, entry), (0, 0, 0))
    (base,) = reader.unpack("Q" if wide else "I", at + (24 if wide else 28), "ImageBase")
    expect("ImageBase", hex(base), hex(facts.image_base))
    fields = reader.unpack("2I6H4I2H", at + 32, "optional header")
    section_alignment, file_alignment, *versions, reserved, image, headers, checksum, subsystem, dll = fields
    expect("(SectionAlignment, FileAlignment)", (section_alignment, file_alignment), (_PAGE, _PAGE))
    version = facts.operating_system_version
    expect("versions of system, image, subsystem", tuple(versions), (*version, 0, 0, *version))
    expect("(Win32VersionValue, CheckSum)", (reserved, checksum), (0, 0))
    expect("(Subsystem, DllCharacteristics)", (subsystem, hex(dll)), (2, hex(facts.dll_characteristics)))
    at_directories = at + (112 if wide else 96)
    flags, number = reader.unpack("2I", at_directories - 8, "LoaderFlags")
    expect("(LoaderFlags, NumberOfRvaAndSizes)", (flags, number), (0, 16))
    directory, directory_size, *others = reader.unpack("32I", at_directories, "data directories")
    expect("data directories but the export directory", others, [0] * 30)

    sections = read_sections(reader, at + size, count)
    expect("SizeOfHeaders", headers, _PAGE)
    require("the section headers lie within SizeOfHeaders", at + size + 40 * count <= headers)
    address = offset = headers
    for section in sections:
        name = text(section.name)
        expect(f"Characteristics of {name}", hex(section.characteristics), hex(_READ_ONLY))
        expect(f"VirtualAddress of {name}", section.virtual_address, address)
        expect(f"PointerToRawData of {name}", section.raw_offset, offset)
        size = -(-section.virtual_size // _PAGE) * _PAGE
        expect(f"SizeOfRawData of {name}", section.raw_size, size)
        address, offset = address + size, offset + size
    expect("SizeOfImage", image, address)
    expect("end of the last section", offset, reader.size)
    return sections, (directory, directory_size)


def _offset(sections: list[Section], address: int, length: int, what: str) -> int:
    """Return the file offset of `length` bytes at `address`, which one section must hold."""
    for section in sections:
        start = address - section.virtual_address
        if start >= 0 and start + length <= section.virtual_size:
            return section.raw_offset + start
    raise difference(f"address of {what}", "within a section", hex(address))


class _Exports:
    """The export directory; `find` is what GetProcAddress does."""

    def __init__(self, reader: Reader, sections: list[Section], directory: tuple[int, int]) -> None:
        address, size = self._range = directory
        at = _offset(sections, address, size, "the export directory")
        require("the export directory has its header", size >= 40)
        fields = reader.unpack("2I2H7I", at, "the export directory")
        flags, stamp, major, minor, name, base, functions, self.count, *tables = fields
        expect("export flags, time stamp and version", (flags, stamp, major, minor), (0, 0, 0, 0))
        expect("ordinal base", base, 1)
        expect("NumberOfNames", self.count, functions)
        self._data = reader.read(at, size, "the export directory")
        self._start = address
        self._functions, self._names, self._ordinals = (
            reader.unpack(f"{self.count}{code}", at + self._within(table, width * self.count), "an export table")
            for table, width, code in zip(tables, (4, 4, 2), "IIH", strict=True)
        )
        require("the DLL has a name", bool(self._string(name)))

    def _within(self, address: int, length: int) -> int:
        start = address - self._start
        require("a table of exports lies in the directory", start >= 0 and start + length <= len(self._data))
        return start

    def _string(self, address: int) -> bytes:
        start = self._within(address, 1)
        end = self._data.find(b"\0", start)
        require("a name of the export directory ends in it", end >= 0)
        return self._data[start:end]

    def name(self, number: int) -> bytes:
        """Return the name of export `number`."""
        return self._string(self._names[number])

    def find(self, name: bytes) -> int:
        """Return the address of `name`, found by halves."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self.name(middle) < name:
                low = middle + 1
            else:
                high = middle
        if low == self.count or self.name(low) != name:
            raise difference("names of exports", f"{text(name)} in its order", "not found")
        ordinal = self._ordinals[low]
        require(f"the ordinal of {text(name)} is one of the table", ordinal < self.count)
        address = self._functions[ordinal]
        begin, size = self._range
        require(f"{text(name)} is data, not the name of another DLL's export", not begin <= address < begin + size)
        return address
