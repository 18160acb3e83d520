"""What people use today to turn a file into an object or a shared library, as commands."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.measure import Command

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["LIBRARIES", "OBJECTS", "TEXT", "Peer", "commands"]

_ASSEMBLY = """\
    .section .rodata,"a",@progbits
    .globl model
    .type model,@object
    .p2align 6
model:
    .incbin "{input}"
    .size model, .-model
    .section .note.GNU-stack,"",@progbits
"""
_RUST = """\
#![no_std]
#[no_mangle]
pub static model: &[u8; {size}] = include_bytes!("{input}");
"""
_RUST_LIBRARY = _RUST.replace("#![no_std]\n", "")


@dataclass(frozen=True, slots=True)
class Peer:
    """A shell command. It may hold {input}, {output}, {source} (a file made of `source`) and {temporary} (an object).

    `limit` is the largest input in bytes for which it is run at all: beyond it, minutes or gigabytes are needed.
    """

    name: str
    tools: Sequence[str]
    shell: str
    source: str = _ASSEMBLY
    suffix: str = ".s"
    limit: int = 1 << 62


_SMALL = 512 << 20
_AS = "as {source} -o {temporary} && "

OBJECTS = (
    Peer("as .incbin", ("as",), "as {source} -o {output}"),
    Peer("ld -r -b binary", ("ld",), "ld -r -b binary {input} -o {output}"),
    Peer(
        "objcopy -I binary",
        ("objcopy",),
        "objcopy -I binary -O elf64-x86-64 -B i386:x86-64 {input} {output}",
        limit=_SMALL,
    ),
    Peer("clang -c .incbin", ("clang",), "clang -c {source} -o {output}", limit=_SMALL),
    Peer(
        "rustc --emit obj include_bytes!",
        ("rustc",),
        "rustc --crate-type lib -C opt-level=1 --emit obj={output} {source}",
        _RUST,
        ".rs",
        _SMALL,
    ),
)

LIBRARIES = (
    # Without --no-fork the memory and the processor time of mold are those of a parent that waits.
    Peer("as .incbin + mold", ("as", "mold"), _AS + "mold --no-fork -shared {temporary} -o {output}"),
    Peer("as .incbin + ld.lld", ("as", "ld.lld"), _AS + "ld.lld -shared {temporary} -o {output}"),
    Peer("as .incbin + ld", ("as", "ld"), _AS + "ld -shared {temporary} -o {output}", limit=_SMALL),
    Peer(
        "ld -r -b binary + gcc -shared",
        ("ld", "gcc"),
        "ld -r -b binary {input} -o {temporary} && gcc -shared {temporary} -o {output}",
        limit=_SMALL,
    ),
    Peer(
        "clang -shared .incbin, lld",
        ("clang", "ld.lld"),
        "clang -shared -fuse-ld=lld {source} -o {output}",
        limit=_SMALL,
    ),
    Peer(
        "rustc cdylib include_bytes!",
        ("rustc",),
        "rustc --crate-type cdylib -C opt-level=1 -o {output} {source}",
        _RUST_LIBRARY,
        ".rs",
        _SMALL,
    ),
)

# Through text: minutes and gigabytes for a model, so on the small input alone.
TEXT = (
    Peer(
        "xxd -i + gcc -c",
        ("xxd", "gcc"),
        "xxd -i {input} {temporary}.c && gcc -c {temporary}.c -o {output} && rm {temporary}.c",
    ),
)


def commands(peers: Sequence[Peer], path: str, folder: str, suffix: str) -> list[Command]:
    """Return the commands for the input at `path` of the peers that are installed and whose limit allows it."""
    size = os.path.getsize(path)
    found = []
    for number, peer in enumerate(peers):
        if size > peer.limit or any(shutil.which(tool) is None for tool in peer.tools):
            continue
        stem = os.path.join(folder, f"peer{number}")
        names = {"input": path, "output": stem + suffix, "source": stem + peer.suffix, "temporary": f"{stem}.tmp"}
        with open(names["source"], "w", encoding="utf-8") as file:
            file.write(peer.source.format(input=path, size=size))
        shell = peer.shell.format(**names)
        found.append(
            Command(name=peer.name, argv=("sh", "-c", shell), outputs=(names["output"], names["temporary"])),
        )
    return found
