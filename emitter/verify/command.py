"""The options of `emitter verify` and `emitter rules`."""

from __future__ import annotations

import os
import sys

from emitter.errors import UsageError
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

__all__ = ["run_rules", "run_verify", "verify_options"]


def verify_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `emitter verify`."""
    from emitter.verify.output import FORMATS
    from emitter.verify.settings import FAIL_ON

    add = parser.add_argument
    add("paths", nargs="*", metavar="PATH", help="files, directories, and containers: wheel, APK, AAR, zip, tar, deb")
    add("--target", metavar="T", help="what every file is for (default: what each says that it is)")
    add("--profile", metavar="P", help="what the platform asks: a name or a TOML file (default: generic-linux)")
    add("--page-size", type=int, metavar="N", help="largest page of the device's kernel, in bytes")
    add(
        "--against",
        action="append",
        default=[],
        metavar="SOURCE",
        help="an input, [NAME=]FILE as for emitting: every tensor is compared with it; may be repeated",
    )
    add("--max-size", metavar="S", help="largest artefact: bytes, or such as 64MiB")
    add("--format", choices=tuple(FORMATS), help="of the report (default: text)")
    add("--fail-on", choices=FAIL_ON, help="lowest severity that makes the exit status 1 (default: error)")
    add("--rule", action="append", default=[], metavar="ID=S", help="severity of a rule: off, info, warning, error")
    add("--second-parser", action="store_true", help="compare with what pyelftools and lief read (slow)")
    add("--baseline", metavar="FILE", help="findings that are known and do not count")
    add("--write-baseline", action="store_true", help="write all findings to the baseline's file, and succeed")
    add("--config", metavar="FILE", help="configuration (default: emitter-verify.toml or pyproject.toml upwards)")


def run_verify(options: argparse.Namespace, write: Callable[[str], None]) -> int:
    """Verify, give the report to `write`, which takes text for standard output, and return the exit status."""
    import emitter.verify.rules  # noqa: F401 - it fills the table of rules, which --rule looks into
    from emitter.verify.engine import verify_paths
    from emitter.verify.output import FORMATS
    from emitter.verify.result import Options
    from emitter.verify.settings import check_page_size, parse_size

    chosen = options.format or ("json" if options.json else "text")
    if options.json and chosen != "json":
        raise UsageError("--json contradicts --format", actual=chosen, hint="leave one of them out")
    if options.write_baseline and options.baseline is None:
        raise UsageError("--write-baseline needs the file", hint="add --baseline FILE")
    if options.config == "":
        raise UsageError("--config names no file", hint="--config /dev/null reads none")
    if options.page_size is not None:
        check_page_size(options.page_size, "--page-size")
    result = verify_paths(
        options.paths,
        Options(
            target=options.target,
            profile=options.profile,
            page_size=options.page_size,
            max_size=None if options.max_size is None else parse_size(options.max_size, "--max-size"),
            against=tuple(options.against),
            config=options.config,
            baseline=options.baseline,
            writes_baseline=options.write_baseline,
            severities=_severities(options.rule),
            second_parser=options.second_parser,
        ),
    )
    if options.fail_on:
        result.fail_on = options.fail_on
    if options.write_baseline:
        from emitter.verify import baseline

        baseline.write(result, options.baseline)
        result.note(f"{len(result.findings)} findings written to {options.baseline}")
        result.fail_on = "never"
    colour = chosen == "text" and sys.stdout.isatty() and "NO_COLOR" not in os.environ
    write(FORMATS[chosen](result, colour=colour))
    return result.status


def _severities(arguments: list[str]) -> dict[str, str]:
    from emitter.verify.model import SEVERITIES, find_rule

    severities = {}
    for argument in arguments:
        name, equals, severity = argument.partition("=")
        if not equals or severity not in (*SEVERITIES, "off"):
            expected = "ID=off, ID=info, ID=warning or ID=error"
            raise UsageError("--rule cannot be read", expected=expected, actual=argument)
        severities[find_rule(name).id] = severity
    return severities


def run_rules(names: list[str], *, as_json: bool) -> str:
    """Return the table of rules, or what those called `names` say of themselves; as JSON on request."""
    import json

    import emitter.verify.rules  # noqa: F401 - it fills the table of rules
    from emitter.verify.model import RULES, find_rule
    from emitter.verify.output import rules_json, rules_text

    rules = [find_rule(name) for name in names] if names else list(RULES.values())
    if as_json:
        return json.dumps(rules_json(rules), indent=1) + "\n"
    return rules_text(rules, full=bool(names))
