"""The C and C++ header of a package: its symbols, their types, and the schema that a program was written for.

It depends on the schema (names, element types, shapes, encodings) and on what names and alignments were chosen, so new
weights change none of its bytes and recompile nothing. It is under 0BSD, includes <stddef.h> and <stdint.h> only, and
names nothing that does not begin with the package's own names.

Each symbol is declared, and has an accessor beside it. Code that was not compiled with -fPIC may reach data at a fixed
distance; for data of a library a linker must then copy them into the program or, since they are protected, refuse. An
accessor reads the address from a variable of its own, which the dynamic linker fills: that always works. It is a
function, so that nothing is emitted where it is not used, and the symbol's name stays free for users' own fields and
variables. GCC 12's attribute for this, nodirect_extern_access, marks the whole program: GNU ld 2.40 then makes text
relocations of references to stderr or std::cout, which crash. Weak declarations would be null in some programs.
"""

from __future__ import annotations

from emitter.dtypes import FLOAT, INT, UINT
from emitter.errors import LayoutError, shown
from emitter.layout import identifier
from emitter.pack.plan import DEFAULT_ALIGNMENT
from emitter.records import TYPE_CHECKING
from emitter.symbols import check_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from emitter.dtypes import DType
    from emitter.model import TensorSymbol
    from emitter.pack.plan import PackPlan
    from emitter.package import Package, Tensor

__all__ = ["render_header"]

_NO_FUNCTIONS: Mapping[str, Sequence[str] | None] = {}

# Types of C for elements, by (DLPack code, bits): all have the same size wherever C has them.
_C_TYPES = {
    (FLOAT, 32): "float",
    (FLOAT, 64): "double",
    **{(INT, bits): f"int{bits}_t" for bits in (8, 16, 32, 64)},
    **{(UINT, bits): f"uint{bits}_t" for bits in (8, 16, 32, 64)},
}

# An array of more bytes than this is declared without its extent: a compiler for 32-bit pointers refuses it.
_LARGEST_EXTENT = (1 << 31) - 1

# The number in the include guard; that of EMITTER_INTERFACE in emitter.h.
_INTERFACE = 0

_HEAD = """\
/* SPDX-License-Identifier: 0BSD
 * Written by emitter; it changes only when names, types or shapes of tensors do, or the options that name and align.
 *
 * {name}_data() always works. {name} itself works where the weights are part of the program (.o, .a), and for a
 * library in code that finds data by a table: -fPIC, PIE of clang, PIE on most CPUs. Elsewhere linkers refuse it: if
 * yours says "copy relocation against non-copyable protected symbol", use {name}_data(). So for sizes and tensors.
 *
{usage} *
 * May be defined before: {name}_API, how the symbols are declared{or_static}.
 */
#ifndef EMITTER{interface}_{name}_H
#define EMITTER{interface}_{name}_H

#include <stddef.h>
#include <stdint.h>

#ifndef {name}_API
{imports}#define {name}_API
#elif defined(__GNUC__)
#define {name}_API __attribute__((visibility("default")))
#else
#define {name}_API
#endif
#endif

/* Private: how accessors are declared, and how they get an address, {name}_at_: from a variable, which is volatile so
 * that a compiler does not put what it was initialised with in its place. */
#if defined(__GNUC__)
#define {name}_INLINE_ static inline __attribute__((unused))
#else
#define {name}_INLINE_ static inline
#endif
#if defined(_WIN32)
#define {name}_AT_(type, address, symbol) type *{name}_at_ = address
#elif defined(__arm__) && defined(__linux__) && defined(__GNUC__)
/* GNU ld for Arm copies what a variable refers to, too, with -no-pie; but not what the global offset table does. */
#define {name}_AT_(type, address, symbol) \\
    type *{name}_at_, *{name}_to_; \\
    __asm__("adr %0, 1f\\n\\tldr %1, [%0]\\n\\tldr %0, [%0, %1]\\n\\tb 2f\\n\\t.balign 4\\n" \\
            "1:\\t.word " #symbol "(GOT_PREL)\\n2:" : "=&l"({name}_at_), "=&l"({name}_to_))
#else
#define {name}_AT_(type, address, symbol) static type *volatile {name}_at_ = address
#endif

/* The tensors that this header was written for: names, types and shapes. */
#define {name}_SCHEMA UINT64_C({schema:#018x})

#ifdef __cplusplus
extern "C" {{
#endif

/* The pack, and its size in bytes. */
extern {name}_API const unsigned char {name}[];
extern {name}_API const size_t {name}_size;
{name}_INLINE_ const unsigned char *{name}_data(void)
{{ {name}_AT_(const unsigned char, {name}, {name}); return {name}_at_; }}
{name}_INLINE_ size_t {name}_data_size(void)
{{ {name}_AT_(const size_t, &{name}_size, {name}_size); return *{name}_at_; }}
"""

_IMPORTS = """\
#if defined(_WIN32) && !defined({name}_STATIC)
#define {name}_API __declspec(dllimport)
#elif defined(_WIN32)
"""

_USAGE = """\
 *     #include "emitter.h"
 *     emitter_reader reader;
 *     emitter_status status = emitter_open_expect(&reader, {name}_data(), {name}_data_size(), {name}_SCHEMA);
"""

# The symbol is the index alone, and the bytes are in a file that is found by the library's place.
_USAGE_OF_SIDECAR = """\
 * The bytes of the tensors are in a file beside the library, which is opened with it:
 *
 *     #define EMITTER_LIBRARY
 *     #include "emitter.h"
 *     emitter_library library;
 *     emitter_status status = emitter_library_open(&library, path_of_the_library, message, sizeof message);
 *     int right = status == EMITTER_OK && library.reader.schema == {name}_SCHEMA;
"""

_TENSOR = """\

{comment}extern {name}_API const {type} {symbol}[{extent}];
{name}_INLINE_ const {type} *{symbol}_data(void)
{{ {name}_AT_(const {type}, {symbol}, {symbol}); return {name}_at_; }}
#define {symbol}_NDIM {ndim}
"""

_FOOT = """\

#ifdef __cplusplus
}}
#endif

#endif /* EMITTER{interface}_{name}_H */
"""


def render_header(
    *,
    name: str,
    package: Package,
    plan: PackPlan,
    symbols: Sequence[TensorSymbol] = (),
    alignment: int = DEFAULT_ALIGNMENT,
    imported: bool = True,
    sidecar: bool = False,
    functions: Mapping[str, Sequence[str] | None] = _NO_FUNCTIONS,
) -> str:
    """Return the header of `package`, emitted as the symbol `name`, with the given symbols of its tensors.

    Tensors are listed in the order of the bytes of their names. Those that have a symbol are declared as arrays of the
    type that C has for their elements, or else as bytes, with an accessor `SYMBOL_data` and macros `SYMBOL_NDIM` and
    `SYMBOL_SHAPE` (an initialiser, absent for 0 dimensions). `alignment` is the package's default in bytes: a tensor
    that is less aligned than its type is declared as bytes. `functions` gives the types of the result and the arguments
    of each function that the code exports, or None where the code does not say them. `imported` says whether Windows
    finds the symbols in a DLL, or in the program, `sidecar` that the bytes are in a file of their own. Raises
    LayoutError for names that C cannot declare or that collide.
    """
    tensors = sorted(package.tensors, key=lambda tensor: tensor.name.encode())
    symbol_of = {symbol.tensor: symbol.name for symbol in symbols}
    named = [*_names(name, tensors, symbol_of)]
    named += ((function, "the code") for function, types in functions.items() if types is not None)
    check_names(named)
    _check_free(named)
    imports = _IMPORTS.format(name=name) if imported else "#if defined(_WIN32)\n"
    or_static = f"; {name}_STATIC, on Windows, if they are not in a DLL" if imported else ""
    usage = (_USAGE_OF_SIDECAR if sidecar else _USAGE).format(name=name)
    facts = {"interface": _INTERFACE, "schema": plan.schema, "imports": imports, "or_static": or_static}
    parts = [_HEAD.format(name=name, usage=usage, **facts)]
    if tensors and not symbol_of:
        parts.append("\n/* Its tensors, which a reader finds by name: */\n")
    for tensor in tensors:
        symbol = symbol_of.get(tensor.name)
        comment = f"/* {_quoted(tensor.name)}: {_description(tensor)} */\n"
        if symbol is None:
            parts.append(comment)
            continue
        type_, extent = _array(tensor, tensor.alignment or alignment)
        parts.append(
            _TENSOR.format(name=name, symbol=symbol, comment=comment, type=type_, extent=extent, ndim=len(tensor.shape))
        )
        if tensor.shape:
            parts.append(f"#define {symbol}_SHAPE {{{', '.join(_constant(extent) for extent in tensor.shape)}}}\n")
    if functions:
        parts.append("\n/* Its functions. */\n")
    parts += (_function(name, function, types) for function, types in sorted(functions.items()))
    parts.append(_FOOT.format(name=name, interface=_INTERFACE))
    return "".join(parts)


def _function(name: str, function: str, types: Sequence[str] | None) -> str:
    if types is None or identifier(function) != function:
        return f"/* {_quoted(function)}: its types are not told */\n"
    result, *arguments = types
    gap = "" if result.endswith("*") else " "
    return f"extern {name}_API {result}{gap}{function}({', '.join(arguments) or 'void'});\n"


def _names(name: str, tensors: Sequence[Tensor], symbol_of: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield every name that the header gives a meaning, with its source."""
    yield name, "the name"
    for suffix in ("size", "data", "data_size", "SCHEMA", "API", "STATIC", "INLINE_", "AT_", "at_", "to_"):
        yield f"{name}_{suffix}", f"the {suffix} of {name}"
    yield f"EMITTER{_INTERFACE}_{name}_H", f"the guard of {name}"
    for tensor in tensors:
        symbol = symbol_of.get(tensor.name)
        if symbol is not None:
            yield symbol, f"tensor {shown(tensor.name)}"
            yield f"{symbol}_data", f"the accessor of tensor {shown(tensor.name)}"
            yield f"{symbol}_NDIM", f"the macro of tensor {shown(tensor.name)}"
            if tensor.shape:
                yield f"{symbol}_SHAPE", f"the macro of tensor {shown(tensor.name)}"


def _check_free(names: Iterable[tuple[str, str]]) -> None:
    """Raise LayoutError for a name that has a meaning already where the header is included."""
    import re

    taken = re.compile(
        r"__.*|_[A-Z].*"  # reserved for the implementation, which defines macros so
        r"|linux|unix|i386|arm|defined|std"  # macros of GNU modes, the operator of #if, the namespace
        r"|NULL|offsetof|size_t|ptrdiff_t|wchar_t|max_align_t|nullptr_t"  # stddef.h
        r"|u?int(?:_fast|_least)?\d+_t|u?int(?:ptr|max)_t"  # stdint.h
        r"|(?:U?INT|PTRDIFF|SIZE|WCHAR|WINT|SIG_ATOMIC)\w*_(?:MAX|MIN|C|WIDTH)|SIZE_(?:MAX|WIDTH)"
    )
    for name, source in names:
        if taken.fullmatch(name):
            raise LayoutError(
                "a name that C, C++ or their headers define",
                where=f"symbol {name!r} of {source}",
                hint="choose another --name or --symbol-prefix for the header",
            )


def _array(tensor: Tensor, alignment: int) -> tuple[str, str]:
    """Return the type of the elements that a tensor is declared with, and their number; "" if it is not declared."""
    type_, unit = ("unsigned char", 1) if tensor.encoding else _element(tensor.dtype, alignment)
    # ISO C has no arrays of 0 elements. A block format's size does not follow from the schema.
    known = 0 < tensor.nbytes <= _LARGEST_EXTENT and not tensor.encoding
    return type_, str(tensor.nbytes // unit) if known else ""


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
