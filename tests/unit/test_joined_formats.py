"""Code and a pack in one object: LLVM's tools find in it all that objects of Mach-O and COFF can hold."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import pytest

from emitter.errors import InputError, LayoutError
from tests.joined_files import (
    ARM,
    COFF,
    COFF_SECTION,
    HINTS,
    INDIRECT,
    INTEL,
    JUMPS,
    MANY,
    UNUSUAL,
    WINDOWS,
    assembled,
    change_word,
    coff_section,
    emit_joined,
    joined_plan,
    load_command,
    patch,
    strings_at,
)
from tests.macho_files import run

if TYPE_CHECKING:
    from pathlib import Path


class Case(NamedTuple):
    """A source, and lines that a tool must print of the joined object, blanks put together."""

    name: str
    target: str
    source: str
    tool: str
    said: tuple[str, ...]


MACHO = [
    Case(
        "indirect symbols",
        INTEL,
        INDIRECT,
        "llvm-objdump --macho --indirect-symbols",
        (
            "Indirect symbols for (__TEXT,__stubs) 1 entries",
            "0x000000000000000c 6 _outside",
            "Indirect symbols for (__DATA,__la_symbol_ptr) 2 entries",
            "0x0000000000000012 6 _outside",
            "0x000000000000001a 5 _weight",
            "0x0000000000000022 4 _model_t_w",
            "0x000000000000002a LOCAL",
        ),
    ),
    Case(
        "options for the linker",
        INTEL,
        '_f: nop\n.linker_option "-lz"\n.linker_option "-framework", "Metal"\n',
        "llvm-objdump --macho --private-headers",
        ("string #1 -lz", "string #1 -framework", "string #2 Metal"),
    ),
    Case("no subsections", INTEL, "_f: nop", "llvm-readobj --file-headers", ("Flags [ (0x0)",)),
    Case(
        "subsections",
        INTEL,
        "_f: nop\n.subsections_via_symbols",
        "llvm-readobj --file-headers",
        ("Flags [ (0x2000)", "MH_SUBSECTIONS_VIA_SYMBOLS (0x2000)"),
    ),
    Case(
        "constants in __TEXT,__const, where the size of the pack would be",
        ARM,
        ".section __TEXT,__const\n.globl _k\n_k: .quad 3",
        "llvm-nm -m",
        (
            "0000000000000000 (__TEXT,__const) external _k",
            "0000000000000040 (__TEXT,__emitter_size) private external _model_size",
        ),
    ),
    Case(
        "symbols of every kind, in the order that the table has",
        INTEL,
        ".comm _shared, 16, 3\n.lcomm _zeros, 9, 4\n.globl _z, _a, _soft\n.weak_definition _soft\n"
        "_z: nop\n_soft: nop\n_a: callq _outside\n_own: nop\n.weak_reference _maybe\n.data\n.quad _maybe, _model_t_w",
        "llvm-nm -m -p",
        (
            "0000000000000020 (__DATA,__bss) non-external _zeros",
            "0000000000000007 (__TEXT,__text) non-external _own",
            "0000000000000002 (__TEXT,__text) external _a",
            "0000000000000080 (__TEXT,__emitter) private external _model",
            "0000000000000001 (__TEXT,__text) weak external _soft",
            "0000000000000000 (__TEXT,__text) external _z",
            "(undefined) weak external _maybe",
            "(undefined) external _outside",
            "0000000000000010 (common) (alignment 2^3) external _shared",
        ),
    ),
    Case(
        "tables of jumps in the code",
        INTEL,
        JUMPS,
        "llvm-objdump --macho --data-in-code",
        ("Data in code table (1 entries)", "0x00000001 12 JUMP_TABLE32"),
    ),
    Case(
        "hints for optimising linkers",
        ARM,
        HINTS,
        "llvm-objdump --macho --link-opt-hints",
        ("identifier 4 AdrpLdrGotLdr", "value 0x0", "value 0x4", "value 0x8"),
    ),
]
COFF_CASES = [
    Case(
        "weak, common and static symbols",
        WINDOWS,
        UNUSUAL,
        "llvm-nm -p",
        (
            "00000000 R pick",
            "00000000 T weight",
            "U outside",
            "0000000c t model_t_v",
            "00000000 W soft",
            "00000010 C shared",
            "00000000 R model",
        ),
    ),
    Case(
        "records beside symbols",
        WINDOWS,
        UNUSUAL,
        "llvm-readobj --symbols",
        ("Selection: Any (0x2)", "AssocSection: .rdata$x (4)", "Linked: .weak.soft.default.weight (17)"),
    ),
    Case(
        "a weak declaration of a tensor, beside which the tensor stands",
        WINDOWS,
        ".globl f\nf: leaq model_t_w(%rip), %rax\n.weak model_t_w",
        "llvm-nm -p",
        ("00000000 W model_t_w", "00000180 R model_t_w"),
    ),
    Case(
        "more relocations than a header can say",
        WINDOWS,
        ".data\n.rept 70000\n.long outside\n.endr\n.long model_t_w",
        "llvm-objdump -r",
        (
            "0000000000000000 IMAGE_REL_AMD64_ADDR32 outside",
            "00000000000445bc IMAGE_REL_AMD64_ADDR32 outside",
            "00000000000445c0 IMAGE_REL_AMD64_ADDR32 model_t_w",
        ),
    ),
]


def lines(tool: str, path: Path) -> list[str]:
    name, *options = tool.split()
    return [" ".join(line.split()) for line in run(name, *options, path).splitlines()]


@pytest.mark.parametrize("case", [*MACHO, *COFF_CASES], ids=lambda case: case.name)
def test_tools_find_what_the_code_had(case: Case, tmp_path: Path) -> None:
    """The lines are there, in this order."""
    found = lines(case.tool, emit_joined(tmp_path, case.target, assembled(case.target, case.source)))
    rest = iter(found)
    assert [line for line in case.said if line not in rest] == [], found


def test_the_table_of_symbols_is_told_apart(tmp_path: Path) -> None:
    """LC_DYSYMTAB: local, defined and undefined symbols, one group behind the other."""
    output = emit_joined(tmp_path, INTEL, assembled(INTEL, INDIRECT))
    found = dict(
        line.rsplit(None, 1) for line in lines("llvm-objdump --macho --private-headers", output) if " " in line
    )
    groups = ("ilocalsym", "nlocalsym", "iextdefsym", "nextdefsym", "iundefsym", "nundefsym")
    assert [found[one] for one in groups] == ["0", "2", "2", "4", "6", "1"]


def test_a_debuggers_entry_stays_one(tmp_path: Path) -> None:
    """N_FUN with any other bits, called as the pack is: no symbol that linkers see."""
    for n_type in (0x24, 0x25):
        code = bytearray(assembled(INTEL, "_models: nop\n.globl _f\n_f: nop"))
        symoff, stroff = (struct.unpack_from("<I", code, load_command(code, 2) + at)[0] for at in (8, 16))
        assert code.count(b"_models\0", stroff) == 1
        code = code.replace(b"_models\0", b"_model\0\0")
        patch(code, symoff + 4, "B", n_type)
        found = lines("llvm-nm -a -p", emit_joined(tmp_path, INTEL, bytes(code)))
        assert found[0].split()[1:] in (["-", "01", "0000", "FUN", "_model"], ["-", "01", "0000", "25", "_model"])
        assert sum(line.endswith(" _model") for line in found) == 2


@pytest.mark.parametrize("name", ["_model", "_model_size", "_model_t_v"])
@pytest.mark.parametrize("how", ["defined", "common", "absolute"])
def test_names_of_the_pack_are_taken_on_apple(name: str, how: str, tmp_path: Path) -> None:
    source = {
        "defined": f".globl {name}\n{name}: nop",
        "common": f".comm {name}, 8, 3",
        "absolute": f".globl {name}\n{name} = 7",
    }
    code = assembled(INTEL, source[how])
    with pytest.raises(LayoutError, match=f"^code.o: the code defines a symbol of the pack: found {name}$"):
        joined_plan(INTEL, code)
    with pytest.raises(InputError, match="the code defines what is a name of the constants"):
        emit_joined(tmp_path, INTEL, code)


@pytest.mark.parametrize("name", ["model", "model_size", "model_t_v"])
@pytest.mark.parametrize("how", ["defined", "common", "absolute"])
def test_names_of_the_pack_are_taken_on_windows(name: str, how: str, tmp_path: Path) -> None:
    source = {
        "defined": f".globl {name}\n{name}: nop",
        "common": f".comm {name}, 8",
        "absolute": f".globl {name}\n{name} = 7",
    }
    code = assembled(WINDOWS, source[how])
    with pytest.raises(LayoutError, match=f"^code.o: the code defines a symbol of the pack: found {name}$"):
        joined_plan(WINDOWS, code)
    with pytest.raises(InputError, match="the code defines what is a name of the constants"):
        emit_joined(tmp_path, WINDOWS, code)


@pytest.mark.parametrize(
    ("sections", "options"),
    [
        ("__TEXT,__emitter", {}),
        ("__TEXT,__mine", {"section": "__TEXT,__mine"}),
        ("__TEXT,__const __TEXT,__emitter_size", {}),
    ],
)
def test_a_section_of_the_packs_name_is_refused(sections: str, options: dict[str, str], tmp_path: Path) -> None:
    code = assembled(INTEL, "_f: nop\n" + "".join(f".section {one}\n.quad 1\n" for one in sections.split()))
    with pytest.raises(LayoutError, match=r"the code has a section of this name.* --section"):
        emit_joined(tmp_path, INTEL, code, **options)


def test_the_header_of_coff_is_kept(tmp_path: Path) -> None:
    """Its Characteristics; an optional header, which no object needs, and the time stamp go."""
    code = assembled(WINDOWS, UNUSUAL)
    flagged = bytearray(code)
    patch(flagged, 4, "I", 1234567890)
    patch(flagged, COFF["Characteristics"], "H", 0x4)
    found = lines("llvm-readobj --file-headers", emit_joined(tmp_path, WINDOWS, bytes(flagged)))
    assert "IMAGE_FILE_LINE_NUMS_STRIPPED (0x4)" in found
    assert "TimeDateStamp: 1970-01-01 00:00:00 (0x0)" in found and "OptionalHeaderSize: 0" in found
    longer = bytearray(code[:20] + bytes(8) + code[20:])
    patch(longer, 16, "H", 8)
    change_word(longer, COFF["PointerToSymbolTable"], lambda at: at + 8)
    for header in range(28, 28 + 40 * struct.unpack_from("<H", code, 2)[0], 40):
        for pointer in (20, 24):
            change_word(longer, header + pointer, lambda at: at + 8 if at else 0)
    assert joined_plan(WINDOWS, bytes(longer)).pieces == joined_plan(WINDOWS, code).pieces


def test_an_empty_string_table_may_be_missing(tmp_path: Path) -> None:
    code = assembled(WINDOWS, ".globl f\nf: nop")
    at = strings_at(code)
    assert code[at:] == b"\4\0\0\0"
    assert joined_plan(WINDOWS, code[:at]) == joined_plan(WINDOWS, code)
    output = emit_joined(tmp_path, WINDOWS, code[:at])
    assert {"00000000 T f", "00000000 R model_size"} <= set(lines("llvm-nm", output))


def test_every_relocation_of_many_is_there(tmp_path: Path) -> None:
    output = emit_joined(tmp_path, WINDOWS, assembled(WINDOWS, MANY))
    assert sum("IMAGE_REL_AMD64_ADDR32" in line for line in lines("llvm-objdump -r", output)) == 65536
    assert "IMAGE_SCN_LNK_NRELOC_OVFL (0x1000000)" in lines("llvm-readobj --sections", output)


def test_as_many_relocations_as_a_header_can_say(tmp_path: Path) -> None:
    """65535 without IMAGE_SCN_LNK_NRELOC_OVFL: no record with their number stands before them."""
    code = bytearray(assembled(WINDOWS, MANY.replace("65536", "65535")))
    header = coff_section(code, ".data")
    change_word(code, header + COFF_SECTION["PointerToRelocations"], lambda at: at + 10)
    change_word(code, header + 36, lambda characteristics: characteristics & ~0x1000000)
    output = emit_joined(tmp_path, WINDOWS, bytes(code))
    assert sum("IMAGE_REL_AMD64_ADDR32" in line for line in lines("llvm-objdump -r", output)) == 65535
