"""What would read the placeholder in place of an attached payload is found in what compilers and linkers make of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emitter import targets
from emitter.attach.plan import plan_attach
from emitter.errors import UsageError
from emitter.pack.plan import plan_pack
from tests.attach_files import compile_kernels, link, linker, package_of, write_stub
from tests.c_tools import need
from tests.run.device import TARGETS, Device

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DECLARATION = "extern const unsigned char model[] ATTRIBUTE;\n"
# Code, and options of the linker, that make a reference direct.
DIRECT = {
    "address": "const void *f(void) { return model; }",
    "address within": "const void *f(void) { return model + 12; }",
    "byte": "unsigned f(void) { return model[5]; }",
    "word": "unsigned f(void) { return *(const unsigned *)(const void *)(model + 40); }",
    "double": "double f(void) { return *(const double *)(const void *)(model + 16); }",
    "loop": "int f(int n) { int i, s = 0; for (i = 0; i < n; i++) s += model[i]; return s; }",
    "compare": "int f(int n) { return model[7] == 3 ? n : 4; }",
    "two functions": "int f(int n) { return n; } int g(int n) { return n ? model[n] : 1; }",
    "pointer": "const void *const p[3] = {0, model, 0};",
}


def _attach(folder: Path, target: str, command: list[str], *options: str) -> None:
    found = targets.load(target)
    linked = link(command, folder / "linked.so", folder / "kernels.o", folder / "stub.o", *options)
    pack = plan_pack(package_of({"w": b"payload"}), found.byte_order)
    plan_attach(linked.read_bytes(), found, pack, name="model", where=str(linked))


@pytest.mark.parametrize("how", ["hidden", "-Bsymbolic"])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("target", [target for target in TARGETS if target != "x86_64-linux-musl"])
def test_a_direct_reference_is_found(
    target: str, compiler: str, how: str, device_for: Callable[[str], Device], tmp_path: Path
) -> None:
    device = device_for(target)
    command = device.toolchain.compilers()[compiler]
    need(command[0])
    write_stub(tmp_path / "stub.o", target)
    attribute = '__attribute__((visibility("hidden")))' if how == "hidden" else ""
    missed = []
    for name, code in DIRECT.items():
        compile_kernels(tmp_path, command, DECLARATION.replace("ATTRIBUTE", attribute) + code)
        try:
            with pytest.raises(UsageError, match="a reference would read the placeholder"):
                _attach(tmp_path, target, linker("bfd", device.toolchain), *([how] if how != "hidden" else []))
        except pytest.fail.Exception:
            missed.append(name)
    assert not missed


@pytest.mark.parametrize("linker_name", ["lld", "mold"])
@pytest.mark.parametrize("target", ["x86_64-linux-gnu", "aarch64-linux-gnu", "riscv64-linux-gnu"])
def test_a_reference_that_a_linker_relaxed_is_found(
    target: str, linker_name: str, device_for: Callable[[str], Device], tmp_path: Path
) -> None:
    device = device_for(target)
    need(device.toolchain.c)
    write_stub(tmp_path / "stub.o", target)
    for code in DIRECT.values():
        compile_kernels(tmp_path, [device.toolchain.c], DECLARATION.replace("ATTRIBUTE", "") + code)
        with pytest.raises(UsageError, match="a reference would read the placeholder"):
            _attach(tmp_path, target, linker(linker_name, device.toolchain), "-Bsymbolic")


@pytest.mark.parametrize("linker_name", ["lld", "mold"])
def test_packed_relative_relocations_are_read(
    linker_name: str, device_for: Callable[[str], Device], tmp_path: Path
) -> None:
    device = device_for("x86_64-linux-gnu")
    need(device.toolchain.c)
    write_stub(tmp_path / "stub.o", device.name)
    packed = "--pack-dyn-relocs=relr"
    code = (
        DECLARATION.replace("ATTRIBUTE", "")
        + "static int a[200]; const void *p[90] = {[3] = a, [88] = model, [89] = a};"
    )
    compile_kernels(tmp_path, [device.toolchain.c], code)
    with pytest.raises(UsageError, match="relocation at"):
        _attach(tmp_path, device.name, linker(linker_name, device.toolchain), "-Bsymbolic", packed)
    _attach(tmp_path, device.name, linker(linker_name, device.toolchain), packed)  # resolved by name
