"""PTX: the text that the CUDA driver compiles for the GPU that it finds.

Source: PTX ISA, sections 4 (syntax) and 11.1 (`.version`, `.target`, `.address_size`).
"""

from __future__ import annotations

import re

from emitter.device.image import CUDA, Program, broken, cuda_image
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from emitter.inspect.view import View

__all__ = ["Ptx", "first_nul", "read", "read_ptx"]

BOM = b"\xef\xbb\xbf"
_MAX_HEAD = 64 << 10  # comments may come before the first directive
_COMMENT = re.compile(rb"//[^\n]*|/\*.*?\*/", re.DOTALL)
_HEAD = re.compile(rb"\s*\.version\s+(\d+\.\d+)\s+\.target\s+(?:sm|compute)_(\d+)([af]?)\b([^\n]*)")
_ADDRESS_SIZE = re.compile(rb"[^.]*\.address_size\s+(\d+)")


class Ptx(NamedTuple):
    """What a PTX text says first: its version, the sm number that it is for, and bits of an address (0: not said)."""

    version: str
    arch: int
    address_size: int
    suffix: str = ""


def read_ptx(view: View) -> Ptx:
    """Return what a PTX text says first; raise FormatError for what the driver's assembler would not take."""
    head = view.read_up_to(0, _MAX_HEAD)
    for bom in (BOM, b"\xff\xfe", b"\xfe\xff"):
        if head.startswith(bom):
            raise broken(
                "the text begins with a byte-order mark", view.where, 0, ".version", bom.hex(" "),
                "save it as ASCII or as UTF-8 without BOM",
            )  # fmt: skip
    text = _COMMENT.sub(lambda found: b" " * len(found[0]), head)  # offsets stay
    match = _HEAD.match(text)
    if match is None:
        at = len(text) - len(text.lstrip())
        found = text.strip()[:40].decode("utf-8", "replace")
        raise broken("the text does not begin as PTX", view.where, at, ".version X.Y, then .target sm_NN", repr(found))
    size = _ADDRESS_SIZE.match(text[match.end() :])
    bits = int(size[1]) if size else 0
    if bits not in {0, 32, 64}:
        at = match.end() + (size.start(1) if size else 0)
        raise broken("addresses of that size do not exist", view.where, at, ".address_size 32 or 64", bits)
    return Ptx(match[1].decode(), int(match[2]), bits, match[3].decode())


def first_nul(view: View) -> int | None:
    """Return the offset of the first NUL, or None."""
    position = 0
    for chunk in view.chunks(0, view.size, "PTX"):
        at = chunk.find(b"\0")
        if at >= 0:
            return position + at
        position += len(chunk)
    return None


def read(view: View) -> Program:
    """Return what a PTX text holds, without the NUL that may end it; raise FormatError for what no driver takes."""
    head = read_ptx(view)
    nul = first_nul(view)
    if nul is not None and nul != view.size - 1:
        raise broken(
            "a NUL stands inside of the text", view.where, nul, "no NUL, or one at the very end", "a NUL",
            "the driver would stop reading there: remove it",
        )  # fmt: skip
    size = view.size if nul is None else nul
    facts = {"ptx": head.version, "address_size": str(head.address_size or 32)}
    return Program("PTX", CUDA, size, 64, (cuda_image(head.arch, head.suffix, ptx=True),), facts)
