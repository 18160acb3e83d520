"""Modules in packages and packs: what is refused before anything is written, and what comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from emitter import Package, emit
from emitter.contents import package_of
from emitter.errors import EmitterError, InputError, UsageError
from emitter.modules import parse_requirement
from emitter.pack import format as fmt
from emitter.pack.plan import plan_pack, schema_hash
from tests.module_packages import GRAPH, changed_module_tables, module_package

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from emitter.package import ByteOrder


def facts(package: Package) -> list[tuple[Any, ...]]:
    return [
        (
            module.name,
            [(one.kind, one.schema_version, one.conditions, one.extent.length) for one in module.alternatives],
            [child.name for child in module.imports],
            module.functions,
            module.metadata,
        )
        for module in package.modules
    ]


@pytest.mark.parametrize("target", ["x86_64-linux-gnu", "s390x-linux-gnu", "armv7-linux-gnueabihf"])
def test_modules_survive_a_pack_and_come_out_the_same(tmp_path: Path, target: str) -> None:
    package = module_package()
    emit(package, tmp_path / "a.pack", target=target)
    again = package_of(tmp_path / "a.pack")
    assert sorted(facts(again)) == sorted(facts(package))
    emit(again, tmp_path / "b.pack", target=target)
    assert (tmp_path / "a.pack").read_bytes() == (tmp_path / "b.pack").read_bytes()


def test_equal_bytes_of_modules_and_tensors_are_stored_once(tmp_path: Path) -> None:
    package = module_package()
    package.add_raw("copy", GRAPH)
    emit(package, tmp_path / "a.pack")
    assert (tmp_path / "a.pack").read_bytes().count(GRAPH) == 1


def test_a_payload_may_be_a_file_or_a_part_of_one(tmp_path: Path) -> None:
    (tmp_path / "engine.plan").write_bytes(b"plan")
    package = Package()
    module = package.add_module("m", "tensorrt", tmp_path / "engine.plan")
    assert module.alternatives[0].extent.length == 4
    assert package.files == [str(tmp_path / "engine.plan")]
    part = module.alternatives[0].extent._replace(offset=1, length=2)
    package.add_alternative(module, "part", part)
    emit(package, tmp_path / "a.pack")
    assert package_of(tmp_path / "a.pack").modules[0].alternatives[1].extent.length == 2


def simple(**options: Any) -> Package:
    package = Package()
    package.add_tensor("w", np.ones(2))
    package.add_module("a", "k", b"", functions={"f": ["w"]})
    package.add_module("b", "k", b"", imports=["a"], **options)
    return package


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda package: package.add_module("a", "k", b""), "two modules are called 'a'"),
        (lambda package: package.add_module("", "k", b""), "cannot be written"),
        (lambda package: package.add_module("c", "", b""), "kind"),
        (lambda package: package.add_module("c", "k\0", b""), "without NUL"),
        (lambda package: package.add_module("c", "k", "text"), "neither bytes nor a path"),
        (lambda package: package.add_module("c", "k", b"", schema_version=-1), "schema version"),
        (lambda package: package.add_module("c", "k", b"", schema_version=True), "schema version"),
        (lambda package: package.add_module("c", "k", b"", schema_version=1 << 32), "4294967295"),
        (lambda package: package.add_module("c", "k", b"", alignment=3), "power of two"),
        (lambda package: package.add_module("c", "k", b"", imports=["nobody"]), "no such module.*'a'"),
        (lambda package: package.add_module("c", "k", b"", imports=[simple().modules[0]]), "no such module"),
        (lambda package: package.add_module("c", "k", b"", functions={"f": []}), "two modules have a function 'f'"),
        (lambda package: package.add_module("c", "k", b"", functions={"g": "w"}), "not a list"),
        (lambda package: package.add_module("c", "k", b"", functions={"": ["w"]}), "function"),
        (lambda package: package.add_module("c", "k", b"", functions=["f"]), "mapping"),
        (lambda package: package.add_module("c", "k", b"", functions={"g": [1]}), "not text"),
        (lambda package: package.add_module("c", "k", b"", metadata={"k": 1}), "not text"),
        (lambda package: package.add_module("c", "k", b"", requires={"sm": "> 8"}), "cannot be read"),
        (lambda package: package.add_alternative("nobody", "k", b""), "no such module"),
    ],
)
def test_what_cannot_be_written_is_refused_at_once(act: Callable[[Package], object], message: str) -> None:
    package = simple()
    before = facts(package)
    with pytest.raises((UsageError, InputError), match=message):
        act(package)
    assert facts(package) == before


def test_a_tree_has_one_root_and_known_tensors(tmp_path: Path) -> None:
    package = simple()
    package.add_module("c", "k", b"")
    with pytest.raises(UsageError, match=r"no single root.*'b', 'c'"):
        emit(package, tmp_path / "x.pack")
    package = simple(functions={"g": ["w", "nobody"]})
    with pytest.raises(UsageError, match=r"function 'g' takes a tensor.*'nobody'"):
        emit(package, tmp_path / "x.pack")
    assert not list(tmp_path.iterdir())


def test_an_alternative_that_is_never_reached_is_warned_of(tmp_path: Path) -> None:
    package = simple()
    package.add_alternative("a", "late", b"", requires={"sm": "87"})
    warnings: list[str] = []
    emit(package, tmp_path / "x.pack", warn=warnings.append)
    assert len(warnings) == 1
    assert "'a': alternative 0 always fits" in warnings[0]
    warnings.clear()
    emit(module_package(), tmp_path / "x.pack", warn=warnings.append)
    assert warnings == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("87", (fmt.EQUAL, "87", "")),
        ("== 87", (fmt.EQUAL, "87", "")),
        ("==a, b", (fmt.EQUAL, "a, b", "")),
        (">=10", (fmt.AT_LEAST, "10", "")),
        (" >= 10.3 , < 11 ", (fmt.WITHIN, "10.3", "11")),
    ],
)
def test_requirements_are_read(text: str, expected: tuple[int, str, str]) -> None:
    assert parse_requirement("key", text, "here")[1:] == expected


@pytest.mark.parametrize(
    "text",
    ["", "==", ">", "< 3", "<= 3", ">= x", ">= 1.", ">= 1, <= 2", ">= 1, > 2", "!= 3", "~= 3", "= 3", ">= 1, < 2, < 3"],
)
def test_requirements_that_say_something_else_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_requirement("key", text, "here")


@pytest.mark.parametrize(
    ("low", "high"),
    [("1", "2"), ("9", "10"), ("1.9", "1.10"), ("1", "1.0.1"), ("9" * 30, "1" + "0" * 30), ("0.9", "1")],
)
def test_versions_are_ordered_by_their_numbers(low: str, high: str) -> None:
    assert fmt.version_key(low) < fmt.version_key(high)


def test_versions_that_differ_in_zeros_alone_are_equal() -> None:
    assert fmt.version_key("1") == fmt.version_key("1.0.0") == fmt.version_key("01")
    assert fmt.version_key("0") == fmt.version_key("0.0")


def test_the_schema_hash_knows_the_tree_but_not_the_bytes() -> None:
    def hashed(**options: Any) -> int:
        package = simple(**options)
        return plan_pack(package, "little").schema

    assert hashed() == hashed(metadata={"a": "b"}) == hashed(alignment=128) == hashed(requires={"sm": "87"})
    assert (
        len({hashed(), hashed(schema_version=2), hashed(functions={"g": ["w"]}), hashed(functions={"g": ["w", "w"]})})
        == 4
    )
    assert hashed() != schema_hash(simple().tensors)


@pytest.mark.parametrize("order", ["little", "big"])
def test_every_byte_of_the_tables_of_modules_is_checked_by_the_input_reader(tmp_path: Path, order: ByteOrder) -> None:
    """Whatever a byte of these tables becomes, the reader says so or gives a package that can be written again."""
    number, refused = 0, []
    for number, changed in changed_module_tables(order):
        (tmp_path / "x.pack").write_bytes(changed)
        try:
            package_of(tmp_path / "x.pack")
        except EmitterError:
            refused.append(number)
    assert len(refused) > number * 2


@pytest.mark.parametrize("imports", [None, 5, "other"])
def test_imports_are_a_list(imports: object) -> None:
    package = Package()
    package.add_module("other", "k", b"")
    with pytest.raises(UsageError, match="the imports are not modules"):
        package.add_module("m", "k", b"", imports=imports)  # type: ignore[arg-type] # what it refuses
