"""The packs in a file: whether they are whole, where a program will find them, and what they promise."""

from __future__ import annotations

from emitter.records import TYPE_CHECKING
from emitter.verify.model import Found, rule
from emitter.verify.rules._elf import (
    PF_W,
    SHF_WRITE,
    STT_OBJECT,
    STV_DEFAULT,
    STV_PROTECTED,
    elf_of,
    exported,
    label,
    loads,
    section_name,
    segment_name,
)
from emitter.verify.rules._packs import Payload, alone, data_of, loaded, payloads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.inspect.elf_records import Phdr, Shdr
    from emitter.inspect.report import PackEntry
    from emitter.inspect.view import View
    from emitter.verify.check import Check

# What loaders keep: musl and glibc before 2.35 map at multiples of a page, whatever p_align says.
_KEPT_ALIGNMENT = 4096


def _name(pack: PackEntry) -> str:
    return f"pack {pack.symbol}" if pack.symbol else f"pack at {pack.offset:#x}"


# A55
@rule(
    "pack-index",
    "The index of a pack breaks its format",
    why="a program that trusts it reads tensors of the wrong type, shape or place",
    fix="emit the file again; if something edited it, that tool does not know packs",
    formats=("*",),
    needs=("pack",),
)
def pack_index(check: Check) -> Iterator[Found]:
    """Check every rule of docs/pack-format.md outside of the payloads."""
    from emitter.errors import EmitterError

    for number, pack in enumerate(loaded(check)):
        try:
            pack.validate()
            for payload in payloads(pack):
                del payload  # making one compares type, shape and size
        except EmitterError as error:  # noqa: PERF203 - one broken pack does not hide the others
            where = f"pack {number}" + (f": {error.where.rpartition(': ')[2]}" if error.where else "")
            yield Found(where, error.expected or "", f"{error.what}: {error.actual}" if error.actual else error.what)


@rule(
    "pack-sidecar",
    "The file that holds the bytes of a pack is not beside it, or is another one",
    why="opening the library fails on the device",
    fix="ship the sidecar in the same folder, and replace both together",
    formats=("*",),
    needs=("pack",),
)
def pack_sidecar(check: Check) -> Iterator[Found]:
    """Follow each sidecar as the loader does."""
    from emitter.errors import EmitterError
    from emitter.loaders import load

    names = [pack.sidecar for pack in check.report.packs if pack.sidecar]
    if names and alone(check):
        try:
            load(check.path)
        except EmitterError as error:
            yield Found(names[0], error.expected or "", f"{error.what}: {error.actual}" if error.actual else error.what)
    elif names:
        yield Found(names[0], "beside the library", "not looked for in a container", "info")


# A48
@rule(
    "pack-checksum",
    "The bytes of a tensor or module are not those that were written",
    why="the model loads and computes wrong results: nothing else looks at every byte",
    fix="copy or emit the file again; find what changed it (a text-mode transfer, a bad disk, a hand-made patch)",
    formats=("*",),
    needs=("pack",),
)
def pack_checksum(check: Check) -> Iterator[Found]:
    """Read every payload once, and compare its CRC-32C with that in the index."""
    for pack in loaded(check):
        met: set[tuple[int, int]] = set()
        with data_of(check, pack) as view:
            left = view.size if view is not None else 0
            for payload in payloads(pack) if view is not None else ():
                place = (payload.offset, payload.size)
                if place in met or view is None:
                    continue
                met.add(place)
                left -= payload.size
                if left < 0:
                    return  # payloads overlap, which pack-index says: all of them may take for ever
                actual = view.crc32c(payload.offset, payload.size, payload.subject)
                if actual != payload.crc32c:
                    yield Found(payload.subject, f"CRC-32C {payload.crc32c:#010x}", f"{actual:#010x}")


# --against
@rule(
    "pack-source",
    "A tensor is not the one of the source",
    why="the device would run with other weights than those that were tested",
    fix="emit the file again from the source, or name the source that it was made from",
    formats=("*",),
    needs=("pack", "against"),
)
def pack_source(check: Check) -> Iterator[Found]:
    """Compare every tensor of every pack with the one of its name in the sources, byte by byte."""
    sources = check.sources
    for pack in loaded(check) if sources is not None else ():
        with data_of(check, pack) as view:
            for tensor in pack.tensors():
                if sources is None or view is None:
                    continue
                subject = f"tensor {tensor.name}"
                source = sources.tensors.get(tensor.name)
                if source is None:
                    yield Found(subject, "a tensor of the source", "the source has none of this name")
                    continue
                sources.met.add(tensor.name)
                facts = (str(source.dtype), tuple(source.shape)), (str(tensor.dtype), tensor.shape)
                if facts[0] != facts[1]:
                    expected, actual = (f"{dtype} {list(shape)}" for dtype, shape in facts)
                    yield Found(subject, expected, actual)
                    continue

                def read(offset: int, length: int, base: int = tensor.file_offset, view: View = view) -> bytes:
                    return view.read(base + offset, length, "a tensor")

                different = sources.difference(tensor.name, read, tensor.nbytes, pack.byte_order)
                if different is not None:
                    yield Found(subject, "the bytes of the source", f"they differ from byte {different} on")


# A56
@rule(
    "pack-duplicates",
    "Equal tensors are stored more than once",
    severity="info",
    why="the file is larger than it has to be",
    fix="emit it again: emitter stores equal payloads once",
    formats=("*",),
    needs=("pack",),
)
def pack_duplicates(check: Check) -> Iterator[Found]:
    """Compare payloads of one size and one CRC-32C byte by byte."""
    for pack in loaded(check):
        met: dict[tuple[int, int], list[Payload]] = {}
        with data_of(check, pack) as view:
            for payload in payloads(pack):
                others = met.setdefault((payload.crc32c, payload.size), [])
                if not payload.size or view is None or any(payload.offset == other.offset for other in others):
                    continue
                twin = next((other for other in others if _equal(view, other, payload)), None)
                if twin is not None:
                    yield Found(payload.subject, f"stored with {twin.subject}", f"{payload.size} bytes once more")
                others.append(payload)


def _equal(view: View, one: Payload, two: Payload) -> bool:
    pieces = zip(
        view.chunks(one.offset, one.size, one.subject), view.chunks(two.offset, two.size, two.subject), strict=True
    )
    return all(first == second for first, second in pieces)


# A3, B52
@rule(
    "pack-byte-order",
    "A pack has another byte order than the CPU of the file",
    why="every number of more than one byte is read backwards",
    fix="emit the file for its own target; do not attach a pack of another one",
    needs=("pack",),
)
def pack_byte_order(check: Check) -> Iterator[Found]:
    """Compare the pack's byte order with EI_DATA."""
    for pack in check.report.packs:
        if pack.byte_order != elf_of(check).byte_order:
            yield Found(_name(pack), elf_of(check).byte_order, pack.byte_order)


def _holder(check: Check, pack: PackEntry) -> tuple[int, Shdr] | None:
    """Return the section that holds a pack, or None."""
    for number, shdr in elf_of(check).sections():
        if (
            shdr.sh_type == 1
            and shdr.sh_offset <= pack.offset
            and pack.offset + pack.size <= shdr.sh_offset + shdr.sh_size
        ):
            return number, shdr
    return None


def _segment(check: Check, pack: PackEntry) -> tuple[int, Phdr] | None:
    for number, phdr in loads(check):
        if phdr.p_offset <= pack.offset and pack.offset + pack.size <= phdr.p_offset + phdr.p_filesz:
            return number, phdr
    return None


# A46, B8
@rule(
    "pack-alignment",
    "A pack will not lie at the alignment that it promises",
    why="vector loads and drivers that rely on it fault, or refuse the data, on some starts and not on others",
    fix="link or emit it again; a linker script or a tool that moved the section must keep sh_addralign",
    needs=("pack",),
)
def pack_alignment(check: Check) -> Iterator[Found]:
    """Compare section, address and segment of each pack with its alignment."""
    for pack in check.report.packs:
        holder = _holder(check, pack)
        if check.kind == "object":
            if holder is None:
                continue
            number, shdr = holder
            if shdr.sh_addralign < pack.alignment or (pack.offset - shdr.sh_offset) % pack.alignment:
                actual = f"sh_addralign {shdr.sh_addralign}, offset {pack.offset - shdr.sh_offset:#x}"
                yield Found(f"{_name(pack)} in {section_name(check, number)}", f"aligned to {pack.alignment}", actual)
            continue
        segment = _segment(check, pack)
        if segment is None:
            continue
        number_of, phdr = segment
        wanted = min(pack.alignment, _KEPT_ALIGNMENT)
        address = phdr.p_vaddr + pack.offset - phdr.p_offset
        if address % wanted or phdr.p_align < wanted:
            actual = f"address {address:#x}, p_align {phdr.p_align}"
            yield Found(f"{_name(pack)} in {segment_name(number_of, phdr)}", f"aligned to {wanted}", actual)


# A49
@rule(
    "pack-writable",
    "A pack lies where it can be written",
    why="every process gets its own copy of the weights in memory, and any stray pointer can change them",
    fix="keep the pack in a read-only section (.rodata) through the link",
    needs=("pack",),
)
def pack_writable(check: Check) -> Iterator[Found]:
    """Look at the flags of the pack's section and segment."""
    for pack in check.report.packs:
        holder, segment = _holder(check, pack), _segment(check, pack)
        if holder is not None and holder[1].sh_flags & SHF_WRITE:
            yield Found(f"{_name(pack)} in {section_name(check, holder[0])}", "read-only", "SHF_WRITE")
        elif segment is not None and segment[1].p_flags & PF_W:
            yield Found(f"{_name(pack)} in {segment_name(*segment)}", "read-only", "PF_W")


# A44, A45
@rule(
    "pack-symbol",
    "A library does not offer its pack by a symbol of the right place, size and type",
    why="dlsym gives NULL, or a place that holds something else",
    fix="keep the symbol global: a version script, -fvisibility=hidden or --gc-sections took it away",
    kinds=("library",),
    needs=("pack",),
)
def pack_symbol(check: Check) -> Iterator[Found]:
    """Compare `emitter_pack`, or another symbol of the pack's place, with the pack."""
    symbols = exported(check)
    for pack in check.report.packs:
        segment = _segment(check, pack)
        if segment is None:
            yield Found(_name(pack), "inside of a PT_LOAD", "no segment holds it")
            continue
        _, phdr = segment
        address = phdr.p_vaddr + pack.offset - phdr.p_offset
        there = [symbol for symbol in symbols if symbol.st_value == address]
        exact = [symbol for symbol in there if symbol.st_size == pack.size and symbol.st_type == STT_OBJECT]
        # A program that finds its pack by the note alone needs none: then nothing claims to be it.
        named = [symbol for symbol in symbols if symbol.name == "emitter_pack"]
        if named and not exact:
            yield Found(
                label(named[0]),
                f"STT_OBJECT at {address:#x}, {pack.size} bytes",
                f"type {named[0].st_type} at {named[0].st_value:#x}, {named[0].st_size} bytes",
            )
        elif not exact:
            yield Found(_name(pack), "a symbol in the dynamic symbol table", "none", "warning")
        for symbol in exact:
            if symbol.st_visibility not in (STV_DEFAULT, STV_PROTECTED):
                yield Found(label(symbol), "visible to dlsym", f"visibility {symbol.st_visibility}")
