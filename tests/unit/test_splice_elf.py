"""Objects of every target, judged by readelf, elfutils, pyelftools and linkers."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emitter.errors import FormatError, LayoutError
from emitter.layout import BULK_ALIGNMENTS, Copy
from emitter.model import ObjectModel, Reference, Section, Symbol
from emitter.pack.plan import plan_pack
from emitter.package import BufferSource, Extent
from emitter.splice.elf import plan_object
from emitter.splice.stub import read_stub
from emitter.symbols import pack_model
from emitter.targets import load, stub
from tests.c_tools import toolchain_of
from tests.elf_objects import TARGET_NAMES, package_of, plan_model, run, section_of, symbol_table, write_pack_object
from tests.support import write_plan

if TYPE_CHECKING:
    from pathlib import Path

    from emitter.layout import FilePlan

every_target = pytest.mark.parametrize("name", TARGET_NAMES)

PAYLOADS = {"a.weight": bytes(range(256)) * 20, "b": b"three", "empty": b""}

ELFLINT_ALLOWED = (
    # It knows the notes of GNU alone.
    r"unknown object file note type 1 with owner name 'emitter' at offset \d+",
)
# elfutils 0.188 and binutils 2.40 do not know this machine, or not all of its relocations.
UNKNOWN_MACHINES = {"loongarch64-linux-gnu"}


@every_target
def test_elflint_and_readelf_find_nothing(name: str, tmp_path: Path) -> None:
    path = tmp_path / "m.o"
    write_pack_object(name, package_of(PAYLOADS), path, with_tensors=True, retain=True)
    said = run("readelf", "-aW", str(path))
    if name in UNKNOWN_MACHINES:
        pytest.skip("elfutils does not know the machine")
    assert not re.search(r"(?i)warning|error|corrupt|unrecogni", said.stdout + said.stderr)
    faults = [
        line
        for line in run("eu-elflint", "--gnu-ld", str(path), check=False).stdout.splitlines()
        if line != "No errors" and not any(re.search(allowed, line) for allowed in ELFLINT_ALLOWED)
    ]
    assert faults == []


@every_target
def test_file_header_and_attributes_are_the_targets(name: str, tmp_path: Path) -> None:
    target = load(name)
    write_pack_object(name, package_of(PAYLOADS), tmp_path / "m.o")
    with (tmp_path / "m.o").open("rb") as file:
        parsed = ELFFile(file)
        assert parsed.header["e_type"] == "ET_REL"
        assert parsed.header["e_flags"] == target.e_flags_object
        assert parsed.elfclass == target.pointer_width
        assert parsed.little_endian == (target.byte_order == "little")
        file.seek(18)
        assert int.from_bytes(file.read(2), target.byte_order) == target.e_machine
        file.seek(7)
        assert file.read(1)[0] == target.ei_osabi
        if target.image_suffix is None:
            assert parsed.get_section_by_name(".note.GNU-stack") is None
        else:
            stack = section_of(parsed, ".note.GNU-stack")
            assert (stack["sh_flags"], stack["sh_size"]) == (0, 0)
        if target.attributes:
            attributes = section_of(parsed, target.attributes.section)
            assert attributes.data() == target.attributes.contents
        names = {section.name for section in parsed.iter_sections()}
        assert (".note.gnu.property" in names) == bool(target.properties)
        for number, one in enumerate(target.properties):
            order = target.byte_order
            contents = section_of(parsed, ".note.gnu.property").data()
            assert contents[16:20] == one.pr_type.to_bytes(4, order), number
            assert contents[24:28] == one.value.to_bytes(4, order), number


@every_target
def test_pack_is_where_the_symbol_says(name: str, tmp_path: Path) -> None:
    target = load(name)
    package = package_of(PAYLOADS)
    path = tmp_path / "m.o"
    pack = write_pack_object(name, package, path, with_tensors=True, visibility="protected")
    rows = {row["name"]: row for row in symbol_table(path, "model")}
    assert list(rows) == ["model", "model_size", "model_t_a_weight", "model_t_b", "model_t_empty"]
    assert all(
        (row["type"], row["bind"], row["visibility"]) == ("OBJECT", "GLOBAL", "PROTECTED") for row in rows.values()
    )
    with path.open("rb") as file:
        parsed = ELFFile(file)
        section = parsed.get_section(int(rows["model"]["index"]))
        assert (section["sh_type"], section["sh_flags"], section["sh_addralign"]) == ("SHT_PROGBITS", 0x2, 64)
        assert int(rows["model"]["size"]) == section["sh_size"] == pack.total_size
        image = section.data()
        assert image[:8] == b"\x89EMT\r\n\x1a\n"
        for tensor, payload in PAYLOADS.items():
            row = rows[f"model_t_{tensor.replace('.', '_')}"]
            start, size = int(row["value"], 16), int(row["size"], 0)
            assert image[start : start + size] == payload
        size_section = parsed.get_section(int(rows["model_size"]["index"]))
        assert size_section.data() == pack.total_size.to_bytes(target.pointer_width // 8, target.byte_order)
        assert size_section["sh_flags"] == 0x2
        assert size_section.name != section.name


@every_target
def test_linker_writes_the_distance_to_the_pack_into_the_note(name: str, tmp_path: Path) -> None:
    # GNU ld and lld of the target, as far as they are here, place the sections; the note must lead to the pack.
    toolchain = toolchain_of(name)
    target = load(name)
    pack = write_pack_object(name, package_of(PAYLOADS), tmp_path / "m.o", retain=True)
    (tmp_path / "main.c").write_text("int main(void) { return 0; }\n")
    for mode in ("-shared", "-no-pie", "-pie"):
        extra = ["-fPIC"] if mode != "-no-pie" else []
        run(toolchain.c, mode, *extra, "-Wl,--gc-sections", "main.c", "m.o", "-o", "out", cwd=tmp_path)
        data = (tmp_path / "out").read_bytes()
        with (tmp_path / "out").open("rb") as file:
            section = section_of(ELFFile(file), ".note.emitter")
            at = section["sh_offset"] + 20
            width = target.pointer_width // 8
            distance = int.from_bytes(data[at : at + width], target.byte_order, signed=True)
            size = int.from_bytes(data[at + width : at + 2 * width], target.byte_order)
            address = section["sh_addr"] + 20 + distance
            (place,) = ELFFile(file).address_offsets(address, pack.total_size)
        assert size == pack.total_size
        assert data[place : place + 8] == b"\x89EMT\r\n\x1a\n", mode
        assert address % 64 == 0


def test_object_without_retain_has_no_note_and_no_relocations(tmp_path: Path) -> None:
    write_pack_object("x86_64-linux-gnu", package_of(PAYLOADS), tmp_path / "m.o")
    listing = run("readelf", "-SW", str(tmp_path / "m.o")).stdout
    assert ".note.emitter" not in listing
    assert ".rela" not in listing


def many_sections(count: int) -> ObjectModel:
    sections = [
        Section(name=f".rodata.{number % 7}", kind="rodata", size=4, alignment=4, data=number.to_bytes(4, "little"))
        for number in range(count)
    ]
    symbols = [Symbol(name=f"s{number}", section=number, value=0, size=4) for number in range(count)]
    references = [Reference(section=0, offset=0, to=count - 1)]
    wide = Section(name=".rodata.wide", kind="rodata", size=8, alignment=8, data=bytes(8))
    references = [Reference(section=count, offset=0, to=count - 1)]
    return ObjectModel(sections=[*sections, wide], symbols=symbols, references=references)


# With one section more, the model's last section, then e_shstrndx, then e_shnum no longer fit into their fields.
@pytest.mark.parametrize("count", [0xFF00 - 9, 0xFF00 - 8, 0xFF00 - 7, 0xFF00 - 6, 0xFF00 - 1, 0xFF00, 0xFF01])
def test_extended_section_numbers(tmp_path: Path, count: int) -> None:
    path = tmp_path / "many.o"
    write_plan(plan_model("x86_64-linux-gnu", many_sections(count)), None, path)
    # pyelftools resolves SHN_XINDEX on its own.
    with path.open("rb") as file:
        parsed = ELFFile(file)
        names = {section.name for section in parsed.iter_sections()}
        assert {".shstrtab", ".symtab", ".note.GNU-stack", ".rela.rodata.wide"} <= names
        symtab = section_of(parsed, ".symtab")
        last = symtab.get_symbol_by_name(f"s{count - 1}")[0]
        index = last["st_shndx"]
        if index in {"SHN_XINDEX", 0xFFFF}:
            shndx = section_of(parsed, ".symtab_shndx")
            index = shndx.get_section_index(symtab.num_symbols() - 1)
        assert parsed.get_section(index).data() == (count - 1).to_bytes(4, "little")


@pytest.mark.parametrize("linker", ["ld", "ld.lld", "mold"])
def test_linkers_read_extended_section_numbers(tmp_path: Path, linker: str) -> None:
    count = 0xFF10
    write_plan(plan_model("x86_64-linux-gnu", many_sections(count)), None, tmp_path / "many.o")
    (tmp_path / "main.c").write_text(
        f"extern const int s1, s{count - 1}; int main(void) {{ return s1 != 1 || s{count - 1} != {count - 1}; }}\n"
    )
    flag = {"ld": "bfd", "ld.lld": "lld", "mold": "mold"}[linker]
    run(linker, "--version")
    run("gcc", f"-fuse-ld={flag}", "main.c", "many.o", "-o", "main", cwd=tmp_path)
    run(str(tmp_path / "main"))


def sized(name: str, size: int, **options: int) -> tuple[FilePlan, int]:
    """Return the plan of an object with one payload of `size` bytes that are never read, and where it starts."""
    extent = Extent(BufferSource("nowhere", memoryview(b"")), 0, size)
    bulk_offset = options.get("bulk_offset", 0)
    section = Section(
        name=".rodata.p",
        kind="rodata",
        size=size + bulk_offset,
        alignment=options.get("alignment", 64),
        copies=(Copy(bulk_offset, size, extent, 1, (size,), 8),),
        bulk_offset=bulk_offset,
    )
    model = ObjectModel(sections=[section], symbols=[Symbol(name="p", section=0, value=0, size=size)])
    target = load(name)
    plan = plan_object(target, stub(target), model, file_offset=options.get("file_offset", 0))
    return plan, plan.copies[0].offset


THRESHOLDS = [size for size, _ in BULK_ALIGNMENTS]


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from([1, *THRESHOLDS, *(size - 1 for size in THRESHOLDS), (1 << 31) - 1, 1 << 31, 1 << 32, 5 << 30]),
    st.sampled_from([1, 64, 4096, 1 << 16, 1 << 21]),
    st.sampled_from([0, 158, 4096, (1 << 32) - 2]),
    st.sampled_from([0, 64, 1 << 16]),
)
def test_payload_is_aligned_in_the_output(size: int, alignment: int, file_offset: int, bulk_offset: int) -> None:
    plan, start = sized("x86_64-linux-gnu", size, alignment=alignment, file_offset=file_offset, bulk_offset=bulk_offset)
    assert (file_offset + start - bulk_offset) % alignment == 0
    wanted = next((fast for threshold, fast in BULK_ALIGNMENTS if size >= threshold), 1)
    if bulk_offset % alignment == 0:
        assert (file_offset + start) % wanted == 0
    assert start + size <= plan.size
    ends = [0, *(piece.offset + len(piece.data) for piece in plan.pieces)]
    assert all(piece.offset >= end for piece, end in zip(plan.pieces, ends, strict=False))


@pytest.mark.parametrize("name", [name for name in TARGET_NAMES if load(name).pointer_width == 32])
def test_sizes_at_the_limit_of_32_bits(name: str) -> None:
    plan, _ = sized(name, 1000)
    room = (1 << 32) - 1 - (plan.size - 1000) - (2 << 20)
    assert sized(name, room)[0].size <= 0xFFFFFFFF
    with pytest.raises(LayoutError, match="too large for a 32-bit object"):
        sized(name, (1 << 32) - 1)
    with pytest.raises(LayoutError, match="too large for a 32-bit object"):
        sized(name, 1 << 32)


def test_fields_hold_no_addend_where_relocations_have_none(tmp_path: Path) -> None:
    field = Section(name=".rodata.field", kind="rodata", size=8, alignment=4, data=bytes(8))
    data = Section(name=".rodata.data", kind="rodata", size=8, alignment=4, data=bytes(8))
    reference = Reference(section=0, offset=4, to=1)
    model = ObjectModel(sections=[field, data], symbols=[], references=[reference])
    for name in ("i686-linux-gnu", "armv7-linux-gnueabihf"):
        write_plan(plan_model(name, model), None, tmp_path / "o.o")
        with (tmp_path / "o.o").open("rb") as file:
            parsed = ELFFile(file)
            assert section_of(parsed, ".rodata.field").data() == bytes(8)
            assert section_of(parsed, ".rel.rodata.field")["sh_type"] == "SHT_REL"


@every_target
def test_relocations_are_in_the_kind_of_section_that_compilers_use(name: str, tmp_path: Path) -> None:
    toolchain = toolchain_of(name)
    (tmp_path / "r.c").write_text("extern int x; int *p = &x;\n")
    run(toolchain.c, "-c", "r.c", "-o", "r.o", cwd=tmp_path)
    write_pack_object(name, package_of(PAYLOADS), tmp_path / "m.o", retain=True)
    kinds = []
    for file_name in ("r.o", "m.o"):
        with (tmp_path / file_name).open("rb") as file:
            kinds.append({s["sh_type"] for s in ELFFile(file).iter_sections()} & {"SHT_REL", "SHT_RELA"})
    assert kinds[0] == kinds[1]


def damaged_stubs(target_stub: bytes) -> dict[str, bytes]:
    e_shoff = int.from_bytes(target_stub[40:48], "little")
    row = bytearray(target_stub)
    row[e_shoff + 64 + 24 : e_shoff + 64 + 32] = (1 << 40).to_bytes(8, "little")  # sh_offset of section 1
    named = bytearray(target_stub)
    named[e_shoff + 64 : e_shoff + 68] = b"\xff\xff\xff\x7f"  # sh_name
    shoff = bytearray(target_stub)
    shoff[40:48] = (1 << 40).to_bytes(8, "little")
    shstrndx = bytearray(target_stub)
    shstrndx[62:64] = b"\xff\x7f"
    return {
        "empty": b"",
        "truncated": target_stub[:100],
        "not ELF": b"x" * 200,
        "big-endian": target_stub[:5] + b"\2" + target_stub[6:],
        "executable": target_stub[:16] + b"\2" + target_stub[17:],
        "flags": target_stub[:48] + b"\1" + target_stub[49:],
        "section outside": bytes(row),
        "name outside": bytes(named),
        "table outside": bytes(shoff),
        "no such name table": bytes(shstrndx),
    }


@pytest.mark.parametrize("damage", list(damaged_stubs(stub(load("x86_64-linux-gnu")))))
def test_damaged_stub_is_refused(damage: str) -> None:
    target = load("x86_64-linux-gnu")
    with pytest.raises(FormatError, match="the stub of x86_64-linux-gnu"):
        read_stub(target, damaged_stubs(stub(target))[damage])


def test_stub_of_another_target_is_refused() -> None:
    with pytest.raises(FormatError, match="e_machine"):
        read_stub(load("aarch64-linux-gnu"), stub(load("x86_64-linux-gnu")))


def test_stub_with_a_section_too_many_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.c").write_text("int x = 1;\n")
    run("gcc", "-c", "s.c", "-o", "s.o", cwd=tmp_path)
    with pytest.raises(FormatError, match="does not belong into a stub"):
        read_stub(load("x86_64-linux-gnu"), (tmp_path / "s.o").read_bytes())


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_damage_to_a_stub_escapes_as_another_error(data: st.DataObject) -> None:
    target = load("x86_64-linux-gnu")
    contents = bytearray(stub(target))
    for _ in range(data.draw(st.integers(1, 4))):
        contents[data.draw(st.integers(0, len(contents) - 1))] = data.draw(st.integers(0, 255))
    contents = contents[: data.draw(st.integers(0, len(contents)))]
    with suppress(FormatError):
        read_stub(target, bytes(contents))


def test_pack_plan_tells_where_the_index_goes() -> None:
    target = load("s390x-linux-gnu")
    pack = plan_pack(package_of(PAYLOADS), target.byte_order)
    plan = plan_object(target, stub(target), pack_model(target, pack, name="model"))
    assert plan.pack_offset is not None
    assert [copy.offset - plan.pack_offset for copy in plan.copies] == [copy.offset for copy in pack.payloads]
