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
from emitter.llvm import emit_object
from emitter.targets import _names

X86_64, X86_64_MUSL, I686 = "x86_64-linux-gnu", "x86_64-linux-musl", "i686-linux-gnu"
AARCH64, AARCH64_MUSL, ANDROID = "aarch64-linux-gnu", "aarch64-linux-musl", "aarch64-linux-android"
ARMV7, RISCV64, S390X = "armv7-linux-gnueabihf", "riscv64-linux-gnu", "s390x-linux-gnu"
PPC64LE, LOONGARCH64 = "powerpc64le-linux-gnu", "loongarch64-linux-gnu"
CUDA, CUDA_AARCH64 = "cuda-host", "cuda-host-aarch64"
ANDROID_X86_64, ANDROID_ARMV7 = "x86_64-linux-android", "armv7-linux-androideabi"
ANDROID_RISCV64 = "riscv64-linux-android"
MACOS, MACOS_X86_64 = "arm64-apple-macos", "x86_64-apple-macos"
IOS, IOS_SIMULATOR = "arm64-apple-ios", "arm64-apple-ios-simulator"
MSVC, MSVC_AARCH64 = "x86_64-windows-msvc", "aarch64-windows-msvc"
MINGW, MINGW_I686 = "x86_64-windows-gnu", "i686-windows-gnu"
M4F, M0, BARE_AARCH64 = "thumbv7em-none-eabihf", "thumbv6m-none-eabi", "aarch64-none-elf"
RISCV32_NONE, RISCV64_NONE = "riscv32imac-none-elf", "riscv64gc-none-elf"

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
    "Android": {
        "arm64-v8a": ANDROID, "android/arm64": ANDROID, "android-arm64": ANDROID, "armeabi-v7a": ANDROID_ARMV7,
        "android/amd64": ANDROID_X86_64, "android-x64": ANDROID_X86_64, "android/arm": ANDROID_ARMV7,
        "armv7a-linux-androideabi": ANDROID_ARMV7, "arm-linux-androideabi": ANDROID_ARMV7,
        "thumbv7neon-linux-androideabi": ANDROID_ARMV7, "x86_64-linux-android": ANDROID_X86_64,
        "riscv64-linux-android": ANDROID_RISCV64, "x64-android": ANDROID_X86_64, "arm-neon-android": ANDROID_ARMV7,
    },
    "Apple: LLVM and Rust": {
        "arm64-apple-macosx": MACOS, "aarch64-apple-darwin": MACOS, "x86_64-apple-darwin": MACOS_X86_64,
        "aarch64-apple-ios": IOS, "aarch64-apple-ios-sim": IOS_SIMULATOR, "arm64-apple-ios-simulator": IOS_SIMULATOR,
    },
    "Apple: Zig and Nix": {
        "x86_64-macos": MACOS_X86_64, "aarch64-macos": MACOS, "aarch64-macos-none": MACOS, "aarch64-ios": IOS,
        "aarch64-ios-simulator": IOS_SIMULATOR, "aarch64-darwin": MACOS, "x86_64-darwin": MACOS_X86_64,
    },
    "Apple: vcpkg, Go, conda, .NET, Node": {
        "arm64-osx": MACOS, "x64-osx": MACOS_X86_64, "arm64-osx-dynamic": MACOS, "arm64-ios": IOS,
        "darwin/arm64": MACOS, "darwin/amd64": MACOS_X86_64, "darwin_arm64": MACOS, "osx-arm64": MACOS,
        "osx-64": MACOS_X86_64, "osx-x64": MACOS_X86_64, "ios-arm64": IOS, "iossimulator-arm64": IOS_SIMULATOR,
        "darwin-arm64": MACOS, "darwin-x64": MACOS_X86_64,
    },
    "Windows: LLVM, GNU, Rust, Zig": {
        "x86_64-pc-windows-msvc": MSVC, "aarch64-pc-windows-msvc": MSVC_AARCH64, "x86_64-pc-windows-gnu": MINGW,
        "x86_64-w64-mingw32": MINGW, "x86_64-w64-windows-gnu": MINGW, "x86_64-pc-windows-gnullvm": MINGW,
        "i686-w64-mingw32": MINGW_I686, "i686-pc-windows-gnu": MINGW_I686, "x86_64-windows": MSVC,
        "x86_64-win7-windows-msvc": MSVC, "x86_64-w64-mingw32ucrt": MINGW,
    },
    "Windows: vcpkg, Go, Python, conda, .NET, Node": {
        "x64-windows": MSVC, "x64-windows-static": MSVC, "x64-windows-static-md": MSVC, "arm64-windows": MSVC_AARCH64,
        "x64-mingw-static": MINGW, "x64-mingw-dynamic": MINGW, "x86-mingw-static": MINGW_I686, "windows/amd64": MSVC,
        "windows/arm64": MSVC_AARCH64, "windows_amd64": MSVC, "win_amd64": MSVC, "win_arm64": MSVC_AARCH64,
        "win-64": MSVC, "win-arm64": MSVC_AARCH64, "win-x64": MSVC, "win10-x64": MSVC, "win32-x64": MSVC,
    },
    "bare metal": {
        "thumbv7em-unknown-none-eabihf": M4F, "thumbv8m.main-none-eabihf": M4F, "cortex-m4": M4F, "cortex-m4f": M4F,
        "cortex-m7": M4F, "cortex-m33": M4F, "thumbv7m-none-eabi": M0, "thumbv7em-none-eabi": M0,
        "thumbv8m.base-none-eabi": M0, "cortex-m0": M0, "cortex-m0plus": M0, "cortex-m0+": M0, "cortex-m3": M0,
        "aarch64-unknown-none": BARE_AARCH64, "aarch64-none": BARE_AARCH64, "aarch64-elf": BARE_AARCH64,
        "aarch64-unknown-none-softfloat": BARE_AARCH64, "aarch64-freestanding-none": BARE_AARCH64,
        "riscv32imac-unknown-none-elf": RISCV32_NONE, "riscv32imc-unknown-none-elf": RISCV32_NONE,
        "riscv32i-unknown-none-elf": RISCV32_NONE, "riscv64gc-unknown-none-elf": RISCV64_NONE,
        "riscv64-unknown-elf": RISCV64_NONE, "riscv64-freestanding-none": RISCV64_NONE,
    },
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
    "armv7a-linux-androideabi21": (ANDROID_ARMV7, "21"),
    "x86_64-linux-android24": (ANDROID_X86_64, "24"),
    "riscv64-linux-android35": (ANDROID_RISCV64, "35"),
    "android_24_armeabi_v7a": (ANDROID_ARMV7, "24"),
    "android_21_x86_64": (ANDROID_X86_64, "21"),
    "arm64-apple-macos13.0": (MACOS, "13.0"),
    "arm64-apple-macosx11.0.0": (MACOS, "11.0.0"),
    "x86_64-apple-macosx10.15": (MACOS_X86_64, "10.15"),
    "arm64-apple-darwin20": (MACOS, "11.0"),
    "x86_64-apple-darwin19.6.0": (MACOS_X86_64, "10.15"),
    "aarch64-macos.13.0": (MACOS, "13.0"),
    "arm64-apple-ios16.0": (IOS, "16.0"),
    "arm64-apple-ios16.0-simulator": (IOS_SIMULATOR, "16.0"),
    "macosx_11_0_arm64": (MACOS, "11.0"),
    "macosx-11.0-arm64": (MACOS, "11.0"),
    "osx.13-arm64": (MACOS, "13"),
    "ios_15_4_arm64_iphoneos": (IOS, "15.4"),
    "ios_15_4_arm64_iphonesimulator": (IOS_SIMULATOR, "15.4"),
}

# A name that does not resolve, and what the message must say.
REFUSED = {
    # ambiguous: the choices
    "arm": ["ambiguous", "aarch64-linux-gnu", "armv7-linux-gnueabihf", "thumbv6m-none-eabi"],
    "linux": ["ambiguous", "x86_64-linux-gnu", "aarch64-linux-android"],
    "musl": ["ambiguous", "x86_64-linux-musl", "aarch64-linux-musl"],
    "cuda": ["ambiguous", "cuda-host", "cuda-host-aarch64"],
    "macos": ["ambiguous", MACOS, MACOS_X86_64],
    "ios": ["ambiguous", IOS, IOS_SIMULATOR],
    "windows": ["ambiguous", MSVC, MSVC_AARCH64, MINGW, MINGW_I686],
    "arm-none-eabi": ["ambiguous", M4F, M0],
    "riscv-none-elf": ["ambiguous", RISCV32_NONE, RISCV64_NONE],
    "macosx_11_0_universal2": [
        "ambiguous",
        "name both: --target arm64-apple-macos11.0 --target x86_64-apple-macos11.0",
    ],
    "universal2": ["ambiguous", "name both: --target arm64-apple-macos --target x86_64-apple-macos"],
    # unknown: the nearest
    "arm64-apple-macos,x86_64-windows-msvc": ["unknown target", "several are named by several --target"],
    "x86_64-linux-gnu,aarch64-linux-gnu": ["unknown target", "several are named by several --target"],
    "arm64-apple-macos x86_64-windows-msvc": ["unknown target", "several are named by several --target"],
    "arm64-linux-windows-msvc": ["unknown target"],
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
    "darwin/": ["unknown target", "darwin/arm64"],
    "x86_64-windows-gnx": ["unknown target", MINGW],
    "riscv32-unknown-elf": ["unknown target", RISCV32_NONE],
    # systems to come
    "arm64-apple-tvos": ["this system of Apple is not supported yet by this version", IOS],
    "aarch64-apple-watchos": ["this system of Apple is not supported yet"],
    "arm64-apple-ios14.0-macabi": ["this system of Apple is not supported yet"],
    "maccatalyst-arm64": ["this system of Apple is not supported yet"],
    "x64-uwp": ["this kind of Windows is not supported yet", MSVC],
    "x86_64-uwp-windows-msvc": ["this kind of Windows is not supported yet"],
    "x86_64-pc-cygwin": ["this kind of Windows is not supported yet"],
    "x86_64-unknown-freebsd": ["not supported yet", X86_64],
    "wasm32-unknown-unknown": ["WebAssembly is not supported yet"],
    "riscv64imac-unknown-none-elf": ["no bare-metal target has this name yet", RISCV64_NONE],
    "x86_64-unknown-none": ["no bare-metal target has this name yet"],
    "armv7r-none-eabihf": ["no bare-metal target has this name yet", M4F],
    # CPUs and pairs without a target
    "mips64el-linux-gnuabi64": ["CPU mips64el"],
    "aarch64_be-linux-gnu": ["CPU aarch64_be"],
    "linux/arm/v6": ["CPU armv6"],
    "armel": ["CPU armel"],
    "powerpc64-linux-gnu": ["CPU powerpc64"],
    "i686-linux-android21": ["no target is i686-linux-android yet", "x86_64-linux-android"],
    "arm64e-apple-ios": ["CPU arm64e", IOS],
    "arm64ec-pc-windows-msvc": ["CPU arm64ec", MSVC_AARCH64],
    "x86_64-apple-ios": ["no target is x86_64-apple-ios yet", IOS],
    "i686-pc-windows-msvc": ["no target is i686-windows-msvc yet", MINGW_I686, MSVC],
    "win32": ["no target is i686-windows-msvc yet", MINGW_I686],
    "thumbv7a-pc-windows-msvc": ["no target is armv7-windows-msvc yet", MSVC_AARCH64],
    "aarch64-pc-windows-gnullvm": ["no target is aarch64-windows-gnu yet", MSVC_AARCH64],
    "arm-linux-gnueabi": ["no target is armv7-linux-gnueabi yet", "armv7-linux-gnueabihf"],
    "riscv64-linux-musl": ["no target is riscv64-linux-musl yet", "riscv64-linux-gnu", "aarch64-linux-musl"],
    "x86_64-linux-gnux32": ["no target is x86_64-linux-gnux32 yet", "x86_64-linux-gnu"],
    "aarch64-linux-ohos": ["no target is aarch64-linux-ohos yet", "aarch64-linux-musl"],
    # versions that never were
    "riscv64-linux-gnu.2.17": ["glibc", "expected 2.27 or later, found 2.17"],
    "aarch64-linux-android19": ["android-api", "expected 21 or later, found 19"],
    "x86_64-linux-gnu.2.2": ["expected 2.2.5 or later, found 2.2"],
    "riscv64-linux-android34": ["android-api", "expected 35 or later, found 34"],
    "arm64-apple-macos10.15": ["expected 11.0 or later, found 10.15"],
    "macosx_10_9_x86_64": ["expected 10.14 or later, found 10.9"],
    "arm64-apple-darwin99": ["expected 18 to 25, found 99", "arm64-apple-macos13.0"],
    "arm64-apple-macos70000.0": ["LC_BUILD_VERSION", "expected at most 65535.255.255, found 70000.0"],
    "arm64-apple-macos13.0.256": ["LC_BUILD_VERSION"],
    "arm64-apple-macos13.0.0.1": ["LC_BUILD_VERSION"],
    "x86_64-pc-windows-msvc19.33": ["no versions", "write x86_64-windows-msvc"],
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


@pytest.mark.parametrize(
    ("typed", "minos", "sdk", "triple"),
    [
        ("arm64-apple-macos", "11.0", "11.0", "arm64-apple-macosx11.0.0"),
        ("arm64-apple-macos13", "13.0", "13.0", "arm64-apple-macosx13.0.0"),
        ("arm64-apple-macos14.2.1", "14.2.1", "14.2.1", "arm64-apple-macosx14.2.1"),
        ("x86_64-apple-macos10.14", "10.14", "11.0", "x86_64-apple-macosx10.14.0"),
        ("arm64-apple-ios13.4", "13.4", "15.0", "arm64-apple-ios13.4.0"),
        ("arm64-apple-ios17.0-simulator", "17.0", "17.0", "arm64-apple-ios17.0.0-simulator"),
    ],
)
def test_the_version_of_apple_s_system_is_in_the_target(typed: str, minos: str, sdk: str, triple: str) -> None:
    """And LLVM, given the triple, says the same in the object."""
    resolved = targets.resolve(typed)
    assert resolved.target.macho is not None
    assert (resolved.target.macho.minos, resolved.target.macho.sdk) == (minos, sdk)
    assert resolved.triple == resolved.target.llvm_triple == triple
    raw = emit_object(resolved.target, "@x = constant i8 1\n")
    packed = [*map(int, minos.split(".")), 0][:3]
    at = raw.index((0x32).to_bytes(4, "little") + (24).to_bytes(4, "little"))  # LC_BUILD_VERSION and its size
    assert raw[at + 12 : at + 16] == bytes((packed[2], packed[1], packed[0], 0))


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


WORDS = st.sampled_from([
    *_names.SPELLINGS, "apple", "ios", "macos", "darwin", "simulator", "win", "windows", "mingw32", "none", "elf",
    "eabi", "unknown", "linux", "gnu", "msvc", "13.0", "99", "arm64", "x86_64", "universal2", "macosx", "static",
])  # fmt: skip


@given(
    st.text(alphabet="abcdegilmnruvx0123468_-./", max_size=40)
    | st.text(max_size=20)
    | st.builds(lambda words, joint: joint.join(words), st.lists(WORDS, max_size=5), st.sampled_from("-_./"))
)
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


@pytest.mark.parametrize(
    ("system", "machine", "build", "name"),
    [
        ("darwin", "arm64", "Clang 15", MACOS),
        ("darwin", "x86_64", "Clang 15", MACOS_X86_64),
        ("win32", "AMD64", "MSC v.1938 64 bit", MSVC),
        ("win32", "ARM64", "MSC v.1938 64 bit", MSVC_AARCH64),
        ("win32", "AMD64", "GCC UCRT 13.2.0 64 bit", MINGW),
    ],
)
def test_native_is_apple_s_or_windows_host(
    monkeypatch: pytest.MonkeyPatch, system: str, machine: str, build: str, name: str
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(sys, "maxsize", (1 << 63) - 1)
    monkeypatch.setattr(sys, "version", f"3.12.1 [{build}]")
    assert targets.resolve("native").target.name == name


def test_native_in_a_32_bit_python_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "AMD64")
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(sys, "maxsize", (1 << 31) - 1)
    monkeypatch.setattr(sys, "version", "3.12.1 [GCC 13.2.0]")
    assert targets.resolve("native").target.name == MINGW_I686


@pytest.mark.parametrize(("system", "machine"), [("freebsd14", "amd64"), ("cygwin", "x86_64"), ("linux", "mips64")])
def test_a_host_that_is_no_target_is_named(monkeypatch: pytest.MonkeyPatch, system: str, machine: str) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(sys, "platform", system)
    with pytest.raises(TargetError, match=f"(?i){machine}"):
        targets.resolve("native")


@pytest.mark.parametrize("name", ["arm64-apple-macos11", "arm64-apple-macos11.0", "arm64-apple-macos11.0.0"])
def test_zeros_at_the_end_of_a_version_make_no_difference(name: str) -> None:
    target = targets.resolve(name).target
    assert target.macho is not None
    assert (target.macho.minos, target.llvm_triple) == ("11.0", "arm64-apple-macosx11.0.0")
