"""Reads the modules of TVM out of any library or object, of any CPU, without TVM, and without believing the file.

The format is described in `emitter.interop.tvm_wire`. Libraries of TVM up to 0.20 have another one behind the symbol
`__tvm_dev_mblob` (apache/tvm, src/runtime/library_module.cc and src/target/codegen.cc of those years):

    u64 nbytes, u64 count
    count times: str key            `_lib`, as now; `_import_tree`, then indptr and children as now; else a kind, then
                                    what a module of that kind wrote, whose length nobody states

Such a list is read as far as it is certain: through `const_loader`, once called `metadata`, whose format has stayed.
"""

from __future__ import annotations

from itertools import pairwise
from struct import Struct

from emitter.dtypes import DType, describe
from emitter.errors import EmitterError, FormatError, shown
from emitter.interop.tvm_wire import CONST_LOADER, CPU, LIB, TENSOR_MAGIC, element_size
from emitter.pack.format import MAX_NDIM
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.inspect.report import Report, Section, Segment, Symbol, TensorEntry
    from emitter.inspect.view import View

__all__ = ["Constant", "Constants", "TvmLibrary", "TvmModule", "find_libraries", "read_library"]

# Symbols, perhaps behind a prefix of the system library: whether what they name has the old layout.
_SYMBOLS = {"__tvm_ffi__library_bin": False, "__tvm_ffi_library_bin": False, "__tvm_dev_mblob": True}
_IMPORT_TREE = "_import_tree"
_CONSTANTS = (CONST_LOADER, "metadata")

# Far above any use, and far below what a reader would choke on.
MAX_MODULES = 1 << 16
MAX_NAMES = 1 << 20
MAX_TEXT = 64 << 10  # bytes

_U64 = Struct("<Q")
_TENSOR = Struct("<2Q3i2BH")


class Constant(NamedTuple):
    """A tensor as TVM stores it: `nbytes` bytes at `offset` of the object file, little-endian."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    offset: int
    nbytes: int


class Constants(NamedTuple):
    """What a const_loader holds: tensors, and by function the names of those that it is given first."""

    tensors: list[Constant]
    functions: dict[str, tuple[str, ...]]


class TvmModule(NamedTuple):
    """A module; `size` bytes of payload at `offset` of the object file, none for the library itself (`_lib`)."""

    kind: str
    offset: int
    size: int
    imports: tuple[int, ...]
    constants: Constants | None = None


class TvmLibrary(NamedTuple):
    """All that TVM has put behind one symbol: `size` bytes at `offset` of the object file.

    `error` is what stopped the reading: the modules before stand.
    """

    symbol: str
    old: bool
    offset: int
    size: int
    modules: list[TvmModule]
    error: EmitterError | None = None
    byte_order: str = "little"
    sidecar: str = ""

    def tensors(self) -> Iterator[TensorEntry]:
        """Yield the constants of all modules as inspection shows tensors; there are no checksums."""
        from emitter.inspect.report import TensorEntry

        for module in self.modules:
            for one in module.constants.tensors if module.constants else ():
                strides = [1]
                for extent in one.shape[:0:-1]:
                    strides.insert(0, strides[0] * extent)
                yield TensorEntry(
                    name=one.name,
                    dtype=describe(one.dtype),
                    shape=one.shape,
                    strides=tuple(strides[: len(one.shape)]),
                    nbytes=one.nbytes,
                    alignment=1,
                    crc32c=None,
                    offset=one.offset,
                    encoding=0,
                    symbol="",
                )


def find_libraries(view: View, report: Report) -> list[TvmLibrary]:
    """Return what TVM has put into the object file that `report` describes; where it is broken, `error` says so."""
    found: dict[int, TvmLibrary] = {}
    for symbol in _symbols(report):
        name = next(name for name in _SYMBOLS if symbol.name.endswith(name))
        holder = _holder(report, symbol)
        if holder is None:
            continue
        offset = holder.offset + symbol.value - holder.address
        end = holder.offset + holder.file_size
        if symbol.size:
            end = min(end, offset + symbol.size)
        if offset not in found:
            found[offset] = read_library(view, offset, end, symbol.name, old=_SYMBOLS[name])
    return list(found.values())


def _holder(report: Report, symbol: Symbol) -> Section | Segment | None:
    """Return the section that a symbol points into, or the segment where there are no sections."""
    if symbol.section is not None:
        for section in report.sections:
            if section.number == symbol.section:
                return section
    holders: list[Section | Segment] = [*report.sections, *(one for one in report.segments if one.loaded)]
    return next((one for one in holders if 0 <= symbol.value - one.address < one.file_size), None)


def _symbols(report: Report) -> Iterator[Symbol]:
    names = tuple(_SYMBOLS)
    try:
        for symbol in report.symbols():
            if symbol.name.endswith(names) and symbol.place == "defined":
                yield symbol
    except EmitterError:
        return  # of the symbol table, which tells of it itself


def read_library(view: View, offset: int, end: int, symbol: str, *, old: bool) -> TvmLibrary:
    """Return the modules at `offset` of `view`, which end before `end`. Nothing is raised: see `TvmLibrary.error`."""
    modules: list[TvmModule] = []
    size = 0
    try:
        cursor = _Cursor(view, offset, min(end, view.size))
        size = 8 + cursor.number("nbytes")
        cursor.end = cursor.bound(size - 8, "nbytes")
        imports = _read_old(cursor, modules) if old else _read_modules(cursor, modules)
        modules[:] = [one._replace(imports=children) for one, children in zip(modules, imports, strict=True)]
    except EmitterError as error:
        return TvmLibrary(symbol, old, offset, size, modules, error)
    return TvmLibrary(symbol, old, offset, size, modules)


class _Cursor:
    """A place in a view, and the end of what may be read; every length that the file states is compared with it."""

    def __init__(self, view: View, offset: int, end: int) -> None:
        self.view = view
        self.offset = offset
        self.end = end

    def error(self, what: str, expected: object, actual: object) -> FormatError:
        return FormatError(
            f"{what} at offset {self.offset:#x}", where=self.view.where, expected=expected, actual=actual
        )

    def bound(self, size: int, what: str) -> int:
        """Return the offset `size` bytes further on. Raises FormatError if that is beyond the end."""
        if not 0 <= size <= self.end - self.offset:
            raise self.error(
                f"TVM's {what} does not fit", f"at most {max(self.end - self.offset, 0)} bytes", shown(size)
            )
        return self.offset + size

    def take(self, size: int, what: str) -> bytes:
        after = self.bound(size, what)
        data = self.view.read(self.offset, size, what)
        self.offset = after
        return data

    def number(self, what: str) -> int:
        (value,) = _U64.unpack(self.take(8, what))
        return int(value)

    def count(self, what: str, least: int, most: int) -> int:
        """Return a number of things that take at least `least` bytes each."""
        count = self.number(what)
        if count > most:
            raise self.error(f"TVM's {what} is too large", f"at most {most}", count)
        self.bound(count * least, what)
        return count

    def numbers(self, what: str) -> list[int]:
        count = self.count(what, 8, MAX_MODULES * 8)
        return [value for (value,) in _U64.iter_unpack(self.take(8 * count, what))]

    def text(self, what: str) -> str:
        size = self.number(what)
        if size > MAX_TEXT:
            raise self.error(f"TVM's {what} is too long", f"at most {MAX_TEXT} bytes", size)
        return self.take(size, what).decode("utf-8", "surrogateescape")

    def texts(self, what: str) -> list[str]:
        return [self.text(what) for _ in range(self.count(what, 8, MAX_NAMES))]

    def kind(self) -> str:
        kind = self.text("kind of a module")
        try:
            kind.encode()
        except UnicodeEncodeError:
            kind = ""
        if not kind or not kind.isprintable():
            raise self.error("TVM's kind of a module cannot be one", "printable UTF-8", shown(kind))
        return kind


def _read_modules(cursor: _Cursor, modules: list[TvmModule]) -> list[tuple[int, ...]]:
    """Append the modules, and return the numbers of those that each imports."""
    imports = _tree(cursor, cursor.numbers("indptr"), cursor.numbers("child indices"))
    for _ in imports:
        kind = cursor.kind()
        if kind == LIB:
            modules.append(TvmModule(kind, cursor.offset, 0, ()))
            continue
        size = cursor.number(f"payload of {kind}")
        start, after = cursor.offset, cursor.bound(size, f"payload of {kind}")
        constants = None
        if kind == CONST_LOADER:
            inner = _Cursor(cursor.view, start, after)
            constants = _read_constants(inner)
            if inner.offset != after:
                raise inner.error("TVM's constants end before their module", f"{after:#x}", f"{inner.offset:#x}")
        modules.append(TvmModule(kind, start, size, (), constants))
        cursor.offset = after
    if cursor.offset != cursor.end:
        raise cursor.error("TVM's modules end before nbytes", f"{cursor.end:#x}", f"{cursor.offset:#x}")
    return imports


def _read_old(cursor: _Cursor, modules: list[TvmModule]) -> list[tuple[int, ...]]:
    """Do the same for the old layout."""
    count = cursor.count("number of records", 8, MAX_MODULES)
    tree = None
    for number in range(count):
        kind = cursor.kind()
        start = cursor.offset
        if kind == _IMPORT_TREE:
            tree = cursor.numbers("indptr"), cursor.numbers("child indices")
        elif kind == LIB:
            modules.append(TvmModule(kind, start, 0, ()))
        elif kind in _CONSTANTS:
            constants = _read_constants(cursor)
            modules.append(TvmModule(kind, start, cursor.offset - start, (), constants))
        else:
            # All that is left, of this module and of those behind it.
            modules.append(TvmModule(kind, start, cursor.end - start, ()))
            if number != count - 1:
                raise FormatError(
                    f"old libraries of TVM do not state how long a module of kind {kind} is",
                    where=cursor.view.where,
                    actual=f"{count - number - 1} records behind it that cannot be told from it",
                )
            cursor.offset = cursor.end
    if tree is None:
        # Older still: whatever there is, the library imports.
        modules.insert(0, TvmModule(LIB, cursor.offset, 0, ()))
        return [tuple(range(1, len(modules))), *[()] * (len(modules) - 1)]
    return _tree(cursor, *tree, count=len(modules))


def _tree(cursor: _Cursor, indptr: list[int], children: list[int], count: int | None = None) -> list[tuple[int, ...]]:
    """Return what each module imports. Raises FormatError for a tree that is none, or that has cycles."""
    expected = len(indptr) - 1 if count is None else count
    if len(indptr) != expected + 1 or expected < 1 or expected > MAX_MODULES:
        raise cursor.error("TVM's import tree has another number of modules", max(expected, 1), len(indptr) - 1)
    if indptr[0] != 0 or indptr[-1] != len(children) or sorted(indptr) != indptr:
        raise cursor.error("TVM's indptr does not divide the child indices", f"0 to {len(children)}", shown(indptr))
    rows = [tuple(children[start:end]) for start, end in pairwise(indptr)]
    for number, row in enumerate(rows):
        for child in row:
            if not number < child < expected:
                raise cursor.error(
                    f"TVM's module {number} cannot import this", f"{number + 1} to {expected - 1}", child
                )
    return rows


def _read_constants(cursor: _Cursor) -> Constants:
    names = cursor.texts("names of constants")
    count = cursor.number("number of constants")
    if count != len(names) or len(set(names)) != count:
        raise cursor.error("TVM's constants and their names differ", f"{len(set(names))} names", count)
    tensors = [_read_constant(cursor, name) for name in names]
    symbols = cursor.texts("functions")
    count = cursor.number("number of functions")
    if count != len(symbols) or len(set(symbols)) != count:
        raise cursor.error("TVM's functions and their constants differ", f"{len(set(symbols))} functions", count)
    functions = {symbol: tuple(cursor.texts(f"constants of {shown(symbol)}")) for symbol in symbols}
    return Constants(tensors, functions)


def _read_constant(cursor: _Cursor, name: str) -> Constant:
    where = f"tensor {shown(name)}"
    at = cursor.offset
    magic, reserved, *device, ndim, code, bits, lanes = _TENSOR.unpack(cursor.take(_TENSOR.size, where))
    if magic != TENSOR_MAGIC or reserved or tuple(device) != CPU or not 0 <= ndim <= MAX_NDIM or not (bits and lanes):
        cursor.offset = at
        raise cursor.error(
            f"TVM's {where} has a broken header",
            f"magic {TENSOR_MAGIC:#x}, reserved 0, device {CPU}, at most {MAX_NDIM} dimensions, a type",
            f"{magic:#x}, {reserved}, {tuple(device)}, {ndim}, {code}:{bits}:{lanes}",
        )
    *shape, nbytes = Struct(f"<{ndim + 1}q").unpack(cursor.take(8 * (ndim + 1), where))
    size = element_size(bits)
    for extent in shape:
        size *= extent
    if any(extent < 0 for extent in shape) or nbytes != size:
        raise cursor.error(f"TVM's {where} has another size than its shape", shown(size), nbytes)
    offset = cursor.offset
    cursor.offset = cursor.bound(nbytes, where)
    return Constant(name, DType(code, bits, lanes), tuple(shape), offset, nbytes)
