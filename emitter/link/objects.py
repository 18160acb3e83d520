"""What the objects of code define and want: read through `emitter.inspect`, for every format alike."""

from __future__ import annotations

import re

from emitter.errors import FormatError, InputError
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from emitter.inspect.report import Reader, Report
    from emitter.targets._base import Target

__all__ = ["CodeObject", "read_objects"]


_SLIM_LTO = "__gnu_lto_slim"  # what GCC defines in an object for its linker plugin alone
# Microsoft, "/EXPORT": directives to the linker, as compilers write them for __declspec(dllexport).
_EXPORT = re.compile(rb"[/-]export:\"?([^\s\",]+)\"?(,data)?", re.IGNORECASE)
_CONSTRUCTORS = (".ctors", ".dtors", ".CRT$XC", ".CRT$XI", ".CRT$XT")


class CodeObject(NamedTuple):
    """An object and its global names, as C has them. `member` says that it is of an archive: taken if it is needed."""

    path: str
    data: bytes
    member: bool
    functions: frozenset[str]  # defined here, of default visibility
    defined: frozenset[str]
    undefined: frozenset[str]  # weak ones are not among them
    weak: frozenset[str] = frozenset()  # undefined, and zero if nothing defines them
    symbols: tuple[str, ...] = ()  # those that are defined, as the object has them
    constructors: str = ""  # the section of functions to be called at loading, where linkers differ about it
    exports: tuple[tuple[str, bool], ...] = ()  # of COFF: what it exports by itself, and whether that is data


def read_objects(path: str, data: bytes, target: Target, kind: str) -> list[CodeObject]:
    """Return the object in `data`, or those of an archive; `kind` is "object" or "archive".

    Raises InputError for an object of another machine, byte order, width or format, or that is none; FormatError for a
    broken one.
    """
    from emitter.inspect import recognise
    from emitter.inspect.coff import ImportObject
    from emitter.inspect.view import View

    with recognise(View.of_bytes(data, path)) as artefact:
        if kind == "object":
            _check_system(path, target, artefact.reader)
            return [_read(path, data, False, target, artefact.reader.report() if artefact.reader else None)]
        found = []
        for member in artefact.objects():
            if member.error is not None or member.reader is None:
                raise member.error or InputError("a member is no object", where=member.where)
            if isinstance(member.reader, ImportObject):
                raise InputError("this is an import library, not code", where=path, hint="use it with -L and -l")
            _check_system(member.where, target, member.reader)
            view = member.view
            inside = view.read(0, view.size, "the member")
            found.append(_read(member.where, inside, True, target, member.reader.report()))
        return found


def _read(path: str, data: bytes, member: bool, target: Target, report: Report | None) -> CodeObject:
    if report is None:
        raise InputError("this is no object", where=path)
    _check_platform(path, target, report)
    if report.faults:
        raise FormatError(f"{report.faults[0].part} cannot be read: {report.faults[0].error}", where=path)
    if any(one.name == _SLIM_LTO for one in report.symbols()):
        raise InputError(
            "the object holds no code, only GCC's own form of it (LTO)",
            where=path,
            hint="compile it without -flto, or with -ffat-lto-objects",
        )
    functions: set[str] = set()
    defined: set[str] = set()
    undefined: set[str] = set()
    weak: set[str] = set()
    # Symbols of Mach-O do not say what they are; sections of code do.
    code = {one.number for one in report.sections if "PURE_INSTRUCTIONS" in one.flags}
    symbols: dict[str, None] = {}
    prefix = target.symbol_prefix
    for symbol in report.symbols():
        if symbol.binding == "local" or not symbol.name:
            continue
        name = symbol.name.removeprefix(prefix)
        if symbol.place == "undefined":
            (weak if symbol.binding == "weak" else undefined).add(name)
        else:
            defined.add(name)
            symbols[symbol.name] = None
            is_function = symbol.type == "function" or symbol.section in code
            if is_function and symbol.visibility in ("default", "protected", ""):
                functions.add(name)
    _check_abi(path, target, report, has_code=bool(functions))
    # A name may stand in two tables.
    return CodeObject(
        path,
        data,
        member,
        frozenset(functions),
        frozenset(defined),
        frozenset(undefined) - frozenset(defined),
        frozenset(weak) - frozenset(defined),
        tuple(symbols),
        next((one.name for one in report.sections if one.size and one.name.startswith(_CONSTRUCTORS)), ""),
        tuple(
            (name.decode(errors="replace").removeprefix(prefix), bool(is_data))
            for one in report.sections
            if one.name == ".drectve"
            for name, is_data in _EXPORT.findall(data[one.offset : one.offset + one.file_size])
        ),
    )


def _check_platform(path: str, target: Target, report: Report) -> None:
    identity = report.identity
    machine = {
        "elf": target.e_machine,
        "macho": target.macho.cputype if target.macho else None,
        "coff": target.coff.machine if target.coff else None,
    }[target.object_format]
    for what, expected, actual in (
        ("the format", target.object_format, identity.format),
        ("the machine", machine, identity.machine_code),
        ("the byte order", target.byte_order, identity.byte_order or target.byte_order),
        ("the width of pointers", target.pointer_width, identity.pointer_width or target.pointer_width),
    ):
        if expected != actual:
            raise InputError(
                f"{what} of this object is not that of {target.name}",
                where=path,
                expected=expected,
                actual=f"{actual} ({identity.machine})",
                hint="give an object for the target",
            )


def _check_system(path: str, target: Target, reader: Reader | None) -> None:
    """Raise InputError for an object of another system of Apple's, or of one that is not told, as of old compilers."""
    from emitter.inspect.macho import MachOFile
    from emitter.inspect.macho_names import PLATFORMS

    if target.macho is None or not isinstance(reader, MachOFile):
        return
    found = [one.platform for one in reader.build_versions]
    if found != [target.macho.platform]:
        raise InputError(
            f"the system of this object is not that of {target.name}",
            where=path,
            expected=PLATFORMS[target.macho.platform],
            actual=", ".join(PLATFORMS.get(one, str(one)) for one in found) or "none (there is no LC_BUILD_VERSION)",
            hint="compile it for the target",
        )


def _check_abi(path: str, target: Target, report: Report, *, has_code: bool) -> None:
    """Raise InputError for code that passes arguments in other registers: some linkers join it in silence."""
    from emitter import targets
    from emitter.inspect import recognise
    from emitter.inspect.view import View

    if target.object_format != "elf":
        return
    with recognise(View.of_bytes(targets.stub(target), "the stub")) as own:
        reader = own.reader
        expected = reader.report().identity.abi.partition(",")[0] if reader is not None else ""
    actual = report.identity.abi.partition(",")[0]
    # On Arm an object that does not speak of floating point passes it in integer registers.
    silent = actual == "" and (expected != "hard float" or not has_code)
    if expected and actual != expected and not silent:
        raise InputError(
            f"the object passes arguments in other registers than {target.name}",
            where=path,
            expected=expected,
            actual=actual or "soft float",
            hint="compile it with the target's ABI (-mabi, -mfloat-abi)",
        )
