"""Clang's offload bundles: AMD code objects for several GPUs in one file, as hipModuleLoadData takes it.

Source: Clang Offload Bundler (LLVM's documentation), Bundled Binary File Layout and Compressed Offload Bundle.
"""

from __future__ import annotations

from emitter.device.image import HIP, Image, Program, broken
from emitter.errors import FormatError
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from emitter.inspect.view import View

__all__ = ["read"]

MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
_COMPRESSED = b"CCOB"
_MAX_ENTRIES, _MAX_ID = 4096, 4096
# Of a compressed bundle, by version: the format of the header behind its magic, and where the file's size is in it.
_HEADERS = {1: ("<HHIQ", None, 4), 2: ("<HHIIQ", 2, 4), 3: ("<HHQQQ", 2, 8)}


def read(view: View) -> Program:
    """Return what a bundle holds; raise FormatError, with the offset, for one that HIP would not load."""
    if view.read_up_to(0, 4) == _COMPRESSED:
        return _read_compressed(view)
    where = view.where
    head = view.read_up_to(0, 32)
    if len(head) < 32:
        raise broken("the bundle is truncated", where, len(head), "32 bytes", len(head))
    (count,) = view.unpack("<Q", 24, "the number of entries")
    if not 0 < count <= _MAX_ENTRIES:
        raise broken("the number of entries is wrong", where, 24, f"1 to {_MAX_ENTRIES}", count)
    images = []
    position = 32
    for number in range(count):
        what = f"{where}: entry {number}"
        if position + 24 > view.size:
            raise broken("the bundle is truncated", what, position, "24 bytes", max(view.size - position, 0))
        offset, size, id_size = view.unpack("<QQQ", position, "an entry of the bundle")
        if offset + size > view.size:
            raise broken(
                "the code is not in the file",
                what,
                position,
                f"an end of at most {view.size:#x}",
                f"{offset + size:#x}",
            )
        if not 0 < id_size <= min(_MAX_ID, view.size - position - 24):
            raise broken("the size of the entry's name is wrong", what, position + 16, f"1 to {_MAX_ID}", id_size)
        text = view.read(position + 24, id_size, "the name of an entry")
        if not text.isascii() or b"-" not in text:
            raise broken(
                "the entry's name is no target", what, position + 24, "KIND-TRIPLE--PROCESSOR", repr(text[:40])
            )
        name = text.decode("ascii")
        if not name.startswith("host"):
            if not size:
                raise broken("there is no code", what, position + 8, "more than 0 bytes", size)
            _check_code(view, offset, size, what)
            processor = name.partition("--")[2] or name.rpartition("-")[2]  # KIND-TRIPLE--PROCESSOR:FEATURES
            images.append(
                Image(processor, {"gfx": f"== {processor.partition(':')[0]}"} if processor.startswith("gfx") else {})
            )
        position += 24 + id_size
    if not images:
        raise broken(
            "the bundle holds no code for a GPU", where, 24, "an entry that is not for the host", f"{count} entries"
        )
    return Program("HIP bundle", HIP, view.size, 4096, tuple(images))


def _check_code(view: View, offset: int, size: int, where: str) -> None:
    """Check a code object that is not compressed or in another container."""
    if view.read_up_to(offset, 4) != b"\x7fELF":
        return
    from emitter.device import hip

    try:
        hip.read(view.window(offset, size, where))
    except FormatError as error:
        raise broken(error.what, where, offset, error.expected, error.actual) from error


def _read_compressed(view: View) -> Program:
    """Return what a compressed bundle says of itself: its size; for which GPUs it is, only its content says."""
    head = view.read_up_to(4, 4)
    version = int.from_bytes(head[:2], "little")
    known = _HEADERS.get(version)
    if known is None:
        raise broken("a compressed bundle of another version", view.where, 4, "1 to 3", version)
    form, place, width = known
    fields = view.unpack(form, 4, "the header of the bundle")
    if place is not None and fields[place] != view.size:
        raise broken("the bundle has another size", view.where, 8, f"{fields[place]} bytes", view.size, "copy it again")
    if not fields[-2]:
        raise broken("the size before compression is missing", view.where, 8 + width, "more than 0", 0)
    return Program("HIP bundle", HIP, view.size, 4096, (Image("", {}),))
