"""What the C library of each platform offers to code: a stand-in is linked with, and the real one is found at run time.

Only names count here: the functions of the C standard (ISO/IEC 9899:2011, 7.12 and 7.24, and of 7.22 the ones that
kernels use). A program for the target has them loaded anyway. Real libraries are taken with -L.
"""

from __future__ import annotations

from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emitter.targets._base import Target

__all__ = ["Library", "library_of", "offers"]

_MATH_STEMS = (
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh", "erf",
    "erfc", "exp", "exp2", "expm1", "fabs", "fdim", "floor", "fma", "fmax", "fmin", "fmod", "frexp", "hypot", "ilogb",
    "ldexp", "lgamma", "llrint", "llround", "log", "log10", "log1p", "log2", "logb", "lrint", "lround", "modf", "nan",
    "nearbyint", "nextafter", "pow", "remainder", "remquo", "rint", "round", "scalbln", "scalbn", "sin", "sinh", "sqrt",
    "tan", "tanh", "tgamma", "trunc",
)  # fmt: skip
_MATH = frozenset(_MATH_STEMS) | {f"{stem}f" for stem in _MATH_STEMS}
_C_NAMES = (
    "memchr", "memcmp", "memcpy", "memmove", "memset", "strlen", "strcmp", "strncmp", "strcpy", "strncpy", "malloc",
    "calloc", "realloc", "free", "abort", "qsort", "bsearch", "abs", "labs", "llabs", "printf", "puts", "snprintf",
)  # fmt: skip
# What LLVM calls in place of memcpy and its like on 32-bit Arm: "Run-time ABI for the Arm Architecture", 4.3.4.
_ARM_NAMES = [f"__aeabi_mem{verb}{n}" for verb in ("cpy", "move", "set", "clr") for n in ("", "4", "8")]
_C = frozenset([*_C_NAMES, *_ARM_NAMES])
# Both together, where one library has both.
_ALL = _MATH | _C


class Library(NamedTuple):
    """A library as the loader knows it, and the names that it offers."""

    name: str
    offers: frozenset[str]


# By the letters behind -l. Keys are `version_kind` of targets, or else their object format.
_LIBRARIES: Mapping[str, Mapping[str, Library]] = {
    "glibc": {"m": Library("libm.so.6", _MATH), "c": Library("libc.so.6", _C)},
    "musl": {"m": Library("libc.so", _MATH), "c": Library("libc.so", _C)},
    "android-api": {"m": Library("libm.so", _MATH), "c": Library("libc.so", _C)},
    "macho": {letters: Library("/usr/lib/libSystem.B.dylib", _ALL) for letters in ("m", "c", "System")},
    # Part of Windows since 10; Microsoft's compilers and the newer MinGW use it.
    "coff": {letters: Library("ucrtbase.dll", _ALL) for letters in ("m", "c", "ucrt")},
}


def _of(target: Target) -> Mapping[str, Library]:
    if target.object_format != "elf":
        return _LIBRARIES[target.object_format]
    return _LIBRARIES.get(target.version_kind or ("glibc" if target.image_suffix else ""), {})


def library_of(target: Target, letters: str) -> Library | None:
    """Return what `-lLETTERS` stands for on a platform, or None where it is not known."""
    return _of(target).get(letters)


def offers(target: Target, name: str) -> str | None:
    """Return the letters of the library that has `name`, or None."""
    return next((letters for letters, library in _of(target).items() if name in library.offers), None)
