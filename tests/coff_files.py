"""COFF objects, archives and DLLs for tests: planned by the emitter, written without its writer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from emitter.image.pe import plan_image
from emitter.pack.plan import plan_pack
from emitter.splice.archive_coff import plan_archive
from emitter.splice.coff import plan_object
from emitter.splice.member import Member
from emitter.symbols import pack_model, tensor_symbols
from emitter.targets import load, names

if TYPE_CHECKING:
    from emitter.layout import FilePlan
    from emitter.options import Format
    from emitter.pack.plan import PackPlan
    from emitter.package import Package
    from emitter.targets._base import Target

__all__ = ["TARGET_NAMES", "every_target", "plan_output"]

TARGET_NAMES = [name for name in names() if load(name).object_format == "coff"]
every_target = pytest.mark.parametrize("name", TARGET_NAMES)


def plan_output(
    target: Target, format_: Format, package: Package, *, name: str = "model", with_tensors: bool = True, **options: Any
) -> tuple[FilePlan, PackPlan]:
    """Return the plan of an output that holds `package`; an archive's member has a long name."""
    pack = plan_pack(package, "little", **options)
    symbols = tensor_symbols(package.tensors, pack, f"{name}_t_") if with_tensors else []
    if format_ == "library":
        return plan_image(target, pack, name=name, dll_name=f"{name}.dll", symbols=symbols), pack
    model = pack_model(target, pack, name=name, tensor_symbols=symbols)
    if format_ == "object":
        return plan_object(target, model), pack
    names = [target.symbol_prefix + symbol.name for symbol in model.symbols]
    member = Member("a_member_with_a_long_name.obj", names, lambda at: plan_object(target, model, file_offset=at))
    return plan_archive([member]), pack
