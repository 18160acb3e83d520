"""Fails if pytest skipped a test for a reason that is not listed: a tool that is missing must not pass for a success.

    check_skips.py REPORT.xml EXPECTED

Each line of EXPECTED is a pattern for the skip's message (as in the shell), two blanks, `#`, and why it is expected.
"""

from __future__ import annotations

import fnmatch
import sys
import xml.etree.ElementTree as ET
from collections import Counter


def patterns(path: str) -> list[str]:
    """Return the patterns of a list of expected skips."""
    with open(path, encoding="utf-8") as file:
        lines = [line.rstrip("\n").partition("  #")[0].strip() for line in file if not line.startswith("#")]
    return [line for line in lines if line]


def main(report: str, expected: str) -> int:
    """Compare, print what was skipped, and return the exit status."""
    tree = ET.parse(report)  # noqa: S314 - our own pytest wrote it
    skips = Counter(node.get("message", "") for node in tree.iter("skipped"))
    known = patterns(expected)
    unexpected = 0
    for message, count in sorted(skips.items()):
        listed = any(fnmatch.fnmatchcase(message, pattern) for pattern in known)
        unexpected += not listed
        print(f"{'expected' if listed else 'UNEXPECTED'} skip of {count}: {message}")
    if unexpected:
        print(f"check_skips.py: error: {unexpected} reasons are not in {expected}", file=sys.stderr)
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
