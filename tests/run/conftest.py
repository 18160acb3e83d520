"""Fixtures of the tests on real CPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.c_tools import toolchain_of
from tests.run.device import Device, Model, write_model
from tests.windows import wine, wine32

__all__ = ["device_for", "model", "other_model", "wine", "wine32"]

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(scope="session")
def device_for(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Device]:
    """Return a function that gives the device of a target, or skips the test if programs cannot be built or run."""
    devices: dict[str, Device] = {}

    def get(name: str) -> Device:
        toolchain = toolchain_of(name)
        if name not in devices:
            devices[name] = Device(toolchain, tmp_path_factory.mktemp(name))
        return devices[name]

    return get


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return write_model(tmp_path_factory.mktemp("model") / "first.safetensors", 1)


@pytest.fixture(scope="session")
def other_model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Return a model with the same schema and other values."""
    return write_model(tmp_path_factory.mktemp("model") / "second.safetensors", 2)
