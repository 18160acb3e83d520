"""What differs between two files: artefacts of any platform, packs, and every input that emitter reads."""

from __future__ import annotations

from contextlib import ExitStack

from emitter.contents import package_of
from emitter.diff.artefacts import compare_artefacts
from emitter.diff.model import SECTIONS, Change, Difference, TensorChange
from emitter.diff.modules import compare_modules
from emitter.diff.tensors import compare_packages
from emitter.errors import LoadError
from emitter.inputs import is_input
from emitter.package import FileSource, Package
from emitter.records import TYPE_CHECKING
from emitter.values import path_text

if TYPE_CHECKING:
    import os

__all__ = ["Change", "Difference", "TensorChange", "diff"]


def diff(a: str | os.PathLike[str], b: str | os.PathLike[str]) -> Difference:
    """Return what differs between two files, of the same or of different formats; nothing of them is run.

    Tensors are compared by their values, whatever the byte orders. What an artefact says of itself (identity, sections,
    symbols, ...) is compared where both are artefacts. Raises EmitterError for a file that cannot be read, or that is
    none of these.
    """
    first, second = path_text(a), path_text(b)
    sections: dict[str, list[Change]] = {part: [] for part in SECTIONS}
    both_artefacts = all(_is_artefact(path) for path in (first, second))
    if both_artefacts:
        from emitter.inspect import open_file

        with ExitStack() as stack:
            sections = compare_artefacts(stack.enter_context(open_file(first)), stack.enter_context(open_file(second)))
    packages = [_package(path, both_artefacts) for path in (first, second)]
    if not both_artefacts:
        _compare_metadata(packages[0], packages[1], sections["metadata"])
    sections["modules"] = compare_modules(packages[0], packages[1])
    tensors, same = compare_packages(packages[0], packages[1])
    return Difference(first, second, sections, tensors, same)


def _is_artefact(path: str) -> bool:
    """Whether it is a pack or an object file, rather than another project's container of tensors."""
    source = FileSource.of(path)
    if not is_input(source):
        return True
    from emitter.pack.format import MAGIC

    with source.open() as fd:
        import os

        return os.read(fd, len(MAGIC)) == MAGIC


def _package(path: str, artefact: bool) -> Package:
    """Return the tensors of a file. An artefact may hold none: it is compared by what else it says."""
    try:
        return package_of(path)
    except LoadError:
        if not artefact:
            raise
        from emitter.inspect import open_file

        with open_file(path) as opened:
            if any(member.reader is not None and member.reader.report().packs for member in opened.objects()):
                raise
        return Package()


def _compare_metadata(a: Package, b: Package, changes: list[Change]) -> None:
    for key in sorted(a.metadata.keys() | b.metadata.keys()):
        before, after = a.metadata.get(key), b.metadata.get(key)
        if before != after:
            changes.append(Change("", key, before, after))
    if a.model_version != b.model_version:
        changes.append(Change("", "model version", a.model_version or None, b.model_version or None))
