"""Programs of each CPU open emitted libraries, also after other tools have edited them; linkers link against them."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from elftools.elf.elffile import ELFFile

from cross.table import TOOLCHAINS
from emitter.checksum import crc32c
from emitter.image.elf import plan_image
from emitter.pack.plan import plan_pack
from emitter.package import Package
from emitter.targets import load
from tests.c_tools import need, toolchain_of
from tests.elf_images import pattern, section_of, write_image

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.elf_images import Image

PAYLOADS = {"a": pattern(70000, 1), "b": pattern(64, 2), "empty": b"", "z": pattern(9001, 3)}

# Opens each library named, and prints how each symbol is aligned, the pack's size, and the CRC-32C of what each names.
PROGRAM = r"""
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t crc32c(const unsigned char *data, size_t size) {
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return crc ^ 0xffffffffu;
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        void *library = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
        if (!library) { printf("dlopen: %s\n", dlerror()); return 1; }
        const unsigned char *pack = dlsym(library, "model");
        const size_t *size = dlsym(library, "model_size");
        if (!pack || !size) { printf("dlsym: %s\n", dlerror()); return 1; }
        int same = pack == dlsym(library, "emitter_pack");
        printf("%d %d %zu %08x\n", (int)((uintptr_t)pack % 4096), same, *size, crc32c(pack, *size));
        const char *names[] = {"model_t_a", "model_t_b", "model_t_empty", "model_t_z"};
        const size_t sizes[] = {70000, 64, 0, 9001};
        for (int n = 0; n < 4; n++) {
            const unsigned char *tensor = dlsym(library, names[n]);
            printf("%d %08x\n", tensor ? (int)((uintptr_t)tensor % 64) : -1, tensor ? crc32c(tensor, sizes[n]) : 0);
        }
    }
    return 0;
}
"""


def expected(image: Image) -> str:
    at, size = image.plan.pack_offset, image.pack.total_size
    assert at is not None
    lines = [f"0 1 {size} {crc32c(image.path.read_bytes()[at : at + size]):08x}"]
    lines += [f"0 {crc32c(PAYLOADS[name]):08x}" for name in ("a", "b", "empty", "z")]
    return "".join(line + "\n" for line in lines)


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Return a function that compiles the program for a target, once."""
    folder = tmp_path_factory.mktemp("programs")
    built: dict[str, str] = {}

    def build(name: str) -> str:
        toolchain = toolchain_of(name)
        if name not in built:
            source = folder / "program.c"
            source.write_text(PROGRAM)
            built[name] = str(folder / name)
            run(toolchain.c, "-O1", "-o", built[name], str(source), "-ldl")
        return built[name]

    return build


every_toolchain = pytest.mark.parametrize("name", [toolchain.name for toolchain in TOOLCHAINS])


def runner(name: str, page_size: int | None = None) -> list[str]:
    return toolchain_of(name).runner(page_size)


def tool(name: str, command: str) -> str:
    return toolchain_of(name).tool(command)


EDITS: dict[str, list[list[str]]] = {
    "nothing": [],
    "strip": [["STRIP", "FILE"]],
    "llvm-strip": [["llvm-strip", "FILE"]],
    "a longer soname": [["patchelf", "--set-soname", "lib" + "long" * 40 + ".so", "FILE"]],
    "a needed library": [["patchelf", "--add-needed", "libc.so.6", "FILE"]],
    "a run path": [["patchelf", "--set-rpath", "$ORIGIN/" + "long" * 40, "FILE"]],
    "a longer soname, strip": [["patchelf", "--set-soname", "lib" + "long" * 40 + ".so", "FILE"], ["STRIP", "FILE"]],
    "objcopy": [["OBJCOPY", "FILE"]],
}


@every_toolchain
@pytest.mark.parametrize("edit", EDITS)
def test_library_loads_with_its_bytes(name: str, edit: str, program: Callable[[str], str], tmp_path: Path) -> None:
    if name.endswith("musl") and edit == "a needed library":
        pytest.skip("musl has no libc.so.6 to need")
    command = program(name)
    image = write_image(tmp_path / "libmodel.so", load(name), PAYLOADS)
    wanted = expected(image)
    for step in EDITS[edit]:
        words = [tool(name, word.lower()) if word in {"STRIP", "OBJCOPY"} else word for word in step]
        need(words[0])
        run(*(str(image.path) if word == "FILE" else word for word in words))
    assert run(*runner(name), command, str(image.path)) == wanted


@pytest.mark.parametrize("edit", ["nothing", "strip", "llvm-strip", "a longer soname"])
@pytest.mark.parametrize("page_size", [4096, 16384, 65536])
def test_library_loads_on_kernels_of_every_page_size(
    edit: str, page_size: int, program: Callable[[str], str], tmp_path: Path
) -> None:
    name = "aarch64-linux-gnu"
    command = program(name)
    image = write_image(tmp_path / "libmodel.so", load(name), PAYLOADS)
    wanted = expected(image)
    for step in EDITS[edit]:
        words = [tool(name, "strip") if word == "STRIP" else word for word in step]
        need(words[0])
        run(*(str(image.path) if word == "FILE" else word for word in words))
    assert run(*runner(name, page_size), command, str(image.path)) == wanted


@every_toolchain
def test_two_libraries_in_one_process_keep_apart(name: str, program: Callable[[str], str], tmp_path: Path) -> None:
    command = program(name)
    first = write_image(tmp_path / "libfirst.so", load(name), PAYLOADS)
    second = write_image(tmp_path / "libsecond.so", load(name), PAYLOADS | {"extra": b"another"})
    assert run(*runner(name), command, str(first.path), str(second.path)) == expected(first) + expected(second)


@pytest.mark.parametrize("count", [0, 1, 5000])
@every_toolchain
def test_lookups_work_with_one_hash_table_alone(
    name: str, count: int, program: Callable[[str], str], tmp_path: Path
) -> None:
    """Old loaders know DT_HASH alone; each table must do without the other."""
    command = program(name)
    extra = {f"layer{number}": b"" for number in range(count)}
    image = write_image(tmp_path / "libmodel.so", load(name), PAYLOADS | extra)
    wanted = expected(image)
    data = image.path.read_bytes()
    order = image.target.byte_order
    word = image.target.pointer_width // 8
    with image.path.open("rb") as file:
        at = section_of(ELFFile(file), ".dynamic")["sh_offset"]
    for d_tag in (0x6FFFFEF5, 4):  # DT_GNU_HASH, DT_HASH
        entry = data.index(d_tag.to_bytes(word, order), at)
        assert (entry - at) % (2 * word) == 0
        spoilt = bytearray(data)
        spoilt[entry : entry + word] = 0x6FFFFEF0.to_bytes(word, order)  # a tag that no loader knows
        image.path.write_bytes(spoilt)
        assert run(*runner(name), command, str(image.path)) == wanted


USER = r"""
extern const unsigned char model[];
extern const unsigned long model_size;
int main(void) { return model[0] == 0x89 && model[model_size - 1] == 'z' ? 0 : 1; }
"""
LINKERS = ("bfd", "lld", "mold")


@pytest.mark.parametrize("linker", LINKERS)
@pytest.mark.parametrize("name", ["x86_64-linux-gnu", "aarch64-linux-gnu"])
@pytest.mark.parametrize("flags", [(), ("-fPIC",), ("-fno-pie", "-no-pie")], ids=["default", "-fPIC", "-no-pie"])
def test_direct_linking_works_or_is_refused(
    name: str, linker: str, flags: tuple[str, ...], program: Callable[[str], str], tmp_path: Path
) -> None:
    """The payload is never copied into the program without a word."""
    program(name)
    toolchain = toolchain_of(name)
    command = {"bfd": toolchain.tool("ld"), "lld": "ld.lld", "mold": "mold"}[linker]
    need(command)
    # A cross gcc looks for `ld` where -B says, and for no linker of another name.
    (tmp_path / "ld").symlink_to(str(shutil.which(command)))
    write_image(tmp_path / "libmodel.so", load(name), {"a": b"z" * 5000})
    source = tmp_path / "user.c"
    source.write_text(USER)
    build = [
        toolchain.c,
        *flags,
        f"-B{tmp_path}",
        "-o",
        str(tmp_path / "user"),
        str(source),
        f"-L{tmp_path}",
        "-lmodel",
    ]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    direct = "-no-pie" in flags or (not flags and name.startswith("x86_64"))  # what gcc makes of `extern`
    if direct:
        assert done.returncode != 0
        assert "model" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    environment = ["-E", f"LD_LIBRARY_PATH={tmp_path}"]
    prefix = runner(name)
    if prefix:
        run(*prefix, *environment, str(tmp_path / "user"))
    else:
        run("env", f"LD_LIBRARY_PATH={tmp_path}", str(tmp_path / "user"))
    assert "_COPY" not in run("readelf", "-rW", str(tmp_path / "user"))


LAST_BYTE = r"""
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
    void *library = dlopen(argv[1], RTLD_NOW);
    if (!library) { puts(dlerror()); return 1; }
    const unsigned char *weights = dlsym(library, "model_t_weights");
    const unsigned char *pack = dlsym(library, "model");
    const unsigned long *size = dlsym(library, "model_size");
    printf("%lu %d %d %d\n", *size, weights[0], weights[5368709119ul], pack[*size - 1]);
    return 0;
}
"""


@pytest.mark.parametrize("name", ["x86_64-linux-gnu", "x86_64-linux-musl", "aarch64-linux-gnu"])
def test_last_byte_of_5_gib_is_read(name: str, program: Callable[[str], str], tmp_path: Path) -> None:
    from tests.elf_images import symbols_of

    program(name)
    toolchain = toolchain_of(name)
    size = 5 << 30
    weights = tmp_path / "weights.bin"
    with weights.open("wb") as file:
        file.truncate(size)
    package = Package()
    package.add_raw("weights", weights)
    pack = plan_pack(package, "little")
    plan = plan_image(load(name), pack, name="model", soname="libmodel.so", symbols=symbols_of(pack, "model_t_"))
    path = tmp_path / "libmodel.so"
    with path.open("wb") as file:  # the payload is a hole but for its ends
        file.truncate(plan.size)
        for piece in plan.pieces:
            file.seek(piece.offset)
            file.write(piece.data)
        for offset, value in ((0, 41), (size - 1, 42)):
            file.seek(plan.copies[0].offset + offset)
            file.write(bytes([value]))
    source = tmp_path / "last.c"
    source.write_text(LAST_BYTE)
    run(toolchain.c, "-o", str(tmp_path / "last"), str(source), "-ldl")
    assert run(*runner(name), str(tmp_path / "last"), str(path)) == f"{pack.total_size} 41 42 42\n"


def test_relro_is_in_force(program: Callable[[str], str], tmp_path: Path) -> None:
    """After loading, no page of the library is writable."""
    name = "x86_64-linux-gnu"
    program(name)
    toolchain = toolchain_of(name)
    if not toolchain.native:
        pytest.skip("/proc/self/maps of an emulated program shows the emulator")
    image = write_image(tmp_path / "libmodel.so", load(name), PAYLOADS)
    source = tmp_path / "maps.c"
    source.write_text(
        r"""
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv) {
    char line[4096];
    if (!dlopen(argv[1], RTLD_NOW)) return 1;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) if (strstr(line, "libmodel.so")) fputs(line, stdout);
    return 0;
}
"""
    )
    run(toolchain.c, "-o", str(tmp_path / "maps"), str(source), "-ldl")
    lines = run(str(tmp_path / "maps"), str(image.path)).splitlines()
    assert len(lines) >= 2
    assert {line.split()[1] for line in lines} == {"r--p"}
