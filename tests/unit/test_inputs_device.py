"""Programs for GPUs as inputs: modules with an alternative for each GPU, in the order in which they suit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

import emitter
from emitter import Package, emit
from emitter.errors import InputError, LoadError, UsageError
from emitter.loaders import Library
from emitter.pack.plan import plan_pack
from tests.device_files import PTX, bundle, cubin, entry, fatbin, hsaco, plan, spirv
from tests.support import build_pack

if TYPE_CHECKING:
    from pathlib import Path

FATBIN = fatbin(entry(1, PTX), entry(2, cubin(75), 75), entry(2, cubin()))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    contents = {
        "k.fatbin": FATBIN, "other.fatbin": fatbin(entry(2, cubin(90), 90)), "noop.ptx": PTX, "a.cubin": cubin(),
        "b.cubin": cubin(90), "c.hsaco": hsaco(), "d.bundle": bundle("gfx90a"), "e.plan": plan(), "f.spv": spirv(),
        "linked.cubin": cubin(relocatable=True),
    }  # fmt: skip
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


def written(package: Package, folder: Path, name: str = "libx.so", target: str = "cuda-host") -> Library:
    emit(package, folder / name, target=target)
    return emitter.load(folder / name)


def forms(library: Library, name: str) -> list[tuple[str, list[str]]]:
    return [(one.kind, [str(condition) for condition in one.conditions]) for one in library.module(name).alternatives]


def test_a_fatbin_is_one_payload_with_a_form_for_each_gpu(files: Path) -> None:
    package = Package()
    package.add_input(files / "k.fatbin")
    with written(package, files) as library:
        [module] = library.modules
        assert module.name == "k"
        assert module.metadata == {"device.format": "fatbin", "device.images": "sm_80 sm_75 compute_80"}
        assert forms(library, "k") == [
            ("cuda", ["sm >= 80, < 90"]), ("cuda", ["sm >= 75, < 80"]), ("cuda", ["sm >= 80"]),
        ]  # fmt: skip
        assert len({one.file_offset for one in module.alternatives}) == 1
        assert bytes(module.select({"sm": "86"}).bytes()) == FATBIN
        assert module.alternatives[0].alignment == 64
        with pytest.raises(LoadError, match=r"sm >= 80, < 90, here sm is '70'"):
            module.select({"sm": "70"})


@pytest.mark.parametrize(
    ("sm", "number"), [("75", 3), ("80", 1), ("89", 1), ("90", 0), ("100", 2), ("103", 2), ("52", None)]
)
def test_the_form_that_suits_best_is_chosen(files: Path, sm: str, number: int | None) -> None:
    package = Package()
    (files / "old.ptx").write_bytes(PTX.replace(b"80", b"75"))
    for name in ("old.ptx", "noop.ptx", "a.cubin", "b.cubin"):
        package.add_input(files / name, prefix="k")
    with written(package, files) as library:
        module = library.module("k")
        assert [str(one.conditions[0]) for one in module.alternatives] == [
            "sm >= 90, < 100", "sm >= 80, < 90", "sm >= 80", "sm >= 75",
        ]  # fmt: skip
        assert module.metadata["device.images"] == "compute_75 compute_80 sm_80 sm_90"
        assert module.metadata["device.format"] == "PTX, cubin"
        if number is None:
            with pytest.raises(LoadError, match="no alternative"):
                module.select({"sm": sm})
        else:
            assert module.select({"sm": sm}).number == number


@pytest.mark.parametrize(
    ("name", "kind", "alignment"),
    [("noop.ptx", "cuda", 64), ("a.cubin", "cuda", 64), ("linked.cubin", "cuda-relocatable", 64),
     ("c.hsaco", "hip", 4096), ("d.bundle", "hip", 4096), ("e.plan", "tensorrt", 256), ("f.spv", "spirv", 64)],
)  # fmt: skip
def test_kind_and_alignment(files: Path, name: str, kind: str, alignment: int) -> None:
    package = Package()
    package.add_input(files / name)
    with written(package, files) as library:
        [one] = library.modules[0].alternatives
        assert (one.kind, one.alignment, one.size) == (kind, alignment, (files / name).stat().st_size)
        assert one.file_offset % alignment == 0
        assert library.modules[0].name == name.partition(".")[0]


@pytest.mark.parametrize("length", [63, 64, 65, 128])
@pytest.mark.parametrize("end", [b"", b"\0"])
def test_one_nul_stands_behind_ptx_whatever_follows(files: Path, length: int, end: bytes) -> None:
    text = PTX[:-1] + b" " * (64 * 2 + length - len(PTX)) + b"\n"
    (files / "text.ptx").write_bytes(text + end)
    package = Package()
    package.add_input(files / "text.ptx")
    package.add_input(files / "a.cubin")
    package.add_raw("same", text)  # whose bytes are stored once
    package.add_raw("nul", b"\0")
    for last in (False, True):
        if last:
            package = Package()
            package.add_input(files / "text.ptx")
        with written(package, files) as library:
            one = library.module("text").alternatives[0]
            assert one.size == len(text)
            data = (files / "libx.so").read_bytes()
            assert data[one.file_offset :][: len(text) + 1] == text + b"\0"
        image = build_pack(package)
        with emitter.load(_saved(files / "x.pack", image)) as library:
            library.validate()


def _saved(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_the_nul_does_not_count_as_payload(files: Path) -> None:
    package = Package()
    package.add_input(files / "noop.ptx")
    [artefact] = emit(package, files / "x.so", target="cuda-host")
    assert (artefact.payload_size, artefact.deduplicated_size) == (len(PTX), 0)


def test_fatbins_are_the_end_of_the_pack(files: Path) -> None:
    package = Package()
    for name in ("k.fatbin", "noop.ptx", "other.fatbin", "a.cubin"):
        package.add_input(files / name)
    package.add_tensor("w", np.ones(100, np.float32))
    layout = plan_pack(package, "little")
    first, end = layout.fatbins
    sizes = [len(FATBIN), (files / "other.fatbin").stat().st_size]
    inside = [payload.size for payload in layout.payloads if payload.offset >= first]
    # A module's own forms have one payload only where duplicates are looked for.
    assert set(inside) == set(sizes)
    assert end == layout.total_size
    assert plan_pack(Package(), "little").fatbins == (0, 0)


@pytest.mark.parametrize(
    ("target", "there"), [("cuda-host", True), ("cuda-host-aarch64", True), ("x86_64-linux-gnu", False)]
)
def test_fatbins_are_a_section_of_their_own(target: str, there: bool, files: Path) -> None:
    package = Package()
    package.add_tensor("w", np.ones(100, np.float32))
    for name in ("k.fatbin", "other.fatbin", "noop.ptx"):
        package.add_input(files / name)
    both = [FATBIN, (files / "other.fatbin").read_bytes()]
    for suffix in (".o", ".so"):
        output = files / f"x{suffix}"
        emit(package, output, target=target)
        with output.open("rb") as file:
            elf = ELFFile(file)
            section = elf.get_section_by_name(".nv_fatbin")
            assert (section is not None) == there
            if section is None:
                continue
            data = section.data()
            assert data.startswith((both[0], both[1]))
            assert not data.replace(both[0], b"").replace(both[1], b"").strip(b"\0")
            # Of an object it is a view that links leave out; of a library it is what is mapped behind the rest.
            flags = 0x80000000 if suffix == ".o" else 2
            assert (section["sh_flags"], section["sh_addralign"]) == (flags, 64)
            if suffix == ".so":
                before, dynsym = elf.get_section_by_name(".emitter"), elf.get_section_by_name(".dynsym")
                assert before is not None
                assert isinstance(dynsym, SymbolTableSection)
                assert section["sh_addr"] == before["sh_addr"] + before["sh_size"]
                [symbol] = dynsym.get_symbol_by_name("x") or []
                assert symbol["st_size"] == before["sh_size"] + section["sh_size"]


def test_several_programs_have_a_root_without_bytes(files: Path) -> None:
    package = Package()
    for name in ("k.fatbin", "a.cubin"):
        package.add_input(files / name)
    with written(package, files) as library:
        root = library.modules[0]
        assert (root.name, [one.kind for one in root.alternatives]) == ("package", ["package"])
        assert [child.name for child in root.imports] == ["k", "a"]
        library.validate()
    # Read back, and more added: there is one root again.
    emit(package, files / "x.pack", target="cuda-host")
    package = Package()
    package.add_input(files / "x.pack", keep_metadata=True)
    package.add_input(files / "noop.ptx")
    with written(package, files) as library:
        assert [child.name for child in library.modules[0].imports] == ["k", "a", "noop"]
        assert [module.name for module in library.modules].count("package") == 1
        assert library.module("k").metadata["device.images"] == "sm_80 sm_75 compute_80"


def test_a_program_beside_another_root(files: Path) -> None:
    package = Package()
    package.add_module("graph", "graph", b"{}")
    package.add_input(files / "k.fatbin")
    with written(package, files) as library:
        assert [child.name for child in library.modules[0].imports] == ["graph", "k"]
    package = Package()
    package.add_input(files / "k.fatbin")
    package.add_module("graph", "graph", b"{}", imports=["k"])
    with written(package, files) as library:
        assert [module.name for module in library.modules] == ["graph", "k"]
    package = Package()
    package.add_input(files / "k.fatbin")
    package.add_module("package", "graph", b"{}")
    with pytest.raises(UsageError, match="no module beside programs for GPUs is called 'package'"):
        emit(package, files / "y.so", target="cuda-host")


def test_one_gpu_has_one_form(files: Path) -> None:
    package = Package()
    package.add_input(files / "a.cubin", prefix="k")
    with pytest.raises(InputError, match=r"has code for this GPU already: found sm_80 sm_75 compute_80"):
        package.add_input(files / "k.fatbin", prefix="k")
    with pytest.raises(UsageError, match="two modules are called 'k'"):
        package.add_input(files / "c.hsaco", prefix="k")
    (files / "sub").mkdir()
    (files / "sub" / "a.cubin").write_bytes(cubin(90))
    package.add_input(files / "a.cubin")
    with pytest.raises(UsageError, match="two modules are called 'a'"):
        package.add_input(files / "sub" / "a.cubin")  # the same name by chance


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("k.fatbin", FATBIN[:-9], "k.fatbin: offset 0x8: the fatbin is truncated"),
        ("k.fatbin", b"\0" + FATBIN, "k.fatbin: offset 0x0: the content is not that of a device program file"),
        ("t.ptx", b"\xef\xbb\xbf" + PTX, "t.ptx: offset 0x0: the text begins with a byte-order mark"),
        ("t.ptx", PTX + b"\0\0", f"t.ptx: offset {len(PTX):#x}: a NUL stands inside of the text"),
    ],
)
def test_a_broken_program_is_refused(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=message):
        Package().add_input(tmp_path / name)
    raw = Package()
    raw.add_input(f"raw:{tmp_path / name}")
    assert [tensor.nbytes for tensor in raw.tensors] == [len(data)]


def test_many_programs_take_one_pass(tmp_path: Path) -> None:
    package = Package()
    for number in range(300):
        (tmp_path / f"k{number}.cubin").write_bytes(cubin() + number.to_bytes(4, "little"))
        package.add_input(tmp_path / f"k{number}.cubin")
    with written(package, tmp_path) as library:
        assert len(library.modules) == 301
        library.validate()
