"""Inputs: files recognised by their content, read as tensors whose bytes stay where they are.

One module reads one format. Each has `read(source, prefix)`, which reads headers only and returns `Contents`. A
format is added with its module and one line of `_READERS`.
"""

from __future__ import annotations

import gc
import os
from contextlib import contextmanager
from importlib import import_module

from emitter.code import code_kind
from emitter.dtypes import UINT, DType
from emitter.errors import InputError, UsageError, shown
from emitter.inputs._common import RAW_HINT, Contents, pread
from emitter.pack import format as fmt
from emitter.package import Extent, FileSource, Tensor
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from emitter.package import Package

__all__ = ["RAW", "is_input", "read_input", "split_argument"]

RAW = "raw:"

_HEAD = 512  # bytes that recognition looks at
_SOURCES = (".c", ".cc", ".cpp", ".cxx", ".cu", ".rs", ".f90", ".s", ".mlir")
_COMPILE_HINT = (
    "compile it first, for instance by clang --target=TRIPLE -fPIC -O2 -emit-llvm -c; raw:FILE takes the text"
)


class _Reader(NamedTuple):
    name: str
    # Suffixes never decide; a file whose suffix promises this and whose content is not recognised is likely damaged.
    suffixes: tuple[str, ...]
    recognise: Callable[[bytes], bool]
    module: str
    function: str = "read"


def _is_json(head: bytes) -> bool:
    # The length of a safetensors header may begin with the same bytes, but it has NULs.
    return head.lstrip(b" \t\r\n").startswith(b"{") and b"\0" not in head[:8]


def _is_device_program(head: bytes) -> bool:
    # What these begin with, before the module that knows them is imported; PTX begins with spaces, comments or a dot.
    if head[:1] not in _DEVICE_STARTS:
        return False
    from emitter.device import program_format

    return program_format(head) is not None


_DEVICE = "device program"
_DEVICE_STARTS = frozenset(bytes((byte,)) for byte in b"\x50\x7f_Cfp\x03\x07 \t\r\n./\xef\xff\xfe")

_READERS = (
    _Reader("pack", (".pack",), lambda head: head.startswith(b"\x89EMT"), "pack"),
    _Reader("npy", (".npy",), lambda head: head.startswith(b"\x93NUMPY"), "npy"),
    _Reader("npz", (".npz",), lambda head: head.startswith((b"PK\x03\x04", b"PK\x05\x06")), "npz"),
    _Reader("safetensors index", (".json",), _is_json, "safetensors", "read_index"),
    _Reader(_DEVICE, (".fatbin", ".cubin", ".ptx", ".hsaco", ".hsco", ".spv"), _is_device_program, "device"),
    # u64 length of the header, then the header, which must begin with a brace.
    _Reader("safetensors", (".safetensors",), lambda head: head[8:9] == b"{", "safetensors"),
)

# ModelProto has no magic: field 1 (ir_version, a small varint), then the key of one of the fields 2 to 8.
_ONNX_KEYS = (0x12, 0x1A, 0x22, 0x28, 0x32, 0x3A, 0x42)

# Containers that are known and not read: (name, offset of the magic, magics).
_UNSUPPORTED = (
    ("a GGUF model", 0, (b"GGUF",)),
    ("a GGML model", 0, (b"lmgg", b"tjgg", b"fmgg")),
    ("an HDF5 file (Keras, PyTables)", 0, (b"\x89HDF\r\n\x1a\n",)),
    ("a pickle (older PyTorch .pt or .pth, joblib)", 0, (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")),
    ("a TensorFlow Lite model", 4, (b"TFL3",)),
    ("an ExecuTorch program", 4, (b"ET12",)),
    ("an ExecuTorch data file", 4, (b"FT01",)),
    ("an IREE parameter archive", 0, (b"IRPA",)),
    ("an Arrow file", 0, (b"ARROW1",)),
    ("a Parquet file", 0, (b"PAR1",)),
    ("an ELF program or library", 0, (b"\x7fELF",)),
    ("a Mach-O program or library", 0, (b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe")),
    ("a universal Mach-O file", 0, (b"\xca\xfe\xba\xbe", b"\xca\xfe\xba\xbf")),
    ("a Windows program or DLL", 0, (b"MZ",)),
    ("a gzip file", 0, (b"\x1f\x8b",)),
    ("a zstd file", 0, (b"\x28\xb5\x2f\xfd",)),
    ("an xz file", 0, (b"\xfd7zXZ\0",)),
    ("a bzip2 file", 0, (b"BZh",)),
    ("a tar archive", 257, (b"ustar",)),
    ("an ONNX model", 0, tuple(bytes((8, version, key)) for version in range(1, 32) for key in _ONNX_KEYS)),
)  # fmt: skip


def split_argument(text: str) -> tuple[str, str]:
    """Split `NAME=INPUT` at its first `=`; return ("", text) where there is no NAME.

    A text that begins with `./`, `../`, `/` or `raw:` is a path and never split, so that every file can be reached:
    `./a=b.npy`.
    """
    name, equals, rest = text.partition("=")
    if not equals or not name or text.startswith(("./", "../", "/", RAW)):
        return "", text
    return name, rest


def read_input(argument: str, package: Package, *, prefix: str = "", keep_metadata: bool = False) -> Iterable[Tensor]:
    """Return the tensors of the file `argument`, in the order of their bytes, or the one uint8 tensor of `raw:FILE`.

    The file's format is recognised by its content. Names of a container's tensors get `prefix` before them, joined by
    a dot unless it ends in one of `._-/:`. A single unnamed tensor (.npy, raw) is called `prefix`, else after its
    file: the stem for .npy, the whole name for raw, without the folder. With `keep_metadata` the input's metadata and
    model version go into `package`, and its tensors keep theirs.

    The modules of a pack are added to `package`, a program for GPUs as a module, and a file of code,
    which has no tensors.

    Raises InputError for a file that is malformed, not recognised or not supported, or whose metadata contradicts the
    package's.
    """
    if argument.startswith(RAW):
        return [_read_raw(argument[len(RAW) :], prefix)]
    source = FileSource.of(argument)
    head = _head(source)
    reader = _recognise(head)
    if reader is None:
        if code_kind(head, os.path.splitext(source.path)[1]) is None:
            raise _not_recognised(source, head)
        if prefix:
            raise UsageError(
                "code has no tensors to be named", where=source.path, hint="leave out NAME=, or write raw:FILE"
            )
        from pathlib import Path

        package.add_code(Path(source.path))  # a str with a line break in it would be text
        return []
    read = getattr(import_module(f"emitter.inputs.{reader.module}"), reader.function)
    with _collector_paused():
        contents: Contents = read(source, prefix)
    package.note_file(source)  # an index is no tensor's source
    if reader.module == "device":
        from emitter.inputs.device import adopt

        adopt(package, contents.modules[0], named=bool(prefix))
        return []
    if keep_metadata:
        _merge_metadata(package, contents, source.path)
        package.adopt(contents.modules)
        return contents.tensors
    package.adopt([module._replace(metadata={}) for module in contents.modules])
    return [_without_metadata(tensor) if tensor.metadata else tensor for tensor in contents.tensors]


def is_input(source: FileSource) -> bool:
    """Whether the file is of a format that `read_input` reads."""
    return _recognise(_head(source)) is not None


def _head(source: FileSource) -> bytes:
    with source.open() as fd:
        return pread(fd, min(source.size, _HEAD), 0, source.path)


def _recognise(head: bytes) -> _Reader | None:
    return next((reader for reader in _READERS if reader.recognise(head)), None)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the cyclic collector: a header's objects form no cycles, and scanning them again doubles the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _read_raw(path: str, prefix: str) -> Tensor:
    if not path:
        raise UsageError("raw: names no file", expected="raw:FILE")
    source = FileSource.of(path)
    name = prefix or os.path.basename(path)
    return Tensor(name, DType(UINT, 8), (source.size,), Extent(source, 0, source.size))


def _not_recognised(source: FileSource, head: bytes) -> InputError:
    if not head:
        return InputError("the file is empty", where=source.path, hint=RAW_HINT)
    for name, offset, magics in _UNSUPPORTED:
        if head[offset:].startswith(magics):
            return InputError(f"this is {name}, which is not read as an input", where=source.path, hint=RAW_HINT)
    suffix = os.path.splitext(source.path)[1].lower()
    promised = next((reader.name for reader in _READERS if suffix in reader.suffixes), None)
    return InputError(
        f"the content is not that of a {promised} file: truncated or damaged"
        if promised
        else "the content is not recognised",
        where=f"{source.path}: offset 0x0" if promised == _DEVICE else source.path,
        expected="safetensors, a safetensors index, .npy, .npz, .pack, a program for GPUs, or code (LLVM IR, objects)",
        actual=f"{source.size} bytes that begin {head[:8].hex(' ')}",
        hint=_COMPILE_HINT if suffix in _SOURCES else RAW_HINT,
    )


def _merge_metadata(package: Package, contents: Contents, path: str) -> None:
    for tensor in contents.tensors:
        _check_metadata(tensor.metadata, f"{path}: tensor {shown(tensor.name)}")
    for where, metadata in contents.metadata:
        _check_metadata(metadata, where)
        for key, value in metadata.items():
            known = package.metadata.setdefault(key, value)
            if known != value:
                raise _contradiction(f"metadata {shown(key)}", where, known, value)
    version = contents.model_version
    if version and package.model_version not in ("", version):
        raise _contradiction("the model version", path, package.model_version, version)
    package.model_version = package.model_version or version


def _contradiction(what: str, where: str, known: str, value: str) -> InputError:
    return InputError(
        f"{what} has another value already",
        where=where,
        expected=shown(known),
        actual=shown(value),
        hint="leave out --keep-metadata (keep_metadata), or keep that of one file only",
    )


def _check_metadata(metadata: Mapping[str, str], where: str) -> None:
    for key, value in metadata.items():
        if "\0" in key or "\0" in value or not 0 < len(key.encode(errors="replace")) <= fmt.MAX_NAME_BYTES:
            expected = f"no NUL, and 1 to {fmt.MAX_NAME_BYTES} bytes of key"
            raise InputError("the metadata cannot be kept", where=where, expected=expected, actual=shown([key, value]))
    try:
        "".join(text for pair in metadata.items() for text in pair).encode()
    except UnicodeEncodeError as error:
        character = shown(error.object[error.start])
        raise InputError("the metadata is not valid UTF-8", where=where, actual=character) from error


def _without_metadata(tensor: Tensor) -> Tensor:
    return tensor._replace(metadata={})
