"""The commands beside the emission, each with the options that it takes. An emission does not import them."""

from __future__ import annotations

import os
import sys

from emitter import console
from emitter.arguments import emit_parser, include_dir, new_parser, only_output, package_of
from emitter.errors import UsageError
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["COMMANDS"]

_VERIFY_EPILOG = """

`emitter rules` lists the rules, `emitter rules ID` explains one.

exit status: 0 no findings that count, 1 findings, 2 something could not be verified, or there was nothing to verify
"""


def _plan(arguments: list[str]) -> int:
    parser = emit_parser(
        "emitter plan",
        "Say what an emission would write, and whether its formats can hold it; nothing is written. It takes the "
        "options of the emission; -o may be missing. Exit status 2 if it does not fit.",
        None,
    )
    options = parser.parse_args(arguments)
    if not options.inputs and not options.manifest:
        raise UsageError("no input", hint="name at least one file; see emitter plan --help")
    from emitter.options import Options
    from emitter.plan_report import fits, forecast, plan_json, plan_text

    package = package_of(options)
    output = None if options.output is None else only_output(options.output)
    given = {name: getattr(options, name) for name in Options._fields}
    forecasts = forecast(package, output, options.target or ["native"], given)
    if options.json:
        console.write_json(plan_json(package, forecasts))
    else:
        console.write(plan_text(package, forecasts))
    return console.EXIT_DONE if fits(forecasts) else console.EXIT_ERROR


def _targets(arguments: list[str]) -> int:
    from emitter.targets._describe import targets_json, targets_text

    parser = new_parser("emitter targets", "List the targets, or describe one.")
    parser.add_argument("name", nargs="?", metavar="NAME", help="any name of a target")
    options = parser.parse_args(arguments)
    if options.json:
        console.write_json(targets_json(options.name))
    else:
        console.write(targets_text(options.name) + "\n")
    return console.EXIT_DONE


def _header(arguments: list[str]) -> int:
    from emitter.output import write_if_changed

    parser = new_parser("emitter header", "Write emitter.h, the C and C++ reader of packs.")
    parser.add_argument("--cuda", action="store_true", help="write emitter_cuda.h, which loads CUDA programs of packs")
    parser.add_argument("-o", dest="output", metavar="FILE", help="output (default: standard output)")
    options = parser.parse_args(arguments)
    with open(os.path.join(include_dir(), "emitter_cuda.h" if options.cuda else "emitter.h"), "rb") as file:
        text = file.read()
    if options.output is None:
        console.write(text)
    else:
        write_if_changed(options.output, text)
        if options.json:
            console.write_json({"schema": "emitter.header/1", "path": options.output, "size": len(text)})
    return console.EXIT_DONE


def _diff(arguments: list[str]) -> int:
    from emitter.diff import diff
    from emitter.diff.output import FORMATS, to_json

    parser = new_parser("emitter diff", "Say what differs between two artefacts, packs or inputs; exit status 1 if so.")
    parser.add_argument("a", metavar="A", help="a file: of any CPU; nothing of it is run")
    parser.add_argument("b", metavar="B", help="another one")
    parser.add_argument("--format", choices=tuple(FORMATS), default="text", help="how to print it (default: text)")
    options = parser.parse_args(arguments)
    difference = diff(options.a, options.b)
    if options.json:
        console.write_json(to_json(difference))
    else:
        console.write(FORMATS[options.format](difference))
    return console.EXIT_DONE if difference.empty else console.EXIT_FINDINGS


def _extract(arguments: list[str]) -> int:
    from emitter.extract import extract
    from emitter.output import cleanup_on_signals

    parser = new_parser(
        "emitter extract",
        "Take the tensors out of a library, an object, an archive, a .pack or any input, whatever CPU it is for.",
    )
    parser.add_argument("file", metavar="FILE", help="the file; nothing of it is run")
    parser.add_argument(
        "-o",
        dest="output",
        required=True,
        metavar="OUT",
        help="FILE.safetensors, FILE.pack, or a new directory: a .npy file for each tensor, and manifest.json",
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="PATTERN", help="only tensors of such names (*, ?); repeatable"
    )
    parser.add_argument("--pack", type=int, metavar="N", help="which pack, if the file holds several (from 0)")
    options = parser.parse_args(arguments)
    cleanup_on_signals()
    done = extract(
        options.file,
        options.output,
        only=options.only,
        number=options.pack,
        progress=console.progress() if sys.stderr.isatty() else None,
    )
    if options.json:
        console.write_json({"schema": "emitter.extract/1", **done._asdict()})
    return console.EXIT_DONE


def _inspect(arguments: list[str]) -> int:
    from emitter.inspect.command import add_options, run

    parser = new_parser("emitter inspect", "Show what a file holds, whatever CPU and system it is for.")
    add_options(parser)
    return run(parser.parse_args(arguments), console.write)


def _verify(arguments: list[str]) -> int:
    from emitter.verify.command import run_verify, verify_options
    from emitter.verify.profile import shipped

    names = shipped()
    rows = [", ".join(names[start : start + 5]) for start in range(0, len(names), 5)]
    parser = new_parser(
        "emitter verify",
        "Prove that artefacts are right for where they will run.",
        "profiles:\n  " + ",\n  ".join(rows) + _VERIFY_EPILOG,
    )
    verify_options(parser)
    return run_verify(parser.parse_args(arguments), console.write)


def _rules(arguments: list[str]) -> int:
    from emitter.verify.command import run_rules

    parser = new_parser("emitter rules", "List the rules of `emitter verify`, or explain some.")
    parser.add_argument("ids", nargs="*", metavar="ID", help="of a rule")
    options = parser.parse_args(arguments)
    console.write(run_rules(options.ids, as_json=options.json))
    return console.EXIT_DONE


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "diff": _diff,
    "extract": _extract,
    "header": _header,
    "inspect": _inspect,
    "plan": _plan,
    "rules": _rules,
    "targets": _targets,
    "verify": _verify,
}
