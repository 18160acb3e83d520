"""LLVM behind its one door: what is checked before it is entered, and that it agrees with the literals."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from elftools.elf.elffile import ELFFile

from emitter import llvm, targets
from emitter.errors import TargetError
from emitter.targets._base import Attributes, Property, Target

if TYPE_CHECKING:
    from pathlib import Path

ALL = list(targets.describe_all())
ELF = [target for target in ALL if target.object_format == "elf"]
every_target = pytest.mark.parametrize("target", ALL, ids=lambda target: target.name)
every_elf_target = pytest.mark.parametrize("target", ELF, ids=lambda target: target.name)
X86_64, AARCH64, RISCV64 = (targets.load(f"{cpu}-linux-gnu") for cpu in ("x86_64", "aarch64", "riscv64"))


def test_another_data_layout_is_refused_and_both_are_printed() -> None:
    wrong = AARCH64._replace(data_layout="e-m:e-i64:64")
    with pytest.raises(TargetError) as caught:
        llvm.emit_stub(wrong)
    assert (caught.value.expected, caught.value.actual) == ("e-m:e-i64:64", AARCH64.data_layout)
    assert "aarch64-unknown-linux-gnu" in str(caught.value)
    assert "data_layout" in str(caught.value)


LIES = [
    ("e_machine", X86_64._replace(e_machine=183), "183", "62"),
    ("e_flags_object", RISCV64._replace(e_flags_object=0x5), "0x5", "0x4"),
    ("e_ident", X86_64._replace(ei_osabi=3), "7f 45 4c 46 02 01 01 03", "7f 45 4c 46 02 01 01 00"),
    ("e_ident", X86_64._replace(byte_order="big"), "7f 45 4c 46 02 02 01 00", "7f 45 4c 46 02 01 01 00"),
    # LLVM has no flag for the fourth bit, and would leave it out in silence.
    ("properties", AARCH64._replace(properties=(Property(pr_type=0xC0000000, value=0xF),)), None, None),
    ("properties", RISCV64._replace(properties=(Property(pr_type=0xC0000000, value=0x1),)), None, None),
    (
        "attributes",
        X86_64._replace(
            attributes=Attributes(section=".ARM.attributes", sh_type=0x70000003, contents=b"A", p_type=None)
        ),
        None,
        None,
    ),
]


@pytest.mark.parametrize(("field", "target", "expected", "actual"), LIES)
def test_a_literal_that_llvm_contradicts_is_refused(
    field: str, target: Target, expected: str | None, actual: str | None
) -> None:
    with pytest.raises(TargetError) as caught:
        llvm.emit_stub(target)
    assert caught.value.where is not None
    assert caught.value.where.endswith(f": {field}")
    if expected is not None:
        assert (caught.value.expected, caught.value.actual) == (expected, actual)


@pytest.mark.parametrize(("abi_name", "features"), [("lp64d", ""), ("lp64d", "+f"), ("lp64f", ""), ("lp64d", "+f,-d")])
def test_an_abi_without_its_registers_is_refused(abi_name: str, features: str) -> None:
    """llvm/llvm-project#214079: LLVM would write the flag of the ABI and compile for another one."""
    with pytest.raises(TargetError, match=f"the ABI {abi_name} passes arguments"):
        llvm.emit_stub(RISCV64._replace(abi_name=abi_name, features=features))


def test_the_float_abi_of_a_data_only_object_is_the_target_s() -> None:
    """llvm/llvm-project#57242: without an ABI name and features, e_flags said soft float."""
    assert ELFFile(io.BytesIO(llvm.emit_stub(RISCV64)))["e_flags"] == 0x4  # EF_RISCV_FLOAT_ABI_DOUBLE


CODE = "@d = global i32 0\ndefine i32 @f() {\n  %x = load i32, ptr @d\n  ret i32 %x\n}\n"


def test_a_code_model_that_would_end_the_process_is_refused_before_llvm_is_entered() -> None:
    with pytest.raises(TargetError, match=r"code_model.*expected small or large, found medium"):
        llvm.emit_object(AARCH64._replace(code_model="medium"), CODE)


@every_target
def test_llvm_implements_every_code_model_of_the_table(target: Target, tmp_path: Path) -> None:
    """In a child process, since LLVM ends it where the table is wrong; its messages would be on standard error."""
    (tmp_path / "code.ll").write_text(CODE)
    code = (
        "import sys\nfrom emitter import llvm, targets\n"
        f"target = targets.load({target.name!r})\n"
        "for model in target.code_models:\n"
        "    print(model, len(llvm.emit_object(target._replace(code_model=model), open(sys.argv[1]).read())) > 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, os.fspath(tmp_path / "code.ll")], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{model} True" for model in target.code_models]


def test_llvm_says_nothing_while_it_makes_the_stubs() -> None:
    """It says on standard error that it does not know a CPU or a feature, and goes on with another."""
    code = (
        "from emitter import llvm, targets\n"
        "for target in targets.describe_all():\n"
        "    ir = '@x = constant i8 1'\n"
        "    assert llvm.emit_object(target, ir) == llvm.emit_object(target, ir)\n"
        "    assert target.object_format != 'elf' or llvm.emit_stub(target) == llvm.emit_stub(target)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("", "")


@every_elf_target
def test_small_data_is_near_and_llvm_s_large_section_is_the_literal_s(target: Target) -> None:
    """The default code model of llvmlite puts a constant of one byte out of reach."""
    ir = "@near = constant i8 1\n"
    if target.large_data:
        ir += f'@far = constant i8 2, section "{target.large_data.section}"\n'
    elf = ELFFile(io.BytesIO(llvm.emit_object(target, ir)))
    found = {s.name: s["sh_flags"] for s in elf.iter_sections() if s["sh_size"] and s["sh_flags"] & 0x2}
    expected = {".rodata": 0x2}
    if target.large_data:
        expected[target.large_data.section] = 0x2 | target.large_data.sh_flags
    assert {name: flags for name, flags in found.items() if "rodata" in name} == expected


@every_elf_target
def test_the_relative_relocation_is_the_one_that_llvm_writes(target: Target) -> None:
    word = f"i{target.pointer_width}"
    ir = (
        f"@data = constant i8 0\n@place = constant {word} sub ({word} ptrtoint (ptr @data to {word}), "
        f'{word} ptrtoint (ptr @place to {word})), section ".place"\n'
    )
    elf = ELFFile(io.BytesIO(llvm.emit_object(target, ir)))
    section: Any = elf.get_section_by_name(".rela.place") or elf.get_section_by_name(".rel.place")
    types = tuple(relocation["r_info_type"] for relocation in section.iter_relocations())
    if target.name == "loongarch64-linux-gnu":
        assert types == (109,)  # R_LARCH_64_PCREL, which linkers before 2023 do not know: the literal has the pair
    else:
        assert types == target.relocation_relative


def test_ir_that_llvm_refuses_is_an_error_that_names_the_target() -> None:
    with pytest.raises(TargetError, match=r"(?s)target x86_64-linux-gnu: LLVM refuses: .*expected"):
        llvm.emit_object(X86_64, "@x = nonsense")
    with pytest.raises(TargetError, match="LLVM refuses"):
        llvm.emit_stub(X86_64._replace(llvm_triple="pdp11-unknown-linux-gnu"))


def test_a_missing_llvmlite_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    with pytest.raises(TargetError, match="llvmlite is not installed; pip install llvmlite"):
        llvm.emit_stub(X86_64)


def test_the_command_makes_the_stubs_anew_and_removes_old_ones(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shipped = {target.name: targets.stub(target) for target in ELF}
    (tmp_path / "gone.o").write_bytes(b"")
    monkeypatch.setattr(targets, "STUBS", os.fspath(tmp_path))
    monkeypatch.setattr(llvm, "LLVM_MAJOR", llvm.llvm_major())
    llvm.regenerate()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"{name}.o" for name in shipped)
    if llvm.llvm_major() == 22:
        assert all((tmp_path / f"{name}.o").read_bytes() == stub for name, stub in shipped.items())
    monkeypatch.setattr(llvm, "LLVM_MAJOR", 1)
    with pytest.raises(SystemExit, match="LLVM_MAJOR"):
        llvm.regenerate()
