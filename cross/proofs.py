"""Which test proves what about which target: the data behind the tiers, the README's table and docs/targets.md.

The tier of a target is the best that a test reaches: 1 where programs load and run its artefacts, 2 where a linker of
its platform takes them, 3 where their structure is checked. tests/unit/test_proofs.py compares this with the tests and
with the literals.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from cross.table import BOARDS, TOOLCHAINS

__all__ = ["PROOFS", "Proof", "proofs_of"]


class Proof(NamedTuple):
    """A file of tests, the tier that it is enough for, what it shows of a target, and its targets."""

    test: str
    tier: Literal[1, 2, 3]
    what: str
    targets: tuple[str, ...]


_HOSTED = tuple(toolchain.name for toolchain in TOOLCHAINS)
_BOARDS = tuple(board.name for board in BOARDS)
_CUDA = ("cuda-host", "cuda-host-aarch64")
_ANDROID = (
    "aarch64-linux-android", "armv7-linux-androideabi", "riscv64-linux-android", "x86_64-linux-android",
)  # fmt: skip
_ZIG = ("aarch64-linux-musl", "loongarch64-linux-gnu")
_MACOS = ("arm64-apple-macos", "x86_64-apple-macos")
_IOS = ("arm64-apple-ios", "arm64-apple-ios-simulator")
_WINDOWS = ("aarch64-windows-msvc", "i686-windows-gnu", "x86_64-windows-gnu", "x86_64-windows-msvc")

PROOFS = (
    Proof("tests/run/test_device_dump.py", 1, "programs open its libraries and read every tensor", _HOSTED),
    Proof("tests/run/test_device_direct.py", 1, "programs linked with its artefacts read every tensor", _HOSTED),
    Proof("tests/run/test_bare_metal.py", 1,
          "programs on emulated boards read every tensor, linked and from a pack in flash", _BOARDS),
    Proof("tests/run/test_pe_wine.py", 1,
          "programs under Wine open its libraries, and programs linked with its artefacts run", _WINDOWS[2:]),
    Proof("tests/run/test_object_links.py", 2, "GNU ld, lld and mold link its objects", _HOSTED + _CUDA),
    Proof("tests/run/test_cuda.py", 2,
          "NVIDIA's cuobjdump finds its GPU programs, and programs hand the best one to a driver", _CUDA),
    Proof("tests/run/test_android.py", 2, "clang and lld link its artefacts, and the rules of bionic's loader hold",
          _ANDROID),
    Proof("tests/run/test_zig_links.py", 2, "zig links its artefacts, and programs with its objects run", _ZIG),
    Proof("tests/run/test_macho_links.py", 2, "ld64.lld links its artefacts; for macOS, zig too", _MACOS + _IOS),
    Proof("tests/run/test_pe_wine.py", 2, "lld-link links its artefacts; for 32 bits, MinGW too", _WINDOWS[:2]),
    Proof("tests/run/test_neutral_objects.py", 2, "its objects change nothing about a program", _HOSTED),
    Proof("tests/run/test_bare_metal_neutral.py", 2, "its objects change nothing about firmware", _BOARDS),
    Proof("tests/run/test_macho_edits.py", 3, "tools that strip, rename and sign keep its libraries whole",
          (*_MACOS, "arm64-apple-ios")),
    Proof("tests/unit/test_image_elf.py", 3, "independent readers take its libraries",
          _HOSTED + _CUDA + _ANDROID + _ZIG),
    Proof("tests/unit/test_splice_elf.py", 3, "independent readers take its objects",
          _HOSTED + _CUDA + _ANDROID + _ZIG + _BOARDS),
    Proof("tests/unit/test_image_macho.py", 3, "independent readers take its libraries", _MACOS + _IOS),
    Proof("tests/unit/test_splice_macho.py", 3, "independent readers take its objects", _MACOS + _IOS),
    Proof("tests/unit/test_image_pe.py", 3, "independent readers take its libraries", _WINDOWS),
    Proof("tests/unit/test_splice_coff.py", 3, "independent readers take its objects", _WINDOWS),
)  # fmt: skip


def proofs_of(target: str) -> list[Proof]:
    """Return what proves something about the target with this canonical name, the best first."""
    return sorted((proof for proof in PROOFS if target in proof.targets), key=lambda proof: proof.tier)
