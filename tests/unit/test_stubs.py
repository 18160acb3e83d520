"""The shipped stubs: what tools that others wrote read in them, and that LLVM still makes the same."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from elftools.elf.elffile import ELFFile

from emitter import targets
from emitter.llvm import LLVM_MAJOR, emit_stub, llvm_major
from emitter.targets._base import Target

if TYPE_CHECKING:
    from pathlib import Path

ALL = [target for target in targets.describe_all() if target.object_format == "elf"]
every_target = pytest.mark.parametrize("target", ALL, ids=lambda target: target.name)


def sections(stub: bytes) -> dict[str, Any]:
    return {section.name: section for section in ELFFile(io.BytesIO(stub)).iter_sections()}


def test_every_elf_target_has_a_stub_and_no_other_has() -> None:
    assert sorted(os.listdir(targets.STUBS)) == sorted(f"{target.name}.o" for target in ALL)


@every_target
def test_llvm_makes_the_shipped_stub(target: Target) -> None:
    made = emit_stub(target)
    if llvm_major() == LLVM_MAJOR:
        assert made == targets.stub(target), "run `python -m emitter.llvm` and look at the difference"
    else:
        shipped = sections(targets.stub(target))
        assert {name: (s["sh_type"], s["sh_flags"], s.data()) for name, s in sections(made).items()} == {
            name: (s["sh_type"], s["sh_flags"], s.data()) for name, s in shipped.items()
        }


@every_target
def test_the_header_is_the_literal_s(target: Target) -> None:
    elf = ELFFile(io.BytesIO(targets.stub(target)))
    assert elf.elfclass == target.pointer_width
    assert elf.little_endian == (target.byte_order == "little")
    assert elf["e_type"] == "ET_REL"
    assert elf["e_flags"] == target.e_flags_object
    raw = targets.stub(target)
    assert int.from_bytes(raw[18:20], target.byte_order) == target.e_machine
    assert raw[7] == target.ei_osabi
    assert elf["e_ident"]["EI_ABIVERSION"] == 0


@every_target
def test_a_stub_holds_what_the_literal_says_and_nothing_else(target: Target) -> None:
    found = sections(targets.stub(target))
    hosted = target.image_suffix is not None
    expected = ["", ".note.GNU-stack"] if hosted else [""]
    expected += [".note.gnu.property"] if target.properties else []
    expected += [target.attributes.section] if target.attributes else []
    assert list(found) == [*expected, ".symtab", ".strtab"]
    assert [symbol.name for symbol in found[".symtab"].iter_symbols()] == [""]
    if hosted:
        assert (found[".note.GNU-stack"]["sh_type"], found[".note.GNU-stack"]["sh_flags"]) == ("SHT_PROGBITS", 0)
    if target.attributes:
        section = found[target.attributes.section]
        assert section.data() == target.attributes.contents
        assert section["sh_flags"] == 0
        start = section["sh_offset"]  # pyelftools gives the type a name that depends on the CPU
        assert targets.stub(target)[start : start + section["sh_size"]] == target.attributes.contents
    if target.properties:
        section = found[".note.gnu.property"]
        assert (section["sh_type"], section["sh_flags"]) == ("SHT_NOTE", 2)
        assert section["sh_addralign"] == target.pointer_width // 8
        [note] = section.iter_notes()
        assert (note["n_name"], note["n_type"]) == ("GNU", "NT_GNU_PROPERTY_TYPE_0")
        word = {"little": "little", "big": "big"}[target.byte_order]
        assert note["n_descdata"][:12] == b"".join(
            value.to_bytes(4, word)  # type: ignore[arg-type]  # a str of the two that it may be
            for value in (target.properties[0].pr_type, 4, target.properties[0].value)
        )


# What GNU readelf prints of the attributes: exact, since a line more is something that data would do to a program.
V7E_M = ["Tag_CPU_arch: v7E-M", "Tag_CPU_arch_profile: Microcontroller"]
V6_M = ["Tag_CPU_arch: v6-M", "Tag_CPU_arch_profile: Microcontroller"]
ALIGN_8 = ["Tag_ABI_align_needed: 8-byte", "Tag_ABI_align_preserved: 8-byte, except leaf SP"]
RV64 = ["Tag_RISCV_stack_align: 16-bytes", 'Tag_RISCV_arch: "rv64i2p0_f2p0_d2p0"']
ATTRIBUTES = {
    "armv7-linux-gnueabihf": [
        "Tag_CPU_arch: v7", "Tag_CPU_arch_profile: Application", "Tag_FP_arch: VFPv3-D16",
        "Tag_ABI_align_needed: 8-byte", "Tag_ABI_align_preserved: 8-byte, except leaf SP",
        "Tag_ABI_VFP_args: VFP registers",
    ],
    "armv7-linux-androideabi": ["Tag_CPU_arch: v7", "Tag_CPU_arch_profile: Application", *ALIGN_8],
    "thumbv7em-none-eabihf": [*V7E_M, *ALIGN_8, "Tag_ABI_VFP_args: VFP registers"],
    "thumbv6m-none-eabi": [*V6_M, *ALIGN_8],
    "riscv64-linux-gnu": RV64,
    "riscv64-linux-android": RV64,
    "riscv64gc-none-elf": RV64,
    "riscv32imac-none-elf": ["Tag_RISCV_stack_align: 16-bytes", 'Tag_RISCV_arch: "rv32i2p0"'],
}  # fmt: skip


@every_target
def test_readelf_reads_the_attributes(target: Target) -> None:
    if shutil.which("readelf") is None:
        pytest.skip("readelf is not installed")
    path = os.path.join(targets.STUBS, f"{target.name}.o")
    done = subprocess.run(["readelf", "-AW", path], check=True, capture_output=True, text=True)
    tags = [line.strip() for line in done.stdout.splitlines() if line.strip().startswith("Tag_")]
    assert tags == ATTRIBUTES.get(target.name, [])
    assert done.stderr == ""


@every_target
def test_elflint_finds_nothing(target: Target) -> None:
    if shutil.which("eu-elflint") is None:
        pytest.skip("eu-elflint is not installed")
    path = os.path.join(targets.STUBS, f"{target.name}.o")
    done = subprocess.run(["eu-elflint", "--gnu-ld", path], check=False, capture_output=True, text=True)
    said = {line.strip() for line in (done.stdout + done.stderr).splitlines()}
    if target.name == "loongarch64-linux-gnu":  # elfutils before 0.189 does not know the CPU
        said -= {"unknown machine type 258", "invalid machine flags: 0x43", f"{path}:", ""}
    assert said <= {"No errors"}


def test_a_target_that_is_not_shipped_is_emitted_on_the_spot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mine = targets.load("aarch64-linux-gnu")._replace(name="my-board")
    assert targets.stub(mine) == targets.stub(targets.load("aarch64-linux-gnu"))
    monkeypatch.setattr(targets, "STUBS", os.fspath(tmp_path))
    shipped = targets.load("s390x-linux-gnu")
    assert targets.stub(shipped) == emit_stub(shipped)


def test_a_changed_literal_does_not_get_the_shipped_stub() -> None:
    """A RISC-V target with compressed code says so in its flags."""
    changed = targets.load("riscv64-linux-gnu")._replace(features="+f,+d,+c", e_flags_object=0x5)
    assert ELFFile(io.BytesIO(targets.stub(changed)))["e_flags"] == 0x5
