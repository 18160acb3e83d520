"""Programs for GPUs: recognised by content, and read with bounds. One module reads one format.

`emitter.inputs.device` makes modules of a package of them, and `emitter.verify` judges those that it meets.
"""

from __future__ import annotations

from importlib import import_module

from emitter.device.image import Image, Program
from emitter.errors import FormatError
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from emitter.inspect.view import View

__all__ = ["Image", "Program", "is_fatbin", "program_format", "read_program"]

FATBIN_MAGIC = b"\x50\xed\x55\xba"
BOMS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")  # UTF-8, UTF-16 little-endian and big-endian

_ELF = b"\x7fELF"
_EM_CUDA, _EM_AMDGPU = 190, 224


def _is_elf_of(e_machine: int) -> Callable[[bytes], bool]:
    # The programs that are known are little-endian, but a damaged one may say otherwise: its own reader refuses it.
    orders = e_machine.to_bytes(2, "little"), e_machine.to_bytes(2, "big")
    return lambda head: head.startswith(_ELF) and head[18:20] in orders


def _is_ptx(head: bytes) -> bool:
    """Whether the text begins with `.version`, behind spaces, comments, and what does not belong before a text."""
    for bom in BOMS:
        head = head.removeprefix(bom)
    if head[1:2] == b"\0" or head[:1] == b"\0":
        head = head.replace(b"\0", b"")  # UTF-16
    while True:
        head = head.lstrip()
        if head.startswith(b"//"):
            head = head.partition(b"\n")[2]
        elif head.startswith(b"/*"):
            head = head.partition(b"*/")[2]
        else:
            return head.startswith(b".version") and head[8:9] in {b" ", b"\t", b"\n", b"\r"}


class _Format(NamedTuple):
    name: str
    recognise: Callable[[bytes], bool]
    module: str


_FORMATS = (
    _Format("fatbin", lambda head: head.startswith(FATBIN_MAGIC), "fatbin"),
    _Format("cubin", _is_elf_of(_EM_CUDA), "cubin"),
    _Format("hsaco", _is_elf_of(_EM_AMDGPU), "hip"),
    _Format("HIP bundle", lambda head: head.startswith((b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB")), "bundle"),
    _Format("TensorRT plan", lambda head: head.startswith((b"ftrt", b"ptrt")), "tensorrt"),
    _Format("SPIR-V", lambda head: head.startswith((b"\x03\x02\x23\x07", b"\x07\x23\x02\x03")), "spirv"),
    _Format("PTX", _is_ptx, "ptx"),
)


def program_format(head: bytes) -> str | None:
    """Return which format of programs for GPUs a file is of that begins with `head` (512 bytes are enough), or None."""
    return next((format_.name for format_ in _FORMATS if format_.recognise(head)), None)


def read_program(view: View) -> Program:
    """Return what a file holds, after looking at all that can be checked without the GPU's own tools.

    Raises FormatError, with the offset, what is expected there and what is found, for a file that is damaged.
    """
    head = view.read_up_to(0, 512)
    for format_ in _FORMATS:
        if format_.recognise(head):
            read: Callable[[View], Program] = import_module(f"emitter.device.{format_.module}").read
            return read(view)
    raise FormatError(
        "not a program for a GPU",
        where=f"{view.where}: offset 0x0",
        expected="a fatbin, a cubin, PTX, a TensorRT plan, an AMD code object or bundle, or SPIR-V",
        actual=head[:8].hex(" "),
    )


def is_fatbin(head: bytes) -> bool:
    """Whether these are the first bytes of a fatbin, which CUDA's tools look for in sections of its name."""
    return head.startswith(FATBIN_MAGIC)
