"""Whether code that was made for one platform can be compiled for another: its triple and its data layout."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from emitter import targets
from emitter.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["contradiction", "parts"]

# C libraries of one calling convention: the code of one is that of the other.
_SAME_ENVIRONMENT = {"musl": "gnu", "musleabihf": "gnueabihf"}

# How triples of bare metal end, behind "none", "unknown" or neither.
_BARE = ("elf", "eabi", "eabihf")
# Sizes of the integers that a CPU computes with: LLVM optimises by them, and its versions differ.
_NATIVE_INTEGERS = re.compile(r"n\d+(:\d+)*")


def parts(triple: str) -> tuple[str, str, str]:
    """Return CPU, system and environment of an LLVM triple, without vendor and versions: ("x86_64", "linux", "gnu").

    On bare metal the system is "none": ("riscv64", "none", "elf").
    """
    cpu, *rest = triple.split("-")
    if rest and rest[-1] in _BARE and not {"linux", "windows"} & set(rest):
        return cpu, "none", rest[-1]
    rest = rest[1:] if len(rest) > 1 else rest
    system = re.sub(r"[\d.]+$", "", rest[0]) if rest else ""
    environment = re.sub(r"[\d.]+$", "", rest[1]) if len(rest) > 1 else ""
    return cpu, "macosx" if system == "macos" else system, _SAME_ENVIRONMENT.get(environment, environment)


def contradiction(triple: str, data_layout: str, target: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Return (what, expected, actual) if the code is for another platform than `target` (triple, data_layout); or None.

    Absent is no contradiction, nor is what llvmlite calls a module by default, "unknown-unknown-unknown". A data layout
    may say less than the target's: older versions of LLVM, and CPUs without some registers, leave specifications out.
    """
    wanted = target["triple"]
    if (
        triple.partition("-")[0] not in ("", "unknown")
        and parts(triple) != parts(wanted)
        and parts(_canonical(triple)) != parts(wanted)
    ):
        return "the code is for another platform", wanted, triple
    said = {one for one in data_layout.split("-") if one and not _NATIVE_INTEGERS.fullmatch(one)}
    if said - set(target["data_layout"].split("-")):
        return "the code has another data layout than the target", target["data_layout"], data_layout
    return None


def _canonical(triple: str) -> str:
    """Return the triple of the target that `triple` is a name of, or itself."""
    from emitter.targets import _names

    try:
        name, _ = _names.parse(triple)
        return targets.load(name).llvm_triple
    except TargetError:
        return triple
