"""TVM's runtime as a client: objects that `tvm.runtime.load_module` finds its modules and constants in.

`emitter.emit(..., symbols="tvm")`, or `emitter --symbols tvm`, writes a package so. Here is what needs more: the hook
of `export_library`, and the form that a program registers by a constructor. TVM itself is imported by the hook alone,
whose caller has imported it.
"""

from __future__ import annotations

import os

from emitter import targets
from emitter.dtypes import UINT, DType
from emitter.errors import TargetError, UsageError, shown
from emitter.layout import Copy
from emitter.package import BufferSource, Extent, Package
from emitter.records import TYPE_CHECKING
from emitter.values import check_text, output_path, typed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from emitter.interop.tvm_wire import Wire
    from emitter.options import Format
    from emitter.package import Source
    from emitter.targets._base import Target

__all__ = ["emit_library_bin", "fpack_imports"]


def emit_library_bin(
    package: Package,
    output: str | os.PathLike[str],
    *,
    target: str = "native",
    system_lib_prefix: str | None = None,
) -> str:
    """Write the modules and tensors of `package` for TVM's runtime; return the path.

    The output is an object, an archive, or a shared library that needs no linker and has no code; its suffix says
    which. What the modules become is said in docs/tvm.md. With `system_lib_prefix`, which may be empty, the symbol is
    `<prefix>__tvm_ffi__library_bin`, and a constructor registers it with TVMFFIEnvModRegisterSystemLibSymbol: for
    programs that TVM and the model are linked into, found by `tvm_ffi.system_lib(prefix)`. The constructor is code, so
    llvmlite is needed. Raises EmitterError, and leaves nothing half done.
    """
    from emitter.interop.tvm_wire import plan_wire
    from emitter.options import output_format

    path = output_path(output)
    if not isinstance(package, Package):
        raise UsageError("this is not a package", expected="an emitter.Package", actual=typed(package))
    resolved = targets.resolve(check_text(target, "the name of a target")).target
    format_ = output_format(path, None, resolved)
    if format_ == "pack" or (system_lib_prefix is not None and format_ != "object"):
        expected = "an object" if system_lib_prefix is not None else "an object, an archive or a library"
        raise UsageError("TVM cannot be given this", where=path, expected=expected, actual=f"a {format_}")
    wire = plan_wire(package)
    if format_ == "library":
        _write_library(path, target, wire, package.sources)
    else:
        _write(path, resolved, wire, system_lib_prefix, package.sources, format_)
    return path


def fpack_imports(mod: Any, is_system_lib: bool, symbol_prefix: str, workspace_dir: str) -> str:
    """Pack what a TVM module imports into an object beside the others of an export; return its path.

    It is called by `mod.export_library(..., fpack_imports=fpack_imports)`. The target is that of the LLVM modules in
    `mod`, this machine's where there are none. Raises TargetError for a triple that is not supported, or for several.
    """
    import numpy
    import tvm_ffi

    target = _target_of(mod)
    tensor = tvm_ffi.get_global_func("runtime.ModulePackImportsToTensor")(mod)
    array: Any = numpy.from_dlpack(tensor)  # the same memory
    data = memoryview(array)
    extent = Extent(BufferSource("the imports of the TVM module", data), 0, data.nbytes)
    copy = Copy(0, data.nbytes, extent, 1, (data.nbytes,), 8)
    path = os.path.join(workspace_dir, f"{symbol_prefix}devc{target.object_suffix}")
    _write(path, target, _wire_of(copy), symbol_prefix if is_system_lib else None, ())
    return path


def _wire_of(copy: Copy) -> Wire:
    from emitter.interop.tvm_wire import Wire

    return Wire(copy.size, (), (copy,))


def _write(  # noqa: PLR0917 - six facts about one output
    path: str,
    target: Target,
    wire: Wire,
    prefix: str | None,
    inputs: Iterable[Source],
    format_: Format = "object",
) -> None:
    from emitter.output import open_output
    from emitter.transfer import write_plan

    if prefix is not None:
        from emitter.interop.tvm_system import plan_system_lib

        plan = plan_system_lib(target, wire, prefix)
    else:
        from emitter.interop.tvm_object import wire_model
        from emitter.writers import plan_linkable

        plan = plan_linkable(target, format_, path, wire_model(target, wire))
    with open_output(path, plan.size, inputs=inputs) as out:
        write_plan(out.fd, plan, None)
        if prefix is None:
            from emitter.check import check

            check(out.fd, format_, target, plan, None, None)
        out.commit()


def _write_library(path: str, target: str, wire: Wire, inputs: Iterable[Source]) -> None:
    """Write a library without a linker: its pack holds one tensor, which is the modules, with a symbol of its own.

    They are written first to a file beside it that has no name, since a tensor has its bytes in one place.
    """
    from emitter.driver import emit
    from emitter.interop.tvm_object import ALIGNMENT
    from emitter.interop.tvm_wire import LIBRARY_BIN
    from emitter.layout import FilePlan
    from emitter.output import open_output
    from emitter.package import FileSource, Tensor
    from emitter.transfer import write_plan

    with open_output(path, wire.size, inputs=inputs) as beside:
        write_plan(beside.fd, FilePlan(wire.size, wire.pieces, wire.copies), None)
        package = Package()
        for one in inputs:
            if isinstance(one, FileSource):
                package.note_file(one)  # which the output must not be
        source = FileSource.of(beside.readable)
        package.add(Tensor(LIBRARY_BIN, DType(UINT, 8), (wire.size,), Extent(source, 0, wire.size), ALIGNMENT))
        emit(package, path, target=target, tensor_symbols=True, symbol_prefix="")


def _target_of(mod: Any) -> Target:
    """Return the target of the code in a TVM module and in all that it imports."""
    import json

    triples = set()
    for module in _walk(mod):
        if module.kind == "llvm":
            # TVM states it as JSON, with the triple that LLVM compiled for.
            said = module.get_function("_get_target_string")()
            try:
                triples.add(json.loads(said)["mtriple"])
            except (ValueError, KeyError, TypeError) as error:
                raise TargetError(
                    "TVM does not say which triple it compiled for",
                    expected='a target with the attribute "mtriple"',
                    actual=shown(said),
                    hint="name it in the target that the module is compiled for",
                ) from error
    if len(triples) > 1:
        raise TargetError(
            "the modules are compiled for several triples",
            actual=", ".join(sorted(map(shown, triples))),
            hint="compile all for one target",
        )
    return targets.resolve(next(iter(triples), "native")).target


def _walk(mod: Any) -> Iterator[Any]:
    """Yield a module and all that it imports, each once."""
    found = [mod]
    seen = {mod}
    for module in found:
        for child in module.imports:
            if child not in seen:
                seen.add(child)
                found.append(child)
    return iter(found)
