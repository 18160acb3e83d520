"""Takes the tensors out of any file that emitter reads: into safetensors, a .pack, or a directory of files."""

from __future__ import annotations

import os

from emitter.contents import package_of
from emitter.errors import InputError, UsageError, shown
from emitter.layout import Copy, FilePlan
from emitter.manifest import SCHEMA
from emitter.modules import in_order, owners, payload_tensors
from emitter.package import Package
from emitter.records import TYPE_CHECKING, NamedTuple
from emitter.values import check_function, check_text, output_path, typed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from emitter.package import Tensor

    Progress = Callable[[int, int], None]

__all__ = ["Extracted", "extract"]

MANIFEST = "manifest.json"
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
    modules: int


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
    file for each tensor, a .bin file for those that numpy cannot express and for modules, and `manifest.json`, from
    which the package can be emitted again. `only` are patterns of tensors' names (`*`, `?`, `[...]`); without them all
    is taken, modules too, which safetensors has no place for. `number` chooses one of several packs. A pack keeps
    everything, the byte order of the source too; the other formats are little-endian. Raises EmitterError, and leaves
    nothing half done.
    """
    path = output_path(output)
    check_function(progress, "`progress`")
    if not isinstance(only, (list, tuple)):
        raise UsageError("`only` is not a list of patterns", expected="texts", actual=typed(only))
    for pattern in only:
        check_text(pattern, "a pattern of `only`")
    if number is not None and type(number) is not int:
        raise UsageError("`number` is not the number of a pack", expected="an int, or None", actual=typed(number))
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
    format_ = "directory" if write is _write_directory else suffix[1:]
    kept = [] if write is _write_safetensors else package.modules
    written = owners(package) if kept else package.tensors
    payload_size = sum(owner.nbytes for owner in written)
    return Extracted(path, format_, len(package.tensors), payload_size, len(kept))


def _select(package: Package, only: Sequence[str]) -> Package:
    from fnmatch import fnmatchcase

    used: dict[str, bool] = dict.fromkeys(only, False)
    chosen = Package(metadata=package.metadata, model_version=package.model_version)
    for source in package.sources:
        chosen.note_file(source)
    for tensor in package.tensors:
        matching = [pattern for pattern in only if fnmatchcase(tensor.name, pattern)]
        used.update(dict.fromkeys(matching, True))
        if matching:
            chosen.add(tensor)
    for pattern, hit in used.items():
        if not hit:
            from difflib import get_close_matches

            near = get_close_matches(pattern, [tensor.name for tensor in package.tensors[:5000]], n=3)
            hint = f"did you mean {' or '.join(map(shown, near))}?" if near else None
            raise UsageError("--only matches no tensor", where=shown(pattern), hint=hint)
    if not only:
        chosen.absorb(package)  # a function of a module takes tensors that a choice may lack
    if not chosen.tensors and not chosen.modules:
        raise InputError("it holds neither tensors nor modules", where=", ".join(package.files))
    return chosen


def _write_safetensors(package: Package, path: str, progress: Progress | None) -> None:
    from emitter.exports.safetensors import plan_safetensors

    _write_file(package, path, plan_safetensors(package), progress)


def _write_pack(package: Package, path: str, progress: Progress | None) -> None:
    from emitter.driver import emit
    from emitter.targets import describe_all

    order = owners(package)[0].extent.byte_order
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
        for tensor, name in zip(package.tensors, _file_names(one.name for one in package.tensors), strict=True):
            plan = plan_npy(tensor)
            file = f"{name}.{'bin' if plan is None else 'npy'}"
            _write_file(package, os.path.join(folder, file), plan or _plan_bytes(tensor), None)
            rows.append(_tensor_row(tensor, file, "raw" if plan is None else "file"))
        manifest = {
            "schema": SCHEMA,
            "metadata": package.metadata,
            "model_version": package.model_version,
            "tensors": rows,
            "modules": _write_modules(package, folder),
        }
        write_small(os.path.join(folder, MANIFEST), (json.dumps(manifest, indent=1) + "\n").encode())


def _write_modules(package: Package, folder: str) -> list[dict[str, object]]:
    """Write the bytes of the modules; return their rows of the manifest, the root first."""
    modules = in_order(package.modules, (tensor.name for tensor in package.tensors))
    owners = iter(payload_tensors(modules))
    forms = [(module, one) for module in modules for one in module.alternatives]
    labels = (f"{module.name}.{module.alternatives.index(one)}" for module, one in forms)
    files = {id(one): f"{name}.bin" for (_, one), name in zip(forms, _file_names(labels), strict=True)}
    for _, one in forms:
        _write_file(package, os.path.join(folder, files[id(one)]), _plan_bytes(next(owners)), None)
    return [
        {
            "name": module.name,
            "imports": [child.name for child in module.imports],
            "functions": {name: list(tensors) for name, tensors in module.functions.items()},
            "metadata": dict(module.metadata),
            "alternatives": [
                {
                    "kind": one.kind,
                    "file": files[id(one)],
                    "schema_version": one.schema_version,
                    "requires": {condition.key: condition.requirement for condition in one.conditions},
                    **({"alignment": one.alignment} if one.alignment else {}),
                }
                for one in module.alternatives
            ],
        }
        for module in modules
    ]


def _file_names(labels: Iterable[str]) -> list[str]:
    """Return a file name without suffix for each label, all different, on file systems that ignore case too."""
    taken = {os.path.splitext(MANIFEST)[0]}
    names = []
    for label in labels:
        name = "".join(c if c in _SAFE else "".join(f"%{byte:02X}" for byte in c.encode()) for c in label)
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


def _tensor_row(tensor: Tensor, file: str, key: str) -> dict[str, object]:
    row: dict[str, object] = {"name": tensor.name, key: file, "dtype": str(tensor.dtype), "shape": list(tensor.shape)}
    if tensor.encoding:
        row["encoding"] = tensor.encoding
    if tensor.alignment:
        row["alignment"] = tensor.alignment
    return row | {"metadata": dict(tensor.metadata)}
