"""What is linked in place of a payload that will be attached: a note, a descriptor, and symbols to be filled in.

The layout of the note and of the descriptor is normative in docs/attach.md.
"""

from __future__ import annotations

from emitter.elf import EMITTER_OWNER, Encoding
from emitter.errors import TargetError
from emitter.model import ObjectModel, Reference, Section, Symbol
from emitter.records import TYPE_CHECKING, NamedTuple
from emitter.sections import size_section
from emitter.symbols import check_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emitter.model import TensorSymbol
    from emitter.options import Format
    from emitter.targets._base import Target

__all__ = [
    "DESCRIPTOR_SIZE",
    "NT_EMITTER_ATTACH",
    "PACK_NOTE_ALIGNMENT",
    "PLACEHOLDER",
    "PLACEHOLDER_AT",
    "SPARE_ALIGNMENT",
    "SPARE_DESC",
    "SPARE_FIELDS",
    "SPARE_SECTION",
    "cannot_attach",
    "descriptor_header",
    "descriptor_ir",
    "exported_names",
    "magic",
    "stub_model",
]

# The note that leads to all else, and whose program header becomes the payload's. Loaders look for type 1.
NT_EMITTER_ATTACH = 2
SPARE_SECTION = ".note.emitter.attach"
# Not 4, as the build id: linkers then give the note a program header of its own.
SPARE_ALIGNMENT = 8
SPARE_DESC = 24  # where the note's descriptor begins: 12 bytes, the owner, and padding to 8

# The words of the note, each the distance from the word itself to the start of a section of the stub.
SPARE_FIELDS = ("descriptor", "placeholder", "size", "pack note")

DESCRIPTOR_SIZE = 16

# The note that loaders will read. It moves behind the payload, so it needs a program header of its own as well, which
# linkers give to an alignment that its neighbours do not have; there it is 4. Its name is not .note.emitter yet, or
# linkers would join it to the notes of other objects.
_PACK_NOTE_SECTION = ".note.emitter.pack"
PACK_NOTE_ALIGNMENT = 16

_MAGIC = (0x89454D54_41540D0A, 0x1A0A8B5E_D3C1F7E6)  # never a distance and a size: the second is above 2^60

# The section that the symbols stand in until the payload is there, PLACEHOLDER_AT bytes behind its start: what is near
# them is nobody else's, so that an address near them is a reference to the payload (code may begin one element before
# an array). Whatever reads it in error reads NaN, or -1.
PLACEHOLDER = b"\xff" * 256
PLACEHOLDER_AT = 64
_PLACEHOLDER_ALIGNMENT = 64

# e_machine of the CPUs for which attaching was tried with linkers, loaders and strip: docs/attach.md.
_MACHINES = {
    62: "x86-64", 183: "AArch64", 243: "RISC-V", 40: "ARM", 3: "i686", 22: "s390x", 21: "PowerPC64",
}  # fmt: skip


class _Row(NamedTuple):
    """A section of the stub, by the name of the field that leads to it."""

    field: str
    section: Section


def cannot_attach(target: Target, format_: Format) -> str | None:
    """Return why no payload can be attached to an output, in words for `-v`; None if it can."""
    if target.object_format == "macho":
        return "a Mach-O library is signed and ends with __LINKEDIT: nothing can follow it"
    if target.object_format == "coff":
        return "a DLL has no room in its headers for another section"
    if format_ != "library":
        return f"an {format_} is linked later, by others" if format_ in ("object", "archive") else "nothing is linked"
    if target.image_suffix is None:
        return "programs without an operating system are not loaded by segments"
    if target.e_machine not in _MACHINES:
        return f"attaching has not been tried on {target.name}"
    return None


def magic(target: Target) -> bytes:
    """Return the 16 bytes that stand in the descriptor until the payload is attached."""
    return b"".join(word.to_bytes(8, target.byte_order) for word in _MAGIC)


def exported_names(name: str, symbols: Sequence[TensorSymbol] = ()) -> list[str]:
    """Return the symbols of the stub that a library exports: what a version script must leave global."""
    return [name, f"{name}_size", "emitter_pack", *(symbol.name for symbol in symbols)]


def stub_model(target: Target, name: str, symbols: Sequence[TensorSymbol] = ()) -> ObjectModel:
    """Return the object that is linked with code in place of the pack `name`, for `emitter.writers.plan_linkable`.

    It defines what an emitted library exports (`exported_names`), and `NAME_descriptor`, which is hidden and through
    which code reaches the pack. `symbols` are those of tensors, at their offsets in the pack. Raises TargetError for a
    target that `cannot_attach` names, LayoutError for names that `symbols.check_names` refuses.
    """
    reason = cannot_attach(target, "library")
    if reason is not None:
        raise TargetError(
            "nothing can be attached to a library of this target",
            where=target.name,
            actual=reason,
            hint="link the payload in the ordinary way",
        )
    check_names([
        (name, "the name"),
        (f"{name}_size", f"the size of {name}"),
        (f"{name}_descriptor", f"the descriptor of {name}"),
        *((symbol.name, f"tensor {symbol.tensor!r}") for symbol in symbols),
    ])  # fmt: skip
    encoding = Encoding(target.pointer_width, target.byte_order)
    word = encoding.word_size
    spare = encoding.note(EMITTER_OWNER, NT_EMITTER_ATTACH, bytes(len(SPARE_FIELDS) * word), SPARE_ALIGNMENT)
    pack_note = encoding.pack_note(0, 0, 0, 0)
    # Sections of their own, so that the words of the note are distances to sections.
    rows = (
        _Row("descriptor", _rodata(f".rodata.{name}_descriptor", magic(target), DESCRIPTOR_SIZE)),
        _Row("placeholder", _rodata(f".rodata.{name}", PLACEHOLDER, _PLACEHOLDER_ALIGNMENT)),
        _Row("size", _rodata(size_section(target, name), bytes(word), word)),
        _Row("pack note", Section(_PACK_NOTE_SECTION, "note", len(pack_note), PACK_NOTE_ALIGNMENT, pack_note)),
    )
    number = {row.field: index for index, row in enumerate(rows, 1)}
    at, room = number["placeholder"], len(PLACEHOLDER) - PLACEHOLDER_AT
    return ObjectModel(
        sections=[
            Section(SPARE_SECTION, "note", len(spare), SPARE_ALIGNMENT, spare),
            *(row.section for row in rows),
        ],
        symbols=[
            # Of default visibility: the linker then leaves references through the GOT to the loader, which reads the
            # symbol table, where the payload's address will be.
            Symbol(name, at, PLACEHOLDER_AT, room),
            Symbol("emitter_pack", at, PLACEHOLDER_AT, room),
            *(Symbol(symbol.name, at, PLACEHOLDER_AT, room) for symbol in symbols),
            Symbol(f"{name}_size", number["size"], 0, word),
            Symbol(f"{name}_descriptor", number["descriptor"], 0, DESCRIPTOR_SIZE, visibility="hidden"),
        ],
        references=[Reference(0, SPARE_DESC + index * word, number[field]) for index, field in enumerate(SPARE_FIELDS)],
    )


def _rodata(name: str, data: bytes, alignment: int) -> Section:
    return Section(name, "rodata", len(data), alignment, data)


def descriptor_header(name: str) -> str:
    """Return a C header (C99, C++11) with `NAME_base()` and `NAME_bytes()`: where the pack is, and how large.

    Each reads the descriptor anew, through volatile, so that no compiler takes what stands in it before attaching for
    its value. The descriptor is near code and hidden, so this needs no relocation, and reaches any distance.
    """
    return _HEADER.replace("NAME", name)


def descriptor_ir(name: str) -> str:
    """Return LLVM IR with `ptr @NAME_base()` and `i64 @NAME_bytes()`; for modules of one library (hidden, linkonce)."""
    return _IR.replace("NAME", name)


_HEADER = """\
/* SPDX-License-Identifier: 0BSD
   Generated by emitter. Where the pack NAME is that was attached to this library: docs/attach.md. */
#ifndef EMITTER_ATTACHED_NAME_H
#define EMITTER_ATTACHED_NAME_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
struct emitter_attached_NAME {
    int64_t offset; /* from this structure to the first byte of the pack */
    uint64_t size;  /* bytes of the pack */
};
/* Defined in another object. Do not define or initialise it: a compiler would take its value for final. */
extern const volatile struct emitter_attached_NAME NAME_descriptor __attribute__((visibility("hidden")));
static inline const void *NAME_base(void)
{
    return (const void *)((uintptr_t)&NAME_descriptor + (uintptr_t)NAME_descriptor.offset);
}
static inline uint64_t NAME_bytes(void)
{
    return NAME_descriptor.size;
}
#ifdef __cplusplus
}
#endif
#endif
"""

_IR = """\
; Where the pack NAME is that was attached to this library: docs/attach.md.
@NAME_descriptor = external hidden global { i64, i64 }, align 16

define linkonce_odr hidden ptr @NAME_base() alwaysinline {
  %offset = load volatile i64, ptr @NAME_descriptor, align 16
  %here = ptrtoint ptr @NAME_descriptor to i64
  %address = add i64 %here, %offset
  %base = inttoptr i64 %address to ptr
  ret ptr %base
}

define linkonce_odr hidden i64 @NAME_bytes() alwaysinline {
  %field = getelementptr { i64, i64 }, ptr @NAME_descriptor, i64 0, i32 1
  %size = load volatile i64, ptr %field, align 8
  ret i64 %size
}
"""
