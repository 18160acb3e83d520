"""Mach-O libraries, read by lief, by LLVM's tools, and by a parser of the tests' own."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import lief
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emitter.errors import LayoutError
from emitter.image.macho import plan_image
from emitter.layout import Copy, bulk_alignment
from emitter.pack.plan import plan_pack
from emitter.package import BufferSource, Extent
from emitter.symbols import tensor_symbols
from emitter.targets import load
from tests.macho_files import TARGET_NAMES, MachO, emit, package_of, parse, run, trie_exports

if TYPE_CHECKING:
    from pathlib import Path

    from emitter.layout import FilePlan

PAYLOADS: dict[str, bytes | Path] = {"a": bytes(range(251)) * 9, "b": b"x" * 50000, "empty": b"", "z": b"last" * 16}
every_target = pytest.mark.parametrize("name", TARGET_NAMES)

LC_ID_DYLIB, LC_LOAD_DYLIB, LC_UUID, LC_BUILD_VERSION, LC_DYLD_INFO_ONLY = 0xD, 0xC, 0x1B, 0x32, 0x80000022


def written(tmp_path: Path, target: str, file: str = "libmodel.dylib", **options: Any) -> MachO:
    emit(tmp_path / file, PAYLOADS, target, **options)
    return parse((tmp_path / file).read_bytes())


@every_target
def test_readers_find_nothing_to_complain_of(name: str, tmp_path: Path) -> None:
    file = written(tmp_path, name, tensor_symbols=True)
    path = tmp_path / "libmodel.dylib"
    listed = run("llvm-objdump", "--private-headers", "--section-headers", "--exports-trie", path)
    for word in ("@rpath/libmodel.dylib", "/usr/lib/libSystem.B.dylib", "LC_CODE_SIGNATURE", "_emitter_pack"):
        assert word in listed
    run("llvm-readobj", "--file-headers", "--sections", "--symbols", "--macho-segment", "--needed-libs", path)
    run("llvm-readobj", "--macho-dysymtab", "--macho-version-min", path)
    assert "(__EMITTER,__emitter) external _model\n" in run("llvm-nm", "-m", path)
    binary = lief.parse(str(path))
    assert isinstance(binary, lief.MachO.Binary)
    assert lief.MachO.check_layout(binary) == (True, "")
    exports = {str(symbol.name): symbol.value for symbol in binary.symbols}
    assert {str(symbol.name) for symbol in binary.exported_symbols} == set(exports)
    assert exports == {row.name: row.n_value for row in file.symbols().values()}
    assert exports == trie_exports(bytes(file.data[slice(*_range(file))]))
    facts = load(name).macho
    assert facts is not None
    assert (int(binary.header.cpu_type), binary.header.cpu_subtype) == (facts.cputype, facts.cpusubtype)
    build = binary.build_version
    assert build is not None and int(build.platform) == facts.platform
    assert build.minos[:2] == [int(number) for number in facts.minos.split(".")]


def _range(file: MachO) -> tuple[int, int]:
    *_, offset, size = file.command(LC_DYLD_INFO_ONLY, "10I")
    return offset, offset + size


@every_target
def test_segments_are_what_dyld_demands(name: str, tmp_path: Path) -> None:
    file = written(tmp_path, name)
    # MH_DYLIB; NOUNDEFS, DYLDLINK, TWOLEVEL, NO_REEXPORTED_DYLIBS, APP_EXTENSION_SAFE
    assert file.header[3] == 6 and file.header[6] == 0x2100085
    rows = [(row[0], row[5], row[6]) for row in file.segments]
    assert rows == [("__TEXT", 5, 5), ("__EMITTER", 1, 1), ("__LINKEDIT", 1, 1)]
    end = 0
    for _, vmaddr, vmsize, fileoff, filesize, *_ in file.segments:
        assert vmaddr == fileoff == end and fileoff % 16384 == 0 and vmsize % 16384 == 0
        assert filesize <= vmsize < filesize + 16384
        end = fileoff + filesize
    assert end == len(file.data)
    assert [f"{row[1]},{row[0]}" for row in file.sections] == ["__TEXT,__const", "__EMITTER,__emitter"]
    assert file.sections[0][4] - (32 + file.header[5]) >= 1024  # room for those who edit load commands
    # What is not there: initialisers, rebasing, binding, code.
    assert file.command(LC_DYLD_INFO_ONLY, "8I") == (0,) * 8


@every_target
def test_exports_lead_to_the_pack_its_size_and_its_tensors(name: str, tmp_path: Path) -> None:
    file = written(tmp_path, name, tensor_symbols=True)
    symbols = file.symbols()
    pack = file.content("__EMITTER,__emitter")
    assert symbols["_model"].n_value == symbols["_emitter_pack"].n_value == file.section("__EMITTER,__emitter")[2]
    assert file.at("_model_size", 8) == len(pack).to_bytes(8, "little")
    for tensor, data in PAYLOADS.items():
        assert isinstance(data, bytes)
        assert file.at(f"_model_t_{tensor}", len(data)) == data
    assert all((row.n_type, row.n_desc) == (0x0F, 0) for row in symbols.values())


@pytest.mark.parametrize(
    ("given_name", "install_name"),
    [
        (None, "@rpath/libmodel.dylib"),
        ("@loader_path/../x.dylib", "@loader_path/../x.dylib"),
        ("/usr/local/lib/libmodel.1.dylib", "/usr/local/lib/libmodel.1.dylib"),
        ("libg\udce9.dylib", "libg\udce9.dylib"),
        ("@rpath/" + "x" * 3000, "@rpath/" + "x" * 3000),
        ("@rpath/" + "x" * 4089, "@rpath/" + "x" * 4089),
    ],
)
def test_install_name(given_name: str | None, install_name: str, tmp_path: Path) -> None:
    options = {} if given_name is None else {"install_name": given_name}
    file = written(tmp_path, "arm64-apple-macos", **options)
    body = file.command(LC_ID_DYLIB)
    assert body[24:].rstrip(b"\0") == install_name.encode(errors="surrogateescape")
    assert len(body) % 8 == 0 and body[-1] == 0


@pytest.mark.parametrize("install_name", ["a/", "/", "a\0b", "@rpath/" + "x" * 4090, "\ud800"])
def test_install_names_that_no_loader_reads(install_name: str, tmp_path: Path) -> None:
    with pytest.raises(LayoutError) as caught:
        written(tmp_path, "arm64-apple-macos", install_name=install_name)
    assert "--install-name" in str(caught.value)


def test_uuid_is_made_of_the_content(tmp_path: Path) -> None:
    def uuid(**options: Any) -> bytes:
        return bytes(written(tmp_path, "arm64-apple-macos", **options).command(LC_UUID)[8:])

    first = uuid()
    assert first[6] >> 4 == 3 and first[8] >> 6 == 2  # RFC 4122: version 3, the common variant
    assert uuid() == first
    assert uuid(install_name="@rpath/other.dylib") != first
    changed = {**PAYLOADS, "z": b"Last" + b"last" * 15}
    emit(tmp_path / "libmodel.dylib", changed, "arm64-apple-macos")
    assert parse((tmp_path / "libmodel.dylib").read_bytes()).command(LC_UUID)[8:] != first


@pytest.mark.parametrize(
    ("target", "alignment", "fits"),
    [("arm64-apple-macos", 16384, True), ("arm64-apple-macos", 32768, False),
     ("x86_64-apple-macos", 4096, True), ("x86_64-apple-macos", 8192, False)],
)  # fmt: skip
def test_alignment_up_to_the_page(target: str, alignment: int, fits: bool, tmp_path: Path) -> None:
    if fits:
        file = written(tmp_path, target, align=alignment, tensor_symbols=True)
        assert all(file.symbols()[f"_model_t_{tensor}"].n_value % alignment == 0 for tensor in PAYLOADS)
    else:
        with pytest.raises(LayoutError, match="at most"):
            written(tmp_path, target, align=alignment)
        assert not (tmp_path / "libmodel.dylib").exists()


def sized(size: int, target: str = "arm64-apple-macos") -> FilePlan:
    """Return the plan of a library with `size` bytes of payload that do not exist."""
    pack = plan_pack(package_of({"w": b""}), "little")
    start = pack.payload_start if size < 1 << 20 else 65536
    payload = Copy(start, size, Extent(BufferSource("a hole", memoryview(b"")), 0, size), 1, (size,), 8)
    pack = pack._replace(total_size=start + size, payload_start=start, payloads=[payload])
    return plan_image(load(target), pack, name="model", install_name="@rpath/libmodel.dylib")


@settings(max_examples=150, deadline=None)
@given(
    size=st.sampled_from([1, 16383, 16384, 16385, (1 << 20) - 1, 1 << 20, 64 << 20, (1 << 31) - 1, 1 << 31, 0xFC000000])
    | st.integers(1, 0xFC000000)
)
def test_places_at_every_size(size: int) -> None:
    plan = sized(size)
    (copy,), (hashes,) = plan.copies, plan.page_hashes
    assert copy.offset % bulk_alignment(size) == 0
    assert plan.pack_offset is not None and plan.pack_offset % 16384 == 0
    assert hashes.start == 0 and hashes.size % 16 == 0 and hashes.table > hashes.size
    assert hashes.page == 16384 and hashes.table + -(-hashes.size // 16384) * 32 <= plan.size <= 0xFFFFFFFF
    ends = [piece.offset + len(piece.data) for piece in plan.pieces]
    assert all(end <= piece.offset for end, piece in zip(ends, plan.pieces[1:], strict=False))
    file = parse(plan.pieces[0].data)
    assert file.segments[-1][3] + file.segments[-1][4] == plan.size
    assert struct.unpack_from("<I", file.command(0x1D), 8)[0] == hashes.size


def test_the_limit_counts_everything() -> None:
    """The signature is 1/128 of the payload: what is refused is the file, not the payload."""
    low, high = 0xFC000000, 0xFFFFFFFF
    while low + 1 < high:
        middle = (low + high) // 2
        try:
            sized(middle)
        except LayoutError:
            high = middle
        else:
            low = middle
    assert 0xFFFFFFFF - sized(low).size < 3 * 16384
    with pytest.raises(LayoutError) as caught:
        sized(high)
    assert "4294967295" in str(caught.value) and "--sidecar" in str(caught.value)


@pytest.mark.parametrize("total", [16384, 16385, 32768])
def test_an_empty_tensor_at_the_end_is_within_its_segment(total: int, tmp_path: Path) -> None:
    """An export behind the last segment makes dyld refuse the file."""
    start = plan_pack(package_of({"a": b"a", "empty": b""}), "little").payload_start
    emit(
        tmp_path / "libmodel.dylib", {"a": b"a" * (total - start), "empty": b""}, "arm64-apple-macos", align=1,
        tensor_symbols=True,
    )  # fmt: skip
    file = parse((tmp_path / "libmodel.dylib").read_bytes())
    section, segment = file.section("__EMITTER,__emitter"), file.segments[1]
    symbol = file.symbols()["_model_t_empty"]
    assert section[3] == total and symbol.n_value == section[2] + total
    assert symbol.n_value < segment[1] + segment[2] == file.segments[2][1]


def sparse(path: Path, size: int, marks: dict[int, bytes]) -> Path:
    with path.open("wb") as file:
        file.truncate(size)
        for at, mark in marks.items():
            file.seek(at)
            file.write(mark)
    return path


@pytest.mark.parametrize("file", ["libmodel.dylib", "model.o", "libmodel.a"])
def test_bytes_at_the_edges_of_32_bits(file: str, tmp_path: Path) -> None:
    """A payload of nearly 4 GiB, a hole but for its marks: the last byte of the file is where 32 bits end, or near."""
    room = 48 << 20 if file == "libmodel.dylib" else 4 << 20  # for hashes, headers and padding
    size = (1 << 32) - room
    marks = {0: b"first", (1 << 31) - 3: b"middle", size - 4: b"last"}
    source = sparse(tmp_path / "w.bin", size, marks)
    path = tmp_path / file
    emit(path, {"w": source}, "arm64-apple-macos", map=str(tmp_path / "map.json"), tensor_symbols=True)
    (tensor,) = json.loads((tmp_path / "map.json").read_text())["tensors"]
    assert tensor["size"] == size
    with path.open("rb") as written:
        for at, mark in marks.items():
            written.seek(tensor["file_offset"] + at)
            assert written.read(len(mark)) == mark
    assert path.stat().st_size < 1 << 32
    assert path.stat().st_blocks * 512 < 64 << 20
    run("llvm-nm", path)
    if file == "libmodel.dylib":
        assert "_model_t_w" in run("llvm-objdump", "--macho", "--exports-trie", path)
    grown = sparse(tmp_path / "w.bin", (1 << 32) - 4096, {})
    with pytest.raises(LayoutError) as caught:
        emit(path, {"w": grown}, "arm64-apple-macos")
    assert "4294967295" in str(caught.value) and "--sidecar" in str(caught.value)


def test_many_symbols(tmp_path: Path) -> None:
    payloads: dict[str, bytes | Path] = {f"layer{number // 10}.{number % 10}.w": b"w" for number in range(3000)}
    emit(tmp_path / "libmodel.dylib", payloads, "arm64-apple-macos", tensor_symbols=True)
    file = parse((tmp_path / "libmodel.dylib").read_bytes())
    found = trie_exports(bytes(file.data[slice(*_range(file))]))
    assert len(found) == 3003
    assert found == {row.name: row.n_value for row in file.symbols().values()}


def test_plan_is_the_same_for_equal_requests() -> None:
    target = load("x86_64-apple-macos")
    package = package_of(PAYLOADS)
    pack = plan_pack(package, "little")
    symbols = tensor_symbols(package.tensors, pack, "t_")
    plans = [
        plan_image(target, pack, name="m", install_name="@rpath/m.dylib", symbols=order)
        for order in (symbols, symbols[::-1])
    ]
    assert plans[0] == plans[1]
