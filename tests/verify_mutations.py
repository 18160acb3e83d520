"""Verifies mutated files: `python -m tests.verify_mutations SEED COUNT`. Prints how many ended with each status.

Each file must end with the status 0, 1 or 2, within 5 seconds; the memory of the process is printed at the end. A
traceback, or a file that takes longer, ends the run with the mutation that can be made again from its number.
"""

from __future__ import annotations

import collections
import io
import random
import signal
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from emitter import EmitterError, Package, emit
from emitter.verify import verify
from emitter.verify.output import FORMATS
from tests.verify_files import CASES

if TYPE_CHECKING:
    from types import FrameType

SECONDS = 5
SUFFIXES = {
    "x86_64-linux-gnu": (".so", ".o", ".a"),
    "riscv64-linux-gnu": (".so", ".o"),
    "armv7-linux-gnueabihf": (".so",),
    "s390x-linux-gnu": (".o",),
    "arm64-apple-macos": (".dylib", ".o"),
    "x86_64-windows-msvc": (".dll", ".obj", ".lib"),
}


def originals(folder: Path) -> list[tuple[str, bytes]]:
    """Return (name, bytes) of files of every format."""
    package = Package()
    package.add_raw("alpha", bytes(range(200)))
    package.add_raw("beta", b"beta" * 30)
    files = []
    for target, suffixes in SUFFIXES.items():
        for suffix in suffixes:
            path = folder / f"m{suffix}"
            emit(package, path, target=target, tensor_symbols=True)
            files.append((path.name, path.read_bytes()))
    emit(package, folder / "m.pack", target="x86_64-linux-gnu")
    files.append(("m.pack", (folder / "m.pack").read_bytes()))
    with zipfile.ZipFile(CASES) as container:
        small = [info for info in container.infolist() if 0 < info.file_size < 100_000]
        files += [(info.filename.rpartition("/")[2], container.read(info)) for info in small]
    library = files[0][1]
    packed, archived = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as container:
        container.writestr("lib/x86_64/libm.so", library)
        container.writestr("AndroidManifest.xml", "x")
    with tarfile.open(fileobj=archived, mode="w:gz") as archive:
        info = tarfile.TarInfo("libm.so")
        info.size = len(library)
        archive.addfile(info, io.BytesIO(library))
    return [*files, ("m.apk", packed.getvalue()), ("m.tar.gz", archived.getvalue())]


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Return a file with some bytes changed, mostly in its headers, cut off, or with a part put elsewhere."""
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
        place = chance.random()
        # Headers stand at both ends: segments in front, sections behind.
        limit = len(out)
        at = chance.randrange(min(limit, 512) if place < 0.4 else limit)
        at = limit - 1 - chance.randrange(min(limit, 2048)) if 0.4 <= place < 0.7 else at
        width = chance.choice((1, 1, 2, 4, 8))
        value = chance.choice((0, 1, 0xFF, 0x7F, 0x80, chance.randrange(256)))
        out[at : at + width] = bytes([value]) * min(width, limit - at)
    kind = chance.randrange(20)
    if kind == 0:
        del out[chance.randrange(1, len(out)) :]
    elif kind == 1:
        start, size = chance.randrange(len(out)), chance.randrange(64)
        out[start:start] = out[start : start + size]
    return bytes(out)


def _too_long(number: int, frame: FrameType | None) -> None:
    del number, frame
    msg = f"a file took more than {SECONDS} seconds"
    raise TimeoutError(msg)


def main(seed: int, count: int) -> int:
    """Verify `count` mutations."""
    signal.signal(signal.SIGALRM, _too_long)
    statuses: collections.Counter[int] = collections.Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = originals(folder)
        for number in range(count):
            chance = random.Random(f"{seed}-{number}")
            file, data = chance.choice(files)
            path = folder / file
            path.write_bytes(mutated(data, chance))
            target = chance.choice((None, None, "x86_64-linux-gnu", "arm64-apple-macos"))
            signal.alarm(SECONDS)
            try:
                result = verify(path, target=target, config="")
                FORMATS[chance.choice(sorted(FORMATS))](result).encode()
                statuses[result.status] += 1
            except EmitterError:
                statuses[2] += 1
            except BaseException:
                sys.stderr.write(f"seed {seed}, number {number}: {file}\n")
                raise
            finally:
                signal.alarm(0)
            path.unlink()
    # Not ru_maxrss: at an exec that takes over the size of the process which started this one.
    with open("/proc/self/status", encoding="ascii") as status:
        peak = next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmHWM:"))
    sys.stdout.write(f"{dict(sorted(statuses.items()))} peak {peak} MiB\n")
    return 0 if set(statuses) <= {0, 1, 2} else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
