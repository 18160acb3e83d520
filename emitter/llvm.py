"""LLVM: what an object of a target looks like. The only module that imports llvmlite.

`python -m emitter.llvm` makes the stubs that are shipped in `targets/stubs/` anew: one nameless object without data per
ELF target, so that emitting needs no LLVM at run time, and its bytes do not depend on the installed LLVM. Run it after
a target was added or changed, and after an upgrade of llvmlite; `git diff` then shows whether LLVM's mind has changed.

A stub is LLVM's object with what must not reach a user's program taken out: its symbols (temporary names, mapping
symbols); its empty sections; its build attributes, which claim more than data needs (NEON on 32-bit Arm, a section on
AArch64 that older linkers mishandle), and whose place those of the target's literal take; and on bare metal the note
about the stack. The compilers of such targets write none, and GNU ld warns of every object without, once one has it.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from emitter import elf
from emitter.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.targets._base import Target

__all__ = ["LLVM_MAJOR", "emit_object", "emit_stub", "llvm_major", "property_flags", "regenerate"]

LLVM_MAJOR = 22  # the LLVM that made the shipped stubs

# The bits of a GNU property, and the module flag that makes LLVM write each.
_PROPERTY_FLAGS = {
    0xC0000000: {
        0x1: "branch-target-enforcement",
        0x2: "sign-return-address",
        0x4: "guarded-control-stack",
    },  # GNU_PROPERTY_AARCH64_FEATURE_1_AND: BTI, PAC, GCS
    0xC0000002: {
        0x1: "cf-protection-branch",
        0x2: "cf-protection-return",
    },  # GNU_PROPERTY_X86_FEATURE_1_AND: IBT, SHSTK
}
_FLAG_MIN = 8  # Module::Min: what all inputs have

# ABIs that pass arguments in registers of an extension. LLVM writes the ABI into e_flags without the extension, too,
# and compiles for another ABI: the result links and computes wrongly.
_ABI_NEEDS = {"ilp32f": "+f", "ilp32d": "+d", "lp64f": "+f", "lp64d": "+d"}

_STACK_NOTE = ".note.GNU-stack"
_PROPERTY_NOTE = ".note.gnu.property"
# What LLVM may write into an object with one constant. Attributes differ, see above; anything else is news to look at.
_DROPPED = frozenset({"", ".text", ".rodata", ".strtab", ".symtab", ".ARM.attributes", ".riscv.attributes"})


class _Section(NamedTuple):
    name: str
    sh_type: int
    sh_flags: int
    sh_addralign: int
    contents: bytes


def llvm_major() -> int:
    """Return the major version of the LLVM in llvmlite; raise TargetError if llvmlite is missing."""
    try:
        from llvmlite.binding import llvm_version_info
    except ImportError as error:
        raise TargetError(
            "this target needs LLVM, and llvmlite is not installed", hint="pip install llvmlite"
        ) from error
    return int(llvm_version_info[0])


def emit_object(target: Target, ir: str) -> bytes:
    """Compile LLVM IR of this program's own making, without triple and data layout, to an object.

    Not for a user's IR: LLVM ends the process on some mistakes. Raises TargetError if LLVM and the literal disagree
    about the data layout, if LLVM mishandles the pair of CPU and code model or the pair of ABI and features, or if LLVM
    refuses.
    """
    _refuse_traps(target)
    llvm_major()
    from llvmlite import binding

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    try:
        machine = binding.Target.from_triple(target.llvm_triple).create_target_machine(
            cpu=target.cpu,
            features=target.features,
            reloc=target.relocation_model,
            codemodel=target.code_model,
            abiname=target.abi_name,
        )
        layout = str(machine.target_data)
        if layout != target.data_layout:
            raise _disagreement(target, "data_layout", target.data_layout, layout)
        # The name of the module would become a symbol.
        header = f'source_filename = ""\ntarget triple = "{target.llvm_triple}"\ntarget datalayout = "{layout}"\n'
        module = binding.parse_assembly(header + ir)
        module.verify()
        return bytes(machine.emit_object(module))
    except RuntimeError as error:
        raise TargetError(f"LLVM refuses: {str(error).strip()}", where=f"target {target.name}") from error


def emit_stub(target: Target) -> bytes:
    """Return an object of `target` that holds nothing but what LLVM says of the target, and the literal's attributes.

    ELF, ET_REL, in this order: the null section, `.note.GNU-stack` where an operating system reads it,
    `.note.gnu.property` and the attributes section where the target has them, an empty `.symtab`, `.strtab`. Raises
    TargetError if LLVM's object is not what the literal says: class, byte order, OS ABI, `e_machine`, `e_flags`,
    properties, flags of read-only data.
    """
    ir = [
        # Used, so that LLVM keeps it; private, so that it has no name.
        "@placeholder = private constant i8 0",
        '@llvm.compiler.used = appending global [1 x ptr] [ptr @placeholder], section "llvm.metadata"',
        property_flags(target),
    ]
    return _tidy(target, emit_object(target, "\n".join(ir)))


def property_flags(target: Target) -> str:
    """Return IR for which LLVM writes the GNU properties of the target, and code that keeps what they promise."""
    flags = [
        name
        for prop in target.properties
        for bit, name in _PROPERTY_FLAGS.get(prop.pr_type, {}).items()
        if prop.value & bit
    ]
    numbers = ", ".join(f"!{number}" for number in range(len(flags)))
    lines = [f'!{number} = !{{i32 {_FLAG_MIN}, !"{name}", i32 1}}\n' for number, name in enumerate(flags)]
    return "".join([f"!llvm.module.flags = !{{{numbers}}}\n", *lines])


def _refuse_traps(target: Target) -> None:
    if target.code_model not in target.code_models:
        raise TargetError(
            "LLVM does not implement the code model for this CPU",
            where=f"target {target.name}: code_model",
            expected=" or ".join(target.code_models),
            actual=target.code_model,
        )
    needed = _ABI_NEEDS.get(target.abi_name)
    if needed and needed not in target.features.split(","):
        raise TargetError(
            f"the ABI {target.abi_name} passes arguments in registers that the features lack",
            where=f"target {target.name}: features",
            expected=f"{needed} among them",
            actual=target.features or "none",
        )


def _tidy(target: Target, raw: bytes) -> bytes:
    """Check LLVM's object against the literal, and write it anew without what a stub does not need."""
    encoding = elf.Encoding(target.pointer_width, target.byte_order)
    sections = {section.name: section for section in _read(target, raw)}
    facts: dict[str, tuple[object, object]] = {
        "read-only data": (
            (elf.SHT_PROGBITS, elf.SHF_ALLOC),
            _type_and_flags(sections.get(".rodata")),
        ),
        "stack note": ((elf.SHT_PROGBITS, 0), _type_and_flags(sections.get(_STACK_NOTE))),
        "properties": (
            encoding.properties((p.pr_type, p.value) for p in target.properties) if target.properties else None,
            sections[_PROPERTY_NOTE].contents if _PROPERTY_NOTE in sections else None,
        ),
        "attributes": (
            (target.attributes.section, target.attributes.sh_type) if target.attributes else None,
            next(
                (
                    (s.name, s.sh_type)
                    for s in sections.values()
                    if target.attributes and s.name.endswith(".attributes")
                ),
                None,
            ),
        ),
        "other sections": ([], sorted(sections.keys() - _DROPPED - {_STACK_NOTE, _PROPERTY_NOTE})),
    }
    for field, (expected, actual) in facts.items():
        if expected != actual:
            raise _disagreement(target, field, expected, actual)
    notes = (_STACK_NOTE, _PROPERTY_NOTE) if target.image_suffix is not None else (_PROPERTY_NOTE,)
    kept = [sections[name] for name in notes if name in sections]
    if target.attributes:
        kept.append(_Section(target.attributes.section, target.attributes.sh_type, 0, 1, target.attributes.contents))
    return _write(target, encoding, kept)


def _read(target: Target, raw: bytes) -> Iterator[_Section]:
    """Yield the sections of LLVM's object, after its file header is found to be the literal's."""
    is_64 = target.pointer_width == 64
    order = "<" if target.byte_order == "little" else ">"
    word = "Q" if is_64 else "I"
    ident = elf.ELFMAG + bytes((
        elf.ELFCLASS64 if is_64 else elf.ELFCLASS32,
        elf.ELFDATA2LSB if target.byte_order == "little" else elf.ELFDATA2MSB,
        elf.EV_CURRENT, target.ei_osabi,
    ))  # fmt: skip
    if raw[:8] != ident:
        raise _disagreement(target, "e_ident", ident.hex(" "), raw[:8].hex(" "))
    fields = Struct(f"{order}HHI3{word}I6H").unpack_from(raw, 16)
    _, e_machine, _, _, _, e_shoff, e_flags, *_, e_shnum, e_shstrndx = fields
    if e_machine != target.e_machine:
        raise _disagreement(target, "e_machine", target.e_machine, e_machine)
    if e_flags != target.e_flags_object:
        raise _disagreement(target, "e_flags_object", f"{target.e_flags_object:#x}", f"{e_flags:#x}")
    shdr = Struct(f"{order}2I4{word}2I2{word}")
    headers = [elf.Shdr(*shdr.unpack_from(raw, e_shoff + index * shdr.size)) for index in range(e_shnum)]
    names = headers[e_shstrndx].sh_offset
    for header in headers:
        start = names + header.sh_name
        yield _Section(
            raw[start : raw.index(b"\0", start)].decode("ascii"),
            header.sh_type,
            header.sh_flags,
            header.sh_addralign,
            raw[header.sh_offset : header.sh_offset + header.sh_size],
        )


def _write(target: Target, encoding: elf.Encoding, kept: list[_Section]) -> bytes:
    strings = elf.StringTable()
    offset = encoding.ehdr_size
    body = b""
    headers = [elf.Shdr(0, elf.SHT_NULL, 0, 0, 0, 0, sh_addralign=0)]

    def add(section: _Section, **fields: int) -> None:
        nonlocal body
        body += bytes(-(offset + len(body)) % section.sh_addralign)
        headers.append(
            elf.Shdr(
                strings.add(section.name.encode()),
                section.sh_type,
                section.sh_flags,
                0,
                offset + len(body),
                len(section.contents),
                sh_addralign=section.sh_addralign,
                **fields,
            )
        )
        body += section.contents

    for section in kept:
        add(section)
    strtab = len(kept) + 2
    symtab = _Section(".symtab", elf.SHT_SYMTAB, 0, encoding.word_size, bytes(encoding.sym_size))
    add(symtab, sh_link=strtab, sh_info=1, sh_entsize=encoding.sym_size)
    strings.add(b".strtab")  # the table names itself, so its text must be complete before it is placed
    add(_Section(".strtab", elf.SHT_STRTAB, 0, 1, strings.data()))
    body += bytes(-(offset + len(body)) % encoding.word_size)
    ehdr = elf.Ehdr(
        elf.ET_REL,
        target.e_machine,
        target.e_flags_object,
        e_shoff=offset + len(body),
        e_shnum=len(headers),
        e_shstrndx=strtab,
        ei_osabi=target.ei_osabi,
    )
    return encoding.ehdr(ehdr) + body + b"".join(map(encoding.shdr, headers))


def _type_and_flags(section: _Section | None) -> tuple[int, int] | None:
    return section and (section.sh_type, section.sh_flags)


def _disagreement(target: Target, field: str, expected: object, actual: object) -> TargetError:
    return TargetError(
        "LLVM's object is not what the target says",
        where=f"target {target.name} ({target.llvm_triple}): {field}",
        expected=expected,
        actual=actual,
        hint="correct the target's literal, or install the llvmlite that this version was tested with",
    )


def regenerate() -> None:
    """Write the stub of every ELF target into the package's folder, and remove those of targets that are gone."""
    import os

    from emitter import targets

    if llvm_major() != LLVM_MAJOR:
        raise SystemExit(f"LLVM {llvm_major()} is installed, LLVM_MAJOR in emitter/llvm.py says {LLVM_MAJOR}")
    os.makedirs(targets.STUBS, exist_ok=True)
    elf_targets = (target for target in targets.describe_all() if target.object_format == "elf")
    wanted = {f"{target.name}.o": emit_stub(target) for target in elf_targets}
    for entry in set(os.listdir(targets.STUBS)) - wanted.keys():
        os.unlink(os.path.join(targets.STUBS, entry))
    for entry, stub in wanted.items():
        with open(os.path.join(targets.STUBS, entry), "wb") as file:
            file.write(stub)


if __name__ == "__main__":
    regenerate()
