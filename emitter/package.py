"""What the user ships: a package of named tensors, whose bytes stay where they are until they are written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from emitter.dtypes import DType
from emitter.errors import InputError, UsageError, shown
from emitter.pack import format as fmt
from emitter.records import TYPE_CHECKING, NamedTuple
from emitter.sources import (
    NATIVE_BYTE_ORDER,
    OPEN_FLAGS,
    BufferSource,
    ByteOrder,
    Checksum,
    Extent,
    FileSource,
    Inflate,
    Source,
    flat_view,
)
from emitter.values import check_alignment, check_metadata, check_text, path_text, payload_bytes, typed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emitter.code import CodeInput
    from emitter.modules import Alternative, Module, ModuleFacts

__all__ = [
    "NATIVE_BYTE_ORDER",
    "OPEN_FLAGS",
    "BufferSource",
    "ByteOrder",
    "Checksum",
    "Extent",
    "FileSource",
    "Inflate",
    "Package",
    "Source",
    "Tensor",
    "check_metadata",
    "check_text",
    "flat_view",
    "path_text",
    "payload_bytes",
]

_NO_METADATA: Mapping[str, str] = MappingProxyType({})


class Tensor(NamedTuple):
    """A named, dense, row-major tensor. `alignment` (bytes, a power of two) None means the package's default.

    `encoding` is 0 where the bytes are elements of `dtype`, else the code of a block format that DLPack cannot name;
    such bytes are not checked against the shape, and loaders give them as bytes.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    extent: Extent
    alignment: int | None = None
    encoding: int = 0
    metadata: Mapping[str, str] = _NO_METADATA

    @property
    def nbytes(self) -> int:
        """Bytes of the payload as it is written."""
        return self.extent.length if self.encoding else self.dtype.nbytes(self.shape)

    def swap_unit(self, byte_order: ByteOrder) -> int:
        """Bytes that change places when the payload is written for `byte_order`; 1 if none do."""
        return 1 if self.encoding or self.extent.byte_order == byte_order else self.dtype.swap_unit


class Package:
    """Named tensors with metadata, in the order in which they were added.

    >>> import numpy
    >>> package = Package()
    >>> package.add_tensor("scale", numpy.ones(4, numpy.float32))
    >>> [tensor.name for tensor in package.tensors]
    ['scale']
    """

    def __init__(self, *, metadata: Mapping[str, str] | None = None, model_version: str = "") -> None:
        self.metadata: dict[str, str] = check_metadata(metadata, "the package")
        self.model_version = check_text(model_version, "the model version")
        self._tensors: dict[str, Tensor] = {}
        self._modules: dict[str, Module] = {}
        self._code: list[CodeInput] = []
        self._files: dict[str, FileSource] = {}

    @property
    def files(self) -> list[str]:
        """The paths of all files that were read for this package, in order: what its outputs depend on."""
        return list(self._files)

    @property
    def sources(self) -> list[FileSource]:
        """The files of `files`, as they were first seen."""
        return list(self._files.values())

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors, in source order."""
        return list(self._tensors.values())

    @property
    def modules(self) -> list[Module]:
        """The modules, each after those that it imports."""
        return list(self._modules.values())

    @property
    def code(self) -> list[CodeInput]:
        """The code that is linked with the constants, in the order in which it was added."""
        return list(self._code)

    def note_file(self, source: FileSource) -> None:
        """Record that the package depends on a file; `add` does so for the source of each tensor."""
        self._files.setdefault(source.path, source)

    def add(self, tensor: Tensor) -> None:
        """Add a tensor; raise InputError for a name that is taken, UsageError for one that cannot be written."""
        _check(tensor)
        other = self._tensors.get(tensor.name)
        if other is not None:
            raise InputError(
                f"two tensors are called {shown(tensor.name)}",
                where=tensor.extent.source.path,
                actual=f"the same name in {other.extent.source.path}",
                hint="put a prefix before the names of one input (PREFIX=FILE, or prefix=), or rename it",
            )
        self._tensors[tensor.name] = tensor
        if isinstance(tensor.extent.source, FileSource):
            self.note_file(tensor.extent.source)

    def add_input(self, argument: str | os.PathLike[str], *, prefix: str = "", keep_metadata: bool = False) -> None:
        """Add every tensor of a file that is recognised by content, or the bytes of `raw:FILE`.

        Recognised are safetensors, the index of a sharded safetensors model, .npy, .npz and .pack; and programs for
        GPUs (fatbin, cubin, PTX, TensorRT plans, AMD code objects and bundles, SPIR-V), each of which becomes a module;
        and code, as `add_code` takes it.
        `prefix` is put before the tensors' names; for an input that holds one unnamed tensor it is the name.
        """
        from emitter.inputs import read_input

        check_text(prefix, "the prefix")
        for tensor in read_input(path_text(argument), self, prefix=prefix, keep_metadata=keep_metadata):
            self.add(tensor)

    def add_raw(
        self, name: str, data: bytes | bytearray | memoryview | os.PathLike[str], *, alignment: int | None = None
    ) -> None:
        """Add opaque bytes, or a file of them, as a uint8 tensor of one dimension.

        The bytes of a view of several dimensions are those of its elements in row-major order.
        """
        if isinstance(data, (bytes, bytearray, memoryview)):
            source: Source = BufferSource(f"bytes {shown(name)}", flat_view(data, f"tensor {shown(name)}"))
        else:
            source = FileSource.of(data)
        self.add(Tensor(name, DType(1, 8), (source.size,), Extent(source, 0, source.size), alignment))

    def add_tensor(
        self,
        name: str,
        array: object,
        *,
        alignment: int | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        """Add a numpy array (ml_dtypes too), or any CPU array that exports DLPack. A row-major array is not copied."""
        from emitter.inputs.arrays import tensor_from_array

        self.add(tensor_from_array(name, array, alignment=alignment, metadata=metadata))

    def add_module(
        self,
        name: str,
        kind: str,
        payload: bytes | bytearray | memoryview | os.PathLike[str] | Extent,
        *,
        schema_version: int = 1,
        requires: Mapping[str, str] | None = None,
        imports: Iterable[Module | str] = (),
        functions: Mapping[str, Iterable[str]] | None = None,
        metadata: Mapping[str, str] | None = None,
        alignment: int | None = None,
    ) -> Module:
        """Add bytes for the runtime `kind`, such as "tensorrt" or "graph"; return the module.

        `imports` are modules of this package, added before; `functions` gives the names of the tensors that each
        function takes, in order. `requires` maps keys to what the place of loading must say of them: `== TEXT`,
        `>= VERSION`, or `>= VERSION, < VERSION`. One module, the root, is imported by no other. Raises UsageError or
        InputError for what cannot be written, a name that is taken, and a function that another module has.
        """
        from emitter.modules import Module, check_functions, check_name, make_alternative

        where = f"module {shown(check_name(name, 'the name of a module'))}"
        if isinstance(imports, str) or not isinstance(imports, Iterable):
            raise UsageError("the imports are not modules", where=where, expected="a list", actual=typed(imports))
        children = tuple(dict.fromkeys(self._module(child, where) for child in imports))
        module = Module(name, children, check_functions(functions, where), check_metadata(metadata, where))
        module.alternatives.append(
            make_alternative(name, kind, payload, schema_version=schema_version, requires=requires, alignment=alignment)
        )
        self._register(module)
        return module

    def add_code(self, code: str | bytes | os.PathLike[str]) -> None:
        """Add code: a path, the text of LLVM IR (a str with a line break), or the bytes of bitcode or an object.

        Files are LLVM IR as text or bitcode, relocatable objects for the target, or archives of these, recognised by
        content. All IR of a package is linked into one module and compiled for each target: docs/code.md. Raises
        InputError for what is no code.
        """
        from emitter.code import code_input

        one = code_input(code)
        self._code.append(one)
        if isinstance(one.source, FileSource):
            self.note_file(one.source)

    def add_manifest(self, path: str | os.PathLike[str]) -> None:
        """Add what a manifest describes, a TOML or JSON document: docs/manifest.md."""
        from emitter.manifest import read_manifest

        read_manifest(self, path_text(path))

    def absorb(self, other: Package) -> None:
        """Add all that another package holds; raise EmitterError, and change nothing, where a name is taken."""
        for name in self._tensors.keys() & other._tensors.keys():
            self.add(other._tensors[name])  # which says how they clash
        for name in self._modules.keys() & other._modules.keys():
            self._register(other._modules[name])
        functions = {function for module in self.modules for function in module.functions}
        for module in other.modules:
            if functions & module.functions.keys():
                self._register(module)
        for key, value in other.metadata.items():
            if self.metadata.get(key, value) != value:
                raise InputError(
                    f"metadata {shown(key)} has another value already",
                    expected=shown(self.metadata[key]),
                    actual=shown(value),
                )
        self._files |= other._files
        self._code += other._code
        self._tensors |= other._tensors
        self._modules |= other._modules
        self.metadata |= other.metadata
        self.model_version = self.model_version or other.model_version

    def adopt(self, facts: Sequence[ModuleFacts]) -> None:
        """Add the modules of an input, in whose list each stands before those that it imports."""
        from emitter.modules import Module

        made: dict[int, Module] = {}
        for number in reversed(range(len(facts))):
            name, alternatives, imports, functions, metadata = facts[number]
            module = made[number] = Module(name, tuple(made[child] for child in imports), functions, metadata)
            module.alternatives += alternatives
            self._register(module)

    def _register(self, module: Module) -> None:
        if module.name in self._modules:
            raise UsageError(f"two modules are called {shown(module.name)}", hint="rename one of them")
        for other in self._modules.values():
            for function in module.functions.keys() & other.functions.keys():
                raise UsageError(
                    f"two modules have a function {shown(function)}",
                    where=f"module {shown(module.name)}",
                    actual=f"module {shown(other.name)} has it already",
                    hint="rename one of them: functions are found by name",
                )
        self._modules[module.name] = module
        for one in module.alternatives:
            self._note_payload(one)

    def add_alternative(
        self,
        module: Module | str,
        kind: str,
        payload: bytes | bytearray | memoryview | os.PathLike[str] | Extent,
        *,
        schema_version: int = 1,
        requires: Mapping[str, str] | None = None,
        alignment: int | None = None,
    ) -> None:
        """Add another form of a module: the first whose requirements hold is loaded. Arguments as in `add_module`."""
        from emitter.modules import make_alternative

        owner = self._module(module, "add_alternative")
        owner.alternatives.append(
            make_alternative(
                owner.name, kind, payload, schema_version=schema_version, requires=requires, alignment=alignment
            )
        )
        self._note_payload(owner.alternatives[-1])

    def replace_alternatives(
        self, module: Module, alternatives: Sequence[Alternative], metadata: Mapping[str, str]
    ) -> None:
        """Give a module of this package other forms, in this order, and other metadata."""
        self._module(module, "replace_alternatives")
        module.alternatives = list(alternatives)
        module.metadata = metadata
        for one in alternatives:
            self._note_payload(one)

    def _module(self, module: object, where: str) -> Module:
        name = module if isinstance(module, str) else getattr(module, "name", "")
        found = self._modules.get(name)
        if found is not None and (module == name or module is found):
            return found
        raise UsageError(
            "there is no such module in this package",
            where=where,
            expected=", ".join(map(shown, self._modules)) or "modules that were added before",
            actual=typed(module),
        )

    def _note_payload(self, alternative: Alternative) -> None:
        if isinstance(alternative.extent.source, FileSource):
            self.note_file(alternative.extent.source)


def _check(tensor: object) -> None:
    """Raise InputError or UsageError for a tensor that no pack can hold."""
    if not isinstance(tensor, Tensor):
        raise UsageError("this is not a tensor", expected="an emitter.package.Tensor", actual=typed(tensor))
    where = f"{tensor.extent.source.path}: tensor {shown(tensor.name)}"
    try:
        encoded = check_text(tensor.name, "the name of a tensor").encode()
    except UnicodeEncodeError as error:
        raise InputError("the name is not valid UTF-8", where=where, hint="name it: NAME=FILE") from error
    if not 0 < len(encoded) <= fmt.MAX_NAME_BYTES or b"\0" in encoded:
        raise InputError(
            "the name cannot be written",
            where=where,
            expected=f"1 to {fmt.MAX_NAME_BYTES} bytes without NUL",
            actual=f"{len(encoded)} bytes",
        )
    code, bits, lanes = tensor.dtype
    numbers = (code, 0, 0xFF), (bits, 1, 0xFF), (lanes, 1, 0xFFFF), (tensor.encoding, 0, 0xFFFF)
    if not all(type(number) is int and least <= number <= most for number, least, most in numbers):
        raise UsageError(
            "the element type cannot be written",
            where=where,
            expected="code and bits of 8 bits, lanes and encoding of 16; bits and lanes above 0",
            actual=f"{shown((code, bits, lanes))}, encoding {shown(tensor.encoding)}",
        )
    if not isinstance(tensor.shape, tuple):
        raise UsageError("the shape is not a tuple", where=where, actual=typed(tensor.shape))
    payload_bytes(tensor.dtype, tensor.shape, where)
    check_alignment(tensor.alignment, where)
    check_metadata(tensor.metadata, where)
