"""An object that holds the modules of TVM: what TVM's own packing makes, but aligned, and for any target."""

from __future__ import annotations

from emitter.interop.tvm_wire import LIBRARY_BIN, plan_wire
from emitter.model import ObjectModel, Section, Symbol
from emitter.records import TYPE_CHECKING
from emitter.symbols import use_large_data

if TYPE_CHECKING:
    from emitter.interop.tvm_wire import Wire
    from emitter.model import Visibility
    from emitter.package import Package
    from emitter.targets._base import Target

__all__ = ["ALIGNMENT", "library_bin_model", "wire_model"]

ALIGNMENT = 64  # of the first byte; TVM's own is 1

_SECTIONS = {"elf": ".rodata", "macho": "__TEXT,__const", "coff": ".rdata"}
_EXPORT = b" -export:%s,data"  # for the linker of a DLL: what __declspec(dllexport) becomes


def library_bin_model(
    target: Target, package: Package, *, alignment: int = ALIGNMENT, visibility: Visibility = "default"
) -> ObjectModel:
    """Return an object whose symbol `__tvm_ffi__library_bin` is the modules and tensors of `package`.

    `alignment` in bytes is that of the symbol, 64 at least. Raises what `tvm_wire.plan_wire` raises.
    """
    return wire_model(target, plan_wire(package), alignment=alignment, visibility=visibility)


def wire_model(
    target: Target, wire: Wire, *, alignment: int = ALIGNMENT, visibility: Visibility = "default"
) -> ObjectModel:
    """Return an object whose symbol `__tvm_ffi__library_bin` is `wire`, in read-only data.

    Beyond the reach of code the section is that for large data, where the target has one. On Windows the symbol is
    exported by a library that links the object.
    """
    large = target.large_data if use_large_data(target, wire.size, "auto") else None
    sections = [
        Section(
            name=large.section if large else _SECTIONS[target.object_format],
            kind="rodata",
            size=wire.size,
            alignment=max(alignment, ALIGNMENT),
            copies=wire.copies,
            pieces=wire.pieces,
            large=large is not None,
        )
    ]
    if target.object_format == "coff":
        directive = _EXPORT % LIBRARY_BIN.encode()
        sections.append(Section(name=".drectve", kind="directives", size=len(directive), alignment=1, data=directive))
    symbol = Symbol(name=LIBRARY_BIN, section=0, value=0, size=wire.size, visibility=visibility)
    return ObjectModel(sections=sections, symbols=[symbol])
