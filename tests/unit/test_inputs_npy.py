""".npy files: written by numpy, and malformed by hand."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Literal

import ml_dtypes
import numpy
import pytest
from safetensors.numpy import save_file

from emitter.errors import InputError
from emitter.inputs import read_input
from emitter.package import NATIVE_BYTE_ORDER, FileSource, Package, Tensor
from tests.support import build_pack

if TYPE_CHECKING:
    from pathlib import Path


def payload(tensor: Tensor) -> bytes:
    extent = tensor.extent
    assert isinstance(extent.source, FileSource)
    with extent.source.open() as fd:
        return os.pread(fd, extent.length, extent.offset)


def read(path: str | Path) -> Tensor:
    (tensor,) = read_input(str(path), Package())
    return tensor


def write(path: Path, header: str | bytes, data: bytes = b"", version: bytes = b"\x01\x00") -> Path:
    text = header if isinstance(header, bytes) else header.encode("latin-1")
    path.write_bytes(b"\x93NUMPY" + version + len(text).to_bytes(2 if version[0] == 1 else 4, "little") + text + data)
    return path


def header(descr: str = "'<f4'", order: str = "False", shape: str = "(2,)") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"


@pytest.mark.parametrize("kind", ["?", "b", "B", "h", "H", "i", "I", "q", "Q", "e", "f", "d", "F", "D"])
@pytest.mark.parametrize("order", ["<", ">"])
def test_every_number_in_both_byte_orders(tmp_path: Path, kind: str, order: Literal["<", ">"]) -> None:
    array = numpy.arange(6).astype(numpy.dtype(kind).newbyteorder(order)).reshape(2, 3)
    numpy.save(tmp_path / "x.npy", array)
    tensor = read(tmp_path / "x.npy")
    assert (str(tensor.dtype), tensor.shape) == (array.dtype.name, (2, 3))
    assert payload(tensor) == array.tobytes()
    assert not tensor.extent.fortran_order
    assert tensor.extent.byte_order == ("big" if order == ">" and array.itemsize > 1 else "little")


@pytest.mark.parametrize(
    ("shape", "transposed"),
    [
        ((), False),
        ((4,), False),
        ((1, 4), False),
        ((4, 1, 1), False),
        ((0, 4), False),
        ((2, 3), True),
        ((2, 1, 3), True),
    ],
)
def test_fortran_order_only_where_it_matters(tmp_path: Path, shape: tuple[int, ...], transposed: bool) -> None:
    text = header(order="True", shape=str(shape))
    elements = int(numpy.prod(shape))
    tensor = read(write(tmp_path / "x", text, bytes(range(4 * elements))))
    assert (tensor.shape, tensor.extent.fortran_order) == (shape, transposed)
    array = numpy.load(tmp_path / "x")
    assert payload(tensor) == array.tobytes("F")


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version(tmp_path: Path, version: tuple[int, int]) -> None:
    with (tmp_path / "x").open("wb") as file:
        numpy.lib.format.write_array(file, numpy.arange(3), version=version)
    assert payload(read(tmp_path / "x")) == numpy.arange(3).tobytes()


@pytest.mark.parametrize("descr", ["'=i2'", "'i2'"])
def test_a_byte_order_that_is_the_hosts(tmp_path: Path, descr: str) -> None:
    assert read(write(tmp_path / "x", header(descr), bytes(4))).extent.byte_order == NATIVE_BYTE_ORDER


def test_the_long_integers_of_python_2(tmp_path: Path) -> None:
    assert read(write(tmp_path / "x", header(shape="(1L, 2L)"), bytes(8))).shape == (1, 2)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (numpy.array([None, 1], dtype=object), "pickle, which is never opened"),
        (numpy.zeros(2, [("a", "<f4"), ("b", "<i2")]), "structures of several fields"),
        (numpy.array(["a"]), "elements are strings"),
        (numpy.array([b"a"]), "byte strings"),
        (numpy.array(["2020-01-01"], "M8[D]"), "dates"),
        (numpy.array([1], "m8[s]"), "time spans"),
        (numpy.zeros(1, numpy.longdouble), "long double"),
        (numpy.zeros(1, numpy.clongdouble), "complex long double"),
        (numpy.zeros(2, "V3"), "have no type"),
        (numpy.zeros(2, ml_dtypes.bfloat16), "ml_dtypes.*save it as safetensors"),
    ],
)
def test_what_are_no_numbers(tmp_path: Path, array: numpy.ndarray[Any, Any], message: str) -> None:
    numpy.save(tmp_path / "x.npy", array)
    with pytest.raises(InputError, match=rf"x\.npy: .*{message}"):
        read(tmp_path / "x.npy")


def test_a_pickle_is_not_opened(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return os.mkdir, (str(tmp_path / "sprung"),)

    numpy.save(tmp_path / "x.npy", numpy.array([Trap()], dtype=object))
    with pytest.raises(InputError):
        read(tmp_path / "x.npy")
    assert not (tmp_path / "sprung").exists()


NESTED = 60_000
MALFORMED: list[tuple[str, str | bytes, int, str]] = [
    ("no literal", "descr", 8, "not a Python literal"),
    ("a call", "__import__('os')", 8, "not a Python literal"),
    ("a list", "[1]", 8, "not the dictionary"),
    ("another key", header().replace("}", "'x': 1}"), 8, "not the dictionary"),
    ("a missing key", "{'descr': '<f4', 'shape': (2,)}", 8, "not the dictionary"),
    ("unhashable key", "{[]: 1}", 8, "not a Python literal"),
    ("NUL", header() + "\0", 8, "not a Python literal"),
    ("odd escape", "'\\d'", 8, "not the dictionary"),
    ("deep parentheses", "(" * NESTED, 8, "not a Python literal"),
    ("deep brackets", "[" * (NESTED // 2) + "]" * (NESTED // 2), 8, "not a Python literal"),
    ("deep minus", "-" * NESTED + "1", 8, "not a Python literal"),
    ("long sum", "1" + "+1" * (NESTED // 2), 8, "not a Python literal"),
    ("long number", header(shape=f"({'9' * 5000},)"), 8, "not a Python literal|bad dimension"),
    ("long hexadecimal number", header(shape=f"(0x{'f' * NESTED},)"), 8, "bad dimension.*integer of 240000 bits"),
    ("negative dimension", header(shape="(-2,)"), 8, "bad dimension.*-2"),
    ("float dimension", header(shape="(2.0,)"), 8, "bad dimension"),
    ("bool dimension", header(shape="(True, 2)"), 8, "bad dimension"),
    ("huge shape", header(shape="(1<<40,)"), 8, "not a Python literal"),
    ("huge product", header(shape="(1099511627776, 1099511627776)"), 8, "too large"),
    ("shape no tuple", header(shape="2"), 8, "shape is wrong"),
    ("shape a list", header(shape="[2]"), 8, "shape is wrong"),
    ("order no bool", header(order="0"), 8, "fortran_order is wrong"),
    ("descr a tuple", header(descr="('<f4', (2,))"), 8, "structures"),
    ("descr unknown", header(descr="'<f3'"), 8, "long double|unknown"),
    ("descr a word", header(descr="'float32'"), 8, "unknown.*'float32'"),
    ("descr empty", header(descr="''"), 8, "unknown"),
    ("descr two orders", header(descr="'<>f4'"), 8, "unknown"),
    ("no byte order", header(descr="'|f4'"), 8, "no byte order"),
    ("truncated", header(), 7, "contradicts.*expected 8 bytes.*found 7.*truncated"),
    ("trailing", header(), 9, "contradicts.*only one array"),
]


@pytest.mark.parametrize(("text", "size", "message"), [row[1:] for row in MALFORMED], ids=[row[0] for row in MALFORMED])
@pytest.mark.filterwarnings("error")
def test_malformed_headers_are_refused(tmp_path: Path, text: str | bytes, size: int, message: str) -> None:
    path = write(tmp_path / "broken.npy", text, bytes(size))
    with pytest.raises(InputError, match=rf"(?s)broken\.npy.*({message})") as caught:
        read(path)
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x93NUMPY", "cut off"),
        (b"\x93NUMPY\x01\x00\x10", "cut off"),
        (b"\x93NUMPY\x04\x00\x10\0\0\0", "version.*4.0"),
        (b"\x93NUMPY\x00\x00\x10\0\0\0", "version.*0.0"),
        (b"\x93NUMPY\x01\x00\xff\xff{}", "header is too long"),
        (b"\x93NUMPY\x02\x00\x10\x00", "header is too long"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}", "header is too long"),
        (b"\x93NUMPY\x03\x00\x04\x00\x00\x00\xff{}}", "not UTF-8"),
        (b"\x93NUMPY\x02\x00\x01\x00\x01\x00" + b" " * 65537, "header is too long.*at most 65536"),
    ],
)
def test_a_start_that_is_wrong(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(InputError, match=message):
        read(tmp_path / "x.npy")


def test_numpy_is_not_imported(tmp_path: Path) -> None:
    numpy.save(tmp_path / "x.npy", numpy.zeros(2))
    numpy.savez_compressed(tmp_path / "x.npz", a=numpy.zeros(2))
    save_file({"a": numpy.zeros(2)}, tmp_path / "x.safetensors")
    package = Package()
    package.add_raw("a", b"x")
    (tmp_path / "x.pack").write_bytes(build_pack(package))
    code = (
        "import sys; from emitter.package import Package\n"
        "for name in 'npy', 'npz', 'safetensors', 'pack':\n"
        f"    Package().add_input({str(tmp_path)!r} + '/x.' + name)\n"
        "sys.exit('numpy' in sys.modules or 'zipfile' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)  # a fresh interpreter, which has imported nothing
