"""What functions ask of their CPU beyond what every device of a target has: instructions that older ones lack.

Functions carry the features that their compiler was told (`target-features`, as clang -march and -mcpu write them), and
LLVM obeys them, whatever the module is compiled for. Source of the names: LLVM's lib/Target/*/*.td.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["beyond", "shared_features"]

_X86 = (
    r"avx.*|sse3|ssse3|sse4.*|popcnt|lzcnt|bmi2?|fma4?|f16c|aes|vaes|v?pclmul.*|sha(512)?|sm[34]|movbe|amx-.*|gfni|cx16|"
    r"sahf|xop|tbm|rdrnd|rdseed|adx|apx.*|egpr"
)
_ARM = r"aes|sha2|crypto|dotprod|fullfp16|bf16|i8mm|crc|mve.*|neon|d32|vfp4.*|fp-armv8.*|sb|fp16(fml)?"
_AARCH64 = (
    r"sve.*|sme.*|lse.*|fullfp16|fp16fml|dotprod|i8mm|bf16|f32mm|f64mm|crc|aes|crypto|sha[23]|sm4|rdm|rcpc.*|jsconv|"
    r"complxnum|fp8.*|mops|cssc|lut|faminmax|cpa"
)
_RISCV = r"v|zv.*|zb.*|zk.*|zfh.*|zfa|zicond|zcb|zcm.*|zacas|zabha|zawrs|zicbo.*|h|q|x[a-z].*"
_PPC = r"power(9|10)-vector|mma|isa-v3.*|paired-vector-memops|prefix-instrs|pcrelative-memops|float128"
_S390X = r"vector.*|miscellaneous-extensions.*|nnp-assist.*|enhanced-dat.*|bear-enhancement"

# By the first part of LLVM's triple: features that add instructions to what the targets of that CPU have.
_MORE: tuple[tuple[str, str], ...] = (
    (r"x86_64", _X86),
    (r"i[3-6]86", rf"{_X86}|sse2?|mmx"),
    (r"aarch64|arm64", _AARCH64),
    (r"arm.*|thumb.*", _ARM),
    (r"riscv.*", _RISCV),
    (r"powerpc64le", _PPC),
    (r"s390x", _S390X),
    (r"loongarch64", r"lasx|lbt|lvz"),
)
# CPUs that say it by their name alone: those with the vector facility.
_CPUS = (("s390x", r"z1[3-9]|arch1[1-9]"),)


def beyond(triple: str, cpu: str, features: Iterable[str]) -> list[str]:
    """Return what a function asks for beyond the baseline of `triple`: `+feature`, or the CPU. Apple's CPUs have it."""
    arch, _, rest = triple.partition("-")
    if "apple" in rest:
        return []
    pattern = next((more for name, more in _MORE if re.fullmatch(name, arch)), "")
    found = [one for one in features if one.startswith("+") and re.fullmatch(pattern, one[1:])]
    found += [cpu for name, more in _CPUS if name == arch and re.fullmatch(more, cpu)]
    return sorted(set(found))


def shared_features(functions: Mapping[str, Iterable[str]]) -> list[str]:
    """Return what every function asks for: the object's attributes may say it, since nothing is compiled without."""
    asked = [set(features) for features in functions.values()]
    return sorted(set.intersection(*asked)) if asked else []
