"""Makes the bitcode of this folder anew, with every clang that is on the path (Debian: clang-14 and so on)."""

from __future__ import annotations

import os
import shutil
import subprocess

FOLDER = os.path.dirname(os.path.abspath(__file__))
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


def main() -> None:
    """Write llvm-N.bc for each version N."""
    for version in range(13, 31):
        clang = shutil.which(f"clang-{version}")
        if clang is not None:
            output = os.path.join(FOLDER, f"llvm-{version}.bc")
            command = [
                clang,
                "--target=x86_64-linux-gnu",
                "-O1",
                "-fPIC",
                "-emit-llvm",
                "-c",
                "-x",
                "c",
                "-",
                "-o",
                output,
            ]
            subprocess.run(command, input=SOURCE, text=True, check=True, cwd="/")


if __name__ == "__main__":
    main()
