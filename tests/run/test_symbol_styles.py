"""Programs written for `ld -r -b binary`, incbin.h and `xxd -i`, linked with our objects instead of the originals'."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.c_tools import toolchain_of
from tests.elf_objects import package_of, run, write_styled

if TYPE_CHECKING:
    from pathlib import Path

    from emitter.options import Style

CONTENTS = bytes(range(256)) + b"odd"

CONSUMERS: dict[Style, str] = {
    # The size is an address: such programs are linked at a fixed one.
    "ld": r"""
#include <stdio.h>
extern const char _binary_sub_a_b_bin_start[], _binary_sub_a_b_bin_end[];
extern char _binary_sub_a_b_bin_size;
int main(void) {
    size_t size = (size_t)&_binary_sub_a_b_bin_size;
    if (size != (size_t)(_binary_sub_a_b_bin_end - _binary_sub_a_b_bin_start)) return 1;
    return fwrite(_binary_sub_a_b_bin_start, 1, size, stdout) != size;
}
""",
    # What INCBIN_EXTERN(Icon) declares.
    "incbin": r"""
#include <stdint.h>
#include <stdio.h>
extern const __attribute__((aligned(16))) unsigned char gIconData[];
extern const __attribute__((aligned(16))) unsigned char *const gIconEnd;
extern const unsigned int gIconSize;
int main(void) {
    if ((const unsigned char *)&gIconEnd != gIconData + gIconSize || *(const unsigned char *)&gIconEnd != 1) return 1;
    if ((uintptr_t)gIconData % 16) return 2;
    return fwrite(gIconData, 1, gIconSize, stdout) != gIconSize;
}
""",
    # Writable, as xxd declares it.
    "xxd": r"""
#include <stdio.h>
extern unsigned char sub_a_b_bin[];
extern unsigned int sub_a_b_bin_len;
int main(void) {
    for (unsigned int i = 0; i < sub_a_b_bin_len; i++) sub_a_b_bin[i] ^= 0xff;
    for (unsigned int i = 0; i < sub_a_b_bin_len; i++) sub_a_b_bin[i] ^= 0xff;
    return fwrite(sub_a_b_bin, 1, sub_a_b_bin_len, stdout) != sub_a_b_bin_len;
}
""",
}

INCBIN = """
    .section .rodata
    .global gIconData, gIconEnd, gIconSize
    .balign 16
gIconData:
    .incbin "sub/a-b.bin"
gIconEnd:
    .byte 1
    .balign 16
gIconSize:
    .int gIconEnd - gIconData
    .section .note.GNU-stack, "", %progbits
"""


def write_original(style: Style, directory: Path, gcc: str, ld: str) -> None:
    """Write theirs.o with the tool that the style is named for."""
    if style == "ld":
        run(ld, "-r", "-b", "binary", "sub/a-b.bin", "-o", "theirs.o", cwd=directory)
        return
    source = "theirs.s" if style == "incbin" else "theirs.c"
    text = INCBIN if style == "incbin" else run("xxd", "-i", "sub/a-b.bin", cwd=directory).stdout
    (directory / source).write_text(text)
    run(gcc, "-c", source, "-o", "theirs.o", cwd=directory)


@pytest.mark.parametrize("mode", ["-no-pie", "-static", "-pie"])
@pytest.mark.parametrize("style", list(CONSUMERS))
@pytest.mark.parametrize("target_name", ["x86_64-linux-gnu", "aarch64-linux-gnu"])
def test_consumer_of_the_original_runs_unchanged(tmp_path: Path, target_name: str, style: Style, mode: str) -> None:
    if (style, mode) == ("ld", "-pie"):
        pytest.skip("an absolute size means nothing in a program that moves, whoever wrote the object")
    toolchain = toolchain_of(target_name)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a-b.bin").write_bytes(CONTENTS)
    (tmp_path / "consumer.c").write_text(CONSUMERS[style])
    write_original(style, tmp_path, toolchain.c, toolchain.tool("ld"))
    name = "Icon" if style == "incbin" else "sub/a-b.bin"
    write_styled(target_name, style, package_of({name: tmp_path / "sub" / "a-b.bin"}), tmp_path / "ours.o")
    flags = [mode, *(["-fno-pie"] if mode == "-no-pie" else [])]
    for made_by in ("theirs", "ours"):
        run(toolchain.c, *flags, "consumer.c", f"{made_by}.o", "-o", made_by, cwd=tmp_path)
        # Through a file: the output is not text.
        program = " ".join([*toolchain.runner(), f"./{made_by}"])
        run("sh", "-c", f"{program} > {made_by}.out", cwd=tmp_path)
        assert (tmp_path / f"{made_by}.out").read_bytes() == CONTENTS


@pytest.mark.parametrize("style", list(CONSUMERS))
@pytest.mark.parametrize("linker", ["bfd", "lld", "mold"])
def test_stack_is_not_executable_with_any_linker(tmp_path: Path, style: Style, linker: str) -> None:
    run(f"ld.{linker}", "--version")
    write_styled("x86_64-linux-gnu", style, package_of({"x": CONTENTS}), tmp_path / "x.o")
    run("gcc", f"-fuse-ld={linker}", "-shared", "x.o", "-o", "x.so", cwd=tmp_path)
    (stack,) = (
        line for line in run("readelf", "-lW", str(tmp_path / "x.so")).stdout.splitlines() if "GNU_STACK" in line
    )
    assert " RWE " not in stack
