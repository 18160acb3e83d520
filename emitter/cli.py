"""The command. Exit status: 0 done, 1 findings, 2 error or misuse, 130 interrupted."""

from __future__ import annotations

import gc
import os
import sys

from emitter import __version__, console
from emitter.arguments import emit_parser, expand, include_dir, only_output, package_of
from emitter.errors import EmitterError, OutputError, UsageError, shown
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with `argv` (default: the process's arguments) and return the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        gc.disable()  # a process of ours leaves no cycles worth the time: to look for them takes 3 ms
    console.open_missing()
    try:
        return _run(arguments)
    except EmitterError as error:
        return _report(error, arguments)


def _run(arguments: list[str]) -> int:
    """Run the command, and turn what is not an error of ours into one. `arguments` is expanded in place."""
    try:
        arguments[:] = expand(arguments)
        if not arguments:
            emit_parser().print_help()
            return console.EXIT_DONE
        if arguments[0] == "emit":
            return _emit(arguments[1:])
        if arguments[0].isalpha():  # not an option, nor a file with a suffix: an emission imports no other command
            from emitter.commands import COMMANDS

            command = COMMANDS.get(arguments[0])
            if command:
                return command(arguments[1:])
        return _emit(arguments)
    except EmitterError:
        raise
    except KeyboardInterrupt:
        console.say("interrupted")
        return console.EXIT_INTERRUPTED
    except MemoryError as error:
        raise EmitterError("out of memory", hint="free some, or split the input") from error
    except ImportError as error:
        # A limit of the process is met while a part of Python is loaded.
        hint = "raise the limits of the process (`ulimit -n`, `ulimit -v`), or install Python and emitter anew"
        raise EmitterError(f"a part of Python cannot be loaded: {error}", hint=hint) from error
    except OSError as error:
        # A relative path in a folder that is gone, a table of open files that is full.
        where = str(error.filename or "the current directory, or a limit of the process")
        raise OutputError(f"the system refuses: {error.strerror or error}", where=where) from error
    except Exception as error:
        if {"-v", "--verbose"} & set(arguments):
            import traceback

            traceback.print_exc()
        what = f"internal error: {type(error).__name__}: {error}"
        raise EmitterError(what, hint="this is a bug in emitter; -v shows where") from error


def _report(error: EmitterError, arguments: Sequence[str]) -> int:
    if "--json" in arguments and error.where != console.STANDARD_OUTPUT:
        try:
            console.write_json({"schema": "emitter.error/1", "errors": [error.to_json()]})
        except OutputError as second:
            error = second
        else:
            return console.EXIT_ERROR
    console.say(f"error: {error}")
    return console.EXIT_ERROR


def _emit(arguments: list[str]) -> int:
    options = emit_parser().parse_args(arguments)
    if options.version:
        console.write(f"emitter {__version__}\n")
        return console.EXIT_DONE
    if options.include_dir:
        console.write(f"{include_dir()}\n")
        return console.EXIT_DONE
    if not options.inputs and not options.manifest:
        raise UsageError("no input", hint="name at least one file; see emitter --help")
    if options.output is None:
        first = options.inputs[0] if options.inputs else ""
        if first and not os.path.lexists(first.rpartition("raw:")[2]):
            from difflib import get_close_matches

            from emitter.commands import COMMANDS

            names = sorted(("emit", *COMMANDS))
            near = get_close_matches(first, names, n=1)
            hint = f"did you mean emitter {near[0]}?" if near else f"the commands are {', '.join(names)}"
            raise UsageError("no such file or command", where=shown(first), hint=hint)
        raise UsageError("no output", hint="add -o FILE")
    from emitter.driver import emit
    from emitter.options import Options
    from emitter.output import cleanup_on_signals

    cleanup_on_signals()
    artefacts = emit(
        package_of(options),
        only_output(options.output),
        target=options.target or ["native"],
        progress=None if options.quiet or not sys.stderr.isatty() else console.progress(),
        note=console.say if options.verbose else None,
        warn=None if options.quiet else lambda line: console.say(f"warning: {line}"),
        **{name: getattr(options, name) for name in Options._fields},
    )
    if options.json:
        console.write_json({"schema": "emitter.emit/1", "outputs": [artefact.to_json() for artefact in artefacts]})
    return console.EXIT_DONE
