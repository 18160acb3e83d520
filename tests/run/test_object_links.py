"""Objects and archives through linkers and binary tools, and the program that results: the right bytes, every time."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from elftools.elf.elffile import ELFFile

from cross.table import find
from emitter.sections import pack_section
from emitter.symbols import linker_script
from emitter.targets import load
from tests.c_tools import toolchain_of
from tests.elf_objects import TARGET_NAMES, package_of, run, section_of, write_pack_object

if TYPE_CHECKING:
    from pathlib import Path

    from emitter.package import Package

LINKERS = ("bfd", "lld", "mold")
CPUS = ("x86_64-linux-gnu", "aarch64-linux-gnu")

PAYLOADS = {"a.weight": bytes(range(251)) * 40, "b": b"three", "c": b"\x80" * 4096}

# Neighbours of 1 and 3 bytes stand before the pack, so that only its own alignment can put it right.
CONSUMER = r"""
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
extern const unsigned char model[], model_t_b[];
extern const size_t model_size;
extern const char one[1], three[3];
int main(int argc, char **argv) {
    (void)argc;
    static unsigned char expected[1 << 20];
    FILE *file = fopen(argv[1], "rb");
    size_t size = file ? fread(expected, 1, sizeof expected, file) : 0;
    if (size == 0 || size != model_size) return printf("size %zu, expected %zu\n", model_size, size), 1;
    if (memcmp(expected, model, size)) return puts("bytes differ"), 1;
    if (memcmp(model_t_b, "three", 5)) return puts("tensor differs"), 1;
    if ((uintptr_t)model % 64) return printf("address %p\n", (void *)model), 1;
    return one[0] != 1 || three[2] != 3;
}
"""
NEIGHBOURS = "const char one[1] = {1};", "const char three[3] = {1, 2, 3};"


class Builder:
    """Compiles, links and runs for one target in one directory."""

    def __init__(self, target_name: str, directory: Path) -> None:
        self.toolchain = toolchain_of(target_name)
        self.directory = directory
        (directory / "main.c").write_text(CONSUMER)
        for number, text in enumerate(NEIGHBOURS, 1):
            (directory / f"n{number}.c").write_text(text)
        # Cross compilers look for linkers of other makers only here.
        for linker in LINKERS[1:]:
            path = shutil.which(f"ld.{linker}")
            if path:
                (directory / f"ld.{linker}").symlink_to(path)

    def linker(self, name: str) -> list[str]:
        if name != "bfd" and not (self.directory / f"ld.{name}").exists():
            pytest.skip(f"ld.{name} is not installed")
        return [f"-fuse-ld={name}", *([f"-B{self.directory}"] if name != "bfd" else [])]

    def link(self, linker: str, inputs: list[str], *flags: str, compiler: list[str] | None = None) -> None:
        command = [*(compiler or [self.toolchain.c]), *self.linker(linker), *flags, "n1.c", "n2.c", "main.c", *inputs]
        run(*command, "-o", "main", cwd=self.directory)

    def check(self) -> None:
        run(*self.toolchain.runner(), str(self.directory / "main"), str(self.directory / "expected"))

    def emit(self, file_name: str, **options: Any) -> Package:
        """Write the pack as an object or archive, and the bytes to expect."""
        package = package_of(PAYLOADS)
        name = self.toolchain.name
        write_pack_object(name, package, self.directory / file_name, with_tensors=True, **options)
        write_pack_object(name, package, self.directory / "plain.o")
        with (self.directory / "plain.o").open("rb") as file:
            data = section_of(ELFFile(file), ".rodata.model").data()
        (self.directory / "expected").write_bytes(data)
        return package


MODES = {
    "plain": [],
    "no-pie": ["-no-pie", "-fno-pie"],
    "static": ["-static"],
    "static-pie": ["-static-pie", "-fPIE"],
    "gc-sections": ["-Wl,--gc-sections", "-fdata-sections", "-ffunction-sections"],
    "icf": ["-Wl,--icf=all"],
    "separate-code": ["-Wl,-z,separate-code"],
    "no-separate-code": ["-Wl,-z,noseparate-code"],
}


@pytest.mark.parametrize("file_name", ["model.o", "libmodel.a"])
@pytest.mark.parametrize("mode", list(MODES))
@pytest.mark.parametrize("linker", LINKERS)
@pytest.mark.parametrize("target_name", CPUS)
def test_link_matrix(tmp_path: Path, target_name: str, linker: str, mode: str, file_name: str) -> None:
    if mode == "icf" and linker == "bfd":
        pytest.skip("GNU ld has no identical code folding")
    builder = Builder(target_name, tmp_path)
    builder.emit(file_name)
    builder.link(linker, [file_name], *MODES[mode])
    builder.check()


@pytest.mark.parametrize("file_name", ["model.o", "libmodel.a"])
@pytest.mark.parametrize("linker", LINKERS)
@pytest.mark.parametrize("target_name", CPUS)
def test_link_time_optimisation(tmp_path: Path, target_name: str, linker: str, file_name: str) -> None:
    builder = Builder(target_name, tmp_path)
    builder.emit(file_name)
    compiler = None
    if linker == "lld":  # it reads LLVM's intermediate code, not GCC's
        compiler = builder.toolchain.compilers()["clang"]
    builder.link(linker, [file_name], "-flto", "-O2", compiler=compiler)
    builder.check()


@pytest.mark.parametrize("visibility", ["default", "protected", "hidden"])
@pytest.mark.parametrize("linker", LINKERS)
@pytest.mark.parametrize("target_name", CPUS)
def test_inside_a_shared_library(tmp_path: Path, target_name: str, linker: str, visibility: str) -> None:
    builder = Builder(target_name, tmp_path)
    builder.emit("model.o", visibility=visibility)
    (tmp_path / "lib.c").write_text(
        "#include <stddef.h>\nextern const unsigned char model[]; extern const size_t model_size;\n"
        "const unsigned char *get(size_t *n) { *n = model_size; return model; }\n"
    )
    (tmp_path / "use.c").write_text(
        "#include <stdio.h>\n#include <string.h>\nconst unsigned char *get(size_t *n);\n"
        "int main(int c, char **v) { static char e[1 << 20]; size_t n; const unsigned char *p = get(&n);\n"
        '  FILE *f = fopen(v[1], "rb"); return c != 2 || fread(e, 1, sizeof e, f) != n || memcmp(e, p, n); }\n'
    )
    flags = [builder.toolchain.c, *builder.linker(linker)]
    run(*flags, "-shared", "-fPIC", "-Wl,-z,defs,-z,text", "lib.c", "model.o", "-o", "libuse.so", cwd=tmp_path)
    run(*flags, "use.c", "libuse.so", f"-Wl,-rpath,{tmp_path}", "-o", "main", cwd=tmp_path)
    builder.check()
    exported = "model" in run("readelf", "--dyn-syms", "-W", "libuse.so", cwd=tmp_path).stdout
    assert exported == (visibility != "hidden")
    stack = next(
        line for line in run("readelf", "-lW", "libuse.so", cwd=tmp_path).stdout.splitlines() if "GNU_STACK" in line
    )
    assert " RW " in stack
    assert "E" not in stack.split("GNU_STACK")[1]


def llvm(tool: str) -> str:
    return next((name for name in (f"llvm-{tool}", f"llvm-{tool}-14") if shutil.which(name)), f"llvm-{tool}")


# Commands that rewrite m.o or libm.a into out; {gnu} begins the names of the target's GNU tools.
EDITS: dict[str, list[str]] = {
    "ld -r": ["{gnu}ld", "-r", "{in}", "-o", "{out}"],
    "strip -g": ["{gnu}strip", "-g", "{in}", "-o", "{out}"],
    "strip --strip-unneeded": ["{gnu}strip", "--strip-unneeded", "{in}", "-o", "{out}"],
    "objcopy": ["{gnu}objcopy", "{in}", "{out}"],
    "objcopy --rename-section": ["{gnu}objcopy", "--rename-section", ".rodata.model=.weights", "{in}", "{out}"],
    "objcopy --prefix-symbols": ["{gnu}objcopy", "--prefix-symbols=v2_", "{in}", "{out}"],
    "objcopy --redefine-sym": ["{gnu}objcopy", "--redefine-sym", "model=v2_model", "{in}", "{out}"],
    "llvm-objcopy": [llvm("objcopy"), "{in}", "{out}"],
    "llvm-strip -g": [llvm("strip"), "-g", "{in}", "-o", "{out}"],
    "lld -r": ["ld.lld", "-r", "{in}", "-o", "{out}"],
}

# What the program must call the symbols after an edit.
RENAMED = {
    "objcopy --prefix-symbols": [f"-D{name}=v2_{name}" for name in ("model", "model_size", "model_t_b")],
    "objcopy --redefine-sym": ["-Dmodel=v2_model"],
}


@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("edit", list(EDITS))
@pytest.mark.parametrize("target_name", CPUS)
def test_edited_object_links_to_the_same_bytes(tmp_path: Path, target_name: str, edit: str, retain: bool) -> None:
    builder = Builder(target_name, tmp_path)
    builder.emit("m.o", retain=retain)
    names = {"{in}": "m.o", "{out}": "out.o"}
    command = [names.get(word, word.replace("{gnu}", f"{builder.toolchain.triple}-")) for word in EDITS[edit]]
    run(*command, cwd=tmp_path)
    for linker in LINKERS:
        builder.link(linker, ["out.o"], "-Wl,--gc-sections", *RENAMED.get(edit, []))
        builder.check()


@pytest.mark.parametrize("edit", [name for name in EDITS if " -r" not in name])
@pytest.mark.parametrize("target_name", CPUS)
def test_edited_archive_links_to_the_same_bytes(tmp_path: Path, target_name: str, edit: str) -> None:
    builder = Builder(target_name, tmp_path)
    builder.emit("libm.a")
    names = {"{in}": "libm.a", "{out}": "out.a"}
    command = [names.get(word, word.replace("{gnu}", f"{builder.toolchain.triple}-")) for word in EDITS[edit]]
    run(*command, cwd=tmp_path)
    for linker in LINKERS:
        builder.link(linker, ["out.a"], *RENAMED.get(edit, []))
        builder.check()


@pytest.mark.parametrize("file_name", ["model.o", "libmodel.a"])
@pytest.mark.parametrize("mode", ["plain", "no-pie", "static"])
@pytest.mark.parametrize("target_name", [name for name in TARGET_NAMES if find(name) and name not in CPUS])
def test_every_cpu_links_and_runs(tmp_path: Path, target_name: str, mode: str, file_name: str) -> None:
    builder = Builder(target_name, tmp_path)
    builder.emit(file_name)
    builder.link("bfd", [file_name], *MODES[mode])
    builder.check()


@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("linker", LINKERS)
@pytest.mark.parametrize("target_name", CPUS)
def test_gc_sections_drops_what_nobody_refers_to_unless_retained(
    tmp_path: Path, target_name: str, linker: str, retain: bool
) -> None:
    builder = Builder(target_name, tmp_path)
    builder.emit("model.o", retain=retain)
    (tmp_path / "nothing.c").write_text("int main(void) { return 0; }\n")
    flags = [builder.toolchain.c, *builder.linker(linker)]
    run(*flags, "-Wl,--gc-sections", "nothing.c", "model.o", "-o", "main", cwd=tmp_path)
    assert (b"\x89EMT\r\n\x1a\n" in (tmp_path / "main").read_bytes()) == retain


# Payloads out of reach: what links with docs/large-data.md's fragment, and reads the right bytes.
FAR_CONSUMER = r"""
#include <stddef.h>
#include <stdint.h>
#include <string.h>
extern const unsigned char model[], model_t_last[];
extern const size_t model_size;
const unsigned char *volatile last = model_t_last; /* a pointer in data reaches everything */
int main(void) {
    const unsigned char *const volatile start = model;
    const unsigned char *const volatile end = last;
    if (memcmp(start, "\x89" "EMT", 4) || memcmp(end, "LAST", 4) || (uintptr_t)start % 64) return 1;
    return end + 4 != start + model_size;
}
"""

# (target, bytes, large-data section, linker). A link takes many seconds: docs/large-data.md has more pairs.
FAR = [
    ("x86_64-linux-gnu", 5 << 29, True, "lld"),
    ("aarch64-linux-gnu", 9 << 29, False, "lld"),
    ("riscv64-linux-gnu", 5 << 29, False, "bfd"),
]


@pytest.mark.parametrize(
    ("target_name", "size", "large", "linker"),
    FAR,
)
def test_far_payload_links_with_the_fragment(
    tmp_path: Path, target_name: str, size: int, large: bool, linker: str
) -> None:
    builder = Builder(target_name, tmp_path)
    with (tmp_path / "weights").open("wb") as file:
        file.truncate(size)
    package = package_of({"first": tmp_path / "weights", "last": b"LAST"})
    write_pack_object(target_name, package, tmp_path / "model.o", with_tensors=True, large=large)
    target = load(target_name)
    section = pack_section(target, "model", section=None, large=large)
    (tmp_path / "far.ld").write_text(linker_script(target, section))
    (tmp_path / "far.c").write_text(FAR_CONSUMER)
    try:
        flags = [builder.toolchain.c, *builder.linker(linker), "-Wl,-T,far.ld"]
        run(*flags, "far.c", "model.o", "-o", "main", cwd=tmp_path)
        run(*builder.toolchain.runner(), str(tmp_path / "main"))
    finally:
        (tmp_path / "main").unlink(missing_ok=True)  # gigabytes, not all of them holes


def test_far_payload_without_the_fragment_is_refused_by_linkers_not_cut(tmp_path: Path) -> None:
    builder = Builder("x86_64-linux-gnu", tmp_path)
    with (tmp_path / "weights").open("wb") as file:
        file.truncate(5 << 29)
    package = package_of({"first": tmp_path / "weights", "last": b"LAST"})
    write_pack_object("x86_64-linux-gnu", package, tmp_path / "model.o", with_tensors=True)
    (tmp_path / "far.c").write_text(FAR_CONSUMER)
    for linker in LINKERS:
        flags = [builder.toolchain.c, *builder.linker(linker)]
        done = run(*flags, "far.c", "model.o", "-o", "main", cwd=tmp_path, check=False)
        (tmp_path / "main").unlink(missing_ok=True)
        assert done.returncode != 0
        assert "relocation" in done.stderr


def test_large_section_needs_no_fragment_with_gnu_ld(tmp_path: Path) -> None:
    builder = Builder("x86_64-linux-gnu", tmp_path)
    with (tmp_path / "weights").open("wb") as file:
        file.truncate(5 << 29)
    package = package_of({"first": tmp_path / "weights", "last": b"LAST"})
    write_pack_object("x86_64-linux-gnu", package, tmp_path / "model.o", with_tensors=True, large=True)
    (tmp_path / "far.c").write_text(FAR_CONSUMER)
    try:
        run(builder.toolchain.c, "far.c", "model.o", "-o", "main", cwd=tmp_path)
        run(*builder.toolchain.runner(), str(tmp_path / "main"))
    finally:
        (tmp_path / "main").unlink(missing_ok=True)
