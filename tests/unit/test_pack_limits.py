"""What docs/pack-format.md forbids is refused before it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy
import pytest

from emitter import Package, load
from emitter.errors import EmitterError, FormatError, InputError, LayoutError
from emitter.inputs import read_input
from emitter.pack import format as fmt
from emitter.pack.plan import plan_pack
from tests.support import build_pack

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("key", "value"), [("", "v"), ("k\0", "v"), ("k", "v\0"), ("k" * 65536, "v"), ("\ud800", "v"), ("k", "\udfff")]
)
def test_metadata_that_readers_refuse(key: str, value: str) -> None:
    with pytest.raises(LayoutError, match="metadata"):
        plan_pack(Package(metadata={key: value}), "little")


@pytest.mark.parametrize("version", ["a\0b", "v" * 65536, "\ud800"])
def test_a_model_version_that_readers_refuse(version: str) -> None:
    with pytest.raises(LayoutError, match="model version"):
        plan_pack(Package(model_version=version), "little")


def test_the_longest_of_each_are_written() -> None:
    package = Package(metadata={"k" * 65535: "", "v": "x" * 100000}, model_version="v" * 65535)
    assert plan_pack(package, "little").index_size > 2 * 65535


def pack_at_the_limits() -> bytes:
    package = Package(metadata={"key": ""}, model_version="v1")
    package.add_tensor("name", numpy.zeros((1, 1, 1)), alignment=64)
    return build_pack(package)


@pytest.mark.parametrize(
    ("limit", "value", "message"),
    [
        ("MAX_HEADER_SIZE", 120, "header_size"),
        ("MAX_TABLES", 4, "too many tables|directory_count"),
        ("MAX_NAME_BYTES", 3, "length"),
        ("MAX_NDIM", 2, "too many dimensions"),
        ("MAX_ALIGNMENT", 32, "alignment"),
    ],
)
def test_writer_and_readers_have_one_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, message: str
) -> None:
    path = tmp_path / "x.pack"
    path.write_bytes(pack_at_the_limits())
    read_input(str(path), Package())
    load(path).validate()
    monkeypatch.setattr(fmt, limit, value)
    with pytest.raises(InputError, match=message):
        read_input(str(path), Package())
    with pytest.raises(FormatError, match=message):
        load(path).validate()
    if limit in ("MAX_NAME_BYTES", "MAX_NDIM", "MAX_ALIGNMENT"):
        with pytest.raises(EmitterError, match=r"cannot be|too many dimensions"):
            pack_at_the_limits()
