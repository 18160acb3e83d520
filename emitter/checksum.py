"""CRC-32C (Castagnoli, RFC 3720 appendix B.4), reflected, initial value and final XOR 0xffffffff; and SHA-256."""

from __future__ import annotations

__all__ = ["crc32c", "crc32c_joined", "crc32c_zeros", "sha256"]

_POLYNOMIAL = 0x82F63B78  # 0x1EDC6F41, bit-reversed
# Appending zero bytes is a linear map of the register over GF(2), here as the images of its bits: by powers of two of
# the bytes, each the square of the one before, as far as they were needed. A dict: two threads may fill it at once.
_ZEROS: dict[int, list[int]] = {}

try:
    from google_crc32c import extend as _extend
except ImportError:  # no wheel for this machine: slow, and enough to check a header
    _TABLE: list[int] = []

    def _extend(crc: int, data: bytes) -> int:
        if not _TABLE:
            for byte in range(256):
                register = byte
                for _ in range(8):
                    register = register >> 1 ^ (_POLYNOMIAL if register & 1 else 0)
                _TABLE.append(register)
        crc ^= 0xFFFFFFFF
        for byte in data:
            crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
        return crc ^ 0xFFFFFFFF


def crc32c(data: bytes, crc: int = 0) -> int:
    """Return the CRC of the bytes that `crc` covers followed by `data`. The interpreter lock is released meanwhile."""
    return int(_extend(crc, data))


def crc32c_zeros(count: int, crc: int = 0) -> int:
    """Return the CRC of the bytes that `crc` covers followed by `count` zero bytes, in O(log count)."""
    register = crc ^ 0xFFFFFFFF
    for power in range(count.bit_length()):
        if power not in _ZEROS:
            _ZEROS[power] = _square(_ZEROS[power - 1]) if power else _one_zero_byte()
        if count >> power & 1:
            register = _apply(_ZEROS[power], register)
    return register ^ 0xFFFFFFFF


def crc32c_joined(first: int, second: int, size: int) -> int:
    """Return the CRC of some bytes followed by `size` others, from the CRCs of both."""
    # Zeros behind the first, less what the register begins with, are its part of the whole: all this is linear.
    return crc32c_zeros(size, first) ^ crc32c_zeros(size, 0) ^ second


def _one_zero_byte() -> list[int]:
    bit = [_POLYNOMIAL, *(1 << bit for bit in range(31))]
    return _square(_square(_square(bit)))


def _apply(operator: list[int], vector: int) -> int:
    result = 0
    for column in operator:
        if vector & 1:
            result ^= column
        vector >>= 1
    return result


def _square(operator: list[int]) -> list[int]:
    return [_apply(operator, column) for column in operator]


def sha256(data: bytes | memoryview) -> bytes:
    """Return the SHA-256 of `data`, which is small: an index, or headers."""
    # What hashlib falls back to. hashlib itself first loads OpenSSL, which takes a small job 3 ms.
    for module in ("_sha2", "_sha256"):  # of CPython 3.12 and later, and of those before
        try:
            digest: bytes = __import__(module).sha256(data).digest()
        except ImportError:
            continue
        return digest
    import hashlib

    return hashlib.sha256(data).digest()
