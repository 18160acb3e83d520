"""Programs for GPUs are recognised by content, read with bounds, and refused with the offset of what is wrong."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emitter.device import program_format, read_program
from emitter.device.cubin import read_header
from emitter.device.fatbin import read_fatbin
from emitter.device.hip import MACHINES
from emitter.errors import FormatError
from emitter.inspect.view import View
from tests.device_files import FIELDS, PTX, bundle, cubin, entry, fatbin, hsaco, plan, spirv

ALL = fatbin(entry(2, cubin(75), 75), entry(2, cubin(), options=b"-O3"), entry(1, PTX))


def read(data: bytes) -> tuple[str, str, int, int, list[tuple[str, dict[str, str]]]]:
    program = read_program(View.of_bytes(data, "x"))
    images = [(image.name, dict(image.requires)) for image in program.images]
    return program.format, program.kind, program.size, program.alignment, images


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            ALL,
            ("fatbin", "cuda", len(ALL), 64, [
                ("sm_75", {"sm": ">= 75, < 80"}), ("sm_80", {"sm": ">= 80, < 90"}), ("compute_80", {"sm": ">= 80"}),
            ]),
        ),
        (cubin(86), ("cubin", "cuda", len(cubin()), 64, [("sm_86", {"sm": ">= 86, < 90"})])),
        (cubin(70, abi=7), ("cubin", "cuda", len(cubin()), 64, [("sm_70", {"sm": ">= 70, < 80"})])),
        (cubin(121), ("cubin", "cuda", len(cubin()), 64, [("sm_121", {"sm": ">= 121, < 130"})])),
        (
            cubin(relocatable=True),
            ("cubin", "cuda-relocatable", len(cubin()), 64, [("sm_80", {"sm": ">= 80, < 90"})]),
        ),
        (PTX, ("PTX", "cuda", len(PTX), 64, [("compute_80", {"sm": ">= 80"})])),
        (PTX + b"\0", ("PTX", "cuda", len(PTX), 64, [("compute_80", {"sm": ">= 80"})])),
        (
            b"//\xc3\xa9\n /* .version */ " + PTX.replace(b"sm_80", b"sm_90a, debug"),
            ("PTX", "cuda", len(PTX) + 29, 64, [("compute_90a", {"sm": "== 90"})]),
        ),
        (PTX.replace(b"80", b"100f"), ("PTX", "cuda", len(PTX) + 2, 64, [("compute_100f", {"sm": ">= 100, < 110"})])),
        (hsaco(), ("hsaco", "hip", len(hsaco()), 4096, [("gfx90a", {"gfx": "== gfx90a"})])),
        (hsaco(0x54), ("hsaco", "hip", len(hsaco()), 4096, [("gfx11-generic", {})])),
        (
            bundle("gfx90a:xnack-", "gfx942"),
            ("HIP bundle", "hip", len(bundle("a", "b")), 4096, [
                ("gfx90a:xnack-", {"gfx": "== gfx90a"}), ("gfx942", {"gfx": "== gfx942"}),
            ]),
        ),
        (plan(), ("TensorRT plan", "tensorrt", len(plan()), 256, [("", {})])),
        (spirv(), ("SPIR-V", "spirv", 40, 64, [("spirv1.5", {})])),
        (spirv(">"), ("SPIR-V", "spirv", 40, 64, [("spirv1.5", {})])),
    ],
)  # fmt: skip
def test_what_a_program_is(data: bytes, expected: tuple[object, ...]) -> None:
    assert read(data) == expected


@pytest.mark.parametrize(
    "made", [fatbin(entry(2, cubin(relocatable=True))), fatbin(entry(1, PTX, options=b"--compile-only")),
             fatbin(entry(8, b"\x17\x88", flags=0x18011, compressed=2, unpacked=9))],
)  # fmt: skip
def test_what_has_to_be_linked_is_of_a_kind_of_its_own(made: bytes) -> None:
    assert read(made)[1] == "cuda-relocatable"


def test_a_fatbin_may_be_padded_but_nothing_else_may_follow() -> None:
    assert read(ALL + bytes(5))[2] == len(ALL)
    with pytest.raises(FormatError, match=rf"offset {len(ALL):#x}: something follows the fatbin"):
        read(ALL + b"\0\1")


def test_a_fatbin_whose_size_is_no_multiple_of_8_is_padded_by_who_stores_it() -> None:
    text = PTX + b"\n" * (-len(PTX) % 8)
    odd = bytearray(fatbin(entry(1, text)))
    odd[8:16] = (len(odd) - 16 - 3).to_bytes(8, "little")
    odd[24:32] = (len(text) - 3).to_bytes(8, "little")
    data = bytes(odd[:-3])
    assert read(data)[2] == len(data)
    with pytest.raises(FormatError, match="no multiple of 8"):
        read_fatbin(View.of_bytes(data, "x"))


@pytest.mark.parametrize(("field", "data", "offset", "broken"), FIELDS, ids=[f"{row[0]}-{row[2]}" for row in FIELDS])
def test_every_broken_field_is_refused_with_its_offset(field: str, data: bytes, offset: int, broken: bytes) -> None:
    damaged = data[:offset] + broken + data[offset + len(broken) :]
    with pytest.raises(FormatError) as caught:
        read(damaged)
    error = caught.value
    assert re.search(r"offset 0x[0-9a-f]+$", error.where or ""), error
    assert error.expected, error
    assert error.actual, error


@pytest.mark.parametrize("data", [ALL, cubin(), hsaco(), bundle("gfx90a"), spirv(), plan()[:40]])
def test_every_truncation_is_refused(data: bytes) -> None:
    # The padding behind the last code object is not read.
    end = len(data.rstrip(b"\0")) if data.startswith(b"__CLANG") else len(data)
    for size in [*range(4, min(end, 700)), end - 1]:
        if (data.startswith(b"ftrt") and size >= 32) or (data == spirv() and size == 28):
            continue  # of a plan no more is known, and one instruction is a module
        with pytest.raises(FormatError):
            read(data[:size])


@given(st.data())
def test_a_damaged_program_is_read_or_refused(data: st.DataObject) -> None:
    good = data.draw(st.sampled_from([ALL, cubin(), hsaco(), bundle("gfx90a"), spirv(), plan(), PTX]))
    damaged = bytearray(good[: data.draw(st.integers(0, len(good)))])
    for _ in range(data.draw(st.integers(0, 4))):
        if damaged:
            damaged[data.draw(st.integers(0, min(len(damaged), 200) - 1))] = data.draw(st.integers(0, 255))
    try:
        program = read_program(View.of_bytes(bytes(damaged), "x"))
    except FormatError as error:
        assert error.where
        return
    assert program.images
    assert 0 < program.size <= len(damaged)


@pytest.mark.parametrize(
    "head",
    [b"", b"{", b"\x93NUMPY", b"\x7fELF\2\1\1" + bytes(11) + b"\x3e\0", b".section .text\n", b"//\n", b"# .version 1"],
)
def test_other_files_are_no_programs(head: bytes) -> None:
    assert program_format(head) is None
    with pytest.raises(FormatError, match="not a program for a GPU"):
        read(head)


def test_the_processors_are_those_that_llvm_writes() -> None:
    binding = pytest.importorskip("llvmlite.binding", reason="llvmlite is not installed")
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    target = binding.Target.from_triple("amdgcn-amd-amdhsa")
    for number, name in MACHINES.items():
        machine = target.create_target_machine(cpu=name)
        module = binding.parse_assembly('target triple = "amdgcn-amd-amdhsa"\n@x = addrspace(1) constant i32 1\n')
        made = bytearray(machine.emit_object(module))
        assert made[48] == number, name
        made[16] = 3  # a linked one
        program = read_program(View.of_bytes(bytes(made), "x"))
        assert [image.name for image in program.images] == [name]


def test_a_cubin_inside_of_a_fatbin_is_spoken_of_by_its_place_there() -> None:
    with pytest.raises(FormatError, match="offset 0x112"):
        read_header(View.of_bytes(cubin()[:18] + b"\x3e\0" + cubin()[20:], "x"), base=0x100)
