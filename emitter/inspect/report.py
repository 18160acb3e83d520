"""The neutral model of one object file, whatever its format, and how containers nest.

All offsets are in bytes from the start of the object file itself; `Report.base` is where that begins in the outermost
file. Names are `str` in which bytes that are not UTF-8 are surrogates: show them through `emitter.errors.shown` or
`emitter.errors.printable`.
"""

from __future__ import annotations

from contextlib import contextmanager

from emitter.errors import EmitterError
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from typing_extensions import Self

    from emitter.inspect.modules import ModuleEntry
    from emitter.inspect.view import View
    from emitter.interop.tvm_read import TvmLibrary

__all__ = [
    "Artefact",
    "Dependency",
    "Fault",
    "Hardening",
    "Identity",
    "Member",
    "PackEntry",
    "Reader",
    "Report",
    "Section",
    "Segment",
    "Symbol",
    "TensorEntry",
    "collect_faults",
    "page_range",
]


class Identity(NamedTuple):
    """What a file is and what it is for. A text is empty, a number None, where the format or the file does not say."""

    format: str  # elf, macho, pe, coff, pack
    kind: str  # in words: "shared object", "relocatable object", "executable", "dynamic library", ...
    machine: str  # in words: "AArch64"
    machine_code: int | None = None  # e_machine, cputype, Machine
    byte_order: str = ""  # little, big
    pointer_width: int | None = None  # bits
    flags: int = 0  # e_flags, Mach-O header flags, Characteristics
    flag_names: tuple[str, ...] = ()  # what is known of them, in words
    abi: str = ""  # float ABI and the like, as far as the file says: "lp64d", "hard float"
    os: str = ""  # "Linux", "Android", "macOS", "Windows", or what EI_OSABI says
    os_version: str = ""  # the lowest that it runs on
    name: str = ""  # DT_SONAME, install name, DLL name
    version: str = ""  # of the library itself
    build_id: str = ""  # hexadecimal: NT_GNU_BUILD_ID, LC_UUID, the RSDS record's GUID and age
    interpreter: str = ""  # PT_INTERP, LC_LOAD_DYLINKER
    search_path: tuple[str, ...] = ()  # for dependencies: DT_RPATH, DT_RUNPATH, LC_RPATH, as the file has them


class Segment(NamedTuple):
    """A part of the file that the loader maps, or a table that it reads. Sizes in bytes."""

    number: int
    name: str  # PT_LOAD, __TEXT, .text
    offset: int
    file_size: int
    address: int
    memory_size: int
    alignment: int
    protection: str  # "r-x": as the header asks
    loaded: bool  # whether it takes part in the mapping
    mapped_start: int = 0  # page-rounded addresses, [start, end); 0, 0 where it is not loaded
    mapped_end: int = 0
    max_protection: str = ""  # Mach-O


class Section(NamedTuple):
    """A section. `number` is the format's own (ELF from 0, Mach-O and COFF from 1)."""

    number: int
    name: str
    type: str
    flags: tuple[str, ...]
    offset: int
    file_size: int  # 0 for one without bytes in the file
    address: int
    size: int  # in memory
    alignment: int
    entry_size: int = 0
    segment: str = ""  # Mach-O


class Symbol(NamedTuple):
    """A symbol. `section` is the number of its section, or None: undefined, absolute or common."""

    name: str
    table: str  # symtab, dynsym, exports, imports
    type: str  # object, function, section, ...; empty where the format has none
    binding: str  # local, global, weak
    visibility: str  # default, hidden, protected, internal, private external
    place: str  # defined, undefined, absolute, common
    section: int | None
    value: int  # st_value, n_value: an address, or an offset in the section of a relocatable object
    size: int | None  # None where the format has none
    version: str = ""
    library: str = ""  # an import's library, where the format says it


class Dependency(NamedTuple):
    """A library that is loaded with this one; `versions` are those that it asks of it, such as GLIBC_2.17."""

    name: str
    kind: str = "needed"  # needed, weak, reexport, delay, ...
    versions: tuple[str, ...] = ()


class Hardening(NamedTuple):
    """One protection: `value` is True or False, a word ("full"), or None where it does not apply."""

    name: str
    value: bool | str | None


class TensorEntry(NamedTuple):
    """A tensor of a pack. `offset` is in the object file, or in the pack's sidecar; `strides` are elements.

    `symbol` may be empty; `crc32c` is None for a tensor that another project has stored, without a checksum.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    nbytes: int
    alignment: int
    crc32c: int | None
    offset: int
    encoding: int
    symbol: str


class PackEntry(NamedTuple):
    """A pack in the object file. `tensors` gives them anew each time, sorted by name; the first module is the root.

    With `sidecar` the bytes of both are in the file of that name beside the outermost file, and their `offset` counts
    from its start.
    """

    offset: int
    size: int
    index_size: int  # bytes before the first payload
    symbol: str
    version: tuple[int, int]
    byte_order: str
    alignment: int
    model_version: str
    schema_hash: int
    metadata: dict[str, str]
    tensor_count: int
    tensors: Callable[[], Iterator[TensorEntry]]
    sidecar: str = ""
    modules: Sequence[ModuleEntry] = ()


class Fault(NamedTuple):
    """A part of a file that could not be read: the rest of the report stands without it."""

    part: str  # sections, symbols, dynamic, notes, packs, ...
    error: EmitterError


class Report(NamedTuple):
    """One object file. `symbols` gives an iterator anew each time, since there may be millions.

    It raises what its table is broken with; `symbol_count` is what the headers state.
    """

    where: str
    base: int
    size: int
    identity: Identity
    page_size: int
    segments: Sequence[Segment]
    sections: Sequence[Section]
    symbol_count: int
    symbols: Callable[[], Iterator[Symbol]]
    dependencies: Sequence[Dependency]
    hardening: Sequence[Hardening]
    packs: Sequence[PackEntry]
    faults: Sequence[Fault]
    tvm: Sequence[TvmLibrary] = ()  # where they were looked for


class Member(NamedTuple):
    """A member of a container: an archive's file, a universal file's slice."""

    name: str
    view: View


class Reader:
    """What a module that reads a format provides; see `emitter.inspect.view`."""

    kind = ""
    container = False

    @classmethod
    def fits(cls, view: View) -> bool:  # noqa: ARG003 - for those that override it
        """Return whether `view`, which has this format's magic, is of this format: some magics are not theirs alone."""
        return True

    def __init__(self, view: View) -> None:
        self.view = view

    def report(self, page_size: int = 0) -> Report:
        """Return the report of an object file; `page_size` 0 is the smallest that the machine has."""
        raise NotImplementedError

    def members(self) -> Iterator[Member]:
        """Yield the members of a container, in file order. Raises FormatError where the container is broken."""
        return iter(())


class Artefact:
    """A file, or a member of a container, with what reads it.

    `name` is the path of the outermost file or the member's name. A member that is nothing known has `reader` None, and
    one that breaks its own format has `error` beside it. As a context manager it closes the file.
    """

    __slots__ = ("error", "name", "parent", "reader", "view")

    def __init__(
        self,
        name: str,
        view: View,
        reader: Reader | None,
        parent: Artefact | None = None,
        error: EmitterError | None = None,
    ) -> None:
        self.name = name
        self.view = view
        self.reader = reader
        self.parent = parent
        self.error = error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.view.close()

    @property
    def kind(self) -> str:
        """What it is, in words."""
        return self.reader.kind if self.reader else "unknown"

    @property
    def where(self) -> str:
        """The place for messages: `liba.a: member x.o`."""
        return self.view.where

    @property
    def container(self) -> bool:
        """Whether it has members instead of being an object file itself."""
        return self.reader is not None and self.reader.container

    def members(self) -> Iterator[Artefact]:
        """Yield the members, in file order; none for an object file. Raises FormatError for a broken container."""
        from emitter.inspect import recognise_member

        if self.reader is not None and self.reader.container:
            for member in self.reader.members():
                yield recognise_member(member, self)

    def objects(self) -> Iterator[Artefact]:
        """Yield this file, or all that are nested in it, that are not containers, whether they are known or not."""
        if not self.container:
            yield self
            return
        for member in self.members():
            yield from member.objects()


@contextmanager
def collect_faults(faults: list[Fault], part: str) -> Iterator[None]:
    """Turn an error of the block into a fault of `part`; what the block collected until then stands."""
    try:
        yield
    except EmitterError as error:
        faults.append(Fault(part, error))


def page_range(address: int, size: int, page_size: int) -> tuple[int, int]:
    """Return the page-rounded range [start, end) that a segment takes in memory: (0, 0) for an empty one."""
    if not size:
        return 0, 0
    return address & -page_size, -(-(address + size) // page_size) * page_size
