"""Writes what is derived from the tables of the package into documents and loaders/c/emitter.h.

    python docs/generate.py           rewrite the generated parts
    python docs/generate.py --check   exit 1 if one of them is not up to date

A generated part stands between two comments of their own lines, `generated: NAME` and `end of generated: NAME`.
"""

from __future__ import annotations

import os
import re
import struct
import sys
from typing import TYPE_CHECKING

from emitter import dtypes, limits, targets
from emitter.checksum import crc32c
from emitter.pack import format as fmt
from emitter.pack.plan import plan_pack
from emitter.package import Package
from emitter.targets._describe import TIERS, formats, spellings

if TYPE_CHECKING:
    from collections.abc import Callable

    from emitter.package import ByteOrder

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HEADER = os.path.join(ROOT, "loaders", "c", "emitter.h")
FORMAT = os.path.join(ROOT, "docs", "pack-format.md")
LARGE_DATA = os.path.join(ROOT, "docs", "large-data.md")
README = os.path.join(ROOT, "README.md")
VERIFY = os.path.join(ROOT, "docs", "verify.md")
TARGETS = os.path.join(ROOT, "docs", "targets.md")

_C_TYPE = {"u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t", "i64": "int64_t"}
_TABLES = (fmt.PAYLOAD, fmt.TENSOR, fmt.METADATA, fmt.DIMS, fmt.STRINGS)


def c_records() -> str:
    """Return constants and structs of the records, each with a check of its size."""
    constants = [
        ("MAGIC", "{" + ", ".join(f"0x{byte:02x}" for byte in fmt.MAGIC) + "}"),
        ("BYTE_ORDER_MARK", f"0x{fmt.BYTE_ORDER_MARK:08x}u"),
        ("FOREIGN_MARK", f"0x{int.from_bytes(fmt.BYTE_ORDER_MARK.to_bytes(4, 'little'), 'big'):08x}u"),
        ("VERSION_MAJOR", fmt.VERSION_MAJOR),
        ("KNOWN_INCOMPATIBLE", f"{fmt.KNOWN_INCOMPATIBLE}u"),
        *((f"FEATURE_{feature.name.upper()}", f"{1 << feature.bit}u") for feature in fmt.INCOMPATIBLE_FEATURES),
        ("SIDECAR_PINNED", f"{fmt.PINNED}u"),
        ("HEADER_CRC_OFFSET", f"{fmt.HEADER_CRC_OFFSET}u"),
        ("MAX_HEADER", f"{fmt.MAX_HEADER_SIZE}u"),
        ("MAX_TABLES", f"{fmt.MAX_TABLES}u"),
        ("MAX_NAME", f"{fmt.MAX_NAME_BYTES}u"),
        ("MAX_NDIM", f"{fmt.MAX_NDIM}u"),
        ("MAX_ALIGNMENT", f"{fmt.MAX_ALIGNMENT}u"),
        *((f"KIND_{record.name.upper()}", f"{record.kind}u") for record in fmt.RECORDS if record.kind),
        *((f"SIZEOF_{record.name.upper()}", f"{record.size}u") for record in fmt.RECORDS),
    ]
    lines = [f"#define EMITTER0_{name}_ {value}" for name, value in constants]
    for record in fmt.RECORDS:
        if record in (fmt.DIMS, fmt.STRINGS):
            continue  # arrays of numbers and of bytes
        lines += ["", f"/* {record.doc} */", f"struct EMITTER0_MAY_ALIAS_ emitter0_{record.name}_record {{"]
        for field in record.fields:
            extent = f"[{field.count}]" if field.count > 1 else ""
            lines.append(f"    {_C_TYPE[field.type]} {field.name}{extent}; /* {field.doc} */")
        size = f"sizeof(struct emitter0_{record.name}_record)"
        lines += ["};", f"typedef char emitter0_{record.name}_size_[{size} == {record.size} ? 1 : -1];"]
    lines += ["", "/* DLDataTypeCode of DLPack */", "enum emitter0_dtype_code {"]
    codes = [(name, value) for name, value in vars(dtypes).items() if name.isupper() and isinstance(value, int)]
    lines += [f"    EMITTER0_DTYPE_{name} = {value}{',' if name != codes[-1][0] else ''}" for name, value in codes]
    return "\n".join([*lines, "};"])


def c_crc() -> str:
    """Return the table of emitter0_crc_nibble_."""
    rows = []
    for position in range(8):
        row = []
        for nibble in range(16):
            register = nibble
            for _ in range(4 * (position + 1)):
                register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
            row.append(f"0x{register:08x}u")
        rows.append(f"        {{{', '.join(row[:8])},\n         {', '.join(row[8:])}}},")
    return "\n".join(rows)


def c_dtypes() -> str:
    """Return the cases of emitter0_dtype_name."""
    return "\n".join(
        f'    case 0x{row.dtype.code << 8 | row.dtype.bits:x}: return "{row.name}";' for row in dtypes.TABLE
    )


def c_names(header: str) -> str:
    """Return the definitions of the names without a number: of every public name in the header."""
    header = replaced(header, "names", "")
    names = sorted(set(re.findall(r"\b(?:emitter|EMITTER)0_\w*[a-zA-Z0-9]\b", header)))
    private = re.compile(r"emitter0_\w+_record\b|EMITTER0_(?:H|DLPACK)$")
    return "\n".join(f"#define {name.replace('0_', '_', 1)} {name}" for name in names if not private.match(name))


def md_records() -> str:
    """Return a table for each record."""
    lines = []
    for record in fmt.RECORDS:
        kind = f"kind {record.kind}, " if record.kind else ""
        lines += [f"### {record.name} ({kind}{record.size} byte{'s' if record.size > 1 else ''})", "", record.doc, ""]
        lines += ["| offset | type | field | meaning |", "|---:|---|---|---|"]
        offset = 0
        for field in record.fields:
            extent = f"[{field.count}]" if field.count > 1 else ""
            lines.append(f"| {offset} | {field.type}{extent} | `{field.name}` | {field.doc} |")
            offset += field.size
        lines.append("")
    return "\n".join(lines).rstrip()


def md_features() -> str:
    """Return the table of incompatible features."""
    lines = ["| bit | name | meaning |", "|---:|---|---|"]
    lines += [f"| {feature.bit} | {feature.name} | {feature.doc} |" for feature in fmt.INCOMPATIBLE_FEATURES]
    return "\n".join(lines)


def md_dtypes() -> str:
    """Return the table of named element types."""
    lines = ["| name | code | bits | packed |", "|---|---:|---:|---|"]
    lines += [
        f"| {row.name} | {row.dtype.code} | {row.dtype.bits} | {'yes' if row.dtype.packed else ''} |"
        for row in dtypes.TABLE
    ]
    return "\n".join(lines)


def md_example(byte_order: ByteOrder = "little", end: int | None = None) -> str:
    """Return a hex dump of a small pack up to the byte `end`, with the meaning of each run of bytes."""
    package = Package(model_version="v1")
    data = bytes((1, 0, 0, 0, 2, 0, 0, 0))
    package.add_raw("w", data, alignment=8)
    plan = plan_pack(package, byte_order)
    pack = plan.render_index([crc32c(data)]).ljust(plan.payload_start, b"\0") + data
    runs: list[tuple[int, int, str]] = []
    position = 0
    for field in fmt.HEADER.fields:
        runs.append((position, field.size, f"header.{field.name}"))
        position += field.size
    for table in _TABLES:
        runs.append((position, fmt.DIRECTORY_ENTRY.size, f"table: kind {table.kind} ({table.name})"))
        position += fmt.DIRECTORY_ENTRY.size
    entry = struct.Struct(("<" if byte_order == "little" else ">") + fmt.DIRECTORY_ENTRY.struct_format)
    for number, table in enumerate(_TABLES):
        _, size, offset, count = entry.unpack_from(pack, fmt.HEADER.size + number * entry.size)
        if table in (fmt.DIMS, fmt.STRINGS):
            runs.append((offset, size * count, "shapes and strides" if table is fmt.DIMS else "strings"))
        else:
            runs += [
                (offset + table.offset(field.name), field.size, f"{table.name}.{field.name}")
                for field in (table.fields if count else ())
            ]
    runs.append((plan.payload_start, len(data), "payload 0"))
    lines = []
    gaps = [
        (end, start - end)
        for end, start in zip([at + size for at, size, _ in runs], [run[0] for run in runs[1:]], strict=False)
    ]
    runs += [(at, size, "zero") for at, size in gaps if size]
    for start, size, meaning in sorted(run for run in runs if end is None or run[0] < end):
        for at in range(start, start + size, 16):
            chunk = pack[at : min(at + 16, start + size)]
            lines.append(f"{at:04x}  {chunk.hex(' '):<47}  {meaning if at == start else ''}".rstrip())
    return "\n".join(["```text", *lines, "```"])


def md_limits() -> str:
    """Return the table of what formats can hold."""
    lines = ["| output | at most, in bytes | of |", "|---|---:|---|"]
    for row in limits.FORMAT_LIMITS:
        name = {"elf": "ELF", "macho": "Mach-O", "coff": "COFF and PE"}[row.object_format]
        width = f", {row.pointer_width}-bit" if row.pointer_width else ""
        lines.append(f"| {name}{width}: {', '.join(row.formats)} | {row.limit.size} | {row.limit.what} |")
    for target in targets.describe_all():
        if target.pointer_width == 32 and target.max_image_size:
            what = "one piece of the address space; also for its sidecar"
            lines.append(f"| `{target.name}`: library | {target.max_image_size} | {what} |")
    return "\n".join(lines)


def md_links() -> str:
    """Return the table of what linkers make of far payloads."""
    places = {"plain": "`.rodata`, no fragment", "large": "`.lrodata`, no fragment", "script": "with the fragment"}
    lines = ["| CPU | linker | " + " | ".join(places.values()) + " |", "|---|---|" + "---|" * len(places)]
    for e_machine, measured in limits.MEASURED_LINKS.items():
        linux = [target for target in targets.describe_all() if target.name.endswith("-linux-gnu")]
        cpu = next(target for target in linux if target.e_machine == e_machine).name.split("-")[0]
        for number, linker in enumerate(limits.LINKER_NAMES):
            cells = [measured[place][number] if place in measured else "" for place in places]
            lines.append(f"| {cpu} | {linker} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def md_rules() -> str:
    """Return the table of the rules of emitter verify."""
    import emitter.verify.rules  # noqa: F401 - it fills the table
    from emitter.verify.model import RULES

    lines = ["| rule | severity | what it finds |", "|---|---|---|"]
    lines += [f"| `{rule.id}` | {rule.severity} | {rule.title} |" for rule in RULES.values()]
    return "\n".join(lines)


def md_keys() -> str:
    """Return the table of the keys of profiles."""
    from emitter.verify.profile import KEYS

    kinds = {str: "text", list: "list", int: "number", dict: "table", bool: "true or false"}
    lines = ["| key | value | meaning |", "|---|---|---|"]
    lines += [f"| `{name}` | {kinds[key.type]} | {key.meaning} |" for name, key in KEYS.items()]
    return "\n".join(lines)


def md_profiles() -> str:
    """Return the table of the profiles that are shipped."""
    import emitter.verify.rules  # noqa: F401 - profiles name rules
    from emitter.verify.profile import load_profile, shipped

    lines = ["| profile | |", "|---|---|"]
    lines += [f"| `{name}` | {load_profile(name).get('description')} |" for name in shipped()]
    return "\n".join(lines)


def md_targets() -> str:
    """Return the table of targets."""
    lines = ["| target | | files | tier |", "|---|---|---|---:|"]
    for target in targets.describe_all():
        files = " ".join(f"`{suffix}`" for suffix in formats(target))
        lines.append(f"| `{target.name}` | {target.description} | {files} | {target.tier} |")
    lines += ["", *(f"Tier {tier}: {meaning}." for tier, meaning in TIERS.items())]
    return "\n".join(lines)


def md_proofs() -> str:
    """Return the table of targets with the numbers of what proves something about each, and the table of these."""
    if ROOT not in sys.path:  # the table of tests is not part of the package
        sys.path.insert(0, ROOT)
    from cross.proofs import PROOFS, proofs_of

    number = {proof: str(position) for position, proof in enumerate(PROOFS, 1)}
    lines = ["| target | files | tier | proven by |", "|---|---|---:|---|"]
    for target in targets.describe_all():
        files = " ".join(f"`{suffix}`" for suffix in formats(target))
        proofs = ", ".join(number[proof] for proof in proofs_of(target.name))
        lines.append(f"| `{target.name}` | {files} | {target.tier} | {proofs} |")
    lines += ["", "| | tier | what | test |", "|---:|---:|---|---|"]
    lines += [
        f"| {number[proof]} | {proof.tier} | {proof.what} | [{os.path.basename(proof.test)}](../{proof.test}) |"
        for proof in PROOFS
    ]
    return "\n".join(lines)


def md_names() -> str:
    """Return the table of other names of targets."""
    lines = ["| target | also written |", "|---|---|"]
    for target in targets.describe_all():
        others = spellings(target)
        if others:
            lines.append(f"| `{target.name}` | {', '.join(f'`{name}`' for name in others)} |")
    return "\n".join(lines)


def replaced(text: str, name: str, content: str) -> str:
    """Return `text` with the generated part `name` replaced."""
    pattern = re.compile(
        rf"^([^\n]*\bgenerated: {name}(?: \*/| -->)\n)(.*?)(^[^\n]*\bend of generated: {name}\b)",
        re.DOTALL | re.MULTILINE,
    )
    result, count = pattern.subn(lambda match: f"{match[1]}{content}\n{match[3]}", text)
    if count != 1:
        raise SystemExit(f"generate.py: {count} parts are called {name}, expected one")
    return result


def generate(path: str, parts: dict[str, Callable[[str], str]]) -> tuple[str, str]:
    """Return the text of a file as it is and as it should be."""
    with open(path, encoding="utf-8") as file:
        old = new = file.read()
    for name, render in parts.items():
        new = replaced(new, name, render(new))
    return old, new


def main() -> int:
    """Rewrite the files, or with --check report those that are not up to date."""
    check = sys.argv[1:] == ["--check"]
    files: dict[str, dict[str, Callable[[str], str]]] = {
        HEADER: {
            "records": lambda _: c_records(),
            "crc": lambda _: c_crc(),
            "dtypes": lambda _: c_dtypes(),
            "names": c_names,
        },
        FORMAT: {
            "records": lambda _: md_records(),
            "features": lambda _: md_features(),
            "dtypes": lambda _: md_dtypes(),
            "example": lambda _: md_example(),
            "big-endian": lambda _: md_example("big", fmt.HEADER.size),
        },
        LARGE_DATA: {"limits": lambda _: md_limits(), "links": lambda _: md_links()},
        README: {"targets": lambda _: md_targets()},
        VERIFY: {
            "rules": lambda _: md_rules(),
            "keys": lambda _: md_keys(),
            "profiles": lambda _: md_profiles(),
        },
        TARGETS: {"proofs": lambda _: md_proofs(), "names": lambda _: md_names()},
    }
    stale = 0
    for path, parts in files.items():
        old, new = generate(path, parts)
        if old == new:
            continue
        stale = 1
        if check:
            sys.stderr.write(f"{os.path.relpath(path, ROOT)} is not up to date: run python docs/generate.py\n")
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(new)
    return stale if check else 0


if __name__ == "__main__":
    sys.exit(main())
