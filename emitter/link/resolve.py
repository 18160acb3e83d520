"""Who gives what the code wants: tensors, the pack, a library; or nobody, an error before anything is linked."""

from __future__ import annotations

import os
from heapq import heappop, heappush

from emitter.errors import InputError, UsageError, shown
from emitter.link.libraries import Library, library_of, offers
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from emitter.compile import Variable
    from emitter.link.objects import CodeObject
    from emitter.model import TensorSymbol
    from emitter.targets._base import Target

__all__ = ["Wants", "needed_members", "resolve"]

# What linkers define themselves where it is asked for.
_LINKERS = frozenset({
    "_GLOBAL_OFFSET_TABLE_", "_DYNAMIC", "__ehdr_start", "__executable_start", ".TOC.",
    "__ImageBase", "__image_base__", "_mh_dylib_header", "dyld_stub_binder",
})  # fmt: skip
# What destructors of static objects are registered with: Apple's linkers define it, elsewhere the start-up code of GCC.
_DSO_HANDLE = "__dso_handle"
# Microsoft's compilers, and LLVM for them, ask for this where floating point is used; it only has to be there.
FLOAT_MARK = "_fltused"
_DESCRIPTOR = "_descriptor"  # behind the name of the pack

_LISTED = 12
_RUNTIME_STEMS = ("__aeabi_", "__div", "__mod", "__udiv", "__umod", "__mul", "__fix", "__float", "__extend", "__trunc",
                  "__ashl", "__lshr", "__ashr", "__chkstk", "___chkstk", "__rt_", "__popcount")  # fmt: skip


class Wants(NamedTuple):
    """What is wanted of whom. `paths` are real libraries (-L), `libraries` those that a stand-in is linked for."""

    tensors: Sequence[TensorSymbol]
    pack: bool  # by the names of the pack itself
    descriptor: bool
    float_mark: bool
    libraries: Mapping[Library, Sequence[str]]
    paths: Sequence[str]
    allowed: Sequence[str]


def needed_members(objects: Sequence[CodeObject]) -> list[CodeObject]:
    """Return the objects without those members of archives that nothing asks for, as linkers choose them.

    Of the members that define something that is wanted and not defined yet, the first is taken, again and again.
    """
    chosen = [one for one in objects if not one.member]
    members = [one for one in objects if one.member]
    if not chosen:
        return members  # archives alone: everything is what was asked for
    holders: dict[str, list[int]] = {}
    for number, one in enumerate(members):
        for name in one.defined:
            holders.setdefault(name, []).append(number)
    wanted: set[str] = set()
    defined = {name for one in chosen for name in one.defined}
    candidates: list[int] = []  # a heap of members that may be needed

    def want(names: Iterable[str]) -> None:
        for name in names:
            if name not in wanted:
                wanted.add(name)
                for number in holders.get(name, ()):
                    heappush(candidates, number)

    for one in chosen:
        want(one.undefined)
    taken: set[int] = set()
    while candidates:
        number = heappop(candidates)
        one = members[number]
        if number not in taken and any(name in wanted and name not in defined for name in one.defined):
            taken.add(number)
            chosen.append(one)
            defined |= one.defined
            want(one.undefined)
    return chosen


def resolve(
    target: Target,
    objects: Sequence[CodeObject],
    variables: Mapping[str, Variable],
    *,
    symbol: str,
    tensors: Sequence[TensorSymbol],
    libs: Sequence[str],
    folders: Sequence[str],
    allowed: Sequence[str],
    linked: bool,
) -> Wants:
    """Find out who gives each name that `objects` leave undefined. `tensors` are the symbols that all tensors have.

    `linked` is False for outputs that others link: their C library is not our affair. Raises InputError for a variable
    of another size than its tensor and for names that nobody gives, UsageError for a library that is not known, and for
    names that a DLL would leave undefined.
    """
    defined = {name for one in objects for name in one.defined}
    wanted = {name: one.path for one in reversed(objects) for name in one.undefined if name not in defined}
    by_name = {one.name: one for one in tensors}
    # What is declared weak may be left out, but not what is there, nor a variable that is meant to be a tensor.
    pack_names = {symbol, f"{symbol}_size", "emitter_pack"}
    given = by_name.keys() | pack_names | {f"{symbol}_descriptor"}
    wanted |= {name: one.path for one in objects for name in one.weak if name in given and name not in defined}
    for name in defined & (by_name.keys() | {symbol, f"{symbol}_size", "emitter_pack"}):
        raise InputError(
            "the code defines what is a name of the constants",
            where=next(one.path for one in objects if name in one.defined),
            actual=name,
            hint="declare it external, or choose another --name or --symbol-prefix",
        )
    for name, variable in variables.items():
        tensor = by_name.get(name)
        if tensor is not None and variable.size not in (0, tensor.size):
            raise InputError(
                "a tensor has another size than the variable of the code",
                where=f"{name} (tensor {shown(tensor.tensor)})",
                expected=f"{tensor.size} bytes",
                actual=f"{variable.size} bytes, {variable.type}",
            )
    if allowed and linked and target.object_format == "coff":
        raise UsageError(
            "a DLL leaves nothing to the program that loads it",
            where=f"--allow-undefined {shown(allowed[0])}",
            hint="give the code that defines it, or let the program hand in its address",
        )
    real, known = _libraries(target, libs, folders)
    used: dict[Library, list[str]] = {}
    referenced, missing, leaves = [], [], []
    for name in sorted(wanted):
        library = next((one for one in known if name in one.offers), None)
        if name in by_name:
            referenced.append(by_name[name])
        elif library is not None:
            used.setdefault(library, []).append(name)
        elif name in allowed:
            leaves.append(name)
        elif name == _DSO_HANDLE and target.object_format == "macho":
            continue
        elif name not in pack_names | _LINKERS | {f"{symbol}_descriptor", FLOAT_MARK}:
            missing.append(name)
    if missing and linked and not real:
        raise _missing(target, missing, wanted, variables, by_name, libs)
    if not linked:
        strange = [name for name in missing if name in variables]
        if strange:
            raise _missing(target, strange, wanted, variables, by_name, libs)
    return Wants(
        referenced,
        bool(wanted.keys() & pack_names),
        f"{symbol}_descriptor" in wanted,
        FLOAT_MARK in wanted,
        used,
        real,
        leaves,
    )


def _libraries(target: Target, libs: Sequence[str], folders: Sequence[str]) -> tuple[list[str], list[Library]]:
    """Return the paths of the libraries that are in the folders, and those that a stand-in is linked for."""
    real, known = [], []
    suffixes = {"elf": (".so", ".a"), "macho": (".tbd", ".dylib", ".a"), "coff": (".lib", ".dll.a", ".a")}
    names = [f"{prefix}{{}}{suffix}" for suffix in suffixes[target.object_format] for prefix in ("lib", "")]
    for letters in libs:
        paths = (os.path.join(folder, name.format(letters)) for folder in folders for name in names)
        path = next(filter(os.path.isfile, paths), None)
        library = library_of(target, letters)
        if path is not None:
            real.append(path)
        elif library is not None:
            known.append(library)
        else:
            raise UsageError(
                "there is no such library",
                where=f"-l {shown(letters)}",
                expected=f"one in a folder of -L, or one of {target.name} that is known by its names: m, c",
                actual=f"none in {', '.join(folders)}" if folders else "no -L",
            )
    return real, known


def _other_name(name: str, tensors: Mapping[str, TensorSymbol]) -> str | None:
    """Return the --name with which the pack's descriptor or a tensor would be called `name`; None if there is none."""
    if name.endswith(_DESCRIPTOR):
        return name.removesuffix(_DESCRIPTOR) or None
    for symbol in tensors:
        own, sign, tail = symbol.partition("_t_")
        head = name.removesuffix(sign + tail)
        if sign and head and head not in (name, own):
            return head
    return None


def _missing(  # noqa: PLR0917 - what there is to say of a name
    target: Target,
    missing: Sequence[str],
    wanted: Mapping[str, str],
    variables: Mapping[str, Variable],
    tensors: Mapping[str, TensorSymbol],
    libs: Sequence[str],
) -> InputError:
    from difflib import get_close_matches

    said, hints = [], []
    for name in missing[:_LISTED]:
        near = get_close_matches(name, tensors, n=2) if name in variables or not wanted else []
        letters = offers(target, name)
        if near:
            said.append(f"{name} (near {', '.join(near)})")
        elif letters is not None:
            said.append(f"{name} (-l {letters})")
            if letters not in libs:
                hints.append(f"add -l {letters}")
        else:
            said.append(name)
            if name == _DSO_HANDLE:
                hints.append("destructors of static objects need GCC's crtbeginS.o and crtendS.o as inputs")
            elif name.startswith(_RUNTIME_STEMS):
                hints.append("give the run-time library of the compiler (libgcc.a, libclang_rt.builtins.a) as an input")
            elif name in variables and _other_name(name, tensors) is None:
                some = ", ".join(list(tensors)[:3])
                hints.append(f"the tensors' symbols are {some}; --symbol-prefix changes them" if some else "")
        named = _other_name(name, tensors)
        if named is not None:
            hints.insert(0, f"add --name {named}")
    if len(missing) > _LISTED:
        said.append(f"and {len(missing) - _LISTED} more")
    if target.object_format != "coff":
        hints.append("--allow-undefined NAME leaves one to the program")
    return InputError(
        "no tensor, object or library gives what the code refers to",
        where=", ".join(dict.fromkeys(wanted[name] for name in missing[:_LISTED])),
        actual=", ".join(said),
        hint="; ".join(dict.fromkeys(filter(None, hints))),
    )
