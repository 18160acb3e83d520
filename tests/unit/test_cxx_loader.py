"""The C++ side of emitter.h."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests import c_tools
from tests.support import build_pack

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("compiler", c_tools.CXX_COMPILERS)
@pytest.mark.parametrize("standard", ["c++11", "c++17", "c++20"])
def test_typed_views_without_exceptions_and_rtti(tmp_path: Path, compiler: str, standard: str) -> None:
    pack = tmp_path / "sample.pack"
    pack.write_bytes(build_pack(c_tools.sample_package()))
    program = c_tools.build(
        compiler,
        str(tmp_path / "typed"),
        f"-std={standard}",
        *c_tools.WARNINGS,
        "-Wold-style-cast",
        "-fno-exceptions",
        "-fno-rtti",
        *c_tools.sanitizers(compiler),
        os.path.join(c_tools.DATA, "typed.cpp"),
    )
    done = c_tools.run(program, str(pack))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("compiler", c_tools.CXX_COMPILERS)
def test_a_type_without_a_dtype_is_refused_by_the_compiler(tmp_path: Path, compiler: str) -> None:
    c_tools.need(compiler)
    source = tmp_path / "wrong.cpp"
    source.write_text(
        '#include "emitter.h"\nstruct S {};\nbool f(emitter_tensor t) { return emitter::tensor<S>(t).ok(); }\n'
    )
    done = c_tools.run(compiler, "-std=c++11", f"-I{c_tools.INCLUDE}", "-fsyntax-only", str(source))
    assert done.returncode != 0
    assert "T is no element type of a pack" in done.stderr


@pytest.mark.parametrize("compiler", c_tools.CXX_COMPILERS)
def test_c_functions_have_c_names_in_cxx(tmp_path: Path, compiler: str) -> None:
    c_tools.need("nm")
    source = tmp_path / "a.cpp"
    source.write_text('#define EMITTER_IMPLEMENTATION\n#include "emitter.h"\n')
    built = c_tools.build(compiler, str(tmp_path / "a.o"), "-std=c++11", *c_tools.WARNINGS, "-c", str(source))
    assert " T emitter0_find\n" in c_tools.run("nm", built).stdout
