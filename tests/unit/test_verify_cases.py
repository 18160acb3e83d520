"""Files with a known right answer (tests/data/cases.zip): what `emitter verify` must say of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emitter import inspect
from emitter.inspect.coff import CoffFile
from emitter.inspect.elf import ElfFile
from emitter.inspect.pe import PeFile
from emitter.verify import verify
from tests.verify_files import kept

if TYPE_CHECKING:
    from pathlib import Path

    from emitter.verify.result import Result

WIN, MAC = "x86_64-windows-msvc", "arm64-apple-macos"
X86, A64, RV, ARM = "x86_64-linux-gnu", "aarch64-linux-gnu", "riscv64-linux-gnu", "armv7-linux-gnueabihf"


def verified(name: str, folder: Path, target: str | None, page_size: int | None = None) -> Result:
    path = folder / name.rpartition("/")[2]
    path.write_bytes(kept(name))
    return verify(path, target=target, page_size=page_size, config="")


def errors(result: Result) -> list[tuple[str, str, str, str]]:
    return [(f.rule, f.subject, f.expected, f.actual) for f in result.findings if f.severity == "error"]


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("elf-odd/good.so", X86),
        ("elf-odd/good.o", X86),
        ("elf-odd/many.o", X86),
        ("page-align/a64_65536.so", A64),
        ("arm/pick_hard.o", ARM),
        ("arm/gnueabihf_data.o", ARM),
        ("bti/without.so", A64),
        ("bti/with.so", A64),
        ("coff/t1.obj", WIN),
        ("coff/longsect.obj", WIN),
        ("coff/dllexport.dll", WIN),
        ("coff/dllexport_brepro.dll", WIN),
        ("macho/macos11.o", MAC),
        ("macho-dylib/lld_arm64.dylib", MAC),
        ("device-code/synthetic.fatbin", None),
        ("device-code/noop.ptx", None),
    ],
)
def test_a_right_file_has_no_error(name: str, target: str | None, tmp_path: Path) -> None:
    result = verified(name, tmp_path, target)
    assert errors(result) == []
    assert len(result.files) == 1
    assert result.status == 0


@pytest.mark.parametrize(
    ("name", "target", "page_size", "expected"),
    [
        (
            "page-align/a64_4096.so",
            A64,
            None,
            [("elf-load-alignment", f"segment {n} (PT_LOAD)", "p_align of at least 65536", "4096") for n in (0, 1)],
        ),
        (
            "page-align/a64_patchelf.so",
            A64,
            16384,
            [("elf-load-alignment", "segment 6 (PT_LOAD)", "p_align of at least 16384", "4096")],
        ),
        ("elf-odd/textrel.so", X86, None, [("elf-text-relocations", "DT_TEXTREL", "none", "there")]),
        (
            "elf-odd/no_gnu_stack.so",
            X86,
            None,
            [("elf-gnu-stack", "PT_GNU_STACK", "there, without PF_X", "none: the stack is executable by default")],
        ),
        (
            "elf-odd/wrong_machine.so",
            X86,
            None,
            [("elf-machine", "e_machine", "62 (x86_64-linux-gnu)", "183 (AArch64)")],
        ),
        (
            "riscv-float-abi/data_nofeat.o",
            RV,
            None,
            [("elf-float-abi", "e_flags", "float ABI double", "float ABI soft")],
        ),
        (
            "riscv-float-abi/lie_flag.o",
            RV,
            None,
            [("elf-flags-attributes", "e_flags", "D in Tag_RISCV_arch for float ABI double", "rv64i2p1")],
        ),
        (
            "arm/pick_soft.o",
            ARM,
            None,
            [("elf-arm-float-arguments", "Tag_ABI_VFP_args", "VFP registers", "base (soft) registers")],
        ),
        (
            "reloc-overflow/rv_mold.so",
            RV,
            None,
            [("elf-code-reach", "code at 0x12e0", "tail at 0x900033e0", "address 0xffffffff900033e0")],
        ),
        (
            "misc/w_aarch64.so",
            f"{A64}.2.17",
            None,
            [("elf-symbol-version", "libm.so.6", "at most GLIBC_2.17", "GLIBC_2.29")],
        ),
        ("macho/noversion.o", MAC, None, [("macho-build-version", "LC_BUILD_VERSION", "there", "none")]),
        (
            "device-code/badmagic.fatbin",
            None,
            None,
            [("device-fatbin", "offset 0x0", "50 ed 55 ba", "not a fatbin: 00 00 00 00")],
        ),
        (
            "device-code/trunc.fatbin",
            None,
            None,
            [("device-fatbin", "offset 0x8", "160 bytes", "the fatbin is truncated: 151")],
        ),
        (
            "device-code/noop_bom.ptx",
            None,
            None,
            [("device-ptx", "", ".version", "the text begins with a byte-order mark: ef bb bf")],
        ),
    ],
)  # fmt: skip
def test_the_one_fault_of_a_file_is_found(
    name: str, target: str | None, page_size: int | None, expected: list[tuple[str, ...]], tmp_path: Path
) -> None:
    result = verified(name, tmp_path, target, page_size)
    assert errors(result) == expected
    assert result.status == 1


@pytest.mark.parametrize(
    ("name", "target", "rules"),
    [
        ("elf-odd/trunc_load.so", X86, {"elf-segment-in-file", "file-malformed"}),
        ("elf-odd/rwx.so", X86, {"elf-segment-writable-code"}),
        # The blob in it has the faults of ld -b as well.
        ("ld-b-binary/libexec.so", X86, {"elf-gnu-stack-executable", "elf-data-symbol", "elf-absolute-symbol"}),
        (
            "ld-b-binary/ld_aarch64.o",
            A64,
            {
                "elf-object-gnu-stack",
                "elf-data-symbol",
                "elf-data-alignment",
                "elf-data-writable",
                "elf-absolute-symbol",
            },
        ),
    ],
)
def test_all_faults_of_a_file_are_found(name: str, target: str, rules: set[str], tmp_path: Path) -> None:
    result = verified(name, tmp_path, target)
    assert {rule for rule, *_ in errors(result)} == rules


def test_a_mixed_archive_names_the_member(tmp_path: Path) -> None:
    result = verified("elf-odd/mixed.a", tmp_path, X86)
    assert ("archive-mixed", "member good_a64.o") in [(rule, subject) for rule, subject, *_ in errors(result)]
    wrong = [finding for finding in result.findings if finding.rule == "elf-machine"]
    assert [finding.member for finding in wrong] == ["good_a64.o"]


def test_an_empty_file_is_no_pass(tmp_path: Path) -> None:
    result = verified("elf-odd/empty.so", tmp_path, X86)
    assert result.status == 2
    assert "the file is empty" in str(result.errors[0])


def test_all_sections_of_a_large_object_are_read(tmp_path: Path) -> None:
    path = tmp_path / "many.o"
    path.write_bytes(kept("elf-odd/many.o"))
    with inspect.open_file(path) as artefact:
        assert isinstance(artefact.reader, ElfFile)
        assert len(artefact.reader.shdrs) == 66_009
    assert verify(path, target=X86, config="").status == 0


def test_protection_that_was_lost_differs_from_protection_that_is_there(tmp_path: Path) -> None:
    lost = verified("bti/with.so", tmp_path, A64)
    assert [(f.rule, f.severity, f.expected, f.actual) for f in lost.findings if "protection" in f.rule] == [
        ("elf-branch-protection-lost", "warning", "BTI", "none")
    ]
    assert not [f for f in verified("bti/without.so", tmp_path, A64).findings if "protection" in f.rule]


def test_an_edited_page_does_not_match_its_signature(tmp_path: Path) -> None:
    found = errors(verified("macho-dylib/lld_arm64_edited.dylib", tmp_path, MAC))
    assert [(rule, subject) for rule, subject, *_ in found] == [("macho-signature", "page 0")]


def test_the_time_of_a_build_is_told_from_a_hash(tmp_path: Path) -> None:
    for name, stamped in (("coff/dllexport.dll", True), ("coff/dllexport_brepro.dll", False)):
        rules = {finding.rule for finding in verified(name, tmp_path, WIN).findings}
        assert ("pe-time-stamp" in rules) == stamped


@pytest.mark.parametrize("name", ["coff/dllexport.dll", "coff/dllexport_brepro.dll"])
def test_an_export_of_data_is_found(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.dll"
    path.write_bytes(kept(name))
    with inspect.open_file(path) as artefact:
        assert isinstance(artefact.reader, PeFile)
        assert [export.name for export in artefact.reader.exports()]
        assert not [export for export in artefact.reader.exports() if not export.rva]


def test_full_names_of_sections_are_read(tmp_path: Path) -> None:
    path = tmp_path / "x.obj"
    path.write_bytes(kept("coff/longsect.obj"))
    with inspect.open_file(path) as artefact:
        assert isinstance(artefact.reader, CoffFile)
        assert max(len(section.name) for section in artefact.reader.sections) > 8
