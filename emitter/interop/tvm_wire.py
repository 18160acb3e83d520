"""The wire format of TVM: a tree of modules, and their constants, as the bytes behind `__tvm_ffi__library_bin`.

Source: apache-tvm-ffi 0.1.15, src/ffi/extra/library_module.cc and buffer_stream.h; apache-tvm 0.27, SaveDLTensor in
include/tvm/runtime/tensor.h and src/runtime/const_loader_module.cc. All numbers are little-endian, on every CPU:

    u64 nbytes                      of what follows
    u64[] indptr, u64[] children    module i imports children[indptr[i]:indptr[i + 1]]; the root is module 0
    for each module: str kind       `_lib` is the library itself, and has no payload
                     bytes payload

A vector, a `str` and `bytes` begin with their length as u64. Nothing is padded or aligned.
"""

from __future__ import annotations

from struct import pack

from emitter.errors import InputError, UsageError, shown
from emitter.layout import Copy, Piece
from emitter.modules import in_order
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emitter.dtypes import DType
    from emitter.modules import Module
    from emitter.package import Package, Tensor

__all__ = [
    "CONST_LOADER",
    "CPU",
    "LIB",
    "LIBRARY_BIN",
    "TENSOR_MAGIC",
    "Wire",
    "carries",
    "element_size",
    "plan_wire",
]

LIBRARY_BIN = "__tvm_ffi__library_bin"
LIB = "_lib"
CONST_LOADER = "const_loader"
TENSOR_MAGIC = 0xDD5E40F096B4A13F
CPU = (1, 0)  # DLDevice: kDLCPU, device 0


class Wire(NamedTuple):
    """`size` bytes: `pieces`, and between them the payloads as `copies`. Offsets are relative to the first byte."""

    size: int
    pieces: tuple[Piece, ...]
    copies: tuple[Copy, ...]


class _Row(NamedTuple):
    """A module of the tree; `module` is None for one that the package does not name."""

    kind: str
    module: Module | None
    children: tuple[int, ...]


def element_size(bits: int) -> int:
    """Return the bytes that TVM stores for one element of `bits` bits, whatever its lanes."""
    return (bits + 7) // 8


def carries(dtype: DType) -> bool:
    """Whether TVM stores the elements of a type as DLPack lays them out: one lane, and whole bytes."""
    return dtype.lanes == 1 and dtype.bits % 8 == 0


def plan_wire(package: Package) -> Wire:
    """Return the bytes that TVM's runtime makes modules of.

    The modules keep their kinds and payloads; all tensors become one module of kind `const_loader`, and the functions
    of all modules, with the names of their tensors, are its table. It is where the package has a module of that kind
    without payload; else it is the root, and imports the package's root and each module with functions, since TVM looks
    for `__init_FUNCTION` in what it imports. The library is where the package has a module of kind `_lib`; else the
    root imports it. Raises UsageError and InputError for what the format cannot hold: alternatives, schema versions,
    metadata, encodings, and elements of several lanes or of less than a byte.
    """
    _check(package)
    rows = _tree(package)
    writer = _Writer()
    writer.raw(bytes(8))  # nbytes
    ends = [0]
    for row in rows:
        ends.append(ends[-1] + len(row.children))
    writer.raw(_numbers(ends))
    writer.raw(_numbers([child for row in rows for child in row.children]))
    for row in rows:
        writer.raw(_text(row.kind))
        if _makes_constants(row):
            _write_constants(writer, package)
        elif row.module is not None and row.kind != LIB:
            extent = row.module.alternatives[0].extent
            writer.raw(pack("<Q", extent.length))
            writer.payload(Copy(0, extent.length, extent, 1, (extent.length,), 8))
    return writer.finish()


class _Writer:
    """Bytes in order: what is known gathers into pieces, payloads are left out between them."""

    def __init__(self) -> None:
        self._pieces: list[Piece] = []
        self._copies: list[Copy] = []
        self._parts: list[bytes] = []
        self._offset = 0  # of the first part
        self._size = 0  # of the parts

    def raw(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)

    def payload(self, copy: Copy) -> None:
        self._close()
        self._copies.append(copy.moved(self._offset))
        self._offset += copy.size

    def _close(self) -> None:
        if self._size:
            self._pieces.append(Piece(self._offset, b"".join(self._parts)))
        self._offset += self._size
        self._parts, self._size = [], 0

    def finish(self) -> Wire:
        self._close()
        nbytes = pack("<Q", self._offset - 8)
        self._pieces[0] = Piece(0, nbytes + self._pieces[0].data[8:])
        return Wire(self._offset, tuple(self._pieces), tuple(self._copies))


def _numbers(values: Sequence[int]) -> bytes:
    return pack(f"<{1 + len(values)}Q", len(values), *values)


def _text(text: str) -> bytes:
    data = text.encode()
    return pack("<Q", len(data)) + data


def _texts(texts: Sequence[str]) -> bytes:
    return b"".join([pack("<Q", len(texts)), *map(_text, texts)])


def _write_constants(writer: _Writer, package: Package) -> None:
    """Write the payload of the const_loader, length first: names, tensors, functions, the names that each takes."""
    tensors = package.tensors
    functions = {name: names for module in package.modules for name, names in module.functions.items()}
    heads = [_tensor_head(tensor) for tensor in tensors]
    names = _texts([tensor.name for tensor in tensors]) + pack("<Q", len(tensors))
    table = b"".join([_texts(list(functions)), pack("<Q", len(functions)), *map(_texts, functions.values())])
    size = len(names) + sum(map(len, heads)) + sum(tensor.nbytes for tensor in tensors) + len(table)
    writer.raw(pack("<Q", size) + names)
    for tensor, head in zip(tensors, heads, strict=True):
        writer.raw(head)
        unit = tensor.swap_unit("little")
        bits = tensor.dtype.element_bits
        writer.payload(Copy(0, tensor.nbytes, tensor.extent, unit, tensor.shape, bits))
    writer.raw(table)


def _tensor_head(tensor: Tensor) -> bytes:
    ndim = len(tensor.shape)
    code, bits, lanes = tensor.dtype
    return pack(f"<2Q3i2BH{ndim}qq", TENSOR_MAGIC, 0, *CPU, ndim, code, bits, lanes, *tensor.shape, tensor.nbytes)


def _makes_constants(row: _Row) -> bool:
    return row.kind == CONST_LOADER and (row.module is None or not row.module.alternatives[0].extent.length)


def _tree(package: Package) -> list[_Row]:
    """Return the modules in the order of the wire, the root first; raise UsageError for two where one may be."""
    modules = in_order(package.modules, (tensor.name for tensor in package.tensors))
    numbers = {id(module): number for number, module in enumerate(modules)}
    rows = [
        _Row(module.alternatives[0].kind, module, tuple(numbers[id(child)] for child in module.imports))
        for module in modules
    ]
    loaders = [row for row in rows if _makes_constants(row)]
    libraries = [row for row in rows if row.kind == LIB]
    for kind, found in ((CONST_LOADER, loaders), (LIB, libraries)):
        if len(found) > 1:
            raise UsageError(
                f"TVM has one module of kind {kind} in a tree",
                actual=", ".join(shown(row.module.name) for row in found if row.module),
                hint="leave one",
            )
    if not loaders and (package.tensors or any(module.functions for module in modules)):
        direct = [0, *(number for number, module in enumerate(modules) if module.functions)] if rows else []
        rows = [row._replace(children=tuple(child + 1 for child in row.children)) for row in rows]
        rows.insert(0, _Row(CONST_LOADER, None, tuple(number + 1 for number in direct)))
    if not libraries:
        rows[0] = rows[0]._replace(children=(*rows[0].children, len(rows)))
        rows.append(_Row(LIB, None, ()))
    return [row._replace(children=tuple(sorted(set(row.children)))) for row in rows]


def _check(package: Package) -> None:
    """Raise UsageError or InputError for what the format has no place for: to leave it out would hide a mistake."""
    if package.metadata or package.model_version:
        raise UsageError(
            "TVM's format has no place for metadata and a model version",
            hint="leave out --meta, --keep-metadata and --model-version",
        )
    if not package.tensors and not package.modules:
        raise UsageError("there is nothing to write", hint="add a tensor or a module")
    for module in package.modules:
        where = f"module {shown(module.name)}"
        first = module.alternatives[0]
        for what, given in (
            ("alternatives", len(module.alternatives) > 1),
            ("requirements", bool(first.conditions)),
            ("a schema version", first.schema_version != 1),
            ("metadata of a module", bool(module.metadata)),
            ("a payload of the library itself", first.kind == LIB and bool(first.extent.length)),
        ):
            if given:
                raise UsageError(f"TVM's format has no place for {what}", where=where, hint="leave it out")
    for tensor in package.tensors:
        where = f"{tensor.extent.source.path}: tensor {shown(tensor.name)}"
        if tensor.metadata:
            raise UsageError("TVM's format has no place for metadata of a tensor", where=where, hint="leave it out")
        if tensor.encoding or not carries(tensor.dtype):
            raise InputError(
                "TVM's format cannot carry the elements",
                where=where,
                expected="elements of one lane and of whole bytes",
                actual=f"encoding {tensor.encoding}" if tensor.encoding else tensor.dtype,
                hint="convert the tensor, or give its bytes as one of uint8",
            )
