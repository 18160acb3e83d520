"""Takes the tensors out of any file that emitter reads: into safetensors, a .pack, or a directory of files."""

from __future__ import annotations

import os

from emitter.contents import package_of
from emitter.errors import InputError, UsageError, shown
from emitter.layout import Copy, FilePlan
from emitter.package import Package
from emitter.records import TYPE_CHECKING, NamedTuple
from emitter.values import path_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from emitter.package import Tensor

    Progress = Callable[[int, int], None]

__all__ = ["Extracted", "extract"]

MANIFEST = "manifest.json"
_SCHEMA = "emitter.manifest/1"
_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_MAX_FILE_NAME = 200  # bytes; file systems allow 255
# Names that Windows gives to devices, whatever suffix follows.
_DEVICES = frozenset({"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))})


class Extracted(NamedTuple):
    """What was written: the file or directory, its format, and the number and bytes of the tensors."""

    path: str
    format: str
    tensors: int
    payload_size: int


def extract(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    only: Sequence[str] = (),
    number: int | None = None,
    progress: Progress | None = None,
) -> Extracted:
    """Write the tensors of `source` to `output`, and compare their bytes with the checksums that came with them.

    `output` is a file that ends in `.safetensors` or `.pack`, or else a directory that is new or empty: it gets a .npy
    file for each tensor, a .bin file for those that numpy cannot express, and `manifest.json`. `only` are patterns of
    names (`*`, `?`, `[...]`); without them every tensor is taken. `number` chooses one of several packs. A pack keeps the
    byte order of the source, and everything else; the other formats are little-endian. Raises EmitterError, and leaves
    nothing half done.
    """
    path = path_text(output)
    package = _select(package_of(source, number), only)
    suffix = os.path.splitext(path)[1].lower()
    write = {".safetensors": _write_safetensors, ".pack": _write_pack}.get(suffix, _write_directory)
    if write is _write_directory and suffix and not path.endswith(("/", os.sep)) and not os.path.isdir(path):
        raise UsageError(
            "the suffix does not say what to write",
            where=path,
            expected=".safetensors, .pack, or a directory",
            hint=f"write {path}/ for a directory of that name",
        )
    write(package, path, progress)
    payload_size = sum(tensor.nbytes for tensor in package.tensors)
    return Extracted(
        path, suffix[1:] if write is not _write_directory else "directory", len(package.tensors), payload_size
    )


def _select(package: Package, only: Sequence[str]) -> Package:
    from fnmatch import fnmatchcase

    used: dict[str, bool] = dict.fromkeys(only, False)
    chosen = Package(metadata=package.metadata, model_version=package.model_version)
    for source in package.sources:
        chosen.note_file(source)
    for tensor in package.tensors:
        matching = [pattern for pattern in only if fnmatchcase(tensor.name, pattern)]
        used.update(dict.fromkeys(matching, True))
        if matching or not only:
            chosen.add(tensor)
    for pattern, hit in used.items():
        if not hit:
            from difflib import get_close_matches

            near = get_close_matches(pattern, [tensor.name for tensor in package.tensors[:5000]], n=3)
            hint = f"did you mean {' or '.join(map(shown, near))}?" if near else None
            raise UsageError("--only matches no tensor", where=shown(pattern), hint=hint)
    if not chosen.tensors:
        raise InputError("it holds no tensors", where=", ".join(package.files))
    return chosen


def _write_safetensors(package: Package, path: str, progress: Progress | None) -> None:
    from emitter.exports.safetensors import plan_safetensors

    _write_file(package, path, plan_safetensors(package), progress)


def _write_pack(package: Package, path: str, progress: Progress | None) -> None:
    from emitter.driver import emit
    from emitter.targets import describe_all

    order = package.tensors[0].extent.byte_order
    name = next(one.name for one in describe_all() if one.byte_order == order and one.pointer_width == 64)
    emit(package, path, target=name, progress=progress)


def _write_file(package: Package, path: str, plan: FilePlan, progress: Progress | None) -> None:
    from emitter.output import open_output
    from emitter.transfer import write_plan

    with open_output(path, plan.size, inputs=package.sources) as out:
        write_plan(out.fd, plan, None, progress=progress)
        out.commit()


def _write_directory(package: Package, path: str, _progress: Progress | None) -> None:
    import json

    from emitter.exports.npy import plan_npy
    from emitter.output import new_directory, write_small

    rows = []
    with new_directory(path) as folder:
        for tensor, name in zip(package.tensors, _file_names(package.tensors), strict=True):
            plan = plan_npy(tensor)
            file = f"{name}.{'bin' if plan is None else 'npy'}"
            _write_file(package, os.path.join(folder, file), plan or _plan_bytes(tensor), None)
            rows.append(_manifest_row(tensor, file))
        manifest = {
            "schema": _SCHEMA,
            "metadata": package.metadata,
            "model_version": package.model_version,
            "tensors": rows,
        }
        write_small(os.path.join(folder, MANIFEST), (json.dumps(manifest, indent=1) + "\n").encode())


def _file_names(tensors: Sequence[Tensor]) -> list[str]:
    """Return a file name without suffix for each tensor, all different, on file systems that ignore case too."""
    taken = {os.path.splitext(MANIFEST)[0]}
    names = []
    for tensor in tensors:
        name = "".join(c if c in _SAFE else "".join(f"%{byte:02X}" for byte in c.encode()) for c in tensor.name)
        if name.startswith(".") or name.split(".")[0].lower() in _DEVICES:
            name = f"%{ord(name[0]):02X}{name[1:]}"
        name = stem = name[:_MAX_FILE_NAME]
        count = 1
        while name.casefold() in taken:
            count += 1
            name = f"{stem}~{count}"
        taken.add(name.casefold())
        names.append(name)
    return names


def _plan_bytes(tensor: Tensor) -> FilePlan:
    unit = tensor.swap_unit("little")
    copy = Copy(0, tensor.nbytes, tensor.extent, unit, tensor.shape, tensor.dtype.element_bits)
    return FilePlan(tensor.nbytes, (), [copy])


def _manifest_row(tensor: Tensor, file: str) -> dict[str, object]:
    return {
        "name": tensor.name,
        "file": file,
        "dtype": str(tensor.dtype),
        "shape": list(tensor.shape),
        "encoding": tensor.encoding,
        "alignment": tensor.alignment,
        "metadata": dict(tensor.metadata),
    }
