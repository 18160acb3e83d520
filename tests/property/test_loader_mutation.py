"""Whatever the bytes are, the loader gives a result or an EmitterError: nothing else, no crash, no endless loop."""

from __future__ import annotations

import contextlib
import functools
import itertools
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emitter.dtypes import TABLE, Row
from emitter.errors import EmitterError
from emitter.loaders import load
from emitter.pack import format as fmt
from emitter.package import Package
from tests.loader_support import add, directory, later_pack, sample_pack, seal, set_field
from tests.support import build_pack

if TYPE_CHECKING:
    from collections.abc import Callable

    from emitter.loaders import Pack
    from emitter.package import ByteOrder

EDGES = (
    0,
    1,
    2,
    3,
    7,
    8,
    9,
    63,
    64,
    65,
    4095,
    4096,
    4097,
    2**16 - 1,
    2**31 - 1,
    2**31,
    2**32 - 8,
    2**32 - 1,
    2**63 - 1,
    2**63,
    2**64 - 1,
)


def attempt(call: Callable[[], object]) -> None:
    """Call; only what the loader says on purpose may be raised."""
    with contextlib.suppress(EmitterError, BufferError):
        call()


def use(data: bytes | bytearray) -> None:
    """Do everything that the loader offers, as far as it goes."""
    with contextlib.suppress(EmitterError):
        for pack in load(data).packs:
            use_pack(pack)


def use_pack(pack: Pack) -> None:
    for call in (
        pack.validate,
        pack.check,
        pack.names,
        lambda: pack.metadata,
        lambda: pack.model_version,
        lambda: repr(pack),
    ):
        attempt(call)
    for name in ("w", "größe", "zz"):
        attempt(functools.partial(pack.__contains__, name))
    with contextlib.suppress(EmitterError):
        for tensor in itertools.islice(pack.tensors(), 16):
            for step in (tensor.numpy, tensor.unpack, tensor.check, functools.partial(getattr, tensor, "metadata")):
                attempt(step)
            attempt(functools.partial(tensor.__dlpack__, max_version=(1, 0)))


@functools.cache
def elf_file(ei_class: int, byte_order: ByteOrder, e_type: int) -> bytes:
    """Return an ELF file made by hand from the specification: a pack, its note, two segments, three sections."""
    order = "<" if byte_order == "little" else ">"
    pack = sample_pack(byte_order)
    wide = ei_class == 2
    ehdr, phdr, shdr = (64, 56, 64) if wide else (52, 32, 40)
    note_at, pack_at = ehdr + 2 * phdr, 4096
    word = "q" if wide else "i"
    note = struct.pack(f"{order}III8s", 8, 24 if wide else 16, 1, b"emitter\0")
    note += struct.pack(f"{order}{word}{word.upper()}II", pack_at - note_at - 20, len(pack), 1, 0)
    shoff = pack_at + len(pack) + (-len(pack)) % 8
    ident = b"\x7fELF" + bytes([ei_class, 1 if byte_order == "little" else 2, 1]) + bytes(9)
    words = "QQQ" if wide else "III"
    header = ident + struct.pack(
        f"{order}HHI{words}IHHHHHH", e_type, 62, 1, 0, ehdr, shoff, 0, ehdr, phdr, 2, shdr, 3, 0
    )

    def segment(p_type: int, offset: int, size: int) -> bytes:
        fields = (
            (p_type, 4, offset, offset, offset, size, size, 4)
            if wide
            else (p_type, offset, offset, offset, size, size, 4, 4)
        )
        return struct.pack(order + ("IIQQQQQQ" if wide else "IIIIIIII"), *fields)

    def section(sh_type: int, offset: int, size: int) -> bytes:
        fields = (0, sh_type, 2, offset, offset, size, 0, 0, 8, 0)
        return struct.pack(order + ("IIQQQQIIQQ" if wide else "IIIIIIIIII"), *fields)

    data = header + segment(1, 0, pack_at + len(pack)) + segment(4, note_at, len(note)) + note
    data += bytes(pack_at - len(data)) + pack
    return (
        data
        + bytes(shoff - len(data))
        + section(0, 0, 0)
        + section(7, note_at, len(note))
        + section(1, pack_at, len(pack))
    )


FILES: list[tuple[int, ByteOrder, int]] = [(c, o, t) for c in (1, 2) for o in ("little", "big") for t in (1, 2, 3)]


def elf_of(number: int) -> bytes:
    ei_class, byte_order, e_type = FILES[number]
    return elf_file(ei_class, byte_order, e_type)


@pytest.mark.parametrize("number", range(len(FILES)))
def test_the_files_made_by_hand_are_right(number: int) -> None:
    library = load(elf_of(number))
    library.check()
    assert library["w"].sum() == 15


@pytest.mark.parametrize("byte_order", ["little", "big"])
def test_every_field_of_every_record_at_every_edge(byte_order: ByteOrder) -> None:
    pack = sample_pack(byte_order)
    tables = directory(pack)
    for record in (fmt.HEADER, fmt.DIRECTORY_ENTRY, fmt.PAYLOAD, fmt.TENSOR, fmt.METADATA, fmt.DIMS):
        count = (
            1
            if record is fmt.HEADER
            else len(tables)
            if record is fmt.DIRECTORY_ENTRY
            else min(tables[record.kind][2], 4)
        )
        for field in record.fields:
            if field.name == "magic":
                continue
            for number in range(count):
                for value in EDGES:
                    limit = 1 << 8 * (1 if field.count > 1 else field.size)
                    if field.type == "i64":
                        value -= 1 << 63  # noqa: PLW2901 - the edges of a signed field
                    if value >= limit:
                        continue
                    try:
                        changed = set_field(pack, record, field.name, value, number=number)
                    except struct.error:  # header_size beyond the pack cannot be sealed
                        continue
                    use(changed)


@pytest.mark.parametrize("number", range(len(FILES)))
def test_every_word_of_the_elf_tables_at_every_edge(number: int) -> None:
    good = elf_of(number)
    order = "<" if FILES[number][1] == "little" else ">"
    shoff = len(good) - 3 * (64 if FILES[number][0] == 2 else 40)
    for offset in (*range(4, 256, 2), *range(shoff, len(good), 4)):
        for form, size in (("H", 2), ("I", 4), ("Q", 8)):
            for value in (0, 1, 255, 1 << 15, (1 << 8 * size) - 1, (1 << 8 * size - 1)):
                if offset + size <= len(good) and value < 1 << 8 * size:
                    changed = bytearray(good)
                    struct.pack_into(order + form, changed, offset, value)
                    attempt(functools.partial(load, changed))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_sealed_mutations_of_packs(data: st.DataObject) -> None:
    """The checksums are made right again, so that the damage gets past them."""
    make = data.draw(st.sampled_from([sample_pack, lambda order: later_pack(sample_pack(order))]))
    pack = bytearray(make(data.draw(st.sampled_from(["little", "big"]))))
    for _ in range(data.draw(st.integers(1, 4))):
        offset = data.draw(st.integers(12, 1400))
        patch = data.draw(st.binary(min_size=1, max_size=8))
        pack[offset : offset + len(patch)] = patch
    try:
        changed = seal(pack)
    except struct.error:
        changed = bytes(pack)
    use(changed)


@settings(max_examples=300, deadline=None)
@given(
    st.integers(0, len(FILES) - 1),
    st.lists(st.tuples(st.integers(0, 1 << 14), st.binary(min_size=1, max_size=9)), max_size=5),
    st.integers(0, 1 << 14),
)
def test_mutations_and_truncations_of_elf_files(number: int, patches: list[tuple[int, bytes]], cut: int) -> None:
    good = elf_of(number)
    changed = bytearray(good)
    for offset, patch in patches:
        offset %= len(good)  # noqa: PLW2901 - within the file
        changed[offset : offset + len(patch)] = patch[: len(good) - offset]
    use(changed)
    use(changed[: cut % len(good)])


@settings(max_examples=200, deadline=None)
@given(
    st.binary(max_size=400),
    st.sampled_from([b"", fmt.MAGIC, b"\x7fELF", b"\x7fELF\2\1\1", b"\x7fELF\1\2\1", b"!<arch>\n", b"!<thin>\n"]),
)
def test_any_bytes(tail: bytes, magic: bytes) -> None:
    use(magic + tail)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 200), st.binary(min_size=1, max_size=4)), max_size=4), st.integers(0, 400))
def test_mutations_of_archives(patches: list[tuple[int, bytes]], cut: int) -> None:
    pack = sample_pack()
    member = b"x.pack/         0           0     0     644     " + str(len(pack)).encode().ljust(10) + b"`\n" + pack
    archive = bytearray(b"!<arch>\n/               0           0     0     0       4         `\n\0\0\0\0" + member)
    load(archive).check()
    for offset, patch in patches:
        archive[offset : offset + len(patch)] = patch
    use(archive)
    use(archive[:cut])


TEXT = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
NAMES = st.text(TEXT, min_size=1, max_size=12)
SHAPES = st.lists(st.integers(0, 5), max_size=4)


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(NAMES, st.tuples(st.sampled_from(TABLE), SHAPES, st.sampled_from([None, 1, 8, 128]))),
    st.dictionaries(NAMES, st.text(TEXT, max_size=8), max_size=3),
    st.sampled_from(["little", "big"]),
)
def test_what_was_packed_is_loaded(
    tensors: dict[str, tuple[Row, list[int], int | None]], metadata: dict[str, str], order: ByteOrder
) -> None:
    package = Package(metadata=metadata)
    wanted = {}
    for name, (row, extents, alignment) in tensors.items():
        shape = tuple(extents)
        data = bytes(i % 2 for i in range(row.dtype.nbytes(shape)))
        add(package, name, row.dtype, shape, data, alignment=alignment)
        wanted[name] = (row.dtype, shape)
    library = load(build_pack(package, order))
    library.check()
    assert library.names() == sorted(wanted, key=str.encode)
    assert library.metadata == metadata
    for name, (dtype, shape) in wanted.items():
        tensor = library.tensor(name)
        assert (tensor.dtype, tensor.shape) == (dtype, shape)
        if not dtype.packed:
            assert tensor.numpy().shape == shape
