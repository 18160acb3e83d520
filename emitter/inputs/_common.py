"""What the input readers share: exact reads and names."""

from __future__ import annotations

import os

from emitter.errors import InputError
from emitter.reading import pread as read_some
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emitter.modules import ModuleFacts
    from emitter.package import Tensor

__all__ = ["RAW_HINT", "Contents", "pread", "qualify", "stem"]

RAW_HINT = "write raw:FILE to take its bytes as they are"


class Contents(NamedTuple):
    """What an input holds. The metadata is the input's own; whether it is kept is the caller's choice.

    `metadata` has an entry for each of its files: the name of that file, and what it says. That two of them contradict
    each other matters only if they are kept. `modules` has the root first, each module before what it imports.
    """

    tensors: list[Tensor]
    metadata: Sequence[tuple[str, dict[str, str]]] = ()
    model_version: str = ""
    modules: Sequence[ModuleFacts] = ()


def pread(fd: int, length: int, offset: int, where: str) -> bytes:
    """Return `length` bytes from `offset`; raise InputError if the file ends before, or if it cannot be read."""
    parts = []
    missing = length
    try:
        while missing:
            part = read_some(fd, min(missing, 1 << 30), offset + length - missing)
            if not part:
                raise InputError(
                    "ends too early",
                    where=where,
                    expected=f"{length} bytes from offset {offset}",
                    actual=length - missing,
                )
            parts.append(part)
            missing -= len(part)
    except OSError as error:
        raise InputError(f"cannot read: {error.strerror or error}", where=where) from error
    return parts[0] if len(parts) == 1 else b"".join(parts)


def qualify(prefix: str, name: str) -> str:
    """Return `prefix` and `name` as one name, joined by a dot unless the prefix ends in one of `._-/:`."""
    if not prefix or prefix[-1] in "._-/:":
        return prefix + name
    return f"{prefix}.{name}"


def stem(path: str) -> str:
    """Return the file's name without its last suffix and its folder, on which the output must not depend."""
    return os.path.splitext(os.path.basename(path))[0]
