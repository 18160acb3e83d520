"""What the C library of each platform offers to code: a stand-in is linked with, and the real one is found at run time.

Only names count here: the functions of the C standard (ISO/IEC 9899:2011, 7.12 and 7.24, and of 7.22 the ones that
kernels use), and what compilers ask of GCC's run-time library for unwinding. A program for the target has them loaded
anyway. Real libraries are taken with -L.
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
    "raise",  # GCC's libgcc.a calls it where 32-bit Arm divides by zero
)  # fmt: skip
# What LLVM calls in place of memcpy and its like on 32-bit Arm: "Run-time ABI for the Arm Architecture", 4.3.4.
_ARM_NAMES = [f"__aeabi_mem{verb}{n}" for verb in ("cpy", "move", "set", "clr") for n in ("", "4", "8")]
_C = frozenset([*_C_NAMES, *_ARM_NAMES])
# Of the loader, which every program has: thread-local variables of a library.
_LOADER = frozenset({"__tls_get_addr"})
# Destructors of static objects: "C++ ABI for Itanium", 3.3.6.
_DESTRUCTORS = frozenset({"__cxa_atexit", "__cxa_finalize"})
# "C++ ABI for Itanium: Exception Handling", 1.5; "Exception Handling ABI for the Arm Architecture", 9.2.
_UNWINDING = frozenset({
    "_Unwind_Resume", "_Unwind_RaiseException", "_Unwind_DeleteException", "_Unwind_Backtrace",
    "__gcc_personality_v0", "__aeabi_unwind_cpp_pr0", "__aeabi_unwind_cpp_pr1", "__aeabi_unwind_cpp_pr2",
})  # fmt: skip
# What LLVM makes of several calls, or of loops: of sin and cos of one value, of filling memory.
_SINCOS = frozenset({"sincos", "sincosf"})
_APPLE = frozenset({
    "__sincos_stret", "__sincosf_stret", "__exp10", "__exp10f", "bzero", "__bzero",
    "memset_pattern4", "memset_pattern8", "memset_pattern16",
}) | _DESTRUCTORS  # fmt: skip
# What ucrtbase.dll does not export, since headers of Windows have it inline: on every CPU, and on 32-bit x86, which
# computes with doubles.
_NOT_IN_UCRT = frozenset({"fabsf", "frexpf", "hypotf", "ldexpf", "printf", "snprintf"})
_NOT_IN_UCRT_32 = frozenset({
    "acosf", "asinf", "atan2f", "atanf", "ceilf", "cosf", "coshf", "expf", "floorf", "fmodf", "log10f", "logf", "modff",
    "powf", "sinf", "sinhf", "sqrtf", "tanf", "tanhf",
})  # fmt: skip
_UCRT = (_MATH | _C) - _NOT_IN_UCRT


class Library(NamedTuple):
    """A library as the loader knows it, and the names that it offers."""

    name: str
    offers: frozenset[str]


# By the letters behind -l. Keys are `version_kind` of targets, or else their object format and width.
_LIBRARIES: Mapping[str, Mapping[str, Library]] = {
    "glibc": {
        "m": Library("libm.so.6", _MATH | _SINCOS),
        "c": Library("libc.so.6", _C | _LOADER | _DESTRUCTORS),
        "gcc_s": Library("libgcc_s.so.1", _UNWINDING),
    },
    "musl": {"m": Library("libc.so", _MATH | _SINCOS), "c": Library("libc.so", _C | _DESTRUCTORS)},
    "android-api": {"m": Library("libm.so", _MATH | _SINCOS), "c": Library("libc.so", _C | _DESTRUCTORS)},
    "macho-64": {
        letters: Library("/usr/lib/libSystem.B.dylib", _MATH | _C | _APPLE | _DESTRUCTORS)
        for letters in ("m", "c", "System")
    },
    # Part of Windows since 10; Microsoft's compilers and the newer MinGW use it.
    "coff-64": {letters: Library("ucrtbase.dll", _UCRT) for letters in ("m", "c", "ucrt")},
    "coff-32": {letters: Library("ucrtbase.dll", _UCRT - _NOT_IN_UCRT_32) for letters in ("m", "c", "ucrt")},
}


def _of(target: Target) -> Mapping[str, Library]:
    if target.object_format != "elf":
        return _LIBRARIES[f"{target.object_format}-{target.pointer_width}"]
    return _LIBRARIES.get(target.version_kind or ("glibc" if target.image_suffix else ""), {})


def library_of(target: Target, letters: str) -> Library | None:
    """Return what `-lLETTERS` stands for on a platform, or None where it is not known."""
    return _of(target).get(letters)


def offers(target: Target, name: str) -> str | None:
    """Return the letters of the library that has `name`, or None."""
    return next((letters for letters, library in _of(target).items() if name in library.offers), None)
