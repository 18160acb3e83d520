"""The words that names of targets are made of, in every spelling that is read. Data alone; `_names` is the grammar.

Regular expressions are kept as text, and `re` is imported by who uses it: a canonical name needs neither.
"""

from __future__ import annotations

__all__ = [
    "AMBIGUOUS", "BARE_METAL", "BARE_METAL_WORDS", "CPUS", "DARWIN", "ENVIRONMENT", "EXACT", "HARD_FLOAT",
    "IOS_SIMULATOR", "LEGACY_MANYLINUX", "OTHER_CPUS", "OTHER_SYSTEMS", "PYTHON_TAGS", "SPELLINGS", "SYSTEMS",
    "VCPKG_SUFFIXES",
]  # fmt: skip

# CPU, as the targets call it: how it is spelled, in full.
CPUS = {
    "x86_64": r"x86_64([-_]?v[1-4])?|x86_64h|x64|amd64|intel64|core2-64|corei7-64|skylake-64",
    "aarch64": r"aarch64|arm64|arm64[-_]v8a?|armv[89](-\d)?a(-\w+)*|neoverse-?\w+"
    r"|cortexa(3[45]|5[357]|65|7[235678]|510|520|7[12]\d)(-\w+)*",
    # `arm` alone is too little to go by, see AMBIGUOUS. The tunes of Yocto that end in hf, with their FPUs after it.
    "armv7": r"arm|armhf|armv7|armv7-?a|armv7[lr]|armv7h(l|nl|f)?|armv8l|thumbv7(a|neon)?|armeabi_v7a"
    r"|(armv7[avet2]*|cortexa(5|7|8|9|1[257]))t?2?hf(-\w+)*",
    "riscv64": r"riscv64(g|gc|imafdc|a2[23]\w*)?|rv64gc",
    "i686": r"i[3-6]86|x86|x86_32|ia32|386|core2-32|corei7-32",
    "s390x": r"s390x",
    "powerpc64le": r"powerpc64le|ppc64le|ppc64el|powerpc64el",
    "loongarch64": r"loongarch64|loong64",
}
# A spelling of these says hard float, whatever the rest of the triple says: Yocto and Fedora write gnueabi after it.
HARD_FLOAT = r"armhf|armv7h\w*|(armv7|cortexa)[^-]*hf(-.*)?"

OTHER_CPUS = (
    r"aarch64_be|arm64_32|arm64ec?\w*|armv[3-6]\w*|armeb\w*|armel|armv[67]e?-?m|armv8[-_.]?[mr]\w*|thumb\w*|cortex-?[mr]\w+"
    r"|mips\w*|sparc\w*|riscv32\w*|rv32\w*|powerpc|powerpc64|ppc|ppc64|s390|loongarch32|loong32|wasm\w*|nvptx\w*|amdgcn"
    r"|hexagon|xtensa|avr|msp430|m68k|alpha|hppa|ia64|sh4|csky|arc|bpf\w*"
)

_VERSION = r"(?:\.?(?P<version>\d+(?:\.\d+)*))?"
# How the component of a name that says the system is spelled, but for Linux: a word alone.
SYSTEMS = {
    "macos": rf"(?:macosx|macos|osx){_VERSION}",
    "darwin": rf"darwin{_VERSION}",
    "ios": rf"(?:ios|iphoneos){_VERSION}",
    "ios-simulator": rf"(?:iossimulator|iphonesimulator){_VERSION}",
    "windows": r"windows|win|win10|win32|mingw\w*",
}
# What stands behind iOS where it is not the device's.
IOS_SIMULATOR = frozenset({"simulator", "sim"})

# The first macOS of each version of its kernel that has targets.
DARWIN = {
    18: "10.14", 19: "10.15", 20: "11.0", 21: "12.0", 22: "13.0", 23: "14.0", 24: "15.0", 25: "26.0",
}  # fmt: skip

OTHER_SYSTEMS = (  # how a component of a name begins, what to call it, and what the names of the choices match
    (r"macabi|maccatalyst|tvos|watchos|visionos|xros|bridgeos|driverkit|appletv|xrsimulator", "this system of Apple is",
     r".*-apple-.*"),
    (r"apple|mac|iphone|ios", "this system of Apple is", r".*-apple-.*"),
    (r"uwp|cygwin|msys|windowsce", "this kind of Windows is", r".*-windows-.*"),
    (r"win|mingw|msvc", "this kind of Windows is", r".*-windows-.*"),
    (r"freebsd|netbsd|openbsd|dragonfly|solaris|illumos|aix|haiku|fuchsia|nto|qnx|vxworks|zephyr|hurd|kfreebsd",
     "this system is", r".*"),
    (r"wasi|emscripten|wasm", "WebAssembly is", r".*"),
)  # fmt: skip

# Exact names: a canonical name, or (CPU, system, environment) whose target may not exist.
EXACT: dict[str, str | tuple[str, str, str]] = {
    "arm64-v8a": ("aarch64", "linux", "android"),
    "armeabi-v7a": ("armv7", "linux", "android"),
    "armeabi": ("armv7", "linux", "android"),
    "win32": ("i686", "windows", "msvc"),
    "cuda-host-x86_64": "cuda-host",
    "cuda-host-arm64": "cuda-host-aarch64",
    # The first three are NVIDIA's names for 64-bit Arm servers.
    "sbsa": "cuda-host-aarch64",
    "sbsa-linux": "cuda-host-aarch64",
    "linux-sbsa": "cuda-host-aarch64",
    "jetson": "cuda-host-aarch64",
    "grace": "cuda-host-aarch64",
}

# Names that say too little, and what the names of the choices match.
AMBIGUOUS = {
    "arm": r"armv7-.*|thumbv.*|aarch64-linux-gnu",
    "linux": r".*-linux-.*",
    "gnu": r".*-linux-gnu\w*",
    "glibc": r".*-linux-gnu\w*",
    "musl": r".*-musl",
    "android": r".*-android\w*",
    "cuda": r"cuda-.*",
    "riscv": r"riscv.*",
    "ppc": r"powerpc.*",
    "powerpc": r"powerpc.*",
    "loongarch": r"loongarch.*",
    "s390": r"s390.*",
    "apple": r".*-apple-.*",
    "mac": r".*-apple-macos",
    "macos": r".*-apple-macos",
    "macosx": r".*-apple-macos",
    "osx": r".*-apple-macos",
    "darwin": r".*-apple-macos",
    "ios": r".*-apple-ios.*",
    "windows": r".*-windows-.*",
    "win": r".*-windows-.*",
    "mingw": r".*-windows-gnu",
    "msvc": r".*-windows-msvc",
    "none": r".*-none-.*",
    "baremetal": r".*-none-.*",
    "bare-metal": r".*-none-.*",
    "cortex-m": r"thumb.*",
    "thumb": r"thumb.*",
    # The names of GNU toolchains for several CPUs and ABIs.
    "arm-none-eabi": r"thumb.*",
    "arm-none-eabihf": r"thumb.*hf",
    "arm-unknown-none-eabi": r"thumb.*",
    "thumb-none-eabi": r"thumb.*",
    "thumb-freestanding-eabi": r"thumb.*",
    "thumb-freestanding-eabihf": r"thumb.*hf",
    "riscv-none-elf": r"riscv.*-none-.*",
    "riscv-none-embed": r"riscv.*-none-.*",
    "riscv32-unknown-elf": r"riscv32.*",
    "riscv32-none-elf": r"riscv32.*",
}

# Names of bare-metal targets. An object claims the least of its family (test_bare_metal_neutral.py), so that several
# CPUs share one.
_NONE = r"(-unknown)?-(none|freestanding)(-unknown)?"
BARE_METAL = (
    (rf"(thumbv7em|thumbv8m\.main){_NONE}-eabihf|cortex-m(4|7|33|35p|55|85)f?", "thumbv7em-none-eabihf"),
    (rf"thumbv(6m|7m|7em|8m\.base|8m\.main){_NONE}-eabi|cortex-m(0|0plus|0\+|1|3|23)", "thumbv6m-none-eabi"),
    (rf"(aarch64|arm64)({_NONE}(-(elf|none|softfloat))?|(-unknown)?-elf)", "aarch64-none-elf"),
    (rf"(riscv32|rv32)(i|im|ic|imc|ima|imac)(_\w+)?({_NONE}-elf)?", "riscv32imac-none-elf"),
    (rf"(riscv64|rv64)(gc|imafdc)({_NONE}(-(elf|none))?|(-unknown)?-elf)", "riscv64gc-none-elf"),
    (rf"riscv64({_NONE}(-(elf|none))?|(-unknown)?-elf)", "riscv64gc-none-elf"),
)
BARE_METAL_WORDS = r"none|elf|eabi\w*|freestanding|baremetal|cortex-?[mr]\w*"

# Every environment that is met with Linux, so that one without a target is told from a misspelt one.
ENVIRONMENT = (
    r"(?P<name>gnux32|gnuabi(?:n32|64)|gnu(?:eabi(?:hf)?|sf|f32|_ilp32|llvm)?|musl(?:eabi(?:hf)?|abi(?:n32|64)|x32|sf|f32)?"
    r"|android(?:eabi)?|uclibc(?:eabi(?:hf)?)?|ohos)(?:\.?(?P<version>\d+(?:\.\d+)*))?"
)
PYTHON_TAGS = (  # a tag, the system, the environment
    (r"manylinux_(?P<major>\d+)_(?P<minor>\d+)_(?P<cpu>\w+)", "linux", "gnu"),
    (r"manylinux(?P<legacy>1|2010|2014)_(?P<cpu>\w+)", "linux", "gnu"),
    (r"musllinux_(?P<major>\d+)_(?P<minor>\d+)_(?P<cpu>\w+)", "linux", "musl"),
    (r"android_(?P<major>\d+)_(?P<cpu>\w+)", "linux", "android"),
    (r"linux_(?P<cpu>\w+)", "linux", ""),
    (r"macosx[-_](?P<major>\d+)[._](?P<minor>\d+)[-_](?P<cpu>\w+)", "macos", ""),
    (r"ios_(?P<major>\d+)_(?P<minor>\d+)_(?P<cpu>\w+)_iphoneos", "ios", ""),
    (r"ios_(?P<major>\d+)_(?P<minor>\d+)_(?P<cpu>\w+)_iphonesimulator", "ios-simulator", ""),
    (r"win_(?P<cpu>\w+)", "windows", ""),
    (r"windows_(?P<cpu>\w+)", "windows", ""),  # these two are Go's
    (r"darwin_(?P<cpu>\w+)", "macos", ""),
)
LEGACY_MANYLINUX = {"1": "2.5", "2010": "2.12", "2014": "2.17"}
VCPKG_SUFFIXES = frozenset({"dynamic", "static", "release", "md"})

# Spellings that `emitter targets NAME` shows beside a target's name.
SPELLINGS = (
    "aarch64", "aarch64-apple-darwin", "aarch64-apple-ios", "aarch64-apple-ios-sim", "aarch64-macos",
    "aarch64-pc-windows-msvc", "aarch64-poky-linux", "aarch64-unknown-linux-gnu", "aarch64-unknown-linux-musl",
    "aarch64-unknown-none", "amd64", "arm-linux-gnueabihf", "arm64", "arm64-android", "arm64-linux", "arm64-osx",
    "arm64-v8a", "arm64-windows", "armeabi-v7a", "armhf", "armv7-unknown-linux-gnueabihf",
    "armv7a-linux-androideabi", "armv7l", "cortex-m0", "cortex-m3", "cortex-m4", "cortex-m7", "darwin/amd64",
    "darwin/arm64", "i386", "i386-linux-gnu", "i686", "i686-w64-mingw32", "ios-arm64", "iossimulator-arm64", "jetson",
    "linux/386", "linux/amd64", "linux/arm/v7", "linux/arm64", "linux/ppc64le", "linux/riscv64", "linux/s390x",
    "loong64", "manylinux_2_28_aarch64", "manylinux_2_28_x86_64", "musllinux_1_2_aarch64", "musllinux_1_2_x86_64",
    "osx-64", "osx-arm64", "ppc64el", "ppc64le", "riscv32imac-unknown-none-elf", "riscv32imc-unknown-none-elf",
    "riscv64", "riscv64-unknown-elf", "riscv64gc-unknown-linux-gnu", "riscv64gc-unknown-none-elf", "s390x",
    "sbsa-linux", "thumbv7em-none-eabi", "thumbv7m-none-eabi", "thumbv8m.main-none-eabihf", "win-64", "win-arm64",
    "win-x64", "win_amd64", "win_arm64", "windows/amd64", "windows/arm64", "x64-android", "x64-linux",
    "x64-mingw-static", "x64-osx", "x64-windows", "x86-linux-gnu", "x86_64", "x86_64-apple-darwin",
    "x86_64-pc-windows-gnu", "x86_64-pc-windows-msvc", "x86_64-unknown-linux-gnu", "x86_64-unknown-linux-musl",
    "x86_64-w64-mingw32",
)  # fmt: skip
