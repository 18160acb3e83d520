"""Objects for TVM's runtime, without TVM: the bytes of its format, the same for every target, and what is refused."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from io import BytesIO
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given
from hypothesis import strategies as st

import emitter
from emitter.contents import package_of
from emitter.dtypes import TABLE, DType
from emitter.errors import EmitterError, InputError, LayoutError, UsageError
from emitter.extract import extract
from emitter.inspect import open_file
from emitter.inspect.view import View
from emitter.interop.tvm import emit_library_bin
from emitter.interop.tvm_package import package_of_tvm
from emitter.interop.tvm_read import find_libraries, read_library
from emitter.interop.tvm_wire import plan_wire
from emitter.layout import FilePlan
from emitter.package import BufferSource, Extent, Package, Tensor
from emitter.targets import load, names
from tests.elf_objects import run, section_of
from tests.support import write_plan

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from emitter.interop.tvm_read import TvmLibrary

SYMBOL = "__tvm_ffi__library_bin"
TARGETS = list(names())


def five_modules() -> Package:
    """Return a tree of five modules, one of them imported twice, with the library and constants in it."""
    package = Package()
    package.add_tensor("w", np.arange(6, dtype=">f4").reshape(2, 3))
    package.add_tensor("half", np.arange(3).astype(ml_dtypes.bfloat16))
    package.add_module("library", "_lib", b"")
    package.add_module("shared", "cuda", b"a fatbin")
    package.add_module("one", "json", b"{}", imports=["shared"], functions={"f": ["w", "half"]})
    package.add_module("two", "json", b"[]", imports=["shared"], functions={"g": []})
    package.add_module("constants", "const_loader", b"", imports=["one", "two", "library"])
    return package


def wire_bytes(package: Package, tmp_path: Path) -> bytes:
    wire = plan_wire(package)
    write_plan(FilePlan(wire.size, wire.pieces, wire.copies), None, tmp_path / "wire")
    return (tmp_path / "wire").read_bytes()


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def numbers(*values: int) -> bytes:
    return struct.pack(f"<{1 + len(values)}Q", len(values), *values)


def texts(*values: str) -> bytes:
    return struct.pack("<Q", len(values)) + b"".join(map(text, values))


def tensor(code: int, bits: int, shape: tuple[int, ...], data: bytes, nbytes: int | None = None) -> bytes:
    head = struct.pack("<QQiiiBBH", 0xDD5E40F096B4A13F, 0, 1, 0, len(shape), code, bits, 1)
    size = len(data) if nbytes is None else nbytes
    return head + struct.pack(f"<{len(shape)}q", *shape) + struct.pack("<q", size) + data


def constants(names: list[str], tensors: list[bytes], functions: dict[str, list[str]]) -> bytes:
    parts = [texts(*names), struct.pack("<Q", len(tensors)), *tensors, texts(*functions)]
    return b"".join([*parts, struct.pack("<Q", len(functions)), *(texts(*taken) for taken in functions.values())])


def framed(body: bytes) -> bytes:
    return struct.pack("<Q", len(body)) + body


def five_bytes() -> bytes:
    """Return what the format says of `five_modules`, written out by hand."""
    w = np.arange(6, dtype="<f4").tobytes()
    half = np.arange(3).astype(ml_dtypes.bfloat16).tobytes()
    loader = constants(
        ["w", "half"], [tensor(2, 32, (2, 3), w), tensor(4, 16, (3,), half)], {"f": ["w", "half"], "g": []}
    )
    return framed(
        numbers(0, 3, 4, 5, 5, 5) + numbers(1, 2, 4, 3, 3)
        + text("const_loader") + text(loader) + text("json") + text("[]") + text("json") + text("{}")
        + text("cuda") + text("a fatbin") + text("_lib")
    )  # fmt: skip


def test_the_bytes_are_those_of_the_format(tmp_path: Path) -> None:
    assert wire_bytes(five_modules(), tmp_path) == five_bytes()


def library_of(path: Path) -> tuple[View, TvmLibrary]:
    with open_file(path) as artefact:
        (library,) = find_libraries(artefact.view, artefact.reader.report())  # type: ignore[union-attr] # it is known
    return View.of_bytes(path.read_bytes(), path.name), library


@pytest.mark.parametrize("target_name", TARGETS)
@pytest.mark.parametrize("prefix", [None, "model_"])
def test_every_target_has_the_same_bytes_aligned(tmp_path: Path, target_name: str, prefix: str | None) -> None:
    path = tmp_path / f"devc{load(target_name).object_suffix}"
    emit_library_bin(five_modules(), path, target=target_name, system_lib_prefix=prefix)
    view, library = library_of(path)
    expected = five_bytes()
    assert library.symbol == f"{load(target_name).symbol_prefix}{prefix or ''}{SYMBOL}"
    assert library.error is None
    assert view.read(library.offset, library.size, "the modules") == expected
    # As a tool that we did not write finds it.
    if load(target_name).object_format == "elf":
        elf = ELFFile(BytesIO(path.read_bytes()))
        (symbol,) = section_of(elf, ".symtab").get_symbol_by_name(f"{prefix or ''}{SYMBOL}")
        section = elf.get_section(symbol["st_shndx"])
        assert (symbol["st_value"], symbol["st_size"]) == (0, len(expected))
        assert section["sh_addralign"] >= 64
        assert section.data() == expected
        assert symbol["st_other"]["visibility"] == "STV_DEFAULT"
        return
    kind = "macho" if load(target_name).object_format == "macho" else "coff"
    name = {"macho": "__const" if prefix is None else "__tvm", "coff": ".rdata" if prefix is None else ".rdata$tvm"}
    listing = run("llvm-objdump", "-s", f"--section={name[kind]}", str(path)).stdout
    rows = [line.split(" ", 2) for line in listing.splitlines() if line.startswith(" ")]
    dumped = b"".join(bytes.fromhex(row[2][:36].replace(" ", "")) for row in rows)
    assert dumped.endswith(expected)
    alignment = run("llvm-readobj", "--sections", str(path)).stdout.split(name[kind], 1)[1]
    assert "Alignment: 6\n" in alignment if kind == "macho" else "IMAGE_SCN_ALIGN_64BYTES" in alignment


@pytest.mark.parametrize("target_name", [name for name in TARGETS if load(name).object_format == "elf"])
def test_a_constructor_registers_the_symbol(tmp_path: Path, target_name: str) -> None:
    path = tmp_path / "devc.o"
    emit_library_bin(five_modules(), path, target=target_name, system_lib_prefix="p_")
    said = run("readelf", "-aW", str(path))
    assert said.stderr == ""
    assert "INIT_ARRAY" in said.stdout
    undefined = {line.split()[-1] for line in said.stdout.splitlines() if " UND " in line and "GLOBAL" in line}
    assert undefined - {"_GLOBAL_OFFSET_TABLE_", ".TOC."} == {"TVMFFIEnvModRegisterSystemLibSymbol"}
    has_note = ".note.gnu.property" in said.stdout
    assert has_note == bool(load(target_name).properties)


LIBRARIES = {
    "x86_64-linux-gnu": "lib.so",
    "s390x-linux-gnu": "lib.so",
    "armv7-linux-gnueabihf": "lib.so",
    "arm64-apple-macos": "lib.dylib",
    "x86_64-windows-msvc": "lib.dll",
    "i686-windows-gnu": "lib.dll",
}


@pytest.mark.parametrize("target_name", list(LIBRARIES))
def test_a_library_needs_no_linker(tmp_path: Path, target_name: str) -> None:
    path = tmp_path / LIBRARIES[target_name]
    emit_library_bin(five_modules(), path, target=target_name)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    view, library = library_of(path)
    assert library.error is None
    assert view.read(library.offset, library.size, "the modules") == five_bytes()
    assert library.offset % 64 == 0
    exports = run("llvm-readobj", "--dyn-syms", "--coff-exports", "--syms", str(path)).stdout
    assert SYMBOL in exports
    assert [one.name for one in package_of(path).tensors] == ["w", "half"]
    assert [one.name for one in package_of(path, 0).tensors] == [SYMBOL]


def test_arguments_of_another_type_are_misuse(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a package"):
        emit_library_bin(5, tmp_path / "x.o")  # type: ignore[arg-type] # what it refuses
    with pytest.raises(UsageError, match="the name of a target is not text"):
        emit_library_bin(five_modules(), tmp_path / "x.o", target=None)  # type: ignore[arg-type] # what it refuses
    with pytest.raises(UsageError, match="no name that a file can have"):
        emit_library_bin(five_modules(), "\ud800.o")


def test_a_process_that_is_killed_leaves_nothing_beside_a_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not hasattr(os, "O_TMPFILE"):
        pytest.skip("O_TMPFILE is not in this system's os module")

    def look(*_arguments: object, **_named: object) -> None:
        raise KeyboardInterrupt(os.listdir(tmp_path))

    monkeypatch.setattr("emitter.driver.emit", look)
    with pytest.raises(KeyboardInterrupt) as caught:
        emit_library_bin(five_modules(), tmp_path / "lib.so", target="aarch64-linux-gnu")
    assert caught.value.args == ([],)
    assert os.listdir(tmp_path) == []


def test_a_stripped_library_without_sections_is_read(tmp_path: Path) -> None:
    emit_library_bin(five_modules(), tmp_path / "lib.so", target="aarch64-linux-gnu")
    data = bytearray((tmp_path / "lib.so").read_bytes())
    struct.pack_into("<Q", data, 40, 0)  # e_shoff
    struct.pack_into("<2H", data, 60, 0, 0)  # e_shnum, e_shstrndx
    (tmp_path / "bare.so").write_bytes(data)
    _, library = library_of(tmp_path / "bare.so")
    assert (library.error, len(library.modules)) == (None, 5)


@pytest.mark.parametrize("output", ["x.pack", "x.so", "x.a"])
def test_a_system_library_is_an_object(tmp_path: Path, output: str) -> None:
    with pytest.raises(UsageError, match="TVM cannot be given this"):
        emit_library_bin(five_modules(), tmp_path / output, target="x86_64-linux-gnu", system_lib_prefix="")
    with pytest.raises(UsageError, match="TVM cannot be given this"):
        emit_library_bin(five_modules(), tmp_path / "x.pack", target="x86_64-linux-gnu")


@pytest.mark.parametrize("prefix", [None, "p_"])
def test_payloads_beyond_4_gib(tmp_path: Path, prefix: str | None) -> None:
    with (tmp_path / "hole").open("wb") as file:
        file.truncate(5 << 30)
    package = Package()
    package.add_raw("w", tmp_path / "hole")
    path = tmp_path / "x.o"
    emit_library_bin(package, path, target="x86_64-linux-gnu", system_lib_prefix=prefix)
    size = plan_wire(package).size
    with path.open("rb") as stream:
        elf = ELFFile(stream)
        section = section_of(elf, ".lrodata" if prefix is None else ".lrodata.tvm")
        (symbol,) = section_of(elf, ".symtab").get_symbol_by_name(f"{prefix or ''}{SYMBOL}")
        assert (section["sh_size"], section["sh_flags"], symbol["st_size"]) == (size, 0x10000002, size)
    assert path.stat().st_blocks * 512 < 1 << 20  # a hole stays one
    for target_name, name in (
        ("arm64-apple-macos", "x.o"),
        ("x86_64-windows-msvc", "x.obj"),
        ("i686-linux-gnu", "x.o"),
    ):
        with pytest.raises(LayoutError, match="too large"):
            emit_library_bin(package, tmp_path / name, target=target_name, system_lib_prefix=prefix)


def test_tensors_alone_are_the_root_above_the_library(tmp_path: Path) -> None:
    package = Package()
    package.add_tensor("a", np.zeros((), np.int8))
    loader = constants(["a"], [tensor(0, 8, (), b"\0")], {})
    expected = framed(numbers(0, 1, 1) + numbers(1) + text("const_loader") + text(loader) + text("_lib"))
    assert wire_bytes(package, tmp_path) == expected


def test_modules_with_functions_are_imported_by_the_constants(tmp_path: Path) -> None:
    # TVM looks for __init_FUNCTION in what the const_loader itself imports.
    package = Package()
    package.add_module("inner", "json", b"i", functions={"f": []})
    package.add_module("outer", "other", b"o", imports=["inner"])
    read = read_bytes(wire_bytes(package, tmp_path))
    assert [(one.kind, one.imports) for one in read.modules] == [
        ("const_loader", (1, 2, 3)),
        ("other", (2,)),
        ("json", ()),
        ("_lib", ()),
    ]


def test_modules_without_functions_need_no_constants(tmp_path: Path) -> None:
    package = Package()
    package.add_module("only", "cuda", b"x")
    read = read_bytes(wire_bytes(package, tmp_path))
    assert [(one.kind, one.imports) for one in read.modules] == [("cuda", (1,)), ("_lib", ())]


def test_constants_of_another_tvm_keep_their_payload(tmp_path: Path) -> None:
    package = Package()
    payload = constants([], [], {})
    package.add_module("opaque", "const_loader", payload)
    read = read_bytes(wire_bytes(package, tmp_path))
    assert [one.kind for one in read.modules] == ["const_loader", "_lib"]


def with_tensor(dtype: DType, nbytes: int, encoding: int = 0) -> Package:
    package = Package()
    extent = Extent(BufferSource("x", memoryview(bytes(nbytes))), 0, nbytes)
    package.add(Tensor("x", dtype, (2,), extent, encoding=encoding))
    return package


def with_module(**options: object) -> Package:
    package = Package()
    package.add_module("m", "cuda", b"x", **options)  # type: ignore[arg-type] # as the table below gives them
    return package


def with_alternative() -> Package:
    package = with_module()
    package.add_alternative("m", "ptx", b"y")
    return package


def with_two(kind: str) -> Package:
    package = Package()
    package.add_module("a", kind, b"")
    package.add_module("b", kind, b"")
    package.add_module("root", "x", b"", imports=["a", "b"])
    return package


def with_tensor_metadata() -> Package:
    package = Package()
    package.add_tensor("x", np.zeros(2, np.int8), metadata={"unit": "V"})
    return package


def with_library_payload() -> Package:
    package = Package()
    package.add_module("m", "_lib", b"x")
    return package


REFUSED: dict[str, tuple[Callable[[], Package], str]] = {
    "lanes": (lambda: with_tensor(DType(2, 32, 4), 32), "cannot carry"),
    "int4": (lambda: with_tensor(DType(0, 4), 1), "cannot carry"),
    "float6": (lambda: with_tensor(DType(15, 6), 2), "cannot carry"),
    "an encoding": (lambda: with_tensor(DType(1, 8), 2, encoding=7), "cannot carry"),
    "package metadata": (lambda: Package(metadata={"a": "b"}), "metadata"),
    "a model version": (lambda: Package(model_version="1"), "model version"),
    "tensor metadata": (with_tensor_metadata, "metadata of a tensor"),
    "module metadata": (lambda: with_module(metadata={"a": "b"}), "metadata of a module"),
    "a schema version": (lambda: with_module(schema_version=2), "schema version"),
    "requirements": (lambda: with_module(requires={"sm": "87"}), "requirements"),
    "alternatives": (with_alternative, "alternatives"),
    "two libraries": (lambda: with_two("_lib"), "one module of kind _lib"),
    "two const_loaders": (lambda: with_two("const_loader"), "one module of kind const_loader"),
    "a library with bytes": (with_library_payload, "the library itself"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_what_the_format_cannot_hold_is_refused(case: str) -> None:
    make, message = REFUSED[case]
    with pytest.raises((InputError, UsageError), match=message):
        plan_wire(make())


def test_nothing_and_a_prefix_that_names_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to write"):
        emit_library_bin(Package(), tmp_path / "x.o")
    with pytest.raises(UsageError, match="prefix"):
        emit_library_bin(five_modules(), tmp_path / "x.o", system_lib_prefix="a-b")
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_the_same_as_the_api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("w.npy", np.arange(4, dtype=np.float32))
    command = [sys.executable, "-m", "emitter", "--symbols", "tvm", "--target", "s390x-linux-gnu", "w.npy"]
    done = subprocess.run([*command, "-o", "a.o", "--map", "a.json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    package = Package()
    package.add_input("w.npy")
    emit_library_bin(package, "b.o", target="s390x-linux-gnu")
    assert (tmp_path / "a.o").read_bytes() == (tmp_path / "b.o").read_bytes()
    emitter.emit(package, "c.a", target="s390x-linux-gnu", symbols="tvm")
    _, library = archive_library(tmp_path / "c.a")
    assert [one.kind for one in library.modules] == ["const_loader", "_lib"]


def archive_library(path: Path) -> tuple[str, TvmLibrary]:
    with open_file(path) as artefact:
        (member,) = artefact.members()
        assert member.reader is not None
        (library,) = find_libraries(member.view, member.reader.report())
    return member.name, library


def test_the_map_finds_each_tensor(tmp_path: Path) -> None:
    import json

    data = {"a": b"first", "b": b"", "c": b"third and last"}
    package = Package()
    for name, payload in data.items():
        package.add_raw(name, payload)
    package.add_module("m", "cuda", b"the payload of a module", functions={"f": ["c"]})
    emitter.emit(package, tmp_path / "x.o", target="x86_64-linux-gnu", symbols="tvm", map=tmp_path / "x.json")
    file = (tmp_path / "x.o").read_bytes()
    rows = json.loads((tmp_path / "x.json").read_text())["tensors"]
    assert {row["name"]: file[row["file_offset"] :][: row["size"]] for row in rows} == data


# Reading


def read_bytes(data: bytes, *, old: bool = False) -> TvmLibrary:
    return read_library(View.of_bytes(data, "bytes"), 0, len(data), SYMBOL, old=old)


def test_every_element_type_that_fits_comes_back(tmp_path: Path) -> None:
    package = Package()
    for row in TABLE:
        if row.dtype.bits % 8 == 0:
            size = row.dtype.bits // 8 * 3
            extent = Extent(BufferSource(row.name, memoryview(bytes(range(size)))), 0, size)
            package.add(Tensor(row.name, row.dtype, (3,), extent))
    data = wire_bytes(package, tmp_path)
    (loader, _) = read_bytes(data).modules
    assert loader.constants is not None
    assert {one.name: one.dtype for one in loader.constants.tensors} == {one.name: one.dtype for one in package.tensors}
    for one in loader.constants.tensors:
        assert data[one.offset :][: one.nbytes] == bytes(range(one.nbytes))


def test_inspect_shows_the_modules_and_the_tensors(tmp_path: Path) -> None:
    import json

    path = tmp_path / "devc.o"
    emit_library_bin(five_modules(), path, target="aarch64-linux-gnu")

    def inspect(*options: str) -> str:
        command = [sys.executable, "-m", "emitter", "inspect", str(path), *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    shown = inspect()
    assert "TVM's modules __tvm_ffi__library_bin" in shown
    assert [line.split()[:5] for line in shown.splitlines() if " json " in line] == [
        ["1", "json", "2", line_offset(shown, 1), "3"],
        ["2", "json", "2", line_offset(shown, 2), "3"],
    ]
    (library,) = json.loads(inspect("--json"))["objects"][0]["tvm"]
    assert [module["kind"] for module in library["modules"]] == ["const_loader", "json", "json", "cuda", "_lib"]
    assert library["modules"][0]["functions"] == [
        {"name": "f", "tensors": ["w", "half"]},
        {"name": "g", "tensors": []},
    ]
    listed = json.loads(inspect("--tensors", "--stats", "--json"))["tensors"]
    assert [(row["name"], row["dtype"], row["shape"], row["crc32c"]) for row in listed] == [
        ("w", "float32", [2, 3], None),
        ("half", "bfloat16", [3], None),
    ]
    assert listed[0]["stats"]["maximum"] == 5


def line_offset(shown: str, number: int) -> str:
    return next(line.split()[3] for line in shown.splitlines() if line.split()[:2] == [str(number), "json"])


@pytest.mark.parametrize("target_name", ["riscv64-linux-gnu", "s390x-linux-gnu", "arm64-apple-macos"])
def test_what_is_extracted_gives_the_same_bytes_again(tmp_path: Path, target_name: str) -> None:
    first, second = tmp_path / "first.o", tmp_path / "second.o"
    emit_library_bin(five_modules(), first, target=target_name)
    extract(first, tmp_path / "out.pack")
    package = Package()
    package.add_input(tmp_path / "out.pack")
    assert [one.name for one in package.modules] == ["4._lib", "3.cuda", "2.json", "1.json", "0.const_loader"]
    emit_library_bin(package, second, target=target_name)
    assert second.read_bytes() == first.read_bytes()


def test_a_directory_and_safetensors_are_written_too(tmp_path: Path) -> None:
    emit_library_bin(five_modules(), tmp_path / "x.o", target="armv7-linux-gnueabihf")
    done = extract(tmp_path / "x.o", f"{tmp_path}/out/")
    assert (done.tensors, done.modules) == (2, 5)
    assert np.load(tmp_path / "out" / "w.npy").tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (tmp_path / "out" / "3.cuda.0.bin").read_bytes() == b"a fatbin"
    assert extract(tmp_path / "x.o", tmp_path / "w.safetensors", only=["w"]).payload_size == 24


def test_elements_that_tvm_stores_otherwise_come_as_bytes(tmp_path: Path) -> None:
    # One byte for each int4, whatever DLPack says.
    loader = constants(["q"], [tensor(0, 4, (3,), b"\1\2\3")], {})
    data = framed(numbers(0, 1, 1) + numbers(1) + text("const_loader") + text(loader) + text("_lib"))
    path = object_of(tmp_path, data, SYMBOL)
    extract(path, tmp_path / "q.pack")
    package = Package()
    package.add_input(tmp_path / "q.pack", keep_metadata=True)
    (found,) = package.tensors
    assert (found.dtype, found.shape) == (DType(1, 8), (3,))
    assert found.metadata == {"tvm.dtype": "int4", "tvm.shape": "3"}


def object_of(tmp_path: Path, data: bytes, symbol: str) -> Path:
    """Return an object that an assembler made, with `data` behind `symbol`."""
    (tmp_path / "blob").write_bytes(data)
    (tmp_path / "x.s").write_text(f'.data\n.globl {symbol}\n{symbol}:\n.incbin "blob"\n.size {symbol}, {len(data)}\n')
    run("gcc", "-c", "x.s", "-o", "x.o", cwd=tmp_path)
    return tmp_path / "x.o"


# The old layout: kinds, and then whatever a module wrote.
OLD_LOADER = constants(["w"], [tensor(2, 32, (2,), b"12345678")], {"f": ["w"]})
OLD_TREE = text("_import_tree") + numbers(0, 1, 2, 2) + numbers(1, 2)


@pytest.mark.parametrize("kind", ["const_loader", "metadata"])
def test_the_old_layout_is_read_through_its_constants(tmp_path: Path, kind: str) -> None:
    body = struct.pack("<Q", 4) + text(kind) + OLD_LOADER + text("_lib") + text(kind) + constants([], [], {}) + OLD_TREE
    path = object_of(tmp_path, framed(body), "__tvm_dev_mblob")
    _, library = library_of(path)
    assert library.error is None
    assert [(one.kind, one.imports) for one in library.modules] == [(kind, (1,)), ("_lib", (2,)), (kind, ())]
    assert extract(path, tmp_path / "w.safetensors").tensors == 1


def test_the_old_layout_without_a_tree_hangs_all_below_the_library() -> None:
    library = read_bytes(framed(struct.pack("<Q", 1) + text("const_loader") + OLD_LOADER), old=True)
    assert library.error is None
    assert [(one.kind, one.imports) for one in library.modules] == [("_lib", (1,)), ("const_loader", ())]


def test_the_old_layout_stops_where_lengths_are_unknown() -> None:
    body = struct.pack("<Q", 4) + text("const_loader") + OLD_LOADER + text("cuda") + b"?" * 99 + text("_lib") + OLD_TREE
    library = read_bytes(framed(body), old=True)
    assert [one.kind for one in library.modules] == ["const_loader", "cuda"]
    assert "do not state how long a module of kind cuda is" in str(library.error)


def test_a_module_that_is_the_last_of_the_old_layout_is_the_rest() -> None:
    library = read_bytes(framed(struct.pack("<Q", 1) + text("cuda") + b"fmt and so on"), old=True)
    assert library.error is None
    assert [(one.kind, one.size) for one in library.modules] == [("_lib", 0), ("cuda", 13)]


@given(st.integers(0, len(five_bytes()) - 1), st.integers(0, 255), st.integers(0, len(five_bytes())))
def test_no_mutation_is_read_beyond_the_end(at: int, value: int, length: int) -> None:
    data = bytearray(five_bytes())
    data[at] = value
    check_bounds(bytes(data))
    check_bounds(bytes(data[:length]))


@pytest.mark.parametrize("old", [False, True])
def test_every_length_is_compared(old: bool) -> None:
    if old:
        data = framed(struct.pack("<Q", 3) + text("const_loader") + OLD_LOADER + text("_lib") + OLD_TREE)
    else:
        data = five_bytes()
    huge = [1, 2, 255, 1 << 20, (1 << 31) - 1, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
    errors = 0
    for at in range(len(data) - 8):
        for value in huge:
            mutated = data[:at] + struct.pack("<Q", value) + data[at + 8 :]
            errors += check_bounds(mutated, old=old)
    assert errors > len(data)  # most places hold lengths, numbers and types


def check_bounds(data: bytes, *, old: bool = False) -> bool:
    """Read `data`, whose every extent must be in it; return whether it was found to be broken."""
    library = read_bytes(data, old=old)
    if library.error is None:
        assert library.size <= len(data)
        for number, module in enumerate(library.modules):
            assert 0 <= module.offset <= module.offset + module.size <= len(data)
            assert all(number < child < len(library.modules) for child in module.imports)
            for one in module.constants.tensors if module.constants else ():
                assert 0 <= one.offset <= one.offset + one.nbytes <= len(data)
    return library.error is not None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:16], "does not fit"),
        (lambda data: framed(data[8:] + b"x"), "end before nbytes"),
        (lambda data: data.replace(numbers(1, 2, 4, 3, 3), numbers(1, 2, 4, 3, 2)), "cannot import"),
        (lambda data: data.replace(numbers(1, 2, 4, 3, 3), numbers(1, 2, 5, 3, 3)), "cannot import"),
        (lambda data: data.replace(numbers(0, 3, 4, 5, 5, 5), numbers(0, 3, 2, 5, 5, 5)), "indptr"),
        (lambda data: data.replace(text("cuda"), text("cu\0a")), "kind"),
        (lambda data: data.replace(struct.pack("<Q", 0xDD5E40F096B4A13F), bytes(8)), "broken header"),
        (lambda data: data.replace(struct.pack("<2q", 2, 3), struct.pack("<2q", 3, 3)), "another size"),
        (lambda data: data.replace(text("half"), text("ninety"[:4]), 1), ""),
    ],
)
def test_what_is_broken_is_said(change: Callable[[bytes], bytes], message: str) -> None:
    library = read_bytes(change(five_bytes()))
    assert message in str(library.error or "")
    assert (library.error is None) == (not message)


@pytest.mark.parametrize("file", ["x.so", "x.dylib", "x.dll", "x.o", "x.obj"])
def test_mutated_files_are_read_or_refused(tmp_path: Path, file: str) -> None:
    from random import Random

    target = {".so": "riscv64-linux-gnu", ".dylib": "arm64-apple-macos", ".o": "s390x-linux-gnu"}
    path = tmp_path / file
    emit_library_bin(five_modules(), path, target=target.get(path.suffix, "x86_64-windows-msvc"))
    whole = path.read_bytes()
    random = Random(file)
    read = 0
    for _ in range(250):
        data = bytearray(whole)
        for _ in range(random.choice((1, 1, 2, 8))):
            at = random.randrange(len(data))
            data[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF, data[at] ^ 1 << random.randrange(8)))
        (tmp_path / "mutated").write_bytes(data[: random.choice((len(data), len(data), random.randrange(len(data))))])
        try:
            package = package_of_tvm(str(tmp_path / "mutated"))
        except EmitterError:
            continue
        for tensor in package.tensors if package else ():
            assert tensor.extent.offset + tensor.extent.length <= len(data)
        read += package is not None
    assert read > 20


def test_a_broken_library_is_a_fault_and_no_package(tmp_path: Path) -> None:
    path = object_of(tmp_path, five_bytes()[:-3], SYMBOL)
    command = [sys.executable, "-m", "emitter", "inspect", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "fault in what TVM stored" in done.stdout
    with pytest.raises(EmitterError, match="does not fit"):
        extract(path, tmp_path / "x.pack")


def test_a_file_of_neither_kind_is_refused_as_before(tmp_path: Path) -> None:
    path = object_of(tmp_path, b"x", "other")
    with pytest.raises(EmitterError, match="holds no pack"):
        extract(path, tmp_path / "x.pack")
