"""Programs that were written for `ld -r -b binary`, incbin.h and `xxd -i` run on Windows with ours in their place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.run.device import emit
from tests.windows import build, mingw

if TYPE_CHECKING:
    from pathlib import Path

    from tests.windows import Wine

# For 32-bit x86 C writes the names of ld without their underscore: it puts one before them itself.
PROGRAMS = {
    "ld": """
#ifdef __i386__
#define _binary_blob_bin_start binary_blob_bin_start
#define _binary_blob_bin_end binary_blob_bin_end
#endif
extern char _binary_blob_bin_start[], _binary_blob_bin_end[];
int main(void) {
    _binary_blob_bin_start[0] = 'A'; /* it is in .data */
    return _binary_blob_bin_end - _binary_blob_bin_start != 3 || _binary_blob_bin_start[2] != 'c';
}
""",
    "incbin": """
extern const unsigned char gblob_binData[];
extern const unsigned char *const gblob_binEnd;
extern const unsigned int gblob_binSize;
int main(void) {
    return gblob_binSize != 3 || gblob_binData[2] != 'c' || (const unsigned char *)&gblob_binEnd != gblob_binData + 3;
}
""",
    "xxd": """
extern unsigned char blob_bin[];
extern unsigned int blob_bin_len;
int main(void) {
    blob_bin[0] = 'A';
    return blob_bin_len != 3 || blob_bin[2] != 'c';
}
""",
}


@pytest.mark.parametrize("style", PROGRAMS)
@pytest.mark.parametrize("cpu", ["x86_64", "i686"])
def test_program_for_another_tool_links(cpu: str, style: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _build(cpu, style, tmp_path, monkeypatch)


@pytest.mark.parametrize("style", PROGRAMS)
def test_program_for_another_tool_runs(style: str, wine: Wine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert wine.prints(_build("x86_64", style, tmp_path, monkeypatch)) == []


def _build(cpu: str, style: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)  # names come from paths as typed
    (folder / "blob.bin").write_bytes(b"abc")
    (folder / "program.c").write_text(PROGRAMS[style])
    emit("--target", f"{cpu}-windows-gnu", "--symbols", style, "raw:blob.bin", "-o", "blob.o")
    build(mingw(cpu), "-Wall", "-Werror", "program.c", "blob.o", "-o", "program.exe")
    return folder / "program.exe"
