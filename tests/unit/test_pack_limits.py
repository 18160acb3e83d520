"""What docs/pack-format.md forbids is refused before it is written."""

from __future__ import annotations

import pytest

from emitter import Package
from emitter.errors import LayoutError
from emitter.pack.plan import plan_pack


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
