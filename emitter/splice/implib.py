"""Import libraries: what a program that uses a DLL is linked with, in the short form of Microsoft's tools.

Source: Microsoft's PE Format, "Import Library Format" and "The .idata Section". The short form has a record of some 20
bytes for each name; linkers make the thunks of it. GNU ld reads it too. Three ordinary objects go before the records:
link.exe and GNU ld build the import directory of them, lld-link makes its own.
"""

from __future__ import annotations

import os
from struct import pack

from emitter import coff
from emitter.errors import LayoutError, UsageError, shown
from emitter.layout import FilePlan, Piece
from emitter.records import TYPE_CHECKING, NamedTuple
from emitter.splice.archive_coff import MAX_MEMBERS, plan_archive
from emitter.splice.member import Member

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emitter.targets._base import Target

__all__ = ["check_name", "import_library"]

_IMPORT_CODE, _IMPORT_DATA = 0, 1
_IMPORT_OBJECT_NAME = 1  # the DLL exports the symbol as it is
_IMPORT_OBJECT_NAME_NO_PREFIX = 2  # or without the `_` that C puts before it on 32-bit x86

# "The address of this, relative to the image": the relocation of each machine.
_ADDR32NB = {0x14C: 7, 0x8664: 3, 0xAA64: 2}

_CHARACTERISTICS = {0x14C: 0x100}  # IMAGE_FILE_32BIT_MACHINE

_DATA = coff.IMAGE_SCN_CNT_INITIALIZED_DATA | coff.IMAGE_SCN_MEM_READ | coff.IMAGE_SCN_MEM_WRITE

_DIRECTORY_ENTRY_SIZE = 20
# Fields of an import directory entry: OriginalFirstThunk, Name, FirstThunk.
_LOOKUP_TABLE, _NAME, _ADDRESS_TABLE = 0, 12, 16

_FORBIDDEN = frozenset('<>:"/\\|?*')


class _Section(NamedTuple):
    """A section of a member; `relocations` are (offset, symbol number)."""

    name: bytes
    alignment: int
    data: bytes
    relocations: Sequence[tuple[int, int]] = ()


def import_library(target: Target, dll_name: str, names: Sequence[str], *, functions: Sequence[str] = ()) -> bytes:
    """Return the import library of the DLL `dll_name`, which exports data as `names` and `functions`, identifiers of C.

    Raises LayoutError for a file name by which Windows would not find the DLL, and for more names than an archive has
    room for.
    """
    machine = coff.facts_of(target).machine
    _check_dll_name(dll_name)
    if len(names) + len(functions) + 3 > MAX_MEMBERS:
        raise LayoutError(
            "too many symbols for an import library",
            expected=f"at most {MAX_MEMBERS - 3}",
            actual=len(names),
            hint="leave out --tensor-symbols; tensors are found by name without them",
        )
    stem = os.path.splitext(dll_name)[0].encode()
    descriptor, null = b"__IMPORT_DESCRIPTOR_" + stem, b"__NULL_IMPORT_DESCRIPTOR"
    # The control character keeps the name apart from those of C.
    null_thunk = b"\x7f" + stem + b"_NULL_THUNK_DATA"
    word = target.pointer_width // 8
    members = [
        _member(dll_name, [descriptor.decode()], _descriptor(machine, dll_name.encode(), descriptor, null, null_thunk)),
        _member(
            dll_name,
            [null.decode()],
            _object(machine, [_Section(b".idata$3", 4, bytes(_DIRECTORY_ENTRY_SIZE))], [(null, 1)]),
        ),
        _member(
            dll_name,
            [null_thunk.decode()],
            _object(
                machine,
                [_Section(b".idata$5", word, bytes(word)), _Section(b".idata$4", word, bytes(word))],
                [(null_thunk, 1)],
            ),
        ),
    ]
    for name in names:
        symbol = target.symbol_prefix + name
        members.append(_member(dll_name, [f"__imp_{symbol}"], _short_import(target, machine, symbol, dll_name)))
    for name in functions:
        symbol = target.symbol_prefix + name  # which the linker makes a jump of
        record = _short_import(target, machine, symbol, dll_name, _IMPORT_CODE)
        members.append(_member(dll_name, [f"__imp_{symbol}", symbol], record))
    plan = plan_archive(members)
    image = bytearray(plan.size)
    for piece in plan.pieces:
        image[piece.offset : piece.offset + len(piece.data)] = piece.data
    return bytes(image)


def check_name(target: Target, dll: str, implib: str) -> None:
    """Raise UsageError if the import library would be called as a static archive of the same library may be."""
    stem = os.path.splitext(os.path.basename(dll))[0]
    bare = stem.lower().removeprefix("lib")
    suffixes = [target.archive_suffix, *(suffix for suffix, format_ in target.other_suffixes if format_ == "archive")]
    name = os.path.basename(implib).lower()
    if name in {f"{prefix}{bare}{suffix}" for prefix in ("", "lib") for suffix in suffixes}:
        raise UsageError(
            "--implib has the name of a static archive",
            where=implib,
            expected=f"a name such as {stem}{target.implib_suffix}",
            actual=os.path.basename(implib),
            hint="whoever links would get the one or the other, by the order in which they were built",
        )


def _short_import(target: Target, machine: int, symbol: str, dll_name: str, kind: int = _IMPORT_DATA) -> bytes:
    """Return an import object: IMPORT_OBJECT_HEADER, the public symbol, the name of the DLL."""
    name_type = _IMPORT_OBJECT_NAME_NO_PREFIX if target.symbol_prefix else _IMPORT_OBJECT_NAME
    body = symbol.encode() + b"\0" + dll_name.encode() + b"\0"
    header = pack("<4H2I2H", 0, 0xFFFF, 0, machine, 0, len(body), 0, kind | name_type << 2)
    return header + body


def _descriptor(machine: int, dll_name: bytes, descriptor: bytes, null: bytes, null_thunk: bytes) -> bytes:
    """Return the object with the DLL's entry of the import directory.

    Its undefined symbols pull in the end of the directory and of the DLL's thunks; the undefined sections stand for the
    start of the thunks, in whatever the linker makes of them.
    """
    static, section = coff.IMAGE_SYM_CLASS_STATIC, coff.IMAGE_SYM_CLASS_SECTION
    symbols: list[tuple[bytes, int] | tuple[bytes, int, int]] = [
        (descriptor, 1),
        (b".idata$2", 1, section),
        (b".idata$6", 2, static),
        (b".idata$4", 0, section),
        (b".idata$5", 0, section),
        (null, 0),
        (null_thunk, 0),
    ]
    number = {symbol[0]: index for index, symbol in enumerate(symbols)}
    relocations = [
        (_NAME, number[b".idata$6"]),
        (_LOOKUP_TABLE, number[b".idata$4"]),
        (_ADDRESS_TABLE, number[b".idata$5"]),
    ]
    directory = _Section(b".idata$2", 4, bytes(_DIRECTORY_ENTRY_SIZE), relocations)
    name = _Section(b".idata$6", 2, dll_name + b"\0" * (2 - len(dll_name) % 2))
    return _object(machine, [directory, name], symbols)


def _object(
    machine: int, sections: Sequence[_Section], symbols: Sequence[tuple[bytes, int] | tuple[bytes, int, int]]
) -> bytes:
    """Return a small object; `symbols` are (name, section number) and a storage class, external by default."""
    strings = coff.StringTable()
    position = coff.FILE_HEADER_SIZE + coff.SECTION_HEADER_SIZE * len(sections)
    headers, bodies = b"", b""
    for name, alignment, data, relocations in sections:
        headers += coff.SectionHeader(
            name,
            0,
            0,
            len(data),
            position,
            _DATA | coff.align_flag(alignment),
            position + len(data) if relocations else 0,
            len(relocations),
        ).encode()
        body = data + b"".join(coff.relocation(offset, to, _ADDR32NB[machine]) for offset, to in relocations)
        bodies += body
        position += len(body)
    table = b"".join(
        coff.symbol(strings.symbol_name(name), 0, number, *(storage_class or (coff.IMAGE_SYM_CLASS_EXTERNAL,)))
        for name, number, *storage_class in symbols
    )
    header = coff.file_header(
        machine,
        len(sections),
        pointer_to_symbol_table=position,
        number_of_symbols=len(symbols),
        characteristics=_CHARACTERISTICS.get(machine, 0),
    )
    return header + headers + bodies + table + strings.data()


def _member(name: str, symbols: Sequence[str], data: bytes) -> Member:
    return Member(name, symbols, lambda _: FilePlan(len(data), [Piece(0, data)], []))


def _check_dll_name(name: str) -> None:
    """Refuse a name that programs cannot carry: they hold it in the code page of whatever machine they run on."""
    printable = all(" " <= character <= "~" for character in name)
    if not printable or _FORBIDDEN.intersection(name) or not os.path.splitext(name)[1]:
        raise LayoutError(
            "programs that are linked with an import library could not find the DLL by its name",
            where=shown(name),
            expected='printable ASCII with a suffix, without < > : " / \\ | ? *',
            hint="give the DLL another name, such as NAME.dll",
        )
