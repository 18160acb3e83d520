"""The names that people type, by the ecosystem they come from."""

from __future__ import annotations

import os
import platform
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emitter import targets
from emitter.errors import TargetError
from emitter.targets import _names

X86_64, X86_64_MUSL, I686 = "x86_64-linux-gnu", "x86_64-linux-musl", "i686-linux-gnu"
AARCH64, AARCH64_MUSL, ANDROID = "aarch64-linux-gnu", "aarch64-linux-musl", "aarch64-linux-android"
ARMV7, RISCV64, S390X = "armv7-linux-gnueabihf", "riscv64-linux-gnu", "s390x-linux-gnu"
PPC64LE, LOONGARCH64 = "powerpc64le-linux-gnu", "loongarch64-linux-gnu"
CUDA, CUDA_AARCH64 = "cuda-host", "cuda-host-aarch64"

NAMES: dict[str, dict[str, str]] = {
    "Debian architectures": {
        "amd64": X86_64, "arm64": AARCH64, "armhf": ARMV7, "i386": I686, "ppc64el": PPC64LE, "riscv64": RISCV64,
        "s390x": S390X, "loong64": LOONGARCH64,
    },
    "Debian multiarch": {
        "x86_64-linux-gnu": X86_64, "aarch64-linux-gnu": AARCH64, "arm-linux-gnueabihf": ARMV7, "i386-linux-gnu": I686,
        "powerpc64le-linux-gnu": PPC64LE, "riscv64-linux-gnu": RISCV64, "s390x-linux-gnu": S390X,
        "loongarch64-linux-gnu": LOONGARCH64,
    },
    "GNU with vendor": {
        "aarch64-unknown-linux-gnu": AARCH64, "armv7l-unknown-linux-gnueabihf": ARMV7, "x86_64-pc-linux-gnu": X86_64,
        "aarch64-none-linux-gnu": AARCH64, "arm-none-linux-gnueabihf": ARMV7,
        "aarch64-buildroot-linux-musl": AARCH64_MUSL,
        "x86_64-alpine-linux-musl": X86_64_MUSL, "x86_64-redhat-linux": X86_64, "armv7hl-redhat-linux-gnueabi": ARMV7,
        "aarch64-macchiatobin-linux-gnu": AARCH64, "i586-pc-linux-gnu": I686,
    },
    "Rust": {
        "x86_64-unknown-linux-gnu": X86_64, "x86_64-unknown-linux-musl": X86_64_MUSL,
        "aarch64-unknown-linux-musl": AARCH64_MUSL, "armv7-unknown-linux-gnueabihf": ARMV7,
        "thumbv7neon-unknown-linux-gnueabihf": ARMV7, "riscv64gc-unknown-linux-gnu": RISCV64,
        "powerpc64le-unknown-linux-gnu": PPC64LE, "s390x-unknown-linux-gnu": S390X,
        "loongarch64-unknown-linux-gnu": LOONGARCH64, "i686-unknown-linux-gnu": I686, "aarch64-linux-android": ANDROID,
    },
    "Zig": {
        "x86-linux-gnu": I686, "aarch64-linux-musl": AARCH64_MUSL, "aarch64-linux": AARCH64, "x86_64-linux": X86_64,
    },
    "Android": {"arm64-v8a": ANDROID, "android/arm64": ANDROID, "android-arm64": ANDROID},
    "vcpkg": {
        "x64-linux": X86_64, "arm64-linux": AARCH64, "arm-linux": ARMV7, "x86-linux": I686, "riscv64-linux": RISCV64,
        "s390x-linux": S390X, "ppc64le-linux": PPC64LE, "loongarch64-linux": LOONGARCH64, "arm64-android": ANDROID,
        "x64-linux-dynamic": X86_64, "arm64-linux-release": AARCH64,
    },
    "Yocto": {
        "aarch64-poky-linux": AARCH64, "cortexa72-poky-linux": AARCH64, "cortexa53-crypto-poky-linux": AARCH64,
        "armv8a-poky-linux": AARCH64, "armv8-2a-poky-linux": AARCH64, "cortexa72-cortexa53-poky-linux": AARCH64,
        "aarch64-poky-linux-musl": AARCH64_MUSL, "core2-64-poky-linux": X86_64, "corei7-64-poky-linux": X86_64,
        "x86-64-v3-poky-linux": X86_64, "cortexa7t2hf-neon-vfpv4-poky-linux-gnueabi": ARMV7,
        "cortexa9hf-neon-oe-linux-gnueabi": ARMV7, "riscv64-poky-linux": RISCV64,
        "armv7vet2hf-neon-poky-linux-gnueabi": ARMV7,
    },
    "uname -m": {
        "x86_64": X86_64, "aarch64": AARCH64, "armv7l": ARMV7, "armv8l": ARMV7, "i686": I686, "ppc64le": PPC64LE,
        "loongarch64": LOONGARCH64,
    },
    "Python": {"linux_x86_64": X86_64, "linux_aarch64": AARCH64, "linux_armv7l": ARMV7, "linux-x86_64": X86_64},
    "Docker": {
        "linux/amd64": X86_64, "linux/amd64/v3": X86_64, "linux/arm64": AARCH64, "linux/arm64/v8": AARCH64,
        "linux/arm/v7": ARMV7, "linux/arm": ARMV7, "linux/386": I686, "linux/ppc64le": PPC64LE, "linux/s390x": S390X,
        "linux/riscv64": RISCV64, "linux/loong64": LOONGARCH64,
    },
    ".NET, Node, conda": {
        "linux-x64": X86_64, "linux-musl-x64": X86_64_MUSL, "linux-arm64": AARCH64, "linux-musl-arm64": AARCH64_MUSL,
        "linux-arm": ARMV7, "linux-64": X86_64, "linux-32": I686, "linux-aarch64": AARCH64, "linux-ia32": I686,
    },
    "NVIDIA": {
        "cuda-host": CUDA, "cuda-host-x86_64": CUDA, "cuda-host-aarch64": CUDA_AARCH64, "jetson": CUDA_AARCH64,
        "sbsa-linux": CUDA_AARCH64, "linux-sbsa": CUDA_AARCH64,
    },
}  # fmt: skip

VERSIONS = {
    "aarch64-linux-gnu.2.31": (AARCH64, "2.31"),
    "x86_64-linux-gnu.2.17": (X86_64, "2.17"),
    "x86_64-unknown-linux-gnu.2.2.5": (X86_64, "2.2.5"),
    "arm-linux-gnueabihf.2.28": (ARMV7, "2.28"),
    "riscv64-linux-gnu.2.27": (RISCV64, "2.27"),
    "aarch64-linux-android24": (ANDROID, "24"),
    "aarch64-linux-android.35": (ANDROID, "35"),
    "aarch64-none-linux-android21": (ANDROID, "21"),
    "android_24_arm64_v8a": (ANDROID, "24"),
    "manylinux_2_17_aarch64": (AARCH64, "2.17"),
    "manylinux_2_17_aarch64.manylinux2014_aarch64": (AARCH64, "2.17"),
    "manylinux2014_x86_64": (X86_64, "2.17"),
    "manylinux2010_i686": (I686, "2.12"),
    "manylinux1_x86_64": (X86_64, "2.5"),
    "musllinux_1_2_x86_64": (X86_64_MUSL, "1.2"),
    "musllinux_1_2_aarch64": (AARCH64_MUSL, "1.2"),
}

# A name that does not resolve, and what the message must say.
REFUSED = {
    # ambiguous: the choices
    "arm": ["ambiguous", "aarch64-linux-gnu", "armv7-linux-gnueabihf"],
    "linux": ["ambiguous", "x86_64-linux-gnu", "aarch64-linux-android"],
    "musl": ["ambiguous", "x86_64-linux-musl", "aarch64-linux-musl"],
    "cuda": ["ambiguous", "cuda-host", "cuda-host-aarch64"],
    # unknown: the nearest
    "aarch64-lnux-gnu": ["unknown target", "did you mean aarch64-linux-gnu"],
    "aarch64-linux-gnuu": ["unknown target", "did you mean aarch64-linux-gnu"],
    "x86_64-linux-gnu.2.x": ["unknown target", "x86_64-linux-gnu"],
    "amd46": ["unknown target", "amd64"],
    "qqq": ["unknown target", "the targets are", "riscv64-linux-gnu"],
    "": ["unknown target"],
    "-": ["unknown target"],
    "/": ["unknown target"],
    "linux/": ["unknown target"],
    "linux/arm64/v8/x": ["unknown target"],
    "aarch64-": ["unknown target"],
    "aarch64-gnu": ["unknown target"],
    # systems to come
    "arm64-apple-macos13.0": ["Apple's systems are not supported yet by this version", "aarch64-linux-gnu"],
    "aarch64-apple-darwin": ["Apple's systems are not supported yet"],
    "arm64-osx": ["Apple's systems are not supported yet"],
    "macosx_11_0_arm64": ["Apple's systems are not supported yet"],
    "darwin/arm64": ["Apple's systems are not supported yet"],
    "x64-windows": ["Windows is not supported yet", "x86_64-linux-gnu"],
    "x86_64-pc-windows-msvc": ["Windows is not supported yet"],
    "win_amd64": ["Windows is not supported yet"],
    "windows/amd64": ["Windows is not supported yet"],
    "x86_64-unknown-freebsd": ["not supported yet"],
    "wasm32-unknown-unknown": ["WebAssembly is not supported yet"],
    "thumbv7em-none-eabihf": ["bare metal is not supported yet"],
    # CPUs and pairs without a target
    "mips64el-linux-gnuabi64": ["CPU mips64el"],
    "aarch64_be-linux-gnu": ["CPU aarch64_be"],
    "linux/arm/v6": ["CPU armv6"],
    "armel": ["CPU armel"],
    "powerpc64-linux-gnu": ["CPU powerpc64"],
    "armeabi-v7a": ["armv7-linux-androideabi", "armv7-linux-gnueabihf"],
    "x86_64-linux-android": ["no target is x86_64-linux-android yet", "aarch64-linux-android"],
    "arm-linux-gnueabi": ["no target is armv7-linux-gnueabi yet", "armv7-linux-gnueabihf"],
    "riscv64-linux-musl": ["no target is riscv64-linux-musl yet", "riscv64-linux-gnu", "aarch64-linux-musl"],
    "x86_64-linux-gnux32": ["no target is x86_64-linux-gnux32 yet", "x86_64-linux-gnu"],
    "aarch64-linux-ohos": ["no target is aarch64-linux-ohos yet", "aarch64-linux-musl"],
    # versions that never were
    "riscv64-linux-gnu.2.17": ["glibc", "expected 2.27 or later, found 2.17"],
    "aarch64-linux-android19": ["android-api", "expected 21 or later, found 19"],
    "x86_64-linux-gnu.2.2": ["expected 2.2.5 or later, found 2.2"],
}


@pytest.mark.parametrize(("typed", "name"), [pair for table in NAMES.values() for pair in table.items()], ids=str)
def test_a_name_of_an_ecosystem_resolves(typed: str, name: str) -> None:
    resolved = targets.resolve(typed)
    assert (resolved.target.name, resolved.typed, resolved.version) == (name, typed, None)
    assert targets.resolve(typed.upper()).target is resolved.target


@pytest.mark.parametrize("name", targets.names())
def test_a_canonical_name_resolves_to_itself(name: str) -> None:
    assert targets.resolve(name).target is targets.load(name)


@pytest.mark.parametrize(("typed", "expected"), VERSIONS.items())
def test_a_version_is_a_parameter(typed: str, expected: tuple[str, str]) -> None:
    resolved = targets.resolve(typed)
    assert (resolved.target.name, resolved.version) == expected


def test_the_triple_carries_the_api_level_and_no_other_version() -> None:
    assert targets.resolve("aarch64-linux-android24").triple == "aarch64-unknown-linux-android24"
    assert targets.resolve("aarch64-linux-android").triple == "aarch64-unknown-linux-android"
    assert targets.resolve("aarch64-linux-gnu.2.31").triple == "aarch64-unknown-linux-gnu"


@pytest.mark.parametrize(("typed", "parts"), REFUSED.items(), ids=str)
def test_a_name_without_a_target_is_refused_with_the_way_out(typed: str, parts: list[str]) -> None:
    with pytest.raises(TargetError) as caught:
        targets.resolve(typed)
    assert caught.value.where == f"target {typed!r}"
    for part in parts:
        assert part in str(caught.value)


@given(st.text(alphabet="abcdegilmnruvx0123468_-./", max_size=40) | st.text(max_size=20))
def test_any_text_resolves_or_is_a_target_error(text: str) -> None:
    try:
        resolved = targets.resolve(text)
    except TargetError as error:
        assert error.hint or error.expected
    else:
        assert resolved.target.name in targets.names()


HOSTS = [  # platform.machine(), whether programs are 64-bit, whether the C library is musl
    ("x86_64", True, False, X86_64),
    ("x86_64", True, True, X86_64_MUSL),
    ("x86_64", False, False, I686),
    ("aarch64", True, False, AARCH64),
    ("aarch64", False, False, ARMV7),
    ("armv7l", False, False, ARMV7),
    ("riscv64", True, False, RISCV64),
    ("s390x", True, False, S390X),
    ("ppc64le", True, False, PPC64LE),
]


@pytest.mark.parametrize(("machine", "wide", "musl", "name"), HOSTS)
def test_native_is_the_host(monkeypatch: pytest.MonkeyPatch, machine: str, wide: bool, musl: bool, name: str) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(sys, "maxsize", (1 << 63 if wide else 1 << 31) - 1)
    monkeypatch.setattr(_names, "_is_musl", lambda: musl)
    assert targets.resolve("native").target.name == name


def test_native_asks_the_c_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def confstr(_: str) -> str:
        raise ValueError

    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "confstr", lambda _: "glibc 2.36")
    assert targets.resolve("native").target.name == X86_64
    monkeypatch.setattr(os, "confstr", confstr)
    assert targets.resolve("native").target.name == X86_64_MUSL


@pytest.mark.parametrize(("system", "machine"), [("darwin", "arm64"), ("win32", "AMD64"), ("linux", "mips64")])
def test_a_host_that_is_no_target_is_named(monkeypatch: pytest.MonkeyPatch, system: str, machine: str) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(sys, "platform", system)
    with pytest.raises(TargetError, match=f"(?i){machine}"):
        targets.resolve("native")
