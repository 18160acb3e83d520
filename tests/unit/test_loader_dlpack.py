"""DLPack capsules of the loader, judged by numpy and by a consumer made of ctypes from dlpack.h."""

from __future__ import annotations

import ctypes
import gc
import os
import struct
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy
import pytest

from emitter.dtypes import BY_NAME
from emitter.errors import LoadError
from emitter.loaders import _dlpack, load
from emitter.package import Package
from tests.loader_support import add, sample_pack
from tests.support import build_pack

if TYPE_CHECKING:
    from pathlib import Path

    from emitter.loaders import Tensor

pytestmark = pytest.mark.skipif(
    tuple(map(int, numpy.__version__.split(".")[:2])) < (2, 1), reason="numpy before 2.1 has no versioned DLPack"
)

READ_ONLY, IS_COPIED = 1, 2
VERSIONED, LEGACY = b"dltensor_versioned", b"dltensor"


class DLTensor(ctypes.Structure):
    """`DLTensor` of dlpack.h, with the type's code and bits as an array."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 2),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Versioned(ctypes.Structure):
    """`DLManagedTensorVersioned`."""

    _fields_ = (
        ("version", ctypes.c_uint32 * 2),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", DELETER),
        ("flags", ctypes.c_uint64),
        ("dl_tensor", DLTensor),
    )


class Legacy(ctypes.Structure):
    """`DLManagedTensor`."""

    _fields_ = (("dl_tensor", DLTensor), ("manager_ctx", ctypes.c_void_p), ("deleter", DELETER))


def _prototype(name: str, result: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, ctypes.py_object, ctypes.c_char_p)((name, ctypes.pythonapi))


is_valid = _prototype("PyCapsule_IsValid", ctypes.c_int)
pointer_of = _prototype("PyCapsule_GetPointer", ctypes.c_void_p)
set_name = _prototype("PyCapsule_SetName", ctypes.c_int)
USED = {VERSIONED: b"used_dltensor_versioned", LEGACY: b"used_dltensor"}


def look(capsule: object, name: bytes = VERSIONED) -> Any:
    assert is_valid(capsule, name)
    return (Versioned if name == VERSIONED else Legacy).from_address(pointer_of(capsule, name) or 0)


def consume(capsule: object, name: bytes = VERSIONED) -> Any:
    """Take the tensor over, as a consumer does: the capsule no longer ends it."""
    managed = look(capsule, name)
    assert set_name(capsule, USED[name]) == 0
    return managed


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "sample.pack"
    file.write_bytes(sample_pack())
    return file


def _mapped(path: Path) -> bool:
    if not os.path.exists("/proc/self/maps"):
        pytest.skip("/proc/self/maps is not on this system")
    gc.collect()
    with open("/proc/self/maps") as file:
        return str(path) in file.read()


def test_numpy_takes_a_read_only_view(path: Path) -> None:
    library = load(path)
    array = numpy.from_dlpack(library.tensor("w"))  # type: ignore[arg-type] # numpy's protocol is narrower than the standard's
    assert not array.flags.writeable
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert array.__array_interface__["data"] == library["w"].__array_interface__["data"]
    del library
    assert _mapped(path)
    assert array.sum() == 15
    del array
    assert not _mapped(path)


def test_a_copy_is_writable_and_independent(path: Path) -> None:
    library = load(path)
    array = numpy.from_dlpack(library.tensor("w"), copy=True)  # type: ignore[arg-type] # see above
    # numpy 2.1 takes everything as read-only, its own arrays as well.
    assert array.flags.writeable == numpy.from_dlpack(numpy.arange(3), copy=True).flags.writeable
    managed = consume(library.tensor("w").__dlpack__(max_version=(1, 0), copy=True))
    ctypes.memset(managed.dl_tensor.data, 0, 24)
    assert library["w"].sum() == 15
    del library
    assert not _mapped(path)
    assert array.sum() == 15
    managed.deleter(ctypes.addressof(managed))


@pytest.mark.parametrize("name", ["w", "b", "nibbles", "scalar", "empty", "page", "größe"])
def test_the_structure_says_what_the_record_says(path: Path, name: str) -> None:
    tensor = load(path).tensor(name)
    capsule = tensor.__dlpack__(max_version=(1, 1))
    managed = look(capsule)
    assert tuple(managed.version) == (1, 1)
    assert managed.flags == READ_ONLY
    assert managed.deleter
    view = managed.dl_tensor
    assert tuple(view.device) == (1, 0) == tensor.__dlpack_device__()
    assert (*view.dtype, view.lanes) == tensor.dtype
    assert view.ndim == len(tensor.shape)
    assert tuple(view.shape[: view.ndim] if view.ndim else ()) == tensor.shape
    assert tuple(view.strides[: view.ndim] if view.ndim else ()) == tensor.strides
    assert view.byte_offset == 0
    if tensor.nbytes:
        assert ctypes.string_at(view.data, tensor.nbytes) == bytes(tensor.bytes())
        page = 4096
        assert view.data % min(tensor.alignment, page) == 0
    else:
        assert view.data is None


@pytest.mark.parametrize(("asked", "given"), [((1, 0), (1, 0)), ((1, 1), (1, 1)), ((1, 7), (1, 1)), ((2, 0), (1, 1))])
def test_the_version_is_one_that_the_consumer_takes(path: Path, asked: tuple[int, int], given: tuple[int, int]) -> None:
    assert tuple(look(load(path).tensor("w").__dlpack__(max_version=asked)).version) == given


@pytest.mark.parametrize("max_version", [None, (0, 8)])
@pytest.mark.parametrize("copy", [None, False])
def test_a_consumer_that_cannot_see_read_only_is_told_to_copy(
    path: Path, max_version: tuple[int, int] | None, copy: bool | None
) -> None:
    with pytest.raises(BufferError, match="copy=True"):
        load(path).tensor("w").__dlpack__(max_version=max_version, copy=copy)


def test_old_consumers_get_a_copy_in_an_old_capsule(path: Path) -> None:
    tensor = load(path).tensor("b")
    managed = consume(tensor.__dlpack__(copy=True), LEGACY)
    view = managed.dl_tensor
    assert (tuple(view.dtype), view.lanes, view.ndim, view.shape[0], view.strides[0]) == ((4, 16), 1, 1, 3, 1)
    assert ctypes.string_at(view.data, 6) == bytes(tensor.bytes())
    ctypes.memset(view.data, 0, 6)
    assert bytes(tensor.bytes()) != bytes(6)
    managed.deleter(ctypes.addressof(managed))


def test_a_copy_says_so(path: Path) -> None:
    capsule = load(path).tensor("w").__dlpack__(max_version=(1, 0), copy=True)
    assert look(capsule).flags == IS_COPIED


def test_unaligned_bytes_are_copied_or_refused() -> None:
    pack = sample_pack()
    buffer = numpy.zeros(len(pack) + 16, numpy.uint8)
    shift = 1 - buffer.__array_interface__["data"][0] % 16 + 16
    shift %= 16
    buffer[shift : shift + len(pack)] = numpy.frombuffer(pack, numpy.uint8)
    library = load(buffer.data[shift : shift + len(pack)])
    tensor = library.tensor("w")
    assert tensor.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    capsule = tensor.__dlpack__(max_version=(1, 0))
    assert look(capsule).flags == IS_COPIED
    assert look(capsule).dl_tensor.data % 4 == 0
    with pytest.raises(BufferError, match="not aligned to 4"):
        tensor.__dlpack__(max_version=(1, 0), copy=False)
    assert look(library.tensor("page").__dlpack__(max_version=(1, 0), copy=False)).flags == READ_ONLY


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"stream": 1}, "streams"), ({"dl_device": (2, 0)}, "main memory"), ({"dl_device": (1, 1)}, "main memory")],
)
def test_refuses_other_devices(path: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(BufferError, match=message):
        load(path).tensor("w").__dlpack__(max_version=(1, 0), **arguments)
    look(load(path).tensor("w").__dlpack__(max_version=(1, 0), dl_device=(1, 0)))


def test_refuses_the_other_byte_order_and_encodings() -> None:
    foreign = load(sample_pack("big" if sys.byteorder == "little" else "little"))
    for name in ("w", "b", "scalar", "größe"):
        for copy in (None, True):
            with pytest.raises(BufferError, match="-endian"):
                foreign.tensor(name).__dlpack__(max_version=(1, 0), copy=copy)
    for name in ("page", "nibbles"):
        look(foreign.tensor(name).__dlpack__(max_version=(1, 0)))
    with pytest.raises(BufferError, match="encoding 2"):
        load(sample_pack()).tensor("blocks").__dlpack__(max_version=(1, 0))


def test_a_closed_library_gives_no_capsule_and_keeps_those_it_gave(path: Path) -> None:
    with load(path) as library:
        tensor = library.tensor("w")
        capsule = tensor.__dlpack__(max_version=(1, 0))
    with pytest.raises(LoadError, match="closed"):
        tensor.__dlpack__(max_version=(1, 0))
    del library, tensor
    managed = consume(capsule)
    del capsule
    assert _mapped(path)
    assert ctypes.string_at(managed.dl_tensor.data, 24) == struct.pack("=6f", *range(6))
    managed.deleter(ctypes.addressof(managed))
    assert not _mapped(path)


def test_a_capsule_that_nobody_takes_ends_its_tensor(path: Path) -> None:
    capsule = load(path).tensor("w").__dlpack__(max_version=(1, 0))
    assert _mapped(path)
    del capsule
    assert not _mapped(path)


def test_a_consumer_may_end_its_tensor_without_the_interpreter_lock(path: Path) -> None:
    managed = consume(load(path).tensor("w").__dlpack__(max_version=(1, 0)))
    thread = threading.Thread(target=managed.deleter, args=(ctypes.addressof(managed),))  # CFUNCTYPE drops the lock
    thread.start()
    thread.join()
    assert not _mapped(path)


def test_nothing_leaks(path: Path) -> None:
    library = load(path)
    tensors: list[Tensor] = [library.tensor("w"), library.tensor("empty"), library.tensor("nibbles")]

    def memory() -> int:
        gc.collect()
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def round_of(count: int) -> None:
        for _ in range(count):
            for tensor in tensors:
                tensor.__dlpack__(max_version=(1, 1))
                tensor.__dlpack__(copy=True)
                for arguments, name in (({"max_version": (1, 1)}, VERSIONED), ({"copy": True}, LEGACY)):
                    managed = consume(tensor.__dlpack__(**arguments), name)
                    managed.deleter(ctypes.addressof(managed))

    if not os.path.exists("/proc/self/statm"):
        pytest.skip("/proc/self/statm is not on this system")
    round_of(2000)
    before, blocks = memory(), sys.getallocatedblocks()
    round_of(10_000)
    assert sys.getallocatedblocks() - blocks < 1000
    assert memory() - before < 6 << 20  # 120,000 capsules of at least 100 bytes would be 12 MB
    del library
    tensors.clear()
    assert not _mapped(path)


def test_the_error_of_a_consumer_comes_through(path: Path) -> None:
    library = load(path)
    with pytest.raises((RuntimeError, BufferError), match=r"[Uu]nsupported dtype"):
        numpy.from_dlpack(library.tensor("b"))  # type: ignore[arg-type] # see above
    with pytest.raises(ValueError, match="matmul"):
        _ = numpy.from_dlpack(library.tensor("w")) @ numpy.zeros(7)  # type: ignore[arg-type] # see above


def test_tensors_may_outlive_the_interpreter(path: Path) -> None:
    program = """
import ctypes, sys, numpy
from emitter.loaders import _dlpack, load
library = load(sys.argv[1])
kept = numpy.from_dlpack(library.tensor("w"))
sys.modules["kept"] = capsule = library.tensor("w").__dlpack__(max_version=(1, 0))
class Late:
    array = numpy.from_dlpack(library.tensor("scalar"))
    def __del__(self): assert self.array == -5
sys.late = Late()
print(kept.sum())
"""
    result = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "15.0\n", "")


@pytest.mark.parametrize(
    "name", ["float8_e5m2", "float6_e2m3fn", "float4_e2m1fn", "int2", "uint1", "bool", "complex128"]
)
def test_every_kind_of_type_is_said_in_dlpacks_codes(name: str) -> None:
    dtype = BY_NAME[name].dtype
    package = Package()
    add(package, "t", dtype, (5,), bytes(dtype.nbytes((5,))))
    view = look(load(build_pack(package)).tensor("t").__dlpack__(max_version=(1, 1))).dl_tensor
    assert (*view.dtype, view.lanes) == dtype


def test_a_numpy_without_versions_is_said(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As numpy before 2.1 is, whose arrays take no max_version."""

    class Old(numpy.ndarray[Any, Any]):
        def __dlpack__(self, *, stream: None = None) -> Any:  # type: ignore[override] # what it was then
            return super().__dlpack__(stream=stream)

    monkeypatch.setattr(_dlpack, "_owner", Old)
    tensor = load(path).tensor("w")
    with pytest.raises(BufferError, match=r"needs numpy 2.1 or later; or pass copy=True and no max_version"):
        tensor.__dlpack__(max_version=(1, 0))
    look(tensor.__dlpack__(copy=True), LEGACY)
