"""DLLs: their headers, sections and exports as lief, llvm-readobj and objdump read them, and the limits of an image."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import lief
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emitter.errors import LayoutError
from emitter.image.pe import MAX_EXPORTS, plan_image
from emitter.model import TensorSymbol
from emitter.pack.plan import plan_pack
from emitter.targets import load
from tests.coff_files import TARGET_NAMES, every_target, plan_output
from tests.elf_images import package_of, pattern, render
from tests.elf_objects import run

if TYPE_CHECKING:
    from pathlib import Path

    from emitter.pack.plan import PackPlan

X86_64 = load("x86_64-windows-msvc")
PAYLOADS = {"a": pattern(5000, 1), "B": pattern(64, 2), "empty": b"", "z": pattern(300, 3)}
PAGE = 4096


def parse(data: bytes) -> lief.PE.Binary:
    parsed = lief.PE.parse(list(data))
    assert isinstance(parsed, lief.PE.Binary)
    return parsed


def dll(name: str, payloads: dict[str, bytes] | None = None) -> tuple[bytes, PackPlan]:
    plan, pack = plan_output(load(name), "library", package_of(PAYLOADS if payloads is None else payloads))
    return render(plan, pack), pack


@every_target
def test_headers_say_what_the_target_says(name: str) -> None:
    target = load(name)
    facts = target.coff
    assert facts is not None
    data, _ = dll(name)
    parsed = parse(data)
    header, optional = parsed.header, parsed.optional_header
    assert header.machine.value == facts.machine
    assert header.time_date_stamps == 0
    assert header.characteristics == facts.characteristics
    assert header.characteristics & 1 == 0, "IMAGE_FILE_RELOCS_STRIPPED would tie it to its ImageBase"
    assert optional.magic.value == facts.magic
    assert optional.dll_characteristics == facts.dll_characteristics
    assert optional.imagebase == facts.image_base
    assert optional.imagebase % (64 << 10) == 0
    assert (optional.section_alignment, optional.file_alignment) == (PAGE, PAGE)
    version = (optional.major_operating_system_version, optional.minor_operating_system_version)
    assert version == facts.operating_system_version
    assert (optional.major_subsystem_version, optional.minor_subsystem_version) == version
    assert (optional.addressof_entrypoint, optional.sizeof_code, optional.checksum) == (0, 0, 0)
    assert optional.sizeof_headers == PAGE
    assert optional.sizeof_image == len(data)
    assert optional.numberof_rva_and_size == 16
    assert [one.size for one in parsed.data_directories if one.type != lief.PE.DataDirectory.TYPES.EXPORT_TABLE] == (
        [0] * 15
    )


@every_target
def test_a_linker_writes_the_same_headers(name: str, tmp_path: Path) -> None:
    """Those of lld-link, for a DLL of one object with data: what differs is what it chose for the file."""
    plan, pack = plan_output(load(name), "object", package_of(PAYLOADS))
    (tmp_path / "model.obj").write_bytes(render(plan, pack))
    options = ["/dll", "/noentry", "/export:model,DATA", "/base:0x10000000"]
    run("lld-link", *options, str(tmp_path / "model.obj"), f"/out:{tmp_path / 'theirs.dll'}")
    ours, theirs = parse(dll(name)[0]), parse((tmp_path / "theirs.dll").read_bytes())
    assert ours.header.machine == theirs.header.machine
    assert ours.header.characteristics == theirs.header.characteristics
    assert ours.optional_header.magic == theirs.optional_header.magic
    assert ours.header.sizeof_optional_header == theirs.header.sizeof_optional_header
    no_seh = 0x400 if name.startswith("i686") else 0  # lld says so of any DLL without a handler table
    assert ours.optional_header.dll_characteristics | no_seh == theirs.optional_header.dll_characteristics
    version = "operating_system_version"
    for field in ("subsystem", f"major_{version}", "numberof_rva_and_size", "loader_flags"):
        assert getattr(ours.optional_header, field) == getattr(theirs.optional_header, field), field
    sections = {one.name: one.characteristics for one in theirs.sections}
    assert {one.name: one.characteristics for one in ours.sections} == {
        one: flags for one, flags in sections.items() if one in {".rdata", ".emitter"}
    }


@every_target
def test_exports_are_found_by_name(name: str, tmp_path: Path) -> None:
    data, pack = dll(name)
    path = tmp_path / "model.dll"
    path.write_bytes(data)
    parsed = parse(data)
    exports = parsed.get_export()
    assert exports is not None
    assert exports.name == "model.dll"
    found = {str(entry.name): entry.address for entry in exports.entries}
    base = next(one.virtual_address for one in parsed.sections if one.name == ".emitter")
    in_pack = {"model": 0, "emitter_pack": 0} | {
        f"model_t_{one}": pack.payloads[number].offset for one, number in pack.index_of.items()
    }
    size_at = found.pop("model_size")
    assert found == {one: base + offset for one, offset in in_pack.items()}  # no underscore on 32-bit x86
    word = load(name).pointer_width // 8
    assert int.from_bytes(data[size_at : size_at + word], "little") == pack.total_size
    assert not any(entry.is_forwarded for entry in exports.entries)
    done = run("llvm-readobj", "--file-headers", "--sections", "--coff-exports", str(path))
    assert done.stderr == ""
    listed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("  Name: ")]
    assert listed == sorted(listed, key=str.encode) == sorted([*in_pack, "model_size"], key=str.encode)
    if not name.startswith("aarch64"):  # which this objdump does not know
        dumped = run("x86_64-w64-mingw32-objdump", "-p", str(path))
        assert dumped.stderr == ""
        assert "model_size" in dumped.stdout


@every_target
def test_every_byte_belongs_to_the_headers_or_to_a_read_only_section(name: str) -> None:
    for payloads in (PAYLOADS, {"big": pattern(1 << 20)}, {"none": b""}):
        data, pack = dll(name, payloads)
        parsed = parse(data)
        position = parsed.optional_header.sizeof_headers
        for section in parsed.sections:
            assert section.characteristics == 0x40000040  # initialised data, read
            assert (section.virtual_address, section.pointerto_raw_data) == (position, position)
            assert section.sizeof_raw_data == -(-section.virtual_size // PAGE) * PAGE
            position += section.sizeof_raw_data
        assert position == len(data)
        last = parsed.sections[-1]
        assert (last.name, last.virtual_size) == (".emitter", pack.total_size)
        assert parsed.verify_signature() == lief.PE.Signature.VERIFICATION_FLAGS.NO_SIGNATURE


def planned(name: str, total_size: int, **changes: Any) -> Any:
    pack = plan_pack(package_of({"a": b"abc"}), "little")._replace(total_size=total_size, payloads=(), **changes)
    return plan_image(load(name), pack, name="model", dll_name="model.dll")


# Headers and .rdata are a page each; SizeOfImage is in whole pages.
LIMITS = {name: (load(name).max_image_size or 0) // PAGE * PAGE - 2 * PAGE for name in TARGET_NAMES}


@every_target
@pytest.mark.parametrize("excess", [-PAGE, -1, 0, 1, PAGE, 1 << 31, 1 << 32, 1 << 40])
def test_images_have_a_limit(name: str, excess: int) -> None:
    limit = load(name).max_image_size
    assert limit == ((1 << 30) if name.startswith("i686") else (1 << 31) - 1)
    if excess <= 0:
        assert planned(name, LIMITS[name] + excess).size <= limit
        return
    with pytest.raises(LayoutError, match=rf"SizeOfImage of at most {limit} bytes.*split the package") as caught:
        planned(name, LIMITS[name] + excess)
    assert name in str(caught.value)


@pytest.mark.parametrize("alignment", [8, 64, 4096])
def test_alignment_to_a_page_is_kept(alignment: int) -> None:
    assert planned("x86_64-windows-msvc", 100, alignment=alignment).pack_offset % alignment == 0


@every_target
def test_larger_alignment_is_refused(name: str) -> None:
    with pytest.raises(LayoutError, match=r"cannot keep the alignment of a tensor.*at most 4096, found 8192"):
        planned(name, 100, alignment=8192)


def test_ordinals_have_16_bits() -> None:
    pack = plan_pack(package_of({"a": b"abc"}), "little")

    def symbols(count: int) -> list[TensorSymbol]:
        return [TensorSymbol(f"model_t_{number}", "", pack.payload_start, 1) for number in range(count - 3)]

    plan = plan_image(X86_64, pack, name="model", dll_name="model.dll", symbols=symbols(MAX_EXPORTS))
    parsed = parse(render(plan, pack))  # its parts do not outlive it
    exports = parsed.get_export()
    assert exports is not None
    assert len(exports.entries) == MAX_EXPORTS
    with pytest.raises(LayoutError, match="at most 65535, found 65536; leave out --tensor-symbols"):
        plan_image(X86_64, pack, name="model", dll_name="model.dll", symbols=symbols(MAX_EXPORTS + 1))


@settings(max_examples=100, deadline=None)
@given(
    name=st.sampled_from(TARGET_NAMES),
    sizes=st.lists(st.sampled_from([0, 1, 63, 64, 65, 4095, 4096, 4097, 70000]), min_size=1, max_size=6),
    alignment=st.sampled_from([1, 8, 64, 4096]),
    prefix=st.text("aZ_09", min_size=1, max_size=30),
)
def test_any_package_is_read_back(name: str, sizes: list[int], alignment: int, prefix: str) -> None:
    payloads = {f"t{prefix}{number}": pattern(size, number) for number, size in enumerate(sizes)}
    symbol = "s_" + prefix
    plan, pack = plan_output(load(name), "library", package_of(payloads), name=symbol, alignment=alignment)
    data = render(plan, pack)
    at = struct.unpack_from("<I", data, 60)[0]
    width = load(name).pointer_width
    start, size = struct.unpack_from("<2I", data, at + 24 + (112 if width == 64 else 96))
    functions, names, ordinals = struct.unpack_from("<3I", data, start + 28)
    count = struct.unpack_from("<I", data, start + 24)[0]
    found = {}
    for number in range(count):
        text = struct.unpack_from("<I", data, names + 4 * number)[0]
        assert start <= text < start + size
        ordinal = struct.unpack_from("<H", data, ordinals + 2 * number)[0]
        address = struct.unpack_from("<I", data, functions + 4 * ordinal)[0]
        assert not start <= address < start + size  # else the name of another DLL's export
        found[data[text : data.index(b"\0", text)].decode()] = address
    assert list(found) == sorted(found, key=str.encode)
    assert found[symbol] % 4096 == 0
    for tensor, payload in payloads.items():
        address = found[f"{symbol}_t_{tensor}"]
        assert data[address : address + len(payload)] == payload
        assert address % alignment == 0


def test_the_bytes_depend_on_nothing_else() -> None:
    assert dll("x86_64-windows-msvc")[0] == dll("x86_64-windows-msvc")[0]
    assert dll("x86_64-windows-msvc")[0] == dll("x86_64-windows-gnu")[0]
