"""The C and C++ header of a package: its symbols, their types, and the schema that a program was written for.

It depends on the schema alone (names, element types, shapes, symbols), so new weights change none of its bytes and
recompile nothing. It is under 0BSD, includes <stddef.h> and <stdint.h> only, and names nothing that does not begin with
the package's own names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emitter.dtypes import FLOAT, INT, UINT
from emitter.pack.plan import DEFAULT_ALIGNMENT
from emitter.symbols import check_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from emitter.dtypes import DType
    from emitter.model import TensorSymbol
    from emitter.pack.plan import PackPlan
    from emitter.package import Package, Tensor

__all__ = ["render_header"]

# Types of C for elements, by (DLPack code, bits): all have the same size wherever C has them.
_C_TYPES = {
    (FLOAT, 32): "float",
    (FLOAT, 64): "double",
    **{(INT, bits): f"int{bits}_t" for bits in (8, 16, 32, 64)},
    **{(UINT, bits): f"uint{bits}_t" for bits in (8, 16, 32, 64)},
}

# An array of more bytes than this is declared without its extent: a compiler for 32-bit pointers refuses it.
_LARGEST_EXTENT = (1 << 31) - 1

_HEAD = """\
/* SPDX-License-Identifier: 0BSD
 * Written by emitter; it changes only when names, types or shapes of tensors do.
 *
 *     #include "emitter.h"
 *     emitter_reader reader;
 *     emitter_status status = emitter_open_expect(&reader, {name}, {name}_size, {name}_SCHEMA);
 *
 * May be defined before: {name}_API, how the symbols are declared; {name}_STATIC, on Windows, if they are not in a DLL;
 * {name}_DIRECT, elsewhere, if they are part of the program itself and no pointer shall stand between (see the end).
 */
#ifndef EMITTED_{name}_H
#define EMITTED_{name}_H

#include <stddef.h>
#include <stdint.h>

#ifndef {name}_API
#if defined(_WIN32) && !defined({name}_STATIC)
#define {name}_API __declspec(dllimport)
#elif defined(_WIN32)
#define {name}_API
#elif defined(__GNUC__)
#define {name}_API __attribute__((visibility("default")))
#else
#define {name}_API
#endif
#endif

/* The tensors that this header was written for: names, types and shapes. */
#define {name}_SCHEMA UINT64_C({schema:#018x})

#ifdef __cplusplus
extern "C" {{
#endif

/* The pack, and its size in bytes. */
extern {name}_API const unsigned char {name}[];
extern {name}_API const size_t {name}_size;
"""

# The attribute nodirect_extern_access, which GCC 12 has for this, marks the whole program: GNU ld then copies nothing
# at all, and direct references to stderr or std::cout become text relocations that crash.
_INDIRECT = """\

/* Code that was not compiled with -fPIC reaches data at a fixed distance. For data of a library a linker must then copy
 * them into the program, or refuse. So such code reaches them through pointers, which the dynamic linker fills. Since
 * the names are macros then, include this file after others. */
#if defined(__GNUC__) && defined(__ELF__) && (!defined(__PIC__) || defined(__PIE__)) && !defined({name}_DIRECT)
{pointers}#endif
"""

_POINTER = """\
static __typeof__({symbol}) *volatile {symbol}_at_ __attribute__((unused)) = &{symbol};
#define {symbol} (*{symbol}_at_)
"""

_FOOT = """\

#ifdef __cplusplus
}}
#endif

#endif /* EMITTED_{name}_H */
"""


def render_header(
    *,
    name: str,
    package: Package,
    plan: PackPlan,
    symbols: Sequence[TensorSymbol] = (),
    alignment: int = DEFAULT_ALIGNMENT,
) -> str:
    """Return the header of `package`, emitted as the symbol `name`, with the given symbols of its tensors.

    Tensors are listed in the order of the bytes of their names. Those that have a symbol are declared as arrays of the
    type that C has for their elements, or else as bytes, with macros `SYMBOL_NDIM` and `SYMBOL_SHAPE` (an initialiser,
    absent for 0 dimensions). `alignment` is the package's default in bytes: a tensor that is less aligned than its type
    is declared as bytes. Raises LayoutError for names that C cannot declare or that collide.
    """
    tensors = sorted(package.tensors, key=lambda tensor: tensor.name.encode())
    symbol_of = {symbol.tensor: symbol.name for symbol in symbols}
    check_names(_names(name, tensors, symbol_of))
    parts = [_HEAD.format(name=name, schema=plan.schema)]
    for tensor in tensors:
        symbol = symbol_of.get(tensor.name)
        comment = f"/* {_quoted(tensor.name)}: {_description(tensor)} */\n"
        if symbol is None:
            parts.append(comment)
            continue
        parts.append(
            f"\n{comment}extern {name}_API const {_declarator(tensor, symbol, tensor.alignment or alignment)};\n"
        )
        parts.append(f"#define {symbol}_NDIM {len(tensor.shape)}\n")
        if tensor.shape:
            parts.append(f"#define {symbol}_SHAPE {{{', '.join(_constant(extent) for extent in tensor.shape)}}}\n")
    if tensors and not symbol_of:
        parts.insert(1, "\n/* Its tensors, which a reader finds by name: */\n")
    reached = [name, f"{name}_size", *(symbol_of[tensor.name] for tensor in tensors if tensor.name in symbol_of)]
    pointers = "".join(_POINTER.format(symbol=symbol) for symbol in reached)
    parts.append(_INDIRECT.format(name=name, pointers=pointers))
    parts.append(_FOOT.format(name=name))
    return "".join(parts)


def _names(name: str, tensors: Sequence[Tensor], symbol_of: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield every name that the header gives a meaning, with its source."""
    yield name, "the name"
    for suffix in ("size", "SCHEMA", "API", "STATIC", "DIRECT", "at_", "size_at_"):
        yield f"{name}_{suffix}", f"the {suffix} of {name}"
    yield f"EMITTED_{name}_H", f"the guard of {name}"
    for tensor in tensors:
        symbol = symbol_of.get(tensor.name)
        if symbol is not None:
            yield symbol, f"tensor {tensor.name!r}"
            yield f"{symbol}_at_", f"the pointer of tensor {tensor.name!r}"
            yield f"{symbol}_NDIM", f"the macro of tensor {tensor.name!r}"
            if tensor.shape:
                yield f"{symbol}_SHAPE", f"the macro of tensor {tensor.name!r}"


def _declarator(tensor: Tensor, symbol: str, alignment: int) -> str:
    dtype = tensor.dtype
    type_, unit = ("unsigned char", 1) if tensor.encoding else _element(dtype, alignment)
    elements = tensor.nbytes // unit
    # ISO C has no arrays of 0 elements. A block format's size does not follow from the schema.
    known = 0 < tensor.nbytes <= _LARGEST_EXTENT and not tensor.encoding
    return f"{type_} {symbol}[{elements if known else ''}]"


def _element(dtype: DType, alignment: int) -> tuple[str, int]:
    """Return the type of C for a lane and its bytes."""
    type_ = _C_TYPES.get((dtype.code, dtype.bits))
    return (type_, dtype.bits // 8) if type_ and alignment >= dtype.bits // 8 else ("unsigned char", 1)


def _description(tensor: Tensor) -> str:
    shape = ", ".join(map(str, tensor.shape))
    if tensor.encoding:
        return f"{tensor.dtype} [{shape}] in encoding {tensor.encoding:#06x}"
    return f"{tensor.dtype} [{shape}], {tensor.nbytes} bytes"


def _constant(value: int) -> str:
    return str(value) if value < 1 << 31 else f"INT64_C({value})"


def _quoted(text: str) -> str:
    """Return `text` in quotes and in printable ASCII; nothing in it ends a comment, or begins one or a trigraph."""
    escaped = "".join(
        c if " " <= c <= "~" and c not in '"\\' else f"\\{c}" if c in '"\\' else f"\\u{{{ord(c):x}}}" for c in text
    )
    for pair in ("*/", "/*", "??"):
        while pair in escaped:
            escaped = escaped.replace(pair, f"{pair[0]}\\{pair[1]}")
    return f'"{escaped}"'
