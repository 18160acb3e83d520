"""A payload beyond 4 GiB is attached to near code, which reads its last byte. Files are holes, nearly."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from emitter import Package, load, targets
from emitter.attach.file import attach
from emitter.pack.plan import plan_pack
from tests.attach_files import USE, compile_kernels, link, linker, write_stub
from tests.c_tools import need

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.run.device import Device

SIZE = (5 << 30) + 12345
MARKS = {0: 0x11, (1 << 31) - 1: 0x22, 1 << 32: 0x33, SIZE - 1: 0x44}


@pytest.mark.parametrize("linker_name", ["bfd", "lld", "mold"])
@pytest.mark.parametrize("target", ["x86_64-linux-gnu", "x86_64-linux-musl", "aarch64-linux-gnu", "riscv64-linux-gnu"])
def test_code_reads_beyond_4_gib(
    target: str, linker_name: str, device_for: Callable[[str], Device], tmp_path: Path
) -> None:
    device = device_for(target)
    need(device.toolchain.c)
    source = tmp_path / "weights.bin"
    with source.open("wb") as file:
        file.truncate(SIZE)
        for offset, value in MARKS.items():
            file.seek(offset)
            file.write(bytes((value,)))
    if source.stat().st_blocks > 1 << 16:
        pytest.skip("the file system has no holes")
    package = Package()
    package.add_raw("weights", source)
    found = targets.load(target)
    pack = plan_pack(package, found.byte_order)
    stub = write_stub(tmp_path / "stub.o", target)
    command = linker(linker_name, device.toolchain)
    linked = link(command, tmp_path / "linked.so", compile_kernels(tmp_path, [device.toolchain.c]), stub)
    library = tmp_path / "libmodel.so"
    attach(str(linked), str(library), found, pack, name="model")
    assert library.stat().st_blocks < 1 << 16

    (tmp_path / "use.c").write_text(USE)
    program = tmp_path / "use"
    subprocess.run([device.toolchain.c, "-O1", str(tmp_path / "use.c"), "-o", str(program), "-ldl"], check=True)
    start = pack.payloads[0].offset
    done = device.run(program, library, *(str(start + offset) for offset in MARKS))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{pack.total_size} {' '.join(f'{value:02x}' for value in MARKS.values())}\n"
    with load(library) as loaded:
        assert [int(loaded["weights"][offset]) for offset in MARKS] == list(MARKS.values())
