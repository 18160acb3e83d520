"""The literals: rules that hold over all of them, and what other projects know about each."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
from importlib import import_module

import pytest
from elftools.elf import enums

from emitter import targets
from emitter.errors import TargetError
from emitter.llvm import emit_object
from emitter.targets import _names
from emitter.targets._base import Target
from emitter.targets._describe import targets_json, targets_text

ALL = list(targets.describe_all())
NAMES = [
    "aarch64-linux-android", "aarch64-linux-gnu", "aarch64-linux-musl", "aarch64-none-elf", "aarch64-windows-msvc",
    "arm64-apple-ios", "arm64-apple-ios-simulator", "arm64-apple-macos", "armv7-linux-androideabi",
    "armv7-linux-gnueabihf", "cuda-host", "cuda-host-aarch64", "i686-linux-gnu", "i686-windows-gnu",
    "loongarch64-linux-gnu", "powerpc64le-linux-gnu", "riscv32imac-none-elf", "riscv64-linux-android",
    "riscv64-linux-gnu", "riscv64gc-none-elf", "s390x-linux-gnu", "thumbv6m-none-eabi", "thumbv7em-none-eabihf",
    "x86_64-apple-macos", "x86_64-linux-android", "x86_64-linux-gnu", "x86_64-linux-musl", "x86_64-windows-gnu",
    "x86_64-windows-msvc",
]  # fmt: skip
ELF, MACHO, COFF = ([target for target in ALL if target.object_format == name] for name in ("elf", "macho", "coff"))
BARE_METAL = [target.name for target in ALL if "-none-" in target.name]

every_target = pytest.mark.parametrize("target", ALL, ids=lambda target: target.name)
every_elf_target = pytest.mark.parametrize("target", ELF, ids=lambda target: target.name)
every_macho_target = pytest.mark.parametrize("target", MACHO, ids=lambda target: target.name)
every_coff_target = pytest.mark.parametrize("target", COFF, ids=lambda target: target.name)

# First component of the triple: e_machine's name, the word of pyelftools for the CPU's relocations, and the types of
# "symbol minus place" by the names of the psABI. It lacks RISC-V's; test_llvm.py has what LLVM writes.
KNOWN = {
    "x86_64": ("EM_X86_64", "x64", ["R_X86_64_PC64"]),
    "i686": ("EM_386", "i386", ["R_386_PC32"]),
    "aarch64": ("EM_AARCH64", "AARCH64", ["R_AARCH64_PREL64"]),
    "armv7": ("EM_ARM", "ARM", ["R_ARM_REL32"]),
    "riscv64": ("EM_RISCV", "", []),
    "riscv32": ("EM_RISCV", "", []),
    "thumbv7em": ("EM_ARM", "ARM", ["R_ARM_REL32"]),
    "thumbv6m": ("EM_ARM", "ARM", ["R_ARM_REL32"]),
    "s390x": ("EM_S390", "S390X", ["R_390_PC64"]),
    "powerpc64le": ("EM_PPC64", "PPC64", ["R_PPC64_REL64"]),
    "loongarch64": ("EM_LOONGARCH", "LOONGARCH", ["R_LARCH_ADD64", "R_LARCH_SUB64"]),
}


def cpu(target: Target) -> str:
    return target.llvm_triple.split("-")[0]


def complaints(target: Target) -> list[str]:
    """Return what is inconsistent in a literal. Each message quotes the fields."""
    layout = target.data_layout.split("-")
    mangling = {"elf": ("m:e",), "macho": ("m:o",), "coff": ("m:w", "m:x")}[target.object_format]
    features = target.features.split(",") if target.features else []
    rules: dict[str, object] = {
        "`name` is lower-case words with dashes": re.fullmatch(r"[a-z0-9_]+(-[a-z0-9]+)+", target.name),
        "`description` is one line without a full stop": "\n" not in target.description
        and target.description[-1] != ".",
        "`psabi` is a link": target.psabi.startswith("https://"),
        "`data_layout` begins with E if and only if `byte_order` is big": (layout[0] == "E")
        == (target.byte_order == "big"),
        "`data_layout` says 32-bit pointers if and only if `pointer_width` is 32": ("p:32:32" in layout)
        == (target.pointer_width == 32),
        "`data_layout` mangles as `object_format`": set(mangling) & set(layout),
        "`symbol_prefix` is _ if and only if `data_layout` says m:o or m:x": (target.symbol_prefix == "_")
        == bool({"m:o", "m:x"} & set(layout)),
        "`max_page_size` is a page of some kernel": target.max_page_size in (4096, 16384, 65536),
        "`reach` is 2 or 4 GiB": target.reach in (1 << 31, 1 << 32),
        "`code_model` is one of `code_models`": target.code_model in target.code_models,
        "`features` are signed words": all(re.fullmatch(r"[+-][a-z0-9]+", feature) for feature in features),
        "`large_data` is given if and only if `e_machine` is EM_X86_64": (target.large_data is not None)
        == (target.e_machine == 62),
        "`oldest_version` needs `version_kind`": target.oldest_version is None or target.version_kind is not None,
        "`tier` 1 needs `emulators`": target.tier != 1 or bool(target.emulators),
        "`macho` is given if and only if `object_format` is macho": (target.macho is not None)
        == (target.object_format == "macho"),
        "`coff` is given if and only if `object_format` is coff": (target.coff is not None)
        == (target.object_format == "coff"),
        "`implib_suffix` is given if and only if `object_format` is coff": (target.implib_suffix is not None)
        == (target.object_format == "coff"),
        "`image_suffix` is None if and only if `name` says bare metal": (target.image_suffix is None)
        == (target.name in BARE_METAL),
        "suffixes differ": len({target.object_suffix, target.archive_suffix, target.image_suffix}) == 3,
    }
    rules |= {"elf": elf_rules, "macho": macho_rules, "coff": coff_rules}[target.object_format](target)
    return [rule for rule, holds in rules.items() if not holds]


def elf_rules(target: Target) -> dict[str, object]:
    of_the_cpu = (
        "cpu", "features", "abi_name", "code_model", "code_models", "e_machine", "e_flags_object", "data_layout",
        "properties", "large_data", "relocation_relative", "hash_word_size", "psabi", "reach",
    )  # fmt: skip
    family = [target, *(other for other in ELF if cpu(other) == cpu(target))]
    features = target.features.split(",")
    environment = target.llvm_triple.split("-")[-1]
    android = environment.startswith("android")
    hosted = target.image_suffix is not None
    return {
        "`llvm_triple` has four components": len(target.llvm_triple.split("-")) == 4,
        "`name` ends as `llvm_triple`, or `device_code` is set": target.name.endswith(f"-{environment}")
        or target.device_code,
        "`max_image_size` is given if and only if libraries have 32-bit pointers": (target.max_image_size is not None)
        == (target.pointer_width == 32 and hosted),
        "`hash_word_size` is 8 if and only if `e_machine` is EM_S390": (target.hash_word_size == 8)
        == (target.e_machine == 22),
        "`properties` are given if and only if `e_machine` is EM_386, EM_X86_64 or EM_AARCH64": bool(target.properties)
        == (target.e_machine in (3, 62, 183)),
        "`attributes` are given if and only if `e_machine` is EM_ARM or EM_RISCV": (target.attributes is not None)
        == (target.e_machine in (40, 243)),
        "`e_flags_object` differs from `e_flags_image` only where `attributes` say the rest": target.e_flags_object
        == target.e_flags_image
        or target.attributes is not None,
        "`abi_name` lp64d needs +d in `features`": target.abi_name != "lp64d" or "+d" in features,
        "`relocation_relative` is one type or a pair": len(target.relocation_relative) in (1, 2),
        "`relocation_section` is rel if and only if `e_machine` is EM_386 or EM_ARM": (
            target.relocation_section == "rel"
        )
        == (target.e_machine in (3, 40)),
        "`version_kind` android-api if and only if `llvm_triple` ends with android": (
            target.version_kind == "android-api"
        )
        == android,
        "`max_page_size` is 16 KiB or more on 64-bit Android": not android
        or target.pointer_width == 32
        or target.max_page_size >= 16384,
        "`version_kind` musl if and only if `llvm_triple` ends with musl": (target.version_kind == "musl")
        == (environment == "musl"),
        "`version_kind` is None if and only if `device_code` is set, or there is no C library": (
            target.version_kind is None
        )
        == (target.device_code or not hosted),
        "`ei_osabi` is ELFOSABI_NONE": target.ei_osabi == 0,
        **{
            f"`{field}` is that of every target of the CPU": len({getattr(other, field) for other in family}) == 1
            for field in of_the_cpu
        },
    }


def macho_rules(target: Target) -> dict[str, object]:
    assert target.macho is not None
    minos, sdk, oldest = target.macho.minos, target.macho.sdk, target.oldest_version
    return {
        "`name` begins as `llvm_triple`": target.llvm_triple.startswith(f"{cpu(target)}-apple-")
        and target.name.startswith(f"{cpu(target)}-apple-"),
        "`llvm_triple` carries `macho.minos`": f"{minos}.0" in target.llvm_triple,
        "`macho.platform` is that of `name`": target.macho.platform
        == (7 if "simulator" in target.name else 2 if "ios" in target.name else 1),
        "`macho.sdk` is `macho.minos` or later": numbers(sdk) >= numbers(minos),
        "`macho.minos` is `oldest_version` or later": oldest is not None and numbers(minos) >= numbers(oldest),
        "`version_kind` is os": target.version_kind == "os",
        "`image_suffix` is .dylib": target.image_suffix == ".dylib",
        "`pointer_width` is 64": target.pointer_width == 64,
    }


def coff_rules(target: Target) -> dict[str, object]:
    assert target.coff is not None
    wide = target.pointer_width == 64
    return {
        "`name` ends as `llvm_triple`": target.name.endswith("-".join(target.llvm_triple.split("-")[2:])),
        "`coff.magic` is PE32+ if and only if `pointer_width` is 64": target.coff.magic == (0x20B if wide else 0x10B),
        "`coff.characteristics` are those of a DLL that may be moved": target.coff.characteristics
        == (0x2022 if wide else 0x2102),
        "`coff.dll_characteristics` say NX_COMPAT, DYNAMIC_BASE and, if 64-bit, HIGH_ENTROPY_VA": (
            target.coff.dll_characteristics == (0x160 if wide else 0x140)
        ),
        "`coff.image_base` is a multiple of 64 KiB": target.coff.image_base % 65536 == 0,
        "`max_image_size` is what Microsoft documents, or less": target.max_image_size is not None
        and target.max_image_size < 1 << 31,
        "`version_kind` is None": target.version_kind is None,
        "`library_prefix` is empty if and only if `name` ends in msvc": (target.library_prefix == "")
        == target.name.endswith("-msvc"),
    }


def numbers(version: str) -> list[int]:
    return list(map(int, version.split(".")))


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


@every_elf_target
def test_numbers_are_those_that_pyelftools_knows(target: Target) -> None:
    machine, reader, relocations = KNOWN[cpu(target)]
    assert enums.ENUM_E_MACHINE[machine] == target.e_machine
    if reader:
        types = getattr(enums, f"ENUM_RELOC_TYPE_{reader}")
        assert [types[name] for name in relocations] == list(target.relocation_relative)


# <mach-o/loader.h>: LC_BUILD_VERSION.
LC_BUILD_VERSION = 0x32
X86_64_ARM64 = {"x86_64": (0x01000007, 3), "arm64": (0x0100000C, 0)}  # cputype and cpusubtype of <mach/machine.h>


@every_macho_target
def test_llvm_s_mach_o_object_says_what_the_literal_says(target: Target) -> None:
    """And LLVM agrees about the data layout, or `emit_object` would raise."""
    macho = target.macho
    assert macho is not None
    raw = emit_object(target, "@x = constant i8 1\n")
    magic, cputype, cpusubtype, _, ncmds, _, _, _ = struct.unpack_from("<8I", raw)
    assert magic == 0xFEEDFACF  # MH_MAGIC_64
    assert (cputype, cpusubtype) == (macho.cputype, macho.cpusubtype) == X86_64_ARM64[cpu(target)]
    commands, at = {}, 32
    for _ in range(ncmds):
        cmd, cmdsize = struct.unpack_from("<2I", raw, at)
        commands[cmd] = raw[at : at + cmdsize]
        at += cmdsize
    platform, minos = struct.unpack_from("<2I", commands[LC_BUILD_VERSION], 8)
    assert platform == macho.platform
    assert [minos >> 16, minos >> 8 & 255] == numbers(macho.minos)


@every_coff_target
def test_llvm_s_coff_object_is_for_the_literal_s_machine(target: Target) -> None:
    """And LLVM agrees about the data layout, or `emit_object` would raise."""
    assert target.coff is not None
    raw = emit_object(target, "@x = constant i8 1\n")
    assert int.from_bytes(raw[:2], "little") == target.coff.machine
    assert (b"_x\0" in raw) == (target.symbol_prefix == "_")


def test_what_differs_between_cpus_is_as_their_abis_have_it() -> None:
    by_name = {target.name: target for target in ALL}
    pages: dict[int, list[str]] = {}
    for target in ELF:
        if target.image_suffix is not None:
            pages.setdefault(target.max_page_size, []).append(target.name)
    assert pages.pop(4096) == [
        "cuda-host", "i686-linux-gnu", "riscv64-linux-gnu", "s390x-linux-gnu", "x86_64-linux-gnu", "x86_64-linux-musl",
    ]  # fmt: skip
    assert pages.pop(16384) == ["riscv64-linux-android", "x86_64-linux-android"]
    assert list(pages) == [65536]
    assert {p.value for t in ALL for p in t.properties if t.e_machine == 183} == {7}  # BTI, PAC, GCS
    assert {p.value for t in ALL for p in t.properties if t.e_machine in (3, 62)} == {3}  # IBT, SHSTK
    assert [name for name, t in by_name.items() if t.byte_order == "big"] == ["s390x-linux-gnu"]
    assert [name for name, t in by_name.items() if t.pointer_width == 32] == [
        "armv7-linux-androideabi", "armv7-linux-gnueabihf", "i686-linux-gnu", "i686-windows-gnu",
        "riscv32imac-none-elf", "thumbv6m-none-eabi", "thumbv7em-none-eabihf",
    ]  # fmt: skip
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
    for fact in (
        "0x5000000 in objects, 0x5000400 in libraries",
        "ELF, 32 bits, little-endian",
        "qemu-arm",
        "linux/arm/v7",
    ):
        assert fact in text
    assert re.search(r"^  reach of code +2 GiB\b.*\n  largest library +1 GiB$", text, re.MULTILINE)
    assert re.search(
        r"FEATURE_1_AND = 0x7: programs that link it keep BTI, PAC, GCS$", targets_text("arm64"), re.MULTILINE
    )
    assert "android-api 24" in targets_text("aarch64-linux-android24")
    assert "aarch64-unknown-linux-android24" in targets_text("aarch64-linux-android24")
    assert "13.0, made with the rules of SDK 13.0" in targets_text("arm64-apple-macos13.0")
    assert re.search(r"^  Machine +0xaa64$", targets_text("win_arm64"), re.MULTILINE)
    assert re.search(r"^  writes +\.o, \.a, \.pack$", targets_text("cortex-m0"), re.MULTILINE)
    assert "largest page" not in targets_text("cortex-m0")
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
    by_name = {target["name"]: target for target in whole["targets"]}
    assert bytes.fromhex(by_name["armv7-linux-gnueabihf"]["attributes"]["contents"]).startswith(b"A")
    assert by_name["arm64-apple-ios"]["macho"]["platform"] == 2
    assert by_name["arm64-apple-ios"]["coff"] is None
    assert by_name["x86_64-windows-msvc"]["coff"]["operating_system_version"] == [6, 0]


def test_every_spelling_that_is_shown_resolves() -> None:
    shown = [spelling for target in targets_json(None)["targets"] for spelling in target["spellings"]]  # type: ignore[attr-defined]  # the values of a JSON object are objects
    assert sorted(shown) == sorted(_names.SPELLINGS)


def test_the_folder_holds_nothing_but_targets_and_their_machinery() -> None:
    folder = os.path.dirname(targets.__file__)
    files = {entry for entry in os.listdir(folder) if entry.endswith(".py") and not entry.startswith("_")}
    assert files == {f"{name.replace('-', '_')}.py" for name in NAMES}
