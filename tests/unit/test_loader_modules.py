"""Modules as the loader gives them: views of the file, the alternative that fits, and trees that runtimes build."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from emitter import Package, emit, load
from emitter.errors import EmitterError, FormatError, LoadError, UsageError
from emitter.loaders import ModuleSource, Registry
from tests.module_packages import GRAPH, PLACES, changed_module_tables, module_package
from tests.support import build_pack

if TYPE_CHECKING:
    from pathlib import Path

    from emitter.package import ByteOrder

NAMES = ["root", "tables", "device", "engine", "graph"]


@pytest.mark.parametrize("file", ["m.pack", "libm.so", "m.o", "libm.a"])
@pytest.mark.parametrize("target", ["aarch64-linux-gnu", "s390x-linux-gnu"])
def test_modules_are_views_of_the_file(tmp_path: Path, file: str, target: str) -> None:
    emit(module_package(), tmp_path / file, target=target)
    with load(tmp_path / file) as library:
        library.check()
        assert [module.name for module in library.modules] == NAMES
        root, tables, device, engine, graph = library.modules
        assert [child.name for child in root.imports] == ["engine", "device", "tables"]
        assert (
            [child.number for child in engine.imports] == [child.number for child in device.imports] == [graph.number]
        )
        assert engine.metadata == {"precision": "fp16"}
        assert tables.alternatives[0].size == 0
        assert (graph.alternatives[0].kind, graph.alternatives[0].schema_version) == ("graph", 2)
        assert bytes(graph.alternatives[0].bytes()) == GRAPH
        # Equal bytes, and constants that two modules take, lie at one address.
        address = np.frombuffer(graph.alternatives[0].bytes(), np.uint8).ctypes.data
        assert np.frombuffer(engine.alternatives[2].bytes(), np.uint8).ctypes.data == address
        w = {tensor.numpy().ctypes.data for tensor in (*device.functions["kernel"], graph.functions["plan"][0])}
        assert len(w) == 1
        assert [tensor.name for tensor in engine.functions["infer"]] == ["b", "w", "w"]
        np.testing.assert_array_equal(engine.functions["infer"][1].numpy(), np.arange(12).reshape(3, 4))
        at = engine.alternatives[0].file_offset
        assert (tmp_path / file).read_bytes()[at : at + 16] == b"engine for sm_87"
        assert engine.alternatives[0].alignment == 256
    with pytest.raises(LoadError, match="closed"):
        graph.alternatives[0].bytes()


def test_the_first_alternative_that_fits_is_chosen() -> None:
    engine = load(build_pack(module_package(), "little")).module("engine")
    for place, number in PLACES:
        assert engine.select(place).number == number, place


def test_without_one_that_fits_every_rejection_is_said() -> None:
    package = module_package()
    package.modules[1].alternatives.pop()
    engine = load(build_pack(package, "big")).module("engine")
    with pytest.raises(LoadError) as caught:
        engine.select({"sm": "86", "driver": "1"})
    message = str(caught.value)
    assert "0 (tensorrt): wants sm == 87, here sm is '86'" in message
    assert "1 (tensorrt): wants driver >= 550.54, here driver is '1'" in message
    with pytest.raises(LoadError, match=r"tensorrt >= 10.3, < 11, here tensorrt is not known"):
        engine.select({"sm": "87"})


def words(kinds: str, calls: list[str]) -> Registry:
    """Return a registry whose loaders say what they build, in order."""
    registry = Registry()

    def loader(source: ModuleSource) -> object:
        calls.append(source.name)
        return (source.name, bytes(source.bytes())[:6], source.imports)

    for kind in kinds.split():
        registry.module_loader(kind, schema_version=2 if kind == "graph" else 1)(loader)
    return registry


@pytest.mark.parametrize("order", ["little", "big"])
def test_a_tree_is_built_children_first_and_each_module_once(order: ByteOrder) -> None:
    calls: list[str] = []
    library = load(build_pack(module_package(), order))
    tree = library.build_modules(
        {"sm": "90", "driver": "600"}, registry=words("library tensorrt graph cuda raw", calls)
    )
    assert calls == []
    assert list(tree) == NAMES
    device = tree["device"]
    assert calls == ["graph", "device"]
    root = tree.root
    assert calls == ["graph", "device", "engine", "tables", "root"]
    assert isinstance(root, tuple)
    assert root[2][1] is device
    assert root[2][0][1] == b"engine"
    tree.build_all()
    assert len(calls) == 5
    built, tensors = tree.function("infer")
    assert built is tree["engine"]
    assert [tensor.name for tensor in tensors] == ["b", "w", "w"]
    array = tensors[1].numpy()
    if order == "little":
        array = np.from_dlpack(tensors[1])  # type: ignore[arg-type] # numpy's protocol is narrower than the standard's
    np.testing.assert_array_equal(array, np.arange(12).reshape(3, 4))


def test_all_at_once_builds_every_module(tmp_path: Path) -> None:
    calls: list[str] = []
    emit(module_package(), tmp_path / "m.pack")
    with load(tmp_path / "m.pack") as library:
        library.build_modules(registry=words("library tensorrt graph cuda raw", calls)).build_all()
    assert sorted(calls) == sorted(NAMES)


def test_an_unknown_kind_and_an_unknown_version_are_named() -> None:
    library = load(build_pack(module_package(), "little"))
    calls: list[str] = []
    with pytest.raises(LoadError, match=r"kind 'cuda', schema version 1.*'graph', 'raw'"):
        library.build_modules(registry=words("graph raw", calls))["device"]
    registry = Registry()
    registry.module_loader("graph", schema_version=1)(lambda source: source)
    with pytest.raises(LoadError, match=r"schema version 2 of modules of the kind 'graph'.*newer"):
        library.build_modules(registry=registry)["graph"]
    registry = Registry()
    registry.module_loader("graph", schema_version=4)(lambda source: source)
    registry.module_upgrade("graph", 2)(bytes)
    with pytest.raises(LoadError, match=r"no step from version 3"):
        library.build_modules(registry=registry)["graph"]
    with pytest.raises(LoadError, match="no module called 'nobody'"):
        library.build_modules(registry=registry)["nobody"]
    with pytest.raises(LoadError, match=r"no module has a function 'nobody'.*'infer'"):
        library.build_modules(registry=registry).function("nobody")


def test_a_fallback_that_nobody_loads_says_what_was_passed_over() -> None:
    package = Package()
    package.add_module("engine", "tensorrt", b"", requires={"sm": "87"})
    package.add_alternative("engine", "graph", b"")
    tree = load(build_pack(package, "little")).build_modules({"sm": "7"}, registry=words("raw", []))
    with pytest.raises(LoadError, match=r"kind 'graph'.*passed over 0 \(tensorrt\): wants sm == 87, here sm is '7'"):
        tree["engine"]


def test_old_versions_are_upgraded_step_by_step() -> None:
    registry = Registry()

    @registry.module_loader("graph", schema_version=4)
    def load_graph(source: ModuleSource) -> tuple[bytes, int, int]:
        return bytes(source.bytes()), source.stored_version, source.schema_version

    @registry.module_upgrade("graph", 2)
    def two_to_three(data: memoryview) -> bytes:
        assert data.readonly
        return bytes(data) + b"3"

    @registry.module_upgrade("graph", 3)
    def three_to_four(data: memoryview) -> bytes:
        return bytes(data) + b"4"

    tree = load(build_pack(module_package(), "little")).build_modules(registry=registry)
    assert tree["graph"] == (GRAPH + b"34", 2, 4)


def test_what_a_loader_raises_comes_out_and_the_next_request_tries_again() -> None:
    registry = Registry()
    attempts = []

    @registry.module_loader("graph", schema_version=2)
    def load_graph(source: ModuleSource) -> str:
        attempts.append(source.name)
        if len(attempts) == 1:
            raise RuntimeError("the device is busy")
        return "built"

    tree = load(build_pack(module_package(), "little")).build_modules(registry=registry)
    with pytest.raises(RuntimeError, match="busy"):
        tree["graph"]
    assert tree["graph"] == "built"


def test_a_kind_has_one_loader() -> None:
    registry = Registry()
    registry.module_loader("k")(lambda source: source)
    with pytest.raises(UsageError, match="already"):
        registry.module_loader("k")(lambda source: source)
    registry.module_upgrade("k", 1)(bytes)
    with pytest.raises(UsageError, match="already"):
        registry.module_upgrade("k", 1)(bytes)
    for kind, version in (("", 1), ("k2", -1), ("k2", True)):
        with pytest.raises(UsageError):
            registry.module_loader(kind, schema_version=version)


def test_a_long_chain_of_imports_is_built_without_recursion() -> None:
    package = Package()
    previous: list[str] = []
    for number in range(3000):
        package.add_module(f"m{number}", "k", b"", imports=previous)
        previous = [f"m{number}"]
    registry = Registry()
    registry.module_loader("k")(lambda source: len(source.imports))
    assert load(build_pack(package, "little")).build_modules(registry=registry).root == 1


@pytest.mark.parametrize("order", ["little", "big"])
def test_hostile_tables_of_modules_give_errors(order: ByteOrder) -> None:
    """Every byte of them is changed, with right checksums: validation refuses, or everything can be read."""
    number = refused = 0
    for number, changed in changed_module_tables(order):
        library = load(changed)
        try:
            library.validate()
            refused_here = False
        except FormatError:
            refused += 1
            refused_here = True
        try:
            for module in library.modules:
                _ = (module.name, module.imports, module.functions, module.metadata)
                for one in module.alternatives:
                    _ = (bytes(one.bytes()), one.rejection({"sm": "87", "tensorrt": "10.5"}))
        except EmitterError:
            assert refused_here, number
    assert refused > number * 2


def test_a_pack_without_modules_says_so() -> None:
    from tests.c_tools import sample_package

    library = load(build_pack(sample_package(), "little"))
    assert library.modules == []
    with pytest.raises(LoadError, match="no modules"):
        _ = library.build_modules().root
    with pytest.raises(LoadError, match="no modules"):
        library.module("m")
