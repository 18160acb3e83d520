"""The literals: rules that hold over all of them, and what other projects know about each."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import import_module

import pytest
from elftools.elf import enums

from emitter import targets
from emitter.errors import TargetError
from emitter.targets import _names
from emitter.targets._base import Target
from emitter.targets._describe import targets_json, targets_text

ALL = list(targets.describe_all())
NAMES = [
    "aarch64-linux-android", "aarch64-linux-gnu", "aarch64-linux-musl", "armv7-linux-gnueabihf", "cuda-host",
    "cuda-host-aarch64", "i686-linux-gnu", "loongarch64-linux-gnu", "powerpc64le-linux-gnu", "riscv64-linux-gnu",
    "s390x-linux-gnu", "x86_64-linux-gnu", "x86_64-linux-musl",
]  # fmt: skip

every_target = pytest.mark.parametrize("target", ALL, ids=lambda target: target.name)

# First component of the triple: e_machine's name, the word of pyelftools for the CPU's relocations, and the types of
# "symbol minus place" by the names of the psABI. It lacks RISC-V's; test_llvm.py has what LLVM writes.
KNOWN = {
    "x86_64": ("EM_X86_64", "x64", ["R_X86_64_PC64"]),
    "i686": ("EM_386", "i386", ["R_386_PC32"]),
    "aarch64": ("EM_AARCH64", "AARCH64", ["R_AARCH64_PREL64"]),
    "armv7": ("EM_ARM", "ARM", ["R_ARM_REL32"]),
    "riscv64": ("EM_RISCV", "", []),
    "s390x": ("EM_S390", "S390X", ["R_390_PC64"]),
    "powerpc64le": ("EM_PPC64", "PPC64", ["R_PPC64_REL64"]),
    "loongarch64": ("EM_LOONGARCH", "LOONGARCH", ["R_LARCH_ADD64", "R_LARCH_SUB64"]),
}


def cpu(target: Target) -> str:
    return target.llvm_triple.split("-")[0]


def complaints(target: Target) -> list[str]:
    """Return what is inconsistent in a literal. Each message quotes the fields."""
    of_the_cpu = (
        "cpu", "features", "abi_name", "code_model", "code_models", "e_machine", "e_flags_object", "e_flags_image",
        "data_layout", "max_page_size", "properties", "attributes", "large_data", "relocation_relative",
        "hash_word_size", "psabi", "reach",
    )  # fmt: skip
    family = [target, *(other for other in ALL if cpu(other) == cpu(target))]
    layout = target.data_layout.split("-")
    is_32 = target.pointer_width == 32
    features = target.features.split(",") if target.features else []
    environment = target.llvm_triple.split("-")[-1]
    rules = {
        "`name` is lower-case words with dashes": re.fullmatch(r"[a-z0-9_]+(-[a-z0-9]+)+", target.name),
        "`description` is one line without a full stop": "\n" not in target.description
        and target.description[-1] != ".",
        "`psabi` is a link": target.psabi.startswith("https://"),
        "`llvm_triple` has four components": len(target.llvm_triple.split("-")) == 4 or is_32,
        "`name` ends as `llvm_triple`, or `device_code` is set": target.name.endswith(f"-{environment}")
        or target.device_code,
        "`data_layout` begins with E if and only if `byte_order` is big": (layout[0] == "E")
        == (target.byte_order == "big"),
        "`data_layout` says 32-bit pointers if and only if `pointer_width` is 32": ("p:32:32" in layout) == is_32,
        "`data_layout` mangles as ELF (m:e) if `object_format` is elf": "m:e" in layout,
        "`max_image_size` is given if and only if `pointer_width` is 32": (target.max_image_size is not None) == is_32,
        "`max_page_size` is a power of two of at least 4096": target.max_page_size in (4096, 16384, 65536),
        "`reach` is that of a small program, 2 or 4 GiB": target.reach in (1 << 31, 1 << 32),
        "`code_model` is one of `code_models`": target.code_model in target.code_models,
        "`hash_word_size` is 8 if and only if `e_machine` is EM_S390": (target.hash_word_size == 8)
        == (target.e_machine == 22),
        "`large_data` is given if and only if `e_machine` is EM_X86_64": (target.large_data is not None)
        == (target.e_machine == 62),
        "`properties` are given if and only if `e_machine` is EM_386, EM_X86_64 or EM_AARCH64": bool(target.properties)
        == (target.e_machine in (3, 62, 183)),
        "`attributes` are given if and only if `e_machine` is EM_ARM or EM_RISCV": (target.attributes is not None)
        == (target.e_machine in (40, 243)),
        "`e_flags_object` differs from `e_flags_image` only where `attributes` say the rest": target.e_flags_object
        == target.e_flags_image
        or target.attributes is not None,
        "`abi_name` lp64d needs +d in `features`": target.abi_name != "lp64d" or "+d" in features,
        "`features` are signed words": all(re.fullmatch(r"[+-][a-z0-9]+", feature) for feature in features),
        "`relocation_relative` is one type or a pair": len(target.relocation_relative) in (1, 2),
        "`version_kind` android-api if and only if `llvm_triple` ends with android": (
            target.version_kind == "android-api"
        )
        == (environment == "android"),
        "`version_kind` musl if and only if `llvm_triple` ends with musl": (target.version_kind == "musl")
        == (environment == "musl"),
        "`version_kind` is None if and only if `device_code` is set": (target.version_kind is None)
        == target.device_code,
        "`oldest_version` needs `version_kind`": target.oldest_version is None or target.version_kind is not None,
        "`tier` 1 needs `emulators`": target.tier != 1 or bool(target.emulators),
        "`ei_osabi` is ELFOSABI_NONE": target.ei_osabi == 0,
        **{
            f"`{field}` is that of every target of the CPU": len({getattr(other, field) for other in family}) == 1
            for field in of_the_cpu
        },
    }
    return [rule for rule, holds in rules.items() if not holds]


@every_target
def test_a_literal_is_consistent(target: Target) -> None:
    assert complaints(target) == []


def test_the_rules_quote_the_fields_that_break_them() -> None:
    wrong = targets.load("riscv64-linux-gnu")._replace(features="+f", byte_order="big", max_image_size=1)
    assert len(complaints(wrong)) >= 4
    for field in ("`abi_name`", "`byte_order`", "`max_image_size`", "`features`"):
        assert any(field in complaint for complaint in complaints(wrong))


def test_the_targets_that_are_promised_are_there() -> None:
    assert targets.names() == NAMES


@every_target
def test_a_file_is_named_for_its_target(target: Target) -> None:
    module = import_module(f"emitter.targets.{target.name.replace('-', '_')}")
    assert module.TARGET is target
    assert module.__doc__


@every_target
def test_numbers_are_those_that_pyelftools_knows(target: Target) -> None:
    machine, reader, relocations = KNOWN[cpu(target)]
    assert enums.ENUM_E_MACHINE[machine] == target.e_machine
    if reader:
        types = getattr(enums, f"ENUM_RELOC_TYPE_{reader}")
        assert [types[name] for name in relocations] == list(target.relocation_relative)


def test_what_differs_between_cpus_is_as_their_abis_have_it() -> None:
    by_name = {target.name: target for target in ALL}
    assert {name: t.max_page_size for name, t in by_name.items() if t.max_page_size != 65536} == dict.fromkeys(
        [
            "cuda-host",
            "i686-linux-gnu",
            "riscv64-linux-gnu",
            "s390x-linux-gnu",
            "x86_64-linux-gnu",
            "x86_64-linux-musl",
        ],
        4096,
    )
    assert {p.value for t in ALL for p in t.properties if t.e_machine == 183} == {7}  # BTI, PAC, GCS
    assert {p.value for t in ALL for p in t.properties if t.e_machine in (3, 62)} == {3}  # IBT, SHSTK
    assert [name for name, t in by_name.items() if t.byte_order == "big"] == ["s390x-linux-gnu"]
    assert [name for name, t in by_name.items() if t.pointer_width == 32] == ["armv7-linux-gnueabihf", "i686-linux-gnu"]
    assert [name for name, t in by_name.items() if t.device_code] == ["cuda-host", "cuda-host-aarch64"]


def test_an_unknown_canonical_name_is_an_error() -> None:
    with pytest.raises(TargetError, match=r"unknown target.*aarch64-linux-gnu"):
        targets.load("aarch64-linux-gn")
    with pytest.raises(TargetError, match="unknown target"):
        targets.load("_base")


def test_resolving_imports_the_literal_that_is_asked_for_and_no_other() -> None:
    code = (
        "import sys\nfrom emitter import targets\ntargets.resolve('aarch64-linux-gnu.2.31')\n"
        "print([m for m in sys.modules if m.startswith('emitter.targets.') and not '._' in m])\n"
        "print([m for m in ('llvmlite', 'difflib', 'platform', 'json') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["['emitter.targets.aarch64_linux_gnu']", "[]"]


def test_the_list_names_every_target_with_its_tier() -> None:
    text = targets_text(None)
    for target in ALL:
        assert re.search(rf"^{target.name} +{target.tier} +{re.escape(target.description)}$", text, re.MULTILINE)


def test_one_target_is_shown_under_any_of_its_names() -> None:
    text = targets_text("armhf")
    assert text.startswith("armv7-linux-gnueabihf\n")
    for fact in ("0x5000000 in objects, 0x5000400 in libraries", "ELF32, little-endian", "qemu-arm", "linux/arm/v7"):
        assert fact in text
    assert re.search(r"^  reach of code +2 GiB\b.*\n  largest library +1 GiB$", text, re.MULTILINE)
    assert re.search(
        r"FEATURE_1_AND = 0x7: programs that link it keep BTI, PAC, GCS$", targets_text("arm64"), re.MULTILINE
    )
    assert "android-api 24" in targets_text("aarch64-linux-android24")
    assert "aarch64-unknown-linux-android24" in targets_text("aarch64-linux-android24")
    with pytest.raises(TargetError):
        targets_text("arm")


def test_json_begins_with_its_schema_and_has_every_field() -> None:
    whole = json.loads(json.dumps(targets_json(None)))
    assert next(iter(whole)) == "schema"
    assert whole["schema"] == "emitter.targets/1"
    assert [target["name"] for target in whole["targets"]] == NAMES
    for target in whole["targets"]:
        assert set(Target._fields) | {"spellings"} == set(target)
    one = json.loads(json.dumps(targets_json("arm64-v8a")))
    assert (one["schema"], one["typed"], one["version"]) == ("emitter.targets/1", "arm64-v8a", None)
    assert [target["name"] for target in one["targets"]] == ["aarch64-linux-android"]
    assert bytes.fromhex(whole["targets"][3]["attributes"]["contents"]).startswith(b"A")


def test_every_spelling_that_is_shown_resolves() -> None:
    shown = [spelling for target in targets_json(None)["targets"] for spelling in target["spellings"]]  # type: ignore[attr-defined]  # the values of a JSON object are objects
    assert sorted(shown) == sorted(_names.SPELLINGS)


def test_the_folder_holds_nothing_but_targets_and_their_machinery() -> None:
    folder = os.path.dirname(targets.__file__)
    files = {entry for entry in os.listdir(folder) if entry.endswith(".py") and not entry.startswith("_")}
    assert files == {f"{name.replace('-', '_')}.py" for name in NAMES}
