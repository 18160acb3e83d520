"""The Python loader on files that other tools made: linkers, strip, ar and objcopy, for several CPUs."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import pytest

from emitter.errors import EmitterError, FormatError, LoadError
from emitter.loaders import load
from tests.foreign_files import run_tool
from tests.loader_support import other_pack, sample_pack

if TYPE_CHECKING:
    from pathlib import Path

    from emitter.package import ByteOrder


class Cpu(NamedTuple):
    """What to build for: prefix of the tools, directive of a pointer-wide word, byte order, name in messages."""

    prefix: str
    word: str
    byte_order: ByteOrder
    machine: str


CPUS = {
    "x86-64": Cpu("x86_64-linux-gnu-", ".quad", "little", "x86-64"),
    "aarch64": Cpu("aarch64-linux-gnu-", ".quad", "little", "AArch64"),
    "s390x": Cpu("s390x-linux-gnu-", ".quad", "big", "IBM S/390"),
    "armhf": Cpu("arm-linux-gnueabihf-", ".long", "little", "ARM"),
}
LINKERS = {
    "ld": ("PREFIX-ld.bfd", tuple(CPUS)),
    "lld": ("ld.lld", ("x86-64", "aarch64", "armhf")),
    "mold": ("mold", ("x86-64", "aarch64", "armhf")),
}
PAIRS = [(cpu, linker) for linker, (_, cpus) in LINKERS.items() for cpu in cpus]


def source(
    path: Path, packs: dict[str, bytes], cpu: Cpu, *, note_alignment: int = 8, notes: bool = True, tail: str = ""
) -> Path:
    """Write the assembler source of a file with the packs, each described by a note."""
    text = ['.section .note.GNU-stack,"",%progbits', f'.section .rodata.{path.stem},"a",%progbits']
    for name, pack in packs.items():
        data = path.with_name(f"{path.stem}.{name}.bin")
        data.write_bytes(pack)
        text += [".balign 4096", f".globl {name}", f".hidden {name}", f"{name}:", f'.incbin "{data}"']
    for name, pack in packs.items() if notes else ():
        width = 8 if cpu.word == ".quad" else 4
        text += [
            '.section .note.emitter,"a",%note', f".balign {note_alignment}",
            f".long 8, {2 * width + 8}, 1", r'.ascii "emitter\0"', f".balign {note_alignment}",
            f"{cpu.word} {name} - .", f"{cpu.word} {len(pack)}", ".long 1, 0",
        ]  # fmt: skip
    assembler = path.with_suffix(".s")
    assembler.write_text("\n".join([*text, tail, ""]))
    return assembler


def assemble(path: Path, packs: dict[str, bytes], cpu: Cpu, *, note_alignment: int = 8, notes: bool = True) -> Path:
    run_tool(f"{cpu.prefix}gcc", "-c", source(path, packs, cpu, note_alignment=note_alignment, notes=notes), "-o", path)
    return path


def link(output: Path, cpu: Cpu, linker: str, *arguments: str | Path) -> Path:
    tool = f"{cpu.prefix}ld.bfd" if linker == "ld" else LINKERS[linker][0]
    run_tool(tool, "--build-id", *arguments, "-o", output)
    return output


def assert_sample(path: Path, cpu: Cpu, kind: str) -> None:
    library = load(path)
    library.check()
    assert library.kind == f"ELF {kind} for {cpu.machine}"
    assert library.byte_order == cpu.byte_order
    assert library["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    place = library.packs[0]
    assert path.read_bytes()[place.file_offset : place.file_offset + place.size] == sample_pack(cpu.byte_order)


@pytest.mark.parametrize("note_alignment", [4, 8])
@pytest.mark.parametrize(("name", "linker"), PAIRS)
def test_shared_objects(tmp_path: Path, name: str, linker: str, note_alignment: int) -> None:
    cpu = CPUS[name]
    made = assemble(tmp_path / "a.o", {"model": sample_pack(cpu.byte_order)}, cpu, note_alignment=note_alignment)
    assert_sample(made, cpu, "relocatable object")
    image = link(tmp_path / "liba.so", cpu, linker, "-shared", made)
    assert_sample(image, cpu, "shared object")
    run_tool(f"{cpu.prefix}strip", image)
    assert_sample(image, cpu, "shared object")


@pytest.mark.parametrize(("name", "linker"), PAIRS)
def test_executables(tmp_path: Path, name: str, linker: str) -> None:
    cpu = CPUS[name]
    made = assemble(tmp_path / "a.o", {"model": sample_pack(cpu.byte_order)}, cpu)
    image = link(tmp_path / "program", cpu, linker, "-static", "-e", "0", made)
    assert_sample(image, cpu, "executable")
    run_tool(f"{cpu.prefix}strip", image)
    assert_sample(image, cpu, "executable")


@pytest.mark.parametrize("command", [("llvm-strip",), ("objcopy", "--strip-section-headers")])  # fmt: skip
def test_edited_shared_objects(tmp_path: Path, command: tuple[str, ...]) -> None:
    cpu = CPUS["x86-64"]
    image = link(tmp_path / "liba.so", cpu, "ld", "-shared", assemble(tmp_path / "a.o", {"model": sample_pack()}, cpu))
    if "--strip-section-headers" in command:  # new in binutils 2.41: what it does is little
        data = bytearray(image.read_bytes())
        struct.pack_into("<Q", data, 0x28, 0)
        struct.pack_into("<HHH", data, 0x3A, 0, 0, 0)
        image.write_bytes(data)
    else:
        run_tool(*command, image)
    assert_sample(image, cpu, "shared object")


@pytest.mark.parametrize("linker", LINKERS)
def test_a_note_that_patchelf_moved_is_made_up_for_by_the_sections(tmp_path: Path, linker: str) -> None:
    cpu = CPUS["x86-64"]
    image = link(
        tmp_path / "liba.so", cpu, linker, "-shared", assemble(tmp_path / "a.o", {"model": sample_pack()}, cpu)
    )
    run_tool("patchelf", "--set-soname", "libanother-and-much-longer-name.so", image)
    assert_sample(image, cpu, "shared object")


def test_several_packs_in_one_image(tmp_path: Path) -> None:
    cpu = CPUS["x86-64"]
    packs = {"first": sample_pack(), "second": other_pack()}
    image = link(tmp_path / "liba.so", cpu, "ld", "-shared", assemble(tmp_path / "a.o", packs, cpu))
    library = load(image)
    library.check()
    assert [pack.names() for pack in library.packs] == [load(sample_pack()).names(), ["other"]]
    assert bytes(library.packs[1]["other"]) == b"bytes"
    for call in (
        library.names,
        lambda: library["w"],
        lambda: library.tensor("w"),
        lambda: library.metadata,
        lambda: "w" in library,
    ):
        with pytest.raises(
            LoadError, match=r"holds 2 packs.*packs\[0\] at file offset 0x.*packs\[1\] at.*library.packs\[0\]"
        ):
            call()
    with pytest.raises(LoadError, match=r"packs\[1\]: it holds no tensor called 'w'"):
        library.packs[1]["w"]
    library.close()
    with pytest.raises(LoadError, match="closed"):
        library.packs[1].names()


@pytest.mark.parametrize("name", CPUS)
def test_objects_joined_by_the_linker(tmp_path: Path, name: str) -> None:
    cpu = CPUS[name]
    (tmp_path / "1").mkdir()
    first = assemble(tmp_path / "1" / "a.o", {"first": sample_pack(cpu.byte_order)}, cpu, notes=False)
    second = assemble(tmp_path / "a.o", {"second": other_pack(cpu.byte_order)}, cpu, notes=False)
    run_tool(f"{cpu.prefix}ld", "-r", first, second, "-o", tmp_path / "joined.o")
    library = load(tmp_path / "joined.o")
    library.check()
    assert sorted(len(pack) for pack in library.packs) == [1, 8]


def test_archives(tmp_path: Path) -> None:
    cpu = CPUS["aarch64"]
    first = assemble(tmp_path / "a_name_beyond_sixteen.o", {"first": sample_pack()}, cpu)
    second = assemble(tmp_path / "b.o", {"second": other_pack()}, cpu)
    plain = tmp_path / "plain.c"
    plain.write_text("int plain;")
    run_tool(f"{cpu.prefix}gcc", "-c", plain, "-o", tmp_path / "plain.o")
    text = tmp_path / "odd.txt"
    text.write_text("odd")
    single, double, none, thin = (tmp_path / f"lib{name}.a" for name in ("single", "double", "none", "thin"))
    run_tool(f"{cpu.prefix}ar", "rcsD", single, tmp_path / "plain.o", text, first)
    run_tool(f"{cpu.prefix}ar", "rcsD", double, first, second)
    run_tool(f"{cpu.prefix}ar", "rcsD", none, tmp_path / "plain.o")
    run_tool(f"{cpu.prefix}ar", "rcsDT", thin, first)

    library = load(single)
    library.check()
    assert library.kind == "ar archive of ELF relocatable object for AArch64"
    assert library.packs[0].member == "a_name_beyond_sixteen.o"
    place = library.packs[0]
    assert single.read_bytes()[place.file_offset : place.file_offset + place.size] == sample_pack()
    assert library["w"].sum() == 15
    assert [pack.member for pack in load(double).packs] == ["a_name_beyond_sixteen.o", "b.o"]
    with pytest.raises(LoadError, match=r"packs\[0\] in 'a_name_beyond_sixteen.o' at file offset"):
        load(double).names()
    with pytest.raises(LoadError, match="ar archive of ELF relocatable object for AArch64: it holds no pack"):
        load(none)
    with pytest.raises(LoadError, match="thin archive"):
        load(thin)
    data = double.read_bytes()
    for size in (9, 60, 67, len(data) // 2, len(data) - 8):
        with pytest.raises(EmitterError):
            load(data[:size])


@pytest.mark.parametrize("index", [b"/               ", b"/SYM64/         "])
@pytest.mark.parametrize("bsd", [False, True])
def test_archives_written_by_hand(index: bytes, bsd: bool) -> None:
    def member(name: bytes, body: bytes) -> bytes:
        header = name + b"0           0     0     644     " + str(len(body)).encode().ljust(10) + b"`\n"
        return header + body + b"\n" * (len(body) % 2)

    pack = sample_pack()
    name = b"name with spaces.pack\0\0\0"
    body = member(b"#1/24           ", name + pack) if bsd else member(b"x.pack/         ", pack)
    library = load(b"!<arch>\n" + member(index, bytes(8)) + member(b"note.txt/       ", b"odd") + body)
    library.check()
    assert library.packs[0].member == ("name with spaces.pack" if bsd else "x.pack")
    assert library.kind == "ar archive of pack"


def test_an_archive_beyond_its_headers_is_refused() -> None:
    good = b"x/              0           0     0     644     4         `\nabcd"
    for bad, message in (
        (good.replace(b"`\n", b"!!"), "not a member header"),
        (good.replace(b"644     4 ", b"644     4x"), "ar_size is not a decimal number"),
        (good.replace(b"644     4 ", b"644     99"), "truncated"),
        (good.replace(b"x/  ", b"/12 "), "not in the table of names"),
        (good.replace(b"x/  ", b"#1/9"), "longer than its member"),
    ):
        with pytest.raises(EmitterError, match=message):
            load(b"!<arch>\n" + bad)


@pytest.mark.parametrize("name", CPUS)
def test_files_without_a_pack_say_what_they_are(tmp_path: Path, name: str) -> None:
    cpu = CPUS[name]
    empty = tmp_path / "empty.c"
    empty.write_text("const int table[64] = {1};")
    run_tool(f"{cpu.prefix}gcc", "-c", empty, "-o", tmp_path / "empty.o")
    link(tmp_path / "empty.so", cpu, "ld", "-shared", tmp_path / "empty.o")
    for file, kind in (("empty.o", "relocatable object"), ("empty.so", "shared object")):
        with pytest.raises(LoadError, match=f"ELF {kind} for {cpu.machine}: it holds no pack"):
            load(tmp_path / file)


@pytest.mark.parametrize("name", ["x86-64", "s390x"])
def test_every_truncation_of_an_image_is_refused_before_its_loads_end(tmp_path: Path, name: str) -> None:
    cpu = CPUS[name]
    image = link(
        tmp_path / "a.so", cpu, "ld", "-shared", assemble(tmp_path / "a.o", {"m": sample_pack(cpu.byte_order)}, cpu)
    )
    data = image.read_bytes()
    ends = []
    for line in run_tool("readelf", "-lW", image).splitlines():
        words = line.split()
        if words[:1] == ["LOAD"]:
            ends.append(int(words[1], 16) + int(words[4], 16))
    assert ends
    for size in (*range(0, 1024, 7), *range(1024, max(ends), 997), max(ends) - 1):
        with pytest.raises(EmitterError, match=r"truncated|not a file|empty|holds no pack"):
            load(data[:size])
    load(data[: max(ends)]).check()


def _note(tmp_path: Path) -> tuple[bytearray, int]:
    cpu = CPUS["x86-64"]
    image = link(tmp_path / "a.so", cpu, "ld", "-shared", assemble(tmp_path / "a.o", {"m": sample_pack()}, cpu))
    data = bytearray(image.read_bytes())
    struct.pack_into("<Q", data, 0x28, 0)  # e_shoff: no sections make up for the note
    struct.pack_into("<HHH", data, 0x3A, 0, 0, 0)
    return data, data.index(struct.pack("<III8s", 8, 24, 1, b"emitter\0"))


@pytest.mark.parametrize(
    ("offset", "form", "value", "message"),
    [
        (24, "<q", 1 << 40, "leads to no pack"),
        (24, "<q", -(1 << 40), "leads to no pack"),
        (24, "<q", -(1 << 63), "leads to no pack"),
        (32, "<Q", 1 << 63, "leads to no pack"),
        (32, "<Q", 10, "truncated"),
        (40, "<I", 7 << 16, "a later major version"),
        (44, "<I", 1, "last word"),
        (4, "<I", 16, "too short"),
        (4, "<I", 1 << 31, "not in its segment"),
        (8, "<I", 2, "holds no pack"),
        (12, "<8s", b"emitteR\0", "holds no pack"),
    ],
)
def test_a_note_that_lies_is_refused(tmp_path: Path, offset: int, form: str, value: object, message: str) -> None:
    data, note = _note(tmp_path)
    load(data).check()
    struct.pack_into(form, data, note + offset, value)
    with pytest.raises(EmitterError, match=message):
        load(data)


@pytest.mark.parametrize("version", [1, 1 << 16, (1 << 16) + 9])
def test_a_note_of_an_older_version_is_read(tmp_path: Path, version: int) -> None:
    data, note = _note(tmp_path)
    struct.pack_into("<I", data, note + 40, version)
    load(data).check()


def test_a_note_and_its_pack_must_agree_on_the_size(tmp_path: Path) -> None:
    data, note = _note(tmp_path)
    size = struct.unpack_from("<Q", data, note + 32)[0]
    struct.pack_into("<Q", data, note + 32, size + 1)
    data += bytes(1)
    with pytest.raises(EmitterError, match=r"disagree on the pack's size|leads to no pack"):
        load(data)


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [(4, 3, "EI_CLASS"), (5, 0, "EI_DATA"), (16, 4, "core file.*no pack"), (16, 0xFE, "file of type 254")],
)
def test_odd_elf_headers(tmp_path: Path, offset: int, value: int, message: str) -> None:
    data, _ = _note(tmp_path)
    data[offset] = value
    with pytest.raises((FormatError, LoadError), match=message):
        load(data)


def test_extended_numbering_of_sections(tmp_path: Path) -> None:
    """More than 65,279 sections: e_shnum is 0, and section header 0 says how many."""
    cpu = CPUS["x86-64"]
    many = r""".altmacro
        .macro one n
        .section .d\n,"a"
        .byte 1
        .endm
        .set i,0
        .rept 66000
        one %i
        .set i,i+1
        .endr"""
    assembler = source(tmp_path / "a.o", {"m": sample_pack()}, cpu, notes=False, tail=many)
    run_tool("gcc", "-c", assembler, "-o", tmp_path / "a.o")
    data = (tmp_path / "a.o").read_bytes()
    assert struct.unpack_from("<H", data, 0x3C)[0] == 0
    load(tmp_path / "a.o").check()
