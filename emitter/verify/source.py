"""`--against`: the tensors of inputs, and the comparison of an artefact's bytes with theirs, in flat memory."""

from __future__ import annotations

from emitter.errors import UsageError
from emitter.package import Package
from emitter.reading import WINDOW, Reader, open_reader
from emitter.records import TYPE_CHECKING
from emitter.transforms import inflate, swap, transpose

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from emitter.package import ByteOrder, Tensor

__all__ = ["Sources", "open_sources"]


def open_sources(arguments: Sequence[str]) -> Sources:
    """Return the tensors of inputs, each `[NAME=]FILE` or `[NAME=]raw:FILE` as for emitting. Raises InputError."""
    from emitter.inputs import split_argument

    package = Package()
    for argument in arguments:
        prefix, path = split_argument(argument)
        package.add_input(path, prefix=prefix)
    if not package.tensors:
        raise UsageError("--against names no tensor", where=", ".join(arguments))
    return Sources({tensor.name: tensor for tensor in package.tensors})


class _DifferentError(Exception):
    """Ends the comparison at the first bytes that differ."""

    def __init__(self, offset: int) -> None:
        super().__init__()
        self.offset = offset


class Sources:
    """Tensors by name. `met` are the names that some artefact held."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self.tensors = tensors
        self.met: set[str] = set()

    def difference(self, name: str, read: Callable[[int, int], bytes], size: int, byte_order: ByteOrder) -> int | None:
        """Return an offset at which `size` bytes that `read(offset, length)` gives differ from the source's.

        It is the first one, unless the source is column-major. None where they are equal. `byte_order` is the
        artefact's. Raises InputError where the source cannot be read.
        """
        tensor = self.tensors[name]
        if tensor.nbytes != size:
            return min(tensor.nbytes, size)

        def compare(offset: int, data: bytes | memoryview) -> None:
            other = read(offset, len(data))
            if other != data:
                pairs = enumerate(zip(bytes(data), other, strict=True))
                raise _DifferentError(offset + next(at for at, (one, two) in pairs if one != two))

        try:
            with open_reader(tensor.extent.source) as reader:
                _deliver(tensor, reader, tensor.swap_unit(byte_order), compare)
        except _DifferentError as found:
            return found.offset
        return None


def _deliver(tensor: Tensor, reader: Reader, unit: int, put: Callable[[int, bytes | memoryview], None]) -> None:
    """Hand the bytes of a tensor, as they are written with units of `unit` bytes swapped, to `put(offset, bytes)`."""
    extent = tensor.extent
    if extent.fortran_order:
        _transpose(tensor, reader, unit, put)
    elif extent.inflate is not None:
        position = 0
        for data in _whole_units(_inflated(reader, tensor), unit):
            put(position, swap(data, unit))
            position += len(data)
    else:
        step = WINDOW - WINDOW % unit
        for position in range(0, tensor.nbytes, step):
            data = reader.read(extent.offset + position, min(step, tensor.nbytes - position))
            put(position, swap(data, unit))


def _inflated(reader: Reader, tensor: Tensor) -> Iterator[bytes]:
    declared = tensor.extent.inflate
    skip = declared.skip if declared else 0
    left = tensor.nbytes
    for data in inflate(reader.read, tensor.extent):
        part = data[skip : skip + left]
        skip = max(skip - len(data), 0)
        left -= len(part)
        if part:
            yield part


def _whole_units(pieces: Iterator[bytes], unit: int) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        data = rest + piece
        whole = len(data) - len(data) % unit
        rest = data[whole:]
        if whole:
            yield data[:whole]


def _transpose(tensor: Tensor, reader: Reader, unit: int, put: Callable[[int, bytes | memoryview], None]) -> None:
    """Deliver a column-major source row-major. One that is compressed too is unpacked into a file first."""
    import tempfile

    extent = tensor.extent
    item = tensor.dtype.nbytes((1,))
    if extent.inflate is None:
        transpose(lambda offset, length: reader.read(extent.offset + offset, length), put, tensor.shape, item, unit)
        return
    with tempfile.TemporaryFile() as spool:
        for data in _inflated(reader, tensor):
            spool.write(data)

        def read(offset: int, length: int) -> bytes:
            spool.seek(offset)
            return spool.read(length)

        transpose(read, put, tensor.shape, item, unit)
