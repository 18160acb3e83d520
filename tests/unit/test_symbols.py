"""Names, sections and symbols of an object that holds a pack."""

from __future__ import annotations

import re

import pytest

from emitter.errors import LayoutError, TargetError, UsageError
from emitter.model import TensorSymbol
from emitter.pack.plan import plan_pack
from emitter.sections import pack_section
from emitter.symbols import (
    LARGE_DATA_BOUND,
    check_names,
    check_symbols,
    linker_script,
    pack_model,
    tensor_symbols,
    use_large_data,
)
from emitter.targets import load
from tests.elf_objects import TARGET_NAMES, package_of, run

X86_64 = load("x86_64-linux-gnu")
AARCH64 = load("aarch64-linux-gnu")


@pytest.mark.parametrize(
    ("tensor", "symbol"),
    [
        ("conv1.weight", "m_t_conv1_weight"),
        ("layer1.0/down:0", "m_t_layer1_0_down_0"),
        ("0.weight", "m_t__0_weight"),
        ("int", "m_t_int"),
        ("main", "m_t_main"),
        ('a"b', "m_t_a_b"),
        ("f@VER_1", "m_t_f_VER_1"),
        ("f@@VER_1", "m_t_f__VER_1"),
        ("вес", "m_t____"),
    ],
)
def test_symbol_of_a_tensor(tensor: str, symbol: str) -> None:
    package = package_of({"before": b"0123456789", tensor: b"abc"})
    pack = plan_pack(package, "little")
    found = tensor_symbols(package.tensors, pack, "m_t_")[1]
    assert found == TensorSymbol(symbol, tensor, pack.payloads[1].offset, 3)


def test_tensors_that_share_a_payload_have_symbols_of_their_own() -> None:
    package = package_of({"a": b"same", "b": b"same"})
    pack = plan_pack(package, "little", same_as={"b": "a"})
    first, second = tensor_symbols(package.tensors, pack, "t_")
    assert (first.offset, first.size) == (second.offset, second.size)
    assert (first.name, second.name) == ("t_a", "t_b")


@pytest.mark.parametrize(("a", "b"), [("a.b", "a_b"), ("a/b", "a:b"), ("1", "_1"), ("é", "è")])
def test_collision_names_both_sources(a: str, b: str) -> None:
    package = package_of({a: b"1", b: b"2"})
    symbols = tensor_symbols(package.tensors, plan_pack(package, "little"), "m_t_")
    with pytest.raises(LayoutError) as caught:
        check_symbols("m", symbols)
    assert repr(a) in str(caught.value)
    assert repr(b) in str(caught.value)


def test_long_names_are_cut_in_messages() -> None:
    long = "w" * 65535
    symbols = [TensorSymbol("m_t_" + long, long + end, 0, 1) for end in ("", "x")]
    for call in (
        lambda: check_symbols("m", symbols),
        lambda: check_names([(long + ".", f"--name {long[:9]}")]),
        lambda: pack_section(X86_64, "m", section=long + "\n", large=False),
    ):
        with pytest.raises(LayoutError) as caught:
            call()
        assert "w... (6" in str(caught.value).replace("'", "")
        assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("tensor", ["model", "model.size"])
def test_tensor_symbol_that_meets_the_packs_own(tensor: str) -> None:
    package = package_of({tensor: b"1"})
    with pytest.raises(LayoutError, match="two symbols would be called") as caught:
        check_symbols("model", tensor_symbols(package.tensors, plan_pack(package, "little"), ""))
    assert repr(tensor) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        *((word, "a keyword") for word in ("int", "restrict", "class", "co_await", "_Alignas", "typeof", "constexpr")),
        *((word, "defines") for word in ("main", "_end", "emitter_pack", "_GLOBAL_OFFSET_TABLE_")),
        *((word, "not a C identifier") for word in ("", "9lives", "a-b", "a b", "naïve", "f@V", "a\0b", "a\n")),
    ],
)
def test_names_that_cannot_be_symbols(name: str, what: str) -> None:
    with pytest.raises(LayoutError, match=what) as caught:
        check_symbols(name)
    assert caught.value.hint


@pytest.mark.parametrize("compiler", ["gcc", "g++"])
def test_keywords_are_the_compilers(compiler: str, tmp_path: object) -> None:
    # Each word that is refused as a keyword must be one in at least one language; checked over both in turn.
    from emitter.symbols import _KEYWORDS

    standard = "-std=c2x" if compiler == "gcc" else "-std=c++23"
    run(compiler, "--version")
    source = "extern const unsigned char {}[];"
    language = "c" if compiler == "gcc" else "c++"
    accepted = []
    for word in ("register", "inline", "double", "if"):
        assert word in _KEYWORDS
        done = run(
            "sh",
            "-c",
            f"echo '{source.format(word)}' | {compiler} -x {language} {standard} -fsyntax-only -",
            check=False,
        )
        if done.returncode == 0:
            accepted.append(word)
    assert accepted == []


def test_plain_names_pass() -> None:
    check_names([("model", "a"), ("model_size", "b"), ("Int", "c"), ("_x9", "d")])


@pytest.mark.parametrize(
    ("size", "choice", "target", "large"),
    [
        (LARGE_DATA_BOUND, "auto", X86_64, False),
        (LARGE_DATA_BOUND + 1, "auto", X86_64, True),
        (1 << 40, "never", X86_64, False),
        (1, "always", X86_64, True),
        (1 << 40, "auto", AARCH64, False),
        (1, "never", AARCH64, False),
    ],
)
def test_large_data(size: int, choice: str, target: object, large: bool) -> None:
    assert use_large_data(target, size, choice) is large  # type: ignore[arg-type] # parametrised


def test_large_data_where_there_is_none() -> None:
    with pytest.raises(TargetError, match="aarch64-linux-gnu: the target has no section for large data"):
        use_large_data(AARCH64, 1, "always")


def test_sections_of_the_pack() -> None:
    pack = plan_pack(package_of({"a": b"abc"}), "little")
    names = {
        (large, section): [
            (s.name, s.large) for s in pack_model(X86_64, pack, name="m", section=section, large=large).sections
        ]
        for large, section in (
            (False, None),
            (True, None),
            (False, ".lrodata.mine"),
            (False, "weights"),
            (True, ".rodata.w"),
        )
    }
    size = (".rodata.m_size", False)
    assert names == {
        (False, None): [size, (".rodata.m", False)],
        (True, None): [size, (".lrodata.m", True)],
        (False, ".lrodata.mine"): [size, (".lrodata.mine", True)],  # by name, as compilers do it
        (False, "weights"): [size, ("weights", False)],
        (True, ".rodata.w"): [size, (".rodata.w", False)],
    }


# The first rows are no names (to GNU ld none begins with a digit, - or $); linkers read the others as something else.
OTHERWISE = {
    "x86_64-linux-gnu": [
        "", "a b", "a*", "a[b]", "näh", "x\0", "1a", "-", "$a",
        ".bss", ".bss.w", ".text", ".data.w", ".note.x", ".tbss", ".init_array",
    ],
    "x86_64-windows-msvc": [
        "", "a b", "a,b", "näh", "x\0", "1a", "$a",
        ".text", ".text$w", ".data", ".bss", ".edata", ".idata$2", ".rsrc", ".tls$", ".CRT$XCU", ".drectve",
    ],
    "arm64-apple-macos": [
        "", "__weights", "__TEXT,", ",__weights", "__TEXT,a,b", "__TEXT,a b", f"__TEXT,{'a' * 17}", f"{'A' * 17},a",
        "__TEXT,__text", "__TEXT,__const", "__TEXT,__eh_frame", "__DATA,__weights", "__LINKEDIT,__weights",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("name", "section"), [(name, one) for name, row in OTHERWISE.items() for one in row])
def test_section_names_that_linkers_read_otherwise(name: str, section: str) -> None:
    with pytest.raises(LayoutError, match=re.escape(f"--section {section!r}")) as caught:
        pack_section(load(name), "m", section=section, large=False)
    assert caught.value.hint is not None


@pytest.mark.parametrize(
    ("name", "section"),
    [
        ("x86_64-linux-gnu", "_"), ("x86_64-linux-gnu", ".a-b$c"), ("x86_64-linux-gnu", ".textures"),
        ("x86_64-windows-msvc", ".rdata$w"), ("x86_64-windows-msvc", ".text2"),
        ("arm64-apple-macos", "__TEXT,__textures"), ("arm64-apple-macos", f"__DATA_CONST,{'a' * 16}"),
    ],
)  # fmt: skip
def test_section_names_that_are_taken(name: str, section: str) -> None:
    assert pack_section(load(name), "m", section=section, large=False) == section


@pytest.mark.parametrize("name", TARGET_NAMES)
def test_size_that_a_pointer_cannot_hold(name: str) -> None:
    target = load(name)
    pack = plan_pack(package_of({"a": b"abc"}), target.byte_order)
    limit = 1 << target.pointer_width
    pack_model(target, pack._replace(total_size=limit - 1), name="m")
    with pytest.raises(LayoutError, match="too large for the target's address space"):
        pack_model(target, pack._replace(total_size=limit), name="m")


@pytest.mark.parametrize(
    ("target", "section", "statement"),
    [
        (X86_64, ".lrodata.m", ".lrodata : { *(.lrodata .lrodata.*) }"),
        (X86_64, ".rodata.m", ".rodata.far : { *(.rodata.m) }"),
        (AARCH64, ".rodata.m", ".rodata.far : { *(.rodata.m) }"),
    ],
)
def test_linker_script_places_the_section_after_bss(target: object, section: str, statement: str) -> None:
    text = linker_script(target, section)  # type: ignore[arg-type] # parametrised
    assert statement in text
    assert text.endswith("INSERT AFTER .bss;\n")
    assert "SPDX-License-Identifier: 0BSD" in text


BARE_METAL = load("thumbv6m-none-eabi")


@pytest.mark.parametrize(("region", "called"), [(None, "FLASH"), ("QSPI", "QSPI")])
def test_linker_script_of_bare_metal_places_the_section_in_a_region(region: str | None, called: str) -> None:
    text = linker_script(BARE_METAL, ".flash_weights", region=region)
    assert text.endswith(f"\n.flash_weights : {{ KEEP(*(.flash_weights)) }} > {called} AT > {called}\n")
    assert "SPDX-License-Identifier: 0BSD" in text


@pytest.mark.parametrize("section", [".rodata.m", ".rodata", ".srodata.m"])
def test_linker_script_of_bare_metal_wants_a_section_that_is_not_taken(section: str) -> None:
    with pytest.raises(LayoutError, match=r"--section \.flash_weights"):
        linker_script(BARE_METAL, section)
    with pytest.raises(UsageError, match="--region means nothing for this target"):
        linker_script(X86_64, ".rodata.m", region="FLASH")
