"""The types that C has for the functions of a module: from its debug information, or else from types that say enough.

Source: LLVM Language Reference, "Specialized Metadata Nodes" and "Parameter Attributes"; DWARF 5 names the encodings.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["signatures"]

_SCALARS = {
    "void": "void", "float": "float", "double": "double",
    "i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t",
}  # fmt: skip
_BASIC = {
    ("DW_ATE_float", 32): "float",
    ("DW_ATE_float", 64): "double",
    ("DW_ATE_signed_char", 8): "char",
    ("DW_ATE_unsigned_char", 8): "uint8_t",
    **{("DW_ATE_signed", bits): f"int{bits}_t" for bits in (8, 16, 32, 64)},
    **{("DW_ATE_unsigned", bits): f"uint{bits}_t" for bits in (8, 16, 32, 64)},
}
_THROUGH = {"DW_TAG_typedef", "DW_TAG_volatile_type", "DW_TAG_restrict_type"}
_MAX_DEPTH = 32  # of nested types: metadata may be circular

_NODE = re.compile(r"^!(\d+) = (?:distinct )?(!\w+\(.*\)|!\{.*\})$", re.MULTILINE)
_FIELD = r"\b{}: (?:!(\d+)|([\w.]+))"
_DEFINITION = re.compile(r'^define (.*?)@("[^"]*"|[\w.$-]+)\((.*)$', re.MULTILINE)
# Attributes and calling conventions that C cannot say.
_NOT_OF_C = re.compile(r"\b(?:(?!ccc\b)\w*cc|cc \d+|sret|byval|inalloca|preallocated|nest|swiftself|inreg)\b")


def signatures(text: str, names: Iterable[str]) -> dict[str, list[str] | None]:
    """Return for each function the C types of its result and its arguments, or None where the IR does not say them.

    `text` is a module as LLVM prints it. Structures behind pointers are `void`.
    """
    wanted = set(names)
    nodes = dict(_NODE.findall(text))
    found: dict[str, list[str] | None] = dict.fromkeys(sorted(wanted))
    for before, quoted, after in _DEFINITION.findall(text):
        name = quoted.strip('"')
        if name in wanted:
            found[name] = _of_debug(after, nodes) or _of_types(before, after)
    return found


def _of_debug(after: str, nodes: Mapping[str, str]) -> list[str] | None:
    attached = re.search(r"!dbg !(\d+) \{?", after.rpartition(")")[2]) or re.search(r"!dbg !(\d+)", after)
    if not attached:
        return None
    function = _field(nodes.get(attached.group(1), ""), "type")
    listed = _field(nodes.get(function or "", ""), "types")
    items = re.findall(r"null|!(\d+)", nodes.get(listed or "", "").removeprefix("!")) if listed else []
    if not items:
        return None
    types = [
        ("void" if number == 0 else None) if not item else _c_type(item, nodes) for number, item in enumerate(items)
    ]
    return None if None in types else [one for one in types if one is not None]


def _field(node: str, name: str) -> str | None:
    found = re.search(_FIELD.format(name), node)
    return (found.group(1) or found.group(2)) if found else None


def _c_type(number: str, nodes: Mapping[str, str], depth: int = 0) -> str | None:
    node = nodes.get(number, "")
    if depth > _MAX_DEPTH:
        return None
    if node.startswith("!DIBasicType"):
        return _BASIC.get((_field(node, "encoding") or "", int(_field(node, "size") or 0)))
    tag, base = _field(node, "tag"), _field(node, "baseType")
    if tag == "DW_TAG_pointer_type":
        if base is None or base == "null":
            return "void *"
        inner = _c_type(base, nodes, depth + 1)
        if inner is None:
            return "const void *" if _field(nodes.get(base, ""), "tag") == "DW_TAG_const_type" else "void *"
        return f"{inner}{'' if inner.endswith('*') else ' '}*"
    if base is None or base == "null":
        return "const void" if tag == "DW_TAG_const_type" else None
    if tag in _THROUGH:
        return "size_t" if re.search(r'name: "size_t"', node) else _c_type(base, nodes, depth + 1)
    if tag == "DW_TAG_const_type":
        inner = _c_type(base, nodes, depth + 1)
        if inner is None:
            return None
        return f"{inner}const" if inner.endswith("*") else inner if inner.startswith("const ") else f"const {inner}"
    return None


def _of_types(before: str, after: str) -> list[str] | None:
    """Return what the types of the IR alone say: integers are signed unless they are extended by zeros."""
    parameters = _parameters(after)
    if parameters is None or _NOT_OF_C.search(before):
        return None
    words = before.split()
    result = _scalar(words[-1], before) if words else None
    types = [result, *(_scalar(one.split()[0], one) for one in parameters)]
    return None if None in types else [one for one in types if one is not None]


def _parameters(after: str) -> list[str] | None:
    """Split the text behind the opening parenthesis into parameters; None for those that C cannot say."""
    depth, start, found = 1, 0, []
    for at, character in enumerate(after):
        depth += {"(": 1, "{": 1, "[": 1, "<": 1, ")": -1, "}": -1, "]": -1, ">": -1}.get(character, 0)
        if depth == 0 or (depth == 1 and character == ","):
            found.append(after[start:at].strip())
            start = at + 1
        if depth == 0:
            break
    found = [one for one in found if one]
    return None if any(one == "..." or _NOT_OF_C.search(one) for one in found) else found


def _scalar(kind: str, attributes: str) -> str | None:
    if kind == "ptr":
        return "const void *" if re.search(r"\breadonly\b", attributes) else "void *"
    found = _SCALARS.get(kind)
    unsigned = found is not None and kind.startswith("i") and re.search(r"\bzeroext\b", attributes)
    return f"u{found}" if unsigned else found
