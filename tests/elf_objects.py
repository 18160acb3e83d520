"""Objects and archives for tests: planned by the emitter, written without its writer."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from emitter.pack.plan import plan_pack
from emitter.package import Package
from emitter.splice.archive import plan_archive
from emitter.splice.elf import plan_object
from emitter.splice.member import Member
from emitter.styles import style_model
from emitter.symbols import pack_model, tensor_symbols
from emitter.targets import load, names, stub
from tests.support import write_plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from elftools.elf.elffile import ELFFile

    from emitter.layout import FilePlan
    from emitter.model import ObjectModel
    from emitter.options import Style
    from emitter.pack.plan import PackPlan

__all__ = [
    "TARGET_NAMES",
    "package_of",
    "plan_model",
    "run",
    "section_of",
    "symbol_table",
    "write_pack_object",
    "write_styled",
]

TARGET_NAMES = [name for name in names() if load(name).object_format == "elf"]


def run(*command: str, check: bool = True, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a tool; skip the test by the tool's name where there is none."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, errors="replace")
    if check and done.returncode:
        pytest.fail(f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def package_of(payloads: Mapping[str, bytes | Path]) -> Package:
    """Return a package of raw tensors."""
    package = Package()
    for name, data in payloads.items():
        package.add_raw(name, data)
    return package


def plan_model(target_name: str, model: ObjectModel, *, archive: bool = False) -> FilePlan:
    """Return the plan of an object, or of an archive with that object as its member `model.o`."""
    target = load(target_name)
    contents = stub(target)
    if not archive:
        return plan_object(target, contents, model)
    symbols = [symbol.name for symbol in model.symbols]
    member = Member("model.o", symbols, lambda offset: plan_object(target, contents, model, file_offset=offset))
    return plan_archive([member])


def write_pack_object(
    target_name: str,
    package: Package,
    path: Path,
    *,
    name: str = "model",
    with_tensors: bool = False,
    **options: Any,
) -> PackPlan:
    """Write an object, or an archive if the path ends in `.a`, that holds `package`."""
    target = load(target_name)
    pack = plan_pack(package, target.byte_order)
    symbols = tensor_symbols(package.tensors, pack, f"{name}_t_") if with_tensors else []
    model = pack_model(target, pack, name=name, tensor_symbols=symbols, **options)
    write_plan(plan_model(target_name, model, archive=path.suffix == ".a"), pack, path)
    return pack


def write_styled(target_name: str, style: Style, package: Package, path: Path, **options: Any) -> ObjectModel:
    """Write an object in the symbol style of another tool."""
    model = style_model(load(target_name), style, package.tensors, **options)
    write_plan(plan_model(target_name, model), None, path)
    return model


def section_of(parsed: ELFFile, name: str) -> Any:
    """Return a section that must be there."""
    section = parsed.get_section_by_name(name)
    assert section is not None, name
    return section


def symbol_table(path: Path, prefix: str = "") -> Sequence[dict[str, str]]:
    """Return readelf's view of the symbols whose names begin with `prefix`."""
    rows = []
    for line in run("readelf", "-sW", str(path)).stdout.splitlines():
        fields = line.split()
        if len(fields) == 8 and fields[0].rstrip(":").isdigit() and fields[7].startswith(prefix):
            rows.append(
                dict(zip(("num", "value", "size", "type", "bind", "visibility", "index", "name"), fields, strict=True))
            )
    return rows
