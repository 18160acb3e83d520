"""CRC-32C."""

from __future__ import annotations

import hashlib
import importlib
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emitter import checksum


def test_the_check_value_of_the_catalogue() -> None:
    assert checksum.crc32c(b"123456789") == 0xE3069283


def test_it_continues() -> None:
    assert checksum.crc32c(b"56789", checksum.crc32c(b"1234")) == 0xE3069283


@pytest.mark.parametrize("count", [0, 1, 2, 7, 8, 63, 64, 4095, 4096, 1 << 20])
def test_zeros_are_as_if_they_had_been_read(count: int) -> None:
    start = checksum.crc32c(b"some bytes")
    assert checksum.crc32c_zeros(count, start) == checksum.crc32c(bytes(count), start)


def test_zeros_beyond_what_could_be_read() -> None:
    half = checksum.crc32c_zeros(1 << 42)
    assert checksum.crc32c_zeros(1 << 42, half) == checksum.crc32c_zeros(1 << 43)


def test_the_same_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    try:
        plain = importlib.reload(checksum)
        assert plain.crc32c(b"123456789") == 0xE3069283
        assert plain.crc32c(b"56789", plain.crc32c(b"1234")) == 0xE3069283
    finally:
        monkeypatch.undo()
        importlib.reload(checksum)


@pytest.mark.parametrize("missing", [(), ("_sha2", "_sha256")])
@pytest.mark.parametrize("data", [b"", b"abc", bytes(1000)])
def test_sha256_is_hashlibs(data: bytes, missing: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    for module in missing:
        monkeypatch.setitem(sys.modules, module, None)
    assert checksum.sha256(data) == hashlib.sha256(data).digest()


@given(first=st.binary(max_size=300), second=st.binary(max_size=300))
def test_the_checksum_of_two_parts(first: bytes, second: bytes) -> None:
    parts = checksum.crc32c(first), checksum.crc32c(second)
    assert checksum.crc32c_joined(*parts, len(second)) == checksum.crc32c(first + second)
