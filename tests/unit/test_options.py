"""What options and the output's name mean."""

from __future__ import annotations

import pytest

from emitter import targets
from emitter.errors import UsageError
from emitter.options import Format, Options, check_options, expand, make_options, output_format, symbol_name

TARGET = targets.resolve("x86_64-linux-gnu")


@pytest.mark.parametrize(
    ("path", "choice", "expected"),
    [
        ("a.o", None, "object"),
        ("d.ir/liba.a", None, "archive"),
        ("liba.so", None, "library"),
        ("liba.so.1", None, "library"),
        ("liba.so.1.22.3", None, "library"),
        ("a.pack", None, "pack"),
        ("a", "object", "object"),
        ("a.bin", "pack", "pack"),
        ("a.o.1", "pack", "pack"),
        ("a.so", "library", "library"),
    ],
)
def test_the_suffix_says_what_to_write(path: str, choice: Format | None, expected: Format) -> None:
    assert output_format(path, choice, TARGET.target) == expected


@pytest.mark.parametrize("path", ["a", "a.bin", "a.o.1", "a.1", ".so"])
def test_a_suffix_that_says_nothing_needs_emit(path: str) -> None:
    with pytest.raises(UsageError, match="--emit"):
        output_format(path, None, TARGET.target)


@pytest.mark.parametrize(
    ("path", "right"), [("a.dll", ".so"), ("a.dylib", ".so"), ("a.obj", ".o"), ("a.lib", ".a"), ("x.1/a.dll", ".so")]
)
@pytest.mark.parametrize("choice", [None, "library"])
def test_the_suffix_of_another_platform_is_refused(path: str, right: str, choice: Format | None) -> None:
    with pytest.raises(UsageError, match=rf"x86_64-linux-gnu.*expected {right}"):
        output_format(path, choice, TARGET.target)


def test_emit_that_contradicts_the_suffix_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--emit library.*--emit object"):
        output_format("a.so", "object", TARGET.target)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("out/libresnet18.so", "resnet18"),
        ("libresnet-18.so.1.2", "resnet_18"),
        ("lib.so", "lib"),
        ("3d.o", "_3d"),
        ("a.b.o", "a_b"),
        ("größe.a", "gr__e"),
        ("plain", "plain"),
        ("libx", "x"),
    ],
)
def test_the_symbol_is_made_from_the_outputs_name(path: str, name: str) -> None:
    assert symbol_name(path, None) == name
    assert symbol_name(path, "other") == "other"


def test_placeholders() -> None:
    typed = TARGET._replace(typed="amd64")
    assert expand("{target}/{triple}/{lib}", typed, "m") == "amd64/x86_64-unknown-linux-gnu/libm.so"
    assert expand("a{b}", typed, None) == "a{b}"
    with pytest.raises(UsageError, match="--name"):
        expand("{lib}", typed, None)


@pytest.mark.parametrize(
    ("options", "format_"),
    [
        (Options(section=".x"), "library"),
        (Options(visibility="hidden"), "library"),
        (Options(retain=True), "library"),
        (Options(large_data="never"), "library"),
        (Options(linker_script="x"), "library"),
        (Options(symbols="ld"), "library"),
        (Options(soname="x"), "object"),
        (Options(soname="x"), "pack"),
        (Options(name="x"), "pack"),
        (Options(tensor_symbols=True), "pack"),
        (Options(header="x.h"), "pack"),
    ],
)
def test_an_option_that_means_nothing_for_the_output_is_refused(options: Options, format_: Format) -> None:
    with pytest.raises(UsageError, match="means nothing"):
        check_options(options, format_, "elf")


@pytest.mark.parametrize(
    "field", ["name", "tensor_symbols", "header", "retain", "section", "large_data", "linker_script"]
)
def test_a_symbol_style_excludes_what_belongs_to_a_pack(field: str) -> None:
    value = True if field in {"tensor_symbols", "retain"} else "always" if field == "large_data" else "x"
    options = make_options({"symbols": "ld", field: value})
    with pytest.raises(UsageError, match="--symbols ld"):
        check_options(options, "object", "elf")


@pytest.mark.parametrize("align", [0, -1, 3, 1 << 22])
def test_an_alignment_that_cannot_be_kept_is_refused(align: int) -> None:
    with pytest.raises(UsageError, match="power of two"):
        check_options(Options(align=align), "object", "elf")


@pytest.mark.parametrize(
    "options",
    [Options(name="a-b"), Options(name=""), Options(name="1"), Options(tensor_symbols=True, symbol_prefix="a.")],
)
def test_a_name_that_is_no_identifier_is_refused(options: Options) -> None:
    with pytest.raises(UsageError, match="identifier"):
        check_options(options, "object", "elf")


def test_an_empty_symbol_prefix_is_a_prefix() -> None:
    check_options(Options(tensor_symbols=True, symbol_prefix=""), "object", "elf")


def test_a_region_without_a_script_is_refused() -> None:
    with pytest.raises(UsageError, match="--linker-script"):
        check_options(Options(region="QSPI"), "object", "elf")
    with pytest.raises(UsageError, match="identifier"):
        check_options(Options(region="A B", linker_script="x"), "object", "elf")


def test_a_prefix_without_tensor_symbols_is_refused() -> None:
    with pytest.raises(UsageError, match="--tensor-symbols"):
        check_options(Options(symbol_prefix="x"), "object", "elf")


def test_an_unknown_option_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"'nmae'.*name"):
        make_options({"nmae": "x"})


def test_what_belongs_together_passes() -> None:
    options = Options(
        name="m", align=4096, section=".w", visibility="protected", tensor_symbols=True, retain=True, header="m.h"
    )
    check_options(options, "archive", "elf")
    check_options(options._replace(section=None, visibility=None, retain=False, soname="libm.so.1"), "library", "elf")
