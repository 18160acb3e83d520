"""What `emitter targets` prints."""

from __future__ import annotations

from emitter.errors import TargetError
from emitter.records import TYPE_CHECKING
from emitter.targets import _names, describe_all, resolve

if TYPE_CHECKING:
    from emitter.targets._base import Property, Target

__all__ = ["TIERS", "formats", "spellings", "targets_json", "targets_text"]

SCHEMA = "emitter.targets/1"

TIERS = {
    1: "programs load and run its artefacts in CI",
    2: "a linker of its platform takes its artefacts in CI",
    3: "independent readers check the structure of its artefacts in CI",
}

_FORMATS = {"elf": "ELF", "macho": "Mach-O", "coff": "COFF and PE"}

# GNU properties: the name of a pr_type, and what its bits stand for, from bit 0 on (the psABIs of x86 and AArch64).
_PROPERTIES = {
    0xC0000000: ("GNU_PROPERTY_AARCH64_FEATURE_1_AND", ("BTI", "PAC", "GCS")),
    0xC0000002: ("GNU_PROPERTY_X86_FEATURE_1_AND", ("IBT", "SHSTK")),
}


def targets_text(name: str | None) -> str:
    """Return a table of all targets, or the facts of the one with the name `name` (in any spelling).

    Raises TargetError for a name that does not resolve.
    """
    if name is None:
        rows = [("TARGET", "TIER", "DESCRIPTION")]
        rows += [(target.name, str(target.tier), target.description) for target in describe_all()]
        width = max(len(row[0]) for row in rows)
        table = [f"{row[0]:<{width}}  {row[1]:<4}  {row[2]}" for row in rows]
        tiers = [f"tier {tier}: {meaning}" for tier, meaning in TIERS.items()]
        return "\n".join([*table, "", *tiers, "`emitter targets NAME` shows one, under any of its names."])
    resolved = resolve(name)
    target = resolved.target
    facts: dict[str, object] = {
        "description": target.description,
        "tier": f"{target.tier} ({TIERS[target.tier]})",
        "LLVM triple": resolved.triple,
        "also written": ", ".join(spellings(target)),
        "ABI": target.psabi,
        "version": f"{target.version_kind} {resolved.version}" if resolved.version else None,
        "format": f"{_FORMATS[target.object_format]}, {target.pointer_width} bits, {target.byte_order}-endian",
        **_format_facts(target),
        "writes": ", ".join(formats(target)),
        "largest page": f"{target.max_page_size} bytes" if target.image_suffix else None,
        "reach of code": f"{_gib(target.reach)}: the distance to data that code spans by default",
        "largest library": _gib(target.max_image_size) if target.max_image_size else None,
        "symbols begin with": target.symbol_prefix,
        "LLVM's CPU": f"{target.cpu} {target.features}".strip(),
        "LLVM's ABI": target.abi_name,
        "code model": target.code_model,
        "properties": "; ".join(_property_text(p) for p in target.properties),
        "attributes": target.attributes and target.attributes.section,
        "emulators": ", ".join(target.emulators),
        "GPU programs": "carried" if target.device_code else None,
    }
    shown = {key: value for key, value in facts.items() if value not in (None, "")}
    width = max(map(len, shown))
    return "\n".join([target.name, *(f"  {key:<{width}}  {value}" for key, value in shown.items())])


def targets_json(name: str | None) -> dict[str, object]:
    """Return the facts of all targets, or of one, under the keys of the schema `emitter.targets/1`.

    The keys of a target are the fields of `emitter.targets._base.Target`; bytes are hexadecimal. With a name, `version`
    is the one that it carries, or null.
    """
    if name is None:
        return {"schema": SCHEMA, "targets": [_facts(target) for target in describe_all()]}
    resolved = resolve(name)
    return {
        "schema": SCHEMA,
        "typed": name,
        "triple": resolved.triple,
        "version": resolved.version,
        "targets": [_facts(resolved.target)],
    }


def formats(target: Target) -> list[str]:
    """Return the suffixes of the files that are written for a target, import libraries included."""
    suffixes = (target.object_suffix, target.archive_suffix, target.image_suffix, target.implib_suffix, ".pack")
    return [suffix for suffix in suffixes if suffix is not None]


def _format_facts(target: Target) -> dict[str, object]:
    """Return what files of the target say of themselves, by the names of the format's specification."""
    if target.macho:
        version = f"{target.macho.minos}, made with the rules of SDK {target.macho.sdk}"
        return {"cputype": f"{target.macho.cputype:#x}", "platform": target.macho.platform, "oldest system": version}
    if target.coff:
        return {
            "Machine": f"{target.coff.machine:#x}",
            "DllCharacteristics": f"{target.coff.dll_characteristics:#x}",
            "ImageBase": f"{target.coff.image_base:#x}",
        }
    flags = f"{target.e_flags_object:#x} in objects"
    if target.image_suffix:
        flags += f", {target.e_flags_image:#x} in libraries"
    return {"e_machine": target.e_machine, "e_flags": flags}


def _gib(size: int) -> str:
    return f"{size >> 30} GiB" if size % (1 << 30) == 0 else f"{size} bytes"


def _property_text(one: Property) -> str:
    """Return what a property says: which protections of a program stay on when these data are linked into it."""
    name, bits = _PROPERTIES.get(one.pr_type, (f"{one.pr_type:#x}", ()))
    kept = [bit for number, bit in enumerate(bits) if one.value >> number & 1]
    return f"{name} = {one.value:#x}" + (f": programs that link it keep {', '.join(kept)}" if kept else "")


def _facts(target: Target) -> dict[str, object]:
    facts = target._asdict()
    facts["properties"] = [{"pr_type": p.pr_type, "value": p.value} for p in target.properties]
    if target.attributes:
        facts["attributes"] = {
            "section": target.attributes.section,
            "sh_type": target.attributes.sh_type,
            "contents": target.attributes.contents.hex(),
            "p_type": target.attributes.p_type,
        }
    if target.large_data:
        facts["large_data"] = {"section": target.large_data.section, "sh_flags": target.large_data.sh_flags}
    facts["macho"] = target.macho and target.macho._asdict()
    facts["coff"] = target.coff and target.coff._asdict()
    return facts | {"spellings": spellings(target)}


def spellings(target: Target) -> list[str]:
    """Return other names of a target, of those that `emitter targets` shows."""

    def stands_for(spelling: str) -> bool:
        try:
            return _names.parse(spelling)[0] == target.name
        except TargetError:
            return False

    return [spelling for spelling in _names.SPELLINGS if stands_for(spelling)]
