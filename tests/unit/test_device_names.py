"""Kernels and variables are read from cubins and PTX, whole or compressed with LZ4."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emitter.device.names import Names, Variable, names_of_fatbin
from emitter.errors import EmitterError, InputError
from emitter.inspect.view import View
from tests.device_files import PTX, cubin, entry, fatbin

TEXT = b"""\
.version 8.0
.target sm_80
.address_size 64
// .visible .entry comment()
.extern .func (.param .b32 r) vprintf(.param .b64 a);
.extern .global .align 4 .u32 elsewhere;
.const .align 4 .f32 scale = 0f40000000;
.visible .global .align 16 .v4 .f32 table[10][2];
.global .align 1 .b8 $str[6] = {104, 101, 108, 108, 111, 0};
.global .align 8 .u64 pointer = generic(table);
.visible .entry first(
	.param .u64 p
)
{
	.shared .align 4 .b8 scratch[64];
	ret;
}
.weak .entry _Z6secondv() { ret; }
.entry %internal() { ret; }
"""
NAMES = Names(
    ("first", "_Z6secondv"),
    (Variable("scale", 4, True), Variable("table", 320, False), Variable("pointer", 8, False)),
)


def names(*entries: bytes) -> Names:
    return names_of_fatbin(View.of_bytes(fatbin(*entries), "x"))


def lz4(data: bytes) -> bytes:
    """Return data as an LZ4 block: literals, and a match where four bytes were there before."""
    out, position, anchor = bytearray(), 0, 0

    def rest(length: int) -> bytes:
        return b"\xff" * ((length - 15) // 255) + bytes(((length - 15) % 255,)) if length >= 15 else b""

    def put(literals: bytes, match: int, distance: int) -> None:
        more = match - 4 if match else 0
        out.extend((min(len(literals), 15) << 4 | min(more, 15),))
        out.extend(rest(len(literals)) + literals)
        if match:
            out.extend(distance.to_bytes(2, "little") + rest(more))

    while position + 4 <= len(data):
        found = data.rfind(data[position : position + 4], max(position - 65535, 0), position + 3)
        if found < 0:
            position += 1
            continue
        length = 4
        while position + length < len(data) and data[found + length] == data[position + length]:
            length += 1
        put(data[anchor:position], length, position - found)
        position += length
        anchor = position
    put(data[anchor:], 0, 0)
    return bytes(out)


def test_the_names_of_ptx() -> None:
    assert names(entry(1, TEXT)) == NAMES


def test_the_names_of_several_programs_are_joined() -> None:
    other = PTX.replace(b"noop", b"first").replace(b"ret;", b"ret;\n}\n.entry third() {")
    assert names(entry(1, TEXT), entry(1, other)).kernels == ("first", "_Z6secondv", "third")


@pytest.mark.parametrize("repeats", [1, 3, 200])
def test_the_names_of_what_lz4_compressed(repeats: int) -> None:
    text = TEXT + b"// again and again\n" * repeats + b"//" + b"a" * (300 * repeats)
    packed = lz4(text)
    assert names(entry(1, packed, flags=0x2011, compressed=len(packed), unpacked=len(text))) == NAMES


@given(st.binary(max_size=60), st.integers(1, 200))
def test_damaged_lz4_is_refused(data: bytes, size: int) -> None:
    with pytest.raises(EmitterError):
        names(entry(1, data + b"\0", flags=0x2011, compressed=len(data) + 1, unpacked=size))


def test_what_cannot_be_read_is_said() -> None:
    zstd = entry(1, b"\x28\xb5\x2f\xfd", flags=0x8011, compressed=4, unpacked=9)
    with pytest.raises(InputError, match=r"no kernel or variable can be read.*found entry at 0x10: zstd"):
        names(zstd)
    with pytest.raises(InputError, match="found programs without kernels"):
        names(entry(2, cubin()))
    assert names(zstd, entry(1, TEXT)) == NAMES
