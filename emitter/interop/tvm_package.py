"""The modules and constants of a library that TVM made, as a package whose bytes stay in the file."""

from __future__ import annotations

from emitter.dtypes import UINT, DType
from emitter.errors import InputError, UsageError, shown
from emitter.interop.tvm_read import find_libraries
from emitter.interop.tvm_wire import CONST_LOADER, carries
from emitter.modules import ModuleFacts, make_alternative
from emitter.package import Extent, FileSource, Package, Tensor
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from emitter.interop.tvm_read import Constant, TvmLibrary

__all__ = ["package_of_tvm"]


def package_of_tvm(path: str, number: int | None = None) -> Package | None:
    """Return what TVM has put into a file, or None where there is nothing of it.

    Modules are called by number and kind (`0.const_loader`). A const_loader with constants has no payload: its tensors
    are those of the package, its functions say which tensors each takes. A tensor that TVM does not store as DLPack
    does (several lanes, less than a byte for an element) is its bytes, with its type and shape as metadata. `number`
    chooses one of several libraries. Raises FormatError or InputError for one that is broken.
    """
    from emitter.inspect import open_file

    source = FileSource.of(path)
    try:
        opened = open_file(path)
    except InputError:
        return None  # no object file, no archive
    with opened as artefact:
        found = [
            (member.view.base, library)
            for member in artefact.objects()
            if member.reader is not None
            for library in find_libraries(member.view, member.reader.report())
        ]
    if not found:
        return None
    if number is None and len(found) > 1:
        raise UsageError(
            "TVM has put several libraries into the file",
            where=path,
            actual=", ".join(shown(library.symbol) for _, library in found),
            hint="choose one with --pack N",
        )
    number = number or 0
    if not 0 <= number < len(found):
        raise UsageError("there is no such library", where=path, expected=f"0 to {len(found) - 1}", actual=number)
    base, library = found[number]
    if library.error is not None:
        raise library.error
    return _package(source, base, library)


def _package(source: FileSource, base: int, library: TvmLibrary) -> Package:
    package = Package()
    facts = []
    for number, module in enumerate(library.modules):
        name, kind = f"{number}.{module.kind}", module.kind
        functions: dict[str, tuple[str, ...]] = {}
        extent = Extent(source, base + module.offset, module.size, label=f"module {name}")
        constants = module.constants
        if constants is not None and (constants.tensors or constants.functions):
            kind = CONST_LOADER  # whose payload is made anew
            extent = extent._replace(length=0)
            taken = {tensor.name for tensor in package.tensors}
            names = {one.name: f"{number}.{one.name}" if one.name in taken else one.name for one in constants.tensors}
            for one in constants.tensors:
                package.add(_tensor(source, base, one, names[one.name]))
            functions = {
                function: tuple(names.get(one, one) for one in given) for function, given in constants.functions.items()
            }
        facts.append(ModuleFacts(name, [make_alternative(name, kind, extent)], list(module.imports), functions, {}))
    package.note_file(source)
    package.adopt(facts)
    return package


def _tensor(source: FileSource, base: int, one: Constant, name: str) -> Tensor:
    extent = Extent(source, base + one.offset, one.nbytes, label=f"tensor {shown(one.name)}")
    if carries(one.dtype):
        return Tensor(name, one.dtype, one.shape, extent)
    metadata = {"tvm.dtype": str(one.dtype), "tvm.shape": ",".join(map(str, one.shape))}
    return Tensor(name, DType(UINT, 8), (one.nbytes,), extent, metadata=metadata)
