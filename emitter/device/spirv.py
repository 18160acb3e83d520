"""SPIR-V: the programs of Vulkan and OpenCL.

Source: SPIR-V Specification, 2.3 (Physical Layout of a SPIR-V Module and Instruction).
"""

from __future__ import annotations

import struct

from emitter.device.image import SPIRV, Image, Program, broken
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from emitter.inspect.view import View

__all__ = ["read"]

_MAGIC = 0x07230203
_HEADER_SIZE = 20
_MAX_SIZE = 64 << 20  # bytes; the largest that compilers write are below 1 MiB


def read(view: View) -> Program:
    """Return what a module is; raise FormatError, with the offset, for instructions that do not follow each other."""
    where = view.where
    order = "<" if view.read_up_to(0, 4) == _MAGIC.to_bytes(4, "little") else ">"
    if view.size % 4 or not _HEADER_SIZE < view.size <= _MAX_SIZE:
        expected = f"words of 4 bytes, more than {_HEADER_SIZE} and at most {_MAX_SIZE} bytes"
        raise broken("the module is truncated", where, view.size & ~3, expected, f"{view.size} bytes")
    version, _, bound, schema = view.unpack(f"{order}4I", 4, "the header")
    if version & 0xFF0000FF or not version >> 16:
        raise broken("the version is wrong", where, 4, "0x00MMmm00", f"{version:#010x}")
    if not bound:
        raise broken("the bound of ids is wrong", where, 12, "more than 0", bound)
    if schema:
        raise broken("the reserved word is not zero", where, 16, 0, schema)
    data = b"".join(view.chunks(0, view.size, "the module"))
    position, word = _HEADER_SIZE, struct.Struct(f"{order}I")
    while position < view.size:
        count = word.unpack_from(data, position)[0] >> 16
        if not count or position + 4 * count > view.size:
            expected = f"1 to {(view.size - position) // 4} words"
            raise broken("an instruction has a size that it cannot have", where, position, expected, count)
        position += 4 * count
    name = f"spirv{version >> 16}.{version >> 8 & 0xFF}"
    return Program("SPIR-V", SPIRV, view.size, 64, (Image(name, {}),))
