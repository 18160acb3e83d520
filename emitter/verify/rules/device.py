"""Programs for GPUs: as files, in packs, and in the sections where CUDA's tools look for them."""

from __future__ import annotations

from emitter.device import FATBIN_MAGIC, program_format, read_program
from emitter.device.cubin import sm_number
from emitter.device.fatbin import CUBIN, LTO, PTX, read_fatbin
from emitter.device.ptx import first_nul, read_ptx
from emitter.errors import FormatError
from emitter.records import TYPE_CHECKING, NamedTuple
from emitter.verify.device import DeviceFile
from emitter.verify.model import Found, rule
from emitter.verify.rules._elf import elf_of, section_names
from emitter.verify.rules._packs import loaded, payloads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.inspect.view import View
    from emitter.verify.check import Check

_ALL = ("*",)
_GPUS = {190: "cubin", 224: "hsaco"}  # by e_machine: members of archives
_ET_REL = b"\1\0"
# What drivers want the address of a program to be a multiple of: fatbins and cubins are read in words of 8 bytes, HIP's
# runtime maps bundles at pages, engines are copied fastest from where TensorRT itself puts them, and SPIR-V is words.
_ALIGNMENTS = {"fatbin": 8, "cubin": 8, "HIP bundle": 4096, "TensorRT plan": 256, "SPIR-V": 4}


class Blob(NamedTuple):
    """A program: what it is, its bytes, what messages call it, its offset in the file, and the byte behind it."""

    kind: str
    view: View
    subject: str
    offset: int
    alignment: int
    last: bool  # whether nothing follows it in the file


def blobs(check: Check) -> list[Blob]:
    """Return the programs in a file."""
    return check.fact("blobs", lambda: list(_find(check)))


def _find(check: Check) -> Iterator[Blob]:
    view = check.view
    kind = check.reader.program if isinstance(check.reader, DeviceFile) else None
    if check.format == "elf":
        kind = _GPUS.get(elf_of(check).ehdr.e_machine)
    if kind is not None:
        if kind != "hsaco" or view.read_up_to(16, 2) != _ET_REL:  # what AMD's linker takes is no program yet
            yield Blob(kind, view, "", 0, 0, last=True)
        return
    for pack in loaded(check):
        # A sidecar is a pack, and verified as a file of its own.
        for payload in payloads(pack) if not pack.sidecar else ():
            head = view.read_up_to(payload.offset, min(payload.size, 512))
            kind = program_format(head)
            if kind is not None:
                window = view.window(payload.offset, payload.size, payload.subject)
                yield Blob(kind, window, payload.subject, payload.offset, payload.alignment, last=False)
    if check.format == "elf":
        for number, shdr in elf_of(check).sections():
            if section_names(check)[number] in {".nv_fatbin", "__nv_relfatbin"} and shdr.sh_type != 8:
                yield from _fatbins(check, shdr.sh_offset, shdr.sh_size, shdr.sh_addralign)


def _fatbins(check: Check, offset: int, size: int, alignment: int) -> Iterator[Blob]:
    """Yield the fatbins of a section, one behind the other, each padded to 8 bytes."""
    end = offset + size
    while offset + 16 <= end:
        magic, length = check.view.unpack("<4s4xQ", offset, ".nv_fatbin")
        if magic != FATBIN_MAGIC:
            if not any(magic):
                offset += 8
                continue
            return  # of another kind: not ours to judge
        window = check.view.window(offset, min(16 + length, end - offset), f".nv_fatbin at {offset:#x}")
        yield Blob("fatbin", window, f".nv_fatbin at {offset:#x}", offset, alignment, last=False)
        offset += 16 + length + -length % 8


def _broken(blob: Blob, error: FormatError) -> Found:
    """Return what the reader of a format refuses, with the offset or entry that it names."""
    place = (error.where or "").rpartition(": ")[2]
    subject = f"{blob.subject} {place}" if "offset" in place or "entry" in place else blob.subject
    return Found(subject.strip(), error.expected or "", f"{error.what}: {error.actual or ''}".rstrip(": "))


# A90, B41
@rule(
    "device-ptx",
    "A PTX text is not what the driver reads",
    why="cuModuleLoadData reads up to the first NUL: without one it runs past the text, with one inside it stops early",
    fix="save it as UTF-8 without byte-order mark, without NUL inside, and put exactly one behind it",
    formats=_ALL,
)
def device_ptx(check: Check) -> Iterator[Found]:
    """Read the directives at the start, and look for NULs."""
    for blob in blobs(check):
        if blob.kind != "PTX":
            continue
        try:
            found = read_ptx(blob.view)
        except FormatError as error:
            yield Found(blob.subject, error.expected or "", f"{error.what}: {error.actual}")
            continue
        if not found.address_size:
            yield Found(blob.subject, ".address_size behind .target", "none: 32 bits are meant", "warning")
        nul = first_nul(blob.view)
        if nul is not None and nul != blob.view.size - 1:
            yield Found(f"{blob.subject} offset {nul:#x}".strip(), "no NUL inside of the text", "a NUL")
        # In a file the loader adds it; in a pack the program is handed over where it lies.
        if not blob.last and nul is None and check.view.read_up_to(blob.offset + blob.view.size, 1) != b"\0":
            yield Found(blob.subject, "a NUL behind the text", "none")


# A91, B42
@rule(
    "device-fatbin",
    "A fatbin breaks its format",
    why="the driver refuses it, or the runtime finds no program for the GPU, when the first kernel is started",
    fix="copy it again, or make it again with fatbinary or nvcc",
    formats=_ALL,
)
def device_fatbin(check: Check) -> Iterator[Found]:
    """Read the header and every entry."""
    for blob in blobs(check):
        if blob.kind != "fatbin":
            continue
        try:
            entries = read_fatbin(blob.view)
        except FormatError as error:
            yield _broken(blob, error)
            continue
        if not entries:
            yield Found(blob.subject, "at least one program", "none")
        for number, entry in enumerate(entries):
            if entry.kind not in (PTX, CUBIN, LTO):
                actual = f"kind {entry.kind} at {entry.offset:#x}"
                yield Found(f"{blob.subject} entry {number}".strip(), "PTX, a cubin or NVVM IR", actual, "warning")


# Formats whose own readers say all: device-fatbin and device-ptx tell more of theirs, device-cubin of the sm number.
_WHOLE = frozenset({"cubin", "hsaco", "HIP bundle", "TensorRT plan", "SPIR-V"})


@rule(
    "device-program",
    "A program for a GPU or an engine breaks its own format",
    why="the runtime refuses it, or reads past its end, when the program first asks for it",
    fix="copy it again, or make it again with its compiler",
    formats=_ALL,
)
def device_program(check: Check) -> Iterator[Found]:
    """Let the reader of its format look at the bytes."""
    for blob in blobs(check):
        if blob.kind not in _WHOLE or (blob.kind == "cubin" and not _cubin_arch(blob.view)):
            continue
        try:
            read_program(blob.view)
        except FormatError as error:
            yield _broken(blob, error)


def architectures(check: Check) -> list[tuple[str, set[int], set[int]]]:
    """Return (subject, sm numbers of machine code, those of PTX) of each CUDA program."""
    found = []
    for blob in blobs(check):
        try:
            if blob.kind == "fatbin":
                entries = read_fatbin(blob.view)
                code = {entry.arch for entry in entries if entry.kind == CUBIN}
                found.append((blob.subject, code, {entry.arch for entry in entries if entry.kind == PTX}))
            elif blob.kind == "PTX":
                found.append((blob.subject, set(), {read_ptx(blob.view).arch}))
            elif blob.kind == "cubin":
                found.append((blob.subject, {_cubin_arch(blob.view)}, set()))
        except FormatError:  # noqa: PERF203 - one broken program does not hide the others
            continue  # its own rule says so
    return found


def _cubin_arch(view: View) -> int:
    """Return the sm number in e_flags."""
    from emitter.inspect.elf import ElfFile

    header = ElfFile(view).ehdr
    return sm_number(header.ei_abiversion, header.e_flags)


# A91, A92
@rule(
    "device-architecture",
    "There is no program for a GPU of the platform",
    why='the first kernel fails with "no kernel image is available for execution on the device"',
    fix="compile for it as well: -gencode arch=compute_NN,code=sm_NN, or keep PTX of an older architecture",
    formats=_ALL,
    needs=("cuda-architectures",),
)
def device_architecture(check: Check) -> Iterator[Found]:
    """Compare what there is with what the GPUs run: code of their generation, up to their minor, and older PTX."""
    for subject, code, ptx in architectures(check):
        for wanted in check.profile.get("cuda-architectures"):
            runs = any(one // 10 == wanted // 10 and one <= wanted for one in code)
            if not runs and not any(one <= wanted for one in ptx):
                have = [f"sm_{one}" for one in sorted(code)] + [f"compute_{one}" for one in sorted(ptx)]
                yield Found(subject, f"code for sm_{wanted}", ", ".join(have) or "none")


# A92
@rule(
    "device-cubin",
    "A cubin does not say which GPU it is for",
    why="the driver refuses it on every device",
    fix="make it again with ptxas or nvcc",
    formats=_ALL,
)
def device_cubin(check: Check) -> Iterator[Found]:
    """Look at the sm number in e_flags."""
    for blob in blobs(check):
        if blob.kind == "cubin" and not _cubin_arch(blob.view):
            yield Found(blob.subject or "e_flags", "an sm number", 0)


# A93
@rule(
    "device-alignment",
    "A program for a GPU lies where the driver does not take it",
    why="drivers read it in words or map its pages: at another address they fail, on some starts and not on others",
    fix="emit it with a larger alignment (--align), or keep the section's sh_addralign",
    formats=_ALL,
)
def device_alignment(check: Check) -> Iterator[Found]:
    """Compare the promised alignment of each program in a pack or section with what its kind needs."""
    for blob in blobs(check):
        wanted = _ALIGNMENTS.get(blob.kind, 1)
        if not blob.last and blob.alignment < wanted:
            severity = "warning" if blob.kind == "TensorRT plan" else None
            yield Found(blob.subject, f"{blob.kind} aligned to {wanted}", blob.alignment, severity)


# A94, B43
@rule(
    "device-engine-requirements",
    "An engine does not say which GPU and which TensorRT it is for",
    severity="warning",
    why="engines are built for one GPU and one version: elsewhere loading fails, and no other can be chosen",
    fix="say it when emitting: requires sm and tensorrt of the module (docs/manifest.md)",
    formats=("*",),
    needs=("pack",),
)
def device_engine_requirements(check: Check) -> Iterator[Found]:
    """Look at the conditions of modules for TensorRT."""
    for pack in loaded(check):
        for payload in payloads(pack):
            missing = [key for key in ("sm", "tensorrt") if key not in payload.conditions]
            if payload.kind == "tensorrt" and missing:
                yield Found(payload.subject, "conditions on sm and tensorrt", f"none on {' and '.join(missing)}")


# A95
@rule(
    "device-section",
    "A fatbin lies in a section where CUDA's tools do not look",
    severity="info",
    why="cuobjdump and the debuggers look for .nv_fatbin only; a program that loads it itself does not mind",
    fix="put it into .nv_fatbin if they are to see it (emitter: --section .nv_fatbin)",
    kinds=("object", "library", "executable"),
)
def device_section(check: Check) -> Iterator[Found]:
    """Look for .nvFatBinSegment without .nv_fatbin."""
    names = set(section_names(check))
    if ".nvFatBinSegment" in names and ".nv_fatbin" not in names:
        yield Found(".nvFatBinSegment", ".nv_fatbin, which it points to", "no such section", "warning")
    elif ".nv_fatbin" not in names and any(blob.kind == "fatbin" for blob in blobs(check)):
        yield Found("fatbin", "in .nv_fatbin", "in a pack")
