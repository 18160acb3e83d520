"""Reads .npz files: ZIP archives of .npy members, stored or deflated. Only headers are read here.

Source: APPNOTE.TXT 6.3.10 of ZIP (4.3.7 local file header, 4.3.12 central directory, 4.3.14 to 4.3.16 end records,
4.5.3 ZIP64 extra field). The central directory is the authority; the local headers must agree with it.
"""

from __future__ import annotations

import struct

from emitter.errors import InputError, shown
from emitter.inputs import npy
from emitter.inputs._common import RAW_HINT, Contents, pread, qualify
from emitter.package import Checksum, Extent, Inflate, Tensor
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from emitter.package import FileSource

__all__ = ["read"]

MAX_DIRECTORY = 100_000_000
# DEFLATE codes at most 258 bytes in 2 bits.
MAX_RATIO = 1032

_END = struct.Struct("<4s4H2LH")
_ZIP64_LOCATOR = struct.Struct("<4sLQL")
_ZIP64_END = struct.Struct("<4sQ2H2L4Q")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")

_ENCRYPTED = 1 << 0 | 1 << 6 | 1 << 13
_SIZES_FOLLOW = 1 << 3  # a data descriptor after the member: sizes and CRC in the local header are zero
_UTF8 = 1 << 11
_STORED, _DEFLATED = 0, 8


class _Member(NamedTuple):
    name: str
    raw_name: bytes
    flags: int
    method: int
    crc32: int
    compressed_size: int
    size: int
    header_offset: int


def read(source: FileSource, prefix: str) -> Contents:
    """Return the tensors of a .npz file, in the order of their bytes, named after the members without `.npy`.

    Raises InputError for a member that is not a .npy, encrypted, compressed by another method than DEFLATE, or larger
    than its compressed bytes can be; for members that overlap or share a name; and for any .npy that
    `npy.parse_header` refuses.
    """
    path = source.path
    with source.open() as fd:
        directory_offset, members = _read_directory(fd, source)
        for member in members:
            _check_name(member, path)
        tensors = []
        members.sort(key=lambda member: member.header_offset)
        previous_end = 0
        for member in members:
            where = _where(path, member)
            if member.header_offset < previous_end:
                raise InputError(
                    "the member overlaps the one before it", where=where, actual=f"offset {member.header_offset}"
                )
            data_offset = _check_local(fd, member, directory_offset, where)
            previous_end = data_offset + member.compressed_size
            if previous_end > directory_offset:
                raise InputError(
                    "the member runs into the central directory", where=where, actual=f"it ends at {previous_end}"
                )
            tensors.append(_tensor(fd, source, member, data_offset, prefix))
    return Contents(tensors)


def _read_directory(fd: int, source: FileSource) -> tuple[int, list[_Member]]:
    """Return the offset of the central directory and its entries."""
    path, size = source.path, source.size
    tail_offset = max(0, size - _END.size - 0xFFFF)
    tail = pread(fd, size - tail_offset, tail_offset, path)
    at = len(tail) - _END.size
    while at >= 0:
        # The comment may hold anything, so the record must account for every byte up to the end of the file.
        at = tail.rfind(b"PK\x05\x06", 0, at + 4)
        if at < 0 or at + _END.size + int.from_bytes(tail[at + 20 : at + 22], "little") == len(tail):
            break
        at -= 1
    if at < 0:
        raise InputError("the ZIP archive has no end record", where=path, hint="the file may be truncated")
    end_offset = tail_offset + at
    _, disk, first_disk, _, count, length, offset, _ = _END.unpack_from(tail, at)
    locator_offset = end_offset - _ZIP64_LOCATOR.size
    locator = pread(fd, _ZIP64_LOCATOR.size, locator_offset, path) if locator_offset >= 0 else b""
    if locator.startswith(b"PK\x06\x07"):
        end_offset = _ZIP64_LOCATOR.unpack(locator)[2]
        if end_offset + _ZIP64_END.size > locator_offset:
            raise InputError("the ZIP64 end record is out of bounds", where=path, actual=end_offset)
        signature, _, _, _, disk, first_disk, _, count, length, offset = _ZIP64_END.unpack(
            pread(fd, _ZIP64_END.size, end_offset, path)
        )
        if signature != b"PK\x06\x06":
            raise InputError("the ZIP64 end record has another signature", where=path, actual=signature.hex(" "))
    if disk or first_disk:
        raise InputError(
            "the ZIP archive has several parts", where=path, actual=f"disk {disk}", hint="join them into one file"
        )
    if offset + length != end_offset or length > MAX_DIRECTORY:
        raise InputError(
            "the central directory is out of place",
            where=path,
            expected=f"it ends at {end_offset} and has at most {MAX_DIRECTORY} bytes",
            actual=f"{length} bytes at {offset}",
        )
    return offset, _parse_directory(pread(fd, length, offset, path), count, path)


def _parse_directory(directory: bytes, count: int, path: str) -> list[_Member]:
    members: list[_Member] = []
    at = 0
    while at < len(directory):
        where = f"{path}: entry {len(members)} of the central directory"
        if at + _ENTRY.size > len(directory) or not directory.startswith(b"PK\x01\x02", at):
            raise InputError("the entry is cut off or has another signature", where=where)
        entry = _ENTRY.unpack_from(directory, at)
        flags, method, crc32, compressed, size = entry[3], entry[4], *entry[7:10]
        name_length, extra_length, comment_length, offset = *entry[10:13], entry[16]
        at += _ENTRY.size
        raw_name = directory[at : at + name_length]
        extra = directory[at + name_length : at + name_length + extra_length]
        at += name_length + extra_length + comment_length
        if at > len(directory):
            raise InputError("the entry is cut off", where=where)
        try:
            name = raw_name.decode("utf-8" if flags & _UTF8 else "cp437")
        except UnicodeDecodeError as error:
            raise InputError("the name is not UTF-8", where=where, actual=shown(raw_name)) from error
        size, compressed, offset = _zip64([size, compressed, offset], extra, where)
        members.append(_Member(name, raw_name, flags, method, crc32, compressed, size, offset))
    if len(members) != count:
        raise InputError(
            "the central directory has another number of entries", where=path, expected=count, actual=len(members)
        )
    names = set()
    for member in members:
        if member.name in names:
            raise InputError(f"two members are called {shown(member.name)}", where=path)
        names.add(member.name)
    return members


def _zip64(values: list[int], extra: bytes, where: str) -> list[int]:
    """Return the values, in the order of the ZIP64 extra field: those that are 0xffffffff are taken from it."""
    if 0xFFFFFFFF not in values:
        return values
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        body = extra[at + 4 : at + 4 + length]
        if kind == 1:
            wide = [int.from_bytes(body[i : i + 8], "little") for i in range(0, len(body) - 7, 8)]
            if len(wide) >= values.count(0xFFFFFFFF):
                return [wide.pop(0) if value == 0xFFFFFFFF else value for value in values]
            break
        at += 4 + length
    raise InputError("the ZIP64 extra field is missing or too short", where=where)


def _check_name(member: _Member, path: str) -> None:
    name = member.name
    if name.endswith("data.pkl"):
        raise InputError(
            "this is a PyTorch file (.pt, .pth), which is not read as an input",
            where=path,
            hint=f"save it as safetensors, or {RAW_HINT}",
        )
    if not name.endswith(".npy") or name == ".npy":
        raise InputError(
            f"member {shown(name)} is not a named .npy file", where=path, hint=f"a .npz holds arrays alone; {RAW_HINT}"
        )


def _check_local(fd: int, member: _Member, directory_offset: int, where: str) -> int:
    """Compare the local header with the directory's entry and return the offset of the member's data."""
    if member.flags & _ENCRYPTED:
        raise InputError("the member is encrypted", where=where, hint="save it without a password")
    if member.method not in (_STORED, _DEFLATED):
        raise InputError(
            "the compression method is not supported",
            where=where,
            expected="0 (stored) or 8 (deflated)",
            actual=member.method,
        )
    if member.header_offset + _LOCAL.size > directory_offset:
        raise InputError("the local header is out of bounds", where=where, actual=f"offset {member.header_offset}")
    signature, _, flags, method, _, _, crc32, compressed, size, name_length, extra_length = _LOCAL.unpack(
        pread(fd, _LOCAL.size, member.header_offset, where)
    )
    data_offset: int = member.header_offset + _LOCAL.size + name_length + extra_length
    if signature != b"PK\x03\x04" or data_offset > directory_offset:
        raise InputError("the local header is malformed", where=where, actual=signature.hex(" "))
    rest = pread(fd, name_length + extra_length, member.header_offset + _LOCAL.size, where)
    found = [rest[:name_length], flags, method]
    planned = [member.raw_name, member.flags, member.method]
    if not flags & _SIZES_FOLLOW:
        size, compressed = _zip64([size, compressed], rest[name_length:], where)
        found += [crc32, size, compressed]
        planned += [member.crc32, member.size, member.compressed_size]
    if found != planned:
        raise InputError(
            "the local header contradicts the central directory",
            where=where,
            expected=shown(planned[1:]),
            actual=shown(found[1:]),
        )
    return data_offset


def _tensor(fd: int, source: FileSource, member: _Member, data_offset: int, prefix: str) -> Tensor:
    where, label = _where(source.path, member), _label(member)
    name = qualify(prefix, member.name.removesuffix(".npy"))
    if member.method == _STORED:
        if member.size != member.compressed_size:
            raise InputError(
                "a stored member has two sizes", where=where, expected=member.size, actual=member.compressed_size
            )
        header = npy.parse_header(lambda count: pread(fd, count, data_offset, where), member.size, where)
        extent = Extent(
            source,
            data_offset + header.data_offset,
            header.nbytes,
            header.byte_order,
            fortran_order=header.fortran_order,
            checksum=Checksum("CRC-32", member.crc32, data_offset, member.size),
            label=label,
        )
    else:
        if member.size > MAX_RATIO * member.compressed_size:
            raise InputError(
                "the member cannot be that large",
                where=where,
                expected=f"at most {MAX_RATIO} times its {member.compressed_size} compressed bytes",
                actual=member.size,
            )
        header = npy.parse_header(
            lambda count: _inflate_first(fd, data_offset, member.compressed_size, count, where), member.size, where
        )
        inflate = Inflate(member.size, member.crc32, header.data_offset)
        extent = Extent(
            source,
            data_offset,
            member.compressed_size,
            header.byte_order,
            inflate,
            header.fortran_order,
            label=label,
        )
    return Tensor(name, header.dtype, header.shape, extent)


def _inflate_first(fd: int, offset: int, length: int, count: int, where: str) -> bytes:
    """Return the first `count` bytes of the raw DEFLATE stream of `length` bytes at `offset`."""
    import zlib

    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    result = b""
    position = 0
    try:
        while len(result) < count and position < length and not inflater.eof:
            step = min(length - position, 4096)
            result += inflater.decompress(pread(fd, step, offset + position, where), count - len(result))
            position += step
            while inflater.unconsumed_tail and len(result) < count:
                result += inflater.decompress(inflater.unconsumed_tail, count - len(result))
    except zlib.error as error:
        raise InputError(f"the compressed bytes are malformed: {error}", where=where) from error
    if len(result) < count:
        raise InputError(
            "the compressed bytes end too early", where=where, expected=f"{count} bytes or more", actual=len(result)
        )
    return result


def _where(path: str, member: _Member) -> str:
    return f"{path}: {_label(member)}"


def _label(member: _Member) -> str:
    return f"member {shown(member.name)}"
