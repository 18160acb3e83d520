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


def parts(triple: str) -> tuple[str, str, str]:
    """Return CPU, system and environment of an LLVM triple, without vendor and versions: ("x86_64", "linux", "gnu")."""
    cpu, *rest = triple.split("-")
    rest = rest[1:] if len(rest) > 1 else rest
    system = re.sub(r"[\d.]+$", "", rest[0]) if rest else ""
    environment = re.sub(r"[\d.]+$", "", rest[1]) if len(rest) > 1 else ""
    return cpu, "macosx" if system == "macos" else system, _SAME_ENVIRONMENT.get(environment, environment)


def contradiction(triple: str, data_layout: str, target: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Return (what, expected, actual) if the code is for another platform than `target` (triple, data_layout); or None.

    Absent is no contradiction. A data layout may say less than the target's: older versions of LLVM, and CPUs without
    some registers, leave specifications out.
    """
    wanted = target["triple"]
    if triple and parts(triple) != parts(wanted) and parts(_canonical(triple)) != parts(wanted):
        return "the code is for another platform", wanted, triple
    said = set(data_layout.split("-")) - {""}
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
