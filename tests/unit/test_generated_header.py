"""The C header of a package."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from emitter import Package, dtypes
from emitter.dtypes import DType
from emitter.errors import LayoutError
from emitter.header import render_header
from emitter.pack.plan import plan_pack, schema_hash
from emitter.symbols import tensor_symbols
from tests import c_tools

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from emitter.model import TensorSymbol

FLOAT = DType(2, 32)

NAMES = [
    "conv1.weight",
    "*/ int oops; /*",
    "/*/",
    "a**/b",
    "line\nbreak",
    "trigraph ??/",
    'quote " and back\\slash\\',
    "\N{CYRILLIC SMALL LETTER ZHE}",
    "\U0001f600",
    "tab\tand\x7f",
    "//",
    "???/",
    "int",
    "main",
    "name@VER",
    "0",
]


# Warnings about every name that ends in an underscore, and about calling what is marked as perhaps unused.
QUIET = ("-Wno-reserved-macro-identifier", "-Wno-reserved-identifier", "-Wno-used-but-marked-unused")


def header(
    package: Package, name: str = "model", *, symbols: bool = True, prefix: str | None = None, **options: Any
) -> str:
    plan = plan_pack(package, "little")
    chosen: Sequence[TensorSymbol] = ()
    if symbols:
        chosen = tensor_symbols(package.tensors, plan, f"{name}_t_" if prefix is None else prefix)
    return render_header(name=name, package=package, plan=plan, symbols=chosen, **options)


def compiles(tmp_path: Path, text: str) -> list[str]:
    """Compile a file that includes a header twice, and uses every accessor; return the accessors."""
    (tmp_path / "model.h").write_text(text)
    accessors = re.findall(r"^model_INLINE_ .*?(\w+\(void\))$", text, re.MULTILINE)
    body = "\n".join(
        f"int use{n}(void);\nint use{n}(void) {{ return {name.replace('void', '')} != 0; }}"
        for n, name in enumerate(accessors)
    )
    for compiler, options in (
        ("gcc", ("-std=c99", "-Wtrigraphs", "-Wcomment")),
        ("clang-14", ("-std=c99", "-Weverything", *QUIET)),
        ("g++", ("-x", "c++", "-std=c++11")),
        ("clang++-14", ("-x", "c++", "-std=c++20")),
    ):
        source = tmp_path / "user.c"
        source.write_text(f'#include "model.h"\n#include "model.h"\n{body}\n')
        output = str(tmp_path / "user.o")
        c_tools.build(compiler, output, *c_tools.WARNINGS, *options, f"-I{tmp_path}", "-c", str(source))
    return accessors


def test_names_of_any_kind_stay_in_their_comments(tmp_path: Path) -> None:
    package = Package()
    for name in NAMES:
        package.add_raw(name, b"x")
    text = header(package, symbols=False)
    assert text.isascii()
    assert "oops" in text
    assert "oops" not in re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    compiles(tmp_path, text)


@pytest.mark.parametrize("name", NAMES)
def test_names_of_any_kind_become_symbols(tmp_path: Path, name: str) -> None:
    package = Package()
    package.add_raw(name, b"x")
    used = compiles(tmp_path, header(package))
    assert any(re.fullmatch(r"model_t_\w+_data\(void\)", accessor) for accessor in used), used


def test_the_schema_alone_decides_the_bytes() -> None:
    def package(value: int, *, reverse: bool = False, **extra: str) -> Package:
        one = Package(metadata=extra, model_version=str(value))
        names = ["b", "a", "c"]
        for name in reversed(names) if reverse else names:
            one.add(c_tools.tensor(name, FLOAT, (2,), bytes([value]) * 8))
        return one

    text = header(package(1))
    assert header(package(2, reverse=True, key="value")) == text
    big = plan_pack(package(3), "big")
    assert text == render_header(
        name="model", package=package(3), plan=big, symbols=tensor_symbols(package(3).tensors, big, "model_t_")
    )
    assert header(package(1), alignment=4) == header(package(1), alignment=4096) == text
    assert header(package(1), alignment=2) != text
    other = package(1)
    other.add(c_tools.tensor("d", FLOAT, (2,), bytes(8)))
    assert header(other) != text
    reshaped = Package()
    for name in "bac":
        reshaped.add(c_tools.tensor(name, FLOAT, (1, 2), bytes(8)))
    assert header(reshaped) != text


def test_the_schema_macro_is_the_hash() -> None:
    package = c_tools.sample_package()
    assert f"#define model_SCHEMA UINT64_C({schema_hash(package.tensors):#018x})\n" in header(package)


C_TYPES = {
    "int8": "int8_t", "int16": "int16_t", "int32": "int32_t", "int64": "int64_t", "uint8": "uint8_t",
    "uint16": "uint16_t", "uint32": "uint32_t", "uint64": "uint64_t", "float32": "float", "float64": "double",
}  # fmt: skip


@pytest.mark.parametrize("row", dtypes.TABLE, ids=lambda row: row.name)
def test_each_type_is_declared_as_c_has_it(row: dtypes.Row) -> None:
    package = Package()
    data = bytes(row.dtype.nbytes((3, 2)))
    package.add(c_tools.tensor("t", row.dtype, (3, 2), data))
    type_ = C_TYPES.get(row.name, "unsigned char")
    extent = 6 if row.name in C_TYPES else len(data)
    text = header(package)
    assert f"extern model_API const {type_} model_t_t[{extent}];\n" in text
    assert f'/* "t": {row.name} [3, 2], {len(data)} bytes */\n' in text
    assert "#define model_t_t_NDIM 2\n#define model_t_t_SHAPE {3, 2}\n" in text


@pytest.mark.parametrize(
    ("dtype", "shape", "nbytes", "alignment", "encoding", "expected"),
    [
        (FLOAT, (), 4, None, 0, "const float model_t_t[1];"),
        (FLOAT, (0, 3), 0, None, 0, "const float model_t_t[];"),
        (DType(2, 32, 4), (2,), 32, None, 0, "const float model_t_t[8];"),
        (FLOAT, (2,), 8, 2, 0, "const unsigned char model_t_t[8];"),
        (FLOAT, (2,), 8, 4, 0, "const float model_t_t[2];"),
        (FLOAT, (2,), 18, None, 0x8000, "const unsigned char model_t_t[];"),
    ],
)
def test_declarations_at_the_edges(
    tmp_path: Path,
    dtype: DType,
    shape: tuple[int, ...],
    nbytes: int,
    alignment: int | None,
    encoding: int,
    expected: str,
) -> None:
    package = Package()
    package.add(c_tools.tensor("t", dtype, shape, bytes(nbytes), alignment=alignment, encoding=encoding))
    text = header(package)
    assert expected in text
    compiles(tmp_path, text)


@pytest.mark.parametrize(("elements", "extent"), [((1 << 31) - 1, "2147483647"), (1 << 31, ""), (1 << 33, "")])
def test_arrays_that_32_bit_compilers_refuse_have_no_extent(tmp_path: Path, elements: int, extent: str) -> None:
    from emitter.package import BufferSource, Extent, Tensor

    package = Package()
    source = BufferSource("test", memoryview(b""))
    package.add(Tensor("t", DType(1, 8), (elements,), Extent(source, 0, elements)))
    text = header(package)
    assert f"const uint8_t model_t_t[{extent}];" in text
    (tmp_path / "model.h").write_text(text)
    source_file = tmp_path / "user.c"
    source_file.write_text('#include "model.h"\nconst int64_t shape[] = model_t_t_SHAPE;\n')
    for compiler in ("i686-linux-gnu-gcc", "gcc"):
        output = str(tmp_path / "user.o")
        c_tools.build(compiler, output, "-std=c99", *c_tools.WARNINGS, f"-I{tmp_path}", "-c", str(source_file))


def test_colliding_names_name_both_sources() -> None:
    package = Package()
    package.add_raw("a.b", b"x")
    package.add_raw("a/b", b"y")
    with pytest.raises(LayoutError, match="tensor 'a") as caught:
        header(package)
    assert {"a.b", "a/b"} <= set(re.findall(r"a.b", str(caught.value)))


def test_a_symbol_that_is_a_macro_of_another_is_refused() -> None:
    package = Package()
    package.add_raw("w", b"x")
    package.add_raw("w_SHAPE", b"y")
    with pytest.raises(LayoutError, match="model_t_w_SHAPE"):
        header(package)
    other = Package()
    other.add_raw("SCHEMA", b"x")
    with pytest.raises(LayoutError, match="model_SCHEMA"):
        header(other, prefix="model_")


@pytest.mark.parametrize(
    ("names", "prefix", "both"),
    [
        (["w", "w_data"], "model_t_", "model_t_w_data"),
        (["w", "w_NDIM"], "model_t_", "model_t_w_NDIM"),
        (["data"], "model_", "model_data"),
        (["data_size"], "model_", "model_data_size"),
        (["at_"], "model_", "model_at_"),
        (["AT_"], "model_", "model_AT_"),
        (["EMITTER0_model_H"], "", "EMITTER0_model_H"),
    ],
)
def test_every_name_of_the_header_is_compared(names: list[str], prefix: str, both: str) -> None:
    package = Package()
    for name in names:
        package.add_raw(name, b"x")
    with pytest.raises(LayoutError, match=f"'{both}'"):
        header(package, prefix=prefix)


@pytest.mark.parametrize("name", ["int", "class", "a-b", "", "1a", "m\N{LATIN SMALL LETTER E WITH ACUTE}"])
def test_names_that_c_cannot_declare_are_refused(name: str) -> None:
    with pytest.raises(LayoutError):
        header(Package(), name, symbols=False)


@pytest.mark.parametrize(
    "name",
    [
        "linux", "unix", "std", "defined", "NULL", "offsetof", "size_t", "ptrdiff_t", "wchar_t", "uint8_t",
        "int_fast16_t", "uintptr_t", "INT32_MAX", "UINT64_C", "SIZE_MAX", "__cplusplus", "__x", "_Reserved",
    ],
)  # fmt: skip
@pytest.mark.parametrize("as_tensor", [False, True])
def test_names_that_the_languages_define_are_refused(name: str, as_tensor: bool) -> None:
    package = Package()
    package.add_raw(name if as_tensor else "x", b"x")
    with pytest.raises(LayoutError, match=f"'{name}'"):
        header(package, "model" if as_tensor else name, prefix="")


@pytest.mark.parametrize("compiler", ["gcc", "g++"])
def test_no_macro_of_a_compiler_is_a_name(compiler: str, tmp_path: Path) -> None:
    """Every name that is a macro before the header is included, in any mode, is refused."""
    c_tools.need(compiler)
    source = tmp_path / "x.cc"
    source.write_text("#include <stddef.h>\n#include <stdint.h>\n")
    language = ["-x", "c++"] if compiler == "g++" else ["-x", "c"]
    listed = subprocess.run(
        [compiler, *language, "-dM", "-E", str(source)], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    for name in sorted(set(re.findall(r"#define (\w+)", listed))):
        with pytest.raises(LayoutError):
            header(Package(), name, symbols=False)


def linked(tmp_path: Path, package: Package) -> str:
    """Return an object that defines what the header of `package` declares, made by the assembler."""
    from tests.support import build_pack

    plan = plan_pack(package, "little")
    pack = tmp_path / "model.pack"
    pack.write_bytes(build_pack(package))
    lines = ['.section .note.GNU-stack,"",@progbits', ".section .rodata", ".balign 4096", ".globl model, model_size"]
    lines += [".protected model, model_size"]
    lines += [".type model, @object", f".size model, {plan.total_size}", "model:"]
    position = 0
    for symbol in sorted(tensor_symbols(package.tensors, plan, "model_t_"), key=lambda one: one.offset):
        lines.append(f'.incbin "{pack}", {position}, {symbol.offset - position}')
        lines += [
            f".globl {symbol.name}",
            f".protected {symbol.name}",
            f".type {symbol.name}, @object",
            f"{symbol.name}:",
        ]
        position = symbol.offset
    lines += [f'.incbin "{pack}", {position}', ".balign 8", f"model_size: .quad {plan.total_size}"]
    lines += [".type model_size, @object", ".size model_size, 8"]
    source = tmp_path / "model.s"
    source.write_text("\n".join(lines) + "\n")
    library = str(tmp_path / "libmodel.so")
    return c_tools.build("gcc", library, "-shared", "-nostdlib", str(source))


PROGRAM = """
#include "model.h"
#include "emitter.h"
#include <stdio.h>
#ifdef __cplusplus
#include <iostream>
#endif
int main(void) {
    static const int64_t shape[model_t_conv1_weight_NDIM] = model_t_conv1_weight_SHAPE;
    const float *weight = model_t_conv1_weight_data();
    emitter_reader reader; emitter_tensor tensor;
    if (emitter_open_expect(&reader, model_data(), model_data_size(), model_SCHEMA) != EMITTER_OK) return 1;
    if (emitter_find(&reader, "conv1.weight", &tensor) != EMITTER_OK) return 2;
    if (tensor.data != (const void *)weight || reader.size != model_data_size()) return 3;
    if (weight[5] != 6.0f || tensor.shape[0] != shape[0] || tensor.shape[1] != shape[1]) return 4;
    if (sizeof model_t_conv1_weight != 24 || model_t_int8_data()[0] != -1) return 5;
    fprintf(stderr, "right\\n");
#ifdef __cplusplus
    std::cout << "right\\n";
#else
    printf("right\\n");
#endif
    return emitter_open_expect(&reader, model_data(), model_data_size(), model_SCHEMA + 1) != EMITTER_SCHEMA;
}
"""

COMPILERS = ("gcc", "clang-14", "g++", "clang++-14")


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(
    "mode",
    [
        (),
        ("-fno-pie", "-no-pie"),
        ("-fPIE", "-pie", "-O2"),
        ("-fPIC", "-O2"),
        ("-O2", "-flto"),
        ("-fno-pie", "-no-pie", "-O2", "-flto"),
    ],
    ids=" ".join,
)
def test_a_program_links_with_what_the_header_declares(tmp_path: Path, compiler: str, mode: tuple[str, ...]) -> None:
    if compiler.startswith("clang") and "-flto" in mode:
        c_tools.need("ld.lld")
        mode = (*mode, "-fuse-ld=lld")
    package = c_tools.sample_package()
    (tmp_path / "model.h").write_text(header(package))
    library = linked(tmp_path, package)
    source = tmp_path / ("user.cpp" if "++" in compiler else "user.c")
    source.write_text(PROGRAM)
    options = (*c_tools.WARNINGS, *mode, f"-I{tmp_path}", str(source), library, f"-Wl,-rpath,{tmp_path}")
    program = c_tools.build(compiler, str(tmp_path / "user"), *options)
    done = c_tools.run(program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "right\n", "right\n")
    relocations = c_tools.run("readelf", "-rW", program).stdout.splitlines()
    assert any(" model" in row for row in relocations)
    assert not [row for row in relocations if "COPY" in row and " model" in row]
    assert "TEXTREL" not in c_tools.run("readelf", "-dW", program).stdout


# Everything that a user may call as the package is called; direct symbols in constant initialisers.
NAMESAKES = """
struct user { int model; int model_size; const void *model_t_conv1_weight; };
static int twice(int model) { return 2 * model; }
static const unsigned char *const pack = model;
static const float *weights[] = {model_t_conv1_weight, model_t_conv1_weight + 5};
static const void *const sizes[] = {&model_size};
int main(void) {
    struct user one; int model_size = 3;
    one.model = 1; one.model_size = model_size; one.model_t_conv1_weight = 0;
    if (twice(one.model) != 2 || one.model_size != 3 || one.model_t_conv1_weight != 0) return 1;
    if (pack != model_data() || *weights[1] != 6.0f || weights[0] != model_t_conv1_weight_data()) return 2;
    return *(const size_t *)sizes[0] != model_data_size() || pack[1] != 'E';
}
"""


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("mode", [(), ("-fno-pie", "-no-pie"), ("-fPIC", "-O2")], ids=" ".join)
def test_users_names_and_constant_initialisers(tmp_path: Path, compiler: str, mode: tuple[str, ...]) -> None:
    package = c_tools.sample_package()
    text = header(package)
    (tmp_path / "model.h").write_text(text)
    assert not re.search(r"#define (model|model_size|model_t_conv1_weight)\b(?!_)", text)
    linked(tmp_path, package)
    model = c_tools.build("gcc", str(tmp_path / "model.o"), "-c", str(tmp_path / "model.s"))
    archive = str(tmp_path / "libmodel.a")
    c_tools.need("ar")
    assert c_tools.run("ar", "rcs", archive, model).returncode == 0
    source = tmp_path / ("user.cpp" if "++" in compiler else "user.c")
    source.write_text(f'#include "model.h"\n{NAMESAKES}')
    options = [option for option in c_tools.WARNINGS if option != "-Wshadow"]  # that is what it does
    for artefact in (model, archive):
        program = c_tools.build(
            compiler, str(tmp_path / "user"), *options, *mode, f"-I{tmp_path}", str(source), artefact
        )
        assert c_tools.run(program).returncode == 0


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("mode", ["-O0", "-O2", "-O0 -fno-pie", "-O0 -fPIC -g"])
def test_what_is_not_used_is_not_there(tmp_path: Path, compiler: str, mode: str) -> None:
    """A file that only includes the header needs no library, and has no symbol, pointer or relocation of it."""
    c_tools.need("nm")
    (tmp_path / "model.h").write_text(header(c_tools.sample_package()))
    source = tmp_path / ("user.cpp" if "++" in compiler else "user.c")
    source.write_text('#include "model.h"\nint main(void) { return model_t_conv1_weight_NDIM - 2; }\n')
    options = (*c_tools.WARNINGS, *mode.split(), f"-I{tmp_path}")
    user = c_tools.build(compiler, str(tmp_path / "user.o"), *options, "-c", str(source))
    assert [line.split()[-1] for line in c_tools.run("nm", user).stdout.splitlines()] == ["main"]
    relocations = c_tools.run("readelf", "-rW", user).stdout
    assert "model" not in relocations
    pie = ("-no-pie",) if "-fno-pie" in mode else ()
    assert c_tools.run(c_tools.build(compiler, str(tmp_path / "user"), *pie, user)).returncode == 0


def test_one_accessor_takes_one_pointer(tmp_path: Path) -> None:
    (tmp_path / "model.h").write_text(header(c_tools.sample_package()))
    source = tmp_path / "user.c"
    source.write_text('#include "model.h"\nfloat first(void) { return model_t_conv1_weight_data()[0]; }\n')
    user = c_tools.build("gcc", str(tmp_path / "user.o"), "-O2", f"-I{tmp_path}", "-c", str(source))
    rows = [row for row in c_tools.run("readelf", "-rW", user).stdout.splitlines() if "model" in row]
    assert [row.split()[2] for row in rows if " model_t_conv1_weight " in row] == ["R_X86_64_64"]
    assert len([row for row in c_tools.run("nm", user).stdout.splitlines() if "model_at_" in row]) == 1


def test_headers_of_two_packages_and_of_two_interfaces_meet(tmp_path: Path) -> None:
    package = c_tools.sample_package()
    (tmp_path / "model.h").write_text(header(package))
    (tmp_path / "other.h").write_text(header(package, "other"))
    later = header(package, "later").replace("EMITTER0_", "EMITTER1_")
    (tmp_path / "later.h").write_text(later)
    names = ("model", "other", "later")
    source = tmp_path / "user.c"
    source.write_text(
        "".join(f'#include "{name}.h"\n' for name in names)
        + "".join(
            f"size_t {name}_now(void);\nsize_t {name}_now(void) {{ return {name}_data_size(); }}\n" for name in names
        )
    )
    for compiler, language in (("gcc", "c"), ("g++", "c++")):
        options = (*c_tools.WARNINGS, f"-I{tmp_path}", "-x", language, "-c", str(source))
        user = c_tools.build(compiler, str(tmp_path / "user.o"), *options)
        needed = {line.split()[-1] for line in c_tools.run("nm", "-u", user).stdout.splitlines()}
        assert needed >= {f"{name}_size" for name in names}


def test_the_guard_has_the_interface_of_emitter_h() -> None:
    with open(os.path.join(c_tools.INCLUDE, "emitter.h"), encoding="utf-8") as file:
        (interface,) = re.findall(r"#define EMITTER_INTERFACE (\d+)\n", file.read())
    assert f"\n#ifndef EMITTER{interface}_model_H\n#define EMITTER{interface}_model_H\n" in header(Package())


def test_windows_imports_unless_it_is_told(tmp_path: Path) -> None:
    c_tools.need("gcc")
    (tmp_path / "model.h").write_text(header(c_tools.sample_package()))
    source = tmp_path / "user.c"
    source.write_text('#include "model.h"\n')

    def preprocessed(*options: str) -> str:
        return c_tools.run("gcc", "-E", "-P", f"-I{tmp_path}", *options, str(source)).stdout

    assert "extern __declspec(dllimport) const unsigned char model[];" in preprocessed("-D_WIN32")
    assert "extern const unsigned char model[];" in preprocessed("-D_WIN32", "-Dmodel_STATIC")
    assert "extern mine const unsigned char model[];" in preprocessed("-Dmodel_API=mine")
    # An imported symbol's address is no constant there, and is read from a table in any case.
    assert "{ const unsigned char *model_at_ = model; return model_at_; }" in preprocessed("-D_WIN32")
    assert "static const unsigned char *volatile model_at_ = model;" in preprocessed()
    assert "weak" not in preprocessed()
    assert os.path.basename(str(tmp_path)) not in preprocessed()
