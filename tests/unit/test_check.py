"""The check after writing: it passes what is right, and names the field that is not."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given, settings
from hypothesis import strategies as st

from emitter.check import check
from emitter.checksum import crc32c
from emitter.errors import OutputError
from emitter.image.elf import plan_image
from emitter.layout import FilePlan
from emitter.model import TensorSymbol
from emitter.options import Options
from emitter.output import open_output
from emitter.pack import format as fmt
from emitter.pack.plan import plan_pack
from emitter.planner import Planner
from emitter.splice.archive import plan_archive
from emitter.splice.elf import plan_object
from emitter.splice.member import Member
from emitter.symbols import pack_model
from emitter.targets import load, resolve, stub
from emitter.transfer import write_plan
from tests.elf_images import TARGET_NAMES, package_of, pattern, render, section_of, symbols_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from emitter.options import Format
    from emitter.pack.plan import PackPlan
    from emitter.targets._base import Target

PAYLOADS = {"a": pattern(5000, 1), "b": pattern(64, 2), "empty": b"", "z": pattern(300, 3)}
every_target = pytest.mark.parametrize("name", TARGET_NAMES)


class Output:
    """An output in memory, with what `check` compares it with."""

    def __init__(self, format_: Format, target: Target) -> None:
        self.format = format_
        self.target = target
        self.pack: PackPlan = plan_pack(package_of(PAYLOADS), target.byte_order)
        self.plan = self._plan()
        self.data = bytearray(render(self.plan, self.pack))

    def _plan(self) -> FilePlan:
        if self.format == "pack":
            return FilePlan(self.pack.total_size, (), self.pack.payloads, 0)
        symbols = symbols_of(self.pack, "model_t_")
        if self.format == "library":
            return plan_image(self.target, self.pack, name="model", soname="libmodel.so", symbols=symbols)
        model = pack_model(self.target, self.pack, name="model", retain=True)
        if self.format == "object":
            return plan_object(self.target, stub(self.target), model)
        names = [symbol.name for symbol in model.symbols]

        def plan(offset: int) -> FilePlan:
            return plan_object(self.target, stub(self.target), model, file_offset=offset)

        return plan_archive([Member("a_member_with_a_long_name.o", names, plan)])

    def check(self, path: Path) -> None:
        """Write the output at `path` and check it."""
        path.write_bytes(self.data)
        with opened(path) as fd:
            check(fd, self.format, self.target, self.plan, self.pack, None if self.format == "pack" else "model")


@contextmanager
def opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


@every_target
@pytest.mark.parametrize("format_", ["library", "object", "archive", "pack"])
def test_what_is_right_passes(format_: Format, name: str, tmp_path: Path) -> None:
    Output(format_, load(name)).check(tmp_path / "file")


def section(output: Output, path: Path, name: str) -> int:
    """Return the file offset of a section."""
    path.write_bytes(output.data)
    with path.open("rb") as file:
        return int(section_of(ELFFile(file), name)["sh_offset"])


def segment(output: Output, path: Path, p_type: str) -> int:
    """Return the file offset of the first program header of a type (64-bit class)."""
    path.write_bytes(output.data)
    with path.open("rb") as file:
        elffile = ELFFile(file)
        number = next(n for n, seg in enumerate(elffile.iter_segments()) if seg["p_type"] == p_type)
        return int(elffile["e_phoff"] + number * elffile["e_phentsize"])


# Faults of a library on riscv64: (place as (kind, name), offset from it, bytes, field that the error names).
IMAGE_FAULTS = [
    (("file", ""), 1, b"X", "EI_MAG"),
    (("file", ""), 4, b"\1", "EI_CLASS"),
    (("file", ""), 5, b"\2", "EI_DATA"),
    (("file", ""), 7, b"\3", "EI_OSABI"),
    (("file", ""), 16, b"\2", "e_type"),
    (("file", ""), 18, b"\x3e", "e_machine"),
    (("file", ""), 48, b"\4", "e_flags"),
    (("file", ""), 40, b"\xff\xff\xff\xff\xff\xff\xff\xff", "section headers"),
    (("file", ""), 32, b"\0\0\0\0\1", "program headers"),
    (("file", ""), 62, b"\xff\0", "e_shstrndx"),
    (("phdr", "PT_LOAD"), 4, b"\5", "PF_X"),
    (("phdr", "PT_LOAD"), 37, b"\xff", "PT_LOAD 0"),
    (("phdr", "PT_LOAD"), 48, b"\x40\0", "p_align"),
    (("phdr", "PT_GNU_STACK"), 4, b"\7", "PT_GNU_STACK"),
    (("phdr", "PT_GNU_STACK"), 0, b"\0\0\0\0", "PT_GNU_STACK"),
    (("phdr", "PT_GNU_RELRO"), 40, b"\1", "PT_GNU_RELRO"),
    (("phdr", "PT_NOTE"), 56, b"\0", "note of emitter"),  # the one after that of the build id
    (("phdr", "PT_DYNAMIC"), 0, b"\0", "PT_DYNAMIC"),
    (("section", ".note.emitter"), 20, b"\7", "of the pack"),
    (("section", ".note.emitter"), 28, b"\7", "size of the pack in the note"),
    (("section", ".note.emitter"), 36, b"\7", "version in the note"),
    (("section", ".note.emitter"), 12, b"E", "note of emitter"),
    (("section", ".note.gnu.build-id"), 16, bytes(20), "build id"),
    (("section", ".dynamic"), 0, b"\1", "DT_NEEDED"),
    (("section", ".dynamic"), 64, b"\x16", "DT_TEXTREL"),
    (("section", ".rodata"), 0, b"\1", "model_size"),
    (("section", ".hash"), 0, b"\0\0\0\0", "DT_HASH"),
    (("section", ".hash"), 4, b"\xff\xff\xff\x7f", "DT_HASH"),
    (("section", ".hash"), 8, bytes(12), "DT_HASH"),
    (("section", ".gnu.hash"), 0, b"\0\0\0\0", "DT_GNU_HASH"),
    (("section", ".gnu.hash"), 8, b"\xff\xff\xff\x7f", "DT_GNU_HASH"),
    (("section", ".gnu.hash"), 16, bytes(16), "DT_GNU_HASH"),
    (("section", ".dynstr"), 14, b"!!", "DT_GNU_HASH"),
    (("section", ".dynsym"), 24 + 4, b"\x12", "st_info"),
    (("section", ".dynsym"), 24 + 5, b"\0", "st_other"),
    (("section", ".dynsym"), 24 + 6, b"\0\0", "is defined"),
    (("section", ".emitter"), 0, b"X", "magic of the pack"),
    (("section", ".emitter"), 8, b"X", "byte_order of the pack"),
    (("section", ".emitter"), 24, b"X", "total_size of the pack"),
    (("section", ".emitter"), 20, b"X", "header_crc32c of the pack"),
    (("section", ".emitter"), 200, b"X", "index_crc32c of the pack"),
]


@pytest.mark.parametrize(("place", "offset", "fault", "field"), IMAGE_FAULTS)
def test_library_fault_is_named(place: tuple[str, str], offset: int, fault: bytes, field: str, tmp_path: Path) -> None:
    output = Output("library", load("riscv64-linux-gnu"))
    find: dict[str, Callable[[], int]] = {
        "file": lambda: 0,
        "phdr": lambda: segment(output, tmp_path / "probe", place[1]),
        "section": lambda: section(output, tmp_path / "probe", place[1]),
    }
    at = find[place[0]]() + offset
    assert output.data[at : at + len(fault)] != fault
    output.data[at : at + len(fault)] = fault
    with pytest.raises(OutputError) as caught:
        output.check(tmp_path / "file")
    assert field in str(caught.value.where)
    assert caught.value.expected is not None
    assert caught.value.actual is not None
    assert caught.value.hint


def test_library_symbol_sizes_and_places_are_compared(tmp_path: Path) -> None:
    clean = Output("library", load("riscv64-linux-gnu"))
    at = section(clean, tmp_path / "probe", ".dynsym")
    names = []
    for number in range(1, 4 + len(PAYLOADS)):
        for field in (8, 16):  # st_value, st_size
            output = Output("library", load("riscv64-linux-gnu"))
            output.data[at + 24 * number + field + 2] ^= 1  # by 64 KiB
            with pytest.raises(OutputError) as caught:
                output.check(tmp_path / "file")
            names.append(str(caught.value.where))
    assert all(re.search(r"\b(model\w*|emitter_pack)\b", name) for name in names)


# Faults of an object on riscv64: (section or "" for the file, offset, bytes, field).
OBJECT_FAULTS = [
    ("", 16, b"\3", "e_type"),
    ("", 18, b"\x3e", "e_machine"),
    ("", 48, b"\5", "e_flags"),
    ("", 40, b"\xff\xff\xff\xff", "section headers"),
    (".rodata.model", 0, b"X", "magic of the pack"),
    (".rodata.model", 150, b"X", "index_crc32c of the pack"),
    (".strtab", 5, b"!!", "symbol model"),  # behind the local symbol of the place
]


@pytest.mark.parametrize("format_", ["object", "archive"])
@pytest.mark.parametrize(("name", "offset", "fault", "field"), OBJECT_FAULTS)
def test_object_fault_is_named(
    format_: Format, name: str, offset: int, fault: bytes, field: str, tmp_path: Path
) -> None:
    lone = Output("object", load("riscv64-linux-gnu"))
    at = (section(lone, tmp_path / "probe", name) if name else 0) + offset
    output = Output(format_, load("riscv64-linux-gnu"))
    at = at if name else output.data.index(b"\x7fELF") + offset
    if name and format_ == "archive":
        original = bytes(lone.data[at - offset : at - offset + 16])
        at = output.data.index(original) + offset
    output.data[at : at + len(fault)] = fault
    with pytest.raises(OutputError) as caught:
        output.check(tmp_path / "file")
    assert field in str(caught.value.where)


def test_object_without_stack_note_is_refused(tmp_path: Path) -> None:
    output = Output("object", load("x86_64-linux-gnu"))
    at = output.data.index(b".note.GNU-stack\0")
    output.data[at + 6] ^= 1
    with pytest.raises(OutputError) as caught:
        output.check(tmp_path / "file")
    assert ".note.GNU-stack" in str(caught.value.where)


@pytest.mark.parametrize(
    ("offset", "fault", "field"),
    [
        (0, b"?", "magic of the archive"),
        (8 + 58, b"?", "ar_fmag"),
        (8 + 48, b"x", "ar_size"),
        (8 + 48, b"9999999999", "end of member"),
        (68, b"\x7f", "symbol index"),
        (72, b"\0\0\0\7", "symbol index"),
    ],
)
def test_archive_fault_is_named(offset: int, fault: bytes, field: str, tmp_path: Path) -> None:
    output = Output("archive", load("x86_64-linux-gnu"))
    output.data[offset : offset + len(fault)] = fault
    with pytest.raises(OutputError) as caught:
        output.check(tmp_path / "file")
    assert field in str(caught.value.where)


@pytest.mark.parametrize("format_", ["library", "object", "archive", "pack"])
@pytest.mark.parametrize("change", [-1, 1])
def test_another_size_is_refused(format_: Format, change: int, tmp_path: Path) -> None:
    output = Output(format_, load("x86_64-linux-gnu"))
    output.data = output.data[:-1] if change < 0 else output.data + b"\0"
    with pytest.raises(OutputError) as caught:
        output.check(tmp_path / "file")
    assert caught.value.where == "size of the file"


@settings(max_examples=300, deadline=None)
@given(data=st.data(), name=st.sampled_from(["x86_64-linux-gnu", "s390x-linux-gnu", "armv7-linux-gnueabihf"]))
def test_no_damage_ends_in_another_error(
    data: st.DataObject, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    format_: Format = data.draw(st.sampled_from(["library", "object", "archive", "pack"]))
    output = Output(format_, load(name))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(output.data) - 1))
        output.data[at] = data.draw(st.integers(0, 255))
    try:
        output.check(tmp_path_factory.getbasetemp() / "damaged")
    except OutputError as error:
        assert error.where  # that, or nothing: any other exception is a fault of the check


def test_payload_is_not_read(tmp_path: Path) -> None:
    """A library of 3 TiB, a hole but for its ends, is checked at once."""
    target = load("x86_64-linux-gnu")
    size = 3 << 40
    pack = plan_pack(package_of(PAYLOADS), "little")._replace(total_size=size)
    plan = plan_image(target, pack, name="model", soname="libmodel.so")
    index = bytearray(pack.render_index([0] * len(pack.payloads)))
    at = fmt.HEADER.offset("total_size")
    index[at : at + 8] = size.to_bytes(8, "little")
    index[fmt.HEADER_CRC_OFFSET : fmt.HEADER_CRC_OFFSET + 4] = bytes(4)
    crc = crc32c(bytes(index[: fmt.HEADER.size]))
    index[fmt.HEADER_CRC_OFFSET : fmt.HEADER_CRC_OFFSET + 4] = crc.to_bytes(4, "little")
    path = tmp_path / "libhuge.so"
    assert plan.pack_offset is not None
    with path.open("wb") as file:
        try:
            file.truncate(plan.size)
        except OSError:
            pytest.skip("the file system holds no file of 3 TiB")
        for piece in plan.pieces:
            file.seek(piece.offset)
            file.write(piece.data)
        file.seek(plan.pack_offset)
        file.write(index)
        file.seek(plan.build_id_offset or 0)
        file.write(b"a build id")
    with opened(path) as fd:
        check(fd, "library", target, plan, pack, "model")


def test_many_symbols_are_sampled(tmp_path: Path) -> None:
    target = load("s390x-linux-gnu")
    pack = plan_pack(package_of({"a": pattern(64)}), "big")
    symbols = [TensorSymbol(f"model_t_{number}", "", pack.payload_start, 64) for number in range(5000)]
    plan = plan_image(target, pack, name="model", soname="libmodel.so", symbols=symbols)
    path = tmp_path / "libmodel.so"
    path.write_bytes(render(plan, pack))
    with opened(path) as fd:
        check(fd, "library", target, plan, pack, "model")


@pytest.mark.parametrize(
    ("target", "file"),
    [("x86_64-linux-gnu", "libm.a"), ("arm64-apple-macos", "libm.a"), ("x86_64-windows-msvc", "m.lib")],
)
def test_an_archive_without_a_member_that_holds_the_pack(target: str, file: str, tmp_path: Path) -> None:
    """No member is looked into for a pack that the plan has elsewhere: that is no pass."""
    planner = Planner(package_of(PAYLOADS), Options(), print, print)
    (job,) = planner.plan(str(tmp_path / file), [resolve(target)])
    with open_output(job.path, job.plan.size) as out:
        write_plan(out.fd, job.plan, job.pack)
        check(out.fd, "archive", job.resolved.target, job.plan, job.pack, job.symbol)
        astray = job.plan._replace(pack_offset=8)
        with pytest.raises(OutputError, match=r"members that hold the pack: .* expected 1, found 0"):
            check(out.fd, "archive", job.resolved.target, astray, job.pack, job.symbol)
