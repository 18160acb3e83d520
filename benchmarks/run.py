"""Measures emitter beside what people use today, and prints a table.

    python3 benchmarks/run.py [--quick] [--json] [--rounds N] [--keep DIR]

Whole processes, with emitter installed (not editable) in a virtual environment of its own; every destination is fresh
unless the line says otherwise; each run directly after a `cp` of the same bytes; medians. docs/benchmarks.md explains
the method.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

from benchmarks.attach import attached
from benchmarks.code import code
from benchmarks.sections import MB, QUICK, Bench, Section
from benchmarks.sections import SECTIONS as OWN_SECTIONS
from benchmarks.verified import verified

SECTIONS = (*OWN_SECTIONS, attached, code, verified)


def machine() -> str:
    """Return what the figures depend on, without what identifies the machine."""
    kernel = f"{platform.system()} {platform.release().split('-')[0]}"
    return f"{os.cpu_count()} cores, {kernel}, CPython {platform.python_version()}"


def print_section(section: Section) -> None:
    """Print a section as text."""
    print(f"\n{section.title}")
    if section.rows:
        print(f"  {'':38} {'wall s':>8} {'x base':>7} {'[min-max]':>13} {'base +s':>8} {'CPU s':>7} {'peak MB':>8}")
    for row in section.rows:
        if row.failure:
            print(f"  {row.name:38} {row.failure}")
            continue
        ratios = row.ratios
        spread = f"[{ratios[0]:.2f}-{ratios[-1]:.2f}]"
        relative = f"{row.ratio:7.2f} {spread:>13} {row.extra:8.4f}"
        print(f"  {row.name:38} {row.wall:8.4f} {relative} {row.cpu:7.3f} {row.peak / MB:8.1f}")
    for aim in section.aims:
        print(f"  {'reached' if aim.reached else 'MISSED '}  {aim.text}: {aim.found}")
    for note in section.notes:
        print(f"  {note}")


def main() -> int:
    """Run the command; return 0 whatever was reached: a figure is no test."""
    parser = argparse.ArgumentParser(description="Measure emitter beside what people use today.")
    parser.add_argument("--quick", action="store_true", help="three rounds, without the inputs of 1 GiB and more")
    parser.add_argument("--rounds", type=int, help="runs of each line (default: 7)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--keep", metavar="DIR", help="work in DIR and leave it, with the environment, for the next time"
    )
    parser.add_argument("--only", action="append", choices=[section.__name__ for section in SECTIONS], help="a section")
    options = parser.parse_args()
    rounds = options.rounds or (3 if options.quick else 7)
    sections = QUICK if options.quick else SECTIONS
    if options.only:
        sections = tuple(section for section in SECTIONS if section.__name__ in options.only)
    # Beside the tree and not in /tmp, which may be memory: it is a disk's file system that is measured.
    with contextlib.ExitStack() as stack:
        folder = options.keep or stack.enter_context(
            tempfile.TemporaryDirectory(prefix="emitter-bench-", dir="/var/tmp")
        )
        for name in ("objects", "libraries"):
            os.makedirs(os.path.join(folder, name), exist_ok=True)
        bench = Bench(os.path.abspath(folder), rounds)
        bench.install()
        if not options.json:
            print(f"{machine()}; {rounds} runs of each line")
        done = []
        for make in sections:
            section = make(bench)
            done.append(section)
            if not options.json:
                print_section(section)
                sys.stdout.flush()
    if options.json:
        document = {
            "schema": "emitter.benchmarks/1",
            "machine": machine(),
            "rounds": rounds,
            "sections": [
                {
                    "title": section.title,
                    "rows": [row.to_json() for row in section.rows],
                    "aims": [{"text": aim.text, "found": aim.found, "reached": aim.reached} for aim in section.aims],
                    "notes": section.notes,
                }
                for section in done
            ],
        }
        print(json.dumps(document, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
