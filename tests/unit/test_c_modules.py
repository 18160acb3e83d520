"""Modules in C: what emitter.h reads, chooses, builds and refuses is what the Python loader does."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from cross import table
from emitter import Package, load
from emitter.errors import FormatError
from emitter.pack import format as fmt
from tests import c_tools
from tests.module_packages import PLACES, module_package, module_tables_of, with_checksums
from tests.support import build_pack

if TYPE_CHECKING:
    from pathlib import Path

    from emitter.package import ByteOrder

SOURCE = os.path.join(c_tools.DATA, "modules.c")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("modules")
    return c_tools.build("gcc", str(folder / "modules"), *c_tools.WARNINGS, *c_tools.sanitizers("gcc"), "-g", SOURCE)


def written(folder: Path, package: Package, order: ByteOrder = "little") -> str:
    path = folder / "m.pack"
    path.write_bytes(build_pack(package, order))
    return str(path)


def expected_text(path: str) -> list[str]:
    """Return what the program prints of modules, as the Python loader has them."""
    lines = []
    with load(path) as library:
        for module in library.modules:
            lines.append(f"module {module.number} {module.name}")
            for one in module.alternatives:
                what = f"{one.kind} {one.schema_version}, {one.size} bytes at {one.file_offset}"
                lines.append(f"  alternative {one.number}: {what}, crc right")
            lines += (f"  import {child.name}" for child in module.imports)
            for name, tensors in module.functions.items():
                arguments = "".join(f" {one.name}[{len(one.shape)}]@{one.file_offset}" for one in tensors)
                lines.append(f"  function {name}:{arguments}")
            lines += (f"  metadata {key}={value}" for key, value in module.metadata.items())
        lines.append(f"{len(library.modules)} modules")
    return lines


def test_modules_are_what_the_python_loader_says(tmp_path: Path, program: str) -> None:
    path = written(tmp_path, module_package())
    done = c_tools.run(program, path, "sm=90", "driver=600")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    expected = expected_text(path)
    assert lines[: len(expected)] == expected
    # One module with what it imports, then the others: children first, each once; destroyed from the root on.
    assert lines[len(expected) :] == [
        "select 1",
        "build graph: graph 2",
        "build engine: tensorrt 1 <- graph",
        "build device: cuda 1 <- graph",
        "build tables: raw 1",
        "build root: library 1 <- engine <- device <- tables",
        *(f"destroy {name}" for name in ("root", "tables", "device", "engine", "graph")),
    ]


def test_a_pack_without_modules_has_none(tmp_path: Path, program: str) -> None:
    done = c_tools.run(program, written(tmp_path, c_tools.sample_package()))
    assert done.stdout.splitlines()[0] == "0 modules"


@pytest.mark.parametrize(("place", "number"), PLACES)
def test_the_alternative_that_fits_is_the_one_that_python_chooses(
    tmp_path: Path, program: str, place: dict[str, str], number: int
) -> None:
    done = c_tools.run(
        program, written(tmp_path, module_package()), *(f"{key}={value}" for key, value in place.items())
    )
    assert f"select {number}" in done.stdout.splitlines()


def test_it_says_why_nothing_fits(tmp_path: Path, program: str) -> None:
    package = module_package()
    package.modules[1].alternatives.pop()
    path = written(tmp_path, package)
    done = c_tools.run(program, path, "sm=86", "driver=1")
    message = next(line for line in done.stdout.splitlines() if line.startswith("module 'engine'"))
    assert message == (
        "module 'engine': no alternative fits here: 0 (tensorrt): wants sm == 87, here sm is '86'; "
        "1 (tensorrt): wants driver >= 550.54, here driver is '1'"
    )
    done = c_tools.run(program, path, "sm=87")
    assert "wants tensorrt >= 10.3, < 11, here tensorrt is not known" in done.stdout


def test_a_fallback_that_nobody_loads_says_what_was_passed_over(tmp_path: Path, program: str) -> None:
    package = Package()
    package.add_module("engine", "tensorrt", b"", requires={"sm": "87"})
    package.add_alternative("engine", "graph", b"")
    done = c_tools.run(program, written(tmp_path, package), "!unknown=graph", "sm=90")
    assert (
        "module 'engine': no loader was given for modules of this kind: kind 'graph', schema version 1; "
        "passed over: 0 (tensorrt): wants sm == 87, here sm is '90'"
    ) in done.stdout.splitlines()


def test_an_unknown_kind_an_unknown_version_and_a_failure_are_named(tmp_path: Path, program: str) -> None:
    path = written(tmp_path, module_package())
    kind, version = "no loader was given for modules of this kind", "the loader does not know this schema version"
    for argument, message in (
        ("!unknown=cuda", f"module 'device': {kind}: kind 'cuda', schema version 1"),
        ("!unknown=1", f"module 'graph': {version}: kind 'graph', schema version 2; the loader takes 1 to 1"),
        ("!unbuildable=tables", "module 'tables': the loader could not build the module: kind 'raw', schema version 1"),
    ):
        done = c_tools.run(program, path, argument)
        assert done.returncode == 0, done.stderr
        assert message in done.stdout.splitlines()


def test_damage_is_judged_as_the_python_loader_judges_it(tmp_path: Path, program: str) -> None:
    """Every byte of the tables of modules, under the address sanitizer: nothing is read outside of the pack."""
    data = build_pack(module_package(), "little")
    (tmp_path / "m.pack").write_bytes(data)
    start, end = module_tables_of(data, "little")
    done = c_tools.run(program, str(tmp_path / "m.pack"), "--damage", str(start), str(end))
    assert done.returncode == 0, done.stderr
    judged = done.stdout.strip()
    assert len(judged) == (end - start) * 5
    for at in range(start, end):
        for number, value in enumerate((0, 1, 255, data[at] ^ 1, data[at] ^ 0x80)):
            changed = bytearray(data)
            changed[at] = value
            try:
                load(with_checksums(changed, "little")).validate()
                valid = True
            except FormatError as error:
                # The schema hash is compared in Python alone: emitter.h has no SHA-256.
                valid = "schema_hash" in str(error)
            assert judged[(at - start) * 5 + number] == "01"[valid], (at - start, value)


def test_every_offset_count_index_and_circle_is_judged_as_in_python(tmp_path: Path, program: str) -> None:
    """Every word of the directory and of the tables of modules, as every small number and at every limit."""
    data = build_pack(module_package(), "little")
    (tmp_path / "m.pack").write_bytes(data)
    tables = int.from_bytes(data[84:88], "little")
    for start, end in ((fmt.HEADER.size, fmt.HEADER.size + 16 * tables), module_tables_of(data, "little")):
        done = c_tools.run(program, str(tmp_path / "m.pack"), "--words", str(start), str(end))
        assert done.returncode == 0, done.stderr
        judged = iter(done.stdout.strip())
        for at in range(start, end, 4):
            before = int.from_bytes(data[at : at + 4], "little")
            limits = (0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)
            values = (*range(16), *limits, before + 1, before - 1, int.from_bytes(data[32:36], "little"), len(data))
            for value in values:
                changed = bytearray(data)
                changed[at : at + 4] = (value % (1 << 32)).to_bytes(4, "little")
                try:
                    load(with_checksums(changed, "little")).validate()
                    valid = True
                except FormatError as error:
                    valid = "schema_hash" in str(error)
                assert next(judged) == "01"[valid], (at, value)
        assert next(judged, None) is None


@pytest.mark.parametrize(
    "toolchain", [one for one in table.TOOLCHAINS if not one.native], ids=lambda toolchain: toolchain.name
)
def test_every_cpu_reads_the_same(tmp_path: Path, toolchain: table.Toolchain) -> None:
    missing = table.missing_tool(toolchain)
    if missing is not None:
        pytest.skip(f"{missing} is not installed")
    order: ByteOrder = "big" if toolchain.name.startswith("s390x") else "little"
    path = written(tmp_path, module_package(), order)
    binary = c_tools.build(toolchain.c, str(tmp_path / "modules"), "-O1", SOURCE)
    done = c_tools.run(*toolchain.runner(), binary, path, "sm=87", "tensorrt=10.3.0")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    expected = expected_text(path)
    assert lines[: len(expected)] == expected
    assert "select 0" in lines


@pytest.mark.parametrize(
    ("compiler", "options"),
    [("gcc", c_tools.WARNINGS), ("g++", ("-Wall", "-Wextra", "-Werror", "-x", "c++", "-std=c++11"))],
)
def test_dltensors_are_those_of_dlpack(tmp_path: Path, compiler: str, options: tuple[str, ...]) -> None:
    """The program compares the two field by field as it is compiled, and does not compile where one differs."""
    build = (compiler, str(tmp_path / "a"), *options, "-DWITH_DLPACK")
    path = written(tmp_path, module_package())
    done = c_tools.run(c_tools.build(*build, f"-I{c_tools.DATA}", SOURCE), path)
    assert done.stdout.splitlines()[: len(expected_text(path))] == expected_text(path), done.stderr
    # The same with two fields in each other's place.
    (tmp_path / "dlpack").mkdir()
    with open(os.path.join(c_tools.DATA, "dlpack", "dlpack.h"), encoding="utf-8") as file:
        text = file.read()
    shape, strides = "    int64_t *shape;\n", "    int64_t *strides;\n"
    (tmp_path / "dlpack" / "dlpack.h").write_text(text.replace(shape + strides, strides + shape))
    with pytest.raises(AssertionError, match="same_shape"):
        c_tools.build(*build, f"-I{tmp_path}", SOURCE)
