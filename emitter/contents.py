"""The tensors of any file that emitter reads: an input, an artefact that holds a pack, or a library that TVM made."""

from __future__ import annotations

import os

from emitter.errors import LoadError, UsageError, shown
from emitter.inputs import is_input
from emitter.inputs.pack import read_at
from emitter.interop.tvm_wire import LIBRARY_BIN
from emitter.package import FileSource, Package
from emitter.records import TYPE_CHECKING
from emitter.values import path_text

if TYPE_CHECKING:
    from emitter.loaders import Pack

__all__ = ["package_of"]


def package_of(path: str | os.PathLike[str], number: int | None = None) -> Package:
    """Return what the file holds, with its metadata, as a package whose bytes stay in the file.

    Each tensor has its alignment, and, from a pack, the checksum that its bytes are compared with when they are
    written. `number` chooses one of several packs (0 is the first); without it the packs of a file are one package.
    Raises InputError or LoadError for a file that is neither, or that is broken; UsageError for a pack that is not
    there.
    """
    name = path_text(path)
    package = Package()
    source = FileSource.of(name)
    if is_input(source):
        if number is not None:
            raise UsageError("the file holds one package", where=name, hint="leave --pack out")
        # `raw:` at the beginning of a file's name would be taken for a wish.
        package.add_input(os.path.join(os.curdir, name) if name.startswith("raw:") else name, keep_metadata=True)
        return package
    try:
        packs = _packs(name, number)
    except LoadError:
        from emitter.interop.tvm_package import package_of_tvm

        found = package_of_tvm(name, number)
        if found is None:
            raise
        return found
    for pack in packs:
        holder = FileSource.of(pack.path) if pack.sidecar else source
        contents = read_at(holder, "", pack.file_offset, pack.size)
        names = {tensor.name for tensor in package.tensors}
        for tensor in contents.tensors:
            if tensor.name in names:
                raise _several(name, f"tensor {shown(tensor.name)}")
            package.add(tensor)
        package.adopt(contents.modules)
        for _, metadata in contents.metadata:
            for key, value in metadata.items():
                if package.metadata.setdefault(key, value) != value:
                    raise _several(name, f"metadata {shown(key)}")
        if contents.model_version and package.model_version not in ("", contents.model_version):
            raise _several(name, "the model version")
        package.model_version = contents.model_version or package.model_version
    if number is None and [tensor.name for tensor in package.tensors] == [LIBRARY_BIN]:
        # A library that was written for TVM: what counts is in that tensor.
        from emitter.interop.tvm_package import package_of_tvm

        return package_of_tvm(name) or package
    return package


def _packs(path: str, number: int | None) -> tuple[Pack, ...]:
    from emitter.loaders import load

    with load(path) as library:
        packs = library.packs
    if number is None:
        return packs
    if not 0 <= number < len(packs):
        raise UsageError("there is no such pack", where=path, expected=f"0 to {len(packs) - 1}", actual=number)
    return (packs[number],)


def _several(path: str, what: str) -> LoadError:
    return LoadError(f"two packs of the file have each their {what}", where=path, hint="choose one with --pack N")
