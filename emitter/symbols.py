"""What an object holds for a pack: its sections and symbols, their names, and where far data goes.

The contract that these symbols keep is docs/symbols.md.
"""

from __future__ import annotations

from emitter.elf import PACK_NOTE_DESC, Encoding
from emitter.errors import LayoutError, TargetError, UsageError, shown
from emitter.layout import identifier
from emitter.model import ObjectModel, Reference, Section, Symbol, TensorSymbol, Window
from emitter.pack.format import VERSION_MAJOR, VERSION_MINOR
from emitter.pack.plan import check_address_space
from emitter.records import TYPE_CHECKING
from emitter.sections import FATBIN_SECTION, pack_section, size_section

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from emitter.model import Visibility
    from emitter.options import LargeDataChoice
    from emitter.pack.plan import PackPlan
    from emitter.package import Tensor
    from emitter.targets._base import Target

__all__ = [
    "DEFAULT_REGION",
    "LARGE_DATA_BOUND",
    "check_names",
    "check_symbols",
    "linker_script",
    "pack_model",
    "tensor_symbols",
    "use_large_data",
]

# Half of what code spans to reach data in the small code model: the other half is for the rest of the program.
LARGE_DATA_BOUND = 1 << 30

# Most boards' scripts call the memory that keeps programs so.
DEFAULT_REGION = "FLASH"
# A board's script says what becomes of these, usually with all that begins with the name and a dot.
_IN_EVERY_SCRIPT = (".rodata", ".rdata", ".srodata")

_PROPOSED = 60  # characters of a name that is proposed

# Words that cannot be declared in C23 or C++23 (a header declares the symbols), and symbols that the start-up code, the
# linker or an emitted library define themselves.
_KEYWORDS = frozenset({
    "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break", "case", "catch", "char",
    "char8_t", "char16_t", "char32_t", "class", "co_await", "co_return", "co_yield", "compl", "concept", "const",
    "const_cast", "consteval", "constexpr", "constinit", "continue", "decltype", "default", "delete", "do", "double",
    "dynamic_cast", "else", "enum", "explicit", "export", "extern", "false", "float", "for", "friend", "goto", "if",
    "inline", "int", "long", "mutable", "namespace", "new", "noexcept", "not", "not_eq", "nullptr", "operator", "or",
    "or_eq", "private", "protected", "public", "register", "reinterpret_cast", "requires", "restrict", "return",
    "short", "signed", "sizeof", "static", "static_assert", "static_cast", "struct", "switch", "template", "this",
    "thread_local", "throw", "true", "try", "typedef", "typeid", "typename", "typeof", "typeof_unqual", "union",
    "unsigned", "using", "virtual", "void", "volatile", "wchar_t", "while", "xor", "xor_eq", "_Alignas", "_Alignof",
    "_Atomic", "_BitInt", "_Bool", "_Complex", "_Decimal128", "_Decimal32", "_Decimal64", "_Generic", "_Imaginary",
    "_Noreturn", "_Static_assert", "_Thread_local",
})  # fmt: skip
_DEFINED_ELSEWHERE = frozenset({
    "main", "_start", "_init", "_fini", "_end", "_edata", "_etext", "__bss_start", "__dso_handle", "__ehdr_start",
    "_DYNAMIC", "_GLOBAL_OFFSET_TABLE_", "emitter_pack",
})  # fmt: skip


def tensor_symbols(tensors: Iterable[Tensor], pack: PackPlan, prefix: str) -> list[TensorSymbol]:
    """Return a symbol for each tensor: `prefix` and an identifier made from its name, at its payload in `pack`."""
    symbols = []
    for tensor in tensors:
        payload = pack.payloads[pack.index_of[tensor.name]]
        symbols.append(TensorSymbol(prefix + identifier(tensor.name), tensor.name, payload.offset, tensor.nbytes))
    return symbols


def check_symbols(name: str, symbols: Iterable[TensorSymbol] = ()) -> None:
    """Check all final names of an output that holds the pack `name`; see `check_names`."""
    check_names([
        (name, "the name"),
        (f"{name}_size", f"the size of {name}"),
        *((symbol.name, f"tensor {shown(symbol.tensor)}") for symbol in symbols),
    ])  # fmt: skip


def check_names(symbols: Iterable[tuple[str, str]]) -> None:
    """Check final names against one another; each comes with the source that it was made from.

    Raises LayoutError for a name that C or C++ cannot declare, for one that a linker or an emitted library defines
    itself, and for two equal ones, naming both sources.
    """
    sources: dict[str, str] = {}
    for name, source in symbols:
        if identifier(name) != name:
            raise LayoutError(
                "not a C identifier",
                where=f"symbol {shown(name)} of {source}",
                hint=f"choose a name of ASCII letters, digits and _, such as {identifier(name[:_PROPOSED])}",
            )
        if name in _KEYWORDS:
            raise LayoutError(
                "a keyword of C or C++", where=f"symbol {shown(name)} of {source}", hint="choose another name"
            )
        if name in _DEFINED_ELSEWHERE:
            raise LayoutError(
                "a symbol that every program or emitted library defines",
                where=f"symbol {shown(name)} of {source}",
                hint="choose another name",
            )
        if name in sources:
            raise LayoutError(
                f"two symbols would be called {shown(name)}",
                where=source,
                actual=f"the same symbol for {sources[name]}",
                hint="rename one of them, or choose another prefix or name",
            )
        sources[name] = source


def use_large_data(target: Target, total_size: int, choice: LargeDataChoice) -> bool:
    """Return whether `total_size` bytes of payload go into the section for large data.

    "auto" says so above `LARGE_DATA_BOUND` where the target has such a section. Raises TargetError for "always" where
    it has none.
    """
    if choice == "always" and target.large_data is None:
        raise TargetError(
            "the target has no section for large data",
            where=target.name,
            hint="use --section and --linker-script, or emit a shared library",
        )
    if choice == "never" or target.large_data is None:
        return False
    return choice == "always" or total_size > LARGE_DATA_BOUND


def linker_script(target: Target, section: str, *, region: str | None = None) -> str:
    """Return a fragment of a linker script that places `section`.

    Under an operating system it is for -T, and places the section behind everything else, out of the program's way.
    Code and start-up files then keep the distances that they were compiled for; docs/large-data.md says which linkers
    take it, and how far data is reached.

    On bare metal (a target that loads no libraries) the board's own script includes it. It places the section in the
    memory region `region`, by default FLASH, whether or not the program refers to it. Raises LayoutError for a section
    that such scripts take by its name, and UsageError for a region elsewhere.
    """
    if target.image_suffix is None:
        return _region_script(section, region or DEFAULT_REGION)
    if region is not None:
        raise UsageError("--region means nothing for this target", where=target.name, expected="a bare-metal target")
    large = target.large_data
    if large is not None and _is_large(target, section):
        output, inputs = large.section, f"{large.section} {large.section}.*"
    else:
        output, inputs = ".rodata.far", section
    return f"""\
/* SPDX-License-Identifier: 0BSD
   Generated by emitter. Add it to the linker's own script: cc ... -Wl,-T,THIS_FILE
   It places the payload behind .bss, so that all else keeps its distances. */
SECTIONS
{{
  {output} : {{ *({inputs}) }}
}}
INSERT AFTER .bss;
"""


def _region_script(section: str, region: str) -> str:
    # To be included, not one for -T that ends in INSERT: GNU ld wants that before the script that declares the region,
    # and the region declared before it is used.
    for taken in _IN_EVERY_SCRIPT:
        if section == taken or section.startswith(f"{taken}."):
            raise LayoutError(
                "the board's own linker script places sections of this name",
                where=f"--section {shown(section)}",
                hint="choose a name of your own, such as --section .flash_weights",
            )
    return f"""\
/* SPDX-License-Identifier: 0BSD
   Generated by emitter. Say INCLUDE and the name of this file within SECTIONS of the board's linker script.
   It places the payload in the memory region {region} of that script, and keeps it under --gc-sections. */
{section} : {{ KEEP(*({section})) }} > {region} AT > {region}
"""


def _is_large(target: Target, section: str) -> bool:
    large = target.large_data
    return large is not None and (section == large.section or section.startswith(f"{large.section}."))


def pack_model(
    target: Target,
    pack: PackPlan,
    *,
    name: str,
    section: str | None = None,
    visibility: Visibility = "hidden",
    tensor_symbols: Sequence[TensorSymbol] = (),
    retain: bool = False,
    large: bool = False,
) -> ObjectModel:
    """Return the sections and symbols of an object that holds `pack`.

    The symbol `name` is the pack, exactly; `name_size` is its size, an object of pointer width, in a section of its own
    that stands before the payload, so that it stays within reach of code however large the payload is. With `retain`,
    the note `.note.emitter` refers to the pack: under --gc-sections linkers keep notes, and what notes refer to; in
    Mach-O the pack's symbol says it of itself. Raises LayoutError for names that `check_symbols` refuses and for a size
    that a pointer of the target cannot hold.
    """
    size_name = f"{name}_size"
    check_symbols(name, tensor_symbols)
    check_address_space(target, pack.total_size)
    encoding = Encoding(target.pointer_width, target.byte_order)
    word = encoding.word_size
    sections = [
        Section(
            name=size_section(target, name),
            kind="rodata",
            size=word,
            alignment=word,
            data=encoding.words(pack.total_size),
        )
    ]
    references = []
    if retain and target.object_format == "elf":
        note = encoding.pack_note(0, pack.total_size, VERSION_MAJOR, VERSION_MINOR)
        references.append(Reference(section=len(sections), offset=PACK_NOTE_DESC, to=len(sections) + 1))
        sections.append(Section(name=".note.emitter", kind="note", size=len(note), alignment=4, data=note))
    at = len(sections)
    section_name = pack_section(target, name, section=section, large=large)
    sections.append(
        Section(
            name=section_name,
            kind="rodata",
            size=pack.total_size,
            alignment=pack.alignment,
            copies=tuple(pack.payloads),
            holds_pack=True,
            bulk_offset=pack.payload_start,
            large=_is_large(target, section_name),
        )
    )
    symbols = [
        Symbol(name=name, section=at, value=0, size=pack.total_size, visibility=visibility, retain=retain),
        Symbol(name=size_name, section=0, value=0, size=word, visibility=visibility),
    ]
    symbols += (
        Symbol(name=tensor.name, section=at, value=tensor.offset, size=tensor.size, visibility=visibility)
        for tensor in tensor_symbols
    )
    windows = []
    first, end = pack.fatbins
    if target.device_code and end:
        windows.append(Window(FATBIN_SECTION, at, first, end - first, min(first & -first, pack.alignment)))
    return ObjectModel(sections=sections, symbols=symbols, references=references, windows=windows)
