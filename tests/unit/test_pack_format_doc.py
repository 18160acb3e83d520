"""docs/pack-format.md and emitter.h are what the tables of the package say."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
from typing import TYPE_CHECKING

from emitter.checksum import crc32c
from emitter.pack import format as fmt
from tests.c_tools import ROOT

if TYPE_CHECKING:
    from pathlib import Path

TEXT = os.path.join(ROOT, "docs", "pack-format.md")


def generate(root: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = os.path.join(root, "docs", "generate.py")
    return subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, check=False)


def test_generated_parts_are_up_to_date() -> None:
    done = generate(ROOT, "--check")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_stale_part_is_found_and_mended(tmp_path: Path) -> None:
    for name in (
        "docs/generate.py", "docs/large-data.md", "docs/pack-format.md", "docs/targets.md", "docs/verify.md",
        "loaders/c/emitter.h", "README.md", "cross/__init__.py", "cross/proofs.py", "cross/table.py",
    ):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(os.path.join(ROOT, name), tmp_path / name)
    header = tmp_path / "loaders" / "c" / "emitter.h"
    right = header.read_text()
    header.write_text(right.replace("uint32_t crc32c; /* CRC-32C of the bytes */", ""))
    done = generate(str(tmp_path), "--check")
    assert done.returncode == 1
    assert "loaders/c/emitter.h" in done.stderr
    assert generate(str(tmp_path)).returncode == 0
    assert header.read_text() == right


def example(number: int = 1) -> bytes:
    with open(TEXT, encoding="utf-8") as file:
        dump = file.read().split("```text\n")[number].split("```")[0]
    pack = bytearray()
    for line in dump.splitlines():
        match = re.match(r"([0-9a-f]{4})  ((?:[0-9a-f]{2} ?)+)", line)
        assert match, line
        assert int(match[1], 16) == len(pack), line
        pack += bytes.fromhex(match[2])
    return bytes(pack)


def test_the_example_is_a_pack_by_the_rules_of_the_text() -> None:
    pack = example()
    assert pack[:8] == fmt.MAGIC
    header = bytearray(pack[:128])
    header[20:24] = bytes(4)
    assert struct.unpack_from("<I", pack, 20)[0] == crc32c(bytes(header))
    total_size, index_size, index_crc = struct.unpack_from("<QII", pack, 24)
    assert total_size == len(pack)
    assert index_crc == crc32c(pack[128:index_size])
    import hashlib

    hashed = b"emitter schema 1\0" + struct.pack("<QI1sBBHHHqQ", 1, 1, b"w", 1, 8, 1, 0, 1, 8, 0)
    assert pack[0x38:0x40] == hashlib.sha256(hashed).digest()[:8]
    assert pack[index_size:] == struct.pack("<2I", 1, 2)


def test_the_big_endian_header_says_the_same_in_the_other_order() -> None:
    little, big = example(), example(2)
    assert len(big) == fmt.HEADER.size
    position = 0
    for field in fmt.HEADER.fields:
        ours, other = little[position : position + field.size], big[position : position + field.size]
        if field.name == "header_crc32c":
            zeroed = big[:position] + bytes(4) + big[position + 4 :]
            assert struct.unpack(">I", other)[0] == crc32c(zeroed)
        elif field.name != "index_crc32c":  # that of bytes which are not shown
            assert other == (ours if field.type == "u8" else ours[::-1]), field.name
        position += field.size


def test_limits_in_the_text_are_those_of_the_code() -> None:
    with open(TEXT, encoding="utf-8") as file:
        limits = dict(re.findall(r"^\| ([a-z ,]+?) \| (.+?) \|$", file.read().split("## Limits")[1], re.MULTILINE))
    assert limits["header"] == f"{fmt.MAX_HEADER_SIZE} bytes"
    assert limits["tables in the directory"] == str(fmt.MAX_TABLES)
    assert limits["name, kind, metadata key, key and value of a condition"] == f"1 to {fmt.MAX_NAME_BYTES} bytes"
    assert limits["model version"] == f"0 to {fmt.MAX_NAME_BYTES} bytes"
    assert limits["dimensions"] == str(fmt.MAX_NDIM)
    assert limits["alignment of a payload"] == str(fmt.MAX_ALIGNMENT)


def test_the_check_value_in_the_text() -> None:
    assert crc32c(b"123456789") == 0xE3069283
